"""Caption metrics against their definitions, published values, sacrebleu, pycocoevalcap and values printed by NLTK."""

import itertools
import json
import math
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from sacrebleu.metrics import BLEU

from course_utils import metrics
from course_utils.metrics import (
    bleu,
    bleu_counts,
    cider_d,
    document_frequency,
    exact_match,
    meteor_2005,
    rouge_l,
    scene_tuple_f1,
)

CASES = json.loads((Path(__file__).parent / "metric_cases.json").read_text(encoding="utf-8"))["cases"]
METRICS = (bleu, bleu_counts, rouge_l, cider_d, meteor_2005, exact_match, scene_tuple_f1)
STEMS = {
    word: group.split()[0]
    for group in (
        "ride rides riding", "dog dogs", "run runs running", "grass grasses", "surf surfs surfing",
        "play plays playing", "sit sits sitting", "climb climbs climbing", "drive drives driving", "go going",
        "friend friends",
    )
    for word in group.split()
}  # fmt: skip

# Papineni et al. 2002, Example 1, with the second sentence of NLTK's corpus example
PAPINENI = "It is a guide to action which ensures that the military always obeys the commands of the party"
PAPINENI_2 = "It is to insure the troops forever hearing the activity guidebook that party direct"
PAPINENI_REFERENCES = [
    "It is a guide to action that ensures that the military will forever heed Party commands",
    "It is the guiding principle which guarantees the military forces always being under the command of the Party",
    "It is the practical guide for the army always to heed the directions of the party",
]
HISTORY = "he read the book because he was interested in world history"
HISTORY_REFERENCE = "he was interested in world history because he read the book"
# three scenes of this course; the third candidate describes the first scene
SET_S = {
    "references": [
        ["a red circle above a blue square", "a blue square below a red circle"],
        ["a green triangle left of a red square", "a red square right of a green triangle"],
        ["a blue circle above a green circle", "a green circle below a blue circle"],
    ],
    "candidates": [
        "a red circle above a blue square",
        "a red square right of a green triangle",
        "a red circle above a blue square",
    ],
}

WORDS = st.lists(st.sampled_from(["a", "b", "c", "dog", "é", "犬"]), min_size=1, max_size=9).map(" ".join)
IMAGES = st.lists(st.tuples(WORDS | st.just(""), st.lists(WORDS, min_size=1, max_size=4)), min_size=1, max_size=5)
steady = settings(derandomize=True, deadline=None, max_examples=60)


def one(candidate, *references):
    """Return the keyword arguments of a corpus of one image."""
    return {"candidates": [candidate], "references": [list(references)]}


def corpus(images):
    """Return the keyword arguments of generated images."""
    return {"candidates": [image[0] for image in images], "references": [image[1] for image in images]}


def lowered(case):
    """Return a stored case in lower case, as NLTK's METEOR sees it."""
    return {
        "candidates": [caption.lower() for caption in case["candidates"]],
        "references": [[caption.lower() for caption in captions] for captions in case["references"]],
    }


def coco(scorer, candidates, references):
    """Return what a scorer of pycocoevalcap gives for the same captions."""
    results = {i: [caption] for i, caption in enumerate(candidates)}
    return scorer.compute_score(dict(enumerate(references)), results)


def with_epsilon(counts, small=1e-9, tiny=1e-15):
    """Return BLEU of the same counts with the two constants that pycocoevalcap adds; a zero can become 0.03 by them."""
    ratio = (counts.candidate_length + tiny) / (counts.reference_length + small)
    values, product = [], 1.0
    for order, (match, total) in enumerate(zip(counts.matches, counts.totals, strict=True), 1):
        product *= (match + tiny) / (total + small)
        values.append(product ** (1 / order) * (math.exp(1 - 1 / ratio) if ratio < 1 else 1))
    return values


