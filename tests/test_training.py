"""Training: schedule, losses, determinism, interruption and resume, all bit for bit on tiny models."""

import random
import signal
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from course_utils.captioners.interface import Captioner
from course_utils.files import read_tensors, write_tensors
from course_utils.training import (
    Plan,
    fit,
    learning_rate,
    one_thread,
    own_randomness,
    scheduled_sampling_logits,
    seed_everything,
    teacher_forcing_loss,
)

X = torch.randn(20, 4, generator=torch.Generator().manual_seed(7))  # (N, 4)
Y = X @ torch.tensor([[1.0, -2.0], [0.5, 1.0], [0.0, 3.0], [2.0, 0.0]])  # (N, 2)
PLAN = Plan(updates=12, batch=6, peak=0.05, seed=3)


def network(seed=0, dropout=0.2):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(dropout), nn.Linear(5, 2))


def square_loss(model, drawn=None):
    def loss(index, generator):
        if drawn is not None:
            drawn.append(index)
        noise = 0.1 * torch.randn(len(index), 4, generator=generator)
        return (model(X[index] + noise) - Y[index]).square().mean()
    return loss


def train(plan=PLAN, **options):
    """Return the weights (dict) and the losses of a new network trained by `plan`."""
    model = network()
    losses = fit(model, square_loss(model), plan, len(X), **options)
    return model.state_dict(), losses


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


class State(NamedTuple):
    h: Tensor  # (N, H)


class Tiny(Captioner):
    """A captioner of one tanh layer, which notes the words that it reads."""

    def __init__(self):
        super().__init__()
        self.embed, self.recur, self.write = nn.Embedding(9, 6), nn.Linear(6, 6), nn.Linear(6, 9)
        self.read = []

    def init_state(self, image):
        return State(image)

    def step(self, tokens, state):
        self.read.append(tokens)
        h = torch.tanh(self.embed(tokens) + self.recur(state.h))  # (N, H)
        return torch.log_softmax(self.write(h), -1), State(h)


@pytest.fixture
def captioner():
    torch.manual_seed(1)
    captions = torch.tensor([[1, 5, 6, 7, 2, 0], [1, 8, 2, 0, 0, 0], [1, 3, 4, 3, 4, 2]])  # (N, T)
    return Tiny(), torch.randn(3, 6), captions


def test_learning_rate_by_hand():
    plan = Plan(updates=10, batch=1, peak=1.0, warmup=0.2)
    rates = [learning_rate(update, plan) for update in range(11)]
    assert rates[:3] == pytest.approx([1 / 3, 2 / 3, 1])  # two rising updates, then the peak
    assert rates[4] == pytest.approx((1 + 2**-0.5) / 2)  # a quarter of the eight falling ones: cos(pi / 4)
    assert rates[6] == pytest.approx(0.5) and rates[10] == pytest.approx(0)
    assert min(rates[:10]) > 0
    assert learning_rate(0, Plan(updates=10, batch=1, peak=0.3, warmup=0)) == pytest.approx(0.3)


@pytest.mark.parametrize("bad, message", [
    ({"updates": 0}, "updates=0"), ({"batch": -1}, "batch=-1"), ({"batch": 2.5}, "batch=2.5"),
    ({"seed": -1}, "seed=-1"), ({"peak": 0}, "peak > 0"), ({"clip": 0}, "clip > 0"), ({"warmup": 1}, "warmup < 1"),
    ({"weight_decay": -1}, "weight_decay >= 0")])
def test_plan_refuses(bad, message):
    with pytest.raises(ValueError, match=message):
        Plan(**{"updates": 1, "batch": 1, "peak": 1.0, **bad})


def test_seed_everything_seeds_all():
    def draws(seed):
        generator = seed_everything(seed)
        return generator.initial_seed(), random.random(), np.random.rand(), float(torch.rand(()))
    first, other = draws(5), draws(6)
    assert draws(5) == first and first[0] == 5
    assert all(a != b for a, b in zip(first, other))
    with pytest.raises(ValueError, match="2\\*\\*32 - 1"):
        seed_everything(-1)


