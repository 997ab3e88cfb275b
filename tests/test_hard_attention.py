"""Hard attention: every estimator against the exact gradient, by enumeration of all places on a tiny model."""

import itertools
import math

import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from course_utils import hard_attention
from course_utils.captioners import AttentionCaptioner
from course_utils.captioners.attention import Pass, hard, soft
from course_utils.hard_attention import (
    ESTIMATORS,
    hard_loss,
    leave_one_out,
    moving_average,
    returns,
    sampled,
    score_function_terms,
    straight_through,
    top,
    word_log_probs,
)
from course_utils.studies.hard_attention import gradient_variance
from course_utils.training import Plan, fit, teacher_forcing_loss

L, D, V = 4, 3, 5
CAPTIONS = torch.tensor([[1, 3, 4, 2], [1, 4, 2, 0]])  # <start> w w <end>; the second has a <pad>
IMAGE = 2 * torch.randn(2, L, D, generator=torch.Generator().manual_seed(0)).double()
BOUND = {"reinforce": 1.0, "entropy": 0.0, "mix": 0.0}  # the gradient of the bound and nothing else


def build(baseline: float = 0.0, **options) -> AttentionCaptioner:
    """A captioner whose places matter: what is seen changes the probability of the words."""
    torch.manual_seed(3)
    model = AttentionCaptioner(V, L=L, D=D, E=3, H=4, K=3, **options).double()
    model.register_buffer("baseline", torch.full((3,), baseline).double())
    with torch.no_grad():
        model.score.weight.mul_(4), model.W_zh.mul_(1.5)
    return model


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gradient(model: AttentionCaptioner, loss: torch.Tensor) -> torch.Tensor:
    """The gradient (P,) at all weights, side by side."""
    parts = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    parts = [torch.zeros_like(p) if g is None else g for g, p in zip(parts, model.parameters())]
    return torch.cat([part.flatten() for part in parts])


def rows_of(model: AttentionCaptioner, prefix: str) -> torch.Tensor:
    """Which entries of `gradient` belong to the weights of this name, (P,) bool."""
    return torch.cat([torch.full((p.numel(),), name.startswith(prefix)) for name, p in model.named_parameters()])


def forced(places: torch.Tensor):
    """choose(alpha) that looks at places (N, T) int64, step by step."""
    steps = iter(places.unbind(1))
    return lambda alpha: F.one_hot(next(steps), alpha.shape[-1]).to(alpha.dtype)


def all_places(steps: int = 3) -> torch.Tensor:
    return torch.tensor(list(itertools.product(range(L), repeat=steps)))  # (L^T, T)


def enumerated(model: AttentionCaptioner, n: int, captions=CAPTIONS) -> tuple[torch.Tensor, torch.Tensor]:
    """log p(places) and log p(caption n | places), (L^T,) each, of all sequences of places."""
    places = all_places(captions.shape[1] - 1)
    repeated = captions[n : n + 1].expand(len(places), -1)
    glances = model.unroll(IMAGE[n : n + 1].expand(len(places), -1, -1), repeated, forced(places))
    log_s = glances.alpha.gather(-1, places.unsqueeze(-1)).squeeze(-1).log().sum(1)
    return log_s, word_log_probs(glances.logits, repeated)[0].sum(1)


def bound_loss(model: AttentionCaptioner, rows=(0, 1), captions=CAPTIONS) -> torch.Tensor:
    """-sum_s p(s) log p(caption | s) per word: what `hard_loss` estimates the gradient of, exactly."""
    parts = [enumerated(model, n, captions) for n in rows]
    return -sum((log_s.exp() * log_p).sum() for log_s, log_p in parts) / (captions[list(rows), 1:] != 0).sum()


