"""CIDEr-D (Vedantam et al. 2015): tf-idf similarity of n-grams to the references, with clip and length term."""

import math
from collections import Counter
from typing import NamedTuple

from .captions import Scores, checked, mean_scores, ngram_counts, reference_words

SIGMA = 6.0
ORDERS = 4


class DocumentFrequency(NamedTuple):
    """In how many images' references each n-gram occurs, and how many images there are."""

    counts: Counter
    images: int

    def weights(self) -> dict[tuple[str, ...], float]:
        """Return the squared inverse document frequency log(images / count)^2 of every n-gram counted."""
        return {gram: math.log(self.images / count) ** 2 for gram, count in self.counts.items()}


def count_documents(references: list[list[list[str]]]) -> DocumentFrequency:
    """Return the document frequencies of references given as lists of words: an image counts once for each n-gram."""
    counts = Counter()
    for captions in references:
        counts.update(set().union(*[ngram_counts(words, ORDERS) for words in captions]))
    return DocumentFrequency(counts, len(references))


def document_frequency(*, references: list) -> DocumentFrequency:
    """Return the document frequencies of a corpus, to be counted once and given to `cider_d` as its `corpus`.

    references: a list of captions an image, each a str or a list of words; errors as in `checked`.
    """
    return count_documents(reference_words(references))


def norms(counts: dict[tuple[str, ...], int], weights: dict, unseen: float) -> list[float]:
    """Return the norm of the tf-idf vector of each order, from the n-gram counts of a caption."""
    squares = [0.0] * ORDERS
    for gram, count in counts.items():
        squares[len(gram) - 1] += count * count * weights.get(gram, unseen)
    return [math.sqrt(square) for square in squares]


def cider_d_image(candidate: list[str], references: list[list[str]], weights: dict, unseen: float) -> float:
    """Return CIDEr-D of one image on the x10 scale.

    Per order: sum over n-grams of min(tf_c, tf_r) tf_r idf^2 / (norm_c norm_r), averaged over the four orders; times
    exp(-(l_c - l_r)^2 / 2 sigma^2); averaged over the references. As in the authors' code l counts bigrams.
    weights: idf^2 of every n-gram; unseen: idf^2 of one that no reference of the corpus has.
    """
    ours, total = ngram_counts(candidate, ORDERS), 0.0
    our_norms = norms(ours, weights, unseen)
    for reference in references:
        theirs, dots = ngram_counts(reference, ORDERS), [0.0] * ORDERS
        for gram, count in ours.items():
            if gram in theirs:
                dots[len(gram) - 1] += min(count, theirs[gram]) * theirs[gram] * weights.get(gram, unseen)
        pairs = zip(dots, our_norms, norms(theirs, weights, unseen), strict=True)
        cosines = [dot / (our_norm * their_norm) for dot, our_norm, their_norm in pairs if dot]
        difference = max(1, len(candidate)) - max(1, len(reference))
        total += sum(cosines) / ORDERS * math.exp(-(difference**2) / (2 * SIGMA**2))
    return 10 * total / len(references)


def cider_d(*, candidates: list, references: list, corpus: list | DocumentFrequency | None = None) -> Scores:
    """Return CIDEr-D, 0 to 10 (papers print a hundred times that): the mean over the images, and the value of each.

    corpus: where document frequency is counted, as a list of references an image or what `document_frequency` returned;
    None counts it in `references`. With references of a single image every idf is log(1/1) = 0, so CIDEr-D is 0: give
    a corpus then. A caption of w < 4 words reaches 2.5 w at most: it has no n-grams of the higher orders.
    Captions are str or lists of words; bad input raises TypeError or ValueError (see `checked`).
    """
    candidates, references = checked(candidates, references)
    if corpus is None:
        corpus = count_documents(references)
    elif not isinstance(corpus, DocumentFrequency):
        corpus = count_documents(reference_words(corpus, "corpus"))
    weights, unseen = corpus.weights(), math.log(corpus.images) ** 2
    pairs = zip(candidates, references, strict=True)
    return mean_scores([cider_d_image(candidate, others, weights, unseen) for candidate, others in pairs])
