"""The layers equal CS231n's public arrays, torch's modules, autograd and finite differences; bad input is named.

"CS231n" marks values that Stanford's CS231n assignment (RNN_Captioning and LSTM_Captioning notebooks) prints as checks.
"""

import math

import pytest
import torch
from torch import Tensor, nn

from course_utils import layers
from course_utils import layers_backward as backward

N, T, W, H, V = 3, 5, 4, 6, 7
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def spread(start: float, stop: float, *shape: int) -> Tensor:
    return torch.linspace(start, stop, math.prod(shape), dtype=torch.float64).reshape(shape)


def near(have: Tensor, want, tolerance: float = 5e-9) -> None:
    want = torch.as_tensor(want, dtype=have.dtype)
    assert have.shape == want.shape
    torch.testing.assert_close(have, want, rtol=tolerance, atol=tolerance)


def problem(gates: int, seed: int = 0, dtype=torch.float64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"x": (N, T, W), "h0": (N, H), "c0": (N, H), "Wx": (W, gates * H), "Wh": (H, gates * H), "b": (gates * H,)}
    if gates == 1:
        del shapes["c0"]
    return {k: torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for k, s in shapes.items()}


# --- CS231n's arrays --------------------------------------------------------------------------------------------------


def test_rnn_step_cs231n():
    h = layers.rnn_step(
        spread(-0.4, 0.7, 3, 10), spread(-0.2, 0.5, 3, 4), spread(-0.1, 0.9, 10, 4), spread(-0.3, 0.7, 4, 4),
        spread(-0.2, 0.4, 4),
    )  # fmt: skip
    near(h, [
        [-0.58172089, -0.50182032, -0.41232771, -0.31410098],
        [0.66854692, 0.79562378, 0.87755553, 0.92795967],
        [0.97934501, 0.99144213, 0.99646691, 0.99854353],
    ])  # fmt: skip


def test_rnn_cs231n():
    h = layers.rnn(
        spread(-0.1, 0.3, 2, 3, 4), spread(-0.3, 0.1, 2, 5), spread(-0.2, 0.4, 4, 5), spread(-0.4, 0.1, 5, 5),
        spread(-0.7, 0.1, 5),
    )  # fmt: skip
    near(h[0, 0], [-0.42070749, -0.27279261, -0.11074945, 0.05740409, 0.22236251])
    near(h[-1, -1], [-0.51014825, -0.30524429, -0.06755202, 0.17806392, 0.40333043])


def test_lstm_step_cs231n():
    h, c = layers.lstm_step(
        spread(-0.4, 1.2, 3, 4), spread(-0.3, 0.7, 3, 5), spread(-0.4, 0.9, 3, 5), spread(-2.1, 1.3, 4, 20),
        spread(-0.7, 2.2, 5, 20), spread(0.3, 0.7, 20), order="ifog",
    )  # fmt: skip
    near(h, [
        [0.24635157, 0.28610883, 0.32240467, 0.35525807, 0.38474904],
        [0.49223563, 0.55611431, 0.61507696, 0.66844003, 0.7159181],
        [0.56735664, 0.66310127, 0.74419266, 0.80889665, 0.858299],
    ], 1e-8)  # fmt: skip
    near(c, [
        [0.32986176, 0.39145139, 0.451556, 0.51014116, 0.56717407],
        [0.66382255, 0.76674007, 0.87195994, 0.97902709, 1.08751345],
        [0.74192008, 0.90592151, 1.07717006, 1.25120233, 1.42395676],
    ], 1e-8)  # fmt: skip


def test_lstm_cs231n():
    h, _ = layers.lstm(
        spread(-0.4, 0.6, 2, 3, 5), spread(-0.4, 0.8, 2, 4), torch.zeros(2, 4, dtype=torch.float64),
        spread(-0.2, 0.9, 5, 16), spread(-0.3, 0.6, 4, 16), spread(0.2, 0.7, 16), order="ifog",
    )  # fmt: skip
    near(h[0, 0], [0.01764008, 0.01823233, 0.01882671, 0.0194232])
    near(h[-1, -1], [0.81733511, 0.83677871, 0.85403753, 0.86935314])


