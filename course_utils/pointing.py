"""Does attention look where it should? The peak of each word's map against the true boxes of the scene."""

import torch
from torch import Tensor

from course_utils.captioners import Captioner
from course_utils.decoding import greedy
from course_utils.encoders import PATCH
from course_utils.failures import diagnose, parse
from course_utils.scenes import COLOURS, SHAPES, Scenes
from course_utils.vocabulary import course_vocabulary

KINDS = ("colour", "shape", "relation")


def watched_captions(model: Captioner, image: Tensor) -> tuple[Tensor, Tensor]:
    """Return the greedy captions (N, T) int64 and the maps alpha (N, T, M) of the very pass that wrote them."""
    decoded = greedy(model, image, trace=True)
    alpha = torch.stack([choice.state.alpha for choice in decoded.trace], 1)  # (N, T, M)
    return decoded.tokens[:, :alpha.shape[1]], alpha


def cells_on_boxes(part: Scenes) -> Tensor:
    """Return which grid cells overlap which object's box (N, n, L) bool: a glance there is a glance at the object."""
    side = part.recipe.canvas // PATCH
    low = torch.arange(side) * PATCH - 0.5  # pixel centres are whole numbers, so cell i begins at 4 i - 0.5
    x0, y0, x1, y1 = part.boxes.unsqueeze(-1).unbind(2)  # (N, n, 1) each
    columns = (low < x1) & (low + PATCH > x0)  # (N, n, side)
    rows = (low < y1) & (low + PATCH > y0)
    return (rows.unsqueeze(-1) & columns.unsqueeze(-2)).flatten(2)  # (N, n, L)


def pointing(model: Captioner, image: Tensor, part: Scenes) -> dict[str, float]:
    """Return how often the peak of a word's map lies on the object that it describes, over the correct captions.

    For "colour", "shape" (of either object) and "relation" words (the peak on either object counts): pointing_KIND, and
    chance_KIND, what a peak on a random cell would score. Words behind <end> do not count; a peak on the sentinel
    misses; a kind of which no correct caption speaks is NaN. Also entropy in nats, the mean over all glances of all
    captions, <end> included. ValueError when the grids do not fit the scenes, or these have one object only.
    """
    on_box, vocabulary = cells_on_boxes(part), course_vocabulary()  # (N, n, L)
    if image.shape[:2] != (len(part), on_box.shape[-1]) or on_box.shape[1] < 2:
        raise ValueError(f"image {tuple(image.shape)} does not fit {len(part)} scenes of {on_box.shape[1]} objects and "
                         f"{on_box.shape[-1]} cells; expected one grid a scene, of two or more objects")
    tokens, alpha = watched_captions(model, image)
    peak = alpha[..., :on_box.shape[-1]].argmax(-1)  # (N, T)
    resting = alpha.argmax(-1) >= on_box.shape[-1]
    hits, chances = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}
    for i, caption in enumerate(vocabulary.decode_batch(tokens)):
        if diagnose(candidate=caption, references=part.references(i)).kind != "correct":
            continue
        said = parse(caption)
        things = list(zip(part.colours[i].tolist(), part.shapes[i].tolist()))
        subject, other = (things.index((COLOURS.index(thing.colour), SHAPES.index(thing.shape)))
                          for thing in (said.subject, said.other))
        for t, word in enumerate(caption.split()):
            kind = "colour" if word in COLOURS else "shape" if word in SHAPES else "relation"
            if word in ("a", "of"):
                continue
            right = on_box[i, [subject, other]].any(0) if kind == "relation" else on_box[i, subject if t < 3 else other]
            hits[kind].append(bool(right[peak[i, t]]) and not bool(resting[i, t]))
            chances[kind].append(right.float().mean().item())
    spoken = tokens != 0  # (N, T)
    entropy = -(alpha * alpha.clamp_min(1e-12).log()).sum(-1)[spoken].mean().item()
    count = {kind: len(hits[kind]) or float("nan") for kind in KINDS}
    return {f"pointing_{kind}": sum(hits[kind]) / count[kind] for kind in KINDS} | {
        f"chance_{kind}": sum(chances[kind]) / count[kind] for kind in KINDS} | {"entropy": entropy}
