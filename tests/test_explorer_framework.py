"""Controls drive the view, errors are shown in it, everything is escaped, stored notebooks keep the first view."""

import base64
import io
import re
from html.parser import HTMLParser

import ipywidgets as widgets
import numpy as np
import pytest
from PIL import Image

from course_utils.explorers import view
from course_utils.explorers.view import Explorer, Html, bar_chart, columns, html_table, markup, note, picture, stack

ALT = "one red pixel on black"


def demo(render=None, **options):
    controls = {
        "step": widgets.IntSlider(value=0, min=0, max=5, description="step:"),
        "word": widgets.Dropdown(options=["red", "<end>"], description="word"),
    }
    return Explorer(controls, render or (lambda step, word: note(f"{step} {word}")), "a demonstration", **options)


def red():
    image = np.zeros((3, 4, 4), np.float32)
    image[0, 1, 2] = 1
    return image


def pixels(html):
    data = re.search(r'src="data:image/png;base64,([^"]+)"', html).group(1)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_every_control_redraws():
    explorer = demo()
    assert "course-explorer" in explorer._dom_classes and "course-view" in explorer.view._dom_classes
    for step in range(6):
        for word in ("red", "<end>"):
            explorer.controls["step"].value, explorer.controls["word"].value = step, word
            assert explorer.state == {"step": step, "word": word}
            assert f"{step} {'red' if word == 'red' else '&lt;end&gt;'}</p>" in explorer.view.value


def test_view_has_its_own_colours():
    assert "background:#ffffff" in demo().view.value and "color:#1a1a1a" in demo().view.value


def test_error_is_shown_and_goes_away():
    def render(step, word):
        if step == 3:
            raise ValueError("step is <3>")
        return "fine" if step < 4 else None

    explorer = demo(render)
    explorer.controls["step"].value = 3
    assert 'role="alert"' in explorer.view.value and "<b>ValueError</b>: step is &lt;3&gt;" in explorer.view.value
    assert isinstance(explorer.error, ValueError)
    explorer.controls["step"].value = 2
    assert "fine" in explorer.view.value and "alert" not in explorer.view.value and explorer.error is None
    explorer.controls["step"].value = 4
    assert "render returned NoneType; expected HTML as a str" in explorer.view.value


def test_first_drawing_raises():
    with pytest.raises(ZeroDivisionError):
        demo(lambda step, word: 1 / step)


def test_set_draws_once():
    drawn = []
    explorer = demo(lambda step, word: drawn.append((step, word)) or "x")
    explorer.set(step=4, word="<end>")
    assert drawn == [(0, "red"), (4, "<end>")]
    with pytest.raises(ValueError, match="no control is named steps; the controls are step, word"):
        explorer.set(steps=4)


def test_rows_lay_controls_out():
    explorer = demo(rows=[["word"], ["step"]])
    boxes = [child for child in explorer.children if isinstance(child, widgets.HBox)]
    assert [box.children for box in boxes] == [(explorer.controls["word"],), (explorer.controls["step"],)]
    assert explorer.controls["step"].style.description_width == "initial"
    for rows in ([["word"]], [["word", "step", "step"]], [["word", "stop"]]):
        with pytest.raises(ValueError, match="expected every control exactly once"):
            demo(rows=rows)


def test_mime_bundle_keeps_the_first_view():
    data = demo()._repr_mimebundle_(include=None, exclude=None)
    assert "0 red" in data["text/html"] and "Run this cell to change: step, word." in data["text/html"]
    assert data["text/plain"] == "a demonstration" and "image/png" not in data
    if int(widgets.__version__.split(".")[0]) >= 8:
        assert "application/vnd.jupyter.widget-view+json" in data


@pytest.mark.parametrize("as_bytes", [True, False])
def test_poster_has_its_alt(as_bytes):
    image = Image.new("RGB", (4, 4), "white")
    stream = io.BytesIO()
    image.save(stream, "PNG")
    data, metadata = demo(poster=lambda: stream.getvalue() if as_bytes else image)._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert metadata == {"image/png": {"alt": "a demonstration"}} and "0 red" in data["text/html"]


def test_explorer_refuses():
    slider = widgets.IntSlider(description="step")
    for controls in ({}, [slider], None):
        with pytest.raises(TypeError, match="controls is .*expected a dict"):
            Explorer(controls, str, ALT)
    for control in (3, widgets.Button(description="b")):
        with pytest.raises(TypeError, match=r"controls\['x'\] is .*expected a widget with a value"):
            Explorer({"x": control}, str, ALT)
    with pytest.raises(ValueError, match=r"controls\['x'\] has no description"):
        Explorer({"x": widgets.IntSlider()}, str, ALT)
    with pytest.raises(TypeError, match="render is 3; expected a function of step"):
        Explorer({"step": slider}, 3, ALT)
    with pytest.raises(ValueError, match="alt is ''"):
        Explorer({"step": slider}, str, "")


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_picture_repeats_whole_pixels(dtype):
    image = red() if dtype == np.float32 else (red() * 255).astype(np.uint8)
    html = picture(image, ALT, scale=3)
    seen = pixels(html)
    assert seen.shape == (12, 12, 3) and 'width="12" height="12"' in html and "image-rendering:pixelated" in html
    assert (seen[3:6, 6:9] == [255, 0, 0]).all() and seen.sum() == 9 * 255
    assert f'alt="{ALT}"' in html


