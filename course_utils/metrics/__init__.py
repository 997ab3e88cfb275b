"""Caption metrics in pure Python: corpus value and one value an image, from words split at white space.

Nothing is lower-cased, stripped or tokenised here: whoever changes the text does so before, on both sides alike.
"""

from .bleu import BleuCounts, bleu, bleu_counts, bleu_image_counts
from .captions import Scores, exact_match, ngram_counts, ngrams
from .cider import DocumentFrequency, cider_d, document_frequency
from .meteor import fewest_chunks, meteor_2005
from .rouge import longest_common_subsequence, rouge_l
from .scene import scene_tuple_f1, scene_tuples

__all__ = [
    "BleuCounts",
    "DocumentFrequency",
    "Scores",
    "bleu",
    "bleu_counts",
    "bleu_image_counts",
    "cider_d",
    "document_frequency",
    "exact_match",
    "fewest_chunks",
    "longest_common_subsequence",
    "meteor_2005",
    "ngram_counts",
    "ngrams",
    "rouge_l",
    "scene_tuple_f1",
    "scene_tuples",
]
