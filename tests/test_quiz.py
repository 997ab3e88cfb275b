"""Predictions lock, reveals compare, quizzes score; nothing blocks a run; authoring faults are named."""

import math
import re

import ipywidgets as widgets
import pytest

from course_utils import quiz
from course_utils.cards import card, rich
from course_utils.quiz import Choice, Option, Prediction, Question, Quiz, predict

OPTIONS = [
    Option("under `10` %", 0.0, 0.1, "Language alone guesses more."),
    Option("10 to 50 %", 0.1, 0.5, "Only the grammar helps."),
    Option("over 50 %", 0.5, 1.0, "Nothing tells the <colours>."),
]
ONE = Question("Why shift?", [Choice("next word", True, "Yes, t+1."), Choice("`memory`", False, "Saves none.")])
ALL = Question(
    "Which are special?",
    [Choice("<pad>", True, "Id 0."), Choice("red", False, "A word."), Choice("<end>", True, "Id 2.")],
    several=True,
)


def text(html):
    return re.sub(r"<[^>]+>", "", html)


def test_guess_is_locked_by_the_button():
    p = Prediction("How many?", OPTIONS)
    assert p.picker.value is None and p.guess is None
    p.picker.value = 1
    assert p.guess is None  # choosing is not locking
    p.button.click()
    assert p.guess is OPTIONS[1] and p.picker.disabled and p.button.disabled
    assert "Locked: 10 to 50 %." in text(p.status.value)
    p.picker.value = 2
    p.lock()
    assert p.guess is OPTIONS[1]


def test_lock_without_a_choice_asks_for_one():
    p = Prediction("How many?", OPTIONS)
    p.button.click()
    assert p.guess is None and not p.picker.disabled
    assert "Choose an option first" in p.status.value and 'role="alert"' in p.status.value


@pytest.mark.parametrize("pick, verdict", [(0, "✓ right"), (1, "✗ wrong"), (2, "✗ wrong")])
def test_reveal_shows_guess_beside_value(pick, verdict):
    p = Prediction("How many?", OPTIONS)
    p.picker.value = pick
    p.lock()
    view = text(p.reveal(0.0212, "of captions").view.value)
    label = OPTIONS[pick].label.replace("`", "")
    assert f"Measured: 0.021 of captions; your guess: {label} ({verdict})." in view
    assert view.count("(your guess)") == 1
    assert "✓ right" in view and OPTIONS[0].why not in view
    assert "10 to 50 %: Only the grammar helps." in view and "over 50 %: Nothing tells the &lt;colours&gt;." in view


def test_reveal_without_guess_and_guess_after_it():
    p = Prediction("How many?", OPTIONS)
    card_ = p.reveal(0.7)
    assert "Measured: 0.700; no guess locked." in text(card_.view.value) and "your guess" not in card_.view.value
    p.picker.value = 2
    p.lock()
    assert "your guess: over 50 % (✓ right)" in text(card_.view.value)
    assert "Locked after the run" in p.status.value


def test_ranges_hold_their_low_end_and_the_last_its_high_end():
    p = Prediction("How many?", OPTIONS)
    assert p.right(0.0) is OPTIONS[0] and p.right(0.1) is OPTIONS[1] and p.right(0.5) is OPTIONS[2]
    assert p.right(1.0) is OPTIONS[2]
    for outside in (-0.1, 1.1, math.nan):
        assert p.right(outside) is None
        assert "No option holds this value." in p.reveal(outside).view.value


def test_reveal_takes_tensors_and_refuses_text():
    torch = pytest.importorskip("torch")
    p = Prediction("How many?", OPTIONS)
    assert p.reveal(torch.tensor(0.25)).measured == 0.25
    for bad in ("many", None, [1, 2]):
        with pytest.raises(TypeError, match="measured is .*expected one number"):
            p.reveal(bad)


def test_predict_displays_and_returns(monkeypatch):
    shown = []
    monkeypatch.setattr(quiz, "display", shown.append)
    p = predict("How many?", OPTIONS)
    assert shown == [p] and isinstance(p, Prediction)


def test_stored_views_show_questions_without_answers():
    p, q = Prediction("Is <b> bold?", OPTIONS), Quiz([ONE, ALL], "Last `words`")
    data = p._repr_mimebundle_(include=None, exclude=None)
    assert "Is &lt;b&gt; bold?" in data["text/html"] and "10 to 50 %" in data["text/html"]
    assert "Only the grammar" not in data["text/html"] and data["text/plain"] == "Prediction: Is <b> bold?"
    data = q._repr_mimebundle_()
    assert "&lt;pad&gt;" in data["text/html"] and "Id 0." not in data["text/html"]
    assert ">words</code>" in data["text/html"] and "all that apply" in data["text/html"]
    if int(widgets.__version__.split(".")[0]) >= 8:
        assert "application/vnd.jupyter.widget-view+json" in data
    assert "no guess locked" in p.reveal(0.3)._repr_mimebundle_()["text/html"]


