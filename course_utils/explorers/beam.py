"""The beam tree: how a beam search grows, step by step, drawn from the decoder's own trace."""

import base64
import html
from typing import NamedTuple

import ipywidgets as widgets
import torch

from course_utils import scenes
from course_utils.decoding import beam_search, length_penalty
from course_utils.encoders import encode
from course_utils.explorers.view import Explorer, Html, columns, html_table, note, picture, stack
from course_utils.failures import diagnose
from course_utils.vocabulary import T_MAX

FATES = ("live", "complete", "pruned")
# fate -> colour of frame and edge, colour of the words, dashes, width; a complete caption also has a double frame
LOOKS = {
    "live": ("#0072B2", "#1a1a1a", "", 1.5),
    "complete": ("#00664b", "#1a1a1a", "", 1.5),
    "pruned": ("#767676", "#595959", "4 3", 1),
}
WIDTH, ROW, HEAD = 880, 34, 20  # pixels: of the picture, of one node's row, of the line above the tree
LEGEND = "Solid frame: live. Double frame: complete. Dashed frame: pruned. Thick: the best caption so far."
SCORES = {"none": "log p", "average": "log p / L^{}", "gnmt": "log p / ((5 + L) / 6)^{}"}
OBJECTS = (("red", "circle", 1, 0), ("green", "triangle", 1, 2))


class Node(NamedTuple):
    """One continuation: its word id, the sum of log p, its fate, its parent's rank a step before, all ids so far."""

    word: int
    log_p: float
    fate: str
    parent: int
    ids: tuple[int, ...]


def read_trace(found, image=0):
    """Return the continuations of every step, best first, as lists of Node, from a beam search of one or more images.

    ValueError if the search kept no trace.
    """
    if not found.trace or not hasattr(found.trace[0], "kept"):
        raise ValueError("found has no trace of a beam search; call beam_search(..., trace=True)")
    levels, live = [], [(0, ())]  # (rank a step before, ids) of the hypotheses that go on
    for step in found.trace:
        if step.done[image]:
            break
        kept, level = set(step.kept[image].tolist()), []
        fields = (step.words, step.parents, step.log_probs, step.finished)
        for rank, (word, parent, log_p, over) in enumerate(zip(*(field[image].tolist() for field in fields))):
            fate = "complete" if over else "live" if rank in kept else "pruned"
            origin, ids = live[parent]
            level.append(Node(word, log_p, fate, origin, (*ids, word)))
        live = [(rank, level[rank].ids) for rank in step.kept[image].tolist()]
        levels.append([node for node in level if node.log_p > float("-inf")])
    return levels


def pool(levels, k, penalty="none", alpha=None):
    """Return the best k complete captions of these steps as (score, Node), best first: what the search has in hand."""
    complete = [(node.log_p / length_penalty(len(node.ids), penalty, alpha), node)
                for level in levels for node in level if node.fate == "complete"]  # fmt: skip
    return sorted(complete, key=lambda pair: -pair[0])[:k]


def draw_tree(levels, vocabulary, steps=None, best=None, alt=None):
    """Return the tree of all steps as Html: an <img> of SVG, which also shows where scripts and <svg> are not allowed.

    levels: from `read_trace`; steps: how many columns to leave room for (default: as many as there are); best: ids of
    the path that is drawn thick; alt: the alternative text (default: the last step in words).
    """
    best, shown = best or (), steps or max(len(levels), 1)
    column = min(WIDTH / (shown + 1), 110)
    height = HEAD + ROW * max([1, *map(len, levels)])
    back, front = [], [_box(0, 0, column, "<start>", "", "live", True)]
    for t, level in enumerate(levels, 1):
        front.append(_text(t * column, 13, f"step {t}", "#1a1a1a", "bold" if t == len(levels) else "normal"))
        for rank, node in enumerate(level):
            thick = node.ids == best[:t]
            back.append(_edge(t, node.parent, rank, column, node.fate, thick))
            word = vocabulary.words[node.word]
            front.append(_box(t, rank, column, word, f"{node.log_p:.2f}", node.fate, thick))
    wide = round(column * (shown + 1))
    drawn = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{height}" viewBox="0 0 {wide} {height}" '
             f'font-family="sans-serif"><rect width="100%" height="100%" fill="#ffffff"/>{"".join(back + front)}</svg>')
    data = base64.b64encode(drawn.encode()).decode()
    return Html(f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(alt or _told(levels, vocabulary))}" '
                f'width="{wide}" height="{height}" style="max-width:100%;height:auto">')  # fmt: skip


