"""Show, Attend and Tell: step equals forward with every option, the equations, what a glance keeps, bad input."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.captioners import AttentionCaptioner, Captioner, reorder
from course_utils.captioners.attention import Glance, Pass, hard, soft
from course_utils.decoding import beam_search, greedy, score
from course_utils.encoders import GridEncoder
from course_utils.training import Plan, fit, teacher_forcing_loss
from course_utils.vocabulary import END, START, course_vocabulary

N, T, V, L, D, E, H, K = 5, 7, 11, 9, 4, 8, 10, 6
SIZES = {"V": V, "L": L, "D": D, "E": E, "H": H, "K": K}
OPTIONS = ("places", "word_query", "gate", "sentinel")
COMBINATIONS = [{"scoring": scoring, **dict(zip(OPTIONS, on))}
                for scoring in ("dot", "additive") for on in itertools.product((False, True), repeat=4)]  # fmt: skip
NAMES = ["+".join([options["scoring"], *(name for name in OPTIONS if options[name])]) for options in COMBINATIONS]
EVERY = pytest.mark.parametrize("options", COMBINATIONS, ids=NAMES)
FULL = {"scoring": "additive", "gate": True, "sentinel": True}


def build(seed: int = 0, **options) -> AttentionCaptioner:
    torch.manual_seed(seed)
    return AttentionCaptioner(**(SIZES | options))


def lively(n: int, **options) -> tuple[AttentionCaptioner, torch.Tensor]:
    """A model and n images whose captions differ in their words and lengths."""
    model = build(2, **options)
    with torch.no_grad():
        for weight in (model.W_x, model.W_zh, model.W_k.weight):
            weight.mul_(3)
        model.score.weight.mul_(8), model.score.bias[END].add_(1)
    return model, 3 * torch.randn(n, L, D, generator=torch.Generator().manual_seed(0))


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    captions = torch.randint(3, V, (N, T), generator=generator)
    captions[:, 0] = START
    return torch.rand(N, L, D, generator=generator), captions


def stepped(model: AttentionCaptioner, image: torch.Tensor, captions: torch.Tensor) -> tuple[torch.Tensor, list]:
    """The log-probabilities (N, T-1, V) and the states of `step`, word by word."""
    state, scores, states = model.init_state(image), [], []
    for words in captions[:, :-1].unbind(1):
        log_probs, state = model.step(words, state)
        scores.append(log_probs)
        states.append(state)
    return torch.stack(scores, 1), states


# One model in three ways


@EVERY
@pytest.mark.parametrize("choose", [soft, hard])
def test_step_repeated_equals_unroll_and_forward(options, choose):
    image, captions = data()
    model = build(choose=choose, **options)
    scores, states = stepped(model, image, captions)
    glances = model.unroll(image, captions)
    assert isinstance(glances, Pass) and glances.logits.shape == (N, T - 1, V)
    torch.testing.assert_close(glances.logits.log_softmax(-1), scores, rtol=1e-5, atol=1e-5)
    assert torch.equal(model(image, captions), glances.logits)
    torch.testing.assert_close(Captioner.forward(model, image, captions), scores)
    for name in ("alpha", "weights", "beta"):
        kept = torch.stack([getattr(state, name) for state in states], 1)
        torch.testing.assert_close(getattr(glances, name), kept, rtol=1e-5, atol=1e-5)


@EVERY
def test_scores_read_the_image_and_only_the_past(options):
    image, captions = data()
    model = build(**options)
    scores = model(image, captions)
    assert not torch.allclose(model(image.flip(0), captions), scores)
    later = captions.clone()
    later[:, 4] = (later[:, 4] - 2) % (V - 3) + 3
    changed = (model(image, later) - scores).abs().amax((0, 2)) > 0  # (T-1,)
    assert changed.tolist() == [t >= 4 for t in range(T - 1)]


@EVERY
def test_a_glance_is_a_distribution_over_its_places(options):
    image, captions = data()
    model = build(**options)
    glances = model.unroll(image, captions)
    M = L + options["sentinel"]
    assert glances.alpha.shape == glances.weights.shape == (N, T - 1, M) and glances.beta.shape == (N, T - 1)
    torch.testing.assert_close(glances.alpha.sum(-1), torch.ones(N, T - 1))
    assert glances.alpha.min() > 0 and torch.equal(glances.alpha, glances.weights)
    if options["gate"]:
        assert 0 < glances.beta.min() and glances.beta.max() < 1 and glances.beta.unique().numel() > N
    else:
        assert torch.equal(glances.beta, torch.ones(N, T - 1))


@EVERY
def test_the_recurrence_equals_torch_on_word_and_context(options):
    """z = beta * sum_i w_i v_i from the glances kept; an nn.LSTMCell reads [x, z]."""
    image, captions = data()
    model = build(**options)
    state, x = model.init_state(image), model.embed(captions)
    cell = nn.LSTMCell(E + state.values.shape[-1], H)
    i, f, o, g = model.W_zh.chunk(4, 1)
    W_zh, W_x = torch.cat([i, f, g, o], 1), torch.cat([model.W_x.chunk(4, 1)[k] for k in (0, 1, 3, 2)], 1)
    with torch.no_grad():
        cell.weight_ih.copy_(torch.cat([W_x, W_zh[:-H]]).T)
        cell.weight_hh.copy_(W_zh[-H:].T)
        cell.bias_ih.zero_(), cell.bias_hh.zero_()
    for t in range(T - 1):
        h, c = state.h, state.c
        s = torch.empty(N, 0, state.values.shape[-1])
        if options["sentinel"]:
            s = model.rest_value(model.rest(torch.cat([x[:, t], h], -1)).sigmoid() * c.tanh())[:, None]
        _, state = model.step(captions[:, t], state)
        z = state.beta[:, None] * (state.weights[..., None] * torch.cat([state.values, s], 1)).sum(1)
        for have, want in zip((state.h, state.c), cell(torch.cat([x[:, t], z], -1), (h, c))):
            torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)


# The glance


@EVERY
def test_the_equations_of_a_glance(options):
    image, captions = data()
    model = build(1, **options)
    _, states = stepped(model, image, captions)
    before, after, x = states[1], states[2], model.embed(captions[:, 2])
    h, asked = before.h, torch.cat([x, before.h], -1)
    annotations = before.values
    if options["sentinel"]:
        gate = torch.sigmoid(asked @ model.rest.weight.T + model.rest.bias)
        s = (gate * before.c.tanh()) @ model.rest_value.weight.T + model.rest_value.bias
        annotations = torch.cat([annotations, s[:, None]], 1)
    q = (asked if options["word_query"] else h) @ model.W_q
    keys = annotations @ model.W_k.weight.T + model.W_k.bias
    if options["scoring"] == "dot":
        e = (keys * q[:, None]).sum(-1) / math.sqrt(K)
    else:
        e = (torch.tanh(keys + q[:, None]) * model.w_e).sum(-1)
    torch.testing.assert_close(after.alpha, e.softmax(-1), rtol=1e-4, atol=1e-6)
    if options["gate"]:
        beta = torch.sigmoid((h * model.gate.weight).sum(-1) + model.gate.bias)
        torch.testing.assert_close(after.beta, beta)


def test_the_start():
    image, _ = data()
    model = build(**FULL)
    state = model.init_state(image)
    assert isinstance(state, Glance)
    side = torch.linspace(-1, 1, 3)
    torch.testing.assert_close(state.values[:, :, :D], image)
    torch.testing.assert_close(state.values[0, :, D], side.repeat_interleave(3))
    torch.testing.assert_close(state.values[0, :, D + 1], side.repeat(3))
    torch.testing.assert_close(torch.cat([state.h, state.c], 1), model.start(state.values.mean(1)).tanh())
    assert state.alpha.shape == (N, L + 1) and state.alpha.abs().max() == 0  # nothing was looked at yet
    assert build(places=False).init_state(image).values.shape == (N, L, D)


def test_hard_weights_are_one_hot_at_the_peak():
    image, captions = data()
    glances = build(choose=hard, sentinel=True).unroll(image, captions)
    assert torch.equal(glances.weights, F.one_hot(glances.alpha.argmax(-1), L + 1).float())
    assert 0 < glances.alpha.min() and glances.alpha.max() < 1  # what is kept as alpha is the distribution
    alpha = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    assert hard(alpha).tolist() == [[0, 1, 0], [1, 0, 0]] and soft(alpha) is alpha


def test_choose_of_one_pass_goes_before_the_models_own():
    image, captions = data()
    softly, hardly = build(), build(choose=hard)
    torch.testing.assert_close(softly.unroll(image, captions, hard), hardly.unroll(image, captions))
    torch.testing.assert_close(hardly.unroll(image, captions, soft).logits, softly(image, captions))
    assert not torch.allclose(softly(image, captions), hardly(image, captions), atol=1e-3)


def test_the_query_reads_the_word_only_when_asked_to():
    """The glance at the first step: the state is that of the image, so only the query could know the word."""
    image, _ = data()
    for word_query in (False, True):
        model = build(word_query=word_query)
        one, other = (model.step(torch.full((N,), word), model.init_state(image))[1].alpha for word in (4, 5))
        assert torch.allclose(one, other, atol=1e-7) != word_query
        assert model.W_q.shape == (H + E * word_query, K)


def test_a_gate_that_is_shut_hides_the_image():
    image, captions = data()
    model = build(gate=True)
    with torch.no_grad():
        model.gate.weight.zero_(), model.gate.bias.fill_(-100.0)
        model.start.weight.zero_(), model.start.bias.zero_()
    torch.testing.assert_close(model(image, captions), model(image.flip(0), captions))
    with torch.no_grad():
        model.gate.bias.fill_(100.0)
    assert not torch.allclose(model(image, captions), model(image.flip(0), captions), atol=1e-3)


def test_all_weight_on_the_sentinel_hides_the_image():
    """The sentinel's share and the shares of the L locations sum to 1: resting takes the eye off the image."""
    image, captions = data()
    model = build(sentinel=True, word_query=False)

    def rest(alpha):
        return F.one_hot(torch.full((len(alpha),), L), L + 1).float()

    with torch.no_grad():
        model.start.weight.zero_(), model.start.bias.zero_()
    glances = model.unroll(image, captions, rest)
    torch.testing.assert_close(glances.logits, model.unroll(image.flip(0), captions, rest).logits)
    beta, seen = glances.alpha[..., -1], glances.alpha[..., :-1].sum(-1)
    torch.testing.assert_close(beta + seen, torch.ones(N, T - 1))
    assert beta.min() > 0 and seen.min() > 0
    glances.logits.sum().backward()
    assert model.rest.weight.grad.abs().sum() > 0 and model.rest_value.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("options", [{}, FULL], ids=["dot", "full"])
