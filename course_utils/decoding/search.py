"""Search for a probable caption: greedy, beam search and group-diverse beam search."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from course_utils.captioners.interface import Captioner, reorder
from course_utils.decoding.beams import Beam, Plan, advance, best_of, empty_beam, make_plan
from course_utils.decoding.common import Choice, Decoded, Expansion, first_words, require, require_count
from course_utils.decoding.rules import NEVER, forbid, require_rules
from course_utils.vocabulary import END, PAD, T_MAX


@torch.no_grad()
def greedy(model: Captioner, image: Any, length: int = T_MAX, *, trace: bool = False) -> Decoded:
    """Return the caption of each image that takes the most probable word at every step, at most length tokens.

    A row has ended at its <end>; <pad> follows. The model keeps its mode: call eval() first. ValueError: length < 1.
    """
    require_count("length", length, 1)
    words, state = first_words(image), model.init_state(image)  # (N,)
    tokens = words.new_full((len(words), length), PAD)  # (N, T)
    ended, total, steps = words == END, torch.zeros(len(words), device=words.device), []  # (N,), (N,)
    for t in range(length):
        log_probs, state = model.step(words, state)  # (N, V)
        allowed = forbid(log_probs, tokens[:, :t])  # (N, V)
        best, words = allowed.max(1)  # (N,), (N,)
        total = total + best.masked_fill(ended, 0.0)
        tokens[:, t] = words = words.masked_fill(ended, PAD)
        steps += [Choice(log_probs, allowed, words, state)] if trace else []
        ended = ended | (words == END)
        if ended.all():
            break
    return Decoded(tokens, total, total, tuple(steps), state)


@torch.no_grad()
def beam_search(
    model: Captioner, image: Any, k: int = 3, length: int = T_MAX, *, penalty: str = "none", alpha: float | None = None,
    early_stopping: bool | str = "never", n_best: int | None = None, min_length: int = 0, no_repeat: int = 0,
    suppress: Sequence[int] = (), trace: bool = False,
) -> Decoded:  # fmt: skip
    """Return the best caption of each image, or the n_best <= k, found with k hypotheses an image side by side.

    All N k hypotheses are one batch; each takes over its parent's state. Score: log p / `length_penalty`. Complete
    captions go to a pool of k; captions cut at length compete with them, so that there always is one. k = 1 is greedy.
    early_stopping, as in Hugging Face's generate: "never" ends an image when nothing live can enter its pool at any
    length; False when nothing could at the present length (not safe with a penalty); True when the pool is full.
    Rules: those of `forbid`. The model keeps its mode: call eval() first. Source: Sutskever et al. 2014, section 3.2.
    ValueError: k or length < 1, n_best outside 1 .. k, min_length above length, unknown penalty or early_stopping.
    """
    require_rules(length, min_length, no_repeat)
    plan = make_plan(k, length, penalty, alpha, early_stopping)
    require_count("n_best", 1 if n_best is None else n_best, 1, k)
    words, state, steps = first_words(image), model.init_state(image), []  # (N,)
    N, beam = len(words), empty_beam(words, k, length)
    for t in range(length):
        log_probs, state = model.step(words, state)  # (N k, V), but (N, V) at t = 0
        log_probs = forbid(log_probs, beam.live.tokens[:, :, :t].flatten(0, 1), min_length, no_repeat, suppress)
        width = beam.live.tokens.shape[1]
        beam, parents, expansion = advance(beam, log_probs.unflatten(0, (N, width)), t, plan)
        steps += [expansion] if trace else []
        if beam.done.all():
            break
        first = torch.arange(0, N * width, width, device=words.device)[:, None]  # (N, 1): row of hypothesis 0
        words, state = beam.live.tokens[:, :, t].flatten(), reorder(state, (first + parents).flatten())
    return best_of(beam.pool, n_best, steps)


@torch.no_grad()
def diverse_beam_search(
    model: Captioner, image: Any, k: int = 6, groups: int = 3, diversity: float = 0.5, length: int = T_MAX, *,
    penalty: str = "none", alpha: float | None = None, early_stopping: bool | str = "never", min_length: int = 0,
    no_repeat: int = 0, suppress: Sequence[int] = (), trace: bool = False,
) -> Decoded:  # fmt: skip
    """Return the best caption of each of several groups of k / groups hypotheses: tokens (N, groups, T).

    At every step the groups of an image choose in turn; a word loses `diversity` nats for each time that an earlier
    group of the same image has just chosen it. That decides what is kept; scores stay log p / `length_penalty`.
    Arguments as `beam_search`; a step of the trace has one Expansion a group. Source: Vijayakumar et al. 2018, Hamming
    diversity. ValueError: groups does not divide k, diversity < 0, and those of `beam_search`.
    """
    require_rules(length, min_length, no_repeat)
    require_count("k", k, 1)
    require_count("groups", groups, 1)
    require(k % groups == 0, "groups", groups, f"a divisor of k = {k}")
    require(diversity >= 0, "diversity", diversity, "a number of nats >= 0")
    plan = make_plan(k // groups, length, penalty, alpha, early_stopping)
    words, state, steps = first_words(image), model.init_state(image), []  # (N,)
    N, beams = len(words), [empty_beam(words, plan.k, length)] * groups
    index = torch.arange(N, device=words.device).repeat_interleave(groups)
    words, state = words[index], reorder(state, index)  # (N groups,)
    for t in range(length):
        log_probs, state = model.step(words, state)  # (N k, V), but (N groups, V) at t = 0
        history = torch.cat([beam.live.tokens[:, :, :t] for beam in beams], 1)  # (N, k, t)
        log_probs = forbid(log_probs, history.flatten(0, 1), min_length, no_repeat, suppress)
        log_probs = log_probs.unflatten(0, (N, groups, history.shape[1] // groups))  # (N, groups, w, V)
        beams, rows, expansions = advance_groups(beams, log_probs, t, plan, diversity)
        steps += [expansions] if trace else []
        if all(beam.done.all() for beam in beams):
            break
        words, state = torch.cat([beam.live.tokens[:, :, t] for beam in beams], 1).flatten(), reorder(state, rows)
    found = [best_of(beam.pool, None, []) for beam in beams]
    return Decoded(*(torch.stack(parts, 1) for parts in list(zip(*found))[:3]), trace=tuple(steps))


def advance_groups(
    beams: list[Beam], log_probs: Tensor, t: int, plan: Plan, diversity: float
) -> tuple[list[Beam], Tensor, tuple[Expansion, ...]]:
    """Return the groups' beams one word on, the rows (N k,) that their states come from, and one Expansion a group.

    log_probs (N, groups, w, V). A word's handicap: diversity times how often earlier groups of that image chose it.
    """
    N, groups, width, V = log_probs.shape
    first = torch.arange(0, N * groups * width, groups * width, device=log_probs.device)[:, None]  # (N, 1)
    handicap, grown = log_probs.new_zeros(N, V), []
    for g, beam in enumerate(beams):
        beam, parents, expansion = advance(beam, log_probs[:, g], t, plan, handicap)
        chosen = expansion.finished.scatter(1, expansion.kept, True) & (expansion.log_probs > NEVER)  # (N, C)
        chosen = chosen & ~expansion.done[:, None]
        handicap = handicap.scatter_add(1, expansion.words, diversity * chosen.to(handicap.dtype))
        grown.append((beam, first + g * width + parents, expansion))
    beams, rows, expansions = zip(*grown)
    return list(beams), torch.cat(rows, 1).flatten(), expansions
