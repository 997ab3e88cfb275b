"""Manual backward passes of course_utils.layers: backpropagation through time, written out.

dy is the gradient of the loss with respect to y. A pass through time first collects da, the gradients of the
pre-activations of all steps, from last to first; the weights' gradients are then one product each. Equal to autograd
and to finite differences in float64 (the tests show both). Errors are those of the forward passes.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from course_utils.layers import GATE_ORDERS, check_float, check_ids, check_mask, check_recurrence

SLOPES = {torch.tanh: lambda h: 1 - h * h, torch.relu: lambda h: (h > 0).to(h.dtype)}  # f'(a), written in h = f(a)


def word_embedding_backward(dx: Tensor, ids: Tensor, V: int) -> Tensor:
    """Return dW_embed (V, W): row v is the sum of dx_{n,t} over all places where ids_{n,t} = v (a scatter-add).

    dx (N, T, W), ids (N, T) int64.
    """
    check_float("dx", dx, "N", "T", "W")
    check_ids("ids", ids, V, *dx.shape[:2])
    return dx.new_zeros(V, dx.shape[2]).index_add(0, ids.flatten(), dx.flatten(0, 1))  # (V, W)


def temporal_affine_backward(dscores: Tensor, h: Tensor, W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return dh (N, T, H), dW (H, V), db (V,) of scores = h W + b; dscores (N, T, V), h (N, T, H), W (H, V)."""
    check_float("W", W, "H", "V")
    check_float("h", h, "N", "T", len(W), dtype=W.dtype)
    check_float("dscores", dscores, *h.shape[:2], W.shape[1], dtype=W.dtype)
    return dscores @ W.T, h.flatten(0, 1).T @ dscores.flatten(0, 1), dscores.sum((0, 1))


