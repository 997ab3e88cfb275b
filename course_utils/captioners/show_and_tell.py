"""Show and Tell: the image enters a recurrent decoder once (Vinyals et al. 2015; Karpathy and Fei-Fei 2015).

Letters: V words, L grid locations of width D, E word embedding, H hidden, I width of the image vector v.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.captioners.interface import Captioner, check_captions, check_grid
from course_utils.layers import lstm, lstm_step, rnn


class RNNState(NamedTuple):
    """h (N, H), and what the image adds to the next update (N, H): W_ih v before the first word, zeros after it."""

    h: Tensor
    image: Tensor


class ShowTellRNN(Captioner):
    """h_t = ReLU(W_xh x_t + W_hh h_{t-1} + b + [t = 1] W_ih v) with v = ReLU(project(flattened grid)), h_0 = 0.

    W_hh starts as the identity, which keeps the once-injected image alive (Le, Jaitly and Hinton 2015).
    """

    def __init__(self, V: int, L: int = 64, D: int = 48, E: int = 32, H: int = 128, I: int = 64):
        super().__init__()
        self.L, self.D = L, D
        self.project = nn.Linear(L * D, I)  # the fc7 of this course
        self.W_ih = nn.Parameter(torch.randn(I, H) / I ** 0.5)
        self.embed = nn.Embedding(V, E)
        self.W_xh = nn.Parameter(torch.randn(E, H) / E ** 0.5)
        self.W_hh = nn.Parameter(torch.eye(H))
        self.b = nn.Parameter(torch.zeros(H))
        self.score = nn.Linear(H, V)

    def image_vector(self, image: Tensor) -> Tensor:
        check_grid(image, self.L, self.D)
        return F.relu(self.project(image.flatten(1)))  # v (N, I)

    def init_state(self, image: Tensor) -> RNNState:
        pending = self.image_vector(image) @ self.W_ih  # (N, H)
        return RNNState(torch.zeros_like(pending), pending)

    def step(self, tokens: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
        x = self.embed(tokens)  # (N, E)
        h = F.relu(x @ self.W_xh + state.h @ self.W_hh + self.b + state.image)  # (N, H)
        return F.log_softmax(self.score(h), -1), RNNState(h, torch.zeros_like(h))

    def forward(self, image: Tensor, captions: Tensor) -> Tensor:
        state = self.init_state(image)
        check_captions(image, captions, self.embed.num_embeddings)
        x = self.embed(captions[:, :-1])  # (N, T-1, E)
        h = F.relu(x[:, 0] @ self.W_xh + self.b + state.image)  # (N, H); h_0 = 0 has nothing to say yet
        states = [h.unsqueeze(1)]
        if x.shape[1] > 1:
            states.append(rnn(x[:, 1:], h, self.W_xh, self.W_hh, self.b, F.relu))  # (N, T-2, H)
        return self.score(torch.cat(states, 1))  # (N, T-1, V)


class LSTMState(NamedTuple):
    """h and c, both (N, H)."""

    h: Tensor
    c: Tensor


class ShowTellLSTM(Captioner):
    """The same captioner as an LSTM that starts at h_0 = tanh(W_h v), c_0 = tanh(W_c v), and four remedies.

    forget_bias: bias of the forget gate at the start, 1 keeps c (Gers et al. 2000); squash_cell=False: c_0 = W_c v,
    without the tanh that saturates; normalise=True: LayerNorm on v; image="input": v is read like a word before
    <start>, h_0 = c_0 = 0 (Vinyals et al.).
    """

    def __init__(self, V: int, L: int = 64, D: int = 48, E: int = 32, H: int = 128, I: int = 64, *,
                 image: str = "state", squash_cell: bool = True, forget_bias: float = 0.0,
                 normalise: bool = False):
        super().__init__()
        if image not in ("state", "input"):
            raise ValueError(f"image is {image!r}; expected 'state' (h_0 and c_0) or 'input' (a word before <start>)")
        self.L, self.D, self.image, self.squash_cell = L, D, image, squash_cell
        self.project = nn.Linear(L * D, I)
        self.normalise = nn.LayerNorm(I) if normalise else nn.Identity()
        if image == "state":
            self.W_h, self.W_c = nn.Linear(I, H), nn.Linear(I, H)
        else:
            self.read = nn.Linear(I, E)
        self.embed = nn.Embedding(V, E)
        self.W_x = nn.Parameter(torch.randn(E, 4 * H) / E ** 0.5)
        self.W_hh = nn.Parameter(torch.randn(H, 4 * H) / H ** 0.5)
        self.b = nn.Parameter(torch.tensor([0., forget_bias, 0., 0.]).repeat_interleave(H))  # gates i, f, o, g
        self.score = nn.Linear(H, V)

    image_vector = ShowTellRNN.image_vector

    def init_state(self, image: Tensor) -> LSTMState:
        v = self.normalise(self.image_vector(image))  # (N, I)
        if self.image == "state":
            c = self.W_c(v)  # (N, H)
            return LSTMState(self.W_h(v).tanh(), c.tanh() if self.squash_cell else c)
        zero = v.new_zeros(len(v), len(self.W_hh))
        return LSTMState(*lstm_step(self.read(v), zero, zero, self.W_x, self.W_hh, self.b))

    def step(self, tokens: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        h, c = lstm_step(self.embed(tokens), state.h, state.c, self.W_x, self.W_hh, self.b)  # (N, H)
        return F.log_softmax(self.score(h), -1), LSTMState(h, c)

    def forward(self, image: Tensor, captions: Tensor) -> Tensor:
        state = self.init_state(image)
        check_captions(image, captions, self.embed.num_embeddings)
        h, _ = lstm(self.embed(captions[:, :-1]), *state, self.W_x, self.W_hh, self.b)
        return self.score(h)  # (N, T-1, V)
