"""The sampling explorer shows the distribution that `sample` draws from, and counts what it drew."""

import html
import random
import re

import ipywidgets as widgets
import pytest
import torch

from course_utils.captioners import ShowTellRNN
from course_utils.decoding import greedy, sample
from course_utils.encoders import GridEncoder, encode
from course_utils.explorers.sampling import DRAWS, cut, sampling_explorer
from course_utils.scenes import generate
from course_utils.vocabulary import END, PAD, T_MAX, course_vocabulary

WORDS, SCENES = course_vocabulary(), generate(4, seed=3)


@pytest.fixture(scope="module")
def model():
    """A captioner that is not trained, with sharper scores, which ends anywhere."""
    torch.manual_seed(0)
    model = ShowTellRNN(len(WORDS))
    with torch.no_grad():
        model.score.weight *= 4
        model.score.bias[END] += 1
    return model


@pytest.fixture(scope="module")
def image():
    torch.manual_seed(1)
    return encode(GridEncoder(), SCENES.images)


@pytest.fixture
def explorer(model, image):
    return sampling_explorer(model, image, SCENES, WORDS)


def choices(control):
    if isinstance(control, widgets.IntSlider):
        return list(range(control.min, control.max + 1))
    steps = round((control.max - control.min) / control.step)
    return [round(control.min + i * control.step, 6) for i in range(steps + 1)]


def charts(view):
    """The two bar charts of a view as lists of (word, value), before and after the cuts."""
    tables = re.findall(r"<table.*?</table>", view, re.DOTALL)[:2]
    row = r'text-align:right">(?:<b>▶ )?([^<]*).*?>([\d.]+)(?:</b>)?</td></tr>'
    return [[(word, float(value)) for word, value in re.findall(row, table)] for table in tables]


def test_every_value_of_every_control(explorer):
    views = set()
    for name, control in explorer.controls.items():
        start, mine = control.value, set()
        for value in choices(control):
            control.value = value
            assert explorer.error is None, (name, value, explorer.error)
            mine.add(explorer.view.value)
        control.value = start
        assert len(mine) > 1, f"{name} changes nothing"
        views |= mine
    draw = random.Random(0)
    for _ in range(60):
        explorer.set(**{name: draw.choice(choices(control)) for name, control in explorer.controls.items()})
        assert explorer.error is None, (explorer.state, explorer.error)
        views.add(explorer.view.value)
    for view in views:
        assert all(re.search(r'alt="[^"]{20,}"', picture) for picture in re.findall(r"<img[^>]*>", view))
        for chart in charts(view):
            assert len(chart) == 9 and sum(value for _, value in chart) == pytest.approx(1, abs=0.006)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.3, 0, 1.0), (2.5, 3, 1.0), (1.0, 0, 0.6), (1.7, 9, 0.8)]
)
def test_the_cut_is_that_of_sample(model, image, temperature, top_k, top_p):
    drawn = sample(model, image, temperature=temperature, top_k=top_k, top_p=top_p, trace=True,
                   generator=torch.Generator().manual_seed(0))  # fmt: skip
    for t, step in enumerate(drawn.trace):
        for n in range(len(image)):
            if (drawn.tokens[n, :t] != END).all() and (drawn.tokens[n, :t] != PAD).all():
                after = cut(step.before[n], drawn.tokens[n, :t], temperature, top_k, top_p)
                assert torch.allclose(after, step.after[n].exp(), atol=1e-6)


def test_bars_are_the_models_own_and_what_is_left(explorer, model, image):
    best = greedy(model, image[:1], trace=True)
    for step in range(1, T_MAX + 1):
        explorer.set(step=step, top_k=2, temperature=1.0)
        t = min(step, len(best.trace)) - 1
        before, after = charts(explorer.view.value)
        own = best.trace[t].before[0].exp()
        for word, value in before[:-1]:
            assert value == pytest.approx(own[WORDS.id(html.unescape(word))].item(), abs=6e-4)
        assert sum("(cut)" in word for word, _ in after) >= 6
        assert "After the cuts: 2 of 27 words left" in explorer.view.value
        assert all(value == 0 for word, value in after if "(cut)" in word)


def test_captions_are_counted(explorer, model, image):
    for seed, temperature in ((0, 1.0), (5, 3.0), (7, 0.1)):
        explorer.set(seed=seed, temperature=temperature, scene=2)
        generator = torch.Generator().manual_seed(seed)
        drawn = sample(model, image[2:3], n=DRAWS, temperature=temperature, generator=generator)
        captions = WORDS.decode_batch(drawn.tokens[0])
        table = explorer.view.value[explorer.view.value.index("captions drawn") :]
        rows = re.findall(r"<tr><td[^>]*>([^<]*)</td><td[^>]*>(\d+)</td>", table)
        assert dict(rows) == {caption: str(captions.count(caption)) for caption in captions}
        right = sum(caption in SCENES.references(2) for caption in captions)
        assert f"12 captions drawn: {len(set(captions))} distinct, {right} of 12 right" in explorer.view.value


def test_a_right_caption_is_told(image):
    """A captioner that says the first reference of scene 1, whatever it sees."""

    class Parrot(ShowTellRNN):
        def init_state(self, image):
            return torch.zeros(len(image), dtype=torch.int64)

        def step(self, tokens, state):
            words = WORDS.encode(SCENES.references(1)[0], T_MAX + 1)[1:]
            scores = torch.full((len(tokens), len(WORDS)), -30.0)
            scores[torch.arange(len(tokens)), words[state]] = 0.0
            return scores.log_softmax(1), (state + 1).clamp(max=T_MAX - 1)

    explorer = sampling_explorer(Parrot(len(WORDS)), image, SCENES, WORDS, scene=1)
    assert "1 distinct, 12 of 12 right" in explorer.view.value and "✓ right" in explorer.view.value
    explorer.set(scene=0)
    assert "0 of 12 right" in explorer.view.value and "✗" in explorer.view.value


def test_greedy_limits_draw_one_caption(explorer):
    for limit in ({"temperature": 0.1, "top_k": 1}, {"top_k": 1, "temperature": 3.0}, {"top_k": 0, "top_p": 0.05}):
        explorer.set(**({"top_p": 1.0} | limit))
        assert "12 captions drawn: 1 distinct" in explorer.view.value
