"""What a captioner with attention looks at: maps word by word, how sharp they are, how they follow an object."""

import math
from collections.abc import Callable
from typing import NamedTuple

import ipywidgets as widgets
import torch
from torch import Tensor

from course_utils.captioners import AttentionCaptioner
from course_utils.explorers.stepper import FEEDS, FIRST, OWN, SIDE, built_scene_stepper, distribution
from course_utils.explorers.view import Explorer, Html, columns, html_table, note, picture, stack
from course_utils.failures import diagnose, parse
from course_utils.pointing import cells_on_boxes
from course_utils.scenes import COLOURS, RGB, SHAPES, Recipe, Scenes, half_widths, known
from course_utils.vocabulary import END, START, T_MAX, Vocabulary

DARK = 0.25  # brightness of a cell without any weight, relative to the peak


class Word(NamedTuple):
    """One step of a pass: the word read and the word said (ids), p(next word) (V,), alpha (M,) and the gate beta."""

    read: int
    said: int
    p: Tensor
    alpha: Tensor
    beta: float


@torch.no_grad()
def glances(model: AttentionCaptioner, image: Tensor, read: list[int] | None = None, length: int = T_MAX) -> list[Word]:
    """Return every step of one pass over one image (1, L, D), from <start> to <end>, with what was looked at.

    read: ids to read, <start> first (teacher forcing); None: the model's own words, the pass of `watched_captions`.
    """
    state, word, passed = model.init_state(image), START, []
    for t in range(length):
        word = word if read is None else read[t]
        if word == END:
            break
        log_probs, state = model.step(torch.tensor([word]), state)  # (1, V)
        said = int(log_probs[0, END:].argmax()) + END  # neither <pad> nor <start>
        passed.append(Word(word, said, log_probs[0].exp(), state.alpha[0], float(state.beta[0])))
        word = said
    return passed


def entropy(alpha: Tensor) -> Tensor:
    """Return the entropy in nats of attention weights (..., M): 0 for one place, ln M for all alike."""
    return -(alpha * alpha.clamp_min(1e-12).log()).sum(-1)


def lit(image: Tensor, alpha: Tensor) -> Tensor:
    """Return the image (3, S, S) with each cell as bright as its weight in alpha (M,), the peak at full brightness.

    One block a cell, no smoothing. A sentinel (the place behind the last cell) has no block.
    """
    size = image.shape[-1]
    side = int(len(alpha) ** 0.5)  # of L, and of L + 1 with a sentinel
    if size % side:
        raise ValueError(f"alpha has {len(alpha)} places, image {size} pixels a side; expected whole cells: is alpha "
                         "(M,), of one glance at this image?")
    cells = alpha[:side * side].reshape(side, side)
    light = DARK + (1 - DARK) * cells / cells.max().clamp_min(1e-12)
    block = size // side
    return image * light.repeat_interleave(block, 0).repeat_interleave(block, 1)


def named_boxes(scene: Scenes) -> list[tuple[str, list[float]]]:
    """Return (name, box) of every object of the first scene."""
    names = [f"{COLOURS[c]} {SHAPES[s]}" for c, s in zip(scene.colours[0].tolist(), scene.shapes[0].tolist())]
    return list(zip(names, scene.boxes[0].tolist()))


