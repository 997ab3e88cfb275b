"""Attention on raw tensors: equal to torch's, to hand-worked cases, and to what is known at its two extremes."""

import math

import pytest
import torch
from torch.nn import functional as F

from course_utils.attention import (
    additive_scores,
    attend,
    coordinates,
    dot_product_scores,
    doubly_stochastic_penalty,
)

N, L, D, K = 4, 9, 6, 5


def draw(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


Q, KEYS, VALUES, W = draw(N, K), draw(N, L, K, seed=1), draw(N, L, D, seed=2), draw(K, seed=3)
SCORES = {"dot": lambda q, k: dot_product_scores(q, k), "additive": lambda q, k: additive_scores(q, k, W)}
EVERY = pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)


# Scores


def test_dot_product_attention_equals_torch():
    z, alpha = attend(dot_product_scores(Q, KEYS), VALUES)
    assert z.shape == (N, D) and alpha.shape == (N, L)
    expected = F.scaled_dot_product_attention(Q[:, None], KEYS, VALUES)  # one query: (N, 1, D)
    torch.testing.assert_close(z, expected[:, 0])
    unscaled = attend(dot_product_scores(Q, KEYS) * K ** 0.5, VALUES)[0]
    assert (unscaled - z).abs().max() > 0.1  # these scores do not saturate: a missing 1 / sqrt(K) shows


def test_dot_product_by_hand():
    q, k = torch.tensor([[1.0, 2.0, 0.0, -1.0]]), torch.tensor([[[3.0, 1.0, 5.0, 1.0], [0.0, -1.0, 7.0, 2.0]]])
    assert dot_product_scores(q, k).tolist() == [[(3 + 2 - 1) / 2, (-2 - 2) / 2]]


def test_additive_scores_by_hand():
    """tanh(ln 2) = 0.6, tanh(ln 3) = 0.8, tanh(0) = 0."""
    q, k = torch.tensor([[math.log(2), 0.0]]), torch.tensor([[[0.0, 0.0], [-math.log(2), math.log(3)]]])
    e = additive_scores(q, k, torch.tensor([10.0, 5.0]))
    torch.testing.assert_close(e, torch.tensor([[10 * 0.6, 5 * 0.8]]))
    alpha = attend(e, torch.zeros(1, 2, 1))[1]
    torch.testing.assert_close(alpha[0, 0].item(), 1 / (1 + math.exp(-2)))


def test_additive_scores_are_a_sum_written_out():
    e = additive_scores(Q, KEYS, W)
    for n in range(N):
        for i in range(L):
            plain = sum(W[k] * math.tanh(Q[n, k] + KEYS[n, i, k]) for k in range(K))
            assert e[n, i].item() == pytest.approx(plain.item())


# Weights and context


@EVERY
def test_weights_sum_to_1_and_the_context_lies_in_the_hull(scores):
    z, alpha = attend(scores(Q, KEYS), VALUES)
    torch.testing.assert_close(alpha.sum(1), torch.ones(N, dtype=torch.float64))
    assert alpha.min() > 0
    low, high = VALUES.aminmax(dim=1)
    assert (z > low).all() and (z < high).all()
    for n in range(N):
        torch.testing.assert_close(z[n], sum(alpha[n, i] * VALUES[n, i] for i in range(L)))


def test_equal_scores_give_the_mean_annotation():
    z, alpha = attend(torch.full((N, L), 3.0).double(), VALUES)
    torch.testing.assert_close(alpha, torch.full_like(alpha, 1 / L))
    torch.testing.assert_close(z, VALUES.mean(1))


def test_one_overwhelming_score_gives_that_annotation():
    where = torch.tensor([0, 8, 3, 5])
    z, alpha = attend(1e4 * F.one_hot(where, L).double(), VALUES)
    assert torch.equal(alpha, F.one_hot(where, L).double())
    assert torch.equal(z, VALUES[torch.arange(N), where])


@EVERY
def test_equal_annotations_are_the_context_whatever_the_weights(scores):
    same = VALUES[:, :1].expand(-1, L, -1)
    torch.testing.assert_close(attend(scores(Q, KEYS), same)[0], VALUES[:, 0])


@EVERY
def test_permuted_locations_permute_the_weights_and_leave_the_context(scores):
    order = torch.randperm(L, generator=torch.Generator().manual_seed(4))
    z, alpha = attend(scores(Q, KEYS), VALUES)
    z_permuted, alpha_permuted = attend(scores(Q, KEYS[:, order]), VALUES[:, order])
    torch.testing.assert_close(alpha_permuted, alpha[:, order])
    torch.testing.assert_close(z_permuted, z)
    assert not torch.allclose(alpha_permuted, alpha)


@EVERY
def test_rows_do_not_see_each_other(scores):
    alone = [attend(scores(Q[n : n + 1], KEYS[n : n + 1]), VALUES[n : n + 1])[0] for n in range(N)]
    torch.testing.assert_close(attend(scores(Q, KEYS), VALUES)[0], torch.cat(alone))


def test_entropy_falls_from_log_L_to_0_with_sharpness():
    e, entropies = dot_product_scores(Q, KEYS), []
    for beta in (0, 0.1, 0.5, 1, 2, 5, 20, 1000):
        alpha = attend(beta * e, VALUES)[1]
        entropies.append(torch.special.entr(alpha).sum(1))  # (N,)
    stack = torch.stack(entropies)
    torch.testing.assert_close(stack[0], torch.full((N,), math.log(L)).double())
    assert (stack.diff(dim=0) < 0).all()
    assert stack[-1].max() < 1e-6


