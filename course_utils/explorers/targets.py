"""Targets of any caption that one types, position by position, for several builders side by side."""

from collections.abc import Callable

import ipywidgets as widgets
from torch import Tensor

from course_utils.explorers.view import Explorer, Html, columns, html_table, note, stack
from course_utils.vocabulary import END, PAD, SPECIAL, T_MAX, Vocabulary

HEADER = ["t", "word", "id", "input", "target", "mask"]


def target_explorer(vocabulary: Vocabulary, builders: dict[str, Callable],
                    caption: str = "a red circle above a blue square") -> Explorer:  # fmt: skip
    """Return an explorer of the ids, inputs, targets and masks that each builder makes of a caption.

    builders: dict of name -> function(vocabulary, caption, length) that returns ids (T,) int64; `Vocabulary.encode` is
    one. Whatever a builder raises, for an unknown word or a caption too long, is shown in the view.
    """
    if not isinstance(builders, dict) or not builders or not all(map(callable, builders.values())):
        raise TypeError(f"builders is {builders!r}; expected a dict: name -> function(vocabulary, caption, length)")
    controls = {
        "caption": widgets.Text(caption, description="caption:", continuous_update=False,
                                layout=widgets.Layout(width="460px")),
        "length": widgets.IntSlider(T_MAX, 3, 16, description="length T:"),
    }  # fmt: skip

    def render(caption: str, length: int) -> Html:
        parts = [build_view(vocabulary, name, build(vocabulary, caption, length)) for name, build in builders.items()]
        return stack(note("Type a caption and press Enter."), columns(*parts))

    return Explorer(controls, render, f"Targets of a typed caption, built by: {', '.join(builders)}")


def build_view(vocabulary: Vocabulary, name: str, ids: Tensor) -> Html:
    """Return what one builder made, ids (T,) int64, as a table of positions, with its reading in words."""
    row = [int(i) for i in ids]
    words = [shown(vocabulary.words[i]) for i in row]
    pairs = [[words[t], words[t + 1], int(row[t + 1] != PAD)] for t in range(len(row) - 1)]  # T - 1 of them
    table = [[t, words[t], row[t], *pair] for t, pair in enumerate([*pairs, ["", "", ""]])]
    learned = [f"`{before}`" for t, (before, _, _) in enumerate(pairs) if row[t + 1] == END]
    last = max((t for t, i in enumerate(row) if vocabulary.words[i] not in SPECIAL), default=0)
    follows = f"`{words[last + 1]}`" if last + 1 < len(row) else "nothing"
    return stack(
        html_table(table, HEADER, f"{name}: {len(row)} ids, {sum(pair[2] for pair in pairs)} scored targets"),
        note(f"Decoded: {vocabulary.decode(ids) or '(nothing)'}"),
        note(f"After the last word the target is {follows}."),
        note(f"`{SPECIAL[END]}` is the target after {', '.join(learned) or 'nothing'}."),
    )


def shown(word: str) -> str:
    """Return a token as it can be seen: a space is drawn."""
    return "␣" if word == " " else word