def sacre(candidates, references, n):
    """Return sacrebleu's result without tokenisation and smoothing; it wants the references by number, not by image."""
    columns = [list(column) for column in itertools.zip_longest(*references)]
    scorer = BLEU(tokenize="none", smooth_method="none", force=True, max_ngram_order=n)
    return scorer.corpus_score(candidates, columns)


# ---------------------------------------------------------------- stored cases


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_stored_case(case):
    captions = {"candidates": case["candidates"], "references": case["references"]}
    counts = bleu_counts(**captions).corpus
    assert list(counts.matches) == case["matches"] and list(counts.totals) == case["totals"]
    assert [counts.candidate_length, counts.reference_length] == case["lengths"]
    assert counts.penalty == pytest.approx(case["penalty"], abs=1e-15)
    assert bleu(**captions).corpus == pytest.approx(case["bleu"], abs=1e-12)
    assert with_epsilon(counts) == pytest.approx(case["bleu_pycocoevalcap"], abs=1e-12)
    if case["id"] == "double_space":  # pycocoevalcap's ROUGE-L counts an empty word between two spaces
        assert rouge_l(**captions).corpus == 1.0 > case["rouge_l"]
    else:
        assert rouge_l(**captions).corpus == pytest.approx(case["rouge_l"], abs=1e-12)
    if case["cider_d"] is not None:
        assert cider_d(**captions).corpus == pytest.approx(case["cider_d"][0], abs=1e-12)
        assert cider_d(**captions).images == pytest.approx(case["cider_d"][1], abs=1e-12)
    nltk = meteor_2005(**lowered(case), rule="last_first")
    assert nltk.corpus == pytest.approx(case["meteor_exact"], abs=1e-12)
    assert meteor_2005(**lowered(case)).corpus >= nltk.corpus - 1e-12
    stemmed = meteor_2005(**lowered(case), rule="last_first", stem=lambda word: STEMS.get(word, word))
    assert stemmed.corpus == pytest.approx(case["meteor_stem"], abs=1e-12)


# ---------------------------------------------------------------- BLEU


def test_bleu_papineni_example_1():
    counts = bleu_counts(**one(PAPINENI, *PAPINENI_REFERENCES)).corpus
    assert counts.matches == (17, 10, 7, 4) and counts.totals == (18, 17, 16, 15)
    assert counts.precisions == (17 / 18, 10 / 17, 7 / 16, 4 / 15)
    assert counts.bleu == pytest.approx((0.9444444, 0.7453560, 0.6240726, 0.5045666840), abs=1e-7)
    worse = bleu_counts(**one(PAPINENI_2, *PAPINENI_REFERENCES)).corpus
    assert worse.matches == (8, 1, 0, 0) and worse.totals == (14, 13, 12, 11)
    assert worse.penalty == pytest.approx(math.exp(1 - 16 / 14), abs=1e-15)
    assert worse.bleu == pytest.approx((0.49536, 0.18175, 0, 0), abs=1e-5)


def test_bleu_papineni_examples_2_to_4():
    mats = ["the cat is on the mat", "there is a cat on the mat"]
    the = bleu_counts(**one("the the the the the the the", *mats)).corpus
    assert (the.matches[:2], the.totals[:2]) == ((2, 0), (7, 6))
    short = bleu_counts(**one("of the", *PAPINENI_REFERENCES)).corpus
    assert (short.matches[:2], short.totals[:2]) == ((2, 1), (2, 1)) and short.penalty == math.exp(1 - 16 / 2)
    always = ["I always do", "I invariably do", "I perpetually do"]
    many = bleu_counts(**one("I always invariably perpetually do", *always)).corpus
    right = bleu_counts(**one("I always do", *always)).corpus
    assert (many.matches[0], many.totals[0]) == (5, 5) and (right.matches[0], right.totals[0]) == (3, 3)
    assert right.bleu[1] == 1.0 > many.bleu[1]


