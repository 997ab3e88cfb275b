"""Show and Tell: step equals forward, both recurrences equal torch's, the image enters once, bad input is named."""

import math

import pytest
import torch
from torch import nn

from course_utils.captioners import AttentionCaptioner, Captioner, ShowTellLSTM, ShowTellRNN, reorder
from course_utils.captioners.show_and_tell import LSTMState, RNNState
from course_utils.decoding import greedy
from course_utils.layers import lstm_step, rnn_step
from course_utils.training import Plan, fit, teacher_forcing_loss
from course_utils.vocabulary import START, course_vocabulary

N, T, V, L, D, E, H, I = 5, 7, 11, 6, 4, 8, 10, 9
SIZES = {"V": V, "L": L, "D": D, "E": E, "H": H, "I": I}
VARIANTS = {
    "rnn": (ShowTellRNN, {}), "lstm": (ShowTellLSTM, {}), "forget bias": (ShowTellLSTM, {"forget_bias": 1.0}),
    "input": (ShowTellLSTM, {"image": "input"}), "linear cell": (ShowTellLSTM, {"squash_cell": False}),
    "normalised": (ShowTellLSTM, {"normalise": True}),
    "all": (ShowTellLSTM, {"image": "input", "forget_bias": 2.0, "normalise": True}),
}  # fmt: skip
EVERY = pytest.mark.parametrize("variant", VARIANTS)


def build(variant: str, seed: int = 0, **sizes) -> Captioner:
    torch.manual_seed(seed)
    kind, options = VARIANTS[variant]
    return kind(**(SIZES | sizes), **options)


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    captions = torch.randint(3, V, (N, T), generator=generator)
    captions[:, 0] = START
    return torch.rand(N, L, D, generator=generator), captions


def blind(model: Captioner) -> Captioner:
    """The model with v = 0 for every image."""
    with torch.no_grad():
        model.project.weight.zero_()
        model.project.bias.zero_()
    return model


def copied(module: nn.RNNBase, W_x: torch.Tensor, W_hh: torch.Tensor, b: torch.Tensor, order=(0, 1, 2, 3)):
    """The module with the weights of a captioner; order: where torch's gates i, f, g, o stand there."""

    def turned(weight):
        parts = weight.chunk(4, -1) if isinstance(module, nn.LSTM) else [weight]
        return torch.cat([parts[k] for k in order[: len(parts)]], -1).t()

    with torch.no_grad():
        module.weight_ih_l0.copy_(turned(W_x))
        module.weight_hh_l0.copy_(turned(W_hh))
        module.bias_ih_l0.copy_(turned(b))
        module.bias_hh_l0.zero_()
    return module


@EVERY
def test_step_repeated_equals_forward(variant):
    image, captions = data()
    model = build(variant)
    scores = model(image, captions)
    assert scores.shape == (N, T - 1, V) and scores.dtype == torch.float32
    stepped = Captioner.forward(model, image, captions)
    torch.testing.assert_close(scores.log_softmax(-1), stepped, rtol=1e-5, atol=1e-6)


@EVERY
def test_scores_read_the_image_and_only_the_past(variant):
    image, captions = data()
    model = build(variant)
    scores = model(image, captions)
    assert not torch.allclose(model(image.flip(0), captions), scores)
    later = captions.clone()
    later[:, 4] = (later[:, 4] - 2) % (V - 3) + 3
    changed = (model(image, later) - scores).abs().amax((0, 2)) > 0  # (T-1,)
    assert changed.tolist() == [t >= 4 for t in range(T - 1)]


@EVERY
def test_state_has_the_batch_first_and_is_reordered(variant):
    image, captions = data()
    model = build(variant)
    start = model.init_state(image)
    assert isinstance(start, RNNState if variant == "rnn" else LSTMState)
    assert [part.shape for part in start] == [(N, H), (N, H)]
    _, state = model.step(captions[:, 0], start)
    index = torch.tensor([3, 0, 0])
    for before in (start, state):
        log_p, _ = model.step(captions[:, 1], before)
        picked, _ = model.step(captions[index, 1], reorder(before, index))
        torch.testing.assert_close(picked, log_p[index])
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(N))


