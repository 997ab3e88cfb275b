"""The explorers of notebook 01: every value of every control, errors in the view, pictures that say what they show."""

import base64
import io
import random
import re

import ipywidgets as widgets
import numpy as np
import pytest
import torch
from PIL import Image

from course_utils.explorers.scenes import attribute_bits, framed, object_names, scene_browser, scene_builder, scene_view
from course_utils.explorers.targets import build_view, target_explorer
from course_utils.scenes import COLOURS, RELATIONS, SHAPES, Recipe, generate, place
from course_utils.vocabulary import END, PAD, SPECIAL, START, T_MAX, Vocabulary, course_vocabulary, split

WORDS = course_vocabulary()
DEFAULT = "a red circle above a blue square"
THING = f"a (?:{'|'.join(COLOURS)}) (?:{'|'.join(SHAPES)})"
ROW = re.compile(f">({THING} (?:{'|'.join(RELATIONS)}) {THING})<")


def values(control):
    """Return every value of a control."""
    if isinstance(control, widgets.IntSlider):
        return range(control.min, control.max + 1)
    return [False, True] if isinstance(control, widgets.Checkbox) else [value for _, value in control._options_full]


def looks_right(explorer):
    """Assert that the view is a drawing with a described picture."""
    html = explorer.view.value
    assert explorer.error is None and 'role="alert"' not in html
    pictures = re.findall(r"<img [^>]*>", html)
    assert pictures and all(re.search(r'alt="A scene: a \w+ \w+ at row', image) for image in pictures)


def pixels(html):
    data = re.search(r'src="data:image/png;base64,([^"]+)"', html).group(1)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def cells(html):
    """Return the rows of every table of a view, as lists of plain text."""
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]


# Browser


def test_browser_shows_every_scene():
    made = generate(12, Recipe(objects=3), seed=1)
    explorer = scene_browser(made)
    assert list(values(explorer.controls["index"])) == list(range(12))
    seen = set()
    for boxes in (True, False):
        explorer.controls["boxes"].value = boxes
        for i in range(12):
            explorer.controls["index"].value = i
            looks_right(explorer)
            seen.add(explorer.view.value)
            assert ROW.findall(explorer.view.value) == made.references(i)
            assert [str(bit) for bit in attribute_bits(made.attributes[i])] in cells(explorer.view.value)
            assert "6 references (3 objects)" in explorer.view.value
    assert len(seen) == 24


@pytest.mark.parametrize("recipe", [Recipe(objects=1), Recipe(objects=5, canvas=64, layout=5, radius=(3.0, 5.0))])
def test_browser_takes_any_recipe(recipe):
    explorer = scene_browser(generate(3, recipe))
    explorer.controls["index"].value = 2
    looks_right(explorer)
    assert pixels(explorer.view.value).shape == (256, 256, 3)
    many = "1 reference (1 object)" if recipe.objects == 1 else "20 references (5 objects)"
    assert many in explorer.view.value


def test_boxes_frame_the_whole_object():
    scene = place([("red", "square", 1, 1)], Recipe(noise=0.0, colour_jitter=0.0, jitter=0.0, radius=(4.0, 4.0)))
    assert framed(scene) == [("red square", [11.5, 11.5, 20.5, 20.5])]
    bare, drawn = pixels(scene_view(scene, boxes=False)), pixels(scene_view(scene))
    assert (bare != drawn).any() and (bare[12 * 8, 12 * 8] == [217, 38, 38]).all()
    object_pixels = (bare == [217, 38, 38]).all(-1)
    assert object_pixels.sum() == (8 * 8) ** 2
    assert (drawn[object_pixels] == [217, 38, 38]).all(), "the frame covers the object"


def test_frames_of_lower_objects_come_last():
    scene = place([("red", "square", 2, 1), ("blue", "circle", 0, 1)])
    assert object_names(scene) == ["red square", "blue circle"]
    assert [name for name, _ in framed(scene)] == ["blue circle", "red square"]


def test_browser_refuses():
    with pytest.raises(TypeError, match="scenes is a Tensor; expected Scenes"):
        scene_browser(torch.zeros(3, 3, 32, 32))


# Builder


@pytest.fixture(scope="module")
def builder():
    return scene_builder(Recipe())


def test_builder_starts_with_two_objects(builder):
    looks_right(builder)
    assert len(ROW.findall(builder.view.value)) == 2
    assert builder.controls["objects"].value == 2 and builder.controls["objects"].max == 5