def test_bleu_corpus_is_not_the_mean_of_sentences():
    result = bleu(candidates=[PAPINENI, HISTORY], references=[PAPINENI_REFERENCES, [HISTORY_REFERENCE]])
    assert result.corpus[3] == pytest.approx(0.5920779, abs=1e-7)
    assert [image[3] for image in result.images] == pytest.approx([0.5045667, 0.7400828], abs=1e-7)
    result = bleu(candidates=["a b c d", "e f x y"], references=[["a b c d"], ["e f g h"]])
    assert result.corpus == pytest.approx((0.75, 0.70711, 0.62996, 0.59460), abs=1e-5)
    means = [sum(image[n] for image in result.images) / 2 for n in range(4)]
    assert means == pytest.approx((0.75, 0.70412, 0.5, 0.5), abs=1e-5)


def test_bleu_lengths():
    ten = "a b c d e f g h i j"
    assert bleu(**one("a b c d e f", ten)).corpus == (math.exp(1 - 10 / 6),) * 4
    assert math.exp(1 - 10 / 6) == pytest.approx(0.5134171, abs=1e-7)
    for references in ((ten, "a b c d e f"), ("a b c d e f", ten)):  # 10 and 6 are as close to 8: the shorter counts
        tie = bleu_counts(**one("a b c d e f g h", *references)).corpus
        assert tie.reference_length == 6 and tie.penalty == 1.0
    assert bleu(**one("a dog runs", "a dog runs")).corpus == (1.0, 1.0, 1.0, 0.0)  # no 4-gram: 0 by definition


def test_bleu_of_the_other_reading_of_a_scene():
    other = one("a red circle above a blue square", "a blue square below a red circle")
    assert bleu(**other).corpus == pytest.approx((0.8571429, 0.7559289, 0.6114214, 0.0), abs=1e-7)
    assert rouge_l(**other).corpus == pytest.approx(0.4285714, abs=1e-7)


def test_bleu_from_published_counts():
    fakecap = metrics.BleuCounts((5732, 2510, 1043, 423), (9893, 8893, 7893, 6893), 9893, 9855)  # COCO's demo
    assert fakecap.penalty == 1.0
    assert fakecap.bleu == pytest.approx((0.57940, 0.40439, 0.27854, 0.19083), abs=1e-5)
    readme = metrics.BleuCounts((14, 7, 5, 3), (17, 14, 11, 8), 17, 18)  # the example of sacrebleu's README
    assert (readme.penalty, readme.bleu[3]) == pytest.approx((0.943, 0.4853), abs=5e-4)


def test_values_of_nlg_eval():
    good = one("this is a good test", "this is a test", "this is also a test")
    assert bleu(**good).corpus == pytest.approx((0.8, 0.6324555, 0.510873, 0.0), abs=1e-6)
    assert rouge_l(**good).corpus == pytest.approx(0.9070632, abs=1e-6)
    assert cider_d(**good).corpus == 0.0


def test_bleu_orders():
    captions = {"candidates": SET_S["candidates"], "references": SET_S["references"]}
    assert bleu(**captions, max_order=2).corpus == bleu(**captions).corpus[:2]
    assert len(bleu(**captions, max_order=6).images[0]) == 6


def test_bleu_counts_add_up():
    result = bleu_counts(**SET_S)
    for field in ("matches", "totals"):
        rows = [getattr(image, field) for image in result.images]
        assert getattr(result.corpus, field) == tuple(map(sum, zip(*rows, strict=True)))
    assert result.corpus.candidate_length == sum(image.candidate_length for image in result.images)
    assert result.corpus.reference_length == sum(image.reference_length for image in result.images)