def framed(scene: Scenes, alpha: Tensor, alt: str) -> Html:
    """Return the first scene lit by alpha (M,), its true boxes drawn, as a picture."""
    edges = [(name, [edge + 0.5 for edge in box]) for name, box in named_boxes(scene)]
    return picture(lit(scene.images[0], alpha), alt, max(1, SIDE // scene.recipe.canvas), edges)


def where(scene: Scenes, alpha: Tensor) -> tuple[str, str]:
    """Return the place of the peak of alpha (M,) in words, and what stands there."""
    on_box = cells_on_boxes(scene)[0]  # (n, L)
    peak, side = int(alpha.argmax()), round(on_box.shape[1] ** 0.5)
    if peak >= on_box.shape[1]:
        return "sentinel", "(not at the picture)"
    there = [name for (name, _), cells in zip(named_boxes(scene), on_box[:, peak].tolist()) if cells]
    return f"row {peak // side}, column {peak % side}", " and ".join(there) or "background"


def described(caption: str, scene: Scenes) -> list[str]:
    """Return for each word of a caption the object of the scene that it is about: its name, "either" or "-"."""
    said, names = parse(caption), [name for name, _ in named_boxes(scene)]
    words = caption.split()
    if said is None:
        return ["-"] * len(words)
    subject, other = (f"{thing.colour} {thing.shape}" if thing else "-" for thing in (said.subject, said.other))
    about = [subject if t < 3 else "either" if t < len(words) - 3 else other for t in range(len(words))]
    return ["-" if word in ("a", "of") or name not in (*names, "either") else name for word, name in zip(words, about)]


def table_of(passed: list[Word], scene: Scenes, vocabulary: Vocabulary, step: int) -> Html:
    """Return all steps of a pass as a table; the chosen step has an arrow."""
    says = [vocabulary.words[word.said] for word in passed]
    about = described(" ".join(word for word in says if word != "<end>"), scene) + ["-"] * len(says)
    rows = []
    for t, word in enumerate(passed):
        place_of, there = where(scene, word.alpha)
        rows.append(["▶" if t == step else "", str(t), vocabulary.words[word.read], says[t], f"{word.p[word.said]:.2f}",
                     place_of, f"{word.alpha.max():.2f}", f"{entropy(word.alpha):.2f}", there, about[t]])
    header = ["", "t", "reads", "says", "p", "peak", "its α", "entropy", "stands there", "word is about"]
    return html_table(rows, header, "All steps: the model's own pass")


def attention_view(model: AttentionCaptioner, encoder: Callable, vocabulary: Vocabulary, scene: Scenes, step: int,
                   reads: str = OWN) -> Html:
    """Return the map of one step over the scene, the word distribution, and all steps, as HTML."""
    references = scene.references(0)
    read = None if reads == OWN else vocabulary.encode(references[FEEDS.index(reads) - 1], T_MAX).tolist()
    with torch.no_grad():
        image = encoder(scene.images)  # (1, L, D)
    passed = glances(model, image, read)
    ended, step = step >= len(passed), min(step, len(passed) - 1)
    word, says = passed[step], vocabulary.words[passed[step].said]
    place_of, there = where(scene, word.alpha)
    alt = f"Map of step {step}, before `{says}`: the peak is at {place_of}, on {there}; the scene: {references[0]}"
    told = [note(f"Step {step} reads `{vocabulary.words[word.read]}`, looks, and says `{says}`."
                 + (" The sentence has ended." if ended else "")),
            note(f"Peak: {place_of}, α = {word.alpha.max():.2f}, on: {there}. "
                 f"Entropy {entropy(word.alpha):.2f} nats, as of {entropy(word.alpha).exp():.1f} equal places.")]
    if len(word.alpha) > image.shape[1]:
        told.append(note(f"Weight on the sentinel: {word.alpha[-1]:.2f}."))
    if model.gate is not None:
        told.append(note(f"Gate β = {word.beta:.2f}."))
    told.append(distribution(vocabulary, word.p, vocabulary.words[word.read]))
    return stack(columns(framed(scene, word.alpha, alt), stack(*told)), table_of(passed, scene, vocabulary, step))


def attention_stepper(model: AttentionCaptioner, encoder: Callable[[Tensor], Tensor], vocabulary: Vocabulary,
                      recipe: Recipe = Recipe(), objects=FIRST) -> Explorer:  # noqa: B008
    """Return an explorer of a captioner's maps, word by word, over a scene of two objects that the reader places.

    Every view is one pass of the model through init_state and step. encoder: images (1, 3, S, S) -> grid (1, L, D);
    objects: the two first ones, each (colour, shape, row, column). TypeError unless the model attends.
    """
    check_model(model, encoder)
    step = widgets.IntSlider(2, 0, T_MAX - 2, description="step:", layout=widgets.Layout(width="420px"))
    return built_scene_stepper(
        lambda scene, step, reads: attention_view(model, encoder, vocabulary, scene, step, reads), step, recipe,
        objects, "Where a captioner looks, word by word, on a scene of two objects")


def check_model(model: AttentionCaptioner, encoder: Callable) -> None:
    """Raise a TypeError unless model is a captioner with attention and encoder can be called."""
    if not isinstance(model, AttentionCaptioner):
        raise TypeError(f"model is a {type(model).__name__}; expected an AttentionCaptioner, whose state has a map")
    if not callable(encoder):
        raise TypeError(f"encoder is a {type(encoder).__name__}; expected a function of images, such as a GridEncoder")


def sharpness_explorer(scores: Tensor, values: Tensor, scene: Scenes) -> Explorer:
    """Return an explorer of alpha = softmax(beta e): what the sharpness beta does to map, entropy and context.

    scores e (L,) and values (L, A) of one glance at the first of scene. ValueError when the shapes do not fit.
    """
    if scores.ndim != 1 or values.ndim != 2 or len(values) != len(scores):
        raise ValueError(f"scores have shape {tuple(scores.shape)}, values {tuple(values.shape)}; expected (L,) and "
                         "(L, A) of one glance: take one image and one step")
    scores, values = scores.detach(), values.detach()
    mean, best = values.mean(0), values[scores.argmax()]  # (A,) each
    span, L = float((best - mean).norm()), len(scores)

    def render(beta: float) -> Html:
        alpha = (beta * scores).softmax(0)  # (L,)
        z = alpha @ values  # (A,)
        place_of, there = where(scene, alpha)
        rows = [["entropy (nats)", f"{entropy(alpha):.3f}", f"ln {L} = {math.log(L):.3f} to 0"],
                ["equal places, exp(entropy)", f"{entropy(alpha).exp():.1f}", f"{L} to 1"],
                ["largest weight", f"{alpha.max():.3f}", f"{1 / L:.3f} to 1"],
                ["distance of z from the mean annotation", f"{(z - mean).norm():.3f}", f"0 to {span:.3f}"],
                ["distance of z from the annotation at the peak", f"{(z - best).norm():.3f}", f"{span:.3f} to 0"]]
        alt = f"Map at sharpness {beta:.3g}: the peak, at {place_of}, has weight {alpha.max():.2f}"
        header = ["", f"β = {beta:.3g}", "from β = 0 to ∞"]
        return columns(framed(scene, alpha, alt), html_table(rows, header, f"Peak on: {there}"))

    slider = widgets.FloatLogSlider(1, base=2, min=-5, max=5, step=0.5, description="sharpness β:",
                                    readout_format=".3g", layout=widgets.Layout(width="460px"))
    return Explorer({"beta": slider}, render, "Attention weights as the sharpness of the scores grows")


def draw_at(objects: list[tuple[str, str]], centres: list[tuple[float, float]], recipe: Recipe) -> Scenes:
    """Return one scene of (colour, shape) objects, centred at (row, column) in pixels; no noise, no jitter."""
    shapes = torch.tensor([[known(shape, SHAPES, "shape") for _, shape in objects]])  # (1, n)
    colours = torch.tensor([[known(colour, COLOURS, "colour") for colour, _ in objects]])
    middle = torch.tensor([centres], dtype=torch.float32)  # (1, n, 2)
    radii = torch.full(shapes.shape, sum(recipe.radius) / 2)
    pixel = torch.arange(recipe.canvas)
    widths = half_widths(shapes, radii, pixel - middle[..., :1])  # (1, n, S)
    masks = (pixel - middle[..., 1:]).abs().unsqueeze(-2) <= widths.unsqueeze(-1)  # (1, n, S, S)
    images = torch.full((1, 3, recipe.canvas, recipe.canvas), recipe.background)
    for k in range(len(objects)):
        images = torch.where(masks[:, k, None], RGB[colours[:, k], :, None, None], images)
    cells = ((middle - 0.5) / recipe.pitch).long().clamp(0, recipe.layout - 1)  # (1, n, 2) row and column
    return Scenes(images, colours, shapes, cells[..., 0] * recipe.layout + cells[..., 1], middle, radii, recipe)


def move_the_shape(model: AttentionCaptioner, encoder: Callable[[Tensor], Tensor], vocabulary: Vocabulary,
                   recipe: Recipe = Recipe(), objects=(("red", "circle"), ("blue", "square"))) -> Explorer:  # noqa: B008
    """Return an explorer in which the first object moves in half pixels, and the map and the caption follow, live.

    The second object stands in the middle. The model's own pass is drawn again at every move.
    """
    check_model(model, encoder)
    low, fixed = math.ceil(sum(recipe.radius)) / 2, (recipe.canvas - 1) / 2  # the whole object stays in the picture
    high = recipe.canvas - 1 - low
    wide = {"layout": widgets.Layout(width="420px"), "readout_format": ".1f", "step": 0.5}
    controls = {
        "row": widgets.FloatSlider(low + 2, min=low, max=high, description="row of the object (px):", **wide),
        "column": widgets.FloatSlider(low + 2, min=low, max=high, description="column of the object (px):", **wide),
        "step": widgets.IntSlider(2, 0, T_MAX - 2, description="map of step:"),
    }

    def render(row: float, column: float, step: int) -> Html:
        scene = draw_at(list(objects), [(row, column), (fixed, fixed)], recipe)
        with torch.no_grad():
            image = encoder(scene.images)  # (1, L, D)
        passed = glances(model, image)
        shown = passed[min(step, len(passed) - 1)]
        caption, place_of, there = vocabulary.decode([word.said for word in passed]), *where(scene, shown.alpha)
        middle = 0.5 + recipe.pitch * (scene.cells[0, 0].item() // recipe.layout + 0.5)  # of the cell's row
        across = 0.5 + recipe.pitch * (scene.cells[0, 0].item() % recipe.layout + 0.5)
        if len(set(scene.cells[0].tolist())) == 1:
            verdict = "none; both objects stand in one cell of the layout, which no training scene has"
        elif max(abs(row - middle), abs(column - across)) > recipe.jitter:
            verdict = "none; the object stands between the cells of the layout, where no training scene has one"
        else:
            verdict = diagnose(candidate=caption, references=scene.references(0)).kind
        alt = (f"A {' '.join(objects[0])} at row {row}, column {column}, a {' '.join(objects[1])} in the middle; the "
               f"map before `{vocabulary.words[shown.said]}` peaks at {place_of}, on {there}")
        return stack(columns(framed(scene, shown.alpha, alt), stack(
            note(f"Caption: `{caption}`"), note(f"Verdict: {verdict}."),
            note(f"Before `{vocabulary.words[shown.said]}` the peak is at {place_of}, on: {there}; "
                 f"entropy {entropy(shown.alpha):.2f} nats."),
            note(f"Centre of the object: row {row:.1f}, column {column:.1f} px, "
                 f"cell ({int((row + .5) // 4)}, {int((column + .5) // 4)}) of the grid."))),
            table_of(passed, scene, vocabulary, min(step, len(passed) - 1)))

    return Explorer(controls, render, "Move an object; the map and the caption follow", [["row", "column"], ["step"]])