def test_own_randomness_and_one_thread_leave_no_trace():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    with pytest.raises(KeyError), own_randomness(1), one_thread():
        assert torch.get_num_threads() == 1
        random.random(), np.random.rand(), torch.rand(1)
        raise KeyError
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    assert random.getstate() == before[0] and np.random.get_state()[1].tolist() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_teacher_forcing_loss_ignores_pad():
    captions = torch.tensor([[1, 5, 2, 0, 0], [1, 3, 4, 6, 2]])  # (N, T)
    logits = torch.randn(2, 4, 7, generator=torch.Generator().manual_seed(0))
    words = [(0, 0, 5), (0, 1, 2), (1, 0, 3), (1, 1, 4), (1, 2, 6), (1, 3, 2)]
    by_hand = -sum(logits[n, t].log_softmax(-1)[word] for n, t, word in words) / len(words)
    assert torch.allclose(teacher_forcing_loss(logits, captions), by_hand)
    assert torch.allclose(teacher_forcing_loss(logits.log_softmax(-1), captions), by_hand)
    other = logits.clone()
    other[0, 2:] = 100 * torch.rand(2, 7)  # scores where the target is <pad>
    assert torch.equal(teacher_forcing_loss(other, captions), teacher_forcing_loss(logits, captions))
    with pytest.raises(ValueError, match=r"logits \(2, 4, 7\) do not fit captions \(2, 4\)"):
        teacher_forcing_loss(logits, captions[:, 1:])


def test_scheduled_sampling_at_one_is_teacher_forcing(captioner):
    model, image, captions = captioner
    forced = model(image, captions)
    assert torch.equal(scheduled_sampling_logits(model, image, captions, 1), forced)
    almost = scheduled_sampling_logits(model, image, captions, 1 - 1e-9, torch.Generator().manual_seed(0))
    assert torch.equal(almost, forced)  # the loop of steps, with every coin for the right word


def test_scheduled_sampling_at_zero_is_free_running(captioner):
    model, image, captions = captioner
    state, word, scores = model.init_state(image), captions[:, 0], []
    for _ in range(captions.shape[1] - 1):
        log_probs, state = model.step(word, state)
        scores.append(log_probs)
        word = log_probs.argmax(-1)
    assert torch.equal(scheduled_sampling_logits(model, image, captions, 0), torch.stack(scores, 1))
    assert not torch.equal(torch.stack(scores, 1), model(image, captions))


def test_scheduled_sampling_between(captioner):
    model, image, captions = captioner
    image, captions = image.repeat(40, 1), captions.repeat(40, 1)
    model.read.clear()
    scores = scheduled_sampling_logits(model, image, captions, 0.25, torch.Generator().manual_seed(0))
    read = torch.stack(model.read[1:], 1)  # (N, T-2)
    right, own = captions[:, 1:-1], scores[:, :-1].argmax(-1)
    assert ((read == right) | (read == own)).all()
    differ = right != own
    assert 0.15 < (read == right)[differ].float().mean() < 0.35
    again = scheduled_sampling_logits(model, image, captions, 0.25, torch.Generator().manual_seed(0))
    assert torch.equal(again, scores)
    for epsilon in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="epsilon="):
            scheduled_sampling_logits(model, image, captions, epsilon)


def test_fit_learns_and_serves_every_row_equally():
    model, drawn = nn.Linear(4, 2), []
    losses = fit(model, square_loss(model, drawn), Plan(updates=200, batch=6, peak=0.1), len(X))
    assert losses[0] > 4 and np.mean(losses[-20:]) < 0.4  # the noise in X leaves about 0.1
    assert len(losses) == 200 and all(isinstance(loss, float) for loss in losses)
    rows = torch.cat(drawn)
    assert all(sorted(epoch.tolist()) == list(range(20)) for epoch in rows.split(20))
    assert not torch.equal(rows[:20], rows[20:40])
    assert all(index.shape == (6,) and index.dtype == torch.int64 for index in drawn)


def test_fit_equals_a_plain_loop():
    model, plain, rows = nn.Linear(4, 2), nn.Linear(4, 2), []
    plain.load_state_dict(model.state_dict())
    plan = Plan(updates=12, batch=6, peak=0.05, weight_decay=0.1, clip=0.5, warmup=0.25)

    def loss(index, generator):
        rows.append(index)
        return (model(X[index]) - Y[index]).square().mean()
    losses, expected = fit(model, loss, plan, len(X)), []
    optimiser = torch.optim.AdamW(plain.parameters(), weight_decay=0.1)
    for update, index in enumerate(rows):
        optimiser.param_groups[0]["lr"] = learning_rate(update, plan)
        error = (plain(X[index]) - Y[index]).square().mean()
        expected.append(error.item())
        optimiser.zero_grad()
        error.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        optimiser.step()
    assert losses == pytest.approx(expected, rel=1e-5)
    assert torch.allclose(model.weight, plain.weight, atol=1e-6) and torch.allclose(model.bias, plain.bias, atol=1e-6)