def test_quiz_scores_and_explains():
    q = Quiz([ONE, ALL])
    one, several = q.items
    assert "Score: 0 of 2 right, 0 at the first try; 2 not checked yet." in text(q.score.value)
    one.button.click()
    assert one.right is None and "Choose an answer first" in one.feedback.value
    one.pickers[0].value = 1
    one.button.click()
    assert one.right is False and "✗ wrong" in one.feedback.value
    assert "Saves none." in one.feedback.value and "Yes, t+1." in one.feedback.value
    one.pickers[0].value = 0
    one.button.click()
    assert one.right is True and one.first_try is False
    for k in (0, 1, 2):
        several.pickers[k].value = k != 1
    several.button.click()
    assert several.right is True and several.first_try is True
    assert "Score: 2 of 2 right, 1 at the first try; 0 not checked yet." in text(q.score.value)


@pytest.mark.parametrize("chosen", [{0}, {2}, {1}, {0, 1}, {0, 1, 2}, {1, 2}])
def test_all_that_apply_wants_exactly_those(chosen):
    item = Quiz([ALL]).items[0]
    for k in chosen:
        item.pickers[k].value = True
    item.check()
    assert item.right is False
    assert text(item.feedback.value).count("(your answer)") == len(chosen)


def test_labels_are_plain_and_safe():
    item = Quiz([ONE]).items[0]
    assert item.pickers[0].options[1] == ("memory", 1)
    box = Quiz([ALL]).items[0].pickers[0]
    old = int(widgets.__version__.split(".")[0]) < 8
    assert box.description == ("&lt;pad&gt;" if old else "<pad>")
    assert rich("a < b & `c<d`").startswith("a &lt; b &amp; <code") and "c&lt;d</code>" in rich("a < b & `c<d`")
    assert "color:#1a1a1a" in card("x") and "background:#ffffff" in card("x")


def test_every_widget_has_a_width():
    def all_widgets(box):
        yield box
        for child in getattr(box, "children", ()):
            yield from all_widgets(child)

    for top in (Prediction("How many?", OPTIONS), Quiz([ONE, ALL])):
        for w in all_widgets(top):
            if isinstance(w, (widgets.RadioButtons, widgets.Checkbox, widgets.Button)):
                assert w.layout.width


@pytest.mark.parametrize(
    "options, error, message",
    [
        (OPTIONS[:1], ValueError, "options has 1 entries; expected at least 2"),
        ("under 10 %", TypeError, "options is .*expected a list of Option"),
        ([OPTIONS[0], "10 to 50 %"], TypeError, "expected a list of Option"),
        ([OPTIONS[0], OPTIONS[2]], ValueError, "leave a gap"),
        ([OPTIONS[0], Option("wide", 0.05, 0.5, "w")], ValueError, "overlap"),
        ([OPTIONS[0], Option("under `10` %", 0.1, 0.5, "w")], ValueError, "more than once"),
    ],
)
def test_prediction_refuses(options, error, message):
    with pytest.raises(error, match=message):
        Prediction("How many?", options)


@pytest.mark.parametrize("low, high", [(1, 0), (1, 1), (math.nan, 1), ("0", "1"), (None, 1)])
def test_option_wants_a_range(low, high):
    with pytest.raises(ValueError, match="option 'a' has low .*expected two numbers, low < high"):
        Option("a", low, high, "why")


@pytest.mark.parametrize("empty", ["", "  ", None])
def test_texts_must_not_be_empty(empty):
    right, wrong = Choice("a", True, "b"), Choice("c", False, "d")
    makers = {
        "Option.label": lambda: Option(empty, 0, 1, "why"),
        "Option.why": lambda: Option("a", 0, 1, empty),
        "Choice.text": lambda: Choice(empty, True, "why"),
        "Choice.why": lambda: Choice("a", True, empty),
        "Question.text": lambda: Question(empty, [right, wrong]),
        "question": lambda: Prediction(empty, OPTIONS),
    }
    for name, make in makers.items():
        with pytest.raises(ValueError, match=f"{name} is .*not empty"):
            make()


def test_question_and_quiz_refuse():
    right, wrong = Choice("a", True, "b"), Choice("c", False, "d")
    with pytest.raises(ValueError, match="has no right choice"):
        Question("q", [wrong, Choice("e", False, "f")])
    with pytest.raises(ValueError, match="has 2 right choices; expected one, or pass several=True"):
        Question("q", [right, Choice("e", True, "f")])
    with pytest.raises(ValueError, match="1 entries; expected at least 2"):
        Question("q", [right])
    with pytest.raises(ValueError, match=r"\['a'\] more than once"):
        Question("q", [right, Choice("a", False, "f")])
    with pytest.raises(TypeError, match="expected a list of Choice"):
        Question("q", ["a", "b"])
    with pytest.raises(TypeError, match="right = 'because'"):
        Choice("a", "because", "why")
    with pytest.raises(ValueError, match="questions has 0 entries"):
        Quiz([])
    with pytest.raises(TypeError, match="expected a list of Question"):
        Quiz(ONE)
    with pytest.raises(ValueError, match=r"\['Why shift\?'\] more than once"):
        Quiz([ONE, ONE])
