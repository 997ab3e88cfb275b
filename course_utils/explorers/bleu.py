"""BLEU calculator: type a caption and its references, see every n-gram that matches and every metric."""

from collections import Counter

import ipywidgets as widgets

from course_utils.explorers.view import Explorer, Html, columns, html_table, markup, note, stack
from course_utils.metrics import (
    DocumentFrequency,
    bleu_counts,
    cider_d,
    exact_match,
    meteor_2005,
    ngrams,
    rouge_l,
    scene_tuple_f1,
    scene_tuples,
)

ORDERS = (1, 2, 3, 4)
# name -> candidate, references, where they come from
EXAMPLES = {
    "one word repeated": (
        "the the the the the the the",
        ["the cat is on the mat", "there is a cat on the mat"],
        "Papineni et al. 2002, Example 2",
    ),
    "a good translation": (
        "It is a guide to action which ensures that the military always obeys the commands of the party",
        [
            "It is a guide to action that ensures that the military will forever heed Party commands",
            "It is the guiding principle which guarantees the military forces always being under the command of "
            "the Party",
            "It is the practical guide for the army always to heed the directions of the party",
        ],
        "Papineni et al. 2002, Example 1, without the full stops",
    ),
    "too short": ("of the", ["It is a guide to action that ensures that the military will forever heed Party commands"],
                  "after Papineni et al. 2002, Example 3"),
    "the other reading": ("a red circle above a blue square", ["a blue square below a red circle"],
                          "one scene, read from its other object"),
    "colours swapped": ("a blue circle above a red square",
                        ["a red circle above a blue square", "a blue square below a red circle"], "a binding swap"),
    "best of two references": ("a b c", ["a b", "a b c d e f"], "the COCO rule of ROUGE-L takes from both"),
}  # fmt: skip
# what a word is part of: its style, which also differs without any colour, and how the legend names it
STYLES = {
    "match": ("color:#00507d;font-weight:bold;text-decoration:underline;text-decoration-thickness:2px", "match"),
    "clipped": ("color:#8a3b00;font-style:italic;text-decoration:underline dotted;text-decoration-thickness:2px",
                "only in an n-gram that is clipped away"),
    "none": ("color:#595959", "no match"),
}  # fmt: skip


def bleu_calculator(corpus: DocumentFrequency | None = None) -> Explorer:
    """Return an explorer of a caption typed against references typed one a line: matches, clip, penalty, all metrics.

    corpus: what `document_frequency` returned, for a CIDEr-D beside that of the single image, which is 0.
    """
    if corpus is not None and not isinstance(corpus, DocumentFrequency):
        raise TypeError(f"corpus is a {type(corpus).__name__}; expected what document_frequency returned")
    first = next(iter(EXAMPLES))
    wide = widgets.Layout(width="100%")
    controls = {
        "example": widgets.Dropdown(options=list(EXAMPLES), value=first, description="start from:"),
        "order": widgets.ToggleButtons(options=ORDERS, value=1, description="n in the table:"),
        "candidate": widgets.Text(EXAMPLES[first][0], description="candidate:", layout=wide),
        "references": widgets.Textarea("\n".join(EXAMPLES[first][1]), description="references:", rows=3, layout=wide),
    }
    rows = [["example", "order"], ["candidate"], ["references"]]

    def render(example: str, order: int, candidate: str, references: str) -> Html:
        return calculation(candidate, references, order, corpus, example)

    explorer = Explorer(controls, render, "BLEU calculator: a candidate against its references, word by word", rows)

    def load(change):
        candidate, references, _ = EXAMPLES[change["new"]]
        explorer.set(candidate=candidate, references="\n".join(references))

    controls["example"].observe(load, "value")
    return explorer