def beam_tree(model, encoder, vocabulary, recipe, objects=OBJECTS, seed=0):
    """Return an Explorer of a beam search on a scene of two objects: grow the tree, change k and the length penalty.

    model: a Captioner that reads the grids of encoder; recipe: how scenes are drawn; objects: the two that stand there
    at first, (colour, shape, row, column) each; seed: of their jitter and noise. Errors as in `scenes.place`.
    """
    scenes.place(list(objects), recipe, seed)  # the errors of what cannot stand there
    places = {f"row {r + 1}, column {c + 1}": (r, c) for r in range(recipe.layout) for c in range(recipe.layout)}

    def render(step, k, penalty, alpha, seed, **chosen):
        pairs = [(chosen[f"colour_{i}"], chosen[f"shape_{i}"]) for i in "12"]
        cells = [places[chosen[f"place_{i}"]] for i in "12"]
        if pairs[0] == pairs[1] or cells[0] == cells[1]:
            what = "look the same" if pairs[0] == pairs[1] else "stand in the same place"
            return note(f"The two objects {what}: change one of them.")
        scene = scenes.place([(*pair, *cell) for pair, cell in zip(pairs, cells)], recipe, seed)
        alpha = None if penalty == "none" else alpha
        with torch.no_grad():
            found = beam_search(model, encode(encoder, scene.images), k, penalty=penalty, alpha=alpha, trace=True)
        return _view(scene, read_trace(found), vocabulary, step, k, penalty, alpha)

    slider = widgets.IntSlider
    controls = {
        "step": slider(value=3, min=0, max=T_MAX, description="steps grown"),
        "k": slider(value=2, min=1, max=6, description="beam width k"),
        "penalty": widgets.ToggleButtons(options=["none", "average", "gnmt"], description="length penalty"),
        "alpha": widgets.FloatSlider(value=1.0, min=0.0, max=2.0, step=0.1, description="alpha of the penalty"),
        "seed": slider(value=seed, min=0, max=max(19, seed), description="jitter and noise, seed"),
    }
    for name in ("step", "k", "alpha", "seed"):
        controls[name].layout.width = "320px"
    menus = [_menus(i, thing, places) for i, thing in zip("12", objects)]
    rows = [["step", "k"], ["penalty", "alpha"], *map(list, menus), ["seed"]]
    controls |= menus[0] | menus[1]
    return Explorer(controls, render, "Beam tree of one scene, drawn from the trace of the search", rows)


def _menus(number, thing, places):
    """Return the three menus of one object: colour, shape and place; places: name -> (row, column)."""
    colour, shape, *cell = thing
    name = next(name for name, place in places.items() if place == tuple(cell))
    options = {"colour": (scenes.COLOURS, colour), "shape": (scenes.SHAPES, shape), "place": (tuple(places), name)}
    return {f"{what}_{number}": widgets.Dropdown(options=values, value=value, description=f"{what} {number}",
                                                 layout={"width": "210px"})
            for what, (values, value) in options.items()}  # fmt: skip


def _view(scene, levels, vocabulary, step, k, penalty, alpha):
    """Return the view of a search on one scene, grown to a step: scene, stop rule, tree, pool and the last step."""
    references, grown = scene.references(0), levels[: min(step, len(levels))]
    complete = pool(grown, k, penalty, alpha)
    live = [node.ids for node in grown[-1] if node.fate == "live"] if grown else []
    best = complete[0][1].ids if complete else live[0] if live else ()
    right = "Right captions: " + "; ".join(f"`{caption}`" for caption in references) + "."
    told = note(right) + note(_stop(grown, complete, k, penalty, alpha, len(levels))) + note(LEGEND)
    seen = picture(scene.images[0], f"the scene: {references[0]}", scale=5)
    return stack(columns(seen, Html(f'<div style="max-width:520px">{told}</div>')),
                 draw_tree(grown, vocabulary, len(levels), best),
                 columns(_pool_table(complete, references, vocabulary, SCORES[penalty].format(alpha)),
                         _step_table(grown, vocabulary)))  # fmt: skip


