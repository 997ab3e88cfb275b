"""The beam tree draws what the decoder did: its nodes, fates, pool and stop rule, for every value of every control."""

import base64
import random
import re
import xml.etree.ElementTree as ET

import ipywidgets as widgets
import pytest
import torch

from course_utils.captioners import ShowTellRNN
from course_utils.decoding import beam_search, greedy, score
from course_utils.encoders import GridEncoder, encode
from course_utils.explorers.beam import OBJECTS, beam_tree, draw_tree, pool, read_trace
from course_utils.scenes import Recipe, place
from course_utils.vocabulary import END, PAD, T_MAX, course_vocabulary

WORDS, RECIPE = course_vocabulary(), Recipe()
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def models():
    """An encoder and a captioner that are not trained; the captioner ends early, late, or not at all."""
    torch.manual_seed(0)
    encoder, model = GridEncoder(), ShowTellRNN(len(WORDS))
    with torch.no_grad():
        model.score.weight *= 3
        model.score.bias[END] += 2
    return encoder, model


@pytest.fixture
def explorer(models):
    return beam_tree(models[1], models[0], WORDS, RECIPE)


def found(models, k, **options):
    grid = encode(models[0], place(list(OBJECTS), RECIPE, 0).images)
    return beam_search(models[1], grid, k, trace=True, **options)


def choices(control):
    if isinstance(control, widgets.IntSlider):
        return list(range(control.min, control.max + 1))
    if isinstance(control, widgets.FloatSlider):
        steps = round((control.max - control.min) / control.step)
        return [round(control.min + i * control.step, 6) for i in range(steps + 1)]
    return list(control.options)


def svg(view):
    """The tree of a view as parsed SVG."""
    data = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', view)
    assert len(data) == 1
    return ET.fromstring(base64.b64decode(data[0]))


def frames(tree):
    """How many frames of the tree are solid, dashed, and drawn inside another one."""
    boxes = [box for box in tree.iter(f"{SVG}rect") if box.get("rx")]
    inner = sum(box.get("fill") == "none" for box in boxes)
    dashed = sum(box.get("stroke-dasharray", "none") != "none" for box in boxes)
    return len(boxes) - inner - dashed, dashed, inner


def test_every_value_of_every_control(explorer):
    explorer.set(step=5, k=3, penalty="average")
    views = set()
    for name, control in explorer.controls.items():
        start, mine = control.value, []
        for value in choices(control):
            control.value = value
            assert explorer.error is None, (name, value, explorer.error)
            mine.append(explorer.view.value)
        control.value = start
        least = 1 if name == "alpha" else 2  # before anything is complete, alpha only moves the bound
        assert len(set(mine)) >= least, f"{name} changes nothing"
        views |= set(mine)
    draw = random.Random(0)
    for _ in range(60):
        explorer.set(**{name: draw.choice(choices(control)) for name, control in explorer.controls.items()})
        assert explorer.error is None, (explorer.state, explorer.error)
        views.add(explorer.view.value)
    pictures = re.findall(r"<img[^>]*>", "".join(views))
    assert len(pictures) > 100 and all(re.search(r'alt="[^"]{20,}"', picture) for picture in pictures)
    assert any("change one of them" in view for view in views)  # two objects in one place


def test_alpha_acts_with_a_penalty_only(explorer):
    explorer.set(step=T_MAX, k=6)
    seen = {}
    for penalty in ("none", "average", "gnmt"):
        explorer.controls["penalty"].value = penalty
        seen[penalty] = set()
        for alpha in (0.0, 0.5, 2.0):
            explorer.controls["alpha"].value = alpha
            seen[penalty].add(explorer.view.value)
    assert {penalty: len(views) for penalty, views in seen.items()} == {"none": 1, "average": 3, "gnmt": 3}


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize(("penalty", "alpha"), [("none", None), ("average", 1.0), ("gnmt", 0.6)])
def test_the_tree_is_the_search(models, k, penalty, alpha):
    result = found(models, k, penalty=penalty, alpha=alpha, n_best=k)
    levels = read_trace(result)
    assert len(levels) == len(result.trace)
    complete = pool(levels, k, penalty, alpha)
    n = len(complete)
    assert n >= 1 and (result.scores[0, n:] == float("-inf")).all()
    for rank, (value, node) in enumerate(complete):
        row = result.tokens[0, rank]
        assert node.ids == tuple(row[: len(node.ids)].tolist()) and (row[len(node.ids) :] == 0).all()
        assert value == pytest.approx(result.scores[0, rank].item(), abs=1e-6)
    grid = encode(models[0], place(list(OBJECTS), RECIPE, 0).images)
    live = [()]
    for t, level in enumerate(levels, 1):
        captions = torch.tensor([[*node.ids] + [PAD] * (T_MAX - t) for node in level])
        again = score(models[1], grid.expand(len(level), -1, -1), captions)
        assert torch.allclose(again, torch.tensor([node.log_p for node in level]), atol=1e-4)
        assert all(node.ids[:-1] == (levels[t - 2][node.parent].ids if t > 1 else ()) for node in level)
        assert {node.ids[:-1] for node in level} <= set(live)
        live = [node.ids for node in level if node.fate == "live"]
        assert len(live) == k or t == T_MAX
        assert all(node.ids[-1] == END or t == T_MAX for node in level if node.fate == "complete")


