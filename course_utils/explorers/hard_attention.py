"""Soft attention against hard attention on a scene that the reader builds, and a laboratory of gradient estimates."""

import math
from collections.abc import Callable

import ipywidgets as widgets
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from course_utils.captioners import AttentionCaptioner
from course_utils.captioners.attention import hard
from course_utils.encoders import PATCH
from course_utils.explorers.stepper import FIRST, object_controls
from course_utils.explorers.view import Explorer, Html, columns, html_table, note, picture, stack
from course_utils.hard_attention import leave_one_out, sampled
from course_utils.scenes import Recipe, place
from course_utils.vocabulary import END, START, T_MAX, Vocabulary

WAYS = ("soft", "argmax", "sampled")
BASELINES = ("none", "E[f]", "optimal", "own mean", "leave one out")
SAMPLES = (1, 2, 4, 8, 16, 32, 64)
CLOUD, SIDE = 400, 280  # estimates in a cloud; pixels of its picture
BLUE, VERMILLION = (0, 114, 178), (213, 94, 0)


def soft_against_hard(model: AttentionCaptioner, encoder: Callable[[Tensor], Tensor], vocabulary: Vocabulary,
                      recipe: Recipe = Recipe(), objects=FIRST) -> Explorer:  # noqa: B008
    """Return an explorer of one captioner decoded in three ways, on a scene of two objects that the reader places.

    Soft takes the whole map, argmax its likeliest place, sampled a place drawn from it with the seed. Each map is that
    of its own pass. encoder: images (1, 3, S, S) -> grid (1, L, D). TypeError unless model is an AttentionCaptioner and
    encoder can be called; ValueError unless there are two objects.
    """
    if not isinstance(model, AttentionCaptioner):
        raise TypeError(f"model is a {type(model).__name__}; expected an AttentionCaptioner")
    if not callable(encoder):
        raise TypeError(f"encoder is a {type(encoder).__name__}; expected a function of images, such as a GridEncoder")
    if len(objects) != 2:
        raise ValueError(f"objects has {len(objects)} entries; expected two, each (colour, shape, row, column)")
    controls = {
        "step": widgets.IntSlider(2, 0, T_MAX - 2, description="word:", layout=widgets.Layout(width="420px")),
        "seed": widgets.IntSlider(0, 0, 9, description="seed of the draws:"),
    }
    rows, names = [["step", "seed"]], ("colour", "shape", "row", "column")
    for k, values in enumerate(objects, 1):
        controls |= object_controls(k, recipe.layout, *values)
        rows.append([f"{name}_{k}" for name in names])

    def render(step: int, seed: int, **chosen) -> Html:
        parts = [tuple(chosen[f"{name}_{k}"] for name in names) for k in (1, 2)]
        try:
            scene = place(parts, recipe)
        except ValueError as error:  # two objects in one cell, or twice the same one: nothing to describe
            return note(f"No scene: {error}.")
        with torch.no_grad():
            grid = encoder(scene.images)  # (1, L, D)
        return three_views(vocabulary, scene, *decode_three(model, grid, seed), step)

    return Explorer(controls, render, "One captioner decoded with soft attention, its argmax and a draw", rows)


