"""Recurrent layers on raw tensors: word embedding, RNN and LSTM cells, temporal affine and temporal softmax loss.

N batch, T time steps, V vocabulary, W word-embedding width (E elsewhere in the course), H hidden width. Weights are
laid out (in, out), so that a layer reads as its equation: h = f(x Wx + h Wh + b). The four gates of an LSTM stand side
by side in one product, Wx (W, 4H), Wh (H, 4H), b (4H,), in one of two documented orders: "ifog" (Stanford CS231n's
assignment) or "ifgo" (PyTorch). Features are float, ids int64: a wrong dtype is a TypeError, wrong shapes a ValueError.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

GATE_ORDERS = ("ifog", "ifgo")


def check_float(name: str, tensor: Tensor, *shape: int | str, dtype: torch.dtype | None = None) -> None:
    """Raise unless the tensor is floating point (TypeError) and fits the shape (ValueError; letter: any size >= 1)."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError(f"{name} is {_kind(tensor)}; expected floating point: use {name}.float()")
    if dtype is not None and tensor.dtype != dtype:
        raise TypeError(f"{name} is {tensor.dtype}; the weights are {dtype}: use {name}.to({dtype})")
    _check_shape(name, tensor, shape)


def check_ids(name: str, ids: Tensor, size: int, *shape: int | str) -> None:
    """Raise unless ids are int64 (TypeError), fit the shape and lie in 0 .. size - 1 (ValueError)."""
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64:
        raise TypeError(f"{name} is {_kind(ids)}; expected torch.int64: use {name}.long() or Vocabulary.encode")
    _check_shape(name, ids, shape)
    low, high = (int(end) for end in ids.aminmax())
    if low < 0 or high >= size:
        bad = low if low < 0 else high
        raise ValueError(f"{name} holds the id {bad}; expected 0 .. {size - 1}: encode with the weights' vocabulary")