def test_frames_tell_the_fates(explorer, models):
    for k in (1, 3, 6):
        levels = read_trace(found(models, k))
        for step in range(T_MAX + 1):
            explorer.set(step=step, k=k)
            nodes = [node for level in levels[:step] for node in level]
            fates = [sum(node.fate == fate for node in nodes) for fate in ("live", "pruned", "complete")]
            assert frames(svg(explorer.view.value)) == (1 + fates[0] + fates[2], fates[1], fates[2])


def test_width_one_is_the_greedy_caption(explorer, models):
    explorer.set(step=T_MAX, k=1)
    grid = encode(models[0], place(list(OBJECTS), RECIPE, 0).images)
    caption = WORDS.decode(greedy(models[1], grid).tokens[0])
    assert f"▶ {caption}</td>" in explorer.view.value
    bold = [node.text for node in svg(explorer.view.value).iter(f"{SVG}text") if node.get("font-weight") == "bold"]
    said = [text for text in bold if text in WORDS.words and not text.startswith("<")]
    assert " ".join(said) == caption


def test_the_stop_rule_is_told(explorer, models):
    explorer.set(step=0, k=2)
    assert "One caption is live, and it is empty." in explorer.view.value and "none yet" in explorer.view.value
    steps = len(read_trace(found(models, 2)))
    told = []
    for step in range(1, T_MAX + 1):
        explorer.controls["step"].value = step
        told.append(re.search(r"[Tt]he search (ends|goes on)", explorer.view.value).group(1))
    assert told == ["goes on"] * (steps - 1) + ["ends"] * (T_MAX - steps + 1)
    explorer.set(step=1, k=1)
    assert "greedy: it goes on to its first &lt;end&gt;" in explorer.view.value


@pytest.mark.parametrize(
    ("penalty", "rule"),
    [("none", "score = log p<"), ("average", "score = log p / L^1.5<"), ("gnmt", "score = log p / ((5 + L) / 6)^1.5<")],
)
def test_the_score_is_told(explorer, penalty, rule):
    explorer.set(step=T_MAX, penalty=penalty, alpha=1.5)
    assert rule in explorer.view.value


def test_verdicts_and_references(explorer):
    explorer.set(step=T_MAX, k=6)
    assert "a red circle left of a green triangle" in explorer.view.value
    assert "✗ ungrammatical" in explorer.view.value  # the captioner is not trained


def test_objects_that_cannot_be_drawn_are_a_message(explorer):
    explorer.set(place_2=explorer.controls["place_1"].value)
    assert "stand in the same place: change one of them" in explorer.view.value
    explorer.set(place_2="row 3, column 3", colour_2="red", shape_2="circle")
    assert "look the same: change one of them" in explorer.view.value and explorer.error is None


def test_words_are_escaped_and_alt_can_be_given(models):
    levels = read_trace(found(models, 2))
    drawn = draw_tree(levels, WORDS, alt='a "quoted" <finding> of this tree')
    assert 'alt="a &quot;quoted&quot; &lt;finding&gt; of this tree"' in drawn
    assert "<start>" in [text.text for text in svg(drawn).iter(f"{SVG}text")]
    assert "Beam tree before the first step" in draw_tree([], WORDS)


def test_another_scene_and_layout(models):
    objects = (("yellow", "square", 3, 0), ("blue", "circle", 0, 3))
    explorer = beam_tree(models[1], models[0], WORDS, Recipe(layout=4, radius=(2.2, 3.2)), objects, seed=30)
    assert "a yellow square below a blue circle" in explorer.view.value and explorer.state["seed"] == 30
    assert len(explorer.controls["place_1"].options) == 16


def test_no_trace_is_an_error(models):
    grid = encode(models[0], place(list(OBJECTS), RECIPE, 0).images)
    for result in (beam_search(models[1], grid), greedy(models[1], grid, trace=True)):
        with pytest.raises(ValueError, match=r"no trace of a beam search; call beam_search\(..., trace=True\)"):
            read_trace(result)


def test_the_stored_view_needs_no_script(explorer):
    stored = explorer._repr_mimebundle_()["text/html"]
    assert "<svg" not in stored and "<script" not in stored and "data:image/svg+xml" in stored
    assert "Run this cell to change: steps grown, beam width k" in stored


def test_objects_must_fit_the_layout(models):
    with pytest.raises(ValueError, match=r"cell \(1, 2\) (lies|is) outside the layout"):
        beam_tree(models[1], models[0], WORDS, Recipe(layout=2))
    with pytest.raises(ValueError, match="purple"):
        beam_tree(models[1], models[0], WORDS, RECIPE, (("purple", "square", 0, 0), ("blue", "circle", 0, 1)))
