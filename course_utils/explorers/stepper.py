"""A captioner seen one word at a time, on a scene that the reader builds."""

from collections.abc import Callable

import ipywidgets as widgets
import torch
from torch import Tensor

from course_utils.captioners import Captioner
from course_utils.explorers.view import Explorer, Html, bar_chart, columns, html_table, note, picture, stack
from course_utils.scenes import COLOURS, SHAPES, Recipe, Scenes, place
from course_utils.vocabulary import END, START, T_MAX, Vocabulary

OWN = "the model's own words"
FEEDS = (OWN, "reference 0", "reference 1")
SHOWN = 8  # words of the distribution that get a bar of their own
FIRST = (("red", "circle", 0, 0), ("blue", "square", 2, 1))
SIDE = 256  # of the picture, in pixels of the page


def show_and_tell_stepper(model: Captioner, encoder: Callable[[Tensor], Tensor], vocabulary: Vocabulary,
                          recipe: Recipe = Recipe(), objects=FIRST, steps: int = T_MAX - 1) -> Explorer:  # noqa: B008
    """Return an explorer of one caption, step by step, of a scene with two objects that the reader places.

    Every view is the model's own pass through init_state and step, from <start> to the chosen step. The words read are
    the model's own or those of a reference (teacher forcing). encoder: images (1, 3, S, S) -> what model.init_state
    reads; objects: the two first ones, each (colour, shape, row, column); steps: how many words may follow <start>.
    TypeError unless model has init_state and step and encoder can be called; ValueError unless there are two objects.
    """
    if not all(callable(getattr(model, name, None)) for name in ("init_state", "step")):
        raise TypeError(f"model is a {type(model).__name__}; expected a captioner with init_state(image) and "
                        "step(tokens, state)")
    if not callable(encoder):
        raise TypeError(f"encoder is a {type(encoder).__name__}; expected a function of images, such as a GridEncoder")
    step = widgets.IntSlider(min(1, steps - 1), 0, steps - 1, description="step:", layout=widgets.Layout(width="420px"))
    return built_scene_stepper(
        lambda scene, step, reads: step_view(model, encoder, vocabulary, scene, step, reads), step, recipe, objects,
        "A captioner's next word, step by step, on a scene of two objects")


def built_scene_stepper(view: Callable, step: widgets.IntSlider, recipe: Recipe, objects: tuple, alt: str) -> Explorer:
    """Return an explorer of view(scene, step, reads) -> Html, on a scene of two objects that the reader builds.

    objects: the two first ones, each (colour, shape, row, column). ValueError unless they are two.
    """
    if len(objects) != 2:
        raise ValueError(f"objects has {len(objects)} entries; expected two, each (colour, shape, row, column)")
    controls = {
        "step": step,
        "reads": widgets.Dropdown(options=FEEDS, description="reads:", layout=widgets.Layout(width="260px")),
        "seed": widgets.IntSlider(0, 0, 9, description="seed of jitter and noise:",
                                  layout=widgets.Layout(width="420px")),
    }  # fmt: skip
    rows, names = [["step", "reads", "seed"]], ("colour", "shape", "row", "column")
    for k, values in enumerate(objects, 1):
        controls |= object_controls(k, recipe.layout, *values)
        rows.append([f"{name}_{k}" for name in names])

    def render(step: int, reads: str, seed: int, **chosen) -> Html:
        parts = [tuple(chosen[f"{name}_{k}"] for name in names) for k in (1, 2)]
        try:
            scene = place(parts, recipe, seed)
        except ValueError as error:  # two objects in one cell, or twice the same one: nothing to describe
            return note(f"No scene: {error}.")
        return view(scene, step, reads)

    return Explorer(controls, render, alt, rows)


def object_controls(k: int, layout: int, colour: str, shape: str, row: int, column: int) -> dict[str, widgets.Widget]:
    """Return the four controls of the k-th object, by name: colour_k, shape_k, row_k, column_k."""
    narrow = {"layout": widgets.Layout(width="150px")}
    end = layout - 1
    return {
        f"colour_{k}": widgets.Dropdown(options=COLOURS, value=colour, description=f"{k} colour:", **narrow),
        f"shape_{k}": widgets.Dropdown(options=SHAPES, value=shape, description=f"{k} shape:", **narrow),
        f"row_{k}": widgets.ToggleButtons(options=range(layout), value=min(row, end), description=f"{k} row:"),
        f"column_{k}": widgets.ToggleButtons(options=range(layout), value=min(column, end), description=f"{k} column:"),
    }


@torch.no_grad()
def walk(model: Captioner, image: Tensor, read: list[int] | None, steps: int) -> list[tuple[int, Tensor]]:
    """Return (word read, p(next word) (V,)) of each step from <start> on, at most steps of them, up to <end>.

    read: the ids to read, from <start> to <end>; None: after <start> the model's own most probable words.
    """
    state, word, passed = model.init_state(image), START, []
    for t in range(steps):
        word = word if read is None else read[t]
        if word == END:
            break
        log_probs, state = model.step(torch.tensor([word]), state)  # (1, V)
        passed.append((word, log_probs[0].exp()))
        word = int(log_probs[0].argmax())
    return passed


def step_view(model: Captioner, encoder: Callable, vocabulary: Vocabulary, scene: Scenes, step: int,
              reads: str = OWN) -> Html:  # fmt: skip
    """Return the scene, the caption so far and the word distribution of one step as HTML."""
    references = scene.references(0)
    read = None if reads == OWN else vocabulary.encode(references[FEEDS.index(reads) - 1], T_MAX).tolist()
    with torch.no_grad():
        image = encoder(scene.images)  # (1, L, D)
    passed = walk(model, image, read, step + 1)
    words, rows = vocabulary.words, []
    for t, (word, p) in enumerate(passed):
        rows.append([t, words[word], words[int(p.argmax())], f"{p.max():.3f}"])
    ended = len(passed) <= step  # <end> came earlier
    after, said = rows[-1][1], " ".join(row[2] for row in rows)
    told = f"The sentence has ended; step {len(passed) - 1} is its last." if ended else f"Step {step} reads `{after}`."
    return columns(
        stack(picture(scene.images[0], f"The scene: {references[0]}", max(1, SIDE // scene.recipe.canvas)),
              note("References:"), *map(note, references)),
        stack(note(told), distribution(vocabulary, passed[-1][1], after)),
        stack(note(f"Said so far: `{said}`"), html_table(rows, ["t", "reads", "says", "p"], "All steps so far")),
    )  # fmt: skip


def distribution(vocabulary: Vocabulary, p: Tensor, after: str) -> Html:
    """Return p(next word) (V,) as bars: the most probable words, and the others in one bar."""
    top = p.topk(min(SHOWN, len(p)))
    bars = {vocabulary.words[i]: value for i, value in zip(top.indices.tolist(), top.values.tolist())}
    best, rest = next(iter(bars)), len(p) - len(bars)
    if rest:
        bars[f"({rest} other words)"] = min(max(1 - sum(bars.values()), 0.0), 1.0)
    return bar_chart({word: min(value, 1.0) for word, value in bars.items()}, f"p(next word) after `{after}`", best)
