"""ROUGE-L (Lin 2004): F-measure of the longest common subsequence, by the rule of the COCO captions evaluation."""

from .captions import Scores, checked, mean_scores


def longest_common_subsequence(places: dict[str, int], length: int, words: list[str]) -> int:
    """Return the length of the longest common subsequence of a caption and `words`.

    places: for each word of the caption an integer whose bit i says that the word stands at position i; length: of the
    caption. One row of the dynamic programme is one integer, whose zero bits mark where the row steps up: a word
    of the other caption costs one addition (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
    """
    row = full = (1 << length) - 1
    for word in words:
        hits = row & places.get(word, 0)
        row = (row + hits) | (row - hits)
    return length - (row & full).bit_count()


def f_measure(precision: float, recall: float, beta: float) -> float:
    """Return the F-measure in which recall weighs beta times as much as precision."""
    if precision == 0 or recall == 0:
        return 0.0
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision)


def rouge_l(*, candidates: list, references: list, beta: float = 1.2, rule: str = "coco") -> Scores:
    """Return ROUGE-L in [0, 1]: the mean over the images, and the value of each.

    rule "coco" takes the best precision and the best recall over the references, possibly of two different ones, as
    the COCO evaluation does; "best_reference" takes the best F-measure of a single reference. beta 1 gives F1.
    Captions are str or lists of words; bad input raises TypeError or ValueError (see `checked`).
    """
    if rule not in ("coco", "best_reference"):
        raise ValueError(f'rule is {rule!r}; expected "coco" or "best_reference"')
    if not isinstance(beta, (int, float)) or not 0 < beta < float("inf"):
        raise ValueError(f"beta is {beta!r}; expected a positive number, 1.2 in the COCO evaluation")
    candidates, references = checked(candidates, references)
    images = []
    for candidate, others in zip(candidates, references, strict=True):
        places = {}
        for position, word in enumerate(candidate):
            places[word] = places.get(word, 0) | 1 << position
        common = [longest_common_subsequence(places, len(candidate), reference) for reference in others]
        precisions = [lcs / max(1, len(candidate)) for lcs in common]
        recalls = [lcs / max(1, len(reference)) for lcs, reference in zip(common, others, strict=True)]
        if rule == "coco":
            images.append(f_measure(max(precisions), max(recalls), beta))
        else:
            images.append(max(f_measure(p, r, beta) for p, r in zip(precisions, recalls, strict=True)))
    return mean_scores(images)