def check_mask(mask: Tensor, *shape: int | str) -> None:
    """Raise unless mask is bool (TypeError) and fits the shape (ValueError)."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"mask is {_kind(mask)}; expected torch.bool: use mask = targets != null")
    _check_shape("mask", mask, shape)


def _kind(value) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _check_shape(name: str, tensor: Tensor, shape: tuple) -> None:
    sizes = tuple(tensor.shape)
    fits = len(sizes) == len(shape) and all(
        size >= 1 if isinstance(want, str) else size == want for size, want in zip(sizes, shape)
    )
    if not fits:
        expected = ", ".join(map(str, shape))
        raise ValueError(f"{name} has shape {sizes}; expected ({expected}), each axis >= 1, weights laid out (in, out)")


def check_recurrence(gates: int, steps: tuple, x: Tensor, Wx: Tensor, Wh: Tensor, b: Tensor, **states: Tensor) -> None:
    """Raise unless x (N, *steps, W), the states (N, H) and the weights of `gates` blocks of width H fit together."""
    check_float("Wh", Wh, "H", f"{gates}H")
    check_float("Wx", Wx, "W", gates * len(Wh))
    check_float("Wh", Wh, len(Wh), gates * len(Wh), dtype=Wx.dtype)
    check_float("b", b, gates * len(Wh), dtype=Wx.dtype)
    check_float("x", x, "N", *steps, len(Wx), dtype=Wx.dtype)
    for name, state in states.items():
        check_float(name, state, len(x), len(Wh), dtype=Wx.dtype)


def word_embedding(ids: Tensor, W_embed: Tensor) -> Tensor:
    """Return the word vectors x (N, T, W) of ids (N, T) int64: x_{n,t} = W_embed[ids_{n,t}], W_embed (V, W)."""
    check_float("W_embed", W_embed, "V", "W")
    check_ids("ids", ids, len(W_embed), "N", "T")
    return W_embed[ids]  # (N, T, W)


def rnn_step(x: Tensor, h: Tensor, Wx: Tensor, Wh: Tensor, b: Tensor, activation: Callable = torch.tanh) -> Tensor:
    """Return h_t (N, H) = f(x_t Wx + h_{t-1} Wh + b).

    x (N, W), h (N, H), Wx (W, H), Wh (H, H), b (H,); f is tanh (Elman 1990) or torch.relu (Le, Jaitly, Hinton 2015).
    """
    check_recurrence(1, (), x, Wx, Wh, b, h=h)
    return activation(x @ Wx + h @ Wh + b)  # (N, H)


def rnn(x: Tensor, h0: Tensor, Wx: Tensor, Wh: Tensor, b: Tensor, activation: Callable = torch.tanh) -> Tensor:
    """Return all states h (N, T, H) of the recurrence h_t = f(x_t Wx + h_{t-1} Wh + b), begun at h0 (N, H).

    x (N, T, W), weights as in rnn_step. x_t Wx + b needs no state, so one product serves all steps.
    """
    check_recurrence(1, ("T",), x, Wx, Wh, b, h0=h0)
    projected, h, states = x @ Wx + b, h0, []  # (N, T, H)
    for a in projected.unbind(1):
        h = activation(a + h @ Wh)  # (N, H)
        states.append(h)
    return torch.stack(states, 1)  # (N, T, H)


def lstm_update(a: Tensor, c: Tensor, order: str = "ifog") -> tuple[Tensor, Tensor]:
    """Return h_t and c_t (N, H) from the four pre-activations a (N, 4H), laid out in `order`, and c_{t-1} (N, H).

    i, f, o = sigmoid(a_i), sigmoid(a_f), sigmoid(a_o);  g = tanh(a_g);  c_t = f * c_{t-1} + i * g;  h_t = o * tanh(c_t)
    (Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000). ValueError for an unknown order.
    """
    if order not in GATE_ORDERS:
        raise ValueError(f"order is {order!r}; expected 'ifog' (CS231n) or 'ifgo' (PyTorch)")
    part = dict(zip(order, a.chunk(4, 1)))  # each (N, H)
    i, f, o = part["i"].sigmoid(), part["f"].sigmoid(), part["o"].sigmoid()
    c = f * c + i * part["g"].tanh()  # (N, H)
    return o * c.tanh(), c


def lstm_step(
    x: Tensor, h: Tensor, c: Tensor, Wx: Tensor, Wh: Tensor, b: Tensor, order: str = "ifog"
) -> tuple[Tensor, Tensor]:
    """Return h_t and c_t (N, H): the update of lstm_update for a = x_t Wx + h_{t-1} Wh + b.

    x (N, W), h and c (N, H), Wx (W, 4H), Wh (H, 4H), b (4H,) with the gates in `order`.
    """
    check_recurrence(4, (), x, Wx, Wh, b, h=h, c=c)
    return lstm_update(x @ Wx + h @ Wh + b, c, order)


def lstm(
    x: Tensor, h0: Tensor, c0: Tensor, Wx: Tensor, Wh: Tensor, b: Tensor, order: str = "ifog"
) -> tuple[Tensor, Tensor]:
    """Return all states h and all cell states c, each (N, T, H), of the LSTM begun at h0 and c0 (N, H).

    x (N, T, W), weights as in lstm_step. x_t Wx + b needs no state, so one product serves all steps and gates.
    """
    check_recurrence(4, ("T",), x, Wx, Wh, b, h0=h0, c0=c0)
    projected, h, c, states, cells = x @ Wx + b, h0, c0, [], []  # (N, T, 4H)
    for a in projected.unbind(1):
        h, c = lstm_update(a + h @ Wh, c, order)  # (N, H) each
        states.append(h)
        cells.append(c)
    return torch.stack(states, 1), torch.stack(cells, 1)  # (N, T, H) each


def temporal_affine(h: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """Return the scores (N, T, V) = h_t W + b: one affine map shared by all steps; h (N, T, H), W (H, V), b (V,)."""
    check_float("W", W, "H", "V")
    check_float("b", b, W.shape[1], dtype=W.dtype)
    check_float("h", h, "N", "T", len(W), dtype=W.dtype)
    return h @ W + b  # (N, T, V)


def temporal_softmax_loss(scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the loss -1/N sum_{n,t} M_{n,t} log p(y_{n,t}), p = softmax(scores): sum over time, mean over batch.

    scores (N, T, V) float, targets y (N, T) int64, mask M (N, T) bool: True where the target counts. The sum over time
    makes a T times longer caption cost T times as much; `loss * N / mask.sum()` is the mean per token.
    """
    check_float("scores", scores, "N", "T", "V")
    check_ids("targets", targets, scores.shape[2], *scores.shape[:2])
    check_mask(mask, *targets.shape)
    log_p = scores.log_softmax(2).gather(2, targets[:, :, None]).squeeze(2)  # (N, T)
    return -log_p.masked_fill(~mask, 0).sum() / len(scores)


def weights_from_torch(module: nn.Module, order: str = "ifog") -> tuple[Tensor, Tensor, Tensor]:
    """Return copies of Wx, Wh, b of an nn.RNNCell, nn.LSTMCell, nn.RNN or nn.LSTM of one layer in this file's layout.

    PyTorch keeps (out, in), two biases that are only ever added, and the gates in the order i, f, g, o.
    """
    if not isinstance(module, (nn.RNNCell, nn.LSTMCell, nn.RNN, nn.LSTM)):
        raise TypeError(f"module is a {type(module).__name__}; expected nn.RNNCell, nn.LSTMCell, nn.RNN or nn.LSTM")
    if order not in GATE_ORDERS:
        raise ValueError(f"order is {order!r}; expected 'ifog' (CS231n) or 'ifgo' (PyTorch)")
    tail = "_l0" if isinstance(module, nn.RNNBase) else ""
    if tail and (module.num_layers > 1 or module.bidirectional or module.proj_size):
        raise ValueError("module has several layers, two directions or a projection; expected one plain layer")
    weights = [getattr(module, f"weight_{kind}{tail}").detach().T for kind in ("ih", "hh")]  # (W, .), (H, .)
    biases = [getattr(module, f"bias_{kind}{tail}").detach() for kind in ("ih", "hh")] if module.bias else []
    weights.append(sum(biases) if biases else weights[0].new_zeros(weights[0].shape[1]))
    if isinstance(module, (nn.LSTMCell, nn.LSTM)):
        parts = [dict(zip("ifgo", weight.chunk(4, -1))) for weight in weights]
        weights = [torch.cat([part[gate] for gate in order], -1) for part in parts]
    return tuple(weight.clone().contiguous() for weight in weights)