def estimates(monkeypatch, model: AttentionCaptioner, n: int, samples: int = 1, captions=CAPTIONS, **options):
    """The probability (R,) and the gradient (R, P) of hard_loss for every draw it could make for caption n."""
    places, baseline, found = all_places(captions.shape[1] - 1), model.baseline, []
    p = enumerated(model, n, captions)[0].exp().detach()
    draws = list(itertools.product(range(len(places)), repeat=samples))
    estimator = "score function" if samples == 1 else "leave one out"
    for draw in draws:
        monkeypatch.setattr(hard_attention, "sampled", lambda generator, mix, draw=draw: forced(places[list(draw)]))
        model.baseline = baseline
        loss = hard_loss(model, IMAGE[n : n + 1], captions[n : n + 1], rng(), estimator, samples=samples,
                         **(BOUND | options))  # fmt: skip
        found.append(gradient(model, loss))
    model.baseline = baseline
    return torch.stack([p[list(draw)].prod() for draw in draws]), torch.stack(found)


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool((a - b).abs().max() < 1e-10 * (1 + b.abs().max()))


# The exact gradient


def test_enumeration_is_complete_and_the_bound_is_below_the_likelihood():
    model = build()
    for n in range(2):
        log_s, log_p = enumerated(model, n)
        assert log_s.exp().sum().item() == pytest.approx(1)
        assert (log_s.exp() * log_p).sum() < (log_s + log_p).logsumexp(0)  # Jensen


def test_the_bounds_gradient_is_not_that_of_the_marginal_likelihood():
    model = build()
    words = (CAPTIONS[:, 1:] != 0).sum()
    marginal = -sum((log_s + log_p).logsumexp(0) for log_s, log_p in (enumerated(model, n) for n in range(2))) / words
    exact, other = gradient(model, bound_loss(model)), gradient(model, marginal)
    assert (exact - other).norm() > 0.05 * exact.norm()
    softly = gradient(model, teacher_forcing_loss(model.unroll(IMAGE, CAPTIONS, soft).logits, CAPTIONS))
    assert (exact - softly).norm() > 0.05 * exact.norm()


# Estimators in expectation: every draw, weighted with its probability


@pytest.mark.parametrize("baseline", [0.0, -2.5, 40.0])
@pytest.mark.parametrize("n", [0, 1], ids=["full caption", "padded caption"])
def test_score_function_is_unbiased_with_any_constant_baseline(monkeypatch, n, baseline):
    model = build(baseline)
    p, g = estimates(monkeypatch, model, n)
    assert p.sum().item() == pytest.approx(1)
    assert close(p @ g, gradient(model, bound_loss(model, [n])))


def test_leave_one_out_is_unbiased(monkeypatch):
    model, captions = build(), CAPTIONS[:, 1:].clone()  # two glances: 16 sequences, 256 pairs
    captions[:, 0] = 1
    for n in range(2):
        p, g = estimates(monkeypatch, model, n, samples=2, captions=captions)
        assert len(p) == 256 and p.sum().item() == pytest.approx(1)
        assert close(p @ g, gradient(model, bound_loss(model, [n], captions)))


def test_a_baseline_lowers_the_variance(monkeypatch):
    model = build()
    for n in range(2):
        log_s, _ = enumerated(model, n)
        glances = model.unroll(IMAGE[n : n + 1].expand(64, -1, -1), CAPTIONS[n : n + 1].expand(64, -1),
                               forced(all_places()))  # fmt: skip
        log_p, _ = word_log_probs(glances.logits, CAPTIONS[n : n + 1].expand(64, -1))
        mean_reward = log_s.exp() @ returns(log_p)  # (T,)
        variance = {}
        for name, baseline in {"none": 0 * mean_reward, "mean reward": mean_reward, "bad": -mean_reward}.items():
            model.baseline = baseline.detach()
            p, g = estimates(monkeypatch, model, n)
            variance[name] = (p @ (g - p @ g).square()).sum().item()
        assert variance["mean reward"] < 0.5 * variance["none"] < 0.5 * variance["bad"]