@pytest.mark.parametrize("objects", range(1, 6))
def test_builder_shows_the_controls_of_its_objects_only(builder, objects):
    builder.controls["objects"].value = objects
    looks_right(builder)
    shelves = [box for box in builder.children if isinstance(box, widgets.HBox)][1:]
    assert [shelf.layout.display for shelf in shelves] == ["flex"] * objects + ["none"] * (5 - objects)
    assert len(ROW.findall(builder.view.value)) == objects * (objects - 1)


def test_builder_sweeps_every_value():
    explorer = scene_builder(Recipe())
    for name, control in explorer.controls.items():
        before, views = control.value, set()
        explorer.controls["objects"].value = 5
        for value in values(control):
            control.value = value
            clash = isinstance(explorer.error, ValueError) and "two objects share one" in str(explorer.error)
            assert clash or explorer.error is None
            if clash:
                assert "two objects share one" in explorer.view.value and 'role="alert"' in explorer.view.value
            else:
                looks_right(explorer)
            views.add(explorer.view.value)
        assert len(views) == len(values(control)), f"{name} does not change the view"
        control.value = before


def test_builder_draws_what_random_controls_say():
    explorer, rng = scene_builder(Recipe()), random.Random(0)
    for _ in range(25):
        n = rng.randint(1, 5)
        chosen = list(zip(rng.sample([(c, s) for c in COLOURS for s in SHAPES], n), rng.sample(range(9), n)))
        state = {"objects": n}
        for k, ((colour, shape), cell) in enumerate(chosen, 1):
            state |= {f"colour_{k}": colour, f"shape_{k}": shape, f"row_{k}": cell // 3, f"column_{k}": cell % 3}
        explorer.set(**state)
        looks_right(explorer)
        scene = place([(colour, shape, *divmod(cell, 3)) for (colour, shape), cell in chosen])
        assert explorer.view.value.count(scene_view(scene)) == 1
        if n > 1:
            assert ROW.findall(explorer.view.value) == scene.references(0)


def test_builder_tells_why_a_scene_cannot_be(builder):
    builder.set(objects=2, row_1=0, column_1=0, row_2=0, column_2=0)
    assert "<b>ValueError</b>: two objects share one cell" in builder.view.value
    builder.controls["column_2"].value = 2
    looks_right(builder)
    builder.set(colour_2="red", shape_2="circle")
    assert "two objects share one (colour, shape) pair" in builder.view.value


@pytest.mark.parametrize("layout", [1, 2, 5])
def test_builder_takes_any_layout(layout):
    explorer = scene_builder(Recipe(canvas=64, objects=1, layout=layout, radius=(3.0, 4.0)))
    looks_right(explorer)
    assert explorer.controls["objects"].value == min(2, layout**2)
    assert list(values(explorer.controls["row_1"])) == list(range(layout))
    explorer.controls["objects"].value = 5
    if layout < 3:
        assert f"at most the {layout**2} cells of the layout" in explorer.view.value
    else:
        looks_right(explorer)


def test_builder_refuses():
    with pytest.raises(TypeError, match="recipe is a int; expected a Recipe"):
        scene_builder(3)


# Targets


def late_end(vocabulary, caption, length):
    """A wrong builder: padding first, <end> in the last place."""
    ids = [START, *map(vocabulary.id, split(caption, vocabulary.level))]
    return torch.tensor(ids + [PAD] * (length - 1 - len(ids)) + [END])


BUILDERS = {"right": Vocabulary.encode, "wrong": late_end}


@pytest.fixture(scope="module")
def targets():
    return target_explorer(WORDS, BUILDERS)


def tables(html):
    """Return the table of each builder: rows of t, word, id, input, target, mask."""
    plain = html.replace("&lt;", "<").replace("&gt;", ">")
    rows, found = cells(plain), []
    for row in rows:
        if row == ["t", "word", "id", "input", "target", "mask"]:
            found.append([])
        else:
            found[-1].append(row)
    return found


def test_targets_stand_side_by_side(targets):
    targets.set(caption="a red circle", length=7)
    right, wrong = tables(targets.view.value)
    assert right == [
        ["0", "<start>", "1", "<start>", "a", "1"],
        ["1", "a", "3", "a", "red", "1"],
        ["2", "red", "9", "red", "circle", "1"],
        ["3", "circle", "13", "circle", "<end>", "1"],
        ["4", "<end>", "2", "<end>", "<pad>", "0"],
        ["5", "<pad>", "0", "<pad>", "<pad>", "0"],
        ["6", "<pad>", "0", "", "", ""],
    ]
    assert wrong[3:] == [
        ["3", "circle", "13", "circle", "<pad>", "0"],
        ["4", "<pad>", "0", "<pad>", "<pad>", "0"],
        ["5", "<pad>", "0", "<pad>", "<end>", "1"],
        ["6", "<end>", "2", "", "", ""],
    ]
    text = re.sub("<[^>]+>", "", targets.view.value).replace("&lt;", "<").replace("&gt;", ">")
    assert text.count("Decoded: a red circle") == 2
    assert "After the last word the target is <end>." in text and "After the last word the target is <pad>." in text
    assert "<end> is the target after circle." in text and "<end> is the target after <pad>." in text
    assert "right: 7 ids, 4 scored targets" in text and "wrong: 7 ids, 4 scored targets" in text


def test_targets_of_every_length(targets):
    targets.set(caption=DEFAULT, length=T_MAX)
    views = set()
    for length in values(targets.controls["length"]):
        targets.controls["length"].value = length
        views.add(targets.view.value)
        if length < 9:
            assert f"needs 9 places with &lt;start&gt; and &lt;end&gt;, length is {length}" in targets.view.value
        else:
            assert targets.error is None and [len(table) for table in tables(targets.view.value)] == [length] * 2
    assert len(views) == len(values(targets.controls["length"]))


@pytest.mark.parametrize(
    "caption, told",
    [
        ("a gren circle", "unknown word &#x27;gren&#x27;; nearest known: &#x27;green&#x27;"),
        ("<script>", "unknown word &#x27;&lt;script&gt;&#x27;"),
        (f"{DEFAULT} above a red circle", "needs 13 places"),
    ],
)
def test_targets_show_errors(targets, caption, told):
    targets.set(caption=caption, length=T_MAX)
    assert told in targets.view.value and 'role="alert"' in targets.view.value and "<script" not in targets.view.value
    targets.set(caption=DEFAULT)
    assert targets.error is None and "alert" not in targets.view.value


@pytest.mark.parametrize("caption", ["", "a", "a red circle left of a blue square", "the circle sits happily"])
def test_targets_of_any_caption(targets, caption):
    targets.set(caption=caption, length=12)
    assert targets.error is None
    built = [build(WORDS, caption, 12).tolist() for build in BUILDERS.values()]
    for ids, table in zip(built, tables(targets.view.value)):
        assert [row[1] for row in table] == [WORDS.words[i] for i in ids]
        assert [row[3:] for row in table[:-1]] == [
            [WORDS.words[a], WORDS.words[b], str(int(b != PAD))] for a, b in zip(ids, ids[1:])
        ]


def test_targets_without_end_or_words():
    text = re.sub("<[^>]+>", "", build_view(WORDS, "cut", torch.tensor([START, 3, 9])))
    assert "After the last word the target is nothing." in text and "is the target after nothing." in text
    assert "(nothing)" in build_view(WORDS, "empty", torch.tensor([START, END]))


def test_targets_of_characters():
    letters = Vocabulary.from_captions(["a red circle"], level="char")
    explorer = target_explorer(letters, {"right": Vocabulary.encode}, "a red")
    assert [row[1] for row in tables(explorer.view.value)[0]][:4] == [SPECIAL[START], "a", "␣", "r"]
    explorer.controls["length"].value = 16
    assert explorer.error is None


@pytest.mark.parametrize("builders", [None, {}, {"right": 3}, [Vocabulary.encode]])
def test_targets_refuse(builders):
    with pytest.raises(TypeError, match="builders is .*; expected a dict: name -> function"):
        target_explorer(WORDS, builders)


@pytest.mark.parametrize(
    "explorer", [lambda: scene_browser(generate(2)), lambda: scene_builder(), lambda: target_explorer(WORDS, BUILDERS)]
)
def test_stored_notebooks_keep_a_first_view(explorer):
    explorer = explorer()
    data = explorer._repr_mimebundle_()
    assert "Run this cell to change: " in data["text/html"] and len(data["text/html"]) < 40_000
    assert all(control.description for control in explorer.controls.values())
    names = [control.description for control in explorer.controls.values()]
    assert len(set(names)) == len(names), "two controls have the same name for a screen reader"