# Coordinates


def test_coordinates_run_row_by_row():
    assert coordinates(4).tolist() == [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    place = coordinates(64)
    assert place.shape == (64, 2) and place.dtype == torch.float32
    torch.testing.assert_close(place[8 * 2 + 5], torch.tensor([-1 + 2 * 2 / 7, -1 + 5 * 2 / 7]))
    torch.testing.assert_close(place.mean(0), torch.zeros(2))


@pytest.mark.parametrize("L", [0, 1, 2, 8, 63])
def test_a_grid_that_is_no_square_is_named(L):
    with pytest.raises(ValueError, match=f"L is {L}; expected a square number of locations, at least 4"):
        coordinates(L)


# Doubly stochastic penalty


def uniform(T: int, L: int, n: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((n, T, L), 1 / L, dtype=torch.float64), torch.ones(n, T, dtype=torch.bool)


@pytest.mark.parametrize(("T", "L", "mean", "total"), [
    (9, 16, 0.1914, 3.0625), (12, 196, 0.8813, 172.73), (20, 49, 0.3503, 17.16), (16, 16, 0, 0)])  # fmt: skip
def test_uniform_coverage_is_the_minimum_of_target_one(T, L, mean, total):
    alpha, spoken = uniform(T, L)
    least = doubly_stochastic_penalty(alpha, spoken).item()
    assert least == pytest.approx(mean, abs=5e-5) and least * L == pytest.approx(total, abs=5e-3)
    for seed in range(5):
        other = (2 * draw(2, T, L, seed=seed)).softmax(-1)
        assert doubly_stochastic_penalty(other, spoken).item() > least + 1e-6
    assert doubly_stochastic_penalty(alpha, spoken, "share").item() == pytest.approx(0, abs=1e-12)


def test_minimum_is_found_by_descent():
    """Nothing below (1 - T/L)^2 can be reached, and the softmax does reach it."""
    e = draw(1, 9, 16).requires_grad_()
    optimiser, spoken = torch.optim.Adam([e], lr=0.1), torch.ones(1, 9, dtype=torch.bool)
    for _ in range(200):
        optimiser.zero_grad()
        penalty = doubly_stochastic_penalty(e.softmax(-1), spoken)
        penalty.backward()
        optimiser.step()
    assert penalty.item() == pytest.approx((1 - 9 / 16) ** 2, abs=1e-4)


def test_penalty_by_hand():
    alpha = torch.tensor([[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0]], [[0, 0, 1.0, 0], [0.25, 0.25, 0.25, 0.25]]])
    both = torch.ones(2, 2, dtype=torch.bool)
    # coverage 1.5, 0.5, 0, 0 and 0.25, 0.25, 1.25, 0.25
    one = (0.25 + 0.25 + 1 + 1 + 3 * 0.5625 + 0.0625) / 8
    assert doubly_stochastic_penalty(alpha, both, "one").item() == pytest.approx(one)
    share = (1 + 0 + 0.25 + 0.25 + 3 * 0.0625 + 0.5625) / 8  # target 2 / 4
    assert doubly_stochastic_penalty(alpha, both, "share").item() == pytest.approx(share)
    short = torch.tensor([[True, True], [True, False]])  # the second caption has one step: 0, 0, 1, 0; target 1 / 4
    share = (1 + 0 + 0.25 + 0.25 + 3 * 0.0625 + 0.5625) / 8
    assert doubly_stochastic_penalty(alpha, short, "share").item() == pytest.approx(share)
    assert doubly_stochastic_penalty(alpha, short, "one").item() == pytest.approx((2.5 + 3) / 8)


@pytest.mark.parametrize("target", ["one", "share"])
def test_what_is_looked_at_behind_the_end_does_not_count(target):
    spoken = torch.arange(7) < torch.tensor([7, 4, 5])[:, None]  # (3, 7)
    alpha = draw(3, 7, 9).softmax(-1).requires_grad_()
    penalty = doubly_stochastic_penalty(alpha, spoken, target)
    other = torch.where(spoken.unsqueeze(-1), alpha, draw(3, 7, 9, seed=5).softmax(-1))
    assert doubly_stochastic_penalty(other, spoken, target).item() == pytest.approx(penalty.item(), rel=1e-12)
    padded = torch.cat([alpha, torch.full((3, 4, 9), 1 / 9).double()], 1), F.pad(spoken, (0, 4))
    assert doubly_stochastic_penalty(*padded, target).item() == pytest.approx(penalty.item(), rel=1e-12)
    assert doubly_stochastic_penalty(alpha, torch.ones_like(spoken), target).item() != pytest.approx(penalty.item())
    alone = [doubly_stochastic_penalty(alpha[i : i + 1, :n], spoken[i : i + 1, :n], target)
             for i, n in enumerate((7, 4, 5))]  # fmt: skip
    assert torch.stack(alone).mean().item() == pytest.approx(penalty.item())  # mean over the batch, none longer
    penalty.backward()
    assert (alpha.grad.abs().amax(-1) > 0).equal(spoken)


def test_an_unknown_target_is_named():
    with pytest.raises(ValueError, match="target is 'half'; expected 'one' or 'share'"):
        doubly_stochastic_penalty(*uniform(2, 4), "half")
