"""Sampling: captions drawn from the model's distribution, sharpened or cut."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from course_utils.captioners.interface import Captioner, reorder
from course_utils.decoding.common import Choice, Decoded, first_words, require, require_count
from course_utils.decoding.rules import NEVER, forbid, require_rules
from course_utils.vocabulary import END, PAD, T_MAX


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Return logits (M, V) with -inf below the k-th best word of each row; words that tie with it stay; 0 keeps all.

    Fan, Lewis and Dauphin 2018. ValueError if k < 0.
    """
    require_count("top_k", k, 0)
    if k == 0 or k >= logits.shape[1]:
        return logits
    return logits.masked_fill(logits < logits.topk(k)[0][:, -1:], NEVER)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Return logits (M, V) with -inf outside the nucleus, the fewest best words whose probabilities reach p; 1: all.

    The word that crosses p stays, so at least one does. Holtzman et al. 2020. ValueError if p is outside (0, 1].
    """
    require(0 < p <= 1, "top_p", p, "a share of the probability, 0 < top_p <= 1")
    if p == 1:
        return logits
    ranked, order = logits.sort(1, descending=True)
    probs = ranked.softmax(1)
    beyond = probs.cumsum(1) - probs >= p  # (M, V): the better words have p already
    return logits.masked_fill(torch.zeros_like(beyond).scatter(1, order, beyond), NEVER)


@torch.no_grad()
def sample(
    model: Captioner, image: Any, length: int = T_MAX, *, n: int | None = None, temperature: float = 1.0,
    top_k: int = 0, top_p: float = 1.0, min_length: int = 0, no_repeat: int = 0, suppress: Sequence[int] = (),
    generator: torch.Generator | None = None, trace: bool = False,
) -> Decoded:  # fmt: skip
    """Return one caption of each image, or n, drawn word by word from softmax(log p / temperature) behind the cuts.

    Order: the rules of `forbid`, temperature, top_k (0: off), top_p (1: off). scores are log p of the model itself,
    without temperature and cuts. generator None: torch's global one. The model keeps its mode: call eval() first.
    ValueError: temperature <= 0, top_p outside (0, 1], length or n < 1, min_length above length.
    """
    require_rules(length, min_length, no_repeat)
    require(0 < temperature < float("inf"), "temperature", temperature, "a number > 0; for the limit 0 use greedy")
    require_count("n", 1 if n is None else n, 1)
    words, state = first_words(image), model.init_state(image)
    if n is not None:
        index = torch.arange(len(words), device=words.device).repeat_interleave(n)
        words, state = words[index], reorder(state, index)  # (N n,)
    tokens = words.new_full((len(words), length), PAD)
    ended, total, steps = torch.zeros_like(words, dtype=torch.bool), 0.0, []
    for t in range(length):
        log_probs, state = model.step(words, state)  # (M, V)
        logits = forbid(log_probs, tokens[:, :t], min_length, no_repeat, suppress) / temperature
        log_q = keep_top_p(keep_top_k(logits, top_k), top_p).log_softmax(1)
        words = torch.multinomial(log_q.exp(), 1, generator=generator)  # (M, 1)
        total = total + log_probs.gather(1, words)[:, 0].masked_fill(ended, 0.0)
        tokens[:, t] = words = words[:, 0].masked_fill(ended, PAD)
        steps += [Choice(log_probs, log_q, words, state)] if trace else []
        ended = ended | (words == END)
        if ended.all():
            break
    shape = (-1,) if n is None else (-1, n)
    return Decoded(tokens.view(*shape, length), total.view(shape), total.view(shape), tuple(steps), state)
