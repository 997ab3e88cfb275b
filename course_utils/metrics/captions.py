"""What every caption metric shares: the result, n-grams, and the check of captions, which splits them into words."""

import re
from typing import Any, NamedTuple

LINE_BREAK = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


class Scores(NamedTuple):
    """The value of a metric on the whole corpus, and its value on each image in the order given."""

    corpus: Any
    images: list


def ngrams(words: list[str], n: int) -> list[tuple[str, ...]]:
    """Return the n-grams of a caption in reading order, len(words) - n + 1 of them or none."""
    return list(zip(*[words[start:] for start in range(n)]))


def ngram_counts(words: list[str], max_order: int = 4) -> dict[tuple[str, ...], int]:
    """Return how often each n-gram of order 1 to max_order stands in a caption, in reading order within an order."""
    starts, counts = [words[start:] for start in range(max_order)], {}
    for n in range(1, max_order + 1):
        for gram in zip(*starts[:n]):
            counts[gram] = counts.get(gram, 0) + 1
    return counts


def mean_scores(images: list[float]) -> Scores:
    """Return the scores whose corpus value is the mean over the images."""
    return Scores(sum(images) / len(images), images)


def caption_words(caption: str | list[str], name: str, *place: int) -> list[str]:
    """Return the words of one caption, a str or a list of words; an error calls it by `name` and its place there."""
    if isinstance(caption, str) and not LINE_BREAK.search(caption):
        return caption.split()
    name += "".join(f"[{index}]" for index in place)
    if isinstance(caption, str):
        raise ValueError(
            f"{name} holds a line break: {caption!r}; line-based scorers would shift every later caption, "
            "so replace it by a space"
        )
    if not isinstance(caption, (list, tuple)):
        raise TypeError(f"{name} is {caption!r}; expected a str or a list of words")
    if not all(isinstance(word, str) for word in caption):
        raise TypeError(f"{name} is {caption!r}; every word must be a str: decode token ids first")
    if not all(caption) or any(" " in word or LINE_BREAK.search(word) for word in caption):
        raise ValueError(f"{name} is {caption!r}; a word is not empty and holds no space: split the caption first")
    return list(caption)


def listed(value: Any, name: str, what: str) -> list:
    """Return `value` when it is a list or tuple that is not empty; raise otherwise, saying `what` it should hold."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} is a {type(value).__name__}; expected a list of {what}: [...]")
    if not value:
        raise ValueError(f"{name} is empty; expected a list of at least one of {what}")
    return value


def reference_words(references: list, name: str = "references") -> list[list[list[str]]]:
    """Return the words of every reference of every image; TypeError or ValueError names the one that is wrong."""
    return [
        [
            caption_words(caption, name, image, number)
            for number, caption in enumerate(listed(captions, f"{name}[{image}]", "captions of that image"))
        ]
        for image, captions in enumerate(listed(references, name, "caption lists, one an image"))
    ]


def checked(candidates: list, references: list) -> tuple[list[list[str]], list[list[list[str]]]]:
    """Return the words of the candidates (one an image) and of the references (a list an image).

    Raises TypeError for a str or dict where a list belongs and for words that are not str; ValueError for an empty
    list, unequal lengths, a line break inside a caption, and an empty word or a space inside a word.
    """
    candidates = listed(candidates, "candidates", "captions, one an image")
    words = [caption_words(caption, "candidates", image) for image, caption in enumerate(candidates)]
    others = reference_words(references)
    if len(words) != len(others):
        raise ValueError(
            f"{len(words)} candidates, {len(others)} reference lists; expected as many: references[i] lists every "
            "reference of candidates[i]"
        )
    return words, others


def exact_match(*, candidates: list, references: list) -> Scores:
    """Return the share of candidates that equal one of their references word for word; 1.0 or 0.0 an image.

    Captions are str or lists of words; bad input raises TypeError or ValueError (see `checked`).
    """
    candidates, references = checked(candidates, references)
    return mean_scores([float(words in others) for words, others in zip(candidates, references, strict=True)])
