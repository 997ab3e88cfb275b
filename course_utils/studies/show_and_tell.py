"""The study show_and_tell: Show and Tell as a ReLU RNN, as an LSTM, and as an LSTM with each remedy."""

import os
import tempfile
from unittest.mock import patch

from course_utils import recipes
from course_utils.studies.yardsticks import cost_in_yardsticks

VARIANTS = tuple(recipes.SHOW_AND_TELL)
METRICS = ("exact_match", "bleu4", "binding_swaps", "distinct", "encoder_all_seven", "encoder_yardsticks", "yardsticks")


def job(variant: str, seed: int) -> dict[str, float]:
    """Return the scores of one variant on the test scenes of one seed, which has scenes and an encoder of its own.

    Everything is trained afresh, so that the costs, in yardsticks "encoder" and "show_and_tell", are those of training.
    """
    test = recipes.data(seed)["test"]  # drawn here, so that its time is not taken for the encoder's
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, COURSE_CACHE=folder):
        (_, encoder_info), encoder_cost = cost_in_yardsticks("encoder", lambda: recipes.encoder(seed))
        grids = recipes.grids(seed)
        (model, info), cost = cost_in_yardsticks("show_and_tell", lambda: recipes.show_and_tell(variant, seed))
    scores = recipes.evaluate(model, grids["test"], test)
    return {**scores, "encoder_all_seven": encoder_info["all_seven"], "encoder_yardsticks": encoder_cost,
            "yardsticks": cost, "updates": len(info["losses"])}
