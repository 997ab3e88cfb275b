"""The study attention: soft attention and what each part of it does, on two objects."""

import os
import tempfile
from unittest.mock import patch

from course_utils import recipes
from course_utils.pointing import pointing
from course_utils.recipes_attention import SOFT, soft_attention
from course_utils.studies.yardsticks import cost_in_yardsticks

VARIANTS = tuple(SOFT)
METRICS = ("exact_match", "bleu4", "binding_swaps", "pointing_colour", "pointing_shape", "pointing_relation",
           "chance_shape", "chance_relation", "entropy", "yardsticks")


def job(variant: str, seed: int) -> dict[str, float]:
    """Return the scores and the pointing accuracy of one variant on the test scenes of one seed, trained afresh."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, COURSE_CACHE=folder):
        grids, test = recipes.grids(seed), recipes.data(seed)["test"]
        (model, info), cost = cost_in_yardsticks("soft_attention", lambda: soft_attention(variant, seed))
    return {**recipes.evaluate(model, grids["test"], test), **pointing(model, grids["test"], test),
            "yardsticks": cost, "updates": len(info["losses"])}
