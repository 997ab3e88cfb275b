"""Pictures by hand, boxes that hold their objects, captions that are true, splits that share nothing."""

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest
import torch

from course_utils import scenes
from course_utils.scenes import (
    ALL_PAIRS,
    COLOURS,
    HELD_OUT,
    RELATIONS,
    RGB,
    SHAPES,
    Recipe,
    assert_disjoint,
    generate,
    half_widths,
    place,
    splits,
)
from course_utils.vocabulary import END, PAD, course_vocabulary

CLEAN = Recipe(noise=0.0, colour_jitter=0.0)
RECIPES = [Recipe(objects=n) for n in range(1, 6)] + [
    Recipe(objects=5, canvas=64, layout=5, radius=(4.0, 5.5)),
    Recipe(objects=3, canvas=48, layout=2, jitter=0.0, radius=(2.0, 2.0)),
    Recipe(objects=1, canvas=16, layout=1, radius=(1.5, 3.0), noise=0.0),
]
WORDS = course_vocabulary()


def named(recipe):
    return f"{recipe.objects} on {recipe.layout} x {recipe.layout} in {recipe.canvas}"


def inside(shape, down, across, r):
    """The definition of each shape, for one pixel."""
    if shape == "circle":
        return down**2 + across**2 <= r**2
    if shape == "square":
        return max(abs(down), abs(across)) <= r
    return abs(down) <= r and abs(across) <= (down + r) / 2


def naive(scene, i):
    """Scene i drawn pixel by pixel, for a recipe without noise and colour jitter."""
    side = scene.recipe.canvas
    image = torch.full((3, side, side), scene.recipe.background)
    for k, r in enumerate(scene.radii[i].tolist()):
        row, column = scene.centres[i, k].tolist()
        for y, x in itertools.product(range(side), repeat=2):
            if inside(SHAPES[scene.shapes[i, k]], y - row, x - column, r):
                image[:, y, x] = RGB[scene.colours[i, k]]
    return image


# Pictures


def test_masks_of_radius_two_by_hand():
    down = torch.arange(-3.0, 4.0)
    widths = half_widths(torch.tensor([[0, 1, 2]]), torch.full((1, 3), 2.0), down.expand(1, 3, 7))  # (1, 3, 7)
    masks = (torch.arange(-3.0, 4.0).abs() <= widths[0, ..., None]).tolist()
    drawn = ["\n".join("".join(".#"[bit] for bit in row) for row in mask) for mask in masks]
    circle = ".......\n...#...\n..###..\n.#####.\n..###..\n...#...\n......."
    square = ".......\n.#####.\n.#####.\n.#####.\n.#####.\n.#####.\n......."
    triangle = ".......\n...#...\n...#...\n..###..\n..###..\n.#####.\n......."
    assert drawn == [circle, square, triangle]


@pytest.mark.parametrize("n", range(1, 6))
def test_pictures_equal_a_loop_over_the_pixels(n):
    made = generate(8, dataclasses.replace(CLEAN, objects=n), seed=n)
    for i in range(len(made)):
        assert torch.equal(made.images[i], naive(made, i))


def test_a_later_object_covers_an_earlier_one():
    recipe = Recipe(noise=0.0, colour_jitter=0.0, jitter=1.5, radius=(4.2, 4.2))
    made = generate(400, recipe)
    closest = (made.centres[:, 0] - made.centres[:, 1]).abs().amax(1).argmin()
    scene = made[int(closest)]
    middle = scene.centres[0].mean(0).round().long()  # both squares would hold it
    assert (scene.centres[0, 0] - scene.centres[0, 1]).abs().max() < 2 * 4.2
    squares = dataclasses.replace(scene, shapes=torch.ones_like(scene.shapes))
    assert torch.equal(naive(squares, 0)[:, middle[0], middle[1]], RGB[scene.colours[0, 1]])
    assert torch.equal(scene.images[0], naive(scene, 0))