def test_without_its_term_or_with_less_of_it_the_gradient_is_biased(monkeypatch):
    model = build()
    exact = gradient(model, bound_loss(model, [0]))
    for weight, least in ((0.0, 0.2), (0.3, 0.1)):
        p, g = estimates(monkeypatch, model, 0, reinforce=weight)
        assert (p @ g - exact).norm() > least * exact.norm()


# Estimators by drawing: unbiased within the standard error, or their bias shown


def drawn(model: AttentionCaptioner, estimator: str, calls: int = 150, copies: int = 24, **options) -> torch.Tensor:
    """Independent estimates (calls, P), each the mean over copies of the two captions."""
    image, captions, found = IMAGE.repeat(copies, 1, 1), CAPTIONS.repeat(copies, 1), []
    baseline, generator = model.baseline, rng(1)
    for _ in range(calls):
        model.baseline = baseline
        found.append(gradient(model, hard_loss(model, image, captions, generator, estimator, **(BOUND | options))))
    model.baseline = baseline
    return torch.stack(found)


def standard_errors(model: AttentionCaptioner, found: torch.Tensor) -> torch.Tensor:
    """How many standard errors the mean lies off the exact gradient, (P,), 0 where neither ever moves."""
    off = found.mean(0) - gradient(model, bound_loss(model))
    spread = found.std(0) / len(found) ** 0.5
    return torch.where(off.abs() < 1e-12, 0, off / spread.clamp_min(1e-15))


@pytest.mark.parametrize("estimator", ["score function", "leave one out"])
def test_draws_are_unbiased_within_the_standard_error(estimator):
    model = build(-2.0)
    off = standard_errors(model, drawn(model, estimator))
    assert off.abs().max() < 4.5 and off.square().mean() < 2
    off = standard_errors(model, drawn(model, estimator, calls=40, reinforce=0.0))
    assert off.abs().max() > 10  # this test can fail


def test_leave_one_out_varies_less_than_draws_without_a_baseline():
    model = build()
    one = drawn(model, "score function", calls=60, copies=4).var(0).sum()
    assert drawn(model, "leave one out", calls=60, copies=1, samples=4).var(0).sum() < 0.7 * one  # as many passes


def test_straight_through_is_biased_in_what_leads_to_the_places():
    model = build()
    off = standard_errors(model, drawn(model, "straight through"))
    assert off[rows_of(model, "W_q") | rows_of(model, "W_k")].abs().max() > 8
    assert off[rows_of(model, "score")].abs().max() < 4.5  # the draw itself is exact


def test_top_m_is_biased_and_needs_no_draw():
    model = build()
    exact = gradient(model, bound_loss(model))
    for m in (1, 2, 4):
        one, two = (gradient(model, hard_loss(model, IMAGE, CAPTIONS, rng(seed), "top m", m=m)) for seed in (0, 1))
        assert torch.equal(one, two) and (one - exact).norm() > 0.05 * exact.norm()
    softly = model.unroll(IMAGE, CAPTIONS, soft).logits  # one is m = 4 here: nothing was left out
    assert close(one, gradient(model, teacher_forcing_loss(softly, CAPTIONS)))


# One glance: the laboratory of the chapter


def test_variance_of_one_glance_by_baseline():
    """Six places, rewards offset by -8: none > mean reward > optimal b* = E[r |grad|^2] / E[|grad|^2]."""
    e = torch.randn(6, generator=rng(2)).double().requires_grad_()
    reward = torch.randn(6, generator=rng(3)).double() - 8

    def terms(b):
        alpha = e.softmax(-1).expand(6, 1, 6)  # six rows, each drew another place; T = 1
        glances = Pass(torch.zeros(6, 1, V), alpha, torch.eye(6).double().unsqueeze(1), torch.ones(6, 1))
        spoken = torch.ones(6, 1, dtype=torch.bool)
        gains, _ = score_function_terms(glances, (reward - b).unsqueeze(1), spoken)
        g = torch.stack([torch.autograd.grad(gain, e, retain_graph=True)[0] for gain in gains])
        p = e.softmax(-1).detach()
        return p, g, (p @ (g - p @ g).square()).sum().item()

    exact = torch.autograd.grad((e.softmax(-1) * reward).sum(), e)[0]
    p, g, none = terms(0.0)
    _, of_mean, mean = terms((p * reward).sum())
    size = (g / reward.unsqueeze(1)).square().sum(1)  # |grad log p|^2
    best = (p * reward * size).sum() / (p * size).sum()
    _, of_best, optimal = terms(best)
    for estimate in (g, of_mean, of_best):
        torch.testing.assert_close(p @ estimate, exact)
    assert none > 10 * mean > 10 * optimal
    for b in (best - 0.1, best + 0.1):
        assert terms(b)[2] > optimal


