"""The frame of every explorer: controls, one HTML view drawn by a plain function, and the parts of such views.

    def render(word, step):                     # one argument for each control
        return columns(picture(image, "a red circle"), bar_chart(p, "the next word"))

    Explorer({"word": Dropdown(...), "step": IntSlider(...)}, render, "Which word comes next")

The parts return `Html`. Whatever is not `Html` is plain text to them: they escape it.
"""

import base64
import html
import io

import ipywidgets as widgets
from PIL import Image, ImageDraw, ImageFont

from course_utils.cards import Card, card, rich
from course_utils.plots import array, to_pixels

_ALERT = "border:2px solid #b00020;background:#fff3f3;color:#7a0016;padding:8px 12px"
_BARE = "border:none;padding:1px 6px;background:#ffffff;color:#1a1a1a"
_CELL = "border:1px solid #bdbdbd;padding:2px 8px;text-align:left;background:#ffffff;color:#1a1a1a"
_TABLE = "border-collapse:collapse;margin:4px 0px;background:#ffffff;color:#1a1a1a;font-size:13px"
_COLUMN = "display:inline-block;vertical-align:top;margin:0px 16px 8px 0px"


class Html(str):
    """Text that is HTML already and is not escaped again; adding plain text to it escapes that text."""

    def __add__(self, other):
        return Html(str.__add__(self, markup(other)))


class Explorer(Card):
    """Controls and one HTML view, `render(**values)`, drawn again whenever a control changes.

    controls: dict of name -> widget with a value and a description; render: takes one argument for each name and
    returns HTML; alt: what the explorer shows, the name of its poster; rows: lists of names, one list a row of controls
    (default: all in one row, which wraps); poster: a function that returns a PIL image or PNG bytes for places that
    show no HTML. The first drawing raises what render raises; a later error is shown in the view and kept in `.error`.
    """

    def __init__(self, controls, render, alt, rows=None, poster=None):
        self.controls, self.alt, self.poster = _controls(controls), _alt(alt), poster
        if not callable(render):
            raise TypeError(f"render is {render!r}; expected a function of {', '.join(controls)} that returns HTML")
        rows = [list(controls)] if rows is None else [list(row) for row in rows]
        if sorted(name for row in rows for name in row) != sorted(controls):
            raise ValueError(f"rows is {rows}; expected every control exactly once: {list(controls)}")
        self.render, self.error, self._held = render, None, False
        self.view = widgets.HTML(self._drawn(), layout=widgets.Layout(width="100%", height="auto"))
        self.view.add_class("course-view")
        wrap = widgets.Layout(flex_flow="row wrap", width="100%", align_items="center")
        super().__init__([*(widgets.HBox([controls[n] for n in row], layout=wrap) for row in rows), self.view], alt)
        self.add_class("course-explorer")
        for control in self.controls.values():
            control.observe(self._changed, "value")

    @property
    def state(self):
        """Return the values of all controls: name -> value."""
        return {name: control.value for name, control in self.controls.items()}

    def set(self, **values):
        """Return None after setting several controls with one drawing at the end."""
        if unknown := sorted(set(values) - set(self.controls)):
            raise ValueError(f"no control is named {', '.join(unknown)}; the controls are {', '.join(self.controls)}")
        self._held = True
        try:
            for name, value in values.items():
                self.controls[name].value = value
        finally:
            self._held = False
            self._changed()

    def _drawn(self):
        drawn = self.render(**self.state)
        if not isinstance(drawn, str):
            raise TypeError(f"render returned {type(drawn).__name__}; expected HTML as a str")
        self._content = drawn
        return card(drawn)

    def _changed(self, _=None):
        if self._held:
            return
        try:
            self.view.value, self.error = self._drawn(), None
        except Exception as error:  # shown where the reader looks; a log console is not
            self.error = error
            told = f"<b>{html.escape(type(error).__name__)}</b>: {html.escape(str(error))}"
            self.view.value = card(f'<div role="alert" style="{_ALERT}">{told}</div>')

    def static(self):
        """Return the view as HTML, followed by the names of the controls."""
        names = ", ".join(rich(control.description.rstrip(":")) for control in self.controls.values())
        return card(f"{self._content}<div><i>Run this cell to change: {names}.</i></div>")

    def _repr_mimebundle_(self, **kwargs):
        data = super()._repr_mimebundle_(**kwargs)
        if self.poster is None:
            return data
        still = self.poster()
        still = still if isinstance(still, bytes) else _png(still)
        data["image/png"] = base64.b64encode(still).decode()
        return data, {"image/png": {"alt": self.alt}}


def markup(part):
    """Return a part as Html: unchanged when it is Html, otherwise escaped, with `words in backquotes` as code."""
    return part if isinstance(part, Html) else Html(rich(part))


