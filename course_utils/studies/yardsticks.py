"""Yardsticks: what a plain, untuned training cell costs on this machine, so that budgets mean the same everywhere."""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

V, T, L, D = 27, 10, 64, 48  # words, caption length, grid locations, annotation width


class PlainEncoder(nn.Module):
    """Three convolutions and a linear head: images (N, 3, 32, 32) -> seven attribute logits (N, 7)."""

    def __init__(self):
        super().__init__()
        widths, strides = (3, 16, 32, D), (1, 2, 2)
        self.layers = nn.Sequential(*(
            layer for i in range(3) for layer in (nn.Conv2d(widths[i], widths[i + 1], 3, strides[i], padding=1),
                                                  nn.GroupNorm(8, widths[i + 1]), nn.ReLU())),
            nn.Flatten(), nn.Linear(L * D, 7))

    def loss(self, n: int) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.layers(torch.rand(n, 3, 32, 32)),
                                                  torch.randint(0, 2, (n, 7)).float())


class PlainShowAndTell(nn.Module):
    """The flattened grid once into a ReLU recurrence, one step of nn.Linear products at a time."""

    def __init__(self, E: int = 32, H: int = 96, I: int = 64):
        super().__init__()
        self.image, self.inject = nn.Linear(L * D, I), nn.Linear(I, H, bias=False)
        self.embed, self.read, self.recur = nn.Embedding(V, E), nn.Linear(E, H), nn.Linear(H, H, bias=False)
        self.write = nn.Linear(H, V)

    def loss(self, n: int) -> Tensor:
        captions = torch.randint(3, V, (n, T))
        add = self.inject(self.image(torch.rand(n, L, D).flatten(1)).relu())
        h, states = torch.zeros_like(add), []
        for word in captions[:, :-1].T:
            h = (self.read(self.embed(word)) + self.recur(h) + add).relu()
            add = torch.zeros_like(add)
            states.append(h)
        scores = self.write(torch.stack(states, 1))  # (N, T-1, V)
        return F.cross_entropy(scores.flatten(0, 1), captions[:, 1:].flatten())


class PlainSoftAttention(nn.Module):
    """An nn.LSTMCell with one dot-product glance at the grid before every word."""

    def __init__(self, E: int = 32, H: int = 96, K: int = 32, width: int = D + 2):
        super().__init__()
        self.width, self.start_h, self.start_c = width, nn.Linear(width, H), nn.Linear(width, H)
        self.key, self.query, self.embed = nn.Linear(width, K), nn.Linear(H, K), nn.Embedding(V, E)
        self.cell, self.write = nn.LSTMCell(E + width, H), nn.Linear(H, V)

    def loss(self, n: int) -> Tensor:
        grid, captions = torch.rand(n, L, self.width), torch.randint(3, V, (n, T))
        keys, mean = self.key(grid), grid.mean(1)
        h, c, scores = self.start_h(mean).tanh(), self.start_c(mean).tanh(), []
        for word in captions[:, :-1].T:
            e = (keys @ self.query(h).unsqueeze(-1)).squeeze(-1) / keys.shape[-1] ** 0.5  # (N, L)
            glance = (e.softmax(-1).unsqueeze(-1) * grid).sum(1)  # (N, D + 2)
            h, c = self.cell(torch.cat([self.embed(word), glance], -1), (h, c))
            scores.append(self.write(h))
        return F.cross_entropy(torch.stack(scores, 1).flatten(0, 1), captions[:, 1:].flatten())


YARDSTICKS = {"encoder": (PlainEncoder, 32, 8 * 63), "show_and_tell": (PlainShowAndTell, 32, 12 * 188),
              "soft_attention": (PlainSoftAttention, 64, 12 * 94)}  # model, batch, Adam updates


def yardstick(name: str) -> float:
    """Return the CPU seconds of one yardstick on one thread, scaled from a tenth of its updates on random data."""
    if name not in YARDSTICKS:
        raise ValueError(f"name is {name!r}; expected one of {', '.join(YARDSTICKS)}")
    kind, batch, updates = YARDSTICKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind()
        optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
        for update in range(updates // 10 + 3):
            if update == 3:  # the first updates pay for what every later one finds ready
                started = time.process_time()
            optimiser.zero_grad()
            model.loss(batch).backward()
            optimiser.step()
        return (time.process_time() - started) * updates / (updates // 10)


def cost_in_yardsticks(name: str, work: Callable[[], object]) -> tuple[object, float]:
    """Return what work() returns and its CPU seconds as a multiple of the yardstick, measured before and after it."""
    before, started = yardstick(name), time.process_time()
    result = work()
    seconds = time.process_time() - started
    return result, 2 * seconds / (before + yardstick(name))
