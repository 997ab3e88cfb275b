"""Predict, then run, and the closing quiz: a guess locked before the run, and questions that explain themselves.

Core ipywidgets (7.7.1 and 8), operated by keyboard alone, and never in the way of "Run All". Text is plain: it is shown
escaped, with `words in backquotes` as code.
"""

import html
import itertools
from dataclasses import dataclass
from numbers import Real

import ipywidgets as widgets
from IPython.display import display

from course_utils.cards import Card, card, rich, say

RIGHT, WRONG = "✓ right", "✗ wrong"
KEYS = "Keyboard: Tab moves, Space chooses."  # JupyterLab takes the arrow keys for itself
OLD_LABELS = int(widgets.__version__.split(".")[0]) < 8  # ipywidgets 7 takes a checkbox's label for HTML


@dataclass(frozen=True)
class Option:
    """One guess: its label, the range low <= value < high that makes it right, and why it is wrong when it is wrong."""

    label: str
    low: float
    high: float
    why: str

    def __post_init__(self):
        _sentence("Option.label", self.label)
        _sentence("Option.why", self.why)
        if not (isinstance(self.low, Real) and isinstance(self.high, Real) and self.low < self.high):
            got = f"low {self.low!r} and high {self.high!r}"
            raise ValueError(f"option {self.label!r} has {got}; expected two numbers, low < high")


@dataclass(frozen=True)
class Choice:
    """One answer of a question: its text, whether it is right, and one sentence why."""

    text: str
    right: bool
    why: str

    def __post_init__(self):
        _sentence("Choice.text", self.text)
        _sentence("Choice.why", self.why)
        if not isinstance(self.right, bool):
            raise TypeError(f"choice {self.text!r} has right = {self.right!r}; expected True or False, then the reason")


@dataclass(frozen=True)
class Question:
    """One question with its choices: exactly one right, or, with several=True, any number from one (all that apply)."""

    text: str
    choices: list
    several: bool = False

    def __post_init__(self):
        _sentence("Question.text", self.text)
        _list_of(Choice, f"choices of {self.text!r}", self.choices, 2)
        _distinct(f"choices of {self.text!r}", [choice.text for choice in self.choices])
        right = sum(choice.right for choice in self.choices)
        if right == 0:
            raise ValueError(f"question {self.text!r} has no right choice; mark at least one with right=True")
        if right > 1 and not self.several:
            raise ValueError(f"question {self.text!r} has {right} right choices; expected one, or pass several=True")


class Prediction(Card):
    """A question whose guess is locked before the run and shown beside the measured value after it; see `predict`."""

    def __init__(self, question, options):
        _sentence("question", question)
        _list_of(Option, "options", options, 2)
        _distinct("options", [option.label for option in options])
        for a, b in itertools.pairwise(sorted(options, key=lambda option: option.low)):
            if a.high != b.low:
                fault = "leave a gap" if a.high < b.low else "overlap"
                raise ValueError(f"options {a.label!r} (to {a.high}) and {b.label!r} (from {b.low}) {fault}; expected "
                                 "the next range to begin where the last one ends")  # fmt: skip
        self.question, self.options = question, tuple(options)
        self.guess = None  # the locked Option
        self.picker = _radio([option.label for option in options])
        self.button = _button("Lock my guess", lambda _: self.lock())
        self.status = widgets.HTML(say(KEYS))
        self._reveal = None
        prompt = widgets.HTML(card(f"<b>Predict, then run.</b> {rich(question)}"))
        super().__init__([prompt, self.picker, self.button, self.status], f"Prediction: {question}")
        self.add_class("course-prediction")

    def lock(self):
        """Return None after locking the chosen option; without a choice the card asks for one."""
        if self.guess is not None:
            return
        if self.picker.value is None:
            self.status.value = say("Choose an option first, then lock it.", "alert")
            return
        self.guess = self.options[self.picker.value]
        self.picker.disabled = self.button.disabled = True
        late = self._reveal is not None
        self.status.value = say(f"Locked{' after the run' if late else ''}: {self.guess.label}.")
        if late:
            self._reveal.update()

    def reveal(self, measured, unit="", digits=3):
        """Return the card that shows the guess beside the measured value, and one sentence for each wrong option.

        Without a locked guess it says so, and follows when the guess is locked later. The ranges are low <= value <
        high; the highest one also holds its own end.
        """
        try:
            measured = float(measured)
        except (TypeError, ValueError):
            raise TypeError(f"measured is {measured!r}; expected one number, such as a mean over seeds") from None
        self._reveal = Reveal(self, measured, f"{measured:.{digits}f} {unit}".strip())
        return self._reveal

    def right(self, measured):
        """Return the Option whose range holds the measured value, or None when no range does."""
        top = max(option.high for option in self.options)
        inside = (o for o in self.options if o.low <= measured < o.high or measured == o.high == top)
        return next(inside, None)

    def static(self):
        """Return the question and its options as HTML."""
        items = "".join(f"<li>{rich(option.label)}</li>" for option in self.options)
        text = f"<b>Predict, then run.</b> {rich(self.question)}<ul>{items}</ul><i>Run this cell to lock a guess.</i>"
        return card(text)