def test_rnn_equals_torch_without_an_image():
    image, captions = data()
    model = blind(build("rnn"))
    x = model.embed(captions[:, :-1])  # (N, T-1, E)
    module = copied(nn.RNN(E, H, nonlinearity="relu", batch_first=True), model.W_xh, model.W_hh, model.b)
    torch.testing.assert_close(model(image, captions), model.score(module(x)[0]), rtol=1e-5, atol=1e-6)
    cell = nn.RNNCell(E, H, nonlinearity="relu")
    cell.load_state_dict({name[:-3]: value for name, value in module.state_dict().items()})
    state, h = model.init_state(image), torch.zeros(N, H)
    for t in range(T - 1):
        _, state = model.step(captions[:, t], state)
        h = cell(x[:, t], h)
        torch.testing.assert_close(state.h, h, rtol=1e-5, atol=1e-6)


def test_v_0_is_the_recurrence_without_an_image_bit_for_bit():
    image, captions = data()
    model = blind(build("rnn"))
    state, h = model.init_state(image), torch.zeros(N, H)
    for t in range(T - 1):
        _, state = model.step(captions[:, t], state)
        h = rnn_step(model.embed(captions[:, t]), h, model.W_xh, model.W_hh, model.b, torch.relu)
        assert torch.equal(state.h, h)
    assert torch.equal(model(image, captions), model(image.flip(0), captions))


def test_rnn_equation_with_an_image():
    image, captions = data()
    model = build("rnn")
    assert torch.equal(model.W_hh, torch.eye(H))
    v = (image.flatten(1) @ model.project.weight.T + model.project.bias).clamp(min=0)
    x = model.embed(captions)
    state = model.init_state(image)
    assert state.h.abs().max() == 0
    torch.testing.assert_close(state.image, v @ model.W_ih)
    _, state = model.step(captions[:, 0], state)
    torch.testing.assert_close(state.h, (x[:, 0] @ model.W_xh + v @ model.W_ih + model.b).clamp(min=0))
    assert state.h.min() == 0 and state.h.max() > 0  # a ReLU state is not negative
    assert state.image.abs().max() == 0  # the image enters once
    before = state.h
    _, state = model.step(captions[:, 1], state)
    torch.testing.assert_close(state.h, (x[:, 1] @ model.W_xh + before @ model.W_hh + model.b).clamp(min=0))


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "rnn"])
def test_lstm_equals_torch_begun_at_its_own_state(variant):
    image, captions = data()
    model = build(variant)
    module = copied(nn.LSTM(E, H, batch_first=True), model.W_x, model.W_hh, model.b, order=(0, 1, 3, 2))  # i, f, o, g
    h0, c0 = (part[None] for part in model.init_state(image))
    h, _ = module(model.embed(captions[:, :-1]), (h0, c0))
    torch.testing.assert_close(model(image, captions), model.score(h), rtol=1e-5, atol=1e-6)


def test_lstm_start_and_its_remedies():
    image, _ = data()
    plain, linear, input_, normal = (build(name) for name in ("lstm", "linear cell", "input", "normalised"))
    v = plain.image_vector(image)
    assert torch.equal(plain.init_state(image).h, plain.W_h(v).tanh())
    assert torch.equal(plain.init_state(image).c, plain.W_c(v).tanh())
    assert torch.equal(linear.init_state(image).c, linear.W_c(linear.image_vector(image)))
    word, zero = input_.read(input_.image_vector(image)), torch.zeros(N, H)
    for have, want in zip(input_.init_state(image), lstm_step(word, zero, zero, input_.W_x, input_.W_hh, input_.b)):
        torch.testing.assert_close(have, want)
    assert not hasattr(input_, "W_h") and not hasattr(plain, "read")
    with torch.no_grad():
        normal.project.weight.mul_(7)
        normal.project.bias.mul_(7)
    unscaled = build("normalised").init_state(image).h  # LayerNorm takes the length of v away
    torch.testing.assert_close(normal.init_state(image).h, unscaled, rtol=1e-3, atol=1e-3)
    gates = build("forget bias").b.view(4, H)
    assert gates.tolist() == [[float(k == 1)] * H for k in range(4)] and plain.b.abs().max() == 0


