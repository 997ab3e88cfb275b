"""The study hard_attention: soft attention, its argmax, and hard attention by every estimator, on two objects."""

import os
import tempfile
from unittest.mock import patch

import torch

from course_utils import recipes
from course_utils.captioners import AttentionCaptioner
from course_utils.captioners.attention import hard, soft
from course_utils.hard_attention import hard_loss
from course_utils.recipes_attention import HARD, hard_attention_captioner, soft_attention
from course_utils.studies.yardsticks import cost_in_yardsticks
from course_utils.vocabulary import course_vocabulary

VARIANTS = ("soft", "soft decoded hard", *HARD)
METRICS = ("exact_match", "soft_exact_match", "gradient_variance", "yardsticks")


def gradient_variance(model: AttentionCaptioner, estimator: str, image: torch.Tensor, captions: torch.Tensor,
                      draws: int = 40) -> float:
    """Return the variance of the estimated gradient at the query weights over draws, relative to its squared mean."""
    generator, gradients, baseline = torch.Generator().manual_seed(0), [], model.baseline
    for _ in range(draws):
        model.baseline = baseline  # as it is in training: the draws must not teach it these captions
        loss = hard_loss(model, image, captions, generator, estimator)
        gradients.append(torch.autograd.grad(loss, model.W_q)[0].flatten())
    stack = torch.stack(gradients)  # (draws, weights)
    model.baseline = baseline
    return (stack.var(0).sum() / stack.mean(0).square().sum()).item()


def job(variant: str, seed: int) -> dict[str, float]:
    """Return exact_match as decoded by the variant, soft_exact_match of the same weights decoded softly, the relative
    gradient_variance of its estimator at its weights (0 where nothing is drawn), and the cost of all its training."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, COURSE_CACHE=folder):
        grids, test = recipes.grids(seed), recipes.data(seed)["test"]
        train = soft_attention if variant not in HARD else hard_attention_captioner
        (model, info), cost = cost_in_yardsticks(
            "soft_attention", lambda: train(seed=seed) if variant not in HARD else train(variant, seed))
    if variant == "soft decoded hard":
        model.choose = hard
    captions = test.reference_ids(course_vocabulary())[:64, 0]  # (64, T)
    spread = gradient_variance(model, HARD[variant][0], grids["test"][:64], captions) if variant in HARD else 0.0
    score = recipes.evaluate(model, grids["test"], test)
    model.choose = soft
    softly = recipes.evaluate(model, grids["test"], test)
    return {**score, "soft_exact_match": softly["exact_match"], "gradient_variance": spread, "yardsticks": cost,
            "updates": len(info["losses"])}