class Reveal(Card):
    """The guess of a Prediction beside the measured value."""

    def __init__(self, prediction, measured, shown):
        self.prediction, self.measured, self.shown = prediction, measured, shown
        self.view = widgets.HTML()
        super().__init__([self.view], f"Prediction against measurement: {shown}")
        self.update()

    def update(self):
        """Return None after drawing the view again, as the prediction now stands."""
        guess, right = self.prediction.guess, self.prediction.right(self.measured)
        told = f"your guess: <b>{rich(guess.label)}</b>" if guess else "<b>no guess locked</b>"
        verdict = "" if guess is None else f" ({RIGHT if guess is right else WRONG})"
        rows = [(option is right, option is guess, option.label, "" if option is right else option.why)
                for option in self.prediction.options]  # fmt: skip
        missing = "" if right else "<p>No option holds this value.</p>"
        head = f"Measured: <b>{rich(self.shown)}</b>; {told}{verdict}."
        self.view.value = card(f"<div>{rich(self.prediction.question)}</div><div>{head}</div>{missing}{verdicts(rows)}")

    def static(self):
        """Return the view as HTML."""
        return self.view.value


class Quiz(Card):
    """A closing quiz: one Check button a question, an explanation for each choice, and a line with the score."""

    def __init__(self, questions, title="Check yourself"):
        _list_of(Question, "questions", questions, 1)
        _distinct("questions", [question.text for question in questions])
        self.title = title
        self.items = [Item(question, f"{k}. ", self._count) for k, question in enumerate(questions, 1)]
        self.score = widgets.HTML()
        head = widgets.HTML(card(f"<b>{rich(title)}.</b> {KEYS}"))
        super().__init__([head, *self.items, self.score], f"Quiz: {title}")
        self.add_class("course-quiz")
        self._count()

    def _count(self):
        checked = [item for item in self.items if item.right is not None]
        right = sum(item.right for item in checked)
        first = sum(item.first_try for item in checked)
        self.score.value = say(f"Score: {right} of {len(self.items)} right, {first} at the first try; "
                               f"{len(self.items) - len(checked)} not checked yet.")  # fmt: skip

    def static(self):
        """Return all questions and choices as HTML, without the answers."""
        parts = []
        for item in self.items:
            choices = "".join(f"<li>{rich(choice.text)}</li>" for choice in item.question.choices)
            parts.append(f"<div>{item.prompt}</div><ul>{choices}</ul>")
        return card(f"<b>{rich(self.title)}</b>{''.join(parts)}<i>Run this cell to answer.</i>")


class Item(widgets.VBox):
    """One question of a Quiz. `right` is None until checked; `first_try` tells whether the first check was right."""

    def __init__(self, question, number, changed):
        self.question, self.changed = question, changed
        self.right = self.first_try = None
        self.prompt = f"<b>{number}</b>{rich(question.text)}" + (" <i>(all that apply)</i>" if question.several else "")
        labels = [choice.text for choice in question.choices]
        self.pickers = [_checkbox(label) for label in labels] if question.several else [_radio(labels)]
        self.button = _button("Check", lambda _: self.check())
        self.feedback = widgets.HTML()
        super().__init__([widgets.HTML(card(self.prompt)), *self.pickers, self.button, self.feedback])

    @property
    def chosen(self):
        """Return the set of chosen positions."""
        if self.question.several:
            return {k for k, box in enumerate(self.pickers) if box.value}
        return set() if self.pickers[0].value is None else {self.pickers[0].value}

    def check(self):
        """Return None after judging what is chosen now and explaining every choice."""
        chosen, choices = self.chosen, self.question.choices
        if not chosen:
            self.feedback.value = say("Choose an answer first, then check it.", "alert")
            return
        self.right = chosen == {k for k, choice in enumerate(choices) if choice.right}
        self.first_try = self.right if self.first_try is None else self.first_try
        rows = [(choice.right, k in chosen, choice.text, choice.why) for k, choice in enumerate(choices)]
        head = f"Your answer: <b>{RIGHT if self.right else WRONG}</b>. The choices:"
        self.feedback.value = card(f'<div role="status">{head}{verdicts(rows, "your answer")}</div>')
        self.changed()


def predict(question, options):
    """Return a Prediction after displaying it: radio buttons and a "Lock my guess" button.

    options: list of Option, whose ranges must meet without overlap or gap; ValueError otherwise.
    """
    prediction = Prediction(question, options)
    display(prediction)
    return prediction


def verdicts(rows, mine="your guess"):
    """Return a list (right, chosen, text, why) as HTML: the verdict in words, the choice, the reason."""
    items = []
    for right, chosen, text, why in rows:
        tag = f" <i>({mine})</i>" if chosen else ""
        reason = f": {rich(why)}" if why else ""
        items.append(f'<li style="margin:3px 0px"><b>{RIGHT if right else WRONG}</b>{tag} {rich(text)}{reason}</li>')
    return f'<ul style="margin:6px 0px;padding-left:20px">{"".join(items)}</ul>'


def _radio(labels):
    options = [(label.replace("`", ""), k) for k, label in enumerate(labels)]
    return widgets.RadioButtons(options=options, value=None, layout=widgets.Layout(width="100%", height="auto"))


def _checkbox(label):
    label = label.replace("`", "")
    layout = widgets.Layout(width="100%", height="auto")
    return widgets.Checkbox(description=html.escape(label) if OLD_LABELS else label, indent=False, layout=layout)


def _button(label, action):
    button = widgets.Button(description=label, layout=widgets.Layout(width="160px", flex="none"))
    button.on_click(action)
    return button


def _sentence(name, text):
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{name} is {text!r}; expected a text that is not empty")


def _list_of(kind, name, values, least):
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, kind) for value in values):
        raise TypeError(f"{name} is {str(values)[:80]!r}; expected a list of {kind.__name__}")
    if len(values) < least:
        raise ValueError(f"{name} has {len(values)} entries; expected at least {least}")


def _distinct(name, texts):
    if twice := {text for text in texts if texts.count(text) > 1}:
        raise ValueError(f"{name} has {sorted(twice)} more than once; give each its own text")
