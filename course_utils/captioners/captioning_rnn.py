"""CaptioningRNN: the captioner of Stanford CS231n's assignment, on raw tensors, with a vanilla RNN or an LSTM."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from course_utils.captioners.interface import Captioner
from course_utils.layers import (
    check_float,
    check_ids,
    lstm,
    lstm_step,
    rnn,
    rnn_step,
    temporal_affine,
    temporal_softmax_loss,
    word_embedding,
)


class RecurrentState(NamedTuple):
    """What the recurrence carries: h (N, H), and c (N, H) for an LSTM or None for an RNN."""

    h: Tensor
    c: Tensor | None


class CaptioningRNN(Captioner):
    """Scores of captions from image features D over words W and states H to the vocabulary V.

    h_0 = features W_proj + b_proj;  x_t = W_embed[word_t];  h_t = RNN or LSTM (gates i, f, o, g; c_0 = 0);
    scores_t = h_t W_vocab + b_vocab. `image` of the captioner interface is features (N, D) float; captions are ids
    (N, T+1) int64 from <START> on. Weights start as randn / sqrt(fan-in), embeddings as randn / 100, biases as 0.
    ValueError: an unknown cell_type, a size < 1, special ids that are not distinct ids of the vocabulary.
    """

    def __init__(
        self, cell_type: str = "rnn", *, D: int, W: int, H: int, V: int, null: int = 0, start: int = 1, end: int = 2
    ):
        super().__init__()
        if cell_type not in ("rnn", "lstm"):
            raise ValueError(f"cell_type is {cell_type!r}; expected 'rnn' or 'lstm'")
        for name, size in (("D", D), ("W", W), ("H", H), ("V", V)):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} is {size!r}; expected a whole number >= 1")
        special = {"null": null, "start": start, "end": end}
        if len(set(special.values())) < 3 or not all(0 <= number < V for number in special.values()):
            raise ValueError(f"special ids are {special}; expected three different ids in 0 .. {V - 1} (V = {V})")
        self.cell_type, self.null, self.start, self.end = cell_type, null, start, end
        gates = 1 if cell_type == "rnn" else 4

        def weight(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns) / rows**0.5)

        self.W_proj, self.b_proj = weight(D, H), nn.Parameter(torch.zeros(H))
        self.W_embed = nn.Parameter(torch.randn(V, W) / 100)
        self.Wx, self.Wh, self.b = weight(W, gates * H), weight(H, gates * H), nn.Parameter(torch.zeros(gates * H))
        self.W_vocab, self.b_vocab = weight(H, V), nn.Parameter(torch.zeros(V))

    def init_state(self, image: Tensor) -> RecurrentState:
        """Return h_0 = features W_proj + b_proj (N, H) and, for an LSTM, c_0 = 0 (N, H); image = features (N, D)."""
        check_float("features", image, "N", len(self.W_proj), dtype=self.W_proj.dtype)
        h = image @ self.W_proj + self.b_proj  # (N, H)
        return RecurrentState(h, torch.zeros_like(h) if self.cell_type == "lstm" else None)

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return log p(next word) (N, V) and the new state after reading tokens (N,) int64."""
        check_ids("tokens", tokens, len(self.W_embed), len(state.h))
        h, c = state
        x = self.W_embed[tokens.to(h.device)]  # (N, W)
        if self.cell_type == "rnn":
            h = rnn_step(x, h, self.Wx, self.Wh, self.b)  # (N, H)
        else:
            h, c = lstm_step(x, h, c, self.Wx, self.Wh, self.b)  # (N, H) each
        return (h @ self.W_vocab + self.b_vocab).log_softmax(1), RecurrentState(h, c)

    def forward(self, image: Tensor, captions: Tensor) -> Tensor:
        """Return the scores (N, T, V) of captions[:, 1:] under teacher forcing; captions (N, T+1) int64."""
        h0, c0 = self.init_state(image)
        check_ids("captions", captions, len(self.W_embed), len(h0), "T+1")
        if captions.shape[1] < 2:
            raise ValueError(f"captions has shape {tuple(captions.shape)}; expected (N, T+1) with T >= 1")
        x = word_embedding(captions[:, :-1].to(h0.device), self.W_embed)  # (N, T, W)
        if self.cell_type == "rnn":
            h = rnn(x, h0, self.Wx, self.Wh, self.b)  # (N, T, H)
        else:
            h, _ = lstm(x, h0, c0, self.Wx, self.Wh, self.b)  # (N, T, H)
        return temporal_affine(h, self.W_vocab, self.b_vocab)  # (N, T, V)

    def loss(self, features: Tensor, captions: Tensor) -> Tensor:
        """Return the temporal softmax loss of captions (N, T+1): sum over time without <NULL>, mean over batch."""
        scores = self(features, captions)  # (N, T, V)
        targets = captions[:, 1:].to(scores.device)  # (N, T)
        return temporal_softmax_loss(scores, targets, targets != self.null)

    @torch.no_grad()
    def sample(self, features: Tensor, length: int) -> Tensor:
        """Return the likeliest next words, greedily: ids (N, length) int64, <NULL> behind the first <END> of a row."""
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"length is {length!r}; expected a whole number >= 1")
        state = self.init_state(features)
        captions = torch.full((len(features), length), self.null, device=state.h.device)  # (N, length)
        tokens = torch.full_like(captions[:, 0], self.start)  # (N,)
        alive = torch.ones_like(tokens, dtype=torch.bool)  # (N,)
        for t in range(length):
            log_probs, state = self.step(tokens, state)  # (N, V)
            tokens = log_probs.argmax(1).where(alive, self.null)  # (N,)
            captions[:, t] = tokens
            alive &= tokens != self.end
            if not alive.any():
                break
        return captions