def test_moved_locations_move_the_map_unless_places_are_known(options):
    image, captions = data()
    order = torch.randperm(L, generator=torch.Generator().manual_seed(3))
    model = build(places=False, **options)
    glances, moved = model.unroll(image, captions), model.unroll(image[:, order], captions)
    torch.testing.assert_close(moved.logits, glances.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moved.alpha[..., :L], glances.alpha[..., order], rtol=1e-4, atol=1e-6)
    model = build(**options)
    assert not torch.allclose(model(image[:, order], captions), model(image, captions), atol=1e-3)


# Decoding


@pytest.mark.parametrize("options", [{"choose": soft}, {"choose": hard}, FULL], ids=["soft", "hard", "full"])
def test_the_trace_of_greedy_is_the_pass_that_wrote_the_caption(options):
    model, image = lively(40, **options)
    decoded = greedy(model, image, 8, trace=True)
    captions = torch.cat([torch.full((40, 1), START), decoded.tokens], 1)
    glances = model.unroll(image, captions)
    assert len(decoded.tokens.ne(0).sum(1).unique()) > 2  # captions of several lengths
    for t, choice in enumerate(decoded.trace):
        said = decoded.tokens[:, t] != 0
        torch.testing.assert_close(choice.state.alpha[said], glances.alpha[said, t], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(choice.state.weights[said], glances.weights[said, t], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(decoded.log_probs, score(model, image, decoded.tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"choose": hard}, FULL], ids=["soft", "hard", "full"])
def test_state_is_reordered(options):
    image, captions = data()
    model = build(**options)
    _, states = stepped(model, image, captions[:, :3])
    index = torch.tensor([3, 0, 0])
    for before in (model.init_state(image), states[-1]):
        assert all(len(part) == N for part in before)
        log_p, after = model.step(captions[:, 1], before)
        picked, picked_after = model.step(captions[index, 1], reorder(before, index))
        torch.testing.assert_close(picked, log_p[index])
        torch.testing.assert_close(picked_after.alpha, after.alpha[index])
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(N))


