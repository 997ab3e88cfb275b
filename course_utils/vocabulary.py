"""Tokens and targets: words or characters to ids and back, with the special ids fixed once for the whole course."""

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

PAD, START, END = 0, 1, 2
SPECIAL = ("<pad>", "<start>", "<end>")
UNKNOWN = "<unk>"
T_MAX = 10  # <start>, a caption of eight words, <end>

FACTUAL_WORDS = ("a", "of", "above", "below", "left", "right", "red", "green", "blue", "yellow",
                 "circle", "square", "triangle")
STYLE_WORDS = ("the", "sits", "happily", "hides", "shyly", "waits", "quietly", "smiles", "brightly", "with", "nearby")


class Vocabulary:
    """A fixed order of tokens: <pad> 0, <start> 1, <end> 2, optionally <unk> 3, then the words or characters.

    level: "word" splits a caption at white space, "char" into single characters. unknown: True maps a token that is
    not known to <unk>; False (the default) raises a ValueError that names the nearest known token.
    """

    def __init__(self, words: Sequence[str], level: str = "word", unknown: bool = False):
        if isinstance(words, str):
            raise TypeError(f"words is the str {words!r}; expected a list of tokens, for instance {list(words)[:3]}")
        if level not in ("word", "char"):
            raise ValueError(f"level is {level!r}; expected 'word' or 'char'")
        tokens = SPECIAL + ((UNKNOWN,) if unknown else ()) + tuple(words)
        twice = [word for word, count in Counter(tokens).items() if count > 1]
        if twice:
            raise ValueError(f"words holds {twice[:3]} more than once, or as a special token; expected each once")
        if never := [word for word in words if split(word, level) != [word]]:
            raise ValueError(f"words holds {never[:3]}, which no caption gives at level {level!r}; expected tokens")
        self.words, self.level, self.unknown = tokens, level, unknown
        self._ids = {word: i for i, word in enumerate(tokens)}

    @classmethod
    def from_captions(cls, captions: Iterable[str], level: str = "word", min_count: int = 1,
                      unknown: bool = False) -> "Vocabulary":
        """Return the vocabulary of training captions: tokens with at least min_count occurrences, commonest first."""
        if min_count < 1:
            raise ValueError(f"min_count is {min_count}; expected at least 1")
        if isinstance(captions, str):
            raise TypeError(f"captions is the str {captions!r}; expected a list of captions: wrap it in [ ]")
        counts = Counter(token for caption in captions for token in split(caption, level))
        order = sorted(counts, key=lambda token: (-counts[token], token))
        return cls([token for token in order if counts[token] >= min_count], level, unknown)

    def __len__(self) -> int:
        return len(self.words)

    def id(self, word: str) -> int:
        """Return the id of one token, or that of <unk>; ValueError for a token that is not known."""
        if word in self._ids:
            return self._ids[word]
        if self.unknown:
            return self._ids[UNKNOWN]
        near = difflib.get_close_matches(word, self.words, 1, 0)
        hint = f"; nearest known: {near[0]!r}" if near else ""
        raise ValueError(f"unknown word {word!r}{hint}; expected one of the {len(self)} tokens of this vocabulary "
                         "(Vocabulary(..., unknown=True) maps others to <unk>)")

    def encode(self, caption: str, length: int | None = None) -> Tensor:
        """Return <start> w_1 ... w_n <end> as ids (T,) int64, filled up with <pad> to length.

        ValueError if the caption and its two special tokens do not fit into length: nothing is cut off silently.
        """
        if not isinstance(caption, str):
            raise TypeError(f"caption is a {type(caption).__name__}; expected one str (encode_batch takes a list)")
        tokens = split(caption, self.level)
        if not set(SPECIAL).isdisjoint(tokens):
            raise ValueError(f"caption {caption!r} holds a special token; expected words alone: encode adds them")
        ids = [START, *map(self.id, tokens), END]
        length = len(ids) if length is None else length
        if len(ids) > length:
            raise ValueError(f"caption {caption!r} needs {len(ids)} places with <start> and <end>, length is {length}; "
                             "shorten the caption or raise length")
        return torch.tensor(ids + [PAD] * (length - len(ids)))  # (T,)

    def encode_batch(self, captions: Sequence[str], length: int | None = None) -> Tensor:
        """Return ids (N, T) int64, padded to length or to the longest caption."""
        if isinstance(captions, str):
            raise TypeError(f"captions is the str {captions!r}; expected a list of captions: wrap it in [ ]")
        if not len(captions):
            raise ValueError("captions is empty; expected at least one caption")
        if length is None:
            length = max(len(split(caption, self.level)) for caption in captions) + 2
        return torch.stack([self.encode(caption, length) for caption in captions])  # (N, T)

    def decode(self, ids: Tensor | Sequence[int]) -> str:
        """Return the caption of one row of ids: up to the first <end>, without <start> and <pad>."""
        words, ids = [], torch.as_tensor(ids)
        if ids.ndim != 1 or ids.is_floating_point():
            raise ValueError(f"ids has shape {tuple(ids.shape)} and is {ids.dtype}; expected one row (T,) of int64 "
                             "(decode_batch takes a batch)")
        for i in ids.tolist():
            if not 0 <= i < len(self):
                raise ValueError(f"ids holds {i}; expected 0 <= id < {len(self)}")
            if i == END:
                break
            if i not in (PAD, START):
                words.append(self.words[i])
        return ("" if self.level == "char" else " ").join(words)

    def decode_batch(self, ids: Tensor) -> list[str]:
        """Return one caption a row of ids (N, T)."""
        return [self.decode(row) for row in ids]

    @property
    def fingerprint(self) -> str:
        """The sha256 of level and tokens in order: travels with trained weights, so that ids and weights never part."""
        return hashlib.sha256("\n".join((self.level, *self.words)).encode()).hexdigest()


def split(caption: str, level: str = "word") -> list[str]:
    """Return the tokens of a caption: its words ("word") or its characters ("char")."""
    return caption.split() if level == "word" else list(caption)


def course_vocabulary() -> Vocabulary:
    """Return the 27 tokens that every word-level model of the course speaks."""
    return Vocabulary(FACTUAL_WORDS + STYLE_WORDS)