# Parts


def test_the_reward_of_a_glance_is_its_word_and_all_that_follows():
    log_p = torch.tensor([[-1.0, -2.0, -4.0], [-3.0, -0.5, 0.0]], requires_grad=True)
    reward = returns(log_p)
    assert reward.tolist() == [[-7, -6, -4], [-3.5, -0.5, 0]] and not reward.requires_grad


def test_pad_is_no_word():
    logits = torch.randn(2, 3, V, generator=rng())
    log_p, spoken = word_log_probs(logits, CAPTIONS)
    assert spoken.tolist() == [[True] * 3, [True, True, False]] and log_p[1, 2] == 0
    assert log_p[1, 1].item() == pytest.approx(logits[1, 1].log_softmax(0)[2].item())  # <end> is one
    mean = -log_p.sum() / spoken.sum()
    torch.testing.assert_close(mean, teacher_forcing_loss(logits, CAPTIONS))


def test_leave_one_out_by_hand():
    reward = torch.tensor([[1.0, 10.0], [0.0, 0.0], [2.0, 40.0], [5.0, -1.0], [6.0, 70.0], [1.0, 1.0]])  # S 3, N 2
    assert leave_one_out(reward, 3).tolist() == [[-3, -45], [-3, 0], [-1.5, 0], [4.5, -1.5], [4.5, 45], [-1.5, 1.5]]
    torch.testing.assert_close(leave_one_out(reward + 7, 3), leave_one_out(reward, 3))
    assert leave_one_out(torch.tensor([[4.0], [1.0]]), 2).tolist() == [[3], [-3]]


def test_moving_average_hears_only_rows_that_speak():
    reward = torch.tensor([[-4.0, -2.0, 9.0, 9.0], [-6.0, 9.0, 9.0, 9.0], [-2.0, -4.0, -8.0, 9.0]])
    spoken = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]]).bool()
    b = moving_average(torch.tensor([0.0, -1.0, -2.0, -5.0]), reward, spoken)
    torch.testing.assert_close(b, torch.tensor([0.1 * -4, 0.9 * -1 + 0.1 * -3, 0.9 * -2 + 0.1 * -8, -5.0]))
    assert moving_average(torch.zeros(4), reward, spoken, keep=0.0).tolist() == [-4, -3, -8, 0]


def test_the_baseline_comes_to_the_mean_reward():
    model, generator, seen = build(), rng(), []
    image, captions = IMAGE.repeat(50, 1, 1), CAPTIONS.repeat(50, 1)
    with torch.no_grad():
        for _ in range(150):
            hard_loss(model, image, captions, generator, "score function", mix=0.0)
            seen.append(model.baseline)
    glances = [model.unroll(IMAGE[n : n + 1].expand(64, -1, -1), CAPTIONS[n : n + 1].expand(64, -1),
                            forced(all_places())) for n in range(2)]  # fmt: skip
    rewards = [enumerated(model, n)[0].exp() @ returns(word_log_probs(glances[n].logits, CAPTIONS[n].expand(64, -1))[0])
               for n in range(2)]  # fmt: skip
    expected = torch.stack([*(torch.stack(rewards)[:, :2].mean(0)), rewards[0][2]])  # the last step: one row speaks
    torch.testing.assert_close(torch.stack(seen[50:]).mean(0), expected, rtol=0.03, atol=0)
    assert not model.baseline.requires_grad and "baseline" in model.state_dict()