def test_random_streams_follow_the_seed_and_differ():
    def streams(seed):
        drawn, model = [], nn.Linear(4, 2)

        def loss(index, generator):
            drawn.append((torch.rand(3, generator=generator).tolist(), torch.rand(3).tolist()))
            return model(X[index]).sum()
        fit(model, loss, Plan(updates=1, batch=1, peak=0.1, seed=seed), len(X))
        return drawn[0]
    (noise, common), (other_noise, other_common) = streams(0), streams(1)
    assert streams(0) == (noise, common)
    assert noise != common and noise != other_noise and common != other_common
    assert torch.rand(3, generator=torch.Generator().manual_seed(0)).tolist() not in (noise, common)  # that of the rows


def test_same_plan_same_bits_whatever_ran_before():
    weights, losses = train()
    torch.manual_seed(99), random.seed(99), np.random.seed(99)
    model = network()
    torch.manual_seed(1234)
    before = torch.get_rng_state()
    assert fit(model, square_loss(model), PLAN, len(X)) == losses
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(model.state_dict(), weights)
    assert train(Plan(updates=12, batch=6, peak=0.05, seed=4))[1] != losses


def test_clip_bounds_the_gradient(tmp_path):
    seen = []
    model, path = network(), tmp_path / "run.partial"
    plan = Plan(updates=1, batch=6, peak=0.01, clip=0.25)

    def observe(update, observed, loss):
        assert observed is model and update == 0 and loss.dim() == 0
        seen.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    fit(model, square_loss(model), plan, len(X), checkpoint=path, observe=observe)
    mean = torch.cat([tensor.flatten() for name, tensor in sorted(read_tensors(path)[0].items())
                      if name.startswith("optimiser.exp_avg.")])
    assert seen[0].norm() > 1  # observe sees the gradient before it is clipped
    assert mean.norm() / 0.1 == pytest.approx(0.25, rel=1e-4)  # AdamW's first mean is 0.1 times the clipped gradient


def test_modes():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout()), nn.Linear(4, 2)
            self.drop = nn.Dropout()
            self.encoder.requires_grad_(False)

        def forward(self, x):
            modes.append((self.training, self.drop.training, self.encoder[0].training, self.encoder[1].training))
            return self.head(self.encoder(x))
    modes, model = [], Frozen()
    fit(model, square_loss(model), PLAN, len(X))
    assert set(modes) == {(True, True, False, False)}
    assert not any(module.training for module in model.modules())
    assert torch.equal(model.encoder[0].running_mean, torch.zeros(4))


def interrupt_at(number):
    def observe(update, model, loss):
        if update == number:
            signal.raise_signal(signal.SIGINT)
    return observe


def test_four_updates_are_two_and_two(tmp_path):
    plan, whole, cut = Plan(updates=4, batch=6, peak=0.05), tmp_path / "whole", tmp_path / "cut"
    weights, losses = train(plan, checkpoint=whole)
    with pytest.raises(KeyboardInterrupt, match="after update 2 of 4"):
        train(plan, checkpoint=cut, observe=interrupt_at(1))
    assert read_tensors(cut)[1]["done"] == 2
    torch.manual_seed(5)
    torch.rand(3)
    model, calls = network(seed=8), []  # other initial weights: the file's must replace them
    assert fit(model, square_loss(model, calls), plan, len(X), checkpoint=cut) == losses
    assert len(calls) == 2
    assert_same(model.state_dict(), weights)
    assert_same(read_tensors(cut)[0], read_tensors(whole)[0])  # weights, optimiser, random states, order, losses
    assert read_tensors(cut)[1] == read_tensors(whole)[1]
    assert fit(model, square_loss(model, calls), plan, len(X), checkpoint=cut) == losses  # nothing left to do
    assert len(calls) == 2


