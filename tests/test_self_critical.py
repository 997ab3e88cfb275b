"""Self-critical sequence training: the gradient by enumeration, <end> counted once, the reward that sees <end>."""

import functools
import itertools

import pytest
import torch
from torch import nn

from course_utils import decoding, self_critical
from course_utils.captioners import Captioner
from course_utils.metrics import cider_d
from course_utils.scenes import generate
from course_utils.self_critical import CiderReward, policy_loss, self_critical_loss
from course_utils.training import Plan, fit
from course_utils.vocabulary import END, PAD, START, course_vocabulary

V, T = 6, 3
WORDS = course_vocabulary()
SPOKEN = [i for i in range(V) if i not in (PAD, START)]


class Markov(Captioner):
    """The next word depends on the last one only; <pad> and <start> have a good share of the probability."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.table = nn.Parameter(scale * torch.randn(V, V, generator=torch.Generator().manual_seed(1)).double())

    def init_state(self, image):
        return image[:, 0]

    def step(self, tokens, state):
        return self.table[tokens].log_softmax(-1), state


def captions():
    """Return every caption of at most T tokens: <end> and <pad> behind it, or cut off at T words."""
    words = [i for i in SPOKEN if i != END]
    rows = []
    for n in range(T):
        rows += [[*body, END] + [PAD] * (T - 1 - n) for body in itertools.product(words, repeat=n)]
    return torch.tensor(rows + [list(body) for body in itertools.product(words, repeat=T)])


def log_q(model, rows):
    """Return log q (M,) of captions as `sample` draws them, word by word, written as plainly as possible."""
    totals = []
    for row in rows.tolist():
        last, total = START, 0.0
        for word in row:
            scores = model.table[last][SPOKEN].log_softmax(-1)
            total = total + scores[SPOKEN.index(word)]
            if word == END:
                break
            last = word
        totals.append(total)
    return torch.stack(totals)


def rewards(rows):
    """Return an arbitrary reward of each caption (M,)."""
    return (rows * torch.tensor([3.0, -1.0, 0.7])).sum(1).double().sin() * 2


def gradient(model, value):
    return torch.autograd.grad(value, model.table)[0]


def test_enumerated_captions_are_all_of_them():
    assert log_q(Markov(), captions()).exp().sum().item() == pytest.approx(1)


@pytest.mark.parametrize("baseline", [0.0, 2.5, -40.0])
def test_gradient_equals_the_exact_one(baseline):
    model, rows = Markov(), captions()
    q, r = log_q(model, rows).exp(), rewards(rows)
    exact = gradient(model, (q * r).sum())
    weighted = len(rows) * q.detach() * (r - baseline)  # every caption as often as it is drawn
    estimate = gradient(model, policy_loss(model, torch.zeros(len(rows), 1), rows, weighted))
    assert exact.abs().max() > 0.01
    torch.testing.assert_close(estimate, -exact)


def test_loss_of_samples_has_the_exact_gradient_on_average(monkeypatch):
    model, rows, n = Markov(), captions(), 20_000
    exact = -gradient(model, (log_q(model, rows).exp() * rewards(rows)).sum())
    loss = self_critical_loss(model, torch.zeros(n, 1), lambda tokens, index: rewards(tokens[:, :T]))
    for name in ("sample", "greedy"):  # captions as short as those enumerated
        monkeypatch.setattr(self_critical, name, functools.partial(getattr(decoding, name), length=T))
    value = loss(torch.arange(n), torch.Generator().manual_seed(0))
    error = gradient(model, value) - exact
    assert error.abs().max() < 0.06 < exact.abs().max()


def test_advantage_is_zero_when_the_sample_equals_the_greedy_caption():
    model, seen = Markov(scale=200.0), []

    def reward(tokens, index):
        seen.append(tokens)
        return rewards(tokens[:, :T]) + index

    value = self_critical_loss(model, torch.zeros(5, 1), reward)(torch.arange(5), torch.Generator().manual_seed(0))
    assert (seen[0] == seen[1]).all() and (seen[0] != PAD).any()
    assert value.item() == 0 and (gradient(model, value) == 0).all()


def test_end_counts_exactly_once():
    model, one = Markov(), torch.ones(1)
    expected = -log_q(model, torch.tensor([[3, END, PAD]]))[0].item()
    for row in ([3, END], [3, END, PAD], [3, END, END, END], [3, END, 4, END]):
        value = policy_loss(model, torch.zeros(1, 1), torch.tensor([row]), one)
        assert value.item() == pytest.approx(expected), row
    # d loss / d scores after word 3 is q - 1 at <end>: the ending is trained, once
    slope = gradient(model, policy_loss(model, torch.zeros(1, 1), torch.tensor([[3, END, END]]), one))
    q = model.table[3][SPOKEN].softmax(-1)
    assert slope[3, END].item() == pytest.approx((q[SPOKEN.index(END)] - 1).item())
    assert (slope[END] == 0).all() and slope[:, [PAD, START]].abs().max() < 1e-15


def test_reward_is_cider_d_with_end_as_a_word():
    scenes = generate(60, seed=2)
    reward = CiderReward(scenes.reference_ids(WORDS), WORDS)
    texts = [[f"{caption} <end>" for caption in scenes.references(i)] for i in range(60)]
    said = ["a red circle above a blue square", "a", "", *(scenes.references(i)[1] for i in range(3, 60))]
    found = reward(WORDS.encode_batch(said)[:, 1:], torch.arange(60))
    expected = cider_d(candidates=[f"{caption} <end>" for caption in said], references=texts).images
    assert found.dtype == torch.float32 and found.tolist() == pytest.approx(expected, abs=1e-5)
    assert reward(WORDS.encode_batch(said)[:3, 1:], torch.tensor([5, 0, 9]))[0] != found[0]  # index picks the scene


def test_caption_without_end_is_punished():
    scenes = generate(300, seed=2)
    reward = CiderReward(scenes.reference_ids(WORDS), WORDS)
    right = scenes.reference_ids(WORDS)[:, 0, 1:]  # (N, T)
    index = torch.arange(len(scenes))
    endless = right.masked_fill(right == END, PAD)
    trailing = right.masked_fill(right == END, WORDS.id("a"))  # goes on, and is cut off
    best, cut, longer = (reward(tokens, index) for tokens in (right, endless, trailing))
    assert (best > cut + 0.1).all() and (best > longer + 0.1).all()
    without = CiderReward(scenes.reference_ids(WORDS), WORDS)
    without.spell = lambda ids: [WORDS.words[i] for i in ids if i not in (PAD, START, END)]
    without.references = [[without.spell(row) for row in rows] for rows in scenes.reference_ids(WORDS).tolist()]
    assert torch.equal(without(right, index), without(endless, index))  # a reward blind to <end> does not see it


def test_what_stands_behind_end_is_no_part_of_the_reward():
    scenes = generate(20, seed=4)
    reward = CiderReward(scenes.reference_ids(WORDS), WORDS)
    right = scenes.reference_ids(WORDS)[:, 1, 1:]
    noisy = torch.where(right == PAD, WORDS.id("red"), right)
    assert torch.equal(reward(noisy, torch.arange(20)), reward(right, torch.arange(20)))


def test_training_raises_the_reward():
    model = Markov(scale=0.1)

    def reward(tokens, index):
        return (tokens[:, :2] == torch.tensor([4, END])).all(1).double()

    image = torch.zeros(64, 1)
    fit(model, self_critical_loss(model, image, reward), Plan(updates=150, batch=64, peak=0.1, weight_decay=0), 64)
    assert log_q(model, torch.tensor([[4, END, PAD]])).exp().item() > 0.9
    share = model.table.detach().softmax(-1)[START, [PAD, START]].sum()
    assert share < 0.5  # the forbidden words gained nothing


@pytest.mark.parametrize("advantage", [torch.ones(2, 1), torch.ones(3), torch.tensor(1.0)])
def test_advantage_needs_one_value_a_caption(advantage):
    with pytest.raises(ValueError, match=r"advantage has shape .*expected \(2,\): one a caption"):
        policy_loss(Markov(), torch.zeros(2, 1), torch.tensor([[3, END], [4, END]]), advantage)


def test_references_need_their_end():
    ids = generate(4).reference_ids(WORDS)
    for wrong in (ids.masked_fill(ids == END, PAD), ids[0]):
        with pytest.raises(ValueError, match=r"references has shape .*expected \(N, R, T\), <end> in every row"):
            CiderReward(wrong, WORDS)