def test_leave_one_out_and_the_others_leave_the_baseline_alone():
    for estimator in ESTIMATORS:
        model = build(-1.0)
        hard_loss(model, IMAGE, CAPTIONS, rng(), estimator)
        assert model.baseline.eq(-1).all() == (estimator != "score function")


def test_where_nothing_was_drawn_nothing_is_reinforced():
    """The expected context on every step: an advantage of a million changes no bit of the gradient."""
    options = {"mix": 1.0, "reinforce": 1.0, "entropy": 0.0}
    calm, wild = build(0.0), build(1e6)
    one, two = (gradient(m, hard_loss(m, IMAGE, CAPTIONS, rng(), "score function", **options)) for m in (calm, wild))
    assert torch.equal(one, two)
    softly = calm.unroll(IMAGE, CAPTIONS, soft).logits
    assert close(one, gradient(calm, teacher_forcing_loss(softly, CAPTIONS)))
    options["mix"] = 0.0
    one, two = (gradient(m, hard_loss(m, IMAGE, CAPTIONS, rng(), "score function", **options)) for m in (calm, wild))
    assert (one - two).norm() > 1e3  # it does where places were drawn


def test_drawn_and_expected_rows_side_by_side():
    alpha = torch.tensor([0.5, 0.25, 0.25]).expand(3, 2, 3).clone().requires_grad_()
    weights = torch.tensor([[[1.0, 0, 0], [0, 0, 1.0]], [[0.5, 0.25, 0.25], [0, 1.0, 0]], [[0, 1.0, 0], [0, 1.0, 0]]])
    spoken = torch.tensor([[True, True], [True, True], [True, False]])
    advantage = torch.tensor([[2.0, 3.0], [100.0, 5.0], [7.0, 100.0]])
    reinforced, entropy = score_function_terms(Pass(None, alpha, weights, None), advantage, spoken)
    expected = [2 * math.log(0.5) + 3 * math.log(0.25), 5 * math.log(0.25), 7 * math.log(0.25)]
    torch.testing.assert_close(reinforced, torch.tensor(expected))
    each = 0.5 * math.log(2) + 2 * 0.25 * math.log(4)
    torch.testing.assert_close(entropy, torch.tensor([2 * each, 2 * each, each]))
    reinforced.sum().backward()
    by_hand = [[[2 / 0.5, 0, 0], [0, 0, 3 / 0.25]], [[0, 0, 0], [0, 5 / 0.25, 0]], [[0, 7 / 0.25, 0], [0, 0, 0]]]
    torch.testing.assert_close(alpha.grad, torch.tensor(by_hand))


@pytest.mark.parametrize("estimator", ["score function", "leave one out"])
def test_the_entropy_term(estimator):
    losses = []
    for weight in (0.3, 0.0):
        model = build()
        model.W_q.data.zero_()  # e = 0: every glance has the entropy ln 4
        losses.append(hard_loss(model, IMAGE, CAPTIONS, rng(), estimator, entropy=weight, mix=0.0))
    assert (losses[1] - losses[0]).item() == pytest.approx(0.3 * math.log(4))
    glances = build().unroll(IMAGE, CAPTIONS, soft)
    _, entropy = score_function_terms(glances, torch.zeros(2, 3), CAPTIONS[:, 1:] != 0)
    by_hand = [sum(stats.entropy(glances.alpha[n, t].detach().numpy()) for t in range(3 - n)) for n in range(2)]
    assert entropy.tolist() == pytest.approx(by_hand)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_padding_changes_neither_loss_nor_gradient_nor_baseline(estimator):
    """Three columns of <pad> more; what is drawn for them is drawn last."""
    model = build(-1.0)
    one = gradient(model, hard_loss(model, IMAGE, CAPTIONS, rng(), estimator))
    padded = build(-1.0)
    padded.baseline = torch.full((6,), -1.0).double()
    two = gradient(padded, hard_loss(padded, IMAGE, F.pad(CAPTIONS, (0, 3)), rng(), estimator))
    assert close(two, one)
    assert torch.equal(padded.baseline[:3], model.baseline) and padded.baseline[3:].tolist() == [-1] * 3