def test_centres_radii_and_colours_keep_their_ranges():
    made = generate(2000, Recipe(noise=0.0))
    cell = torch.stack([made.cells // 3, made.cells % 3], -1)
    offset = made.centres - torch.tensor([5.5, 15.5, 25.5])[cell]
    assert 1.45 < offset.abs().max() <= 1.5 and offset.mean().abs() < 0.05
    assert 3.2 <= made.radii.min() < 3.21 and 4.19 < made.radii.max() <= 4.2
    at = made.centres[:, 1].round().long()  # the last object is never covered
    seen = made.images[torch.arange(2000), :, at[:, 0], at[:, 1]]
    shift = seen - RGB[made.colours[:, 1]]
    assert 0.075 < shift.abs().max() <= 0.08 + 1e-6 and shift.mean().abs() < 0.005


def test_noise_has_its_spread_and_stays_in_range():
    made = generate(200, Recipe(noise=0.02))
    corner = made.images[:, :, 0, 0]
    assert corner.mean().item() == pytest.approx(0.9, abs=0.005) and corner.std().item() == pytest.approx(0.02, rel=0.1)
    loud = generate(20, Recipe(noise=0.5)).images
    assert loud.min() == 0 and loud.max() == 1
    assert (generate(3, CLEAN).images[:, :, 0, 0] == torch.tensor(0.9)).all()


@pytest.mark.parametrize("recipe", RECIPES, ids=named)
def test_tensors_have_the_promised_form(recipe):
    made, n, k = generate(300, recipe, seed=5), 300, recipe.objects  # 300: one full chunk and a part of the next
    assert len(made) == n and made.recipe == recipe
    assert made.images.shape == (n, 3, recipe.canvas, recipe.canvas) and made.images.dtype == torch.float32
    assert 0 <= made.images.min() and made.images.max() <= 1
    for name in ("colours", "shapes", "cells"):
        assert getattr(made, name).shape == (n, k) and getattr(made, name).dtype == torch.int64
    assert made.centres.shape == (n, k, 2) and made.radii.shape == (n, k) and made.boxes.shape == (n, k, 4)
    assert {made.centres.dtype, made.radii.dtype, made.boxes.dtype, made.attributes.dtype} == {torch.float32}
    assert made.cells.min() >= 0 and made.cells.max() < recipe.layout**2
    pairs = made.colours * len(SHAPES) + made.shapes
    for rows in (made.cells, pairs):
        assert all(len(set(row)) == k for row in rows.tolist()), "an object shares its cell or its pair"


def test_every_pair_cell_and_order_is_drawn_alike():
    made = generate(6000)
    pairs = (made.colours * len(SHAPES) + made.shapes).flatten().bincount(minlength=12)
    cells = made.cells.flatten().bincount(minlength=9)
    for counts in (pairs, cells):
        assert (counts / counts.float().mean() - 1).abs().max() < 0.1
    assert (made.cells[:, 0] > made.cells[:, 1]).float().mean().item() == pytest.approx(0.5, abs=0.03)


def test_only_the_pairs_of_the_recipe_are_drawn():
    pairs = (("red", "circle"), ("blue", "square"), ("blue", "circle"))
    made = generate(200, Recipe(pairs=pairs))
    drawn = {(COLOURS[c], SHAPES[s]) for c, s in zip(made.colours.flatten(), made.shapes.flatten())}
    assert drawn == set(pairs)


# Boxes and attributes


@pytest.mark.parametrize("recipe", [dataclasses.replace(r, noise=0.0) for r in RECIPES], ids=named)
def test_boxes_hold_their_objects_and_stay_in_the_picture(recipe):
    made = generate(60, recipe, seed=2)
    pixel = torch.arange(recipe.canvas)
    widths = half_widths(made.shapes, made.radii, pixel - made.centres[..., :1])  # (N, n, S)
    masks = (pixel - made.centres[..., 1:]).abs().unsqueeze(-2) <= widths.unsqueeze(-1)  # (N, n, S, S)
    for i, k in itertools.product(range(len(made)), range(recipe.objects)):
        y, x = masks[i, k].nonzero().T
        x0, y0, x1, y1 = made.boxes[i, k].tolist()
        assert x0 <= x.min() and x.max() <= x1 and y0 <= y.min() and y.max() <= y1
        assert max(x.min() - x0, x1 - x.max(), y.min() - y0, y1 - y.max()) < 2, "the box is too wide"
        assert -0.5 <= min(x0, y0) and max(x1, y1) <= recipe.canvas - 0.5
    covered = masks.any(1)
    assert ((made.images != recipe.background).any(1) <= covered).all(), "paint outside every mask"


def test_boxes_by_hand():
    scene = place([("red", "square", 0, 2)], dataclasses.replace(CLEAN, jitter=0.0, radius=(4.0, 4.0)))
    assert scene.boxes.tolist() == [[[21.5, 1.5, 29.5, 9.5]]]
    y, x = (scene.images[0, 1] < 0.5).nonzero().T
    assert (x.min(), x.max(), y.min(), y.max()) == (22, 29, 2, 9)


def test_attributes_are_presence_bits():
    scene = place([("red", "circle", 0, 0), ("red", "triangle", 1, 1), ("yellow", "circle", 2, 2)])
    assert scene.attributes.tolist() == [[1, 0, 0, 1, 1, 0, 1]]
    made = generate(50, Recipe(objects=3))
    for i, bits in enumerate(made.attributes.tolist()):
        colours, shapes = set(made.colours[i].tolist()), set(made.shapes[i].tolist())
        assert bits == [c in colours for c in range(4)] + [s in shapes for s in range(3)]


# Captions


def relation(cell, other, layout):
    """The rule in words: another row decides; within a row, the column does."""
    (row, column), (row_other, column_other) = divmod(cell, layout), divmod(other, layout)
    if row != row_other:
        return "above" if row < row_other else "below"
    return "left of" if column < column_other else "right of"


@pytest.mark.parametrize("recipe", RECIPES, ids=named)
def test_references_are_all_true_and_all_there(recipe):
    made, n = generate(25, recipe, seed=9), recipe.objects
    for i in range(len(made)):
        names = [f"a {COLOURS[c]} {SHAPES[s]}" for c, s in zip(made.colours[i], made.shapes[i])]
        cells = made.cells[i].tolist()
        expected = [
            f"{names[p]} {relation(cells[p], cells[q], recipe.layout)} {names[q]}"
            for p in range(n)
            for q in range(n)
            if p != q
        ]
        found = made.references(i)
        assert found == (expected or names)
        assert len(found) == len(set(found)) == max(1, n * (n - 1))


@pytest.mark.parametrize("first", range(9))
def test_rows_decide_before_columns(first):
    for second in set(range(9)) - {first}:
        scene = place([("red", "circle", *divmod(first, 3)), ("blue", "square", *divmod(second, 3))])
        there, back = scene.references(0)
        assert there == f"a red circle {relation(first, second, 3)} a blue square"
        assert back == f"a blue square {relation(second, first, 3)} a red circle"
        one, other = (RELATIONS.index(re.search("|".join(RELATIONS), text)[0]) for text in (there, back))
        assert one ^ 1 == other, "the two relations must be opposites"


@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("length", [10, 13])
def test_reference_ids_equal_the_encoded_references(n, length):
    made = generate(60, Recipe(objects=n), seed=n)
    ids = made.reference_ids(WORDS, length)
    assert ids.shape == (60, max(1, n * (n - 1)), length) and ids.dtype == torch.int64
    for i in range(60):
        assert torch.equal(ids[i], WORDS.encode_batch(made.references(i), length))
        assert WORDS.decode_batch(ids[i]) == made.references(i)
    assert ((ids == END).sum(-1) == 1).all() and (ids[..., -1] == (END if length == 10 and n == 0 else PAD)).any()


def test_reference_ids_refuse_a_length_that_cuts():
    made = generate(20)
    with pytest.raises(ValueError, match="length is 9; expected at least 10 for <start>, the words and <end>"):
        made.reference_ids(WORDS, 9)
    above = place([("red", "circle", 0, 0), ("blue", "square", 1, 0)])
    assert above.reference_ids(WORDS, 9)[0, 0].tolist() == WORDS.encode(above.references(0)[0], 9).tolist()
    with pytest.raises(ValueError, match="length is 8"):
        above.reference_ids(WORDS, 8)


def test_reference_ids_refuse_a_vocabulary_that_lacks_a_word():
    with pytest.raises(ValueError, match="unknown word 'yellow'"):
        generate(2).reference_ids(type(WORDS)([word for word in WORDS.words[3:] if word != "yellow"]))


# Sets of scenes


def test_indexing_gives_scenes():
    made = generate(10, Recipe(objects=3))
    for index, rows in [
        (4, [4]),
        (-1, [9]),
        (np.int64(4), [4]),
        (torch.tensor(4), [4]),
        (slice(2, 5), [2, 3, 4]),
        (torch.tensor([7, 1]), [7, 1]),
        (torch.arange(10) > 7, [8, 9]),
        ([0, 3], [0, 3]),
    ]:
        part = made[index]
        assert len(part) == len(rows) and part.recipe == made.recipe
        assert torch.equal(part.images, made.images[rows]) and torch.equal(part.radii, made.radii[rows])
        assert [part.references(k) for k in range(len(rows))] == [made.references(i) for i in rows]
    for index in (10, -11, np.int64(10)):
        with pytest.raises(IndexError, match=f"scene {index} of 10"):
            made[index]
    assert len(list(made)) == 10, "a loop over scenes must end"


def test_one_seed_is_one_data_set_and_leaves_the_global_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, same, other = generate(300, seed=1), generate(300, seed=1), generate(300, seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    for field in dataclasses.fields(one)[:-1]:
        assert torch.equal(getattr(one, field.name), getattr(same, field.name))
    assert not torch.equal(one.images, other.images) and not set(one.fingerprints()) & set(other.fingerprints())


def test_place_draws_exactly_these_objects():
    objects = [("green", "triangle", 2, 1), ("red", "circle", 0, 2), ("red", "square", 2, 0)]
    scene = place(objects, Recipe(objects=1, pairs=[("red", "circle")]), seed=4)
    assert len(scene) == 1 and scene.recipe.objects == 3
    names = [(COLOURS[c], SHAPES[s]) for c, s in zip(scene.colours[0], scene.shapes[0])]
    assert names == [thing[:2] for thing in objects] and scene.cells.tolist() == [[7, 2, 6]]
    assert "a green triangle below a red circle" in scene.references(0)
    assert torch.equal(place(objects, seed=4).images, scene.images)
    assert not torch.equal(place(objects, seed=5).images, scene.images)


def test_fingerprints_tell_scenes_apart_whatever_the_order_of_objects():
    made = generate(500, Recipe(objects=3))
    assert len(set(made.fingerprints())) == 500
    swapped = [getattr(made, name).flip(1) for name in ("colours", "shapes", "cells", "centres", "radii")]
    assert scenes.Scenes(made.images, *swapped, made.recipe).fingerprints() == made.fingerprints()
    noisy = dataclasses.replace(made, images=torch.zeros_like(made.images))
    assert noisy.fingerprints() == made.fingerprints()
    for name in ("colours", "shapes", "cells", "centres", "radii"):
        changed = getattr(made, name).clone()
        changed[0, 0] = changed[0, 0] + 1 if name != "cells" else 9
        prints = dataclasses.replace(made, **{name: changed}).fingerprints()
        assert prints[0] != made.fingerprints()[0] and prints[1:] == made.fingerprints()[1:], name


# Splits


def test_splits_share_no_scene():
    parts = splits(train=800, validation=100, test=120)
    assert {name: len(part) for name, part in parts.items()} == {"train": 800, "validation": 100, "test": 120}
    prints = [set(part.fingerprints()) for part in parts.values()]
    assert len(set.union(*prints)) == 1020
    again = splits(train=800, validation=100, test=120)
    assert all(torch.equal(parts[name].images, again[name].images) for name in parts)
    other = splits(train=800, validation=100, test=120, seed=1)
    assert not prints[0] & set(other["validation"].fingerprints())


def test_a_shared_scene_is_named():
    one, other = generate(30, seed=1), generate(30, seed=2)
    assert assert_disjoint({"train": one, "test": other}) is None
    leaky = {"train": one, "validation": generate(5, seed=3), "test": one[torch.tensor([3, 8])]}
    with pytest.raises(RuntimeError, match="2 scenes are both in train and in test; expected none"):
        assert_disjoint(leaky)


def test_splits_fail_when_their_seeds_agree(monkeypatch):
    original = scenes.generate
    monkeypatch.setattr(scenes, "generate", lambda n, recipe, seed, **more: original(n, recipe, 0, **more))
    with pytest.raises(RuntimeError, match="60 scenes are both in validation and in test"):
        splits(train=100, validation=60, test=60)


@pytest.mark.parametrize("held_out", [HELD_OUT, [["red", "circle"]], (("blue", "square"), ("blue", "circle"))])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_compositional_split_alone_holds_the_held_out_pairs(held_out, n):
    parts = splits(Recipe(objects=n), train=600, validation=200, test=200, held_out=held_out)
    assert list(parts) == ["train", "validation", "test", "compositional"] and len(parts["compositional"]) == 200
    new = torch.tensor([COLOURS.index(c) * len(SHAPES) + SHAPES.index(s) for c, s in held_out])
    holds = {
        name: torch.isin(part.colours * len(SHAPES) + part.shapes, new).any(1).float().mean().item()
        for name, part in parts.items()
    }
    assert holds == {"train": 0, "validation": 0, "test": 0, "compositional": 1}
    pairs = parts["compositional"].colours * len(SHAPES) + parts["compositional"].shapes
    assert set(new.tolist()) <= set(pairs.flatten().tolist()), "every held-out pair must be tested"
    if n == 2 and held_out is HELD_OUT:
        first = torch.isin(pairs[:, 0], new).float().mean()
        assert 0.4 < first < 0.8, "the new pair must not always come first"


def test_no_held_out_pair_no_fourth_split():
    assert list(splits(train=5, validation=5, test=5)) == ["train", "validation", "test"]
    known = {colour for colour, _ in set(ALL_PAIRS) - set(HELD_OUT)}, {s for _, s in set(ALL_PAIRS) - set(HELD_OUT)}
    assert known == (set(COLOURS), set(SHAPES)), "only the combination may be new, never a word"


# Bad input


@pytest.mark.parametrize(
    "options, message",
    [
        ({"objects": 0}, "objects is 0; expected a whole number of at least 1"),
        ({"objects": -2}, "objects is -2; expected a whole number"),
        ({"objects": 2.0}, "objects is 2.0; expected a whole number"),
        ({"canvas": "32"}, "canvas is '32'; expected a whole number"),
        ({"canvas": -32}, "canvas is -32"),
        ({"layout": 0}, "layout is 0"),
        ({"objects": 6}, "objects is 6; expected at most 5"),
        ({"objects": 5, "layout": 2}, "objects is 5; expected at most 5, at most the 4 cells of the layout"),
        ({"objects": 2, "pairs": [("red", "circle")] * 2}, "at most the 1 different pairs"),
        ({"pairs": [("rad", "circle")]}, "colour is 'rad'; expected one of red, green, blue, yellow; nearest: 'red'"),
        ({"pairs": [("red", "squares")]}, "shape is 'squares'; .*nearest: 'square'"),
        ({"radius": (0.0, 4.0)}, r"radius is \(0.0, 4.0\); expected 0 < smallest <= largest <= 5.00"),
        ({"radius": (4.2, 3.2)}, r"radius is \(4.2, 3.2\)"),
        ({"radius": (4.0, 5.1)}, "half a cell of a 3 x 3 layout on 32 pixels"),
        ({"radius": (3.0, math.nan)}, "radius is"),
        ({"radius": 4.0}, "radius is 4.0; expected 0 < smallest <= largest"),
        ({"canvas": 16}, r"radius is \(3.2, 4.2\).*largest <= 2.33"),
        ({"jitter": -1.0}, "jitter is -1.0; expected 0 or more"),
        ({"jitter": math.nan}, "jitter is nan"),
        ({"jitter": 3.0}, "jitter is 3.0; expected at most 1.80, so that no object of radius 4.2 leaves the picture"),
        ({"noise": -0.1}, "noise is -0.1"),
        ({"colour_jitter": -0.1}, "colour_jitter is -0.1"),
        ({"background": 1.5}, r"background is 1.5; expected an intensity in \[0, 1\]"),
        ({"background": 230}, "background is 230"),
    ],
)
def test_recipe_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**options)


@pytest.mark.parametrize("n", [0, -5, 2.0, "3", None])
def test_generate_refuses_a_number_of_scenes(n):
    with pytest.raises(ValueError, match=f"n is {n!r}; expected a whole number of at least 1"):
        generate(n)


RED = ("red", "circle", 0, 0)


@pytest.mark.parametrize(
    "objects, error, message",
    [
        ([], ValueError, "objects is 0"),
        ([RED, ("blue", "square", 0, 0)], ValueError, "two objects share one cell.*change one of them"),
        ([RED, ("red", "circle", 1, 1)], ValueError, r"two objects share one \(colour, shape\) pair"),
        ([("red", "circle", 3, 0)], ValueError, r"cell \(3, 0\) is outside the layout; .*row and column in 0..2"),
        ([("red", "circle", 0, -1)], ValueError, r"cell \(0, -1\) is outside"),
        ([("purple", "circle", 0, 0)], ValueError, "colour is 'purple'; expected one of red, green, blue, yellow"),
        ([("red", "circel", 0, 0)], ValueError, "nearest: 'circle'"),
        ([RED] * 6, ValueError, "objects is 6; expected at most 5"),
        ([("red", "circle", 0)], TypeError, r"objects holds \('red', 'circle', 0\); expected \(colour, shape, row"),
        ([("red", "circle", "0", 0)], TypeError, "objects holds"),
        (["red circle"], TypeError, "objects holds 'red circle'"),
        (RED, TypeError, "objects holds 'red'"),
    ],
)
def test_place_refuses(objects, error, message):
    with pytest.raises(error, match=message):
        place(objects)


def test_place_refuses_more_objects_than_cells():
    objects = [(c, s, *divmod(k, 2)) for k, (c, s) in enumerate(ALL_PAIRS[:5])]
    with pytest.raises(ValueError, match="at most the 4 cells of the layout"):
        place(objects, Recipe(layout=2))


def test_splits_refuse():
    with pytest.raises(ValueError, match="n is 0"):
        splits(train=10, validation=0, test=10)
    with pytest.raises(ValueError, match="shape is 'cube'"):
        splits(train=5, validation=5, test=5, held_out=[("red", "cube")])
    with pytest.raises(ValueError, match="at most the 1 different pairs"):
        splits(train=5, validation=5, test=5, held_out=ALL_PAIRS[:-1])


def test_wanted_pairs_may_be_lists():
    made = generate(50, Recipe(pairs=ALL_PAIRS[:4]), must_hold=[["yellow", "triangle"]])
    assert ((made.colours == 3) & (made.shapes == 2)).any(1).all()