@torch.no_grad()
def decode_three(model: AttentionCaptioner, grid: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens (3, T), alpha (3, T, M) and weights (3, T, M) of a greedy pass in each of WAYS; grid (1, L, D)."""
    draw = sampled(torch.Generator().manual_seed(seed))

    def choose(alpha: Tensor) -> Tensor:
        return torch.cat([alpha[:1], hard(alpha[1:2]), draw(alpha[2:])])  # (3, M)

    state, word, passed = model.init_state(grid.expand(3, -1, -1)), torch.full((3,), START), []
    ended = torch.zeros(3, dtype=torch.bool)
    for _ in range(T_MAX - 1):
        x = model.embed(word)  # (3, E)
        state = model.advance(x, x @ model.W_x + model.b, state, choose)
        word = END + model.score(state.h)[:, END:].argmax(-1)  # (3,) <pad> and <start> are no words
        word = word.masked_fill(ended, END)
        passed.append((word, state.alpha, state.weights))
        ended |= word == END
        if ended.all():
            break
    tokens, alpha, weights = (torch.stack(part, 1) for part in zip(*passed))
    return tokens, alpha, weights


def three_views(vocabulary: Vocabulary, scene, tokens: Tensor, alpha: Tensor, weights: Tensor, step: int) -> Html:
    """Return the glances of one step and the captions of the three ways as HTML; tensors as from `decode_three`."""
    side, references, parts, rows = scene.recipe.canvas // PATCH, scene.references(0), [], []
    for k, way in enumerate(WAYS):
        caption = vocabulary.decode(tokens[k])
        words = [*caption.split(), "<end>"]
        t = min(step, len(words) - 1)
        used, right = int(weights[k, t].argmax()), caption in references
        rows.append([way, caption, "yes" if right else "no"])
        a = alpha[k, t]  # (M,)
        spread = float(-(a * a.clamp_min(1e-12).log()).sum())
        told = f"word {t}: `{words[t]}`" + (" (the sentence has ended)" if t < step else "")
        row, column = divmod(used, side)
        spot = f"{'peak at' if way == 'soft' else 'used:'} row {row}, column {column}"
        seen = f"probability {a[used]:.3f}; entropy {spread:.2f}"
        shade = a[: side * side].view(side, side) / a.max()
        shade = shade.repeat_interleave(PATCH, 0).repeat_interleave(PATCH, 1)  # (S, S)
        shown = scene.images[0] * (0.25 + 0.75 * shade)
        box = [] if way == "soft" or used >= side * side else [
            ("used", (column * PATCH, row * PATCH, (column + 1) * PATCH, (row + 1) * PATCH))]
        parts.append(stack(note(f"{way}, {told}"), picture(shown, f"{way} attention at {told}; {spot}, {seen}", 6, box),
                           note(spot), note(seen)))
    return stack(columns(*parts), html_table(rows, ["decoded", "caption", "right"], "The three captions"),
                 note(f"References: {references[0]}; {references[1]}. Bright cells: probability of a glance, relative "
                      "to the peak. Frame: the one place used. Entropy of the map in nats."))


def reinforce_laboratory(alpha: Tensor | None = None, f: Tensor | None = None) -> Explorer:
    """Return an explorer of score-function estimates of d E[f] / d scores around the exact gradient.

    alpha, f (L,) are the probabilities and the rewards of a few places (default: six). One dot is the mean of so many
    samples; the cloud has 400 dots. ValueError unless alpha are probabilities and f has as many entries.
    """
    if alpha is None or f is None:
        dice = torch.Generator().manual_seed(1)
        alpha, f = torch.randn(6, generator=dice).softmax(0), torch.randn(6, generator=dice)
    if alpha.ndim != 1 or alpha.shape != f.shape or not math.isclose(float(alpha.sum()), 1, abs_tol=1e-4):
        raise ValueError(f"alpha {tuple(alpha.shape)} sums to {float(alpha.sum()):.3f}, f is {tuple(f.shape)}; "
                         "expected probabilities and one reward each")
    controls = {
        "samples": widgets.SelectionSlider(options=SAMPLES, value=4, description="samples an estimate:",
                                           layout=widgets.Layout(width="420px")),
        "offset": widgets.IntSlider(-8, -12, 12, description="reward offset:", layout=widgets.Layout(width="420px")),
        "baseline": widgets.ToggleButtons(options=BASELINES, description="baseline:"),
        "seed": widgets.IntSlider(0, 0, 9, description="seed:"),
    }

    def render(samples: int, offset: int, baseline: str, seed: int) -> Html:
        if samples == 1 and baseline in BASELINES[3:]:
            return note("No estimate: one sample has no others to be compared with. Take at least 2 samples.")
        return cloud_view(alpha, f + offset, samples, baseline, seed)

    return Explorer(controls, render, "Score-function estimates around the exact gradient",
                    [["samples", "offset"], ["baseline"], ["seed"]])


def score_gradients(alpha: Tensor) -> Tensor:
    """Return d log alpha_s / d scores for every place s, (L, L): row s is onehot(s) - alpha."""
    return torch.eye(len(alpha)) - alpha


def constant_baseline(alpha: Tensor, f: Tensor, baseline: str) -> float:
    """Return the constant of that name: 0, E[f], or E[f |grad log p|^2] / E[|grad log p|^2], which is optimal."""
    length = score_gradients(alpha).square().sum(1)  # (L,)
    weight = {"none": torch.zeros_like(f), "E[f]": alpha, "optimal": alpha * length / (alpha * length).sum()}[baseline]
    return float(weight @ f)


def estimates(alpha: Tensor, f: Tensor, samples: int, baseline: str, seed: int, count: int = CLOUD) -> Tensor:
    """Return count estimates (count, L) of the gradient of E[f], each the mean over so many samples."""
    dice = torch.Generator().manual_seed(seed)
    place = torch.multinomial(alpha, samples * count, True, generator=dice).view(samples, count)
    reward = f[place]  # (S, count)
    if baseline == "leave one out":
        advantage = leave_one_out(reward.flatten(), samples).view(samples, count)
    elif baseline == "own mean":
        advantage = reward - reward.mean(0)
    else:
        advantage = reward - constant_baseline(alpha, f, baseline)
    return (advantage.unsqueeze(-1) * score_gradients(alpha)[place]).mean(0)  # (count, L)


def cloud_view(alpha: Tensor, f: Tensor, samples: int, baseline: str, seed: int) -> Html:
    """Return the cloud of estimates, its bias and its variance as HTML."""
    exact = alpha * (f - alpha @ f)  # (L,)
    drawn, size = estimates(alpha, f, samples, baseline, seed), exact.norm()
    along = exact / size
    across = score_gradients(alpha)[alpha.argmax()]
    across = across - (across @ along) * along
    across = across / across.norm()
    points = torch.stack([drawn @ along, drawn @ across], 1) / size  # (count, 2), in lengths of the exact gradient
    spread = drawn.var(0).sum()
    off, noise = (drawn.mean(0) - exact).norm() / size, (spread / len(drawn)).sqrt() / size
    reach = next((r for r in (2, 5, 10, 20, 40) if points.abs().quantile(0.98) < r), 80)
    inside = (points.abs() < reach).all(1)
    ratio = spread * samples / (0.01 * size) ** 2
    rows = [["variance of one estimate", f"{spread:.3f}"], ["variance times samples", f"{spread * samples:.3f}"],
            ["bias: mean of the cloud - exact, in lengths of the exact gradient", f"{off:.3f}"],
            ["what noise alone would leave there, about", f"{noise:.3f}"],
            ["samples for an error of 1 %", "never: the bias stays" if baseline == "own mean" else f"{ratio:,.0f}"]]
    what = (f"{len(drawn)} estimates of {samples} samples, baseline {baseline}: their mean is {off:.3f} lengths off, "
            f"their standard deviation is {spread.sqrt() / size:.2f} lengths")
    return columns(
        stack(picture(draw_cloud(points, reach), what, 1),
              note(f"Window: {reach} lengths of the exact gradient to each side; {int((~inside).sum())} dots outside."),
              note("Ring: the exact gradient. Cross: the mean of all dots. Thin lines: zero."),
              note(f"One sample: only {len(alpha)} different dots." if samples == 1 else "")),
        stack(html_table(rows, ["quantity", "value"], "The cloud in numbers"),
              note("Right: along the exact gradient. Up: one direction across it.")))


def draw_cloud(points: Tensor, reach: float) -> Tensor:
    """Return a picture (3, S, S) uint8 of points (count, 2) in a window of so many units to each side of 0."""
    drawn = Image.new("RGB", (SIDE, SIDE), "white")
    pen = ImageDraw.Draw(drawn)

    def pixel(x: float, y: float) -> tuple[float, float]:
        return SIDE / 2 * (1 + x / reach), SIDE / 2 * (1 - y / reach)

    pen.line((0, SIDE / 2, SIDE, SIDE / 2), fill="#b0b0b0")
    pen.line((SIDE / 2, 0, SIDE / 2, SIDE), fill="#b0b0b0")
    for point in points.tolist():
        x, y = pixel(*point)
        pen.ellipse((x - 2, y - 2, x + 2, y + 2), fill=BLUE)
    x, y = pixel(*points.mean(0).tolist())
    for width, ink in ((7, "white"), (4, VERMILLION)):
        pen.line((x - 7, y - 7, x + 7, y + 7), fill=ink, width=width)
        pen.line((x - 7, y + 7, x + 7, y - 7), fill=ink, width=width)
    x, y = pixel(1, 0)
    for far, width, ink in ((14, 6, "white"), (13, 3, "black")):
        pen.ellipse((x - far, y - far, x + far, y + far), outline=ink, width=width)
    return torch.frombuffer(bytearray(drawn.tobytes()), dtype=torch.uint8).view(SIDE, SIDE, 3).permute(2, 0, 1)