def test_leave_one_out_draws_every_place_whatever_mix_says():
    losses = [hard_loss(build(), IMAGE, CAPTIONS, rng(), "leave one out", mix=mix) for mix in (0.0, 0.5, 1.0)]
    assert torch.equal(losses[0], losses[1]) and torch.equal(losses[0], losses[2])


# Choices


def frequencies(choose, alpha: torch.Tensor, n: int = 4000) -> torch.Tensor:
    weights = choose(alpha.expand(n, -1))
    one_hot = weights.round()
    torch.testing.assert_close(weights, one_hot, rtol=0, atol=1e-6)
    assert one_hot.amin() == 0 and torch.equal(one_hot.sum(1), torch.ones(n))
    return one_hot.sum(0)


@pytest.mark.parametrize("tau", [None, 0.1, 1.0, 5.0])
def test_places_are_drawn_as_often_as_alpha_says(tau):
    alpha, generator = torch.tensor([0.5, 0.02, 0.3, 0.08, 0.1]), rng()
    counts = frequencies(sampled(generator) if tau is None else straight_through(generator, tau), alpha)
    assert stats.chisquare(counts.numpy(), 4000 * alpha.double().numpy() / alpha.double().sum().item()).pvalue > 0.01
    assert stats.chisquare(counts.numpy(), [800.0] * 5).pvalue < 1e-9


def test_rows_are_drawn_independently_and_by_the_generator():
    alpha = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 1.0], [0.25] * 4])
    for make in (sampled, straight_through):
        weights = make(rng())(alpha)
        torch.testing.assert_close(weights[:2], alpha[:2])
        assert torch.equal(make(rng())(alpha), weights)
        wide = torch.full((300, 4), 0.25)
        first, second = (make(rng(seed))(wide).argmax(1) for seed in (0, 1))
        assert stats.chi2_contingency(torch.bincount(4 * first + second, minlength=16).view(4, 4)).pvalue > 0.01


@pytest.mark.parametrize("mix", [0.0, 0.3, 1.0])
def test_mix_gives_that_share_of_rows_the_expected_context(mix):
    alpha = torch.tensor([0.5, 0.3, 0.2]).expand(3000, 3).clone().requires_grad_()
    weights = sampled(rng(), mix)(alpha)
    expected = (weights == alpha).all(1)
    assert stats.binomtest(int(expected.sum()), 3000, mix).pvalue > 0.01
    assert weights[~expected].amax(1).eq(1).all()
    (weights * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert (alpha.grad.abs().amax(1) > 0).equal(expected)  # a drawn place passes no gradient


def test_straight_through_has_the_gradient_of_the_relaxed_draw():
    alpha = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).requires_grad_()
    c = torch.tensor([1.0, -2.0, 0.5]).double()
    for tau in (0.5, 2.0):
        straight = torch.autograd.grad((straight_through(rng(), tau)(alpha) * c).sum(), alpha)[0]
        gumbel = -(-torch.rand(1, 3, generator=rng()).log()).log()
        relaxed = ((alpha.log() + gumbel) / tau).softmax(-1)
        torch.testing.assert_close(straight, torch.autograd.grad((relaxed * c).sum(), alpha)[0])


def test_top_m_renormalises_the_likeliest():
    alpha = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.7, 0.05, 0.05, 0.2]], requires_grad=True)
    torch.testing.assert_close(top(2)(alpha), torch.tensor([[0, 4 / 7, 0, 3 / 7], [7 / 9, 0, 0, 2 / 9]]))
    assert torch.equal(top(1)(alpha).detach(), hard(alpha).detach())
    for m in (4, 9):
        torch.testing.assert_close(top(m)(alpha), alpha)
    top(2)(alpha)[0, 1].backward()
    torch.testing.assert_close(alpha.grad, torch.tensor([[0, 0.3 / 0.49, 0, -0.4 / 0.49], [0, 0, 0, 0]]))