def test_word_embedding_cs231n():
    x = layers.word_embedding(torch.tensor([[0, 3, 1, 2], [2, 1, 0, 3]]), spread(0, 1, 5, 3))
    assert x.shape == (2, 4, 3)
    near(x[0, 1], [0.64285714, 0.71428571, 0.78571429])
    assert torch.equal(x[0, 1], x[1, 3])


@pytest.mark.parametrize(
    ("n", "t", "keep", "low", "high"),
    [(100, 1, 1.0, 2.29, 2.32), (100, 10, 1.0, 22.9, 23.2), (5000, 10, 0.1, 2.2, 2.4)],
)
def test_temporal_softmax_sizes_cs231n(n, t, keep, low, high):
    generator = torch.Generator().manual_seed(0)
    scores = 0.001 * torch.randn(n, t, 10, generator=generator, dtype=torch.float64)
    targets = torch.randint(10, (n, t), generator=generator)
    mask = torch.rand(n, t, generator=generator) <= keep
    assert low < layers.temporal_softmax_loss(scores, targets, mask) < high


# --- torch's modules --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_rnn_equals_torch(name, dtype):
    torch.manual_seed(1)
    activation, x, h0 = getattr(torch, name), torch.randn(N, T, W, dtype=dtype), torch.randn(N, H, dtype=dtype)
    cell = nn.RNNCell(W, H, nonlinearity=name, dtype=dtype)
    h = layers.rnn_step(x[:, 0], h0, *layers.weights_from_torch(cell), activation)
    near(h, cell(x[:, 0], h0), TOLERANCE[dtype])
    module = nn.RNN(W, H, nonlinearity=name, batch_first=True, dtype=dtype)
    h = layers.rnn(x, h0, *layers.weights_from_torch(module), activation)
    near(h, module(x, h0[None])[0], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("order", layers.GATE_ORDERS)
def test_lstm_equals_torch(order, dtype):
    torch.manual_seed(2)
    x, h0, c0 = torch.randn(N, T, W, dtype=dtype), torch.randn(N, H, dtype=dtype), torch.randn(N, H, dtype=dtype)
    cell = nn.LSTMCell(W, H, dtype=dtype)
    have = layers.lstm_step(x[:, 0], h0, c0, *layers.weights_from_torch(cell, order), order)
    for ours, theirs in zip(have, cell(x[:, 0], (h0, c0))):
        near(ours, theirs, TOLERANCE[dtype])
    module = nn.LSTM(W, H, batch_first=True, dtype=dtype)
    h, c = layers.lstm(x, h0, c0, *layers.weights_from_torch(module, order), order)
    want, (h_last, c_last) = module(x, (h0[None], c0[None]))
    near(h, want, TOLERANCE[dtype])
    near(h[:, -1], h_last[0], TOLERANCE[dtype])
    near(c[:, -1], c_last[0], TOLERANCE[dtype])


def test_the_two_gate_orders_differ_on_the_same_weights():
    given = problem(4)
    assert not torch.allclose(layers.lstm(**given, order="ifog")[0], layers.lstm(**given, order="ifgo")[0], atol=0.1)


def test_weights_from_torch_layout_without_bias():
    module = nn.LSTMCell(W, H, bias=False)
    Wx, Wh, b = layers.weights_from_torch(module, "ifgo")
    assert torch.equal(Wx, module.weight_ih.T) and torch.equal(Wh, module.weight_hh.T)
    assert torch.equal(b, torch.zeros(4 * H)) and not Wx.requires_grad
    swapped = layers.weights_from_torch(module, "ifog")[0]
    assert torch.equal(swapped[:, 2 * H : 3 * H], Wx[:, 3 * H :])
    Wx.zero_()
    assert module.weight_ih.abs().min() > 0  # a copy


@pytest.mark.parametrize(
    ("module", "error", "message"),
    [
        (nn.GRUCell(2, 2), TypeError, "module is a GRUCell; expected nn.RNNCell"),
        (nn.LSTM(2, 2, num_layers=2), ValueError, "several layers"),
        (nn.RNN(2, 2, bidirectional=True), ValueError, "two directions"),
        (nn.LSTM(2, 3, proj_size=2), ValueError, "projection"),
    ],
)
def test_weights_from_torch_refuses(module, error, message):
    with pytest.raises(error, match=message):
        layers.weights_from_torch(module)


def test_embedding_and_affine_equal_torch():
    torch.manual_seed(3)
    ids, affine, h = torch.randint(V, (N, T)), nn.Linear(H, V).double(), torch.randn(N, T, H, dtype=torch.float64)
    table = nn.Embedding(V, W)
    assert torch.equal(layers.word_embedding(ids, table.weight), table(ids))
    near(layers.temporal_affine(h, affine.weight.T, affine.bias), affine(h), 1e-12)


# --- time -------------------------------------------------------------------------------------------------------------


def test_rnn_is_its_step_repeated_and_splits():
    given = problem(1)
    x, h, weights = given["x"], given["h0"], (given["Wx"], given["Wh"], given["b"])
    whole = layers.rnn(**given)
    for t in range(T):
        h = layers.rnn_step(x[:, t], h, *weights)
        near(h, whole[:, t], 1e-12)
    first = layers.rnn(x[:, :2], given["h0"], *weights)
    near(torch.cat((first, layers.rnn(x[:, 2:], first[:, -1], *weights)), 1), whole, 1e-12)


@pytest.mark.parametrize("order", layers.GATE_ORDERS)
def test_lstm_is_its_step_repeated_and_splits(order):
    given = problem(4)
    x, h, c, weights = given["x"], given["h0"], given["c0"], (given["Wx"], given["Wh"], given["b"], order)
    whole, cells = layers.lstm(**given, order=order)
    for t in range(T):
        h, c = layers.lstm_step(x[:, t], h, c, *weights)
        near(h, whole[:, t], 1e-12)
        near(c, cells[:, t], 1e-12)
    first, first_cells = layers.lstm(x[:, :2], given["h0"], given["c0"], *weights)
    second, second_cells = layers.lstm(x[:, 2:], first[:, -1], first_cells[:, -1], *weights)
    near(torch.cat((first, second), 1), whole, 1e-12)
    near(torch.cat((first_cells, second_cells), 1), cells, 1e-12)


# --- the loss ---------------------------------------------------------------------------------------------------------


def test_temporal_softmax_loss_sums_over_time_and_averages_over_the_batch():
    torch.manual_seed(4)
    scores, targets = torch.randn(N, T, V, dtype=torch.float64), torch.randint(V, (N, T))
    mask = torch.rand(N, T) < 0.6
    token = nn.functional.cross_entropy(scores.transpose(1, 2), targets, reduction="none")  # (N, T)
    loss = layers.temporal_softmax_loss(scores, targets, mask)
    assert math.isclose(loss, (token * mask).sum() / N, rel_tol=1e-12)
    twice = layers.temporal_softmax_loss(scores.tile(1, 2, 1), targets.tile(1, 2), mask.tile(1, 2))
    assert math.isclose(twice, 2 * loss, rel_tol=1e-12)
    double = layers.temporal_softmax_loss(scores.tile(2, 1, 1), targets.tile(2, 1), mask.tile(2, 1))
    assert math.isclose(double, loss, rel_tol=1e-12)


def test_masked_positions_change_neither_loss_nor_gradient():
    torch.manual_seed(5)
    scores, targets = torch.randn(N, T, V, dtype=torch.float64, requires_grad=True), torch.randint(V, (N, T))
    mask = torch.ones(N, T, dtype=torch.bool)
    mask[:, 3:] = False
    loss = layers.temporal_softmax_loss(scores, targets, mask)
    (gradient,) = torch.autograd.grad(loss, scores)
    assert gradient[:, 3:].abs().max() == 0 and gradient[:, :3].abs().min() > 0
    other = torch.where(mask[:, :, None], scores, 1e6)
    assert layers.temporal_softmax_loss(other, targets, mask) == loss
    assert layers.temporal_softmax_loss(scores, targets, torch.zeros_like(mask)) == 0


# --- backward: autograd, finite differences ---------------------------------------------------------------------------


def finite_differences(function, tensor: Tensor, step: float = 1e-6) -> Tensor:
    """d function / d tensor by central differences, one entry at a time."""
    gradient, flat = torch.zeros_like(tensor), tensor.view(-1)
    for i in range(len(flat)):
        value = flat[i].item()
        flat[i] = value + step
        above = function()
        flat[i] = value - step
        gradient.view(-1)[i] = (above - function()) / (2 * step)
        flat[i] = value
    return gradient


def check_gradients(forward, given: dict[str, Tensor], manual: dict[str, Tensor]) -> None:
    """Each manual gradient equals autograd's (1e-12) and the finite difference (1e-7) of forward(**given)."""
    leaves = {name: tensor.clone().requires_grad_(tensor.is_floating_point()) for name, tensor in given.items()}
    automatic = torch.autograd.grad(forward(**leaves), [leaves[name] for name in manual])
    for (name, gradient), want in zip(manual.items(), automatic):
        near(gradient, want, 1e-12)
        numerical = finite_differences(lambda: forward(**given), given[name])
        near(gradient, numerical, 1e-7)


def upstream(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def test_word_embedding_backward():
    torch.manual_seed(6)
    ids, dx = torch.tensor([[0, 3, 3], [3, 1, 0]]), upstream(2, 3, W)
    given = {"W_embed": torch.randn(V, W, dtype=torch.float64)}
    manual = {"W_embed": backward.word_embedding_backward(dx, ids, V)}
    check_gradients(lambda W_embed: (layers.word_embedding(ids, W_embed) * dx).sum(), given, manual)
    near(manual["W_embed"][3], dx[0, 1] + dx[0, 2] + dx[1, 0], 1e-12)


def test_temporal_affine_backward():
    torch.manual_seed(7)
    given = {name: torch.randn(s, dtype=torch.float64) for name, s in {"h": (N, T, H), "W": (H, V), "b": (V,)}.items()}
    d = upstream(N, T, V)
    manual = dict(zip(("h", "W", "b"), backward.temporal_affine_backward(d, given["h"], given["W"])))
    check_gradients(lambda **tensors: (layers.temporal_affine(**tensors) * d).sum(), given, manual)


def test_temporal_softmax_backward():
    torch.manual_seed(8)
    given, targets, mask = {"scores": upstream(N, T, V)}, torch.randint(V, (N, T)), torch.rand(N, T) < 0.5
    manual = {"scores": backward.temporal_softmax_backward(given["scores"], targets, mask)}
    check_gradients(lambda scores: layers.temporal_softmax_loss(scores, targets, mask), given, manual)


@pytest.mark.parametrize("activation", [torch.tanh, torch.relu])
def test_rnn_backward(activation):
    given, d = problem(1), upstream(N, T, H)
    weights = given["Wx"], given["Wh"]
    h = layers.rnn(**given, activation=activation)
    gradients = backward.rnn_backward(d, given["x"], given["h0"], h, *weights, activation)
    manual = dict(zip(("x", "h0", "Wx", "Wh", "b"), gradients))
    check_gradients(lambda **tensors: (layers.rnn(**tensors, activation=activation) * d).sum(), given, manual)

    step = {"x": given["x"][:, 0].clone(), "h": given["h0"], "Wx": given["Wx"], "Wh": given["Wh"], "b": given["b"]}
    gradients = backward.rnn_step_backward(d[:, 0], step["x"], step["h"], h[:, 0], *weights, activation)
    manual = dict(zip(step, gradients))
    check_gradients(lambda **tensors: (layers.rnn_step(**tensors, activation=activation) * d[:, 0]).sum(), step, manual)


@pytest.mark.parametrize("order", layers.GATE_ORDERS)
def test_lstm_backward(order):
    given, d = problem(4), upstream(N, T, H)
    h, c = layers.lstm(**given, order=order)
    x, h0, c0, *weights = given.values()
    manual = dict(zip(given, backward.lstm_backward(d, x, h0, c0, h, c, *weights, order)))
    check_gradients(lambda **tensors: (layers.lstm(**tensors, order=order)[0] * d).sum(), given, manual)

    step = {"x": x[:, 0].clone(), "h": h0, "c": c0, "Wx": weights[0], "Wh": weights[1], "b": weights[2]}
    dh, dc = d[:, 0], d[:, 1]
    manual = dict(zip(step, backward.lstm_step_backward(dh, dc, *step.values(), order)))

    def forward(**tensors):
        h, c = layers.lstm_step(**tensors, order=order)
        return (h * dh).sum() + (c * dc).sum()

    check_gradients(forward, step, manual)


def test_gradcheck():
    def leaves(given):
        return tuple(tensor.requires_grad_() for tensor in given.values())

    assert torch.autograd.gradcheck(layers.rnn, leaves(problem(1)))
    for order in layers.GATE_ORDERS:
        assert torch.autograd.gradcheck(lambda *tensors: layers.lstm(*tensors, order), leaves(problem(4)))  # noqa: B023


# --- bad input --------------------------------------------------------------------------------------------------------


def lstm_with(order: str = "ifog", **changes) -> None:
    layers.lstm(**(problem(4) | changes), order=order)


def rnn_with(**changes) -> None:
    layers.rnn(**(problem(1) | changes))


def step_with(**changes) -> None:
    given = problem(4)
    given = {"x": given["x"][:, 0], "h": given["h0"], "c": given["c0"]} | {k: given[k] for k in ("Wx", "Wh", "b")}
    layers.lstm_step(**(given | changes))


def loss_with(**changes) -> None:
    given = {"scores": zeros(N, T, V), "targets": torch.zeros(N, T).long(), "mask": torch.ones(N, T).bool()}
    layers.temporal_softmax_loss(**(given | changes))


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: lstm_with(order="iofg"), ValueError, r"order is 'iofg'; expected 'ifog' \(CS231n\) or 'ifgo'"),
        (lambda: layers.weights_from_torch(nn.LSTMCell(1, 1), "figo"), ValueError, "order is 'figo'"),
        (lambda: backward.lstm_update_backward(*4 * [zeros(1, 4)], "gofi"), ValueError, "order is 'gofi'"),
        (lambda: lstm_with(x=zeros(N, T, W + 1)), ValueError, r"x has shape \(3, 5, 5\); expected \(N, T, 4\)"),
        (lambda: lstm_with(x=zeros(N, W)), ValueError, r"x has shape \(3, 4\); expected \(N, T, 4\)"),
        (lambda: lstm_with(x=zeros(N, 0, W)), ValueError, r"x has shape \(3, 0, 4\).*each axis >= 1"),
        (lambda: lstm_with(x=zeros(N, T, W).long()), TypeError, r"x is torch.int64; expected floating.*x.float\(\)"),
        (lambda: lstm_with(x=zeros(N, T, W).float()), TypeError, "x is torch.float32; the weights are torch.float64"),
        (lambda: lstm_with(x=[[0.0]]), TypeError, "x is a list; expected floating point"),
        (lambda: lstm_with(h0=zeros(N + 1, H)), ValueError, r"h0 has shape \(4, 6\); expected \(3, 6\)"),
        (lambda: lstm_with(c0=zeros(1, N, H)), ValueError, r"c0 has shape \(1, 3, 6\); expected \(3, 6\)"),
        (lambda: lstm_with(Wx=zeros(4 * H, W)), ValueError, r"Wx has shape \(24, 4\); expected \(W, 24\).*\(in, out\)"),
        (lambda: lstm_with(Wh=zeros(H, H)), ValueError, r"Wh has shape \(6, 6\); expected \(6, 24\)"),
        (lambda: lstm_with(b=zeros(4 * H + 1)), ValueError, r"b has shape \(25,\); expected \(24\)"),
        (lambda: step_with(x=zeros(N, T, W)), ValueError, r"x has shape \(3, 5, 4\); expected \(N, 4\)"),
        (lambda: step_with(c=zeros(N, H - 1)), ValueError, r"c has shape \(3, 5\); expected \(3, 6\)"),
        (lambda: rnn_with(x=zeros(N, T, W - 1)), ValueError, r"x has shape \(3, 5, 3\); expected \(N, T, 4\)"),
        (lambda: rnn_with(Wh=zeros(H, 4 * H)), ValueError, r"Wh has shape \(6, 24\); expected \(6, 6\)"),
        (lambda: rnn_with(b=zeros(4 * H)), ValueError, r"b has shape \(24,\); expected \(6\)"),
        (lambda: backward.rnn_step_backward(*6 * [zeros(1, 1)], torch.sigmoid), ValueError, "expected torch.tanh or"),
        (lambda: backward.rnn_step_backward(zeros(2, 1), *5 * [zeros(1, 1)]), ValueError, r"dh has shape \(2, 1\)"),
        (lambda: backward.temporal_affine_backward(zeros(1, 1, 2), zeros(1, 1, 3), zeros(3, 3)), ValueError, "dscores"),
        (lambda: backward.temporal_softmax_backward(zeros(1, 1, 2), torch.tensor([[2]]), None), ValueError, "the id 2"),
        (lambda: backward.temporal_softmax_backward(zeros(1, 1, 2), torch.tensor([[1]]), None), TypeError, "mask is a"),
        (lambda: layers.word_embedding(torch.zeros(2, 3, dtype=torch.int32), zeros(V, W)), TypeError,
         r"ids is torch.int32; expected torch.int64: use ids.long\(\)"),
        (lambda: layers.word_embedding(torch.zeros(2, 3), zeros(V, W)), TypeError, "ids is torch.float32"),
        (lambda: layers.word_embedding(torch.tensor([[0, V]]), zeros(V, W)), ValueError, r"the id 7; expected 0"),
        (lambda: layers.word_embedding(torch.tensor([[0, -1]]), zeros(V, W)), ValueError, r"the id -1; expected 0 "),
        (lambda: layers.word_embedding(torch.tensor([0]), zeros(V, W)), ValueError, r"ids has shape \(1,\).*\(N, T\)"),
        (lambda: layers.word_embedding(torch.tensor([[0]]), zeros(V)), ValueError, r"W_embed has shape \(7,\)"),
        (lambda: backward.word_embedding_backward(zeros(1, 1, W), torch.tensor([[V]]), V), ValueError, "id 7"),
        (lambda: layers.temporal_affine(zeros(N, T, H), zeros(V, H), zeros(H)), ValueError, r"h has .*\(N, T, 7\)"),
        (lambda: layers.temporal_affine(zeros(N, T, H), zeros(H, V), zeros(H)), ValueError, r"b has .* \(6,\).*\(7\)"),
        (lambda: loss_with(targets=torch.zeros(N, T + 1).long()), ValueError, r"targets has shape \(3, 6\).*\(3, 5\)"),
        (lambda: loss_with(targets=torch.full((N, T), V)), ValueError, "targets holds the id 7; expected 0 .. 6"),
        (lambda: loss_with(targets=torch.zeros(N, T)), TypeError, "targets is torch.float32; expected torch.int64"),
        (lambda: loss_with(mask=torch.ones(N, T)), TypeError, "mask is torch.float32; expected torch.bool"),
        (lambda: loss_with(mask=torch.ones(N, 1).bool()), ValueError, r"mask has shape \(3, 1\); expected \(3, 5\)"),
        (lambda: loss_with(scores=torch.zeros(N, V)), ValueError, r"scores has shape \(3, 7\); expected \(N, T, V\)"),
        (lambda: loss_with(scores=torch.zeros(N, T, V).long()), TypeError, "scores is torch.int64"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