@steady
@given(IMAGES)
def test_bleu_equals_sacrebleu_and_pycocoevalcap(images):
    captions = corpus(images)
    (counts, per_image_counts), ours = bleu_counts(**captions), bleu(**captions)
    for n in range(1, 5):
        theirs = sacre(captions["candidates"], captions["references"], n)
        assert ours.corpus[n - 1] == pytest.approx(theirs.score / 100, abs=1e-9)
        assert list(counts.matches[:n]) == theirs.counts and list(counts.totals[:n]) == theirs.totals
        assert (counts.candidate_length, counts.reference_length) == (theirs.sys_len, theirs.ref_len)
    values, per_image = coco(Bleu(4), captions["candidates"], captions["references"])
    theirs = [values, *zip(*per_image, strict=True)]
    for mine, tally, other in zip([ours.corpus, *ours.images], [counts, *per_image_counts], theirs, strict=True):
        assert with_epsilon(tally) == pytest.approx(list(other), abs=1e-12)
        assert all(value == pytest.approx(near, abs=1e-8) for value, near in zip(mine, other, strict=True) if value)


@steady
@given(WORDS, st.lists(WORDS, min_size=1, max_size=4))
def test_bleu_clip_equals_the_counter_definition(candidate, references):
    counts = bleu_counts(**one(candidate, *references)).corpus
    for n in range(1, 5):
        limit = Counter()
        for reference in references:
            limit |= Counter(metrics.ngrams(reference.split(), n))
        assert counts.matches[n - 1] == (Counter(metrics.ngrams(candidate.split(), n)) & limit).total()


# ---------------------------------------------------------------- ROUGE-L


def test_rouge_published_values():
    gunman = [
        rouge_l(**one(caption, "police killed the gunman"), beta=1).corpus
        for caption in ("police kill the gunman", "the gunman kill police", "the gunman police killed")
    ]
    assert gunman == pytest.approx([0.75, 0.5, 0.5], abs=1e-12)
    short = one("the cat", "the cat sat on the mat")
    assert rouge_l(**short).corpus == pytest.approx(0.4586466, abs=1e-7)
    assert rouge_l(**short, beta=1).corpus == pytest.approx(0.5, abs=1e-12)
    pair = {"candidates": [PAPINENI, HISTORY], "references": [PAPINENI_REFERENCES, [HISTORY_REFERENCE]]}
    assert rouge_l(**pair).images == pytest.approx([0.6539961, 0.5454545], abs=1e-7)
    assert rouge_l(**SET_S).images == pytest.approx([1, 1, 0.5714286], abs=1e-7)


def test_rouge_mixes_references_by_the_coco_rule_only():
    mixed = one("a b c", "a b", "a b c d e f")
    assert rouge_l(**mixed).corpus == 1.0  # precision of the longer reference, recall of the shorter
    assert rouge_l(**mixed, rule="best_reference").corpus == pytest.approx(0.8299, abs=1e-4)
    assert rouge_l(**mixed, rule="best_reference", beta=1).corpus == pytest.approx(0.8, abs=1e-12)


@steady
@given(IMAGES)
def test_rouge_equals_pycocoevalcap(images):
    captions = corpus(images)
    ours, (value, per_image) = rouge_l(**captions), coco(Rouge(), captions["candidates"], captions["references"])
    assert ours.corpus == pytest.approx(value, abs=1e-9)
    assert ours.images == pytest.approx(list(per_image), abs=1e-9)
    single = rouge_l(**captions, rule="best_reference")
    assert all(best <= mixed + 1e-12 for best, mixed in zip(single.images, ours.images, strict=True))


def test_rouge_white_space():
    # pycocoevalcap's ROUGE-L splits at U+0020 only, ours at any white space; lists of words are taken as given
    narrow = one("on 22\u00a03/4 street", "the 22\u00a03/4 street")
    split = one("on 22\u00a03/4 street".split(" "), "the 22\u00a03/4 street".split(" "))
    theirs, _ = coco(Rouge(), narrow["candidates"], narrow["references"])
    assert rouge_l(**split).corpus == pytest.approx(theirs, abs=1e-12)
    assert rouge_l(**narrow).corpus == pytest.approx(0.75, abs=1e-12) != theirs


