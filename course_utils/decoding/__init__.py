"""Decoding: from a model's next-word probabilities to captions, for any captioner, through `init_state` and `step`."""

from course_utils.decoding.beams import advance, extend, hopeless, length_penalty, retire
from course_utils.decoding.common import Choice, Decoded, Expansion, score
from course_utils.decoding.rules import ban_repeats, forbid
from course_utils.decoding.sampling import keep_top_k, keep_top_p, sample
from course_utils.decoding.search import advance_groups, beam_search, diverse_beam_search, greedy

__all__ = [
    "Choice", "Decoded", "Expansion", "advance", "advance_groups", "ban_repeats", "beam_search", "diverse_beam_search",
    "extend", "forbid", "greedy", "hopeless", "keep_top_k", "keep_top_p", "length_penalty", "retire", "sample", "score",
]  # fmt: skip