@pytest.mark.parametrize("options", [{}, {"choose": hard}, FULL], ids=["soft", "hard", "full"])
def test_beam_search_ranks_by_the_models_own_probability(options):
    model, image = lively(12, **options)
    best = greedy(model, image, 6)
    assert torch.equal(beam_search(model, image, 1, 6).tokens, best.tokens)
    found = beam_search(model, image, 4, 6, n_best=4)
    torch.testing.assert_close(found.log_probs, score(model, image, found.tokens), rtol=1e-4, atol=1e-4)
    assert (found.log_probs[:, 0] >= best.log_probs - 1e-5).all()
    assert len(found.tokens.ne(0).sum(2).unique()) > 2 and not torch.equal(found.tokens[:, 0], best.tokens)
    alone = beam_search(model, image[2:3], 4, 6, n_best=4)
    assert torch.equal(alone.tokens[0], found.tokens[2])


# Learning


@EVERY
def test_gradients_reach_every_weight_the_grid_and_its_places(options):
    image, captions = data()
    model, image = build(**options), image.requires_grad_()
    model.places.requires_grad_()
    teacher_forcing_loss(model(image, captions), captions).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or p.grad.abs().max() == 0] == []
    assert (image.grad.abs().amax(-1) > 0).all()
    if options["places"]:
        assert (model.places.grad.abs().amax(1) > 0).all()
    assert "places" not in dict(model.named_parameters()) and "places" in model.state_dict()


