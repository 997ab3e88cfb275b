"""Figures carry their text alternative and are the same bytes every time; tables are aligned; bad input is named."""

import base64
import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from course_utils import plots

ALT = "The loss falls from 3.3 to 0.1 within 100 updates."
NAMED = {"xlabel": "update", "ylabel": "loss", "title": "Loss", "alt": ALT}


@pytest.fixture
def shown(monkeypatch):
    """Return the list of what was displayed: (data, metadata)."""
    kept = []
    monkeypatch.setattr(plots, "display", lambda data, metadata, raw: kept.append((data, metadata)))
    return kept


def pixels(shown, k=0):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(shown[k][0]["image/png"]))).convert("RGB"))


def test_show_gives_picture_and_alt_and_closes(shown):
    figure = Figure()
    figure.add_subplot().plot([1, 2])
    assert plots.show(figure, f"  {ALT}\n ") is None
    data, metadata = shown[0]
    assert data["text/plain"] == ALT and metadata == {"image/png": {"alt": ALT}}
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert figure.axes == []


def test_drawings_are_stored_in_few_colours_and_pictures_in_all(shown):
    fade = np.linspace(0, 1, 32 * 32).reshape(1, 1, 32, 32).repeat(3, 1)
    plots.curves({"a": np.arange(1, 9)}, **NAMED)
    plots.images(fade * np.array([1, 0.5, 0.25]).reshape(1, 3, 1, 1), alt=ALT)
    drawing, picture = (Image.open(io.BytesIO(base64.b64decode(data["image/png"]))) for data, _ in shown)
    assert drawing.mode == "P" and len(drawing.getcolors()) <= 256
    assert picture.mode == "RGBA" and len(np.unique(pixels(shown, 1).reshape(-1, 3), axis=0)) > 256


def test_show_closes_a_pyplot_figure(shown):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure = pyplot.figure()
    plots.show(figure, ALT)
    assert not pyplot.fignum_exists(figure.number)


@pytest.mark.parametrize("alt", ["", "too short", "   spaces only pad   ", None, 3])
def test_show_wants_a_sentence(alt):
    with pytest.raises(ValueError, match="alt is .* at least 20 characters"):
        plots.show(Figure(), alt)


def test_alt_is_required():
    with pytest.raises(TypeError, match="alt"):
        plots.show(Figure())
    with pytest.raises(TypeError, match="alt"):
        plots.bars({"a": 1}, xlabel="x", title="t")


def draw_all():
    values = np.linspace(0.1, 1, 40)
    plots.images(np.full((3, 3, 8, 8), 0.5), ["a", "b", "c"], 2, alt=ALT)
    plots.curves({"a": values, "b": np.stack([values, 2 * values])}, log=True, reference={"ln V": 3.3}, **NAMED)
    plots.bars({"a": 0.5, "b": (0.7, 0.1)}, xlabel="share", title="t", alt=ALT)
    plots.heat(np.eye(2), ["r", "s"], ["c", "d"], **NAMED)


def test_same_bytes_and_white_ground(shown):
    draw_all()
    draw_all()
    for k in range(4):
        first, second = shown[k][0]["image/png"], shown[k + 4][0]["image/png"]
        assert first == second
        assert b"Software" not in base64.b64decode(first)
        assert (pixels(shown, k)[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()  # corners: white and opaque


def test_images_show_every_pixel_sharp(shown):
    picture = np.zeros((1, 3, 2, 2))
    picture[0, 0, 0, 0] = 1  # one red pixel
    plots.images(picture, ["one"], alt=ALT)
    seen = pixels(shown)[..., :3].reshape(-1, 3)
    colours, counts = np.unique(seen, axis=0, return_counts=True)
    red = counts[(colours == [255, 0, 0]).all(1)][0]
    black = counts[(colours == 0).all(1)][0]
    assert 2.8 < black / red < 3.2


def test_images_take_a_tensor(shown):
    torch = pytest.importorskip("torch")
    plots.images(torch.rand(2, 3, 4, 4, requires_grad=True), alt=ALT)
    assert len(shown) == 1


@pytest.mark.parametrize(
    "pictures, options, message",
    [
        (np.zeros((3, 8, 8)), {}, r"shape \(3, 8, 8\); expected \(N, 3, S, S\)"),
        (np.zeros((0, 3, 8, 8)), {}, "N >= 1"),
        (np.zeros((2, 3, 8, 8)), {"titles": ["one"]}, "1 titles, 2 pictures"),
        (np.zeros((2, 3, 8, 8)), {"columns": 0}, "columns 0"),
        (np.full((2, 3, 8, 8), 1.5), {}, "from 1.5 to 1.5"),
        (np.full((2, 3, 8, 8), np.nan), {}, "nan"),
        (np.zeros((2, 3, 8, 8), int), {}, "image is int64"),
    ],
)
def test_images_refuse(pictures, options, message):
    with pytest.raises(ValueError, match=message):
        plots.images(pictures, alt=ALT, **options)


def test_curves_differ_by_more_than_colour(monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "show", lambda figure, alt, photographic=False: figures.append(figure))
    plots.curves({f"v{k}": np.arange(1, 9) + k for k in range(8)}, **NAMED)
    lines = figures[0].axes[0].get_lines()
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == 8
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == [f"v{k}" for k in range(8)]


def test_curves_over_seeds_draw_mean_and_band(monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "show", lambda figure, alt, photographic=False: figures.append(figure))
    seeds = np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 8.0]])
    plots.curves({"model": seeds}, x=[0, 10, 20], **NAMED)
    plots.curves({"model": seeds}, band=False, **NAMED)
    line, band = figures[0].axes[0].get_lines()[0], figures[0].axes[0].collections[0]
    assert line.get_ydata().tolist() == [2.0, 3.0, 5.5] and line.get_xdata().tolist() == [0, 10, 20]
    corners = band.get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (1.0, 8.0)
    assert line.get_label() == "model (mean of 2 seeds, band: min to max)"
    assert not figures[1].axes[0].collections