def test_picture_takes_tensors_and_grey():
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(red()).requires_grad_()
    assert picture(tensor, ALT) == picture(red(), ALT)
    assert (pixels(picture(np.full((1, 2, 2), 0.2), ALT, 1)) == 51).all()


def test_boxes_are_drawn_with_labels():
    image = np.full((3, 16, 16), 0.5)
    plain, framed = pixels(picture(image, ALT)), pixels(picture(image, ALT, boxes=[("red circle", (4, 6, 10, 12))]))
    assert framed.shape == plain.shape
    assert (framed[6 * 8, 5 * 8 : 9 * 8] == 0).all()  # the upper edge is black
    assert (framed[9 * 8, 7 * 8] == plain[0, 0]).all()  # the inside stays
    unnamed = pixels(picture(image, ALT, boxes=[("", (4, 6, 10, 12))]))
    assert (framed != unnamed).any()
    corner = pixels(picture(image, ALT, boxes=[("x", (0, 0, 16, 16))]))  # no room above: still inside
    assert corner.shape == plain.shape


@pytest.mark.parametrize(
    "image, options, message",
    [
        (np.zeros((2, 3, 4, 4)), {}, r"image has shape \(2, 3, 4, 4\); expected \(3, H, W\)"),
        (np.zeros((2, 4, 4)), {}, r"shape \(2, 4, 4\)"),
        (np.full((3, 4, 4), 2.0), {}, "from 2 to 2"),
        (np.zeros((3, 4, 4), int), {}, "image is int64"),
        (np.zeros((3, 4, 4)), {"scale": 0}, "scale is 0"),
        (np.zeros((3, 4, 4)), {"scale": 1.5}, "scale is 1.5"),
        (np.zeros((3, 4, 4)), {"alt": " "}, "alt is ' '"),
    ],
)
def test_picture_refuses(image, options, message):
    with pytest.raises(ValueError, match=message):
        picture(image, **({"alt": ALT} | options))


def test_bars_write_every_value_and_mark_the_word():
    html = bar_chart({"red": 0.75, "<end>": 0.25}, "next word & more", highlight="<end>")
    assert "0.750" in html and "<b>0.250</b>" in html and "▶ &lt;end&gt;" in html and html.count("▶") == 1
    widths = [int(w) for w in re.findall(r"height:12px;width:(\d+)px", html)]
    assert widths == [120, 40]
    assert ">next word &amp; more</caption>" in html
    assert bar_chart({"a": 1, "b": 3}, ALT, highlight=["a", "b"], limit=4).count("▶") == 2


@pytest.mark.parametrize(
    "values, options, message",
    [
        ({}, {}, "values is"),
        ([0.5], {}, "values is"),
        ({"a": 1.5}, {}, r"values\['a'\] is 1.5; expected a number from 0 to 1.0"),
        ({"a": -0.5}, {}, "is -0.5"),
        ({"a": float("nan")}, {}, "is nan"),
        ({"a": 0.5}, {"highlight": "b"}, r"highlight names \['b'\]"),
        ({"a": 0.5}, {"alt": ""}, "alt is ''"),
    ],
)
def test_bars_refuse(values, options, message):
    with pytest.raises(ValueError, match=message):
        bar_chart(values, **({"alt": ALT} | options))


def test_table_has_header_and_caption():
    html = html_table([["<a>", 1], [Html("<b>x</b>"), 2.5]], ["word", "`id`"], "ids & words")
    assert "&lt;a&gt;" in html and "<b>x</b>" in html and html.count("<td") == 4 and html.count('scope="col"') == 2
    assert "ids &amp; words</caption>" in html and ">id</code>" in html
    with pytest.raises(ValueError, match=r"rows\[1\] has 1 cells, header has 2"):
        html_table([["a", 1], ["b"]], ["word", "id"], "ids")


def test_plain_text_is_escaped_everywhere():
    evil = '<script>alert("x")</script>'
    drawn = [
        note(evil),
        columns(evil, evil),
        stack(evil),
        html_table([[evil]], [evil], evil),
        bar_chart({evil: 0.5}, evil),
        picture(red(), evil),
        markup(evil),
        Html("<i>a</i>") + evil,
    ]
    for html in drawn:
        assert isinstance(html, Html) and "<script" not in html and "&lt;script&gt;" in html
    assert stack(note("a"), "b").count("<p") == 1


def test_parts_are_well_formed():
    class Checker(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open = []

        def handle_starttag(self, tag, attrs):
            if tag != "img":
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    parts = columns(picture(red(), ALT), bar_chart({"a": 0.5}, ALT, "a"), html_table([["a"]], ["b"], "c"), note("`x`"))
    for html in (parts, view.card(stack(parts)), demo().static()):
        checker = Checker()
        checker.feed(html)
        assert checker.open == []