# The loss as a whole


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_same_generator_gives_the_same_loss(estimator):
    losses = [hard_loss(build(), IMAGE, CAPTIONS, rng(seed), estimator) for seed in (0, 0, 1)]
    assert losses[0].dim() == 0 and torch.equal(losses[0], losses[1])
    assert torch.equal(losses[0], losses[2]) == (estimator == "top m")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_learns_where_to_look(estimator):
    """One of four places says which word is right: mark 1 stands there; the others hold words at random."""
    generator = rng()
    word = torch.randint(0, 2, (512, L), generator=generator)
    place = torch.randint(0, L, (512,), generator=generator)
    grid = torch.cat([F.one_hot(place, L).unsqueeze(-1), F.one_hot(word, 2)], -1).float()  # (512, L, 3): mark, word
    right = 3 + word.gather(1, place.unsqueeze(1))
    captions = torch.cat([torch.ones(512, 1, dtype=torch.long), right], 1)
    torch.manual_seed(0)
    model = AttentionCaptioner(V, L=L, D=3, E=4, H=12, K=4, places=False, choose=hard)
    model.register_buffer("baseline", torch.zeros(1))
    fit(model, lambda index, noise: hard_loss(model, grid[index], captions[index], noise, estimator),
        Plan(updates=150, batch=64, peak=0.05), 512)  # fmt: skip
    glances = model.unroll(grid, captions)
    assert (glances.logits.argmax(-1) == right).float().mean() > 0.95
    assert (glances.alpha[:, 0].argmax(-1) == place).float().mean() > 0.9


def test_relative_gradient_variance_of_a_study():
    model = build(-1.0)
    spread = {estimator: gradient_variance(model, estimator, IMAGE, CAPTIONS, 10) for estimator in ESTIMATORS}
    assert spread.pop("top m") == pytest.approx(0, abs=1e-20) and min(spread.values()) > 1e-3
    assert model.baseline.eq(-1).all()
    assert gradient_variance(model, "score function", IMAGE, CAPTIONS, 10) == spread["score function"]


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sampled(rng(), 1.5), "mix is 1.5; expected a probability"),
        (lambda: sampled(rng(), -0.1), "mix is -0.1; expected a probability"),
        (lambda: straight_through(rng(), 0.0), "tau is 0.0; expected a temperature above 0"),
        (lambda: straight_through(rng(), -1.0), "tau is -1.0"),
        (lambda: straight_through(rng(), math.nan), "tau is nan"),
        (lambda: top(0), "m is 0; expected at least 1 place"),
        (lambda: leave_one_out(torch.zeros(2, 3), 1), "samples is 1; expected at least 2: one sample has no others"),
    ],
)
def test_bad_choices_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        ("reinforce", {}, "estimator is 'reinforce'; expected one of score function, leave one out, straight through"),
        ("score function", {"mix": 2.0}, "mix is 2.0"),
        ("straight through", {"tau": 0.0}, "tau is 0.0"),
        ("top m", {"m": 0}, "m is 0"),
        ("leave one out", {"samples": 1}, "samples is 1; expected at least 2"),
        ("leave one out", {"samples": 0}, "samples is 0; expected at least 2"),
    ],
)
def test_bad_arguments_of_the_loss_are_named(estimator, options, message):
    with pytest.raises(ValueError, match=message):
        hard_loss(build(), IMAGE, CAPTIONS, rng(), estimator, **options)


def test_the_score_function_needs_a_baseline():
    model = AttentionCaptioner(27)
    with pytest.raises(ValueError, match="model has no baseline; call model.register_buffer"):
        hard_loss(model, torch.rand(1, 64, 48), torch.ones(1, 5, dtype=torch.int64), torch.Generator(), ESTIMATORS[0])
