"""The BLEU calculator and the failure browser: what they mark is what the metrics count, for every control's values."""

import random
import re

import ipywidgets as widgets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.explorers import bleu as calculator
from course_utils.explorers.bleu import EXAMPLES, ORDERS, STYLES, bleu_calculator, marked, places
from course_utils.explorers.failures import EVERY, WRONG, disagreement, failure_browser
from course_utils.failures import KINDS, diagnose, tally
from course_utils.metrics import bleu, bleu_counts, document_frequency
from course_utils.scenes import generate, place

SCENES = generate(40, seed=6)
REFERENCES = [SCENES.references(i) for i in range(40)]
CORPUS = document_frequency(references=REFERENCES)
LINES = st.lists(st.sampled_from("abc"), max_size=7)


def text(html):
    return " ".join(re.sub(r"<[^>]*>", " ", html.replace('src="', '<"')).split())


def choices(control):
    """Return every value that a control can take, or some texts for a text field."""
    if isinstance(control, widgets.IntSlider):
        return list(range(control.min, control.max + 1))
    if isinstance(control, (widgets.Textarea, widgets.Text)):
        texts = ["", "  ", "the the\tthe", "<b>a & b</b> `c`", "a red circle above a blue square", "é 円 ☃", "x " * 40]
        return texts + ["one\ntwo words\n\n three", "\n"] * isinstance(control, widgets.Textarea)
    return list(control.options)


def sweep(explorer, seed=0):
    """Set every control to all of its values, one at a time, then some combinations; yield each state's view."""
    for control in explorer.controls.values():
        start = control.value
        for value in choices(control):
            control.value = value
            yield explorer.view.value
        control.value = start
    draw = random.Random(seed)
    for _ in range(30):
        explorer.set(**{name: draw.choice(choices(control)) for name, control in explorer.controls.items()})
        yield explorer.view.value


# ---------------------------------------------------------------- BLEU calculator


@pytest.mark.parametrize("corpus", [None, CORPUS])
def test_calculator_sweep(corpus):
    explorer, seen = bleu_calculator(corpus), set()
    for view in sweep(explorer):
        assert explorer.error is None and "<b>a &" not in view
        seen.add(view)
    assert len(seen) > 30


def test_every_control_of_the_calculator_changes_the_view():
    explorer = bleu_calculator()
    for name, value in {"order": 2, "candidate": "the cat", "references": "a dog", "example": "too short"}.items():
        before = explorer.view.value
        explorer.controls[name].value = value
        assert explorer.view.value != before


def test_the_example_is_loaded_and_named():
    explorer = bleu_calculator()
    for name, (candidate, references, source) in EXAMPLES.items():
        explorer.controls["example"].value = name
        assert explorer.state["candidate"] == candidate
        assert explorer.state["references"].split("\n") == references
        assert f"Example: {source}." in text(explorer.view.value)
        explorer.controls["candidate"].value += " x"
        assert "Your own text." in text(explorer.view.value)


def test_calculator_shows_the_worked_values():
    explorer = bleu_calculator(CORPUS)
    seen = text(explorer.view.value)
    assert "2 of 7" in seen and "the 7 2 2" in seen and "Brevity penalty 1: 7 words" in seen
    assert f"CIDEr-D, idf of {CORPUS.images} images" in seen and "CIDEr-D, idf of this image alone 0.0000" in seen
    explorer.controls["example"].value = "a good translation"
    seen = text(explorer.view.value)
    assert all(share in seen for share in ("17 of 18", "10 of 17", "7 of 16", "4 of 15", "BLEU-4 0.5046"))
    explorer.set(candidate="a b c d e f", references="a b c d e f g h i j")
    assert "exp(1 - 10/6) = 0.5134" in text(explorer.view.value)
    explorer.controls["candidate"].value = ""
    assert "(no words)" in text(explorer.view.value) and "penalty 0, as there are no words" in text(explorer.view.value)
    explorer.controls["references"].value = " \n"
    assert "Type at least one reference" in text(explorer.view.value)


def test_scene_tuples_need_a_shape():
    explorer = bleu_calculator()
    assert "- (no shape named)" in text(explorer.view.value)
    explorer.controls["example"].value = "colours swapped"
    assert "scene-tuple F1 0.4000" in text(explorer.view.value) and "BLEU-1 1.0000" in text(explorer.view.value)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(LINES, st.lists(LINES, min_size=1, max_size=3))
def test_marked_matches_are_those_that_bleu_counts(words, references):
    counts = bleu_counts(candidates=[words], references=[references]).corpus
    for n in ORDERS:
        kinds = places(words, references, n)
        assert kinds.count("match") == counts.matches[n - 1] and len(kinds) == counts.totals[n - 1]
        rows = calculator.clip_rows(words, references, n)
        assert sum(row[3] for row in rows) == counts.matches[n - 1]
        assert sum(row[1] for row in rows) == counts.totals[n - 1]


def test_matches_differ_without_colour():
    html = marked("the the the cat dog".split(), ["the cat the".split()], 1)
    styles = [next(name for name, (style, _) in STYLES.items() if style == found)
              for found in re.findall('style="([^"]*)"', html)]  # fmt: skip
    assert styles == ["match", "match", "clipped", "match", "none"]
    bare = {re.sub("color:[^;]*", "", style) for style, _ in STYLES.values()}
    assert len(bare) == 3
    assert re.findall('style="([^"]*)"', marked(list("abc"), [list("bcd")], 2))[0] == STYLES["none"][0]


