"""The Show-and-Tell stepper draws the model's own pass, for every value of every control."""

import random
import re

import ipywidgets as widgets
import pytest
import torch

from course_utils.captioners import ShowTellLSTM, ShowTellRNN
from course_utils.encoders import GridEncoder
from course_utils.explorers import stepper
from course_utils.explorers.stepper import FEEDS, FIRST, OWN, show_and_tell_stepper, step_view, walk
from course_utils.scenes import COLOURS, SHAPES, Recipe, place
from course_utils.vocabulary import END, START, T_MAX, course_vocabulary

WORDS = course_vocabulary()
SCENE = place(list(FIRST))


@pytest.fixture(scope="module", params=[ShowTellRNN, ShowTellLSTM])
def parts(request):
    """An encoder and a captioner that knows the sentences of SCENE by heart."""
    torch.manual_seed(0)
    encoder, model = GridEncoder(), request.param(len(WORDS), E=16, H=32, I=16)
    with torch.no_grad():
        grid = encoder(SCENE.images)
    ids = SCENE.reference_ids(WORDS)[0, :1]  # (1, T)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        scores = model(grid, ids)
        torch.nn.functional.cross_entropy(scores[0], ids[0, 1:], ignore_index=0).backward()
        optimiser.step()
    return model, encoder


def build(parts, **options):
    return show_and_tell_stepper(*parts, WORDS, **options)


def text(html):
    return " ".join(re.sub(r"<[^>]*>", " ", html.replace('src="', '<"')).split())


def choices(control):
    """Return every value that a control can take."""
    if isinstance(control, widgets.IntSlider):
        return list(range(control.min, control.max + 1))
    return [value for _, value in control._options_full] if hasattr(control, "_options_full") else list(control.options)


def test_first_view(parts):
    explorer = build(parts)
    assert explorer.state["step"] == 1 and explorer.error is None
    seen = text(explorer.view.value)
    assert "Step 1 reads a ." in seen and "References: a red circle above a blue square a blue square below" in seen
    assert 'alt="The scene: a red circle above a blue square"' in explorer.view.value
    assert "▶ red" in seen and "(19 other words)" in seen


def test_it_says_the_caption_and_ends(parts):
    explorer = build(parts)
    explorer.controls["step"].value = 7
    seen = text(explorer.view.value)
    assert "Said so far: a red circle above a blue square &lt;end&gt;" in seen and "Step 7 reads square ." in seen
    explorer.controls["step"].value = 8
    assert "The sentence has ended; step 7 is its last." in text(explorer.view.value)


def test_distributions_are_those_of_the_model(parts):
    model, encoder = parts
    with torch.no_grad():
        grid, state, word = encoder(SCENE.images), None, torch.tensor([START])
        state = model.init_state(grid)
        for read, p in walk(model, grid, None, T_MAX):
            assert read == word.item()
            log_probs, state = model.step(word, state)
            torch.testing.assert_close(p, log_probs[0].exp())
            word = log_probs.argmax(1)
    assert word.item() == END
    forced = WORDS.encode("a blue square below a red circle", T_MAX).tolist()
    passed = walk(model, grid, forced, T_MAX)
    assert [read for read, _ in passed] == forced[:8]
    scores = model(grid, torch.tensor([forced])).softmax(-1)[0]  # (T-1, V)
    torch.testing.assert_close(torch.stack([p for _, p in passed]), scores[:8].detach(), rtol=1e-4, atol=1e-6)


def test_bars_add_up_to_one(parts):
    for step in range(8):
        view = step_view(*parts, WORDS, SCENE, step).split("Said so far")[0]
        bars = [float(value) for value in re.findall(r'">(?:<b>)?(\d\.\d{3})(?:</b>)?</td></tr>', view)]
        assert len(bars) == stepper.SHOWN + 1 and abs(sum(bars) - 1) < 0.01 and bars[0] == max(bars[:-1])


def test_every_value_of_every_control_changes_the_view(parts):
    explorer = build(parts)
    start = explorer.state | {"step": 3}
    for name, control in explorer.controls.items():
        explorer.set(**start)
        views = []
        for value in choices(control):
            control.value = value
            assert explorer.error is None, (name, value)
            view = explorer.view.value
            assert ("No scene: two objects share one" in view) != ('alt="The scene: a ' in view), (name, value)
            views.append(view)
        assert len(set(views)) > 1, name
    assert len(explorer.controls) == 11


def test_random_combinations(parts):
    explorer, draw = build(parts), random.Random(0)
    scenes = 0
    for _ in range(60):
        explorer.set(**{name: draw.choice(choices(control)) for name, control in explorer.controls.items()})
        assert explorer.error is None and "alert" not in explorer.view.value
        scenes += "<img" in explorer.view.value
    assert scenes > 30


def test_every_colour_and_shape_reaches_the_scene(parts):
    explorer = build(parts)
    for colour in COLOURS:
        for shape in SHAPES:
            explorer.set(colour_1=colour, shape_1=shape, row_2=0, column_2=2)
            if (colour, shape) != ("blue", "square"):
                assert f"a {colour} {shape} left of a blue square" in explorer.view.value


def test_reads_of_a_reference(parts):
    explorer = build(parts)
    explorer.set(reads=FEEDS[2], step=4)
    table = text(explorer.view.value).split("All steps")[1]
    read = re.findall(r"\d (&lt;start&gt;|\w+) (?:&lt;\w+&gt;|\w+) \d\.\d{3}", table)
    assert read == ["&lt;start&gt;", "a", "blue", "square", "below"]


def test_layout_and_options(parts):
    small = build(parts, recipe=Recipe(layout=2, radius=(3.2, 4.2)), steps=4)
    assert small.controls["row_2"].options == (0, 1) and small.controls["step"].max == 3 and small.error is None
    other = build(parts, objects=[("green", "triangle", 1, 1), ("red", "square", 1, 2)])
    assert "a green triangle left of a red square" in other.view.value
    assert other.controls["reads"].value == OWN


@pytest.mark.parametrize(
    ("model", "encoder", "options", "error", "message"),
    [
        (torch.nn.Linear(2, 2), GridEncoder(), {}, TypeError, "model is a Linear; expected a captioner"),
        (None, GridEncoder(), {}, TypeError, "model is a NoneType"),
        (ShowTellRNN(27), torch.rand(3), {}, TypeError, "encoder is a Tensor; expected a function of images"),
        (ShowTellRNN(27), GridEncoder(), {"objects": FIRST[:1]}, ValueError, "objects has 1 entries; expected two"),
        (ShowTellRNN(27, L=9), GridEncoder(), {}, ValueError, r"image has shape \(1, 64, 48\); expected a grid"),
    ],
)
def test_bad_arguments_are_named(model, encoder, options, error, message):
    with pytest.raises(error, match=message):
        show_and_tell_stepper(model, encoder, WORDS, **options)