# ---------------------------------------------------------------- CIDEr-D


def test_cider_published_values():
    pair = {"candidates": [PAPINENI, HISTORY], "references": [PAPINENI_REFERENCES, [HISTORY_REFERENCE]]}
    assert cider_d(**pair).corpus == pytest.approx(5.125293, abs=1e-6)
    assert cider_d(**pair).images == pytest.approx([2.58392, 7.666667], abs=1e-6)
    assert cider_d(**SET_S).corpus == pytest.approx(5.456227, abs=1e-6)
    assert cider_d(**SET_S).images == pytest.approx([7.514181, 7.075786, 1.778713], abs=1e-6)
    first = {**SET_S, "candidates": [captions[0] for captions in SET_S["references"]]}
    assert cider_d(**first).images == pytest.approx([7.514181, 7.075786, 7.58561], abs=1e-5)


@pytest.mark.parametrize("words, value", [(5, 10.0), (4, 10.0), (3, 7.5), (2, 5.0), (1, 2.5)])
def test_cider_of_perfect_short_captions(words, value):
    captions = [" ".join(f"{name}{i}" for i in range(words)) for name in "xyz"]
    result = cider_d(candidates=captions, references=[[caption] for caption in captions])
    assert result.images == pytest.approx([value] * 3, abs=1e-12)


def test_cider_of_one_image_is_zero_without_a_corpus():
    alone = one("a dog runs fast", "a dog runs fast")
    assert cider_d(**alone) == (0.0, [0.0])
    other = [["two men play guitar"], ["a cat sits there"]]
    assert cider_d(**alone, corpus=[["a dog runs fast"], *other]).corpus == pytest.approx(10.0, abs=1e-12)


def test_cider_length_and_clip():
    prefix = {"candidates": ["a b c d e f g", "x"], "references": [["a b c d e"], ["y"]]}
    assert cider_d(**prefix).images[0] == pytest.approx(7.433714, abs=1e-6)
    repeated = {"candidates": ["a a a a a", "x"], "references": [["a b c d e"], ["y"]]}
    ours, (_, theirs) = cider_d(**repeated), coco(Cider(), repeated["candidates"], repeated["references"])
    assert ours.images == pytest.approx(list(theirs), abs=1e-12)
    assert ours.images[0] == pytest.approx(0.2236068, abs=1e-7)  # without the clip five times as much


def test_cider_corpus_counted_once():
    frequency = document_frequency(references=SET_S["references"])
    assert frequency.images == 3 and frequency.counts["a",] == 3 and frequency.counts["blue", "square"] == 1
    assert cider_d(**SET_S, corpus=frequency) == cider_d(**SET_S, corpus=SET_S["references"]) == cider_d(**SET_S)
    first = one(SET_S["candidates"][0], *SET_S["references"][0])
    assert cider_d(**first, corpus=frequency).corpus == cider_d(**SET_S).images[0]


@steady
@given(IMAGES)
def test_cider_equals_pycocoevalcap(images):
    captions = corpus(images)
    ours, (value, per_image) = cider_d(**captions), coco(Cider(), captions["candidates"], captions["references"])
    assert ours.corpus == pytest.approx(value, abs=1e-9)
    assert ours.images == pytest.approx(list(per_image), abs=1e-9)


# ---------------------------------------------------------------- METEOR of 2005


def test_meteor_published_values():
    mat = "the cat sat on the mat"
    assert meteor_2005(**one(mat, mat)).corpus == pytest.approx(1 - 0.5 / 6**3, abs=1e-12)
    assert meteor_2005(**one("the cat was sat on the mat", mat)).corpus == pytest.approx(0.9654, abs=1e-4)
    assert meteor_2005(**one("on the mat sat the cat", mat)).corpus == pytest.approx(0.9375, abs=1e-12)
    assert meteor_2005(**one("on the mat sat the cat", mat), rule="last_first").corpus == pytest.approx(0.5, abs=1e-12)
    assert meteor_2005(**one("a b", "c d")).corpus == 0.0