@EVERY
@pytest.mark.parametrize("seed", range(3))
def test_initial_loss_is_near_ln_V(variant, seed):
    torch.manual_seed(seed)
    kind, options = VARIANTS[variant]
    model = kind(27, **options)
    captions = torch.cat([torch.full((64, 1), START), torch.randint(2, 27, (64, 9))], 1)
    loss = teacher_forcing_loss(model(0.3 * torch.rand(64, 64, 48), captions), captions)
    excess = loss.item() - math.log(27)
    assert -0.1 < excess < (0.8 if variant == "rnn" else 0.2)  # an identity recurrence adds its inputs up
    with torch.no_grad():
        model.score.weight.zero_(), model.score.bias.zero_()
    loss = teacher_forcing_loss(model(torch.rand(64, 64, 48), captions), captions)
    assert abs(loss.item() - math.log(27)) < 1e-5


@pytest.mark.parametrize("variant", ["rnn", "normalised"])
def test_overfits_eight_captions_and_says_them(variant):
    words = course_vocabulary()
    captions = words.encode_batch([f"a {c} {s} above a {d} {s}" for c, d, s in zip(
        "red green blue yellow red green blue yellow".split(), "blue red yellow green green blue red red".split(),
        "circle square triangle circle triangle circle square square".split())], 10)  # fmt: skip
    grid = torch.rand(8, L, D, generator=torch.Generator().manual_seed(1))
    model = build(variant, V=len(words), H=64, E=16, I=32)
    fit(model, lambda index, _: teacher_forcing_loss(model(grid[index], captions[index]), captions[index]),
        Plan(updates=150, batch=8, peak=0.02), 8)  # fmt: skip
    assert teacher_forcing_loss(model(grid, captions), captions) < 0.1
    assert torch.equal(greedy(model, grid, 9).tokens, captions[:, 1:])


GRID, CAPTIONS = data()


@EVERY
@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (GRID[:, :, :-1], ValueError, r"image has shape \(5, 6, 3\); expected a grid \(N, 6, 4\): call encode"),
        (GRID[:, :-1], ValueError, r"image has shape \(5, 5, 4\); expected a grid \(N, 6, 4\)"),
        (GRID.flatten(1), ValueError, r"image has shape \(5, 24\)"),
        (GRID[0], ValueError, r"image has shape \(6, 4\)"),
        ((9 * GRID).long(), TypeError, "image is torch.int64; expected float"),
    ],
)
def test_bad_images_are_named(variant, image, error, message):
    model = build(variant)
    for call in (model.init_state, lambda grid: model(grid, CAPTIONS)):
        with pytest.raises(error, match=message):
            call(image)


@pytest.mark.parametrize("image", ["words", "cell", None])
def test_unknown_place_of_the_image_is_named(image):
    with pytest.raises(ValueError, match=rf"image is {image!r}; expected 'state' .* or 'input'"):
        ShowTellLSTM(V, image=image)


@pytest.mark.parametrize("captions, error, message", [
    (torch.ones(2, 5, dtype=torch.int64), ValueError, "for 1 images; expected .* one row an image"),
    (torch.ones(1, 1, dtype=torch.int64), ValueError, "T of at least 2"),
    (torch.full((1, 5), 40), ValueError, "ids from 40 to 40; expected 0 <= id < 27"),
    (torch.ones(1, 5), TypeError, "captions are torch.float32; expected torch.int64"),
])
def test_captions_must_fit_the_images(captions, error, message):
    for model in (ShowTellRNN(27), ShowTellLSTM(27), AttentionCaptioner(27)):
        with pytest.raises(error, match=message):
            model(torch.rand(1, 64, 48), captions)
