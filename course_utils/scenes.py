"""Synthetic scenes: pictures with exact ground truth and several right captions each, drawn many at a time."""

import dataclasses
import difflib
import hashlib
import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from course_utils.vocabulary import END, PAD, START, T_MAX, Vocabulary

COLOURS = ("red", "green", "blue", "yellow")
SHAPES = ("circle", "square", "triangle")
RELATIONS = ("above", "below", "left of", "right of")
ALL_PAIRS = tuple(itertools.product(COLOURS, SHAPES))
HELD_OUT = (("red", "circle"), ("green", "square"), ("blue", "triangle"), ("yellow", "circle"))
RGB = torch.tensor([[.85, .15, .15], [.15, .70, .20], [.20, .35, .90], [.90, .80, .15]])  # (4, 3)
CHUNK = 256  # scenes drawn at once: larger chunks leave the processor's cache and are slower


@dataclass(frozen=True)
class Recipe:
    """How scenes are drawn. Lengths are in pixels, intensities in [0, 1]; one recipe and one seed give one data set.

    objects: 1 to 5 in distinct cells of a layout x layout grid; canvas: side of the picture; jitter: of a centre,
    uniform to both sides; radius: smallest and largest; noise: standard deviation; pairs: the (colour, shape) pairs
    allowed, distinct within one scene.
    """

    objects: int = 2
    canvas: int = 32
    layout: int = 3
    jitter: float = 1.5
    radius: tuple[float, float] = (3.2, 4.2)
    noise: float = 0.02
    background: float = 0.9
    colour_jitter: float = 0.08
    pairs: tuple[tuple[str, str], ...] = ALL_PAIRS

    def __post_init__(self):
        object.__setattr__(self, "pairs", tuple(map(tuple, self.pairs)))
        for name in ("objects", "canvas", "layout"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; expected a whole number of at least 1")
        for colour, shape in self.pairs:
            known(colour, COLOURS, "colour"), known(shape, SHAPES, "shape")
        if self.objects > min(5, self.layout ** 2, len(set(self.pairs))):
            raise ValueError(f"objects is {self.objects}; expected at most 5, at most the {self.layout ** 2} cells "
                             f"of the layout and at most the {len(set(self.pairs))} different pairs")
        pair = isinstance(self.radius, (tuple, list)) and len(self.radius) == 2
        low, high = self.radius if pair else (0, 0)
        if not 0 < low <= high or 2 * high > self.pitch:
            raise ValueError(f"radius is {self.radius}; expected 0 < smallest <= largest <= {self.pitch / 2:.2f} "
                             f"(half a cell of a {self.layout} x {self.layout} layout on {self.canvas} pixels)")
        if not 0 <= self.background <= 1:
            raise ValueError(f"background is {self.background}; expected an intensity in [0, 1]")
        for name in ("jitter", "noise", "colour_jitter"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")
        if self.jitter + high > self.pitch / 2 + 1:
            raise ValueError(f"jitter is {self.jitter}; expected at most {self.pitch / 2 + 1 - high:.2f}, so that no "
                             f"object of radius {high} leaves the picture")

    @property
    def pitch(self) -> float:
        """Distance between two cell centres in pixels; one pixel of margin stays free on every side."""
        return (self.canvas - 2) / self.layout


@dataclass(frozen=True)
class Scenes:
    """N scenes of n objects; every tensor has the batch first, so that scenes[i], slices and index tensors work.

    images (N, 3, S, S) float32 in [0, 1]; colours, shapes, cells (N, n) int64 with cell = row * layout + column;
    centres (N, n, 2) float32 as (row, column) and radii (N, n) float32 in pixels.
    """

    images: Tensor
    colours: Tensor
    shapes: Tensor
    cells: Tensor
    centres: Tensor
    radii: Tensor
    recipe: Recipe

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index) -> "Scenes":
        if isinstance(index, int) or getattr(index, "ndim", 1) == 0:
            index = int(index)
            if not -len(self) <= index < len(self):
                raise IndexError(f"scene {index} of {len(self)}")
            index = [index]
        fields = [getattr(self, field.name)[index] for field in dataclasses.fields(self)[:-1]]
        return Scenes(*fields, self.recipe)

    @property
    def boxes(self) -> Tensor:
        """Bounding boxes (N, n, 4) float32 in pixels: x0, y0, x1, y1."""
        centre, radius = self.centres.flip(-1), self.radii.unsqueeze(-1)  # (N, n, 2), (N, n, 1)
        return torch.cat([centre - radius, centre + radius], -1)

    @property
    def attributes(self) -> Tensor:
        """Presence bits (N, 7) float32: four colours, then three shapes."""
        bits = torch.zeros(len(self), len(COLOURS) + len(SHAPES))
        return bits.scatter_(1, torch.cat([self.colours, len(COLOURS) + self.shapes], 1), 1.)

    def relations(self, first: int | Tensor, second: int | Tensor) -> Tensor:
        """Return the index into RELATIONS (N, ...) int64 of first against second: rows decide before columns."""
        rows, columns = self.cells // self.recipe.layout, self.cells % self.recipe.layout  # (N, n)
        down = rows[:, first] - rows[:, second]
        right = columns[:, first] - columns[:, second]
        return torch.where(down != 0, (down > 0).long(), 2 + (right > 0).long())

    def ordered_pairs(self) -> list[tuple[int, int]]:
        """All n(n-1) ordered pairs of objects, in the order of the references; one object alone gives (0, 0)."""
        n = self.colours.shape[1]
        return list(itertools.permutations(range(n), 2)) or [(0, 0)]

    def references(self, i: int) -> list[str]:
        """Return the right captions of scene i: one for every ordered pair of objects, n(n-1) in all (1 if n is 1)."""
        scene = self[i]
        named = [f"a {COLOURS[c]} {SHAPES[s]}" for c, s in zip(scene.colours[0].tolist(), scene.shapes[0].tolist())]
        if len(named) == 1:
            return named
        return [f"{named[p]} {RELATIONS[scene.relations(p, q)]} {named[q]}" for p, q in self.ordered_pairs()]

    def reference_ids(self, vocabulary: Vocabulary, length: int = T_MAX) -> Tensor:
        """Return all references as padded ids (N, R, T) int64: the same captions as `references`, without any string.

        A relation has one word or two; both spellings are laid out and the right one is taken.
        """
        first, second = (torch.tensor(side) for side in zip(*self.ordered_pairs()))  # (R,), (R,)
        word = vocabulary.id
        colour = torch.tensor([word(c) for c in COLOURS])[self.colours]  # (N, n)
        shape = torch.tensor([word(s) for s in SHAPES])[self.shapes]
        n, r = len(self), len(first)
        token = [torch.full((n, r), i) for i in (PAD, START, END, word("a"))]
        subject = [token[1], token[3], colour[:, first], shape[:, first]]
        if self.colours.shape[1] == 1:
            short = long = torch.stack(subject + [token[2]], -1)
            kind = torch.zeros(n, r, dtype=torch.long)
        else:
            kind = self.relations(first, second)  # (N, R)
            relation = torch.tensor([word(name.split()[0]) for name in RELATIONS])[kind]
            target = [token[3], colour[:, second], shape[:, second], token[2]]
            short = torch.stack([*subject, relation, *target, token[0]], -1)
            long = torch.stack([*subject, relation, torch.full((n, r), word("of")), *target], -1)
        ids = torch.where((kind < 2).unsqueeze(-1), short, long)  # (N, R, 10)
        if length < ids.shape[-1] and (ids[..., length:] != PAD).any():
            raise ValueError(f"length is {length}; expected at least {ids.shape[-1]} for <start>, the words and <end>")
        return torch.nn.functional.pad(ids, (0, length - ids.shape[-1]), value=PAD)  # (N, R, T)

    def fingerprints(self) -> list[str]:
        """Return one hash a scene, of what was drawn (not of its pixel noise), whatever the order of the objects."""
        order = self.cells.argsort(1)
        parts = [self.colours, self.shapes, self.cells, self.centres[..., 0], self.centres[..., 1], self.radii]
        table = torch.cat([part.gather(1, order).double() for part in parts], 1).numpy()  # (N, 6 n)
        return [hashlib.sha256(row.tobytes()).hexdigest() for row in table]


def known(name: str, names: tuple[str, ...], argument: str) -> int:
    """Return the position of name in names; ValueError with the nearest one if it is not there."""
    if name in names:
        return names.index(name)
    near = difflib.get_close_matches(str(name), names, 1, 0)[0]
    raise ValueError(f"{argument} is {name!r}; expected one of {', '.join(names)}; nearest: {near!r}")


def half_widths(shapes: Tensor, radii: Tensor, down: Tensor) -> Tensor:
    """Return the half-width in pixels (N, n, S) of each shape at each pixel row; -1 where the row misses the shape.

    down (N, n, S) is the row's distance below the centre. Circle sqrt(r^2 - d^2); square r; triangle from 0 at the
    apex (d = -r) to r at the base (d = r).
    """
    r, shapes = radii.unsqueeze(-1), shapes.unsqueeze(-1)  # (N, n, 1)
    circle = (r * r - down * down).clamp(min=0).sqrt()
    width = torch.where(shapes == 0, circle, torch.where(shapes == 1, r, (down + r) / 2))
    return torch.where(down.abs() <= r, width, -1.)


def render(scene: dict, recipe: Recipe, generator: torch.Generator) -> Scenes:
    """Return the scenes with these colours, shapes and cells (N, n); jitter, radii and noise are drawn."""
    cells, (n, k) = scene["cells"], scene["cells"].shape

    def uniform(*size: int) -> Tensor:  # in [-1, 1)
        return torch.rand(size, generator=generator) * 2 - 1

    grid = torch.stack([cells // recipe.layout, cells % recipe.layout], -1)  # (N, n, 2)
    centres = 0.5 + recipe.pitch * (grid + 0.5) + recipe.jitter * uniform(n, k, 2)
    low, high = recipe.radius
    radii = (low + high) / 2 + (high - low) / 2 * uniform(n, k)
    paint = (RGB[scene["colours"]] + recipe.colour_jitter * uniform(n, k, 3)).clamp(0, 1)  # (N, n, 3)
    pixel = torch.arange(recipe.canvas)
    widths = half_widths(scene["shapes"], radii, pixel - centres[..., :1])  # (N, n, S)
    across = (pixel - centres[..., 1:]).abs()  # (N, n, S)
    masks = (across.unsqueeze(-2) <= widths.unsqueeze(-1)).float()  # (N, n, S, S)
    images = torch.full((n, 3, recipe.canvas, recipe.canvas), recipe.background)
    for i in range(k):  # a later object covers an earlier one
        mask = masks[:, i, None]  # (N, 1, S, S)
        images.mul_(1 - mask).addcmul_(mask, paint[:, i, :, None, None])  # as torch.where, several times as fast
    if recipe.noise:
        images = images.add_(torch.randn(images.shape, generator=generator), alpha=recipe.noise).clamp_(0, 1)
    return Scenes(images, scene["colours"], scene["shapes"], cells, centres, radii, recipe)


def generate(n: int, recipe: Recipe = Recipe(), seed: int = 0, must_hold: tuple = ()) -> Scenes:
    """Return n scenes drawn at random from the recipe, the same for the same seed.

    must_hold: (colour, shape) pairs of which every scene holds at least one, beside the recipe's own pairs.
    """
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"n is {n!r}; expected a whole number of at least 1")
    generator, must_hold = torch.Generator().manual_seed(seed), tuple(map(tuple, must_hold))
    pairs = list(dict.fromkeys(recipe.pairs + must_hold))
    table = torch.tensor([[known(c, COLOURS, "colour"), known(s, SHAPES, "shape")] for c, s in pairs])  # (P, 2)
    wanted = torch.tensor([float(pair in must_hold) for pair in pairs])  # (P,)
    chunks = []
    for start in range(0, n, CHUNK):
        size = min(CHUNK, n - start)
        draw = torch.rand(size, len(pairs), generator=generator)
        if must_hold:  # one wanted pair comes first, drawn at random; the rest of the order stays random
            first = (draw * wanted).argmax(1, keepdim=True)
            draw = draw.scatter(1, first, 2.)
        chosen = draw.argsort(1, descending=True)[:, :recipe.objects]  # (N, n) distinct pairs
        shuffle = torch.rand(chosen.shape, generator=generator).argsort(1)
        chosen = table[chosen.gather(1, shuffle)]  # (N, n, 2)
        cells = torch.rand(size, recipe.layout ** 2, generator=generator).argsort(1)[:, :recipe.objects]
        chunks.append(render({"colours": chosen[..., 0], "shapes": chosen[..., 1], "cells": cells}, recipe, generator))
    names = [field.name for field in dataclasses.fields(Scenes)[:-1]]
    return Scenes(*(torch.cat([getattr(chunk, name) for chunk in chunks]) for name in names), recipe)


def place(objects: list[tuple[str, str, int, int]], recipe: Recipe = Recipe(), seed: int = 0) -> Scenes:
    """Return one scene with exactly these objects, each (colour, shape, row, column) counted from the top left.

    The number of objects is taken from the list; jitter, radii and noise come from the seed. ValueError for an unknown
    colour or shape, a cell outside the layout, a cell or a (colour, shape) pair used twice.
    """
    recipe = dataclasses.replace(recipe, objects=len(objects), pairs=ALL_PAIRS)
    table, side = [], recipe.layout
    for thing in objects:
        if not isinstance(thing, (tuple, list)) or [type(part) for part in thing] != [str, str, int, int]:
            raise TypeError(f"objects holds {thing!r}; expected (colour, shape, row, column), such as "
                            "('red', 'circle', 0, 2)")
        colour, shape, row, column = thing
        if not (0 <= row < side and 0 <= column < side):
            raise ValueError(f"cell ({row}, {column}) is outside the layout; expected row and column in 0..{side - 1}")
        table.append((known(colour, COLOURS, "colour"), known(shape, SHAPES, "shape"), row * side + column))
    for what, keys in (("cell", [t[2] for t in table]), ("(colour, shape) pair", [t[:2] for t in table])):
        if len(set(keys)) < len(keys):
            raise ValueError(f"two objects share one {what}: {objects}; expected each {what} once, change one of them")
    colours, shapes, cells = torch.tensor(table).T.unsqueeze(1)  # (1, n) each
    return render({"colours": colours, "shapes": shapes, "cells": cells}, recipe,
                  torch.Generator().manual_seed(seed))


def splits(recipe: Recipe = Recipe(), train: int = 16_000, validation: int = 1_000, test: int = 1_000,
           held_out: tuple = (), seed: int = 0) -> dict[str, Scenes]:
    """Return {"train", "validation", "test"}, proven to share no scene, each from a seed of its own.

    held_out: (colour, shape) pairs that none of the three holds; then a fourth split, "compositional", as large as the
    test split, has at least one of them in every scene. RuntimeError if two splits share a scene.
    """
    held_out = tuple(map(tuple, held_out))
    recipe = dataclasses.replace(recipe, pairs=tuple(pair for pair in recipe.pairs if pair not in held_out))
    sizes = {"train": train, "validation": validation, "test": test}
    parts = {name: generate(size, recipe, 4 * seed + i) for i, (name, size) in enumerate(sizes.items())}
    if held_out:
        parts["compositional"] = generate(test, recipe, 4 * seed + 3, must_hold=held_out)
    assert_disjoint(parts)
    return parts


def assert_disjoint(parts: dict[str, Scenes]) -> None:
    """Raise a RuntimeError that names two splits and the number of scenes they share; return None if there are none."""
    prints = {name: set(part.fingerprints()) for name, part in parts.items()}
    for one, other in itertools.combinations(prints, 2):
        shared = len(prints[one] & prints[other])
        if shared:
            raise RuntimeError(f"{shared} scenes are both in {one} and in {other}; expected none: use different seeds")