def _stop(grown, complete, k, penalty, alpha, steps):
    """Return a sentence about the stop rule after these steps, of `steps` that the search takes."""
    t = len(grown)
    if t == 0:
        return "One caption is live, and it is empty."
    live = [node.log_p for node in grown[-1] if node.fate == "live"]
    if t == T_MAX or not live:
        return "Every caption is complete or cut at the last step: the search ends."
    if k == 1:
        return f"With k = 1 the search is greedy: it {'ends with this' if complete else 'goes on to its first'} <end>."
    worst = f"{complete[-1][0]:.3f}" if len(complete) == k else "-inf, a place is free"
    reach = max(live) / max(length_penalty(n, penalty, alpha) for n in range(t + 1, T_MAX + 1))
    verdict = "ends" if t == steps else "goes on"
    return (f"After step {t}: the best live caption can still reach a score of {reach:.3f}; the worst of the {k} "
            f"places in the pool has {worst}. The search {verdict}.")


def _pool_table(complete, references, vocabulary, score_rule):
    """Return the pool as a table: caption, log p, length L, score, verdict."""
    rows = []
    for rank, (score, node) in enumerate(complete):
        caption = vocabulary.decode(node.ids)
        kind = diagnose(candidate=caption, references=references).kind
        verdict = "✓ right" if kind == "correct" else f"✗ {kind}"
        caption = f"▶ {caption}" if rank == 0 else caption
        rows.append([caption, f"{node.log_p:.3f}", len(node.ids), f"{score:.3f}", verdict])
    header = ["caption", "log p", "L with <end>", "score", "verdict"]
    return html_table(rows or [["none yet", "", "", "", ""]], header, f"The pool, best first; score = {score_rule}")


def _step_table(grown, vocabulary):
    """Return the last step as a table: every continuation, its log p and its fate."""
    rows = [[rank, " ".join(vocabulary.words[i] for i in node.ids), f"{node.log_p:.3f}", node.fate]
            for rank, node in enumerate(grown[-1] if grown else (), 1)]  # fmt: skip
    caption = f"Step {len(grown)}: the 2 k best continuations"
    return html_table(rows or [["", "<start>", "0.000", "live"]], ["rank", "words so far", "log p", "fate"], caption)


def _told(levels, vocabulary):
    """Return the tree's last step in words."""
    if not levels:
        return "Beam tree before the first step: <start> alone."
    parts = []
    for fate in FATES:
        words = [f"{' '.join(vocabulary.words[i] for i in node.ids)} ({node.log_p:.2f})"
                 for node in levels[-1] if node.fate == fate]  # fmt: skip
        parts += [f"{fate}: {'; '.join(words)}"] if words else []
    return f"Beam tree after step {len(levels)}. " + ". ".join(parts) + "."


def _text(x, y, words, colour, weight, size=12):
    style = f'font-size="{size}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {style}>{html.escape(words)}</text>'


def _box(t, rank, column, word, number, fate, thick):
    """Return one node as SVG: its frame, its word, its number."""
    colour, ink, dashes, _ = LOOKS[fate]
    x, y, wide, weight = t * column, HEAD + rank * ROW + 2, column - 14, "bold" if thick else "normal"
    frame = 'x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="3" stroke="' + colour + '"'
    drawn = [f'<rect {frame.format(x + 1, y, wide, ROW - 5)} fill="{"#e3f0fa" if thick else "#ffffff"}" '
             f'stroke-dasharray="{dashes or "none"}" stroke-width="{3 if thick else 1.5}"/>']  # fmt: skip
    if fate == "complete":
        drawn.append(f'<rect {frame.format(x + 4, y + 3, wide - 6, ROW - 11)} fill="none"/>')
    size = min(12, (wide - 8) / (0.58 * max(len(word), 6)))
    drawn.append(_text(x + 8, y + 13, word, ink, weight, size=round(size, 1)))
    return "".join(drawn) + _text(x + 8, y + 25, number, ink, weight, 10)


def _edge(t, parent, rank, column, fate, thick):
    """Return the line from a node to its parent as SVG."""
    colour, _, dashes, width = LOOKS[fate]
    x0, y0, x1, y1 = t * column - 13, HEAD + (parent + 0.45) * ROW, t * column + 1, HEAD + (rank + 0.45) * ROW
    return (f'<path d="M{x0:.1f} {y0:.1f}C{x0 + 9:.1f} {y0:.1f} {x1 - 9:.1f} {y1:.1f} {x1:.1f} {y1:.1f}" fill="none" '
            f'stroke="{colour}" stroke-width="{3 if thick else width}" stroke-dasharray="{dashes or "none"}"/>')
