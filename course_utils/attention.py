"""Attention on raw tensors: where to look (a softmax over the grid's locations) and what is seen there.

N batch, T time steps, L grid locations, D annotation width, K key width. alpha (N, L) are the attention weights,
z (N, D) the context vector (a_i and z-hat_t in Xu et al. 2015).
"""

import torch
from torch import Tensor


def coordinates(L: int) -> Tensor:
    """Return the place of each grid location (L, 2) as (row, column) in [-1, 1], row by row (Liu et al. 2018)."""
    side = round(L ** 0.5)
    if side * side != L or side < 2:
        raise ValueError(f"L is {L}; expected a square number of locations, at least 4")
    line = torch.linspace(-1, 1, side)
    return torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).reshape(L, 2)


def dot_product_scores(q: Tensor, k: Tensor) -> Tensor:
    """Return e_i = q . k_i / sqrt(K) (N, L): query q (N, K), keys k (N, L, K) (Vaswani et al. 2017, eq. 1)."""
    return (k @ q.unsqueeze(-1)).squeeze(-1) / q.shape[-1] ** 0.5


def additive_scores(q: Tensor, k: Tensor, w: Tensor) -> Tensor:
    """Return e_i = w . tanh(q + k_i) (N, L): q (N, K), k (N, L, K), w (K,) (Bahdanau et al. 2015; Xu et al. 2015)."""
    return torch.tanh(q.unsqueeze(1) + k) @ w


def attend(e: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the context z = sum_i alpha_i v_i (N, D) and alpha = softmax(e) (N, L); e (N, L), values (N, L, D)."""
    alpha = e.softmax(-1)  # (N, L)
    return (alpha.unsqueeze(1) @ values).squeeze(1), alpha


def doubly_stochastic_penalty(alpha: Tensor, spoken: Tensor, target: str = "one") -> Tensor:
    """Return the mean over batch and locations of (tau - sum_t alpha_{t,i})^2 over the steps that speak (scalar).

    alpha (N, T, L); spoken (N, T) bool, False behind <end>: padding does not alter the term. target "one": tau = 1
    as in Xu et al. 2015, which T < L steps cannot reach; "share": tau = T_n / L, which uniform coverage reaches.
    """
    if target not in ("one", "share"):
        raise ValueError(f"target is {target!r}; expected 'one' or 'share'")
    cover = alpha.masked_fill(~spoken.unsqueeze(-1), 0).sum(1)  # (N, L)
    tau = 1 if target == "one" else spoken.sum(1, keepdim=True) / alpha.shape[-1]
    return ((tau - cover) ** 2).mean()