def test_calculator_needs_a_document_frequency():
    with pytest.raises(TypeError, match="corpus is a list; expected what document_frequency returned"):
        bleu_calculator(REFERENCES)


# ---------------------------------------------------------------- failure browser

MODELS = {
    "right": [references[-1] for references in REFERENCES],
    "another": [REFERENCES[i - 1][0] for i in range(40)],
    "mixed": ["a", "a red", *(REFERENCES[i - 1][0] for i in range(2, 40))],
}


def test_browser_sweep():
    explorer, seen = failure_browser(MODELS, SCENES), set()
    for view in sweep(explorer):
        assert explorer.error is None
        assert "no caption of this kind" in view or re.search('<img [^>]*alt="A scene with a [^"]+"', view)
        seen.add(view)
    assert len(seen) > 30
    for model in MODELS:  # every caption of every kind
        for kind in explorer.controls["kind"].options:
            explorer.set(model=model, kind=kind)
            for number in choices(explorer.controls["number"]):
                explorer.controls["number"].value = number
                assert explorer.error is None


def test_slider_counts_the_captions_of_a_kind():
    explorer = failure_browser(MODELS, SCENES)
    counts = tally(candidates=MODELS["another"], references=REFERENCES)
    explorer.set(model="another")
    for kind in KINDS:
        explorer.controls["kind"].value = kind
        assert explorer.controls["number"].max == max(0, counts[kind] - 1)
        if not counts[kind]:
            assert f"another: no caption of this kind ({kind})" in text(explorer.view.value)
    explorer.set(kind=EVERY, number=17)
    assert "number 17 of 0 to 39, scene 17 of 40" in text(explorer.view.value)
    explorer.set(kind=WRONG, number=39)
    assert "number 39 of 0 to 39" in text(explorer.view.value)
    explorer.controls["kind"].value = "wrong shape"  # fewer: the slider moves back
    last = counts["wrong shape"] - 1
    assert explorer.controls["number"].value == last and f"number {last} of 0 to {last}" in text(explorer.view.value)


def show(caption, objects=(("red", "circle", 0, 0), ("blue", "square", 2, 2))):
    scene = place(list(objects))
    explorer = failure_browser({"model": [caption]}, scene)
    explorer.set(kind=EVERY)
    assert explorer.error is None
    seen = text(explorer.view.value)
    assert f"Kind: {diagnose(candidate=caption, references=scene.references(0)).kind}." in seen
    return seen


@pytest.mark.parametrize(
    "caption, parts",
    [
        ("a red circle above a blue square", ["equals a reference", "Both objects and their relation are right"]),
        ("a blue circle above a red square", ["word 3, circle", "Said: blue circle ; meant: red circle",
                                              "The colour said is that of another object"]),
        ("a green circle above a blue square", ["word 2, green", "meant: red circle",
                                                "The colour said is that of no other object"]),
        ("a red triangle above a blue square", ["word 3, triangle", "The shape said is that of no other object"]),
        ("a red circle below a blue square", ["word 4, below", "Said: below ; meant: above"]),
        ("a red circle above a red circle", ["word 6, red", "Said: red circle , twice"]),
        ("a red circle above a green triangle", ["word 6, green", "Said: green triangle ; no object"]),
        ("a red circle", ["(stops)", "stops after 3 words", "outside the grammar"]),
        ("", ["(stops)", "stops after 0 words"]),
    ],
)  # fmt: skip
def test_browser_says_what_was_said_and_meant(caption, parts):
    seen = show(caption)
    assert [part for part in parts if part not in seen] == []
    assert "a blue square below a red circle" in seen  # the references stand beside it


def test_first_disagreement_is_framed():
    html = disagreement("a blue circle above a red square", ["a red circle above a blue square"])
    assert re.findall(r'<span style="border[^"]*underline">([^<]*)</span>', html) == ["blue"]
    assert "border" not in disagreement("a b", ["a b"])


def test_three_objects():
    trio = (("red", "circle", 0, 0), ("blue", "square", 2, 2), ("green", "triangle", 1, 1))
    assert "Both objects and their relation are right" in show("a green triangle below a red circle", trio)


@pytest.mark.parametrize(
    "captions, error, message",
    [
        ({}, TypeError, "expected {model: captions}"),
        ([["a"]], TypeError, "captions_by_model is "),
        ({"m": ["a"]}, ValueError, r"captions_by_model\['m'\] has 1 captions; expected a list of 40"),
        ({"m": "a" * 40}, ValueError, r"captions_by_model\['m'\] has 40 captions; expected a list of 40"),
    ],
)
def test_browser_refuses(captions, error, message):
    with pytest.raises(error, match=message):
        failure_browser(captions, SCENES)


def test_values_of_the_calculator_equal_the_metrics():
    pair = {"candidates": [MODELS["another"][3]], "references": [REFERENCES[3]]}
    explorer = bleu_calculator(CORPUS)
    explorer.set(candidate=pair["candidates"][0], references="\n".join(REFERENCES[3]))
    for n, value in enumerate(bleu(**pair).corpus, 1):
        assert f"BLEU-{n} {value:.4f}" in text(explorer.view.value)
