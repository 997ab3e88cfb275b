"""The standard captioners with attention, on tiny plans and data sets of their own."""

from dataclasses import replace

import pytest
import torch

from course_utils import recipes, recipes_attention
from course_utils.captioners import AttentionCaptioner, ShowTellRNN
from course_utils.captioners.attention import hard, soft
from course_utils.scenes import Recipe, splits
from course_utils.studies.hard_attention import gradient_variance
from course_utils.training import Plan, teacher_forcing_loss
from course_utils.vocabulary import PAD, course_vocabulary

TINY = Plan(updates=3, batch=8, peak=1e-3)
PARTS = splits(train=40, validation=10, test=12)
GRIDS = {name: torch.randn(len(part), 64, 48, generator=torch.Generator().manual_seed(len(part)))
         for name, part in PARTS.items()}


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Plans of three updates, 40 scenes with random grids, and an empty cache."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))
    monkeypatch.setattr(recipes_attention, "data", lambda seed=0: PARTS)
    monkeypatch.setattr(recipes_attention, "grids", lambda seed=0: GRIDS)
    for name in ("SOFT_PLAN", "WARM_PLAN", "ENCODER_PLAN"):
        monkeypatch.setattr(recipes_attention, name, TINY)
    plans = {name: (way, warm, TINY) for name, (way, warm, _) in recipes_attention.HARD.items()}
    monkeypatch.setattr(recipes_attention, "HARD", plans)
    return tmp_path


@pytest.mark.parametrize("variant", recipes_attention.SOFT)
def test_each_soft_variant_has_its_options_and_is_cached(tiny, monkeypatch, variant):
    model, info = recipes_attention.soft_attention(variant)
    options = recipes_attention.SOFT[variant]
    assert isinstance(model, AttentionCaptioner) and model.choose is soft and not model.training
    assert len(info["losses"]) == TINY.updates and model.word_query == options["word_query"]
    assert (model.places.shape[1] == 2) == options.get("places", True)
    assert (model.gate is not None, model.rest is not None) == (options.get("gate", False), "sentinel" in options)
    assert (model.w_e is not None) == (options.get("scoring") == "additive")
    monkeypatch.setattr(recipes_attention, "fit", None)  # training again would fail
    again, _ = recipes_attention.soft_attention(variant)
    assert torch.equal(again.W_zh, model.W_zh)


def test_the_penalty_is_added_to_the_loss_of_the_words(tiny):
    model = AttentionCaptioner(len(course_vocabulary()))
    references = PARTS["train"].reference_ids(course_vocabulary())[:, :1]  # one reference: nothing to draw
    index, generator = torch.arange(8), torch.Generator().manual_seed(0)
    glances = model.unroll(GRIDS["train"][index], references[index, 0])
    words = teacher_forcing_loss(glances.logits, references[index, 0])
    spoken = (references[index, 0, 1:] != PAD).unsqueeze(-1)
    by_hand = ((1 - (glances.alpha * spoken).sum(1)) ** 2).sum(1).mean()  # summed over locations
    loss = recipes_attention.penalised_loss(model, GRIDS["train"], references, 0.5)(index, generator)
    assert loss.item() == pytest.approx((words + 0.5 * by_hand).item(), rel=1e-5)


@pytest.mark.parametrize("variant", recipes_attention.HARD)
def test_each_hard_variant_decodes_one_place(tiny, variant):
    model, info = recipes_attention.hard_attention_captioner(variant)
    assert model.choose is hard and len(info["losses"]) == TINY.updates and model.baseline.shape == (9,)
    assert (model.baseline.abs().sum() > 0) == (variant == "score function")  # the only one that keeps a baseline
    assert set(model.unroll(GRIDS["test"], torch.full((12, 4), 3)).weights.unique().tolist()) == {0.0, 1.0}


def test_a_warm_start_begins_at_the_soft_captioner(tiny, monkeypatch):
    monkeypatch.setattr(recipes_attention, "HARD", {"hard warm": ("straight through", True, replace(TINY, peak=1e-12)),
                                                    "cold": ("straight through", False, replace(TINY, peak=1e-12))})
    start, _ = recipes_attention.soft_attention()
    warm, cold = (recipes_attention.hard_attention_captioner(name)[0] for name in ("hard warm", "cold"))
    assert torch.allclose(warm.W_q, start.W_q, atol=1e-6) and not torch.allclose(cold.W_q, start.W_q, atol=1e-4)


def test_gradient_variance_is_0_without_a_draw(tiny):
    model, _ = recipes_attention.hard_attention_captioner("top m")
    captions = PARTS["test"].reference_ids(course_vocabulary())[:, 0]
    assert gradient_variance(model, "top m", GRIDS["test"], captions, 3) == pytest.approx(0, abs=1e-9)
    before = model.baseline.clone()
    assert gradient_variance(model, "score function", GRIDS["test"], captions, 3) > 0.01
    assert torch.equal(before, model.baseline)


def test_harder_scenes(tiny, monkeypatch):
    small = Recipe(objects=3, canvas=16, layout=2, radius=(2.0, 3.0), jitter=0.5)
    monkeypatch.setattr(recipes_attention, "HARD_SCENES", small)
    monkeypatch.setattr(recipes_attention, "HARD_SCENES_PLANS", {"soft": TINY, "ShowTellRNN": TINY})
    monkeypatch.setattr(recipes_attention.scenes, "splits", lambda recipe, train, seed: splits(recipe, 20, 10, 10))
    recipes_attention.hard_scenes.cache_clear()
    parts, grids, encoder = recipes_attention.hard_scenes()
    assert grids["test"].shape == (10, 16, 48) and encoder.canvas == 16
    for variant, kind in (("soft", AttentionCaptioner), ("ShowTellRNN", ShowTellRNN)):
        model, _ = recipes_attention.hard_scenes_captioner(variant)
        assert isinstance(model, kind) and recipes.evaluate(model, grids["test"], parts["test"])["exact_match"] >= 0
    recipes_attention.hard_scenes.cache_clear()


@pytest.mark.parametrize("make", [recipes_attention.soft_attention, recipes_attention.hard_attention_captioner,
                                  recipes_attention.hard_scenes_captioner])
def test_an_unknown_variant_is_named(make):
    with pytest.raises(ValueError, match="variant is 'sofd'; expected one of .*"):
        make("sofd")
