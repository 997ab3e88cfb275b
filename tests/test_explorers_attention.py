"""The explorers of attention draw the model's own pass, for every value of every control."""

import random
import re

import ipywidgets as widgets
import pytest
import torch

from course_utils.captioners import AttentionCaptioner, ShowTellRNN
from course_utils.encoders import GridEncoder
from course_utils.explorers.attention import (
    DARK,
    attention_stepper,
    described,
    draw_at,
    entropy,
    glances,
    lit,
    move_the_shape,
    sharpness_explorer,
    where,
)
from course_utils.explorers.stepper import FEEDS, FIRST
from course_utils.pointing import watched_captions
from course_utils.scenes import Recipe, place
from course_utils.training import teacher_forcing_loss
from course_utils.vocabulary import START, course_vocabulary

WORDS = course_vocabulary()
SCENE = place(list(FIRST))
OPTIONS = ({}, {"sentinel": True}, {"gate": True, "scoring": "additive"})


@pytest.fixture(scope="module", params=OPTIONS, ids=["plain", "sentinel", "gate"])
def parts(request):
    """An encoder and a captioner that knows a sentence of SCENE by heart."""
    torch.manual_seed(0)
    encoder, model = GridEncoder(), AttentionCaptioner(len(WORDS), E=16, H=32, K=8, **request.param)
    with torch.no_grad():
        grid = encoder(SCENE.images)
    ids = SCENE.reference_ids(WORDS)[0, :1]  # (1, T)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        teacher_forcing_loss(model(grid, ids), ids).backward()
        optimiser.step()
    return model, encoder


def values(control):
    """Return every value that a control can take; of a long slider, a part of them with both ends."""
    if isinstance(control, widgets.FloatLogSlider):
        count = round((control.max - control.min) / control.step)
        return [control.base ** (control.min + control.step * k) for k in range(count + 1)]
    if isinstance(control, (widgets.IntSlider, widgets.FloatSlider)):
        count = round((control.max - control.min) / control.step)
        return [control.min + control.step * k for k in range(count + 1)]
    return [value for _, value in control._options_full] if hasattr(control, "_options_full") else list(control.options)


def text(html):
    return " ".join(re.sub(r"<[^>]*>", " ", html.replace('src="', '<"')).split())


def sweep(explorer, picture=True):
    """Every value of every control, then random combinations: no error, the view changes, pictures have a text."""
    start, draw = dict(explorer.state), random.Random(0)
    for name, control in explorer.controls.items():
        explorer.set(**start)
        views = set()
        for value in values(control):
            control.value = value
            assert explorer.error is None, (name, value, explorer.error)
            view = explorer.view.value
            assert ("No scene: two objects share one" in view) != ('alt="' in view), (name, value)
            views.add(view)
        assert len(views) > 1, name
    for _ in range(20):
        explorer.set(**{name: draw.choice(values(control)) for name, control in explorer.controls.items()})
        assert explorer.error is None and "alert" not in explorer.view.value


def test_every_control_of_the_stepper(parts):
    sweep(attention_stepper(*parts, WORDS))


def test_every_control_of_move_the_shape(parts):
    sweep(move_the_shape(*parts, WORDS))


def test_every_value_of_the_sharpness():
    torch.manual_seed(1)
    sweep(sharpness_explorer(torch.randn(64), torch.randn(64, 48), SCENE))


