"""What is wrong with a caption of a scene: the caption grammar, the kinds of failure, the first wrong word."""

import re
from itertools import permutations
from typing import NamedTuple

COLOURS = ("red", "green", "blue", "yellow")
SHAPES = ("circle", "square", "triangle")
RELATIONS = ("above", "below", "left of", "right of")
INVERSE = {"above": "below", "below": "above", "left of": "right of", "right of": "left of"}
KINDS = (
    "correct",
    "ungrammatical",
    "same object twice",
    "binding swap",
    "wrong colour",
    "wrong shape",
    "hallucinated object",
    "wrong relation",
)
GRAMMAR = "a <colour> <shape> [<relation> a <colour> <shape>]"
_THING = rf"a ({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})"
_PATTERN = re.compile(rf"{_THING}(?: ({'|'.join(RELATIONS)}) {_THING})?")


class Thing(NamedTuple):
    """An object as a caption names it."""

    colour: str
    shape: str


class Statement(NamedTuple):
    """What a grammatical caption says; relation and other are None when it names one object only."""

    subject: Thing
    relation: str | None
    other: Thing | None


class Failure(NamedTuple):
    """The kind of failure, one of KINDS, and for a wrong object what was said, of which object, in which attribute.

    attribute is "colour", "shape" or None: a binding swap keeps which of the two it took from another object.
    """

    kind: str
    said: Thing | None = None
    meant: Thing | None = None
    attribute: str | None = None


def parse(caption: str) -> Statement | None:
    """Return what a caption of the grammar `a <colour> <shape> [<relation> a <colour> <shape>]` says, None outside it.

    TypeError when the caption is not a str.
    """
    if not isinstance(caption, str):
        raise TypeError(f"caption is {caption!r}; expected a str: decode token ids or join the words first")
    found = _PATTERN.fullmatch(" ".join(caption.split()))
    if found is None:
        return None
    colour, shape, relation, other_colour, other_shape = found.groups()
    return Statement(Thing(colour, shape), relation, Thing(other_colour, other_shape) if relation else None)


def _listed(references: list[str]) -> list[str]:
    """Return the references of one image when they are a list that is not empty; raise TypeError or ValueError."""
    if not isinstance(references, (list, tuple)):
        raise TypeError(f"references is a {type(references).__name__}; expected the list of the image's references")
    if not references:
        raise ValueError("references is empty; expected at least one reference of the image")
    return references


def read_scene(references: list[str]) -> tuple[list[Thing], dict[tuple[Thing, Thing], str]]:
    """Return the objects of a scene in the order named, and the relation of each ordered pair, from its references.

    Raises TypeError when references is not a list of str; ValueError when it is empty, when a reference is outside the
    grammar or names an object twice, and when two references contradict each other.
    """
    objects, relations = {}, {}
    for reference in _listed(references):
        statement = parse(reference)
        if statement is None:
            raise ValueError(f"reference {reference!r} is outside the grammar {GRAMMAR}")
        subject, relation, other = statement
        if subject == other:
            raise ValueError(f"reference {reference!r} names one object twice; the objects of a scene are distinct")
        objects[subject] = True
        if other is not None:
            objects[other] = True
            for pair, fact in (((subject, other), relation), ((other, subject), INVERSE[relation])):
                if relations.setdefault(pair, fact) != fact:
                    raise ValueError(f"reference {reference!r} contradicts another one: are they of the same image?")
    return list(objects), relations


def _likeness(said: Thing, truth: Thing) -> tuple[bool, int, bool]:
    """Return a sort key, greater for more alike: the same object, then how many attributes agree, then the shape."""
    same = said.colour == truth.colour, said.shape == truth.shape
    return all(same), sum(same), same[1]


def _match(said: list[Thing], objects: list[Thing]) -> tuple[Thing, ...]:
    """Return the object that each thing said stands for: the pairing most alike in all, then in the first thing."""

    def alike(pairing: tuple[Thing, ...]) -> tuple:
        keys = [_likeness(*pair) for pair in zip(said, pairing, strict=True)]
        return [sum(part) for part in zip(*keys, strict=True)], keys[0]

    return max(permutations(sorted(objects), len(said)), key=alike)


def _wrong_object(said: Thing, meant: Thing, objects: list[Thing]) -> Failure:
    """Return the failure of one thing said that is not an object of the scene."""
    others = [thing for thing in objects if thing != meant]
    for attribute, kept in (("colour", "shape"), ("shape", "colour")):
        if getattr(said, kept) == getattr(meant, kept):
            swapped = getattr(said, attribute) in [getattr(thing, attribute) for thing in others]
            return Failure("binding swap" if swapped else f"wrong {attribute}", said, meant, attribute)
    return Failure("hallucinated object", said)


def diagnose(*, candidate: str, references: list[str]) -> Failure:
    """Return the failure of a caption, from the references of its image, which fix the objects and relations there.

    Each object said is paired with the object of the scene that it is most like; the first wrong one names the kind:
    binding swap (the colour or shape of another object of the scene), wrong colour, wrong shape (one that no other
    object has), hallucinated object (neither agrees, or the scene has no object left). Wrong relation: both objects
    are right. Ungrammatical includes a caption of one object where the references relate two.
    Errors as in `parse` and `read_scene`; ValueError when the references leave the relation of two objects open.
    """
    objects, relations = read_scene(references)
    statement = parse(candidate)
    if statement is None or (statement.other is None and relations):
        return Failure("ungrammatical")
    said = [thing for thing in (statement.subject, statement.other) if thing is not None]
    if len(set(said)) < len(said):
        return Failure("same object twice", said[0])
    if len(said) > len(objects):
        return Failure("hallucinated object", next(thing for thing in said if thing not in objects))
    for thing, meant in zip(said, _match(said, objects), strict=True):
        if thing != meant:
            return _wrong_object(thing, meant, objects)
    if statement.other is None:
        return Failure("correct")
    if tuple(said) not in relations:
        raise ValueError(f"the references do not relate the objects of {candidate!r}; give all references of the image")
    return Failure("correct" if relations[tuple(said)] == statement.relation else "wrong relation")


def tally(*, candidates: list[str], references: list[list[str]]) -> dict[str, int]:
    """Return how many captions are of each kind, every kind of KINDS in that order.

    Raises TypeError for a str where a list belongs, ValueError for unequal lengths, else as `diagnose`.
    """
    for name, value in (("candidates", candidates), ("references", references)):
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{name} is a {type(value).__name__}; expected a list, one entry an image")
    if len(candidates) != len(references):
        raise ValueError(f"{len(candidates)} candidates, {len(references)} reference lists; expected as many")
    counts = dict.fromkeys(KINDS, 0)
    for candidate, image in zip(candidates, references, strict=True):
        counts[diagnose(candidate=candidate, references=image).kind] += 1
    return counts


def first_disagreement(*, candidate: str, references: list[str]) -> int | None:
    """Return the index of the first word at which no reference continues the candidate's words so far.

    None when the candidate equals a reference; the number of its words when it stops before every reference that begins
    so. TypeError for a candidate that is not a str or references that are no list, ValueError for an empty list.
    """
    if not isinstance(candidate, str):
        raise TypeError(f"candidate is {candidate!r}; expected a str")
    words, alive = candidate.split(), [reference.split() for reference in _listed(references)]
    for index, word in enumerate(words):
        alive = [reference for reference in alive if reference[index : index + 1] == [word]]
        if not alive:
            return index
    return None if words in alive else len(words)
