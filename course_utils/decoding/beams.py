"""The parts of a beam search: hypotheses, their continuations, the pool of complete captions, and when to stop."""

from typing import NamedTuple

import torch
from torch import Tensor

from course_utils.decoding.common import Decoded, Expansion, require, require_count
from course_utils.decoding.rules import NEVER
from course_utils.vocabulary import END, PAD


class Hypotheses(NamedTuple):
    """Some captions of each image, best first: tokens (N, w, T) int64; log_probs and scores (N, w) float."""

    tokens: Tensor
    log_probs: Tensor
    scores: Tensor

    def take(self, index: Tensor) -> "Hypotheses":
        """Return the hypotheses at index (N, m) int64 of each image."""
        rows = torch.arange(len(index), device=index.device)[:, None]  # (N, 1)
        return Hypotheses(*(part[rows, index] for part in self))


class Beam(NamedTuple):
    """A search so far: hypotheses that can grow, the best k complete ones, and which images are through (N,) bool."""

    live: Hypotheses
    pool: Hypotheses
    done: Tensor


class Plan(NamedTuple):
    """What a search is asked for: k, the length penalty of a caption of t + 1 tokens at [t], and how early to stop."""

    k: int
    penalty: list[float]
    early_stopping: bool | str


def length_penalty(length: int, penalty: str = "none", alpha: float | None = None) -> float:
    """Return what log p of a caption of so many tokens is divided by; <end> counts, <start> does not.

    "none": 1. "average": length ** alpha, alpha 1 unless given (`length_penalty` of Hugging Face's generate).
    "gnmt": ((5 + length) / 6) ** alpha, alpha 0.6 unless given (Wu et al. 2016, equation 14). A larger alpha favours
    longer captions. ValueError: another name, or alpha without a penalty.
    """
    require(penalty in ("none", "average", "gnmt"), "penalty", penalty, '"none", "average" or "gnmt"')
    require(penalty != "none" or alpha is None, "alpha", alpha, 'None with penalty "none"')
    if penalty == "none":
        return 1.0
    if penalty == "average":
        return float(length) ** (1.0 if alpha is None else alpha)
    return ((5 + length) / 6) ** (0.6 if alpha is None else alpha)


def make_plan(k: int, length: int, penalty: str, alpha: float | None, early_stopping: bool | str) -> Plan:
    """Return the plan of a search after checking k, penalty and early_stopping."""
    require_count("k", k, 1)
    known = isinstance(early_stopping, bool) or early_stopping == "never"
    require(known, "early_stopping", early_stopping, 'False, True or "never"')
    return Plan(k, [length_penalty(t + 1, penalty, alpha) for t in range(length)], early_stopping)


def empty_beam(words: Tensor, k: int, length: int) -> Beam:
    """Return the beam before the first word: one live, empty caption an image and none complete; words (N,) int64."""
    tokens, zero = words.new_full((len(words), k, length), PAD), torch.zeros(len(words), 1, device=words.device)
    nothing = (zero + NEVER).expand(-1, k)
    return Beam(Hypotheses(tokens[:, :1], zero, zero), Hypotheses(tokens, nothing, nothing), zero[:, 0] > 0)


def extend(
    live: Hypotheses, log_probs: Tensor, t: int, count: int, handicap: Tensor | None = None
) -> tuple[Hypotheses, Tensor]:
    """Return the best `count` one-word continuations of each image's live hypotheses, and their parents (N, count).

    log_probs (N, w, V) of the next word; handicap (N, V) is taken off for ranking only. Places that V words cannot fill
    at the first step have log p = -inf.
    """
    totals = live.log_probs[:, :, None] + log_probs  # (N, w, V)
    ranks = totals if handicap is None else totals - handicap[:, None]
    best, flat = ranks.flatten(1).topk(min(count, ranks.shape[1] * ranks.shape[2]))  # (N, C)
    best = best if handicap is None else totals.flatten(1).gather(1, flat)
    missing = count - flat.shape[1]
    if missing > 0:
        best, flat = (torch.nn.functional.pad(x, (0, missing), value=v) for x, v in ((best, NEVER), (flat, PAD)))
    parents, words = flat // log_probs.shape[2], flat % log_probs.shape[2]
    candidates = live.take(parents)
    candidates.tokens[:, :, t] = words
    return Hypotheses(candidates.tokens, best, best), parents


def retire(pool: Hypotheses, candidates: Hypotheses, finished: Tensor, penalty: float) -> Hypotheses:
    """Return the pool with the finished (N, C) bool candidates: the best k by log p / penalty of old and new."""
    if not finished.any():
        return pool
    scores = (candidates.log_probs / penalty).masked_fill(~finished, NEVER)
    both = Hypotheses(*(torch.cat(pair, 1) for pair in zip(pool, candidates._replace(scores=scores))))
    return both.take(both.scores.topk(pool.scores.shape[1])[1])


def hopeless(beam: Beam, t: int, plan: Plan) -> Tensor:
    """Return which images are through, (N,) bool: nothing live can enter their pool any more, or the last step is done.

    log p only falls, so log p / (most favourable length penalty still to come) bounds what a hypothesis can reach.
    """
    reach = max(plan.penalty[t:]) if plan.early_stopping == "never" else plan.penalty[t]
    worst = beam.pool.scores[:, -1]  # (N,): -inf while the pool has a free place
    done = beam.live.log_probs.amax(1) / reach <= worst
    if plan.early_stopping is True or plan.k == 1:
        done = done | (worst > NEVER)
    return beam.done | done | (t + 1 == len(plan.penalty))


def advance(
    beam: Beam, log_probs: Tensor, t: int, plan: Plan, handicap: Tensor | None = None
) -> tuple[Beam, Tensor, Expansion]:
    """Return the beam one word on, the parents (N, k) int64 of its live hypotheses, and what happened.

    log_probs (N, w, V) of the next word of each live hypothesis. The best 2 k continuations of an image are looked at:
    at most k of them end, so k go on. <end> counts only among the best k; at the last step each of those counts.
    """
    candidates, parents = extend(beam.live, log_probs, t, 2 * plan.k, handicap)
    words = candidates.tokens[:, :, t]  # (N, 2k)
    finished = (words == END) | (t + 1 == len(plan.penalty))
    finished = finished & (candidates.log_probs > NEVER) & ~beam.done[:, None]
    finished[:, plan.k :] = False
    pool = retire(beam.pool, candidates, finished, plan.penalty[t])
    kept = (words == END).int().argsort(dim=1, stable=True)[:, : plan.k]  # the first k that go on
    expansion = Expansion(words, parents, candidates.log_probs, kept, finished, beam.done)
    grown = Beam(candidates.take(kept), pool, beam.done)
    return grown._replace(done=hopeless(grown, t, plan)), parents.gather(1, kept), expansion


def best_of(pool: Hypotheses, n_best: int | None, steps: list) -> Decoded:
    """Return the best n_best hypotheses of a pool (N, n_best, T), or the best one alone (N, T) for None."""
    empty, chosen = pool.scores == NEVER, 0 if n_best is None else slice(n_best)
    tokens, log_probs = pool.tokens.masked_fill(empty[..., None], PAD), pool.log_probs.masked_fill(empty, NEVER)
    return Decoded(tokens[:, chosen], pool.scores[:, chosen], log_probs[:, chosen], tuple(steps))