def test_interrupts_anywhere_and_again(tmp_path):
    weights, losses = train()
    for number in (0, 5, 6, 11):
        path = tmp_path / f"{number}.partial"
        for stop in (number, number + 2):
            if stop < PLAN.updates:
                with pytest.raises(KeyboardInterrupt):
                    train(checkpoint=path, observe=interrupt_at(stop))
        resumed, again = train(checkpoint=path, every=3)
        assert again == losses
        assert_same(resumed, weights)
        assert [file.name for file in tmp_path.glob(f"{number}.*")] == [path.name]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_inside_the_loss_leaves_the_last_whole_file(tmp_path):
    def observe(update, model, loss):
        if update == 8:
            raise KeyboardInterrupt  # from within: the update is not complete
    path, (weights, losses) = tmp_path / "run.partial", train()
    with pytest.raises(KeyboardInterrupt):
        train(checkpoint=path, every=3, observe=observe)
    assert read_tensors(path)[1]["done"] == 6
    resumed, again = train(checkpoint=path, every=3)
    assert again == losses
    assert_same(resumed, weights)


def test_damaged_and_foreign_resume_files_are_set_aside(tmp_path, capsys):
    path, (weights, losses) = tmp_path / "run.partial", train()
    path.write_text("not a run")
    resumed, again = train(checkpoint=path, label="toy")
    assert again == losses
    assert_same(resumed, weights)
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and "toy: " in out and "is damaged" in out and "kept as run.partial.damaged-1" in out
    assert (tmp_path / "run.partial.damaged-1").read_text() == "not a run"

    def other_model():
        model = nn.Linear(4, 2)
        fit(model, square_loss(model), PLAN, len(X), checkpoint=path)

    def other_plan():
        train(Plan(updates=13, batch=6, peak=0.05, seed=3), checkpoint=path)

    def other_kind():
        write_tensors(path, {"a": torch.zeros(2)}, {"kind": "other"})
    for number, prepare in enumerate([other_model, other_plan, other_kind], 1):
        path.unlink()
        prepare()
        content = path.read_bytes()
        assert train(checkpoint=path)[1] == losses
        assert "another plan, size or model" in capsys.readouterr().out
        assert (tmp_path / f"run.partial.foreign-{number}").read_bytes() == content


def test_an_unwritable_resume_file_does_not_stop_training(tmp_path, capsys):
    assert train(checkpoint=tmp_path / "nowhere" / "run.partial", every=4)[1] == train()[1]
    assert capsys.readouterr().out.count("cannot write the resume file") == 1


def test_every_changed_byte_is_noticed(tmp_path):
    path, tensor = tmp_path / "file", torch.tensor([1.5, -2.0])
    write_tensors(path, {"w": tensor, "scalar": torch.tensor(3), "none": torch.zeros(0, 2)}, {"word": "circle"})
    tensors, metadata = read_tensors(path)
    assert metadata == {"word": "circle"} and torch.equal(tensors["w"], tensor) and tensors["none"].shape == (0, 2)
    whole = path.read_bytes()
    for position in range(len(whole)):
        for flip in (0x01, 0x40):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ flip]) + whole[position + 1:])
            try:
                assert read_tensors(path)[1] == {}, position  # the file no longer says that it is the course's
            except ValueError as error:
                assert "is damaged" in str(error)
        path.write_bytes(whole[:position])
        with pytest.raises(ValueError, match="is damaged"):
            read_tensors(path)


def test_fit_refuses():
    model = network()
    with pytest.raises(ValueError, match=r"plan\.batch=6, size=5"):
        fit(model, square_loss(model), PLAN, 5)
    with pytest.raises(ValueError, match="every=0"):
        fit(model, square_loss(model), PLAN, 20, every=0)
    with pytest.raises(ValueError, match=r"loss returned torch.Size\(\[6, 4\]\); expected a scalar"):
        fit(model, lambda index, generator: X[index], PLAN, 20)
    with pytest.raises(ValueError, match="loss returned float"):
        fit(model, lambda index, generator: 0.5, PLAN, 20)
    with pytest.raises(FloatingPointError, match=r"toy: loss .* not finite at update 0; lower plan\.peak=0\.05"):
        fit(model, lambda index, generator: model(X[index]).sum() * float("nan"), PLAN, 20, label="toy")
    with pytest.raises(ValueError, match="Sequential has nothing to train"):
        fit(model.requires_grad_(False), square_loss(model), PLAN, 20)
