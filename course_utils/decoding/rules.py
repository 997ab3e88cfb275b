"""Rules about which words may come next, the same for every decoder."""

from collections.abc import Sequence

import torch
from torch import Tensor

from course_utils.decoding.common import require, require_count
from course_utils.vocabulary import END, PAD, START

NEVER = float("-inf")


def forbid(
    log_probs: Tensor, history: Tensor, min_length: int = 0, no_repeat: int = 0, suppress: Sequence[int] = ()
) -> Tensor:
    """Return log_probs (M, V) with -inf at every word that may not follow history (M, t): a copy, not renormalised.

    Never allowed: <pad> and <start>, which are no words, and the ids in suppress; <end> before min_length words; a word
    that completes an n-gram of no_repeat words which the caption has already (0: no such rule). A row in which these
    leave nothing keeps all real words, so that decoding can go on. ValueError if the rows are no log-probabilities.
    """
    if history.shape[1] == 0:
        sums = log_probs.exp().sum(1)
        normalised = torch.allclose(sums, torch.ones_like(sums), atol=1e-2)
        require(normalised, "sum of p over what step returned", sums[:3], "1 in every row: return log_softmax(scores)")
    V, banned = log_probs.shape[1], [PAD, START, *suppress] + [END] * (history.shape[1] < min_length)
    require(0 <= min(banned) and max(banned) < V, "suppress", suppress, f"ids 0 .. {V - 1}")
    allowed = log_probs.index_fill(1, torch.tensor(banned, device=log_probs.device), NEVER)
    if no_repeat and history.shape[1] >= no_repeat:
        allowed = ban_repeats(allowed, history, no_repeat)
    nothing = allowed.amax(1, keepdim=True) == NEVER
    words = log_probs.index_fill(1, torch.tensor([PAD, START], device=log_probs.device), NEVER)
    return torch.where(nothing, words, allowed) if nothing.any() else allowed


def ban_repeats(log_probs: Tensor, history: Tensor, n: int) -> Tensor:
    """Return log_probs (M, V) with -inf at every word that would repeat an n-gram of history (M, t), t >= n."""
    grams = history.unfold(1, n, 1)  # (M, t-n+1, n)
    recent = history[:, None, history.shape[1] - n + 1 :]  # (M, 1, n-1)
    again = (grams[:, :, :-1] == recent).all(2)  # (M, t-n+1)
    words = torch.where(again, grams[:, :, -1], PAD)  # <pad> is banned anyway
    return log_probs.scatter(1, words, NEVER)


def require_rules(length: int, min_length: int, no_repeat: int) -> None:
    """Raise a ValueError unless the arguments that all decoders share make sense."""
    require_count("length", length, 1)
    require_count("min_length", min_length, 0, length)
    require_count("no_repeat", no_repeat, 0)
