"""Seeds, one training loop with a one-cycle schedule, resume files, and the two ways to feed a captioner its words."""

import math
import random
import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from course_utils.files import misfit, read_tensors, set_aside, write_tensors
from course_utils.vocabulary import PAD


@dataclass(frozen=True)
class Plan:
    """How long and how fast `fit` trains: `peak` is the highest learning rate, `warmup` the share of rising updates."""

    updates: int
    batch: int
    peak: float
    weight_decay: float = 0.01
    clip: float = 1.0
    warmup: float = 0.1
    seed: int = 0

    def __post_init__(self):
        for name, low in (("updates", 1), ("batch", 1), ("seed", 0)):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < low:
                raise ValueError(f"{name}={getattr(self, name)!r}; expected a whole number of at least {low}")
        if not self.peak > 0 or not self.clip > 0 or not self.weight_decay >= 0 or not 0 <= self.warmup < 1:
            raise ValueError(f"{self}; expected peak > 0, clip > 0, weight_decay >= 0 and 0 <= warmup < 1")


def learning_rate(update, plan):
    """Return the learning rate of update 0, 1, ...: a linear rise to `plan.peak`, then a half cosine to 0 at the end.

    One-cycle policy: Smith 2018, "A disciplined approach to neural network hyper-parameters", with a cosine descent.
    """
    rise = round(plan.warmup * plan.updates)
    if update < rise:
        return plan.peak * (update + 1) / (rise + 1)
    return plan.peak * (1 + math.cos(math.pi * (update - rise) / (plan.updates - rise))) / 2


def seed_everything(seed):
    """Return a torch.Generator seeded with `seed` (0 to 2**32 - 1); seed Python, NumPy and torch with it."""
    np.random.seed(seed)
    random.seed(seed)
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


@contextmanager
def own_randomness(seed):
    """Run the block on global random states seeded with `seed`, then put back those from before it."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=devices):
            yield seed_everything(seed)
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@contextmanager
def one_thread():
    """Run the block on one thread: two threads of so small a model mostly wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def teacher_forcing_loss(logits, captions):
    """Return the mean cross-entropy per word, in nats: logits (N, T-1, V) against captions[:, 1:], <pad> ignored.

    captions (N, T) int64 begin with <start>; log-probabilities serve as logits. ValueError if the shapes disagree.
    """
    targets = captions[:, 1:]  # (N, T-1)
    if logits.shape[:-1] != targets.shape:
        raise ValueError(f"logits {tuple(logits.shape)} do not fit captions {tuple(captions.shape)}; expected "
                         "(N, T-1, V) for (N, T): a row of scores for every word after <start>")
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD)


def scheduled_sampling_logits(model, image, captions, epsilon, generator=None):
    """Return the scores (N, T-1, V) of captions[:, 1:] when only some of the words read are the right ones.

    Each word read after <start> is the right one with probability `epsilon`, else the model's own most likely word,
    which passes no gradient: 1 is teacher forcing (the model's forward), 0 free running. captions (N, T) int64.
    ValueError if epsilon is not in [0, 1]. Source: Bengio et al. 2015, "Scheduled sampling", section 2.4.
    """
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon={epsilon!r}; expected the probability of the right word, from 0 to 1")
    if epsilon == 1:
        return model(image, captions)
    device = generator.device if generator is not None else "cpu"
    state, word, scores = model.init_state(image), captions[:, 0], []
    for t in range(1, captions.shape[1]):
        log_probs, state = model.step(word, state)  # (N, V)
        scores.append(log_probs)
        right = torch.rand(len(captions), generator=generator, device=device) < epsilon  # (N,)
        word = torch.where(right.to(captions.device), captions[:, t], log_probs.detach().argmax(-1))  # (N,)
    return torch.stack(scores, 1)  # (N, T-1, V)


def fit(model, loss, plan, size, label="training", checkpoint=None, every=200, observe=None):
    """Return the losses of all `plan.updates` updates (list of float), after training `model` in place with AdamW.

    `loss(index, generator)` -> scalar tensor: index (plan.batch,) int64 are rows of range(size), epoch after epoch in
    a new random order; other randomness comes from `generator` (CPU) or torch's global state. `observe(update, model,
    loss)` runs between backward pass and clipping. The same plan gives the same bits, whatever ran before. Frozen parts
    stay in eval mode; all of the model is in it afterwards. With `checkpoint`, a path, the run is written there every
    `every` updates, at the end and when interrupted, and goes on bit for bit from there; the caller deletes that file.
    ValueError if plan.batch > size; FloatingPointError if the loss or its gradient is no longer finite.
    """
    if not plan.batch <= size or every < 1:
        raise ValueError(f"plan.batch={plan.batch}, size={size}, every={every}; expected batch <= size and every >= 1")
    with one_thread(), own_randomness(plan.seed), _held_interrupt() as interrupted:
        run = _Run(model, plan, size, label)
        if checkpoint is not None:
            run.resume(Path(checkpoint))
        _train_mode(model)
        try:
            with tqdm(total=plan.updates, initial=run.done, desc=label, file=sys.stdout, leave=False, delay=2) as bar:
                while run.done < plan.updates:
                    run.update(loss, observe)
                    bar.update()
                    if interrupted or run.done % every == 0 or run.done == plan.updates:
                        bar.set_postfix_str(f"loss {run.check():.3f}", refresh=False)
                        if checkpoint is not None and not run.save(Path(checkpoint)):
                            checkpoint = None
                    if interrupted:
                        raise KeyboardInterrupt(f"{label} interrupted after update {run.done} of {plan.updates}")
        finally:
            model.eval()
    return run.losses.tolist()


