"""Figures with a text alternative, and plain-text tables.

Every figure is a `matplotlib.figure.Figure` (no pyplot state) on opaque white, in the Okabe-Ito palette, which stays
apart for colour-blind readers; line style, marker or a written value always says the same as the colour.
"""

import base64
import io
import itertools
import sys
import textwrap

import numpy as np
from IPython.display import display
from matplotlib.figure import Figure
from PIL import Image

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
OKABE_ITO = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, "#000000")  # without its yellow, which is lost on white
LINE_STYLES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def show(figure, alt, photographic=False):
    """Return None after displaying the figure with its text alternative, and close it.

    `alt` states what the figure shows, for those who cannot see it; ValueError when it has fewer than 20 characters.
    Drawings are stored in 256 colours, a quarter of the size; photographic keeps every colour.
    """
    alt, stream = _alt(alt), io.BytesIO()
    figure.savefig(stream, format="png", dpi=100, facecolor="white", bbox_inches="tight", metadata={"Software": None})
    if not photographic:
        drawing = Image.open(stream).convert("RGB").quantize(256, dither=Image.Dither.NONE)
        stream = io.BytesIO()
        drawing.save(stream, "PNG", optimize=True)
    data = {"image/png": base64.b64encode(stream.getvalue()).decode(), "text/plain": alt}
    display(data, metadata={"image/png": {"alt": alt}}, raw=True)
    if pyplot := sys.modules.get("matplotlib.pyplot"):  # one of its figures would be shown again after the cell
        pyplot.close(figure)
    figure.clear()


