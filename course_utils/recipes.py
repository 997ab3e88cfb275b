"""The course's standard data and trained models, trained once and cached: what every notebook stands on."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from course_utils import encoders, scenes
from course_utils.cache import cached
from course_utils.captioners import Captioner, ShowTellLSTM, ShowTellRNN
from course_utils.decoding import greedy
from course_utils.failures import tally
from course_utils.metrics import bleu, exact_match
from course_utils.training import Plan, fit, scheduled_sampling_logits, teacher_forcing_loss
from course_utils.vocabulary import course_vocabulary

ENCODER_PLAN = Plan(updates=2400, batch=32, peak=8e-3)
SHOW_AND_TELL_PLAN = Plan(updates=3200, batch=64, peak=3e-3)
SHORT_PLAN = Plan(updates=2256, batch=32, peak=3e-3)  # twelve epochs of 6,000 scenes

# name -> (captioner, its options, plan, training scenes used); the variants of the study show_and_tell
SHOW_AND_TELL = {
    "ShowTellRNN": (ShowTellRNN, {}, SHOW_AND_TELL_PLAN, 16_000),
    "ShowTellRNN short": (ShowTellRNN, {}, SHORT_PLAN, 6_000),
    "ShowTellLSTM": (ShowTellLSTM, {}, SHOW_AND_TELL_PLAN, 16_000),
    "ShowTellLSTM forget bias": (ShowTellLSTM, {"forget_bias": 1.0}, SHOW_AND_TELL_PLAN, 16_000),
    "ShowTellLSTM image as input": (ShowTellLSTM, {"image": "input"}, SHOW_AND_TELL_PLAN, 16_000),
    "ShowTellLSTM linear cell": (ShowTellLSTM, {"squash_cell": False}, SHOW_AND_TELL_PLAN, 16_000),
    "ShowTellLSTM normalised image": (ShowTellLSTM, {"normalise": True}, SHOW_AND_TELL_PLAN, 16_000),
}


@lru_cache(maxsize=1)
def data(seed: int = 0) -> dict[str, scenes.Scenes]:
    """Return the train, validation and test scenes (16,000, 1,000, 1,000) that the course's models learn from."""
    return scenes.splits(seed=seed)


def encoder(seed: int = 0) -> encoders.GridEncoder:
    """Return the grid encoder, pretrained on the attributes of the training scenes."""

    def train(model, checkpoint):
        train_scenes, validation = data(seed)["train"], data(seed)["validation"]
        losses = fit(model, lambda index, generator: encoders.attribute_loss(model, train_scenes, index), plan,
                     len(train_scenes), "encoder", checkpoint)
        each, all_seven = encoders.attribute_accuracy(model, validation)
        return {"losses": losses, "each": each.tolist(), "all_seven": all_seven}

    plan = replace(ENCODER_PLAN, seed=seed)
    return cached("encoder", {"plan": plan, "seed": seed}, encoders.GridEncoder, train, (scenes, encoders))


@lru_cache(maxsize=1)
def grids(seed: int = 0) -> dict[str, Tensor]:
    """Return the grids (N, 64, 48) of all scenes of data(seed), each encoded once."""
    model, _ = encoder(seed)
    return {name: encoders.encode(model, part.images) for name, part in data(seed).items()}


def caption_loss(model: Captioner, image: Tensor, references: Tensor, epsilon: float = 1.0) -> Callable:
    """Return loss(index, generator) for `fit`: of each scene one reference, drawn anew at every visit.

    image (N, L, D) and references (N, R, T) int64 of all training scenes; epsilon < 1 mixes the model's own words in
    (scheduled sampling).
    """

    def loss(index: Tensor, generator: torch.Generator) -> Tensor:
        pick = torch.randint(references.shape[1], (len(index),), generator=generator)
        captions = references[index, pick]  # (B, T)
        return teacher_forcing_loss(
            scheduled_sampling_logits(model, image[index], captions, epsilon, generator), captions)

    return loss


def show_and_tell(variant: str = "ShowTellRNN", seed: int = 0) -> tuple[Captioner, dict]:
    """Return one captioner of SHOW_AND_TELL, trained on the grids of data(seed), and its info: losses."""
    if variant not in SHOW_AND_TELL:
        raise ValueError(f"variant is {variant!r}; expected one of {', '.join(SHOW_AND_TELL)}")
    kind, options, plan, size = SHOW_AND_TELL[variant]
    plan, words = replace(plan, seed=seed), course_vocabulary()

    def train(model, checkpoint):
        references = data(seed)["train"].reference_ids(words)
        loss = caption_loss(model, grids(seed)["train"], references)
        return {"losses": fit(model, loss, plan, size, variant, checkpoint)}

    config = {"variant": variant, "options": options, "plan": plan, "size": size, "encoder": ENCODER_PLAN, "seed": seed}
    return cached(variant.replace(" ", "-"), config, lambda: kind(len(words), **options), train,
                  (scenes, encoders, caption_loss), words)


def evaluate(model: Captioner, image: Tensor, part: scenes.Scenes) -> dict[str, float]:
    """Return exact_match, bleu4, binding_swaps (share of captions) and distinct captions of the greedy captions.

    image (N, L, D) are the grids of the scenes in part.
    """
    candidates = course_vocabulary().decode_batch(greedy(model, image).tokens)
    references = [part.references(i) for i in range(len(part))]
    return {"exact_match": exact_match(candidates=candidates, references=references).corpus,
            "bleu4": bleu(candidates=candidates, references=references).corpus[3],
            "binding_swaps": tally(candidates=candidates, references=references)["binding swap"] / len(part),
            "distinct": len(set(candidates))}
