"""What every decoder shares: its result, its trace, the checks of its arguments, and the score of a given caption."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_utils.captioners.interface import Captioner, reorder
from course_utils.vocabulary import END, PAD, START


class Decoded(NamedTuple):
    """Captions and what they score.

    tokens: (N, T) int64, or (N, n, T) where several captions an image were asked for; no <start>, <pad> behind <end>.
    scores: (N,) or (N, n) float, what captions are ranked by: log p, divided by the length penalty of a beam search.
    log_probs: as scores, log p(caption | image) of the model, <end> included; -inf where fewer than n captions exist.
    trace: one Choice (greedy, sample) or Expansion (beam search) a step when asked for, else empty.
    state: the model's last state of greedy and sample, one row a caption: what it looked at, if the model keeps that.
    """

    tokens: Tensor
    scores: Tensor
    log_probs: Tensor
    trace: tuple = ()
    state: Any = None


class Choice(NamedTuple):
    """One step of greedy or sampling: log p of the model and log q behind rules and cuts (N, V), words taken (N,).

    state: the model's state behind this step, with what the model looked at before these words, if it keeps that.
    """

    before: Tensor
    after: Tensor
    words: Tensor
    state: Any = None


class Expansion(NamedTuple):
    """One step of a beam search: the C best continuations of each image in their order of rank, and their fate.

    words, parents (N, C) int64: the word added and the live hypothesis it follows; log_probs (N, C): the sum so far.
    kept (N, k) int64: which continuations live on, as hypotheses 0 .. k-1 of the next step. finished (N, C) bool: which
    went to the pool. The others are pruned; log p = -inf is an empty place. done (N,) bool: the image was through.
    """

    words: Tensor
    parents: Tensor
    log_probs: Tensor
    kept: Tensor
    finished: Tensor
    done: Tensor


def require(holds: bool, name: str, value: Any, expected: str) -> None:
    """Raise a ValueError that names the argument, what came and what was expected, unless the condition holds."""
    if not holds:
        raise ValueError(f"{name} is {value!r}; expected {expected}")


def require_count(name: str, value: Any, least: int, most: float = float("inf")) -> None:
    """Raise a ValueError unless value is an integer between least and most."""
    limit = f" and <= {most}" if most < float("inf") else ""
    require(isinstance(value, int) and least <= value <= most, name, value, f"an integer >= {least}{limit}")


def first_tensor(image: Any) -> Tensor:
    """Return the first tensor in the image, however nested: its first dimension is N, its device is where to work."""
    if isinstance(image, Tensor):
        return image
    parts = image.values() if isinstance(image, dict) else image
    return first_tensor(next(part for part in parts if part is not None))


def first_words(image: Any) -> Tensor:
    """Return <start> for every image: (N,) int64."""
    tensor = first_tensor(image)
    return torch.full((tensor.shape[0],), START, device=tensor.device)


def score(model: Captioner, image: Any, captions: Tensor) -> Tensor:
    """Return log p(caption | image) under teacher forcing, <end> included and <pad> left out: (N,) or (N, n) float.

    captions: (N, T) or (N, n, T) int64, n captions of each image, with or without <start>. What stands behind <end>
    does not count. Gradients flow, so that a policy gradient can use it. ValueError if only some start with <start>.
    """
    require(captions.dim() in (2, 3), "shape of captions", tuple(captions.shape), "(N, T) or (N, n, T)")
    require(captions.dtype == torch.int64, "dtype of captions", captions.dtype, "torch.int64 ids")
    rows = captions.flatten(0, -2)  # (M, T)
    if captions.dim() == 3:
        image = reorder(image, torch.arange(len(captions), device=rows.device).repeat_interleave(captions.shape[1]))
    started = rows[:, 0] == START
    require(bool(started.all() or not started.any()), "captions", captions, "<start> in front of all or of none")
    if not started.all():
        rows = torch.cat([torch.full_like(rows[:, :1], START), rows], 1)  # (M, 1 + T)
    targets, ends = rows[:, 1:], (rows[:, 1:] == END).long()
    ignored = (targets == PAD) | (ends.cumsum(1) > ends)  # (M, T)
    log_probs = model(image, rows).log_softmax(-1).gather(2, targets[..., None])[..., 0]  # (M, T)
    return log_probs.masked_fill(ignored, 0.0).sum(1).view(captions.shape[:-1])
