"""Sampling: what temperature, top-k and top-p do to the next word, and to the captions that are drawn."""

from collections import Counter

import ipywidgets as widgets
import torch

from course_utils.decoding import forbid, greedy, keep_top_k, keep_top_p, sample
from course_utils.explorers.view import Explorer, bar_chart, columns, html_table, note, picture, stack
from course_utils.failures import diagnose
from course_utils.vocabulary import T_MAX

DRAWS, SHOWN = 12, 8  # captions drawn; words of the distribution with a bar of their own


def cut(log_probs, tokens, temperature, top_k, top_p):
    """Return the probabilities (V,) that `sample` draws the next word from, after tokens (t,): rules, tau, cuts."""
    logits = forbid(log_probs[None], tokens[None]) / temperature  # (1, V)
    return keep_top_p(keep_top_k(logits, top_k), top_p).softmax(1)[0]


def sampling_explorer(model, image, scenes, vocabulary, scene=0):
    """Return an Explorer of sampling: the next word before and behind the cuts, and 12 captions of a scene.

    model: a Captioner; image: what its encoder makes of the scenes, batch first; scene: the one shown first. The words
    before the chosen step are those of the greedy caption, so that the sliders change one distribution only.
    """

    def render(scene, step, temperature, top_k, top_p, seed):
        one, references = image[scene : scene + 1], scenes.references(scene)
        with torch.no_grad():
            best = greedy(model, one, trace=True)
            drawn = sample(model, one, n=DRAWS, temperature=temperature, top_k=top_k, top_p=top_p,
                           generator=torch.Generator().manual_seed(seed))  # fmt: skip
        t = min(step, len(best.trace)) - 1
        before, history = best.trace[t].before[0], best.tokens[0, :t]
        seen = picture(scenes.images[scene], f"scene {scene}: {references[0]}", scale=4)
        prefix = " ".join(["<start>", *(vocabulary.words[i] for i in history.tolist())])
        told = stack(note("Right captions: " + "; ".join(f"`{caption}`" for caption in references) + "."),
                     note(f"Words so far, from the greedy caption: `{prefix}`. Next comes word {t + 1}."))  # fmt: skip
        bars = _bars(before.exp(), cut(before, history, temperature, top_k, top_p), vocabulary)
        return stack(columns(seen, told), bars, _captions(drawn.tokens[0], drawn.log_probs[0], references, vocabulary))

    slider, words = widgets.IntSlider, len(vocabulary)
    controls = {
        "scene": slider(value=scene, min=0, max=len(scenes) - 1, description="scene"),
        "step": slider(value=2, min=1, max=T_MAX, description="next word, number"),
        "temperature": widgets.FloatSlider(value=1.0, min=0.1, max=3.0, step=0.1, description="temperature"),
        "top_k": slider(value=0, min=0, max=words, description="top-k (0: off)"),
        "top_p": widgets.FloatSlider(value=1.0, min=0.05, max=1.0, step=0.05, description="top-p (1: off)"),
        "seed": slider(value=0, min=0, max=19, description="seed of the draws"),
    }
    for control in controls.values():
        control.layout.width = "340px"
    rows = [["scene", "step"], ["temperature", "top_k"], ["top_p", "seed"]]
    return Explorer(controls, render, "Sampling: the next word before and behind the cuts, and 12 captions drawn", rows)


def _bars(before, after, vocabulary):
    """Return both distributions (V,) as bar charts of the same words in the same order; a word cut away says so."""
    order = before.argsort(descending=True)[:SHOWN].tolist()
    left = {vocabulary.words[i]: before[i].item() for i in order} | {"all others": 1 - before[order].sum().item()}
    right = {vocabulary.words[i] + ("" if after[i] > 0 else " (cut)"): after[i].item() for i in order}
    right |= {"all others": 1 - after[order].sum().item()}
    left, right = ({word: min(max(p, 0.0), 1.0) for word, p in side.items()} for side in (left, right))
    kept = f"After the cuts: {int((after > 0).sum())} of {len(after)} words left"
    return columns(bar_chart(left, "Before: the model's own"),
                   bar_chart(right, kept))


def _captions(tokens, log_probs, references, vocabulary):
    """Return the drawn captions (n, T) as a table: how often each came, its log p under the model, its verdict."""
    captions = vocabulary.decode_batch(tokens)
    log_p = dict(zip(captions, log_probs.tolist()))
    rows, right = [], 0
    for caption, count in Counter(captions).most_common():
        kind = diagnose(candidate=caption, references=references).kind
        right += count * (kind == "correct")
        rows.append([caption, count, f"{log_p[caption]:.2f}", "✓ right" if kind == "correct" else f"✗ {kind}"])
    told = f"{len(captions)} captions drawn: {len(rows)} distinct, {right} of {len(captions)} right"
    return html_table(rows, ["caption", "times", "log p of the model", "verdict"], told)
