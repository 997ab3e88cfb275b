"""Cards: boxes of widgets on an opaque white background, whose first view stays in the stored notebook."""

import html
import re

import ipywidgets as widgets

CARD = "background:#ffffff;color:#1a1a1a;padding:10px 12px;border-radius:4px;line-height:1.45;font-size:14px"
CODE = "background:#eeeeee;color:#1a1a1a;padding:0px 3px;font-size:13px"

# Inside a card every colour of the widgets is set, so that a dark theme cannot put light words on the white background.
STYLE = """<style>
.course-card { background: #ffffff; color: #1a1a1a; color-scheme: light; border: 1px solid #767676; border-radius: 6px;
  padding: 8px; --jp-widgets-color: #1a1a1a; --jp-widgets-label-color: #1a1a1a; --jp-widgets-readout-color: #1a1a1a;
  --jp-widgets-input-color: #1a1a1a; --jp-widgets-input-background-color: #ffffff;
  --jp-widgets-input-border-color: #767676; --jp-ui-font-color1: #1a1a1a; --jp-content-font-color1: #1a1a1a;
  --jp-ui-font-color0: #000000; --jp-layout-color1: #ffffff; --jp-layout-color2: #eeeeee; --jp-layout-color3: #bdbdbd;
  --jp-border-color1: #767676; --jp-widgets-slider-border-color: #767676; }
.course-card .widget-radio-box { max-width: none; margin-bottom: 0; }
.course-card .widget-radio-box label { height: auto; line-height: 1.4; margin: 3px 0; white-space: normal;
  display: flex; flex-direction: row-reverse; justify-content: flex-end; align-items: flex-start; }
.course-card .widget-radio-box input { flex: none; width: auto; margin: 1px 8px 0 2px; line-height: normal; }
.course-card .widget-checkbox, .course-card .widget-label-basic { height: auto; line-height: 1.4; }
.course-card .widget-checkbox span, .course-card .widget-label-basic span { white-space: normal; line-height: 1.4; }
.course-card .widget-html-content > div { padding: 2px !important; }
.course-card .widget-toggle-buttons { display: flex; align-items: center; width: auto; }
.course-card .widget-toggle-buttons button { width: auto; }
.course-card .widget-toggle-buttons button.mod-active { background: #0072B2; color: #ffffff; }
.course-card .noUi-handle, .course-card .ui-slider-handle { background: #0072B2; border-color: #004c78; }
.course-card :focus-visible, .course-card .noUi-handle:focus { outline: 3px solid #D55E00; outline-offset: 2px; }
.course-card button { border: 1px solid #767676; }
</style>"""


class Card(widgets.VBox):
    """A box of widgets that also carries `static()`, HTML of its first view, in its mime bundle.

    GitHub, a stored notebook and an untrusted one show that HTML; a live notebook shows the widgets.
    """

    def __init__(self, children, name):
        super().__init__([widgets.HTML(STYLE, layout=widgets.Layout(display="none")), *children])
        self.layout.max_width = "920px"
        self.name = name
        self.add_class("course-card")

    def static(self):
        """Return HTML of what a reader sees before anything runs."""
        raise NotImplementedError(f"{type(self).__name__} must define static()")

    def _repr_mimebundle_(self, **kwargs):
        parent = getattr(super(), "_repr_mimebundle_", None)  # ipywidgets 7 has none and never calls this one
        data = dict((parent(**kwargs) if parent else None) or {})
        return data | {"text/plain": self.name, "text/html": self.static()}


def rich(text):
    """Return plain text as safe HTML: everything escaped, `words in backquotes` as code."""
    return re.sub(r"`([^`]+)`", rf'<code style="{CODE}">\1</code>', html.escape(str(text)))


def card(content):
    """Return HTML content on an opaque white background in dark words, readable in light and dark themes."""
    return f'<div style="{CARD}">{content}</div>'


def say(text, role="status"):
    """Return a line of plain text as a card that screen readers announce."""
    return card(f'<div role="{role}">{rich(text)}</div>')