def calculation(candidate: str, references: str, order: int, corpus: DocumentFrequency | None, example: str) -> Html:
    """Return the view: the candidate with its matches of every order, the clip, the penalty, all metrics."""
    words = candidate.split()
    others = [line.split() for line in references.splitlines() if line.strip()]
    if not others:
        return note("Type at least one reference, one on each line.")
    text, lines, source = EXAMPLES[example]
    typed = (words, others) == (text.split(), [line.split() for line in lines])
    counts = bleu_counts(candidates=[words], references=[others]).corpus
    shares = [f"{match} of {total}" for match, total in zip(counts.matches, counts.totals)]
    legend = "; ".join(f'<span style="{style}">{name}</span>' for style, name in STYLES.values())
    return stack(
        note(f"Example: {source}." if typed else "Your own text."),
        html_table(
            [[f"{n}-grams", marked(words, others, n), share] for n, share in zip(ORDERS, shares)],
            ["order", "candidate", "clipped matches"],
            "The candidate, once for each order",
        ),
        Html(f'<p style="margin:6px 0px">Words: {legend}.</p>'),
        note(penalty_sentence(counts)),
        columns(
            html_table(clip_rows(words, others, order),
                       [f"{order}-gram", "said", "limit", "counted"],
                       f"The clip, {order}-grams (limit: most in one reference)"),
            html_table(metric_rows(words, others, counts, corpus), ["metric", "value"], "All metrics of this image"),
        ),
    )  # fmt: skip


def places(words: list[str], references: list[list[str]], n: int) -> list[str]:
    """Return for each n-gram of the candidate in reading order: "match", "clipped" (used up already) or "none"."""
    limits, found = most_in_one(references, n), []
    used = Counter()
    for gram in ngrams(words, n):
        used[gram] += 1
        found.append("match" if used[gram] <= limits[gram] else "clipped" if limits[gram] else "none")
    return found


def most_in_one(references: list[list[str]], n: int) -> Counter:
    """Return how often each n-gram stands in the one reference that has it most often."""
    limits = Counter()
    for reference in references:
        limits |= Counter(ngrams(reference, n))
    return limits


def marked(words: list[str], references: list[list[str]], n: int) -> Html:
    """Return the candidate with each word styled by the best n-gram that covers it."""
    best = ["none"] * len(words)
    ranks = list(STYLES)
    for start, kind in enumerate(places(words, references, n)):
        for k in range(start, start + n):
            best[k] = min(best[k], kind, key=ranks.index)
    spans = [f'<span style="{STYLES[kind][0]}">{markup(word)}</span>' for word, kind in zip(words, best)]
    return Html(" ".join(spans) or "<i>(no words)</i>")


def clip_rows(words: list[str], references: list[list[str]], n: int) -> list[list]:
    """Return one row for each distinct n-gram of the candidate: its count, its limit, and the smaller of both."""
    limits = most_in_one(references, n)
    rows = [[" ".join(gram), count, limits[gram], min(count, limits[gram])]
            for gram, count in Counter(ngrams(words, n)).items()]  # fmt: skip
    return rows or [["(none)", 0, 0, 0]]


def penalty_sentence(counts) -> str:
    """Return the brevity penalty in words."""
    c, r = counts.candidate_length, counts.reference_length
    if c >= r:
        return f"Brevity penalty 1: {c} words, the closest reference has {r}."
    how = f"exp(1 - {r}/{c}) = {counts.penalty:.4f}" if c else "0, as there are no words"
    return f"Brevity penalty {how}: {c} words, the closest reference has {r}."


def metric_rows(words: list[str], references: list[list[str]], counts, corpus: DocumentFrequency | None) -> list[list]:
    """Return the name and the value of every metric of the package for one image."""
    pair = {"candidates": [words], "references": [references]}
    values = {f"BLEU-{n}": value for n, value in enumerate(counts.bleu, 1)}
    values["ROUGE-L, COCO rule"] = rouge_l(**pair).corpus
    values["ROUGE-L, best reference"] = rouge_l(rule="best_reference", **pair).corpus
    values["METEOR of 2005, exact"] = meteor_2005(**pair).corpus
    values["CIDEr-D, idf of this image alone"] = cider_d(**pair).corpus
    if corpus is not None:
        values[f"CIDEr-D, idf of {corpus.images:,} images"] = cider_d(corpus=corpus, **pair).corpus
    named = any(scene_tuples(reference) for reference in references)
    values["scene-tuple F1"] = scene_tuple_f1(**pair).corpus if named else "- (no shape named)"
    values["exact match"] = exact_match(**pair).corpus
    return [[name, value if isinstance(value, str) else f"{value:.4f}"] for name, value in values.items()]