def brute_force_chunks(candidate, reference):
    """Return the fewest chunks over every alignment with the most matches, by enumeration."""
    options = [[None, *(j for j, other in enumerate(reference) if other == word)] for word in candidate]
    best = (0, 0)
    for places in itertools.product(*options):
        used = [place for place in places if place is not None]
        if len(set(used)) == len(used):
            before = [None, *places[:-1]]
            chunks = sum(
                place is not None and (last is None or place != last + 1)
                for last, place in zip(before, places, strict=True)
            )
            best = max(best, (len(used), -chunks))
    return -best[1]


def test_fewest_chunks_equals_enumeration():
    draw = random.Random(0)
    for _ in range(300):
        candidate, reference = (draw.choices("aabcd", k=draw.randint(1, 6)) for _ in range(2))
        assert metrics.fewest_chunks(candidate, reference) == brute_force_chunks(candidate, reference)


def test_fewest_chunks_of_a_loop_stays_quick():
    assert metrics.fewest_chunks(["the"] * 25, ["the"] * 25) == 1
    assert metrics.fewest_chunks(["a", "b"] * 10, ["b", "a"] * 10) == 2


# ---------------------------------------------------------------- exact match and scene tuples


def test_exact_match():
    assert exact_match(**SET_S) == (2 / 3, [1.0, 1.0, 0.0])
    assert exact_match(**one("a  red circle", ["a", "red", "circle"])).corpus == 1.0
    assert exact_match(**one("", "a red circle")).corpus == 0.0


@pytest.mark.parametrize(
    "candidate, value",
    [
        ("a red circle above a blue square", 1.0),
        ("a blue square below a red circle", 1.0),
        ("a red circle below a blue square", 0.8),  # one of five tuples
        ("a blue circle above a red square", 0.4),  # a binding swap: the two shapes only
        ("a red circle", 4 / 7),
        ("the red circle smiles brightly above the blue square", 1.0),
        ("a circle", 2 / 6),
        ("", 0.0),
    ],
)
def test_scene_tuple_f1(candidate, value):
    scene = SET_S["references"][0]
    assert scene_tuple_f1(**one(candidate, *scene)).corpus == pytest.approx(value, abs=1e-12)


def test_scene_tuples_keep_two_circles_apart():
    stated = metrics.scene_tuples("a blue circle above a green circle".split())
    assert stated == {("circle",), ("circle", "blue"), ("circle", "green"), ("blue circle", "above", "green circle")}
    assert scene_tuple_f1(**one("a green circle above a blue circle", *SET_S["references"][2])).corpus == 0.75
    chain = metrics.scene_tuples("a red circle right of a blue square below a green triangle".split())
    assert ("blue square", "left of", "red circle") in chain
    assert ("green triangle", "above", "blue square") in chain


# ---------------------------------------------------------------- properties of all


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_lists_of_words_equal_strings_and_inputs_stay_as_they_are(metric):
    words = {
        "candidates": [caption.split() for caption in SET_S["candidates"]],
        "references": [[tuple(caption.split()) for caption in captions] for captions in SET_S["references"]],
    }
    before = repr(words)
    assert metric(**words) == metric(**SET_S)
    assert repr(words) == before
    with pytest.raises(TypeError):
        metric(SET_S["candidates"], SET_S["references"])  # which list is which must be said


@steady
@given(IMAGES, st.randoms(use_true_random=False))
def test_order_of_images_and_references_does_not_matter(images, draw):
    shuffled = [(candidate, draw.sample(references, len(references))) for candidate, references in images]
    order = draw.sample(range(len(images)), len(images))
    for metric in (bleu, rouge_l, cider_d, meteor_2005, exact_match):
        straight, mixed = metric(**corpus(images)), metric(**corpus([shuffled[i] for i in order]))
        assert mixed.corpus == pytest.approx(straight.corpus, abs=1e-12)
        for place, i in enumerate(order):
            assert mixed.images[place] == pytest.approx(straight.images[i], abs=1e-12)


