"""The study hard_scenes: Show and Tell against soft attention on four objects, at equal compute."""

import os
import tempfile
from unittest.mock import patch

from course_utils import recipes
from course_utils.recipes_attention import HARD_SCENES_PLANS, hard_scenes, hard_scenes_captioner
from course_utils.studies.yardsticks import cost_in_yardsticks

VARIANTS = tuple(HARD_SCENES_PLANS)
METRICS = ("exact_match", "bleu4", "binding_swaps", "yardsticks")


def job(variant: str, seed: int) -> dict[str, float]:
    """Return the scores of one variant on the test scenes of one seed, trained afresh."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, COURSE_CACHE=folder):
        parts, grids, _ = hard_scenes(seed)
        (model, info), cost = cost_in_yardsticks("soft_attention", lambda: hard_scenes_captioner(variant, seed))
    return {**recipes.evaluate(model, grids["test"], parts["test"]), "yardsticks": cost, "updates": len(info["losses"])}
