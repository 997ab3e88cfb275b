"""The explorers of hard attention: three ways to decode one captioner, and the cloud of gradient estimates."""

import random
import re

import ipywidgets as widgets
import pytest
import torch

from course_utils.captioners import AttentionCaptioner, ShowTellRNN
from course_utils.captioners.attention import hard, soft
from course_utils.decoding import greedy
from course_utils.encoders import GridEncoder
from course_utils.explorers import hard_attention
from course_utils.explorers.hard_attention import (
    BASELINES,
    constant_baseline,
    decode_three,
    estimates,
    reinforce_laboratory,
    score_gradients,
    soft_against_hard,
)
from course_utils.explorers.stepper import FIRST
from course_utils.scenes import place
from course_utils.vocabulary import course_vocabulary

WORDS, SCENE = course_vocabulary(), place(list(FIRST))
ALPHA, F = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([1.0, -1.0, 2.0])


@pytest.fixture(scope="module")
def parts():
    """An encoder and a captioner that knows the first sentence of SCENE by heart."""
    torch.manual_seed(0)
    encoder, model = GridEncoder(), AttentionCaptioner(len(WORDS), E=16, H=32, K=8)
    with torch.no_grad():
        grid = encoder(SCENE.images)
    ids = SCENE.reference_ids(WORDS)[0, :1]  # (1, T)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(grid, ids)[0], ids[0, 1:], ignore_index=0).backward()
        optimiser.step()
    return model, encoder


def choices(control):
    """Return every value that a control can take."""
    if isinstance(control, widgets.IntSlider):
        return list(range(control.min, control.max + 1))
    return list(control.options)


def sweep(explorer, start, allowed):
    for name, control in explorer.controls.items():
        explorer.set(**start)
        views = []
        for value in choices(control):
            control.value = value
            assert explorer.error is None, (name, value)
            view = explorer.view.value
            assert allowed in view or "<img" in view, (name, value)
            assert all("alt=" in image for image in re.findall("<img[^>]*>", view))
            views.append(view)
        assert len(set(views)) > 1, name


def test_soft_against_hard_sweeps(parts):
    explorer = soft_against_hard(*parts, WORDS)
    assert explorer.error is None and explorer.view.value.count("<img") == 3
    assert "a red circle above a blue square" in explorer.view.value
    sweep(explorer, explorer.state | {"step": 2}, "No scene: ")
    assert len(explorer.controls) == 10


def test_soft_against_hard_random_combinations(parts):
    explorer, draw = soft_against_hard(*parts, WORDS), random.Random(0)
    for _ in range(40):
        explorer.set(**{name: draw.choice(choices(control)) for name, control in explorer.controls.items()})
        assert explorer.error is None and "alert" not in explorer.view.value


def test_the_three_passes_are_those_of_the_decoder(parts):
    model, encoder = parts
    with torch.no_grad():
        grid = encoder(SCENE.images)
    tokens, alpha, weights = decode_three(model, grid, seed=3)
    for k, choose in enumerate((soft, hard)):
        model.choose = choose
        decoded = greedy(model, grid, trace=True)
        length = len(decoded.trace)
        assert WORDS.decode(tokens[k]) == WORDS.decode(decoded.tokens[0])
        torch.testing.assert_close(alpha[k, :length], torch.cat([step.state.alpha for step in decoded.trace]))
    model.choose = soft
    assert torch.equal(weights[0], alpha[0])
    assert torch.equal(weights[1].sum(-1), torch.ones(len(weights[1]))) and weights[1].amax() == 1
    assert torch.equal(weights[1].argmax(-1), alpha[1].argmax(-1))


def test_other_seeds_draw_other_places(parts):
    untrained = AttentionCaptioner(len(WORDS))  # its maps are flat
    with torch.no_grad():
        grid = parts[1](SCENE.images)
    places = [decode_three(untrained, grid, seed)[2][2, 0].argmax().item() for seed in (0, 1, 2, 0)]
    assert len(set(places)) > 1 and places[0] == places[3]


