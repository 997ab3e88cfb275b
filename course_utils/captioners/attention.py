"""Show, Attend and Tell: one glance at the grid before every word, soft or hard (Xu et al. 2015).

Letters: V words, L grid locations of width D, E word embedding, H hidden, K keys, T steps; A is the width of what is
attended to: D, and 2 more with coordinates; M its number of places: L, and 1 more with the sentinel.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.attention import additive_scores, coordinates, dot_product_scores
from course_utils.captioners.interface import Captioner, check_captions, check_grid
from course_utils.layers import lstm_update


class Glance(NamedTuple):
    """The state: h, c (N, H); values (N, L, A) and keys (N, L, K) of the image; and the trace of the last glance.

    Trace: alpha (N, M) attention weights, weights (N, M) that were used (alpha if soft, one-hot if hard), beta (N,) the
    gate, 1 without one.
    """

    h: Tensor
    c: Tensor
    values: Tensor
    keys: Tensor
    alpha: Tensor
    weights: Tensor
    beta: Tensor


class Pass(NamedTuple):
    """A teacher-forced pass: logits (N, T-1, V), and of every glance alpha and weights (N, T-1, M), beta (N, T-1)."""

    logits: Tensor
    alpha: Tensor
    weights: Tensor
    beta: Tensor


def soft(alpha: Tensor) -> Tensor:
    """Return the weights of soft attention: alpha (N, M) itself, so that z is the expectation over places."""
    return alpha


def hard(alpha: Tensor) -> Tensor:
    """Return one-hot weights (N, M) of the likeliest place: hard attention at test time."""
    return F.one_hot(alpha.argmax(-1), alpha.shape[-1]).to(alpha.dtype)


class AttentionCaptioner(Captioner):
    """An LSTM over [x_t, z_t]: word embedding and context z_t = beta_t sum_i w_{t,i} v_i, w_t = choose(softmax(e_t)).

    scoring: "dot" or "additive"; places: append each location's coordinates to its annotation; word_query: the query
    reads the previous word beside h_{t-1}; gate: beta_t = sigmoid(w . h_{t-1} + b), a scalar (Xu et al., 4.2.1);
    sentinel: one more place, sigmoid(W [x_t, h_{t-1}]) * tanh(c_{t-1}), to rest the eye on (Lu et al. 2017); choose:
    `soft`, or `hard` to decode with the likeliest place.
    """

    def __init__(self, V: int, L: int = 64, D: int = 48, E: int = 32, H: int = 128, K: int = 32, *,
                 scoring: str = "dot", places: bool = True, word_query: bool = True, gate: bool = False,
                 sentinel: bool = False, choose: Callable = soft):
        super().__init__()
        if scoring not in ("dot", "additive"):
            raise ValueError(f"scoring is {scoring!r}; expected 'dot' or 'additive'")
        self.L, self.D, self.E, self.choose, self.word_query = L, D, E, choose, word_query
        self.register_buffer("places", coordinates(L) if places else torch.zeros(L, 0))
        A = D + self.places.shape[1]

        def weight(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns) / rows ** 0.5)

        self.start = nn.Linear(A, 2 * H)  # [h_0, c_0] = tanh(W mean annotation)
        self.embed = nn.Embedding(V, E)
        self.W_k, self.W_q = nn.Linear(A, K), weight(E + H if word_query else H, K)
        self.w_e = nn.Parameter(torch.randn(K) / K ** 0.5) if scoring == "additive" else None
        self.W_x, self.W_zh, self.b = weight(E, 4 * H), weight(A + H, 4 * H), nn.Parameter(torch.zeros(4 * H))
        self.gate = nn.Linear(H, 1) if gate else None
        self.rest = nn.Linear(E + H, H) if sentinel else None
        self.rest_value = nn.Linear(H, A) if sentinel else None
        self.score = nn.Linear(H, V)

    def init_state(self, image: Tensor) -> Glance:
        check_grid(image, self.L, self.D)
        values = torch.cat([image, self.places.expand(len(image), -1, -1)], -1)  # (N, L, A)
        h, c = self.start(values.mean(1)).tanh().chunk(2, -1)  # (N, H) each
        nowhere = values.new_zeros(len(image), self.L + (self.rest is not None))  # (N, M)
        return Glance(h, c, values, self.W_k(values), nowhere, nowhere, values.new_ones(len(image)))

    def look(self, x: Tensor, state: Glance, choose: Callable) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the context z (N, A), alpha and weights (N, M), and beta (N,) of the glance after reading x (N, E)."""
        values, keys = state.values, state.keys
        if self.rest is not None:
            s = self.rest(torch.cat([x, state.h], -1)).sigmoid() * state.c.tanh()  # (N, H) the sentinel
            s = self.rest_value(s).unsqueeze(1)  # (N, 1, A)
            values, keys = torch.cat([values, s], 1), torch.cat([keys, self.W_k(s)], 1)
        q = (torch.cat([x, state.h], -1) if self.word_query else state.h) @ self.W_q  # (N, K)
        e = dot_product_scores(q, keys) if self.w_e is None else additive_scores(q, keys, self.w_e)
        alpha = e.softmax(-1)  # (N, M)
        weights = choose(alpha)
        z = (weights.unsqueeze(1) @ values).squeeze(1)  # (N, A)
        beta = state.beta if self.gate is None else self.gate(state.h).sigmoid().squeeze(-1)  # (N,)
        return (z if self.gate is None else beta.unsqueeze(-1) * z), alpha, weights, beta

    def advance(self, x: Tensor, from_word: Tensor, state: Glance, choose: Callable) -> Glance:
        """Return the state after word x (N, E), whose share of the gates from_word = x W_x + b (N, 4H) is known."""
        z, alpha, weights, beta = self.look(x, state, choose)
        h, c = lstm_update(torch.addmm(from_word, torch.cat([z, state.h], -1), self.W_zh), state.c)
        return state._replace(h=h, c=c, alpha=alpha, weights=weights, beta=beta)

    def step(self, tokens: Tensor, state: Glance) -> tuple[Tensor, Glance]:
        x = self.embed(tokens)  # (N, E)
        state = self.advance(x, x @ self.W_x + self.b, state, self.choose)
        return F.log_softmax(self.score(state.h), -1), state

    def unroll(self, image: Tensor, captions: Tensor, choose: Callable | None = None) -> Pass:
        """Return the teacher-forced pass with its glances, by choose or the model's own; captions (N, T) int64."""
        state, states = self.init_state(image), []
        check_captions(image, captions, self.embed.num_embeddings)
        x = self.embed(captions[:, :-1])  # (N, T-1, E)
        from_words = x @ self.W_x + self.b  # (N, T-1, 4H): needs no state, so one product serves all steps
        for word, from_word in zip(x.unbind(1), from_words.unbind(1)):
            state = self.advance(word, from_word, state, choose or self.choose)
            states.append((state.h, state.alpha, state.weights, state.beta))
        h, alpha, weights, beta = (torch.stack(part, 1) for part in zip(*states))
        return Pass(self.score(h), alpha, weights, beta)

    def forward(self, image: Tensor, captions: Tensor) -> Tensor:
        return self.unroll(image, captions).logits  # (N, T-1, V)