@steady
@given(IMAGES)
def test_values_stay_in_range_and_a_reference_as_candidate_is_best(images):
    captions = corpus(images)
    perfect = {**captions, "candidates": [references[0] for references in captions["references"]]}
    for metric, top in ((rouge_l, 1), (cider_d, 10), (meteor_2005, 1), (exact_match, 1)):
        assert all(0 <= value <= top + 1e-9 for value in metric(**captions).images)
    assert all(0 <= value <= 1 for image in bleu(**captions).images for value in image)
    assert exact_match(**perfect).corpus == 1.0 and rouge_l(**perfect).corpus == pytest.approx(1.0, abs=1e-12)
    assert bleu(**perfect).corpus[0] == 1.0


# ---------------------------------------------------------------- bad input

GOOD = ["a dog", "a cat"]
BAD = [
    ("a dog", [["a dog"]], TypeError, "candidates is a str; expected a list of captions"),
    ({0: ["a dog"]}, [["a dog"]], TypeError, "candidates is a dict"),
    (GOOD, "a dog", TypeError, "references is a str"),
    (GOOD, [["a dog"], "a cat"], TypeError, r"references\[1\] is a str; expected a list of captions of that image"),
    (GOOD, [["a dog"]], ValueError, "2 candidates, 1 reference lists"),
    (GOOD, [["a dog"], []], ValueError, r"references\[1\] is empty"),
    ([], [], ValueError, "candidates is empty"),
    (GOOD, [["a dog"], ["a\ncat"]], ValueError, r"references\[1\]\[0\] holds a line break"),
    (["a dog", "a cat\n"], [["a dog"], ["a cat"]], ValueError, r"candidates\[1\] holds a line break"),
    (["a dog", "a\u2028cat"], [["a dog"], ["a cat"]], ValueError, r"candidates\[1\] holds a line break"),
    (["a dog", None], [["a dog"], ["a cat"]], TypeError, r"candidates\[1\] is None; expected a str or a list of words"),
    (["a dog", [3, 4]], [["a dog"], ["a cat"]], TypeError, "decode token ids first"),
    (["a dog", ["a cat"]], [["a dog"], ["a cat"]], ValueError, "a word is not empty and holds no space"),
    (["a dog", ["a", ""]], [["a dog"], ["a cat"]], ValueError, "a word is not empty and holds no space"),
    (["a dog", ["a", "cat\n"]], [["a dog"], ["a cat"]], ValueError, "a word is not empty and holds no space"),
]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("candidates, references, error, message", BAD)
def test_bad_captions(metric, candidates, references, error, message):
    with pytest.raises(error, match=message):
        metric(candidates=candidates, references=references)


@pytest.mark.parametrize(
    "metric, argument, value, error",
    [
        *((bleu, "max_order", value, ValueError) for value in (0, -1, 2.0, True, None)),
        *((rouge_l, "beta", value, ValueError) for value in (0, -1.2, math.inf, math.nan, "1.2")),
        (rouge_l, "rule", "average", ValueError),
        (meteor_2005, "rule", "fewest_crossings", ValueError),
        (meteor_2005, "stem", "porter", TypeError),
        (cider_d, "corpus", "a dog", TypeError),
        (cider_d, "corpus", [], ValueError),
        (cider_d, "corpus", [["a dog"], []], ValueError),
    ],
)
def test_bad_options(metric, argument, value, error):
    with pytest.raises(error, match=argument):
        metric(**SET_S, **{argument: value})


def test_scene_tuples_need_references_of_this_course():
    with pytest.raises(ValueError, match=r"references\[0\] names no shape"):
        scene_tuple_f1(**one("a red circle", "a dog runs"))