def images(pictures, titles=None, columns=8, *, alt):
    """Return None after showing pictures (N, 3, S, S) float in [0, 1] or uint8 as a grid, one title under each."""
    alt, pictures = _alt(alt), array(pictures)
    if pictures.ndim != 4 or pictures.shape[1] not in (1, 3) or len(pictures) == 0:
        raise ValueError(f"pictures has shape {pictures.shape}; expected (N, 3, S, S), N >= 1; one picture is x[None]")
    titles = [""] * len(pictures) if titles is None else titles
    if len(titles) != len(pictures) or columns < 1:
        raise ValueError(f"{len(titles)} titles, {len(pictures)} pictures, columns {columns}; expected one each, >= 1")
    pixels = to_pixels(pictures)  # (N, S, S, 3) uint8
    columns, rows = min(columns, len(pixels)), -(-len(pixels) // columns)
    wrapped = [textwrap.fill(str(title), max(12, min(28, 96 // columns))) for title in titles]
    width, lines = min(2.2, 9.6 / columns), max(title.count("\n") + bool(title) for title in wrapped)
    figure = Figure(figsize=(width * columns, (width + 0.16 * lines + 0.1) * rows), layout="constrained")
    for k, (picture, title) in enumerate(zip(pixels, wrapped)):
        axis = figure.add_subplot(rows, columns, k + 1, xticks=[], yticks=[], frame_on=False)
        axis.imshow(picture, interpolation="nearest")
        axis.set_xlabel(title, fontsize=9)
    show(figure, alt, photographic=True)


def curves(series, *, xlabel, ylabel, title, alt, log=False, band=True, x=None, reference=None):
    """Return None after showing {label: sequence (steps,)} as lines that differ in colour, line style and marker.

    A series of shape (seeds, steps) is drawn as its mean, with a band from its minimum to its maximum unless band is
    False. `x` (steps,) replaces 0, 1, 2...; `reference` {label: y} adds level lines; `log` makes y logarithmic.
    """
    alt, figure = _alt(alt), Figure(figsize=(7, 3.8), layout="constrained")
    axis = _axes(figure, xlabel, ylabel, title)
    for k, (label, values) in enumerate(_filled("series", series).items()):
        values = _finite(f"series[{label!r}]", values, (1, 2), log)
        seeds = np.atleast_2d(values)  # (seeds, steps)
        steps = np.arange(seeds.shape[1]) if x is None else array(x)
        if len(steps) != seeds.shape[1]:
            raise ValueError(f"x has {len(steps)} entries, series[{label!r}] has {seeds.shape[1]} steps; give as many")
        gap, colour = max(1, seeds.shape[1] // 8), OKABE_ITO[k % len(OKABE_ITO)]
        if values.ndim == 2:
            label = f"{label} (mean of {len(seeds)} seeds{', band: min to max' if band else ''})"
        axis.plot(steps, seeds.mean(0), label=label, color=colour, linestyle=LINE_STYLES[k % len(LINE_STYLES)],
                  marker=MARKERS[k % len(MARKERS)], markersize=5, markevery=(k * gap // len(series), gap))  # fmt: skip
        if values.ndim == 2 and band:
            axis.fill_between(steps, seeds.min(0), seeds.max(0), color=colour, alpha=0.2, linewidth=0)
    for label, level in (reference or {}).items():
        axis.axhline(level, color="#555555", linewidth=1.2, linestyle=(0, (1, 1)))
        axis.text(1, level, label, transform=axis.get_yaxis_transform(), ha="right", va="bottom", fontsize=9)
    axis.set_yscale("log" if log else "linear")
    owner, place = (axis, "best") if len(series) < 6 else (figure, "outside right upper")
    owner.legend(loc=place, fontsize=9, frameon=False)
    show(figure, alt)


def bars(values, *, xlabel, title, alt, digits=3, limits=None):
    """Return None after showing {label: value or (mean, spread)} as horizontal bars, each with its value written.

    The spread is drawn as a whisker of that length to both sides; limits are those of the axis.
    """
    alt, figure = _alt(alt), Figure(figsize=(7, 0.9 + 0.42 * len(_filled("values", values))), layout="constrained")
    axis = _axes(figure, xlabel, "", title)
    for k, (label, value) in enumerate(values.items()):
        pair = _finite(f"values[{label!r}]", value, (0, 1))
        if pair.shape not in ((), (2,)) or (pair.ndim and pair[1] < 0):
            raise ValueError(f"values[{label!r}] is {value}; expected a number or (mean, spread) with spread >= 0")
        mean, spread = np.append(pair, 0.0)[:2]
        axis.barh(k, mean, color=BLUE, height=0.6, xerr=spread or None, capsize=4, ecolor="black")
        text = _number(mean, digits) + (f" ± {_number(spread, digits)}" if pair.ndim else "")
        axis.annotate(text, (max(mean + spread, 0), k), xytext=(6, 0), textcoords="offset points", va="center")
    axis.set_yticks(range(len(values)), [textwrap.fill(str(label), 34) for label in values])
    axis.invert_yaxis()
    axis.set_xlim(limits or tuple(1.2 * end for end in axis.get_xlim()))
    show(figure, alt)


def heat(matrix, rows, columns, *, xlabel, ylabel, title, alt, digits=2, limits=(None, None)):
    """Return None after showing a matrix (R, C) as coloured cells with their values; rows and columns are names."""
    alt, matrix = _alt(alt), _finite("matrix", matrix, (2,))
    if matrix.shape != (len(rows), len(columns)):
        raise ValueError(f"matrix has shape {matrix.shape}; expected ({len(rows)} rows, {len(columns)} columns)")
    figure = Figure(figsize=(min(2.2 + 0.62 * len(columns), 9.6), 1.4 + 0.36 * len(rows)), layout="constrained")
    axis = _axes(figure, xlabel, ylabel, title)
    axis.grid(False)
    drawn = axis.imshow(matrix, cmap="cividis", aspect="auto", vmin=limits[0], vmax=limits[1])
    turn = {"rotation": 45, "ha": "right"} if max(len(str(name)) for name in columns) > 6 else {}
    axis.set_xticks(range(len(columns)), columns, **turn)
    axis.set_yticks(range(len(rows)), rows)
    for r, c in itertools.product(*map(range, matrix.shape)):
        ink = "black" if drawn.norm(matrix[r, c]) > 0.55 else "white"
        axis.text(c, r, _number(matrix[r, c], digits), ha="center", va="center", fontsize=8, color=ink)
    figure.colorbar(drawn, ax=axis, fraction=0.04)
    show(figure, alt)


def table(rows, columns=None, digits=3):
    """Return None after printing a list of dicts as an aligned table, floats with `digits` decimals.

    `columns` picks and orders the keys (default: all, in order of first use); a value that a row lacks is printed as -.
    """
    if not isinstance(rows, (list, tuple)) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"rows is {str(rows)[:60]!r}; expected a list of dicts with at least one; use [row] for one")
    known = list(dict.fromkeys(key for row in rows for key in row))
    columns = known if columns is None else columns
    if missing := [key for key in columns if key not in known]:
        raise ValueError(f"columns names {missing}, which no row has; the rows have {known}")
    values = [[_plain(row.get(key)) for key in columns] for row in rows]
    sides = [">" if {type(v) for v in column} <= {int, float, type(None)} else "<" for column in zip(*values)]
    cells = [[_number(v, digits) if isinstance(v, float) else "-" if v is None else str(v) for v in r] for r in values]
    width = [max(map(len, column)) for column in zip(map(str, columns), *cells)]
    for line in (map(str, columns), ["-" * w for w in width], *cells):
        print("  ".join(f"{text:{side}{w}}" for text, side, w in zip(line, sides, width)).rstrip())


def array(values):
    """Return the values as a NumPy array, whether they come as a tensor (any device, any gradient) or a list."""
    return np.asarray(values.detach().cpu()) if hasattr(values, "detach") else np.asarray(values)


def to_pixels(pictures):
    """Return pictures (..., C, H, W), C 1 or 3, float in [0, 1] or uint8, as (..., H, W, 3) uint8."""
    pictures = array(pictures)
    if pictures.dtype != np.uint8:
        low, high, kind = pictures.min(), pictures.max(), pictures.dtype
        if not (np.issubdtype(kind, np.floating) and low >= -1e-6 and high <= 1 + 1e-6):  # false for nan too
            raise ValueError(f"image is {kind} from {low:.3g} to {high:.3g}; clamp to float in [0, 1] or give uint8")
        pictures = (pictures.clip(0, 1) * 255).round().astype(np.uint8)
    pictures = np.moveaxis(pictures, -3, -1)  # (..., H, W, C)
    return np.ascontiguousarray(np.broadcast_to(pictures, (*pictures.shape[:-1], 3)))


def _alt(alt):
    if not isinstance(alt, str) or len(alt.strip()) < 20:
        raise ValueError(f"alt is {alt!r}; expected a sentence of at least 20 characters that states what is seen")
    return " ".join(alt.split())


def _axes(figure, xlabel, ylabel, title):
    axis = figure.add_subplot(xlabel=xlabel, ylabel=ylabel, axisbelow=True)
    axis.set_title(title, fontsize=11, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.3)
    return axis


def _filled(name, values):
    if not isinstance(values, dict) or not values:
        raise ValueError(f"{name} is {str(values)[:60]!r}; expected a dict of at least one label and its values")
    return values


def _finite(name, values, dimensions, positive=False):
    values = array(values).astype(float)
    if values.ndim not in dimensions or values.size == 0:
        raise ValueError(f"{name} has shape {values.shape}; expected {' or '.join(map(str, dimensions))} dimensions")
    if (wrong := values[~np.isfinite(values) | (positive & (values <= 0))]).size:
        wanted = "finite numbers" + ", above 0 on a logarithmic axis" * positive
        raise ValueError(f"{name} holds {wrong[0]}; expected {wanted}; cut or floor it first")
    return values


def _plain(value):
    value = value.item() if hasattr(value, "item") else value
    return ("no", "yes")[value] if isinstance(value, bool) else value


def _number(value, digits):
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text