class _Run:
    """All that a training run is between two updates, so that it can be written to a file and go on from there."""

    def __init__(self, model, plan, size, label):
        self.model, self.plan, self.size, self.label, self.done = model, plan, size, label, 0
        if not (parameters := {name: p for name, p in model.named_parameters() if p.requires_grad}):
            raise ValueError(f"model {type(model).__name__} has nothing to train: no parameter requires a gradient")
        self.parameters, device = parameters, next(iter(parameters.values())).device
        self.optimiser = torch.optim.AdamW(parameters.values(), lr=plan.peak, weight_decay=plan.weight_decay,
                                           fused=device.type in ("cpu", "cuda"))  # a third of the unfused step's time
        rows = torch.Generator().manual_seed(plan.seed)
        self.generators = {"noise": torch.Generator(), "global": torch.default_generator} | (
            {"cuda": torch.cuda.default_generators[device.index]} if device.type == "cuda" else {})
        for generator in self.generators.values():
            generator.manual_seed(int(torch.randint(2**31, (), generator=rows)))
        self.generators["rows"] = rows
        self.order, self.losses = torch.empty(0, dtype=torch.int64), torch.zeros(plan.updates, device=device)
        self.owner = {"kind": "resume", "plan": asdict(plan), "size": size, "trained": list(parameters),
                      "generators": list(self.generators)}  # what a resume file must have been written for

    def update(self, loss, observe):
        """Take one step of the optimiser on the next batch of rows."""
        self.optimiser.param_groups[0]["lr"] = learning_rate(self.done, self.plan)
        if len(self.order) < self.plan.batch:
            self.order = torch.cat([self.order, torch.randperm(self.size, generator=self.generators["rows"])])
        index, self.order = self.order[:self.plan.batch], self.order[self.plan.batch:]  # (B,)
        value = loss(index, self.generators["noise"])
        if not isinstance(value, Tensor) or value.dim() > 0:
            raise ValueError(f"loss returned {getattr(value, 'shape', type(value).__name__)}; expected a scalar tensor")
        self.optimiser.zero_grad()
        value.backward()
        if observe is not None:
            observe(self.done, self.model, value)
        self.norm = nn.utils.clip_grad_norm_(self.parameters.values(), self.plan.clip)
        self.optimiser.step()
        self.losses[self.done] = value.detach()
        self.done += 1

    def check(self):
        """Return the last loss; FloatingPointError when a loss or the last gradient is not finite."""
        wrong = (~self.losses[:self.done].isfinite()).nonzero().flatten().tolist()
        if wrong or not self.norm.isfinite():
            raise FloatingPointError(f"{self.label}: loss or gradient not finite at update {[*wrong, self.done - 1][0]}"
                                     f"; lower plan.peak={self.plan.peak} or look for log(0) and 0/0 in the loss")
        return float(self.losses[self.done - 1])

    def save(self, path):
        """Write the run to `path` and return whether that worked; one printed line says why not."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"optimiser.{field}.{name}": value for name, parameter in self.parameters.items()
                    for field, value in self.optimiser.state[parameter].items()}
        tensors |= {f"generator.{name}": generator.get_state() for name, generator in self.generators.items()}
        tensors |= {"order": self.order, "losses": self.losses[:self.done]}
        try:
            write_tensors(path, tensors, {"owner": self.owner, "label": self.label, "done": self.done})
            return True
        except OSError as error:
            print(f"{self.label}: cannot write the resume file ({error}); training goes on without one")
            return False

    def resume(self, path):
        """Go on from the file at `path`, if there is one; a damaged or foreign one is set aside with a printed line."""
        if not path.exists():
            return
        try:
            tensors, found = read_tensors(path)
        except ValueError as error:
            return set_aside(path, "damaged", f"{self.label}: {error}")
        weights = {name[6:]: value for name, value in tensors.items() if name.startswith("model.")}
        if found.get("owner") != self.owner or misfit(weights, self.model):
            return set_aside(path, "foreign", f"{self.label}: {path} belongs to another plan, size or model")
        self.model.load_state_dict(weights)
        for name, parameter in self.parameters.items():
            self.optimiser.state[parameter] = {
                field: tensors[f"optimiser.{field}.{name}"].to(parameter.device)
                for field in ("step", "exp_avg", "exp_avg_sq") if f"optimiser.{field}.{name}" in tensors}
        for name, generator in self.generators.items():
            generator.set_state(tensors[f"generator.{name}"])
        self.order, self.done, self.losses[:found["done"]] = tensors["order"], found["done"], tensors["losses"]


def _train_mode(model):
    """Put the model in train mode, but for modules with frozen parameters only: their statistics must not drift."""
    model.train()
    for module in model.modules():
        if {p.requires_grad for p in module.parameters()} == {False}:
            module.eval()


@contextmanager
def _held_interrupt():
    """Yield a list that the first Ctrl-C in the block fills instead of stopping it half-way; the second one stops."""
    held, before = [], signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield held
        return
    signal.signal(signal.SIGINT, lambda *_: (held.append(True), signal.signal(signal.SIGINT, before)))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)