def temporal_softmax_backward(scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return dscores (N, T, V) = M_{n,t} (softmax(scores) - onehot(y)) / N of temporal_softmax_loss."""
    check_float("scores", scores, "N", "T", "V")
    check_ids("targets", targets, scores.shape[2], *scores.shape[:2])
    check_mask(mask, *targets.shape)
    p = scores.softmax(2)  # (N, T, V)
    onehot = torch.zeros_like(p).scatter(2, targets[:, :, None], 1)
    return (p - onehot) * mask[:, :, None] / len(scores)


def _input_gradients(da: Tensor, x: Tensor, h: Tensor, Wx: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return dx, dWx, dWh, db of a = x Wx + h Wh + b, h the state *before* each step; any leading axes."""
    rows = da.flatten(0, -2)  # (N T, gates H)
    return da @ Wx.T, x.flatten(0, -2).T @ rows, h.flatten(0, -2).T @ rows, rows.sum(0)


def _slope(activation: Callable) -> Callable:
    if activation not in SLOPES:
        raise ValueError(f"activation is {activation!r}; expected torch.tanh or torch.relu")
    return SLOPES[activation]


def rnn_step_backward(
    dh: Tensor, x: Tensor, h_previous: Tensor, h: Tensor, Wx: Tensor, Wh: Tensor, activation: Callable = torch.tanh
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return dx (N, W), dh_{t-1} (N, H), dWx (W, H), dWh (H, H), db (H,) of rnn_step, whose result was h.

    da = dh_t * f'(a);  dh_{t-1} = da Wh^T
    """
    check_recurrence(1, (), x, Wx, Wh, Wh[0], h_previous=h_previous, h=h, dh=dh)
    da = dh * _slope(activation)(h)  # (N, H)
    dx, dWx, dWh, db = _input_gradients(da, x, h_previous, Wx)
    return dx, da @ Wh.T, dWx, dWh, db


def rnn_backward(
    dh: Tensor, x: Tensor, h0: Tensor, h: Tensor, Wx: Tensor, Wh: Tensor, activation: Callable = torch.tanh
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return dx (N, T, W), dh0 (N, H), dWx (W, H), dWh (H, H), db (H,) of rnn, whose result was h (N, T, H).

    dh (N, T, H) holds what each h_t receives from the loss directly; the recurrence adds da_{t+1} Wh^T to it.
    """
    check_recurrence(1, ("T",), x, Wx, Wh, Wh[0], h0=h0)
    check_float("h", h, *x.shape[:2], len(Wh), dtype=Wx.dtype)
    check_float("dh", dh, *h.shape, dtype=Wx.dtype)
    slopes, later, das = _slope(activation)(h), torch.zeros_like(h0), []  # (N, T, H), (N, H)
    for t in reversed(range(h.shape[1])):
        da = (dh[:, t] + later) * slopes[:, t]  # (N, H)
        later = da @ Wh.T  # (N, H)
        das.append(da)
    before = torch.cat((h0[:, None], h[:, :-1]), 1)  # (N, T, H): the state that each step started from
    dx, dWx, dWh, db = _input_gradients(torch.stack(das[::-1], 1), x, before, Wx)
    return dx, later, dWx, dWh, db


def lstm_update_backward(
    dh: Tensor, dc: Tensor, a: Tensor, c_previous: Tensor, order: str = "ifog"
) -> tuple[Tensor, Tensor]:
    """Return da (N, 4H) in `order` and dc_{t-1} (N, H) of lstm_update; dh, dc (N, H) are the gradients of its results.

    dc_t += dh_t * o * (1 - tanh(c_t)^2);  di = dc_t * g;  df = dc_t * c_{t-1};  do = dh_t * tanh(c_t);  dg = dc_t * i
    """
    if order not in GATE_ORDERS:
        raise ValueError(f"order is {order!r}; expected 'ifog' (CS231n) or 'ifgo' (PyTorch)")
    part = dict(zip(order, a.chunk(4, 1)))  # each (N, H)
    i, f, o, g = part["i"].sigmoid(), part["f"].sigmoid(), part["o"].sigmoid(), part["g"].tanh()
    squashed = (f * c_previous + i * g).tanh()  # (N, H)
    dc = dc + dh * o * (1 - squashed * squashed)
    da = {
        "i": dc * g * i * (1 - i),
        "f": dc * c_previous * f * (1 - f),
        "o": dh * squashed * o * (1 - o),
        "g": dc * i * (1 - g * g),
    }
    return torch.cat([da[gate] for gate in order], 1), dc * f


def lstm_step_backward(
    dh: Tensor, dc: Tensor, x: Tensor, h: Tensor, c: Tensor, Wx: Tensor, Wh: Tensor, b: Tensor, order: str = "ifog"
) -> tuple[Tensor, ...]:
    """Return dx (N, W), dh_{t-1}, dc_{t-1} (N, H), dWx (W, 4H), dWh (H, 4H), db (4H,) of lstm_step(x, h, c, ...)."""
    check_recurrence(4, (), x, Wx, Wh, b, h=h, c=c, dh=dh, dc=dc)
    da, dc = lstm_update_backward(dh, dc, x @ Wx + h @ Wh + b, c, order)  # (N, 4H), (N, H)
    dx, dWx, dWh, db = _input_gradients(da, x, h, Wx)
    return dx, da @ Wh.T, dc, dWx, dWh, db


def lstm_backward(
    dh: Tensor,
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    h: Tensor,
    c: Tensor,
    Wx: Tensor,
    Wh: Tensor,
    b: Tensor,
    order: str = "ifog",
) -> tuple[Tensor, ...]:
    """Return dx (N, T, W), dh0, dc0 (N, H), dWx (W, 4H), dWh (H, 4H), db (4H,) of lstm, whose results were h and c.

    dh, h, c (N, T, H); the loss reads h alone. All pre-activations are computed again in one product.
    """
    check_recurrence(4, ("T",), x, Wx, Wh, b, h0=h0, c0=c0)
    for name, states in (("h", h), ("c", c), ("dh", dh)):
        check_float(name, states, *x.shape[:2], len(Wh), dtype=Wx.dtype)
    h_before = torch.cat((h0[:, None], h[:, :-1]), 1)  # (N, T, H)
    c_before = torch.cat((c0[:, None], c[:, :-1]), 1)  # (N, T, H)
    a = x @ Wx + h_before @ Wh + b  # (N, T, 4H)
    later, dc, das = torch.zeros_like(h0), torch.zeros_like(c0), []  # (N, H)
    for t in reversed(range(h.shape[1])):
        da, dc = lstm_update_backward(dh[:, t] + later, dc, a[:, t], c_before[:, t], order)  # (N, 4H), (N, H)
        later = da @ Wh.T  # (N, H)
        das.append(da)
    dx, dWx, dWh, db = _input_gradients(torch.stack(das[::-1], 1), x, h_before, Wx)
    return dx, later, dc, dWx, dWh, db
