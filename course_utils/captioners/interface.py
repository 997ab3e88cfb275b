"""The interface that every captioner of the course has, so that one decoder, metric and explorer serves all of them."""

from typing import Any

import torch
from torch import Tensor, nn


class Captioner(nn.Module):
    """A model of p(caption | image), one word at a time.

    A subclass defines `init_state` and `step`; `forward` follows from them, and a subclass overrides it only to do the
    same computation faster. `image` is what the model's encoder gives, batch first; here the grid (N, L, D).
    """

    def init_state(self, image: Tensor) -> Any:
        """Return the state before the first word: a NamedTuple of tensors, each with the batch first."""
        raise NotImplementedError(f"{type(self).__name__} must define init_state(image)")

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return log p(next word) (N, V) float and the new state after reading one word a row, tokens (N,) int64."""
        raise NotImplementedError(f"{type(self).__name__} must define step(tokens, state)")

    def forward(self, image: Tensor, captions: Tensor) -> Tensor:
        """Return the scores (N, T-1, V) of captions[:, 1:] (teacher forcing); captions (N, T) int64 with <start>."""
        state, scores = self.init_state(image), []
        for t in range(captions.shape[1] - 1):
            log_probs, state = self.step(captions[:, t], state)  # (N, V)
            scores.append(log_probs)
        return torch.stack(scores, 1)  # (N, T-1, V)


def reorder(state: Any, index: Tensor) -> Any:
    """Return the state with its rows taken by index (M,) int64: how a surviving beam inherits its parent's state.

    Serves any nesting of tensors, named tuples, tuples, lists, dicts and None; every tensor has the batch first.
    """
    if state is None:
        return None
    if isinstance(state, Tensor):
        return state.index_select(0, index)
    if isinstance(state, dict):
        return {name: reorder(part, index) for name, part in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(reorder(part, index) for part in state))
    if isinstance(state, (list, tuple)):
        return type(state)(reorder(part, index) for part in state)
    raise TypeError(f"state holds a {type(state).__name__}; expected tensors, tuples, lists, dicts or None")


def check_captions(image: Tensor, captions: Tensor, V: int) -> None:
    """Raise an error unless captions are ids (N, T) int64 below V, one row an image, with a word behind <start>."""
    if captions.dtype != torch.int64:
        raise TypeError(f"captions are {captions.dtype}; expected torch.int64 ids: use Vocabulary.encode_batch")
    if captions.ndim != 2 or len(captions) != len(image) or captions.shape[1] < 2:
        raise ValueError(f"captions have shape {tuple(captions.shape)} for {len(image)} images; expected (N, T), one "
                         "row an image and T of at least 2: <start> and one word")
    if captions.numel() and not 0 <= int(captions.min()) <= int(captions.max()) < V:
        raise ValueError(f"captions hold ids from {captions.min()} to {captions.max()}; expected 0 <= id < {V}: encode "
                         "with the vocabulary that the model was built for")


def check_grid(image: Tensor, L: int, D: int) -> None:
    """Raise an error unless image is a float grid (N, L, D), as a captioner built for L and D reads it."""
    if image.ndim != 3 or image.shape[1:] != (L, D):
        raise ValueError(f"image has shape {tuple(image.shape)}; expected a grid (N, {L}, {D}): call "
                         "encode(encoder, images) first, or build the captioner with the grid's L and D")
    if not image.is_floating_point():
        raise TypeError(f"image is {image.dtype}; expected float")
