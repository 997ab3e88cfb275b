"""Scenes to look at: browse those of a data set, or place objects by hand."""

import ipywidgets as widgets
import torch
from torch import Tensor

from course_utils.explorers.view import Explorer, Html, columns, html_table, note, picture, stack
from course_utils.scenes import COLOURS, SHAPES, Recipe, Scenes, place

MOST = 5  # objects in one scene
SIDE = 256  # of the picture, in pixels of the page


def scene_browser(scenes: Scenes) -> Explorer:
    """Return an explorer of scenes: one at a time, with its boxes, references, objects and attributes.

    TypeError unless scenes is a Scenes.
    """
    if not isinstance(scenes, Scenes):
        raise TypeError(f"scenes is a {type(scenes).__name__}; expected Scenes, as generate() and splits() return them")
    last = len(scenes) - 1
    controls = {
        "index": widgets.IntSlider(0, 0, last, description="scene:", layout=widgets.Layout(width="460px")),
        "boxes": widgets.Checkbox(True, description="draw boxes", indent=False),
    }
    return Explorer(controls, lambda index, boxes: scene_view(scenes[index], boxes), f"Browser of {last + 1} scenes")


def scene_builder(recipe: Recipe = Recipe()) -> Explorer:  # noqa: B008  (frozen)
    """Return an explorer that places up to five objects on the recipe's grid and shows the scene they make.

    A scene that cannot be, two objects in one cell for instance, shows the error of `place`. TypeError unless recipe is
    a Recipe.
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe is a {type(recipe).__name__}; expected a Recipe, for instance Recipe()")
    side, end = range(recipe.layout), recipe.layout - 1
    first = [("red", "circle", 0, 0), ("blue", "square", min(1, end), end), ("green", "triangle", end, 0),
             ("yellow", "circle", 0, end), ("red", "square", end, end)]  # fmt: skip
    controls = {
        "objects": widgets.IntSlider(min(2, recipe.layout**2), 1, MOST, description="objects:"),
        "boxes": widgets.Checkbox(True, description="draw boxes", indent=False),
    }
    rows = [["objects", "boxes"]]
    for k, (colour, shape, row, column) in enumerate(first, 1):
        narrow, apart = {"layout": widgets.Layout(width="150px")}, {"layout": widgets.Layout(margin="2px 12px 2px 6px")}
        controls |= {
            f"colour_{k}": widgets.Dropdown(options=COLOURS, value=colour, description=f"{k} colour:", **narrow),
            f"shape_{k}": widgets.Dropdown(options=SHAPES, value=shape, description=f"{k} shape:", **narrow),
            f"row_{k}": widgets.ToggleButtons(options=list(side), value=row, description=f"{k} row:", **apart),
            f"column_{k}": widgets.ToggleButtons(options=list(side), value=column, description=f"{k} column:", **apart),
        }
        rows.append([f"{name}_{k}" for name in ("colour", "shape", "row", "column")])

    def render(objects: int, boxes: bool, **chosen) -> Html:
        parts = zip(*([chosen[f"{name}_{k}"] for k in range(1, objects + 1)]
                      for name in ("colour", "shape", "row", "column")))  # fmt: skip
        return scene_view(place(list(parts), recipe), boxes)

    explorer = Explorer(controls, render, "Builder of a scene with one to five objects", rows)
    shelves = [box for box in explorer.children if isinstance(box, widgets.HBox)][1:]  # one for each object

    def fold(_=None):
        for k, shelf in enumerate(shelves, 1):
            shown = "flex" if k <= controls["objects"].value else "none"
            shelf.layout = widgets.Layout(flex_flow="row wrap", width="100%", align_items="center", display=shown)

    fold()
    controls["objects"].observe(fold, "value")
    return explorer


def scene_view(scene: Scenes, boxes: bool = True) -> Html:
    """Return one scene as HTML: picture, references, objects with their boxes, attributes."""
    names, cells = object_names(scene), scene.cells[0].tolist()
    places = [divmod(cell, scene.recipe.layout) for cell in cells]
    seen = "; ".join(f"a {name} at row {row}, column {column}" for name, (row, column) in zip(names, places))
    scale = max(1, SIDE // scene.recipe.canvas)
    image = picture(scene.images[0], f"A scene: {seen}", scale, framed(scene) if boxes else None)
    references = list(enumerate(scene.references(0)))
    edges = [[f"{edge:.1f}" for edge in box] for box in scene.boxes[0].tolist()]
    objects = [[name, row, column, *edge] for name, (row, column), edge in zip(names, places, edges)]
    count = f"{len(references)} reference{'s' * (len(references) > 1)} ({len(names)} object{'s' * (len(names) > 1)})"
    half = max(6, -(-len(references) // 2))  # two tables side by side when there are many
    captions = [html_table(references[k : k + half], ["#", "caption"], count if k == 0 else "and")
                for k in range(0, len(references), half)]  # fmt: skip
    facts = stack(
        html_table(objects, ["object", "row", "column", "x0", "y0", "x1", "y1"], "Cells and boxes (pixels)"),
        html_table([attribute_bits(scene.attributes[0])], COLOURS + SHAPES, "Attributes (1: present)"),
        note("Rows and columns count from the top left, from 0."),
    )
    if len(captions) == 1:
        return columns(image, stack(captions[0], facts))
    return stack(columns(image, facts), columns(*captions))


def object_names(scene: Scenes) -> list[str]:
    """Return the colour and shape of every object of a single scene, in words."""
    return [f"{COLOURS[c]} {SHAPES[s]}" for c, s in zip(scene.colours[0].tolist(), scene.shapes[0].tolist())]


def framed(scene: Scenes) -> list[tuple[str, list[float]]]:
    """Return (name, box) of every object of a single scene, for `picture`: the frame goes round whole pixels.

    A box counts pixels by their centres, a picture by their edges: pixel x reaches from x to x + 1.
    """
    boxes = scene.boxes[0] + torch.tensor([0.0, 0.0, 1.0, 1.0])
    return sorted(zip(object_names(scene), boxes.tolist()), key=lambda pair: pair[1][1])  # lower labels come on top


def attribute_bits(bits: Tensor) -> list[int]:
    """Return presence bits (7,) float32 as whole numbers."""
    return bits.int().tolist()
