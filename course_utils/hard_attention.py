"""Hard attention: ways to choose one place at random, and estimators of the gradient through that choice.

N batch, T steps, M places. alpha (N, M) are probabilities of the places; a choice gives weights (N, M) for the context.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from course_utils.captioners.attention import AttentionCaptioner, Pass
from course_utils.vocabulary import PAD

ESTIMATORS = ("score function", "leave one out", "straight through", "top m")


def sampled(generator: torch.Generator, mix: float = 0.0) -> Callable:
    """Return choose(alpha): one-hot weights of a place drawn from alpha; with probability mix, a row's alpha itself.

    The mixed rows take the expected context (Xu et al., 4.1): nothing was drawn there, so nothing may be reinforced.
    """
    if not 0 <= mix <= 1:
        raise ValueError(f"mix is {mix}; expected a probability")

    def choose(alpha: Tensor) -> Tensor:
        place = torch.multinomial(alpha.detach(), 1, generator=generator)  # (N, 1)
        drawn = torch.zeros_like(alpha).scatter_(1, place, 1.0)
        expected = torch.rand(len(alpha), 1, generator=generator) < mix
        return torch.where(expected, alpha, drawn)

    return choose


def straight_through(generator: torch.Generator, tau: float = 1.0) -> Callable:
    """Return choose(alpha): a one-hot draw by Gumbel noise with the gradient of softmax((log alpha + noise) / tau).

    The draw is exact, the gradient is biased (Jang et al. 2017; Maddison et al. 2017).
    """
    if not tau > 0:
        raise ValueError(f"tau is {tau}; expected a temperature above 0")

    def choose(alpha: Tensor) -> Tensor:
        uniform = torch.rand(alpha.shape, generator=generator).clamp(1e-9, 1 - 1e-7)
        soft = ((alpha.clamp_min(1e-9).log() - (-uniform.log()).log()) / tau).softmax(-1)  # (N, M)
        drawn = F.one_hot(soft.argmax(-1), alpha.shape[-1]).to(alpha.dtype)
        return drawn + soft - soft.detach()

    return choose


def top(m: int) -> Callable:
    """Return choose(alpha): the m likeliest places, renormalised: the context is marginalised over them alone."""
    if m < 1:
        raise ValueError(f"m is {m}; expected at least 1 place")

    def choose(alpha: Tensor) -> Tensor:
        best = alpha.topk(min(m, alpha.shape[-1]), -1)  # (N, m)
        kept = torch.zeros_like(alpha).scatter(1, best.indices, best.values)
        return kept / kept.sum(-1, keepdim=True)

    return choose


def word_log_probs(logits: Tensor, captions: Tensor) -> tuple[Tensor, Tensor]:
    """Return log p(y_t) (N, T-1), 0 for <pad>, and which words speak (N, T-1) bool; captions (N, T) int64."""
    words = captions[:, 1:]
    spoken = words != PAD
    log_p = logits.log_softmax(-1).gather(-1, words.unsqueeze(-1)).squeeze(-1)  # (N, T-1)
    return log_p.masked_fill(~spoken, 0), spoken


def returns(log_p: Tensor) -> Tensor:
    """Return the reward of each glance (N, T): the log-probabilities of its own word and of all that follow it."""
    return log_p.flip(1).cumsum(1).flip(1).detach()


def score_function_terms(glances: Pass, advantage: Tensor, spoken: Tensor) -> tuple[Tensor, Tensor]:
    """Return, summed over the steps that speak, sum_t advantage_t log p(s_t) and the entropy of alpha_t, both (N,).

    Rows whose weights are alpha itself (expected context) are not reinforced: nothing was drawn. advantage (N, T).
    """
    drawn = glances.weights.detach().amax(-1) == 1  # (N, T)
    log_alpha = glances.alpha.clamp_min(1e-9).log()  # (N, T, M)
    log_s = (glances.weights.detach() * log_alpha).sum(-1)  # (N, T)
    entropy = -(glances.alpha * log_alpha).sum(-1)
    return (advantage * log_s).masked_fill(~(drawn & spoken), 0).sum(1), entropy.masked_fill(~spoken, 0).sum(1)


def leave_one_out(reward: Tensor, samples: int) -> Tensor:
    """Return reward - mean of the other samples' rewards; reward (S * N, T), sample by sample (Kool et al. 2019)."""
    if samples < 2:
        raise ValueError(f"samples is {samples}; expected at least 2: one sample has no others to compare with")
    parts = reward.view(samples, -1, *reward.shape[1:])  # (S, N, T)
    return ((parts - parts.mean(0)) * samples / (samples - 1)).view_as(reward)


def moving_average(baseline: Tensor, reward: Tensor, spoken: Tensor, keep: float = 0.9) -> Tensor:
    """Return keep * b_t + (1 - keep) * the mean reward of step t (T,), over the rows that speak there alone."""
    count = spoken.sum(0)  # (T,)
    mean = reward.masked_fill(~spoken, 0).sum(0) / count.clamp_min(1)
    return torch.where(count > 0, keep * baseline + (1 - keep) * mean, baseline)


def hard_loss(model: AttentionCaptioner, image: Tensor, captions: Tensor, generator: torch.Generator, estimator: str, *,
              samples: int = 4, mix: float = 0.5, reinforce: float = 0.3, entropy: float = 0.002, tau: float = 1.0,
              m: int = 4) -> Tensor:
    """Return a loss per word whose gradient estimates that of -E[log p(caption | places)]; image (N, L, D).

    "score function": one draw, moving-average baseline kept in model.baseline, entropy term, expected context with
    probability mix (Xu et al., eq. 9 to 12); "leave one out": `samples` draws that are each other's baseline; "straight
    through": biased, one draw; "top m": no draw, biased.
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator is {estimator!r}; expected one of {', '.join(ESTIMATORS)}")
    if estimator == "score function" and not hasattr(model, "baseline"):
        raise ValueError("model has no baseline; call model.register_buffer('baseline', torch.zeros(T - 1)) first")
    if estimator == "leave one out":
        image, captions, mix = image.repeat(samples, 1, 1), captions.repeat(samples, 1), 0.0
    choose = {"straight through": straight_through(generator, tau), "top m": top(m)}.get(
        estimator, sampled(generator, mix))
    glances = model.unroll(image, captions, choose)
    log_p, spoken = word_log_probs(glances.logits, captions)
    gain = log_p.sum(1)  # (N,)
    if estimator in ("score function", "leave one out"):
        reward = returns(log_p)  # (N, T)
        if estimator == "leave one out":
            advantage = leave_one_out(reward, samples)
        else:
            advantage = reward - model.baseline
            model.baseline = moving_average(model.baseline, reward, spoken)
        reinforced, spread = score_function_terms(glances, advantage, spoken)
        gain = gain + reinforce * reinforced + entropy * spread
    return -gain.sum() / spoken.sum()
