"""BLEU (Papineni et al. 2002): clipped n-gram precision pooled over the corpus, times a brevity penalty."""

import math
from collections import Counter
from typing import NamedTuple

from .captions import Scores, checked


class BleuCounts(NamedTuple):
    """The integers behind BLEU: per order the clipped matches and the n-grams, and the two lengths in words."""

    matches: tuple[int, ...]
    totals: tuple[int, ...]
    candidate_length: int
    reference_length: int

    @property
    def precisions(self) -> tuple[float, ...]:
        """Clipped precision of each order, 0 where there is no n-gram."""
        return tuple(match / total if total else 0.0 for match, total in zip(self.matches, self.totals, strict=True))

    @property
    def penalty(self) -> float:
        """Brevity penalty: 1 for a candidate no shorter than the reference, else exp(1 - reference / candidate)."""
        if self.candidate_length >= self.reference_length:
            return 1.0
        return math.exp(1 - self.reference_length / self.candidate_length) if self.candidate_length else 0.0

    @property
    def bleu(self) -> tuple[float, ...]:
        """BLEU-1 to BLEU-max_order, without smoothing: 0 as soon as one order has no match."""
        penalty, product, values = self.penalty, 1.0, []
        for order, precision in enumerate(self.precisions, 1):
            product *= precision
            values.append(penalty * product ** (1 / order))  # geometric mean of the precisions so far
        return tuple(values)


def bleu_image_counts(candidate: list[str], references: list[list[str]], max_order: int = 4) -> BleuCounts:
    """Return the counts of one image; captions are lists of words.

    An n-gram matches at most as often as it occurs in the one reference that has it most often (the clip).
    The reference length is the closest to the candidate's; of two equally close ones the shorter.
    """
    length, matches, found = len(candidate), [], True
    shifted = [[words[start:] for start in range(max_order)] for words in (candidate, *references)]
    for n in range(1, max_order + 1):
        if found:  # where no shorter n-gram matches, none of this order does
            grams, *pools = [zip(*starts[:n]) for starts in shifted]
            known = set().union(*pools)
            found = [gram for gram in grams if gram in known]
        clipped = len(found)
        if clipped > len(set(found)):  # only a repeated n-gram can exceed its limit
            pools = [list(zip(*starts[:n])) for starts in shifted[1:]]
            clipped = sum(min(count, max(pool.count(gram) for pool in pools)) for gram, count in Counter(found).items())
        matches.append(clipped)
    totals = [max(0, length - n + 1) for n in range(1, max_order + 1)]
    closest = min([(abs(len(reference) - length), len(reference)) for reference in references])[1]
    return BleuCounts(tuple(matches), tuple(totals), length, closest)


def bleu_counts(*, candidates: list, references: list, max_order: int = 4) -> Scores:
    """Return the BleuCounts of the corpus (sums over the images) and of every image.

    candidates: one caption an image; references: a list of captions an image; a caption is a str, split at white space,
    or a list of words. Bad input raises TypeError or ValueError (see `checked`).
    """
    if not isinstance(max_order, int) or isinstance(max_order, bool) or max_order < 1:
        raise ValueError(f"max_order is {max_order!r}; expected a positive integer, usually 4")
    candidates, references = checked(candidates, references)
    images = [bleu_image_counts(*pair, max_order) for pair in zip(candidates, references, strict=True)]
    matches, totals, lengths, closest = zip(*images, strict=True)
    pooled = [tuple(map(sum, zip(*rows, strict=True))) for rows in (matches, totals)]
    return Scores(BleuCounts(*pooled, sum(lengths), sum(closest)), images)


def bleu(*, candidates: list, references: list, max_order: int = 4) -> Scores:
    """Return BLEU-1 to BLEU-max_order of the corpus, and of every image on its own, as tuples of values in [0, 1].

    Unsmoothed, as Papineni et al. (2002) define it: the counts are summed over the corpus before any division, so the
    corpus value is not the mean of the images. An image without a matching 4-gram has BLEU-4 = 0.
    Input and errors as in `bleu_counts`.
    """
    counts = bleu_counts(candidates=candidates, references=references, max_order=max_order)
    return Scores(counts.corpus.bleu, [image.bleu for image in counts.images])
