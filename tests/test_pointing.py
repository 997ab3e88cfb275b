"""Pointing accuracy: maps that are right, wrong or at rest by construction, on scenes whose boxes are known."""

import math
from typing import NamedTuple

import pytest
import torch
from torch.nn import functional as F

from course_utils.captioners import AttentionCaptioner, Captioner
from course_utils.pointing import cells_on_boxes, pointing, watched_captions
from course_utils.scenes import Recipe, generate, place
from course_utils.vocabulary import START, course_vocabulary

WORDS, L = course_vocabulary(), 64
STILL = Recipe(jitter=0.0, radius=(4.0, 4.0))  # centres at 5.5, 15.5 and 25.5 pixels, boxes of 8 by 8
RED, BLUE = ("red", "circle", 0, 0), ("blue", "square", 2, 1)
SCENE = place([RED, BLUE], STILL)
ON_RED, ON_BLUE, NOWHERE = 9, 8 * 6 + 3, 8 * 4 + 7  # cells (1, 1), (6, 3) and (4, 7)
SAID = "a red circle above a blue square"


class Scripted(NamedTuple):
    """Which step of its script each row is at, and the map of the last glance."""

    t: torch.Tensor
    alpha: torch.Tensor


class Pointer(Captioner):
    """Says captions, image by image, and looks at the cells named beside each word; cells may be (M,) maps."""

    def __init__(self, captions: list[str], cells: list[list], M: int = L):
        super().__init__()
        ids = [WORDS.encode(caption, 14)[1:] for caption in captions]
        self.ids = torch.stack(ids)  # (N, T)
        self.maps = torch.zeros(len(ids), 13, M)
        for i, row in enumerate(cells):
            for t, cell in enumerate(row):
                self.maps[i, t] = cell if isinstance(cell, torch.Tensor) else F.one_hot(torch.tensor(cell), M)

    def init_state(self, image):
        return Scripted(torch.zeros(len(image), dtype=torch.long), self.maps[:, 0])

    def step(self, tokens, state):
        rows = torch.arange(len(tokens))
        expected = self.ids[rows, (state.t - 1).clamp_min(0)].where(state.t > 0, START)
        assert torch.equal(tokens, expected)
        scores = 50.0 * F.one_hot(self.ids[rows, state.t], len(WORDS))
        return scores.log_softmax(-1), Scripted(state.t + 1, self.maps[rows, state.t])


def looks(subject: int, relation: int, other: int, relation_words: int = 1, end: int = NOWHERE) -> list[int]:
    """Cells for `a C S relation a C S <end>`: only the words that name something are looked at with a purpose."""
    return [NOWHERE, subject, subject, *[relation] * relation_words, NOWHERE, other, other, end]


def scores(captions, cells, part=SCENE, M=L) -> dict[str, float]:
    return pointing(Pointer(captions, cells, M), torch.zeros(len(part), L, 48), part)


# Boxes


def test_cells_on_boxes_by_hand():
    """Cell i spans 4 i - 0.5 .. 4 i + 3.5. Boxes 1.5 .. 9.5: cells 0-2; 11.5 .. 19.5: 3-4; 21.5 .. 29.5: 5-7."""
    on_box = cells_on_boxes(SCENE)
    assert on_box.shape == (1, 2, L) and on_box.dtype == torch.bool
    red, blue = on_box[0].view(2, 8, 8)
    expected = torch.zeros(2, 8, 8, dtype=torch.bool)
    expected[0, 0:3, 0:3] = True
    expected[1, 5:8, 3:5] = True  # row 2, column 1
    assert torch.equal(red, expected[0]) and torch.equal(blue, expected[1])


def test_cells_on_boxes_agree_with_the_pixels():
    """A cell that holds a pixel of the object is on its box; the box's corners hold no more than one cell beyond."""
    recipe = Recipe(objects=1, canvas=48, layout=4, noise=0.0, colour_jitter=0.0)
    part = generate(40, recipe, seed=3)
    painted = (part.images - recipe.background).abs().amax(1) > 0.05  # (N, S, S)
    cells = painted.view(40, 12, 4, 12, 4).any(4).any(2).flatten(1)
    on_box = cells_on_boxes(part)[:, 0]
    assert on_box.shape == (40, 144) and not (cells & ~on_box).any()
    square = part.shapes[:, 0] == 1
    assert (on_box[square].sum(1) - cells[square].sum(1)).float().mean() < 1.5


# Pointing


def test_a_map_on_the_right_object_scores_1():
    found = scores([SAID], [looks(ON_RED, ON_BLUE, ON_BLUE)])
    assert [found[f"pointing_{kind}"] for kind in ("colour", "shape", "relation")] == [1, 1, 1]
    assert found["entropy"] == pytest.approx(0, abs=1e-6)


def test_a_map_on_the_other_object_scores_0_but_for_the_relation():
    found = scores([SAID], [looks(ON_BLUE, ON_RED, ON_RED)])
    assert [found[f"pointing_{kind}"] for kind in ("colour", "shape", "relation")] == [0, 0, 1]


def test_a_map_on_neither_scores_0():
    found = scores([SAID], [looks(NOWHERE, NOWHERE, NOWHERE)])
    assert [found[f"pointing_{kind}"] for kind in ("colour", "shape", "relation")] == [0, 0, 0]


