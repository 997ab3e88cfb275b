"""Ids that never move, captions that come back unchanged, targets that end where the sentence ends."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

from course_utils.scenes import Recipe, generate
from course_utils.vocabulary import (
    END,
    FACTUAL_WORDS,
    PAD,
    SPECIAL,
    START,
    STYLE_WORDS,
    T_MAX,
    UNKNOWN,
    Vocabulary,
    course_vocabulary,
    split,
)

WORDS = course_vocabulary()
CAPTION = "a red circle left of a blue square"
PLACES = "needs 10 places with <start> and <end>, length is"
ORDER = (
    "<pad> <start> <end> a of above below left right red green blue yellow circle square triangle "
    "the sits happily hides shyly waits quietly smiles brightly with nearby"
).split()


def characters(unknown=False):
    made = generate(50)
    captions = [text for i in range(50) for text in made.references(i)]
    return Vocabulary.from_captions(captions, level="char", unknown=unknown)


# The course's own tokens


def test_special_ids_are_fixed_and_differ():
    assert (PAD, START, END) == (0, 1, 2) and WORDS.words[:3] == SPECIAL == ("<pad>", "<start>", "<end>")
    for vocabulary in (WORDS, characters(), Vocabulary(["x"], unknown=True)):
        assert [vocabulary.id(name) for name in SPECIAL] == [PAD, START, END]
    assert Vocabulary(["x"], unknown=True).id(UNKNOWN) == 3


def test_the_27_words_stand_in_their_order():
    assert list(WORDS.words) == ORDER and len(WORDS) == 27
    assert len(FACTUAL_WORDS) == 13 and len(STYLE_WORDS) == 11
    assert [WORDS.id(word) for word in ORDER] == list(range(27))


def test_longest_caption_fits_exactly():
    ids = WORDS.encode(CAPTION, T_MAX)
    assert ids.tolist() == [1, 3, 9, 13, 7, 4, 3, 11, 14, 2] and len(ids) == T_MAX


def test_fingerprint_follows_tokens_order_and_level():
    assert WORDS.fingerprint == course_vocabulary().fingerprint and len(WORDS.fingerprint) == 64
    letters = ("a", "b")
    options = [(letters,), (letters[::-1],), (letters, "char"), (letters, "word", True)]
    made = [Vocabulary(*option) for option in options]
    assert len({vocabulary.fingerprint for vocabulary in made}) == 4


# Targets


def test_end_stands_behind_the_last_word_and_padding_behind_it():
    ids = WORDS.encode("a red circle", 8)
    assert ids.tolist() == [START, 3, 9, 13, END, PAD, PAD, PAD] and ids.dtype == torch.int64
    assert WORDS.encode("a red circle").tolist() == [START, 3, 9, 13, END]
    assert WORDS.encode("", 4).tolist() == [START, END, PAD, PAD]
    assert WORDS.encode("  a   red ").tolist() == WORDS.encode("a red").tolist()


@pytest.mark.parametrize("n", range(1, 6))
def test_every_reference_ends_once_right_behind_its_last_word(n):
    made = generate(30, Recipe(objects=n), seed=n)
    captions = [text for i in range(30) for text in made.references(i)]
    ids = WORDS.encode_batch(captions, T_MAX)
    count = torch.tensor([len(text.split()) for text in captions])
    assert torch.equal((ids == END).int().argmax(1), count + 1) and ((ids == END).sum(1) == 1).all()
    assert torch.equal((ids != PAD).sum(1), count + 2), "lengths include <start> and <end>"
    inputs, targets = ids[:, :-1], ids[:, 1:]
    assert (inputs[:, 0] == START).all() and not (targets == START).any()
    assert torch.equal((targets != PAD).sum(1), count + 1), "every word and <end> are scored, padding is not"


def test_batches_equal_the_library_padding():
    captions = ["a red circle", CAPTION, "a"]
    rows = pad_sequence([WORDS.encode(text) for text in captions], batch_first=True, padding_value=PAD)
    assert torch.equal(WORDS.encode_batch(captions), rows) and rows.shape == (3, 10)
    longer = WORDS.encode_batch(captions, 12)
    assert torch.equal(longer[:, :10], rows) and (longer[:, 10:] == PAD).all()


def test_decoding_stops_at_the_first_end():
    assert WORDS.decode([START, 3, 9, END, 13, END]) == "a red"
    assert WORDS.decode([3, PAD, 9]) == "a red"  # whatever a model says, specials are no words
    assert WORDS.decode([START, 3, 9, 13]) == "a red circle"
    assert WORDS.decode([END]) == WORDS.decode(torch.tensor([], dtype=torch.long)) == ""
    assert WORDS.decode_batch(torch.tensor([[1, 3, 2], [1, 9, 13]])) == ["a", "red circle"]


def test_all_references_of_a_data_set_come_back():
    made = generate(200, Recipe(objects=3))
    ids = made.reference_ids(WORDS).flatten(0, 1)
    captions = [text for i in range(200) for text in made.references(i)]
    assert WORDS.decode_batch(ids) == captions
    letters = characters()
    assert letters.decode_batch(letters.encode_batch(captions)) == captions


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(ORDER[3:]), max_size=12), st.integers(0, 4))
def test_round_trip(words, room):
    ids = WORDS.encode(" ".join(words), len(words) + 2 + room)
    assert WORDS.decode(ids) == " ".join(words) and (ids == PAD).sum() == room


# Vocabularies of captions


def test_words_come_in_order_of_their_counts():
    made = Vocabulary.from_captions(["b a", "a c", "a b d"])
    assert made.words[3:] == ("a", "b", "c", "d")
    assert Vocabulary.from_captions(["b a", "a c", "a b d"], min_count=2).words[3:] == ("a", "b")
    assert Vocabulary.from_captions(["a"], min_count=2).words == SPECIAL
    assert Vocabulary.from_captions(text for text in ["a b"]).words[3:] == ("a", "b")


def test_unknown_words():
    made = Vocabulary.from_captions(["a red circle"], unknown=True)
    assert made.words[:4] == (*SPECIAL, UNKNOWN) and made.id("purple") == 3
    assert made.decode(made.encode("a purple circle", 8)) == "a <unk> circle"
    with pytest.raises(ValueError, match="unknown word 'purple'; nearest known: "):
        WORDS.encode("a purple circle")


def test_characters():
    letters = characters()
    assert letters.level == "char" and " " in letters.words and "q" in letters.words
    ids = letters.encode("a red circle", 20)
    assert (ids != PAD).sum() == len("a red circle") + 2 and letters.decode(ids) == "a red circle"
    assert letters.decode(letters.encode("a violet circle")) == "a violet circle"  # a word never seen
    with pytest.raises(ValueError, match="unknown word 'p'"):
        letters.encode("purple")
    assert characters(unknown=True).decode(characters(unknown=True).encode("purple")) == "<unk>ur<unk>le"
    assert split("a b", "char") == ["a", " ", "b"] and split(" a  b ") == ["a", "b"]


# Bad input


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: WORDS.id("rad"), ValueError, "unknown word 'rad'; nearest known: 'red'; expected one of the 27"),
        (lambda: WORDS.encode("a gren circle"), ValueError, "unknown word 'gren'; nearest known: 'green'"),
        (lambda: WORDS.encode("A red circle"), ValueError, "unknown word 'A'"),
        (lambda: WORDS.encode_batch(["a", "a squre"]), ValueError, "nearest known: 'square'"),
        (lambda: WORDS.encode(CAPTION, 9), ValueError, f"{PLACES} 9; shorten the caption or raise length"),
        (lambda: WORDS.encode_batch(["a", CAPTION], 9), ValueError, f"{CAPTION!r} {PLACES} 9"),
        (lambda: WORDS.encode("", 1), ValueError, "needs 2 places"),
        (lambda: WORDS.encode("a", -1), ValueError, "length is -1"),
        (lambda: WORDS.encode(["a", "red"]), TypeError, r"caption is a list; expected one str \(encode_batch takes"),
        (lambda: WORDS.encode(3), TypeError, "caption is a int; expected one str"),
        (lambda: WORDS.encode_batch("a red circle"), TypeError, r"captions is the str .*: wrap it in \[ \]"),
        (lambda: WORDS.encode_batch([]), ValueError, "captions is empty; expected at least one caption"),
        (lambda: WORDS.encode_batch(["a", 3], 5), TypeError, "caption is a int"),
        (lambda: WORDS.decode([1, 27]), ValueError, "ids holds 27; expected 0 <= id < 27"),
        (lambda: WORDS.decode([-1]), ValueError, "ids holds -1"),
        (lambda: WORDS.decode(torch.tensor([[1, 3, 2]])), ValueError, r"ids has shape \(1, 3\).*\(decode_batch"),
        (lambda: WORDS.decode(torch.tensor([1.0, 2.0])), ValueError, "is torch.float32; expected one row .* int64"),
        (lambda: WORDS.decode_batch(torch.tensor([1, 3, 2])), ValueError, r"ids has shape \(\)"),
        (lambda: Vocabulary("abc"), TypeError, r"words is the str 'abc'; expected a list of.*\['a', 'b', 'c'\]"),
        (lambda: Vocabulary(["a"], level="words"), ValueError, "level is 'words'; expected 'word' or 'char'"),
        (lambda: Vocabulary(["a", "b", "a"]), ValueError, r"words holds \['a'\] more than once"),
        (lambda: Vocabulary(["<end>"]), ValueError, r"words holds \['<end>'\] more than once, or as a"),
        (lambda: Vocabulary(["a", "left of"]), ValueError, r"words holds \['left of'\], which no caption gives"),
        (lambda: Vocabulary(["ab"], level="char"), ValueError, r"\['ab'\], which no caption gives at level 'char'"),
        (lambda: Vocabulary([""]), ValueError, r"\[''\], which no caption gives"),
        (lambda: Vocabulary.from_captions("a red"), TypeError, "captions is the str 'a red'"),
        (lambda: Vocabulary.from_captions(["a"], min_count=0), ValueError, "min_count is 0; expected at least 1"),
        (lambda: Vocabulary.from_captions(["a"], level="byte"), ValueError, "level is 'byte'"),
    ],
)
def test_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_special_tokens_in_a_caption_are_refused():
    for caption in ("a <end> red", "a <start> red", "<pad>"):
        with pytest.raises(ValueError, match="holds a special token; expected words alone"):
            course_vocabulary().encode(caption)
