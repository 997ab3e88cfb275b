"""METEOR of 2005 (Banerjee and Lavie): unigram F-measure weighted to recall, less a penalty for scattered matches.

Not METEOR 1.5, which captioning papers print: that one needs Java, synonyms, paraphrases and trained weights.
"""

from collections import Counter
from collections.abc import Callable

from .captions import Scores, checked, mean_scores

OPEN_ALIGNMENTS = 1000


def word_places(caption: list[str]) -> dict[str, list[int]]:
    """Return the positions of every word of a caption, in reading order."""
    places = {}
    for position, word in enumerate(caption):
        places.setdefault(word, []).append(position)
    return places


def last_first_chunks(candidate: list[str], reference: list[str]) -> int:
    """Return the chunks when every word, from the last to the first, takes the last equal word still free (NLTK)."""
    places, chunks, following = word_places(reference), 0, -2
    for word in reversed(candidate):
        spot = places[word].pop() if places.get(word) else -2
        chunks += spot >= 0 and spot != following - 1
        following = spot
    return chunks


def fewest_chunks(candidate: list[str], reference: list[str]) -> int:
    """Return the fewest runs, adjacent and in order in both captions, into which the matched words can be grouped.

    As many words as possible are matched, each to an equal word. Exact while at most 1,000 partial alignments are open;
    beyond that, which only captions that repeat a word many times reach, the best 1,000 go on.
    """
    places = word_places(reference)
    left = Counter(candidate)
    alignments = {(0, -2): 0}  # (bits of the reference words used, place of the last match) -> chunks
    for word in candidate:
        spots = places.get(word, ())
        left[word] -= 1
        extended = {}
        for (used, last), chunks in alignments.items():
            free = [spot for spot in spots if not used >> spot & 1]
            options = [((used | 1 << spot, spot), chunks + (spot != last + 1)) for spot in free]
            if len(free) <= left[word]:  # words enough to come: this one may stay unmatched
                options.append(((used, -2), chunks))
            for key, count in options:
                if count < extended.get(key, count + 1):
                    extended[key] = count
        if len(extended) > OPEN_ALIGNMENTS:
            extended = dict(sorted(extended.items(), key=lambda item: item[1])[:OPEN_ALIGNMENTS])
        alignments = extended
    return min(alignments.values())


RULES = {"fewest_chunks": fewest_chunks, "last_first": last_first_chunks}


def meteor_2005(
    *, candidates: list, references: list, stem: Callable[[str], str] | None = None, rule: str = "fewest_chunks"
) -> Scores:
    """Return METEOR of 2005, in [0, 1): the mean over the images, and for each the value of its best reference.

    F = 10 P R / (R + 9 P), times 1 - 0.5 (chunks / matches)^3; a perfect caption of w words gets 1 - 0.5 / w^3.
    stem: a function from word to stem; words then match when their stems do. None matches equal words only.
    rule says which of two equal words is matched when one of them stays free: "fewest_chunks", the rule of later METEOR
    (the paper asks for the fewest crossings), or "last_first", the quicker rule of NLTK, never above it.
    Captions are str or lists of words; bad input raises TypeError or ValueError (see `checked`).
    """
    if stem is not None and not callable(stem):
        raise TypeError(f"stem is {stem!r}; expected a function from word to stem, or None")
    if rule not in RULES:
        raise ValueError(f"rule is {rule!r}; expected one of {', '.join(RULES)}")
    candidates, references = checked(candidates, references)
    if stem is not None:
        stems = {word: stem(word) for image in [candidates, *references] for caption in image for word in caption}
        candidates = [[stems[word] for word in caption] for caption in candidates]
        references = [[[stems[word] for word in caption] for caption in image] for image in references]
    images = []
    for candidate, others in zip(candidates, references, strict=True):
        best, counts = 0.0, Counter(candidate)
        for reference in others:
            matches = sum((counts & Counter(reference)).values())
            if matches:
                precision, recall = matches / len(candidate), matches / len(reference)
                f_mean = 10 * precision * recall / (recall + 9 * precision)
                chunks = RULES[rule](candidate, reference)
                best = max(best, f_mean * (1 - 0.5 * (chunks / matches) ** 3))
        images.append(best)
    return mean_scores(images)