def test_every_kind_of_word_is_counted_by_itself():
    cells = looks(ON_RED, NOWHERE, ON_BLUE)
    cells[1] = ON_BLUE  # "red"
    found = scores([SAID], [cells])
    assert [found[f"pointing_{kind}"] for kind in ("colour", "shape", "relation")] == [0.5, 1, 0]
    turned = looks(ON_BLUE, NOWHERE, ON_RED)  # the other reference: its subject is the square
    found = scores(["a blue square below a red circle"], [turned])
    assert [found[f"pointing_{kind}"] for kind in ("colour", "shape", "relation")] == [1, 1, 0]


def test_of_is_no_relation_word():
    beside = place([("red", "circle", 1, 0), ("blue", "square", 1, 2)], STILL)
    red, blue = 8 * 3 + 1, 8 * 3 + 6
    cells = looks(red, blue, blue, 2)
    cells[4] = 0  # "of": neither object is up there
    found = scores(["a red circle left of a blue square"], [cells], beside)
    assert [found[f"pointing_{kind}"] for kind in ("colour", "shape", "relation")] == [1, 1, 1]


def test_chance_is_the_share_of_cells_that_would_count():
    found = scores([SAID], [looks(NOWHERE, NOWHERE, NOWHERE)])
    assert found["chance_colour"] == found["chance_shape"] == pytest.approx((9 + 6) / 2 / 64)
    assert found["chance_relation"] == pytest.approx((9 + 6) / 64)
    many = generate(200, seed=5)
    captions = [many.references(i)[0] for i in range(200)]
    random = torch.randint(L, (200, 13), generator=torch.Generator().manual_seed(0)).tolist()
    found = scores(captions, random, many)
    for kind, words in (("colour", 400), ("shape", 400), ("relation", 200)):
        p = found[f"chance_{kind}"]
        assert found[f"pointing_{kind}"] == pytest.approx(p, abs=3 * (p * (1 - p) / words) ** 0.5)
    assert 0.08 < found["chance_shape"] < 0.2 and found["chance_relation"] > 1.5 * found["chance_shape"]


def pair(cells: list, caption: str = SAID) -> tuple:
    """A caption of nine words beside one of seven, and where both look."""
    beside = place([("green", "triangle", 1, 0), ("yellow", "square", 1, 2)], STILL)
    both = type(SCENE)(*(torch.cat([getattr(part, name) for part in (SCENE, beside)]) for name in
                         ("images", "colours", "shapes", "cells", "centres", "radii")), STILL)  # fmt: skip
    long = looks(8 * 3 + 1, 8 * 3 + 1, 8 * 3 + 6, 2)
    return [caption, "a green triangle left of a yellow square"], [cells, long], both


def test_steps_behind_the_end_do_not_count():
    spread = torch.full((L,), 1 / L)
    for behind in (ON_RED, NOWHERE, spread):
        found = scores(*pair([*looks(ON_RED, ON_RED, ON_BLUE), behind, behind]))
        assert [found[f"pointing_{kind}"] for kind in ("colour", "shape", "relation")] == [1, 1, 1]
        assert found["entropy"] == pytest.approx(0, abs=1e-6)
    found = scores(*pair(looks(ON_RED, ON_RED, ON_BLUE, end=spread)))  # the glance at <end> is one of 8 + 9
    assert found["entropy"] == pytest.approx(torch.tensor(64.0).log().item() / 17, rel=1e-4)


@pytest.mark.parametrize("wrong", ["a red square above a blue circle", "a red circle below a blue square", "a a a"])
def test_only_correct_captions_count(wrong):
    found = scores(*pair(looks(NOWHERE, NOWHERE, NOWHERE), wrong))
    assert [found[f"pointing_{kind}"] for kind in ("colour", "shape", "relation")] == [1, 1, 1]


def test_without_a_correct_caption_nothing_is_measured():
    found = scores(["a red circle"], [looks(ON_RED, ON_RED, ON_RED)])
    assert all(math.isnan(found[name]) for name in ("pointing_shape", "chance_shape", "pointing_relation"))


def test_grids_that_do_not_fit_the_scenes_are_refused():
    part = generate(2)
    for image in (torch.rand(1, 64, 48), torch.rand(2, 144, 48)):
        with pytest.raises(ValueError, match="does not fit 2 scenes of 2 objects and 64 cells"):
            pointing(AttentionCaptioner(27), image, part)
    with pytest.raises(ValueError, match="two or more objects"):
        pointing(AttentionCaptioner(27), torch.rand(2, 64, 48), generate(2, Recipe(objects=1)))


def test_a_glance_that_rests_on_the_sentinel_misses():
    """The sentinel is place 64; what is left of the map peaks on the right object."""
    resting, looking = torch.zeros(L + 1), torch.zeros(L + 1)
    resting[ON_RED], resting[L] = 0.4, 0.6
    looking[ON_RED], looking[L] = 0.6, 0.4
    cells = looks(ON_RED, ON_RED, ON_BLUE)
    for glance, share in ((resting, 0.5), (looking, 1)):
        cells[2] = glance  # "circle"
        assert scores([SAID], [cells], M=L + 1)["pointing_shape"] == share


def test_watched_captions_are_the_pass_itself():
    captions, cells, both = pair(looks(ON_RED, ON_BLUE, ON_BLUE))
    tokens, alpha = watched_captions(Pointer(captions, cells), torch.zeros(2, L, 48))
    assert WORDS.decode_batch(tokens) == captions
    assert tokens.shape == (2, 9) and alpha.shape == (2, 9, L)  # as many steps as the longest caption with its <end>
    assert alpha[0, :8].argmax(-1).tolist() == cells[0] and alpha[1].argmax(-1).tolist() == cells[1]
