"""F1 over scene-graph tuples, in the spirit of SPICE (Anderson et al. 2016); exact on this course's captions."""

import re

from ..failures import COLOURS, RELATIONS, SHAPES
from .captions import Scores, checked, mean_scores

CONTENT = {*COLOURS, *SHAPES, *" ".join(RELATIONS).split()}
COLOUR, SHAPE, RELATION = ("|".join(words) for words in (COLOURS, SHAPES, RELATIONS))
OBJECT = re.compile(rf"\b(?:({COLOUR}) )?({SHAPE})\b")
TRIPLE = re.compile(rf"(?=\b((?:{COLOUR}) (?:{SHAPE})) ({RELATION}) ((?:{COLOUR}) (?:{SHAPE}))\b)")
MIRRORED = {"below": "above", "right of": "left of"}


def scene_tuples(words: list[str]) -> set[tuple[str, ...]]:
    """Return the tuples that a caption states: (shape,), (shape, colour) and (object, relation, object).

    A relation joins whole objects, such as "red circle", so that two circles are not taken for one; below and right of
    are turned round to above and left of. Articles and words outside the grammar are passed over.
    """
    text = " ".join(word for word in words if word in CONTENT)
    tuples = set()
    for colour, shape in OBJECT.findall(text):
        tuples.add((shape,))
        if colour:
            tuples.add((shape, colour))
    for subject, relation, other in TRIPLE.findall(text):
        mirrored = MIRRORED.get(relation)
        tuples.add((other, mirrored, subject) if mirrored else (subject, relation, other))
    return tuples


def scene_tuple_f1(*, candidates: list, references: list) -> Scores:
    """Return the F1 of scene tuples in [0, 1]: the mean over the images, and the value of each.

    The reference tuples are those of all references of the image together, as in SPICE: of a scene with more than two
    objects one caption states a part only, so it stays below 1. Captions are str or lists of words; ValueError for
    references that name no shape of this course, else errors as in `checked`.
    """
    candidates, references = checked(candidates, references)
    images = []
    for image, (candidate, others) in enumerate(zip(candidates, references, strict=True)):
        wanted = set().union(*map(scene_tuples, others))
        if not wanted:
            raise ValueError(f"references[{image}] names no shape; expected captions with one of {', '.join(SHAPES)}")
        stated = scene_tuples(candidate)
        images.append(2 * len(stated & wanted) / (len(stated) + len(wanted)))
    return mean_scores(images)