def picture(image, alt, scale=8, boxes=None):
    """Return an image (C, H, W), C 1 or 3, float in [0, 1] or uint8, as an <img> of whole, sharp pixels.

    boxes: list of (label, (x0, y0, x1, y1)) in pixels of the image, drawn as frames with their labels. The pixels are
    repeated `scale` times in the picture itself, so that a page that drops styles cannot smooth them.
    """
    alt, image = _alt(alt), array(image)
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise ValueError(f"image has shape {image.shape}; expected (3, H, W) or (1, H, W); take one from a batch: x[0]")
    if not isinstance(scale, int) or scale < 1:
        raise ValueError(f"scale is {scale!r}; expected a whole number, at least 1")
    pixels = to_pixels(image).repeat(scale, 0).repeat(scale, 1)  # (H scale, W scale, 3) uint8
    drawn = Image.fromarray(pixels)
    for label, box in boxes or ():
        _frame(drawn, str(label), [float(edge) * scale for edge in box])
    data = base64.b64encode(_png(drawn)).decode()
    size = f'width="{drawn.width}" height="{drawn.height}"'
    style = "image-rendering:pixelated;max-width:none;border:1px solid #767676"
    return Html(f'<img src="data:image/png;base64,{data}" alt="{html.escape(alt)}" {size} style="{style}">')


def bar_chart(values, alt, highlight=None, limit=1.0, digits=3):
    """Return {word: value in [0, limit]} as a table of horizontal bars, the value written beside each.

    highlight: a word, or a collection of words, set in bold with an arrow; alt: the table's caption.
    """
    if not isinstance(values, dict) or not values:
        raise ValueError(f"values is {values!r}; expected a dict of at least one word and its value")
    marked = {highlight} if isinstance(highlight, str) else set(highlight or ())
    if unknown := sorted(marked - set(values)):
        raise ValueError(f"highlight names {unknown}, which values lacks; it has {list(values)}")
    lines = []
    for word, value in values.items():
        value = float(value)
        if not -1e-6 <= value <= limit + 1e-6:
            raise ValueError(f"values[{word!r}] is {value}; expected a number from 0 to {limit}; set limit for more")
        name, text = html.escape(str(word)), f"{max(value, 0):.{digits}f}"
        if word in marked:
            name, text = f"<b>▶ {name}</b>", f"<b>{text}</b>"
        colour = "#D55E00" if word in marked else "#0072B2"
        bar = f"background:{colour};height:12px;width:{max(1, round(160 * value / limit))}px"
        lines.append(f'<tr><td style="{_BARE};text-align:right">{name}</td><td style="{_BARE};width:160px">'
                     f'<div style="{bar}"></div></td><td style="{_BARE}">{text}</td></tr>')  # fmt: skip
    return Html(f'<table style="{_TABLE}">{_caption(_alt(alt))}{"".join(lines)}</table>')


def html_table(rows, header, caption):
    """Return rows (sequences of text or Html) under a header, with a caption, as a table."""
    for k, row in enumerate(rows):
        if len(row) != len(header):
            raise ValueError(f"rows[{k}] has {len(row)} cells, header has {len(header)}; give as many")
    head = "".join(f'<th scope="col" style="{_CELL};font-weight:bold">{markup(cell)}</th>' for cell in header)
    lines = ("".join(f'<td style="{_CELL}">{markup(cell)}</td>' for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return Html(f'<table style="{_TABLE}">{_caption(caption)}<tr>{head}</tr>{body}</table>')


def note(text):
    """Return text as a paragraph."""
    return Html(f'<p style="margin:6px 0px">{markup(text)}</p>')


def columns(*parts):
    """Return the parts side by side; they wrap on a narrow page."""
    return Html("".join(f'<div style="{_COLUMN}">{markup(part)}</div>' for part in parts))


def stack(*parts):
    """Return the parts one below the other."""
    return Html("".join(f"<div>{markup(part)}</div>" for part in parts))


def _caption(text):
    return f'<caption style="text-align:left;padding:2px 6px;color:#1a1a1a">{markup(text)}</caption>'


def _alt(alt):
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError(f"alt is {alt!r}; expected a text that says what is seen")
    return alt


def _controls(controls):
    if not isinstance(controls, dict) or not controls:
        raise TypeError(f"controls is {controls!r}; expected a dict of at least one name and its widget")
    for name, control in controls.items():
        if not isinstance(control, widgets.Widget) or not control.has_trait("value"):
            raise TypeError(f"controls[{name!r}] is {control!r}; expected a widget with a value, such as IntSlider")
        if not getattr(control, "description", ""):
            raise ValueError(f"controls[{name!r}] has no description; give it one, screen readers need it")
        if getattr(control.style, "description_width", None) == "":
            control.style.description_width = "initial"
    return controls


def _png(image):
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=3)
    return stream.getvalue()


def _frame(drawn, label, box):
    """Return None after drawing a black and white frame with its label, which reads on every background."""
    pen, (x0, y0, x1, y1) = ImageDraw.Draw(drawn), box
    pen.rectangle((x0 - 1, y0 - 1, x1 + 1, y1 + 1), outline="white", width=4)
    pen.rectangle((x0, y0, x1, y1), outline="black", width=2)
    font = ImageFont.load_default()
    left, top, right, bottom = pen.textbbox((0, 0), label, font=font)
    wide, high = right - left + 6, bottom - top + 6
    x = min(max(x0, 0), max(drawn.width - wide, 0))
    y = y0 - high if y0 >= high else min(y1, drawn.height - high)
    pen.rectangle((x, y, x + wide, y + high), fill="white", outline="black")
    pen.text((x + 3 - left, y + 3 - top), label, fill="black", font=font)