def test_glances_are_those_of_the_decoder(parts):
    model, encoder = parts
    with torch.no_grad():
        grid = encoder(SCENE.images)
        tokens, alpha = watched_captions(model, grid)
    passed = glances(model, grid)
    assert [word.said for word in passed] == tokens[0].tolist() and passed[0].read == START
    torch.testing.assert_close(torch.stack([word.alpha for word in passed]), alpha[0])
    forced = WORDS.encode("a blue square below a red circle").tolist()
    with torch.no_grad():
        whole = model.unroll(grid, torch.tensor([forced]))
    passed = glances(model, grid, forced)
    assert [word.read for word in passed] == forced[:-1]
    near = {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(torch.stack([word.alpha for word in passed]), whole.alpha[0], **near)
    torch.testing.assert_close(torch.stack([word.p for word in passed]), whole.logits[0].softmax(-1), **near)
    torch.testing.assert_close(torch.tensor([word.beta for word in passed]), whole.beta[0], **near)


def test_the_view_names_what_it_shows(parts):
    explorer = attention_stepper(*parts, WORDS)
    explorer.set(step=3)
    seen = text(explorer.view.value)
    assert "Step 3 reads circle , looks, and says above ." in seen and "either" in seen
    assert ("Weight on the sentinel" in seen) == (parts[0].rest is not None)
    assert ("Gate β" in seen) == (parts[0].gate is not None)
    explorer.set(step=8)
    assert "says &lt;end&gt; . The sentence has ended." in text(explorer.view.value)
    explorer.set(step=2, reads=FEEDS[2])
    assert "Step 2 reads blue , looks" in text(explorer.view.value)


def test_lit_has_one_block_a_cell_and_no_smoothing():
    alpha = torch.zeros(64)
    alpha[9], alpha[10] = 0.8, 0.2  # row 1, columns 1 and 2
    image = torch.ones(3, 32, 32)
    light = lit(image, alpha)[0]
    assert len(light.unique()) == 3 and (light[4:8, 4:8] == 1).all()
    torch.testing.assert_close(light[4:8, 8:12], torch.full((4, 4), DARK + (1 - DARK) / 4))
    assert (light[8:] == DARK).all() and (light[:4] == DARK).all()
    assert torch.equal(lit(image, torch.cat([alpha, torch.ones(1)])), lit(image, alpha)), "a sentinel has no block"
    with pytest.raises(ValueError, match="alpha has 50 places, image 32 pixels"):
        lit(image, torch.ones(50))


def test_where_and_described():
    scene = place([("red", "circle", 0, 0), ("blue", "square", 2, 2)])
    corner = torch.zeros(65)
    corner[9] = 1
    assert where(scene, corner) == ("row 1, column 1", "red circle")
    assert where(scene, corner.roll(3)) == ("row 1, column 4", "background")
    assert where(scene, torch.eye(65)[64])[0] == "sentinel"
    red, blue = "red circle", "blue square"
    assert described("a red circle above a blue square", scene) == ["-", red, red, "either", "-", blue, blue]
    assert described("a red square left of a blue square", scene) == [
        "-", "-", "-", "either", "-", "-", blue, blue]
    assert described("a red circle", scene) == ["-", red, red] and described("red red", scene) == ["-", "-"]


def test_entropy_has_its_two_ends():
    torch.testing.assert_close(entropy(torch.full((64,), 1 / 64)), torch.tensor(64.).log())
    assert entropy(torch.eye(64)[3]) == 0


def test_sharpness_numbers():
    scores, values_ = torch.arange(64.) / 8, torch.eye(64)
    explorer = sharpness_explorer(scores, values_, SCENE)
    explorer.set(beta=2.0 ** 5)
    assert "largest weight 0.982" in text(explorer.view.value)
    explorer.set(beta=2.0 ** -5)
    assert "exp(entropy) 63.8" in text(explorer.view.value)


def test_move_the_shape_judges_only_what_training_scenes_look_like(parts):
    explorer = move_the_shape(*parts, WORDS)
    for row, column, told in ((5.5, 5.5, "Verdict: "), (10.5, 5.5, "Verdict: none; the object stands between"),
                              (15.5, 15.5, "Verdict: none; both objects stand in one cell")):
        explorer.set(row=row, column=column)
        assert told in text(explorer.view.value) and ("none;" in text(explorer.view.value)) == ("none" in told)


def test_draw_at_equals_the_renderer():
    recipe = Recipe(jitter=0., noise=0., colour_jitter=0., radius=(4., 4.))
    scene = place([("red", "triangle", 0, 2), ("blue", "circle", 1, 1)], recipe)
    mine = draw_at([("red", "triangle"), ("blue", "circle")], scene.centres[0].tolist(), recipe)
    assert torch.equal(mine.images, scene.images) and torch.equal(mine.cells, scene.cells)
    assert torch.equal(mine.boxes, scene.boxes) and mine.references(0) == scene.references(0)


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: attention_stepper(ShowTellRNN(27), GridEncoder(), WORDS), TypeError, "model is a ShowTellRNN; expected"),
    (lambda: attention_stepper(AttentionCaptioner(27), 3, WORDS), TypeError, "encoder is a int"),
    (lambda: attention_stepper(AttentionCaptioner(27), GridEncoder(), WORDS, objects=FIRST[:1]), ValueError,
     "objects has 1 entries"),
    (lambda: move_the_shape(None, GridEncoder(), WORDS), TypeError, "model is a NoneType"),
    (lambda: sharpness_explorer(torch.ones(1, 64), torch.ones(64, 2), SCENE), ValueError,
     r"scores have shape \(1, 64\)"),
])
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