def test_gradients_reach_the_encoder():
    torch.manual_seed(0)
    encoder, model = GridEncoder(12), AttentionCaptioner(V, L=9)
    _, captions = data()
    teacher_forcing_loss(model(encoder(torch.rand(N, 3, 12, 12)), captions), captions).backward()
    assert all(p.grad.abs().max() > 0 for p in encoder.convolutions.parameters())


def test_without_a_choice_no_gradient_teaches_the_hard_query():
    image, captions = data()
    model = build(choose=hard)
    teacher_forcing_loss(model(image, captions), captions).backward()
    assert model.W_q.grad is None or model.W_q.grad.abs().max() == 0
    assert model.W_zh.grad.abs().max() > 0


@EVERY
def test_initial_loss_is_near_ln_V(options):
    torch.manual_seed(0)
    model = AttentionCaptioner(27, **options)
    captions = torch.cat([torch.full((64, 1), START), torch.randint(2, 27, (64, 9))], 1)
    image = 0.3 * torch.rand(64, 64, 48)
    with torch.no_grad():
        assert -0.1 < teacher_forcing_loss(model(image, captions), captions).item() - math.log(27) < 0.2
        model.score.weight.zero_(), model.score.bias.zero_()
        assert abs(teacher_forcing_loss(model(image, captions), captions).item() - math.log(27)) < 1e-5


@pytest.mark.parametrize("options", [{}, FULL], ids=["dot", "full"])
def test_overfits_eight_captions_and_says_them(options):
    words = course_vocabulary()
    captions = words.encode_batch([f"a {c} {s} above a {d} {s}" for c, d, s in zip(
        "red green blue yellow red green blue yellow".split(), "blue red yellow green green blue red red".split(),
        "circle square triangle circle triangle circle square square".split())], 10)  # fmt: skip
    grid = torch.rand(8, L, D, generator=torch.Generator().manual_seed(1))
    model = build(V=len(words), H=48, E=16, K=8, **options)
    fit(model, lambda index, _: teacher_forcing_loss(model(grid[index], captions[index]), captions[index]),
        Plan(updates=150, batch=8, peak=0.03), 8)  # fmt: skip
    assert teacher_forcing_loss(model(grid, captions), captions) < 0.1
    assert torch.equal(greedy(model, grid, 9).tokens, captions[:, 1:])


def test_float64_and_a_new_copy():
    image, captions = data()
    model = build(**FULL)
    copy = build(5, **FULL)
    assert copy.load_state_dict(model.state_dict()) and torch.equal(copy(image, captions), model(image, captions))
    double = copy.double()(image.double(), captions)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), model(image, captions), rtol=1e-4, atol=1e-5)


# Bad input

GRID, CAPTIONS = data()


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (GRID[:, :, :-1], ValueError, r"image has shape \(5, 9, 3\); expected a grid \(N, 9, 4\): call encode"),
        (GRID[:, :-1], ValueError, r"image has shape \(5, 8, 4\); expected a grid \(N, 9, 4\)"),
        (GRID.flatten(1), ValueError, r"image has shape \(5, 36\)"),
        (GRID[0], ValueError, r"image has shape \(9, 4\)"),
        (torch.cat([GRID, GRID[..., :2]], -1), ValueError, r"image has shape \(5, 9, 6\)"),  # places appended already
        ((9 * GRID).long(), TypeError, "image is torch.int64; expected float"),
    ],
)
@pytest.mark.parametrize("options", [{}, FULL], ids=["dot", "full"])
def test_bad_images_are_named(options, image, error, message):
    model = build(**options)
    for call in (model.init_state, lambda grid: model(grid, CAPTIONS), lambda grid: greedy(model, grid)):
        with pytest.raises(error, match=message):
            call(image)


@pytest.mark.parametrize("scoring", ["cosine", "Dot", None])
def test_unknown_scoring_is_named(scoring):
    with pytest.raises(ValueError, match=rf"scoring is {scoring!r}; expected 'dot' or 'additive'"):
        AttentionCaptioner(V, scoring=scoring)


def test_places_need_a_square_grid():
    with pytest.raises(ValueError, match="L is 6; expected a square number of locations"):
        AttentionCaptioner(V, L=6)
    assert AttentionCaptioner(V, L=6, places=False).places.shape == (6, 0)


def test_unknown_options_are_named():
    with pytest.raises(TypeError, match="unexpected keyword argument 'attention'"):
        AttentionCaptioner(V, attention="hard")
