"""CaptioningRNN reproduces CS231n's losses; step equals forward; sampling supports both cells; bad input is named.

"CS231n" marks values that Stanford's CS231n assignment (RNN_Captioning and LSTM_Captioning notebooks) prints as checks.
"""

import math

import pytest
import torch

from course_utils.captioners.captioning_rnn import CaptioningRNN, RecurrentState
from course_utils.captioners.interface import Captioner, reorder

CELLS = ("rnn", "lstm")
N, D, W, H, V, T = 6, 5, 4, 8, 9, 7
NULL, START, END = 0, 1, 2


def build(cell_type: str, seed: int = 0, **sizes) -> CaptioningRNN:
    torch.manual_seed(seed)
    return CaptioningRNN(cell_type, **({"D": D, "W": W, "H": H, "V": V} | sizes))


def data(n: int = N, t: int = T, v: int = V, d: int = D, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random features (n, d) and captions (n, t+1): <START>, 3 .. t-1 words, <END>, <NULL> behind it."""
    generator = torch.Generator().manual_seed(seed)
    captions = torch.randint(3, v, (n, t + 1), generator=generator)
    captions[:, 0] = START
    for row, length in enumerate(torch.randint(3, t, (n,), generator=generator)):
        captions[row, length + 1] = END
        captions[row, length + 2 :] = NULL
    return torch.randn(n, d, generator=generator), captions


@pytest.mark.parametrize(
    ("cell_type", "start", "stop", "want"), [("rnn", -1.5, 0.3, 9.83235591003), ("lstm", -0.5, 1.7, 9.82445935443)]
)
def test_loss_cs231n(cell_type, start, stop, want):
    model = CaptioningRNN(cell_type, D=20, W=30, H=40, V=3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-1.4, 1.3, parameter.numel(), dtype=torch.float64).view_as(parameter))
    features = torch.linspace(start, stop, 200, dtype=torch.float64).view(10, 20)
    captions = torch.arange(130).view(10, 13) % 3
    assert abs(model.loss(features, captions).item() - want) < 1e-11


@pytest.mark.parametrize(("cell_type", "gates"), [("rnn", 1), ("lstm", 4)])
def test_parameters_and_their_start(cell_type, gates):
    model = build(cell_type, D=400, W=100, H=64, V=300)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert shapes == {
        "W_proj": (400, 64), "b_proj": (64,), "W_embed": (300, 100), "Wx": (100, gates * 64), "Wh": (64, gates * 64),
        "b": (gates * 64,), "W_vocab": (64, 300), "b_vocab": (300,),
    }  # fmt: skip
    for name, parameter in model.named_parameters():
        if name in ("b_proj", "b", "b_vocab"):
            assert parameter.abs().max() == 0
        else:
            scale = 100 if name == "W_embed" else len(parameter) ** 0.5
            assert abs(parameter.std() * scale - 1) < 0.05, name


@pytest.mark.parametrize("cell_type", CELLS)
def test_initial_loss_is_ln_V_per_token(cell_type):
    features, captions = data(n=200, v=27, d=64)
    model = build(cell_type, D=64, W=32, H=96, V=27)
    tokens = (captions[:, 1:] != NULL).sum() / len(captions)
    assert abs(model.loss(0 * features, captions).item() / tokens - math.log(27)) < 0.01  # no image: scores near 0
    assert abs(model.loss(features, captions).item() / tokens - math.log(27)) < 0.35  # random states: scores near 0.6


@pytest.mark.parametrize("cell_type", CELLS)
def test_step_repeated_equals_forward(cell_type):
    features, captions = data()
    model = build(cell_type).double()
    features = features.double()
    whole = model(features, captions)
    assert whole.shape == (N, T, V)
    stepped = Captioner.forward(model, features, captions)
    torch.testing.assert_close(whole.log_softmax(2), stepped, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cell_type", CELLS)
def test_state_is_carried_and_reordered(cell_type):
    features, _ = data()
    model = build(cell_type)
    state = model.init_state(features)
    assert isinstance(state, RecurrentState) and state.h.shape == (N, H)
    torch.testing.assert_close(state.h, features @ model.W_proj + model.b_proj)
    _, after = model.step(torch.full((N,), START), state)
    assert not torch.equal(after.h, state.h)
    if cell_type == "rnn":
        assert state.c is None and after.c is None
    else:
        assert state.c.shape == (N, H) and state.c.abs().max() == 0 and after.c.abs().min() > 0
        log_p, _ = model.step(torch.full((N,), 3), after)
        without, _ = model.step(torch.full((N,), 3), RecurrentState(after.h, state.c))
        assert not torch.allclose(log_p, without)  # the cell state matters
    index = torch.tensor([2, 2, 0])
    log_p, _ = model.step(torch.full((N,), 4), after)
    picked, _ = model.step(torch.full((3,), 4), reorder(after, index))
    torch.testing.assert_close(picked, log_p[index])


@pytest.mark.parametrize("cell_type", CELLS)
def test_null_counts_neither_in_loss_nor_in_gradient(cell_type):
    features, captions = data(t=T)
    model = build(cell_type)
    longer = torch.cat((captions, torch.full((N, 3), NULL)), 1)
    loss, padded = model.loss(features, captions), model.loss(features, longer)
    torch.testing.assert_close(loss, padded)
    for ours, other in zip(
        torch.autograd.grad(loss, list(model.parameters())), torch.autograd.grad(padded, list(model.parameters()))
    ):
        torch.testing.assert_close(ours, other)
    alone = torch.stack([model.loss(features[i : i + 1], captions[i : i + 1]) for i in range(N)])
    torch.testing.assert_close(loss, alone.mean())  # mean over the batch
    counted = CaptioningRNN(cell_type, D=D, W=W, H=H, V=V, null=V - 1)
    counted.load_state_dict(model.state_dict())
    assert counted.loss(features, captions) > loss + 1  # another null id: the padding counts


class Loss(torch.nn.Module):
    """The loss of a model as a module's forward, for functional_call."""

    def __init__(self, model: CaptioningRNN):
        super().__init__()
        self.model = model

    def forward(self, features, captions):
        return self.model.loss(features, captions)


@pytest.mark.parametrize("cell_type", CELLS)
def test_gradcheck_of_the_loss(cell_type):
    features, captions = data(n=3)
    model = build(cell_type).double()
    names = [name for name, _ in model.named_parameters()]

    def loss(features, *parameters):
        given = {f"model.{name}": parameter for name, parameter in zip(names, parameters)}
        return torch.func.functional_call(Loss(model), given, (features, captions))

    start = [features.double(), *(parameter.detach().clone() for parameter in model.parameters())]
    assert torch.autograd.gradcheck(loss, [tensor.requires_grad_() for tensor in start])


@pytest.mark.parametrize("cell_type", CELLS)
def test_overfits_fifty_captions_and_says_them(cell_type):
    features, captions = data(n=50, t=9, v=27, d=32)
    model = build(cell_type, D=32, W=32, H=96, V=27)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(150):
        loss = model.loss(features, captions)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert model.loss(features, captions) < 0.1  # a caption (CS231n: < 0.1 RNN, < 0.5 LSTM)
    said = model.sample(features, 9)
    assert torch.equal(said, captions[:, 1:])  # word for word, <END> where it belongs, <NULL> behind it


def rigged(cell_type: str, null: int = NULL, start: int = START, end: int = END) -> CaptioningRNN:
    """A model that always says word 3, except where the sign of feature 0 makes it say <END>."""
    model = CaptioningRNN(cell_type, D=D, W=W, H=H, V=V, null=null, start=start, end=end)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.W_proj[0, 0] = 1
        if cell_type == "rnn":
            model.Wh[0, 0] = 10
        else:
            model.b[:H] = 10  # the input gate is open
            model.b[2 * H : 3 * H] = 10  # so is the output gate
            model.Wh[0, 3 * H] = 10  # g reads the state
        model.W_vocab[0, end] = 10
        model.b_vocab[3] = 1
    return model


@pytest.mark.parametrize("cell_type", CELLS)
@pytest.mark.parametrize("ids", [(0, 1, 2), (8, 7, 6)])
def test_sample_stops_each_row_at_end(cell_type, ids):
    null, start, end = ids
    features = torch.zeros(3, D)
    features[:, 0] = torch.tensor([-1.0, 1.0, -1.0])
    said = rigged(cell_type, null, start, end).sample(features, 4)
    assert said.dtype == torch.int64
    assert said.tolist() == [[3, 3, 3, 3], [end, null, null, null], [3, 3, 3, 3]]
    stopped = rigged(cell_type, null, start, end).sample(features[1:2], 4)
    assert stopped.tolist() == [[end, null, null, null]]


@pytest.mark.parametrize("cell_type", CELLS)
@pytest.mark.parametrize("start", [START, 5])
def test_sample_starts_from_the_start_id_and_feeds_back_its_words(cell_type, start):
    features, _ = data()
    model = build(cell_type, seed=3, start=start)
    with torch.no_grad():
        model.W_embed.mul_(300)
        model.b_vocab[END] = -100
    said = model.sample(features, 5)
    inputs = torch.cat((torch.full((N, 1), start), said), 1)
    assert torch.equal(model(features, inputs).argmax(2), said)
    assert len(torch.unique(said)) > 2


FEATURES, CAPTIONS = data()


@pytest.mark.parametrize("cell_type", CELLS)
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.loss(FEATURES[:, :-1], CAPTIONS), ValueError, r"features has shape \(6, 4\); expected \(N, 5\)"),
        (lambda m: m.loss(FEATURES.long(), CAPTIONS), TypeError, "features is torch.int64; expected floating point"),
        (lambda m: m.loss(FEATURES.double(), CAPTIONS), TypeError, "features is torch.float64; the weights are"),
        (lambda m: m.loss(FEATURES, CAPTIONS.float()), TypeError, "captions is torch.float32; expected torch.int64"),
        (lambda m: m.loss(FEATURES, CAPTIONS.int()), TypeError, r"captions is torch.int32.*use captions.long\(\)"),
        (lambda m: m.loss(FEATURES, ["a red circle"]), TypeError, "captions is a list; expected torch.int64"),
        (lambda m: m.loss(FEATURES, CAPTIONS + V), ValueError, r"captions holds the id \d+; expected 0 .. 8"),
        (lambda m: m.loss(FEATURES, CAPTIONS - 9), ValueError, r"captions holds the id -9; expected 0 .. 8"),
        (lambda m: m.loss(FEATURES, CAPTIONS[:4]), ValueError, r"captions has shape \(4, 8\); expected \(6, T\+1\)"),
        (lambda m: m.loss(FEATURES, CAPTIONS[:, :1]), ValueError, r"captions has shape \(6, 1\).*T >= 1"),
        (lambda m: m.loss(FEATURES[:0], CAPTIONS[:0]), ValueError, r"features has shape \(0, 5\).*each axis >= 1"),
        (lambda m: m.step(CAPTIONS, m.init_state(FEATURES)), ValueError, r"tokens has shape \(6, 8\); expected \(6\)"),
        (lambda m: m.step(CAPTIONS[:, 0] + V, m.init_state(FEATURES)), ValueError, "tokens holds the id 10"),
        (lambda m: m.sample(FEATURES, 0), ValueError, "length is 0; expected a whole number >= 1"),
    ],
)
def test_bad_input_is_named(cell_type, call, error, message):
    with pytest.raises(error, match=message):
        call(build(cell_type))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cell_type": "gru"}, "cell_type is 'gru'; expected 'rnn' or 'lstm'"),
        ({"D": -1}, "D is -1; expected a whole number >= 1"),
        ({"W": 0}, "W is 0; expected"),
        ({"H": 2.0}, "H is 2.0; expected"),
        ({"V": -3}, "V is -3; expected"),
        ({"end": 0}, "special ids are .*'end': 0.*; expected three different ids in 0 .. 8"),
        ({"null": 9}, "special ids are .*'null': 9"),
        ({"start": -1}, "special ids are .*'start': -1"),
    ],
)
def test_bad_construction_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        CaptioningRNN(**({"cell_type": "rnn", "D": D, "W": W, "H": H, "V": V} | arguments))