def test_soft_against_hard_says_when_a_sentence_has_ended(parts):
    explorer = soft_against_hard(*parts, WORDS)
    explorer.controls["step"].value = 8
    assert "(the sentence has ended)" in explorer.view.value


@pytest.mark.parametrize(
    ("model", "encoder", "objects", "error", "message"),
    [
        (ShowTellRNN(27), GridEncoder(), FIRST, TypeError, "model is a ShowTellRNN; expected an AttentionCaptioner"),
        (AttentionCaptioner(27), None, FIRST, TypeError, "encoder is a NoneType; expected a function of images"),
        (AttentionCaptioner(27), GridEncoder(), FIRST[:1], ValueError, "objects has 1 entries; expected two"),
    ],
)
def test_bad_arguments_are_named(model, encoder, objects, error, message):
    with pytest.raises(error, match=message):
        soft_against_hard(model, encoder, WORDS, objects=objects)


def test_laboratory_sweeps():
    explorer = reinforce_laboratory()
    assert explorer.error is None and "<img" in explorer.view.value
    sweep(explorer, explorer.state | {"samples": 4}, "No estimate: ")
    explorer.set(samples=1, baseline="leave one out")
    assert "at least 2 samples" in explorer.view.value and "<img" not in explorer.view.value
    explorer.set(samples=8, baseline="own mean")
    assert "never: the bias stays" in explorer.view.value


def test_laboratory_random_combinations():
    explorer, draw = reinforce_laboratory(), random.Random(0)
    for _ in range(60):
        explorer.set(**{name: draw.choice(choices(control)) for name, control in explorer.controls.items()})
        assert explorer.error is None and "nan" not in re.sub('src="[^"]*"', "", explorer.view.value)


def test_score_gradients_are_autograd():
    scores = ALPHA.log().requires_grad_()
    for s in range(3):
        slope = torch.autograd.grad(scores.log_softmax(0)[s], scores)[0]
        torch.testing.assert_close(score_gradients(ALPHA)[s], slope)


def test_estimates_are_unbiased_but_for_the_own_mean():
    exact = ALPHA * (F - ALPHA @ F)
    for baseline in BASELINES:
        drawn = estimates(ALPHA, F - 8, 4, baseline, seed=0, count=40_000)
        error = (drawn.var(0) / len(drawn)).sqrt()
        wanted = exact * 3 / 4 if baseline == "own mean" else exact  # S - 1 of S
        assert ((drawn.mean(0) - wanted).abs() < 5 * error + 1e-6).all(), baseline


def test_optimal_baseline_has_the_least_variance():
    def variance(b):
        g = (F - b).unsqueeze(1) * score_gradients(ALPHA)  # (L, L)
        return (ALPHA @ g.square().sum(1) - (ALPHA @ g).square().sum()).item()

    best = constant_baseline(ALPHA, F, "optimal")
    assert variance(best) < min(variance(best - 0.05), variance(best + 0.05), variance(0.0) - 0.1)
    assert constant_baseline(ALPHA, F, "E[f]") == pytest.approx(0.6) and constant_baseline(ALPHA, F, "none") == 0


def test_cloud_holds_its_dots_and_the_exact_gradient():
    drawn = hard_attention.draw_cloud(torch.tensor([[-1.0, 0.5]]), 2)
    assert drawn.shape == (3, 280, 280) and drawn.dtype == torch.uint8
    assert (drawn[:, 140, 210 - 12] == 0).all(), "the ring around (1, 0)"
    assert (drawn[0, 105, 70], drawn[1, 105, 70]) == (213, 94), "the cross at the mean"


def test_laboratory_rejects_what_is_no_distribution():
    with pytest.raises(ValueError, match="alpha .* sums to 2.000"):
        reinforce_laboratory(torch.ones(2), torch.ones(2))