@pytest.mark.parametrize(
    "series, options, message",
    [
        ({}, {}, "series is .*at least one label"),
        ([1, 2], {}, "series is .*at least one label"),
        ({"a": [1, float("nan")]}, {}, r"series\['a'\] holds nan"),
        ({"a": [1, 0]}, {"log": True}, r"series\['a'\] holds 0.0; expected finite numbers, above 0"),
        ({"a": np.ones((2, 2, 2))}, {}, r"shape \(2, 2, 2\); expected 1 or 2 dimensions"),
        ({"a": []}, {}, r"shape \(0,\)"),
        ({"a": [1, 2]}, {"x": [1, 2, 3]}, "x has 3 entries, .* has 2 steps"),
    ],
)
def test_curves_refuse(series, options, message):
    with pytest.raises(ValueError, match=message):
        plots.curves(series, **NAMED, **options)


def test_bars_write_their_values(monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "show", lambda figure, alt, photographic=False: figures.append(figure))
    plots.bars({"first": (0.9531, 0.0124), "second": 0.5, "third": -0.0001}, xlabel="share", title="t", alt=ALT)
    axis = figures[0].axes[0]
    assert [text.get_text() for text in axis.texts] == ["0.953 ± 0.012", "0.500", "0.000"]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["first", "second", "third"]
    assert axis.get_ylim()[0] > axis.get_ylim()[1]  # the first label on top


@pytest.mark.parametrize(
    "values, message",
    [
        ({}, "values is"),
        ({"a": (1, 2, 3)}, r"values\['a'\] is \(1, 2, 3\); expected a number or \(mean, spread\)"),
        ({"a": (1, -2)}, "spread >= 0"),
        ({"a": float("inf")}, r"values\['a'\] holds inf"),
    ],
)
def test_bars_refuse(values, message):
    with pytest.raises(ValueError, match=message):
        plots.bars(values, xlabel="x", title="t", alt=ALT)


def test_heat_writes_every_value(monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "show", lambda figure, alt, photographic=False: figures.append(figure))
    plots.heat([[0, 0.25], [1, 0.5]], ["r", "s"], ["c", "d"], **NAMED)
    assert [text.get_text() for text in figures[0].axes[0].texts] == ["0.00", "0.25", "1.00", "0.50"]


def test_heat_refuses_unequal_names():
    with pytest.raises(ValueError, match=r"matrix has shape \(2, 2\); expected \(1 rows, 2 columns\)"):
        plots.heat(np.eye(2), ["r"], ["c", "d"], **NAMED)
    with pytest.raises(ValueError, match="expected 2 dimensions"):
        plots.heat(np.ones(2), ["r"], ["c", "d"], **NAMED)


def test_table_is_aligned_and_stable(capsys):
    rows = [
        {"model": "RNN", "exact": np.float32(0.95312), "n": 100, "ok": True},
        {"model": "LSTM", "exact": -0.0001, "n": 5},
    ]
    assert plots.table(rows) is None
    assert capsys.readouterr().out.splitlines() == [
        "model  exact    n  ok",
        "-----  -----  ---  ---",
        "RNN    0.953  100  yes",
        "LSTM   0.000    5  -",
    ]
    plots.table(rows, ["n", "exact"], digits=1)
    assert capsys.readouterr().out.splitlines() == ["  n  exact", "---  -----", "100    1.0", "  5    0.0"]


@pytest.mark.parametrize("rows", [[], {"a": 1}, [1], "text"])
def test_table_wants_a_list_of_dicts(rows):
    with pytest.raises(ValueError, match="rows is .*expected a list of dicts"):
        plots.table(rows)


def test_table_names_an_unknown_column():
    with pytest.raises(ValueError, match=r"columns names \['b'\], which no row has; the rows have \['a'\]"):
        plots.table([{"a": 1}], ["a", "b"])
