"""Kinds of failure of a caption: every kind on scenes of one to four objects, and the first disagreement."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils import scenes
from course_utils.failures import (
    COLOURS,
    INVERSE,
    KINDS,
    RELATIONS,
    SHAPES,
    Failure,
    Statement,
    Thing,
    diagnose,
    first_disagreement,
    parse,
    tally,
)
from course_utils.metrics import exact_match

PAIR = ["a red circle above a blue square", "a blue square below a red circle"]
LONE = ["a red circle"]
ROW = ["red circle", "blue square", "green triangle"]  # from left to right
TRIO = [f"a {a} left of a {b}" for a, b in itertools.combinations(ROW, 2)]
TRIO += [f"a {b} right of a {a}" for a, b in itertools.combinations(ROW, 2)]

THINGS = [Thing(colour, shape) for colour in COLOURS for shape in SHAPES]
steady = settings(derandomize=True, deadline=None, max_examples=200)


def caption(*things, relation="above"):
    """Return the caption that relates the first thing to the second, or names the only one."""
    return f" {relation} ".join(f"a {thing.colour} {thing.shape}" for thing in things)


def references(things):
    """Return every reference of things that stand in one row, in that order."""
    pairs = itertools.permutations(range(len(things)), 2)
    texts = [caption(things[i], things[j], relation="left of" if i < j else "right of") for i, j in pairs]
    return texts or [caption(*things)]


# ---------------------------------------------------------------- grammar


def test_words_are_those_of_the_scenes():
    assert (COLOURS, SHAPES, RELATIONS) == (scenes.COLOURS, scenes.SHAPES, scenes.RELATIONS)
    assert set(INVERSE) == set(RELATIONS) and all(INVERSE[INVERSE[relation]] == relation for relation in RELATIONS)


@pytest.mark.parametrize("objects", [1, 2, 3])
def test_references_of_generated_scenes_are_correct(objects):
    made = scenes.generate(6, scenes.Recipe(objects=objects), seed=3)
    for i in range(len(made)):
        for reference in made.references(i):
            assert parse(reference) is not None
            assert diagnose(candidate=reference, references=made.references(i)).kind == "correct"


def test_parse():
    assert parse("a red circle") == Statement(Thing("red", "circle"), None, None)
    expected = Statement(Thing("red", "circle"), "left of", Thing("blue", "square"))
    assert parse("a red circle left of a blue square") == parse(" a red  circle left of a blue square ") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "red circle",
        "a circle red",
        "a red red circle",
        "a red circle above",
        "a red circle above a blue",
        "a red circle left a blue square",
        "a red circle left of of a blue square",
        "a red circle a blue square",
        "a red circle above a blue square above a green triangle",
        "the red circle above the blue square",
        "a Red circle",
        "a red circle above a blue square <end>",
        "a red circles above a blue square",
        "a purple circle above a blue square",
    ],
)
def test_ungrammatical(text):
    assert parse(text) is None
    assert diagnose(candidate=text, references=PAIR) == Failure("ungrammatical")


# ---------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    "scene, text, kind, attribute",
    [
        (PAIR, "a red circle above a blue square", "correct", None),
        (PAIR, "a blue square below a red circle", "correct", None),
        (PAIR, "a red circle", "ungrammatical", None),
        (PAIR, "a red circle above a red circle", "same object twice", None),
        (PAIR, "a green triangle above a green triangle", "same object twice", None),
        (PAIR, "a blue circle above a blue square", "binding swap", "colour"),
        (PAIR, "a red circle above a red square", "binding swap", "colour"),
        (PAIR, "a blue circle above a red square", "binding swap", "colour"),
        (PAIR, "a red square above a blue square", "binding swap", "shape"),
        (PAIR, "a red circle above a blue circle", "binding swap", "shape"),
        (PAIR, "a green circle above a blue square", "wrong colour", "colour"),
        (PAIR, "a green circle below a yellow square", "wrong colour", "colour"),
        (PAIR, "a red circle above a blue triangle", "wrong shape", "shape"),
        (PAIR, "a red triangle above a blue square", "wrong shape", "shape"),
        (PAIR, "a green triangle above a blue square", "hallucinated object", None),
        (PAIR, "a red circle above a yellow triangle", "hallucinated object", None),
        (PAIR, "a green circle above a blue triangle", "wrong colour", "colour"),  # the first wrong object decides
        (PAIR, "a red triangle above a green square", "wrong shape", "shape"),
        (PAIR, "a red circle below a blue square", "wrong relation", None),
        (PAIR, "a blue square left of a red circle", "wrong relation", None),
        (LONE, "a red circle", "correct", None),
        (LONE, "a blue circle", "wrong colour", "colour"),
        (LONE, "a red square", "wrong shape", "shape"),
        (LONE, "a blue square", "hallucinated object", None),
        (LONE, "a red circle above a blue circle", "hallucinated object", None),
        (LONE, "a red circle above a red circle", "same object twice", None),
        (TRIO, "a red circle left of a green triangle", "correct", None),
        (TRIO, "a green triangle right of a blue square", "correct", None),
        (TRIO, "a red circle right of a green triangle", "wrong relation", None),
        (TRIO, "a red circle left of a green square", "binding swap", "colour"),  # the colour of the third object
        (TRIO, "a green circle left of a blue square", "binding swap", "colour"),
        (TRIO, "a red circle left of a blue triangle", "binding swap", "colour"),  # of two readings the shape's
        (TRIO, "a green triangle right of a blue triangle", "binding swap", "shape"),
        (TRIO, "a yellow circle left of a blue square", "wrong colour", "colour"),
        (TRIO, "a yellow circle left of a yellow square", "wrong colour", "colour"),
    ],
)
def test_kind(scene, text, kind, attribute):
    failure = diagnose(candidate=text, references=scene)
    assert (failure.kind, failure.attribute) == (kind, attribute)
    assert failure.kind in KINDS


def test_a_failure_says_what_was_meant():
    swap = diagnose(candidate="a red circle left of a green square", references=TRIO)
    assert swap == Failure("binding swap", Thing("green", "square"), Thing("blue", "square"), "colour")
    invented = diagnose(candidate="a red circle above a yellow triangle", references=PAIR)
    assert invented == Failure("hallucinated object", Thing("yellow", "triangle"))
    crowded = diagnose(candidate="a red circle above a blue circle", references=LONE)
    assert crowded.said == Thing("blue", "circle")
    assert diagnose(candidate="a red circle above a red circle", references=PAIR).said == Thing("red", "circle")


def test_a_right_object_keeps_its_place_in_the_pairing():
    # "a blue circle" is like both objects; the right object said beside it settles which one is meant
    beside_square = diagnose(candidate="a blue square below a blue circle", references=PAIR)
    beside_circle = diagnose(candidate="a red circle above a blue circle", references=PAIR)
    assert (beside_square.meant, beside_square.attribute) == (Thing("red", "circle"), "colour")
    assert (beside_circle.meant, beside_circle.attribute) == (Thing("blue", "square"), "shape")


def test_one_reference_of_a_pair_is_enough():
    for text in PAIR:
        assert diagnose(candidate=text, references=PAIR[:1]).kind == "correct"
    with pytest.raises(ValueError, match="give all references of the image"):
        diagnose(candidate="a red circle left of a green triangle", references=[TRIO[0], TRIO[2]])


@steady
@given(
    st.lists(st.sampled_from(THINGS), min_size=2, max_size=4, unique=True),
    st.sampled_from(THINGS),
    st.sampled_from(THINGS),
    st.sampled_from(RELATIONS),
)
def test_kinds_follow_their_definition(things, first, second, relation):
    text, scene = caption(first, second, relation=relation), references(things)
    failure = diagnose(candidate=text, references=scene)
    exact = exact_match(candidates=[text], references=[scene]).corpus == 1.0
    assert (failure.kind == "correct") == exact
    assert (failure.kind == "same object twice") == (first == second)
    right_objects = first != second and {first, second} <= set(things)
    assert (failure.kind in ("correct", "wrong relation")) == right_objects
    if failure.attribute:
        kept = "shape" if failure.attribute == "colour" else "colour"
        assert failure.said in (first, second) and failure.said not in things and failure.meant in things
        assert getattr(failure.said, kept) == getattr(failure.meant, kept)
        others = [getattr(thing, failure.attribute) for thing in things if thing != failure.meant]
        assert (failure.kind == "binding swap") == (getattr(failure.said, failure.attribute) in others)
        assert failure.kind in ("binding swap", f"wrong {failure.attribute}")
    disagreement = first_disagreement(candidate=text, references=scene)
    assert (disagreement is None) == exact


@steady
@given(st.lists(st.sampled_from(THINGS), min_size=2, max_size=4, unique=True), st.randoms(use_true_random=False))
def test_order_of_references_does_not_matter(things, draw):
    scene = references(things)
    shuffled = draw.sample(scene, len(scene))
    for first, second in draw.sample(list(itertools.permutations(THINGS, 2)), 10):
        text = caption(first, second, relation="left of")
        failures = [diagnose(candidate=text, references=order) for order in (scene, shuffled)]
        assert failures[0] == failures[1], text


def test_every_caption_of_a_pair_scene_is_counted_once():
    texts = [caption(a, b, relation=r) for a in THINGS for b in THINGS for r in RELATIONS]
    counts = tally(candidates=texts, references=[PAIR] * len(texts))
    assert tuple(counts) == KINDS and sum(counts.values()) == len(texts) == 576
    assert (counts["correct"], counts["wrong relation"], counts["same object twice"]) == (2, 6, 48)
    kinds = Counter(diagnose(candidate=text, references=PAIR).kind for text in texts)
    assert counts == {kind: kinds[kind] for kind in KINDS} and kinds["binding swap"] > 0


def test_tally_of_nothing_wrong():
    assert tally(candidates=PAIR, references=[PAIR, PAIR]) == {kind: 2 * (kind == "correct") for kind in KINDS}


# ---------------------------------------------------------------- first disagreement


@pytest.mark.parametrize(
    "text, index",
    [
        (PAIR[0], None),
        (PAIR[1], None),
        ("the red circle above a blue square", 0),
        ("a green circle above a blue square", 1),
        ("a blue circle above a blue square", 2),  # "a blue" begins the second reference
        ("a red circle below a blue square", 3),
        ("a red circle above a red square", 5),
        ("a red circle above a blue circle", 6),
        ("a red circle above a blue square above", 7),
        ("a red circle above", 4),  # it stops too early
        ("a", 1),
        ("", 0),
    ],
)
def test_first_disagreement(text, index):
    assert first_disagreement(candidate=text, references=PAIR) == index


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("function", [diagnose, first_disagreement])
@pytest.mark.parametrize(
    "candidate, scene, error, message",
    [
        (PAIR[0], PAIR[0], TypeError, "references is a str; expected the list of the image's references"),
        (PAIR[0], [], ValueError, "references is empty"),
        (["a", "red", "circle"], PAIR, TypeError, "expected a str"),
        (None, PAIR, TypeError, "is None; expected a str"),
    ],
)
def test_bad_input(function, candidate, scene, error, message):
    with pytest.raises(error, match=message):
        function(candidate=candidate, references=scene)


@pytest.mark.parametrize(
    "scene, error, message",
    [
        (["a red circle above"], ValueError, "'a red circle above' is outside the grammar a <colour> <shape>"),
        ([PAIR[0], "a red circle below a blue square"], ValueError, "contradicts another one"),
        (["a red circle above a red circle"], ValueError, "names one object twice"),
        ([["a", "red", "circle"]], TypeError, "expected a str"),
    ],
)
def test_bad_references(scene, error, message):
    with pytest.raises(error, match=message):
        diagnose(candidate=PAIR[0], references=scene)


@pytest.mark.parametrize(
    "candidates, listed, error, message",
    [
        (PAIR[0], [PAIR], TypeError, "candidates is a str"),
        ([PAIR[0]], PAIR[0], TypeError, "references is a str"),
        (PAIR, [PAIR], ValueError, "2 candidates, 1 reference lists"),
        ([PAIR[0]], PAIR[:1], TypeError, "references is a str; expected the list of the image's references"),
    ],
)
def test_bad_tally(candidates, listed, error, message):
    with pytest.raises(error, match=message):
        tally(candidates=candidates, references=listed)


def test_arguments_are_named():
    for function in (diagnose, first_disagreement, tally):
        with pytest.raises(TypeError):
            function(PAIR[0], PAIR)
