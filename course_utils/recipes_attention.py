"""The standard captioners with attention: soft and hard on two objects, and the harder scenes where looking pays."""

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from course_utils import encoders, hard_attention, scenes
from course_utils.attention import doubly_stochastic_penalty
from course_utils.cache import cached
from course_utils.captioners import AttentionCaptioner, Captioner, ShowTellRNN
from course_utils.captioners.attention import hard
from course_utils.recipes import ENCODER_PLAN, caption_loss, data, grids
from course_utils.training import Plan, fit, teacher_forcing_loss
from course_utils.vocabulary import PAD, T_MAX, course_vocabulary

SOFT_PLAN = Plan(updates=1500, batch=64, peak=6e-3)
WARM_PLAN = Plan(updates=400, batch=64, peak=2e-3)
PENALTY = 0.01  # weight of the doubly stochastic term in the variant of that name

# name -> options of AttentionCaptioner; each differs from "soft" (Xu et al. with a dot product) in one thing
SOFT = {
    "soft": {"word_query": False},
    "soft without coordinates": {"word_query": False, "places": False},
    "soft with word query": {"word_query": True},
    "additive": {"word_query": False, "scoring": "additive"},
    "doubly stochastic": {"word_query": False},
    "gated": {"word_query": False, "gate": True},
    "adaptive": {"word_query": False, "sentinel": True},
}

# name -> (estimator, starts from the trained soft captioner, plan)
HARD = {
    "hard warm": ("straight through", True, WARM_PLAN),
    "hard scratch": ("straight through", False, SOFT_PLAN),
    "score function": ("score function", False, SOFT_PLAN),
    "leave one out": ("leave one out", False, replace(SOFT_PLAN, batch=16)),  # four draws a caption: as many passes
    "top m": ("top m", False, SOFT_PLAN),
}

HARD_SCENES = scenes.Recipe(objects=4, canvas=48, layout=4)
HARD_SCENES_PLANS = {"soft": SOFT_PLAN, "ShowTellRNN": Plan(updates=6500, batch=64, peak=3e-3)}


def penalised_loss(model: AttentionCaptioner, image: Tensor, references: Tensor, weight: float):
    """Return loss(index, generator) for `fit`: teacher forcing plus weight * the doubly stochastic penalty, summed over
    locations as in Xu et al.; image (N, L, D), references (N, R, T) int64."""

    def loss(index: Tensor, generator: torch.Generator) -> Tensor:
        captions = references[index, torch.randint(references.shape[1], (len(index),), generator=generator)]
        glances = model.unroll(image[index], captions)
        penalty = doubly_stochastic_penalty(glances.alpha, captions[:, 1:] != PAD) * glances.alpha.shape[-1]
        return teacher_forcing_loss(glances.logits, captions) + weight * penalty

    return loss


def soft_attention(variant: str = "soft with word query", seed: int = 0) -> tuple[AttentionCaptioner, dict]:
    """Return one captioner of SOFT, trained on the grids of data(seed), and its info: losses."""
    if variant not in SOFT:
        raise ValueError(f"variant is {variant!r}; expected one of {', '.join(SOFT)}")
    plan, words = replace(SOFT_PLAN, seed=seed), course_vocabulary()
    weight = PENALTY if variant == "doubly stochastic" else 0.0

    def train(model, checkpoint):
        references, image = data(seed)["train"].reference_ids(words), grids(seed)["train"]
        loss = penalised_loss(model, image, references, weight) if weight else caption_loss(model, image, references)
        return {"losses": fit(model, loss, plan, len(image), variant, checkpoint)}

    config = {"variant": variant, "options": SOFT[variant], "plan": plan, "penalty": weight, "encoder": ENCODER_PLAN,
              "seed": seed}
    return cached(variant.replace(" ", "-"), config, lambda: AttentionCaptioner(len(words), **SOFT[variant]), train,
                  (scenes, encoders, penalised_loss), words)


def hard_attention_captioner(variant: str = "hard warm", seed: int = 0) -> tuple[AttentionCaptioner, dict]:
    """Return one captioner of HARD, which decodes with the likeliest place, and its info: losses."""
    if variant not in HARD:
        raise ValueError(f"variant is {variant!r}; expected one of {', '.join(HARD)}")
    estimator, warm, plan = HARD[variant]
    plan, words = replace(plan, seed=seed), course_vocabulary()

    def build():
        model = AttentionCaptioner(len(words), choose=hard)
        model.register_buffer("baseline", torch.zeros(T_MAX - 1))
        return model

    def train(model, checkpoint):
        if warm:
            model.load_state_dict(soft_attention(seed=seed)[0].state_dict(), strict=False)
        references, image = data(seed)["train"].reference_ids(words), grids(seed)["train"]

        def loss(index, generator):
            captions = references[index, torch.randint(references.shape[1], (len(index),), generator=generator)]
            return hard_attention.hard_loss(model, image[index], captions, generator, estimator)

        return {"losses": fit(model, loss, plan, len(image), variant, checkpoint)}

    config = {"variant": variant, "estimator": estimator, "warm": warm, "plan": plan, "soft": SOFT_PLAN,
              "encoder": ENCODER_PLAN, "seed": seed}
    return cached(variant.replace(" ", "-"), config, build, train, (scenes, encoders, hard_attention, soft_attention),
                  words)


@lru_cache(maxsize=1)
def hard_scenes(seed: int = 0) -> tuple[dict[str, scenes.Scenes], dict[str, Tensor], encoders.GridEncoder]:
    """Return scenes with four objects on a larger canvas (12,000, 1,000, 1,000), their grids, and their encoder."""
    parts = scenes.splits(HARD_SCENES, train=12_000, seed=seed)
    plan = replace(ENCODER_PLAN, seed=seed)

    def train(model, checkpoint):
        return {"losses": fit(model, lambda index, _: encoders.attribute_loss(model, parts["train"], index), plan,
                              len(parts["train"]), "encoder for four objects", checkpoint)}

    model, _ = cached("encoder-hard-scenes", {"plan": plan, "recipe": HARD_SCENES, "seed": seed},
                      lambda: encoders.GridEncoder(HARD_SCENES.canvas), train, (scenes, encoders))
    return parts, {name: encoders.encode(model, part.images) for name, part in parts.items()}, model


def hard_scenes_captioner(variant: str, seed: int = 0) -> tuple[Captioner, dict]:
    """Return "soft" (the word in the query) or "ShowTellRNN", trained on hard_scenes(seed), and its info: losses."""
    if variant not in HARD_SCENES_PLANS:
        raise ValueError(f"variant is {variant!r}; expected one of {', '.join(HARD_SCENES_PLANS)}")
    plan, words = replace(HARD_SCENES_PLANS[variant], seed=seed), course_vocabulary()
    kind = AttentionCaptioner if variant == "soft" else ShowTellRNN
    locations = (HARD_SCENES.canvas // encoders.PATCH) ** 2

    def train(model, checkpoint):
        parts, image, _ = hard_scenes(seed)
        loss = caption_loss(model, image["train"], parts["train"].reference_ids(words))
        return {"losses": fit(model, loss, plan, len(image["train"]), f"{variant} on four objects", checkpoint)}

    config = {"variant": variant, "plan": plan, "recipe": HARD_SCENES, "encoder": ENCODER_PLAN, "seed": seed}
    return cached(f"hard-scenes-{variant}", config, lambda: kind(len(words), L=locations), train,
                  (scenes, encoders, caption_loss), words)
