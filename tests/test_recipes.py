"""The standard data, models and scores of the course, on tiny plans and data sets of their own."""

import pytest
import torch

from course_utils import recipes
from course_utils.captioners import Captioner, ShowTellLSTM, ShowTellRNN
from course_utils.scenes import splits
from course_utils.training import Plan, teacher_forcing_loss
from course_utils.vocabulary import T_MAX, course_vocabulary

WORDS = course_vocabulary()
PARTS = {seed: splits(train=40, validation=10, test=12, seed=seed) for seed in (0, 1)}
TINY = Plan(updates=3, batch=8, peak=1e-3)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Plans of three updates on 40 scenes, and an empty cache."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))
    monkeypatch.setattr(recipes, "data", lambda seed=0: PARTS[seed])
    monkeypatch.setattr(recipes, "ENCODER_PLAN", TINY)
    variants = {name: (kind, options, TINY, 16) for name, (kind, options, _, _) in recipes.SHOW_AND_TELL.items()}
    monkeypatch.setattr(recipes, "SHOW_AND_TELL", variants)
    recipes.grids.cache_clear()
    yield tmp_path
    recipes.grids.cache_clear()


def same(left: torch.nn.Module, right: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left.state_dict().values(), right.state_dict().values(), strict=True))


def forbid_training(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(recipes, "fit", refuse)


def test_standard_data():
    parts = recipes.data()
    assert {name: len(part) for name, part in parts.items()} == {"train": 16_000, "validation": 1_000, "test": 1_000}
    assert recipes.data() is parts


def test_encoder_is_trained_once_and_found_again(tiny, monkeypatch):
    model, info = recipes.encoder()
    assert len(info["losses"]) == TINY.updates and len(info["each"]) == 7 and 0 <= info["all_seven"] <= 1
    assert not model.training and len(list(tiny.glob("encoder-*.safetensors"))) == 1
    other, _ = recipes.encoder(seed=1)
    assert not same(model, other)
    forbid_training(monkeypatch)
    again, info_again = recipes.encoder()
    assert same(model, again) and info_again == info


def test_grids_of_every_split(tiny):
    model, _ = recipes.encoder()
    grids = recipes.grids()
    assert {name: grid.shape for name, grid in grids.items()} == {
        "train": (40, 64, 48), "validation": (10, 64, 48), "test": (12, 64, 48)}  # fmt: skip
    torch.testing.assert_close(grids["test"], model(PARTS[0]["test"].images))
    assert recipes.grids() is grids


@pytest.mark.parametrize("variant", recipes.SHOW_AND_TELL)
def test_every_variant_is_trained_with_its_options(tiny, variant):
    model, info = recipes.show_and_tell(variant)
    kind, options, _, _ = recipes.SHOW_AND_TELL[variant]
    assert isinstance(model, kind) and len(info["losses"]) == TINY.updates and not model.training
    assert kind is (ShowTellLSTM if "LSTM" in variant else ShowTellRNN)
    untrained = kind(len(WORDS), **options)
    assert {n: p.shape for n, p in model.named_parameters()} == {n: p.shape for n, p in untrained.named_parameters()}


def test_seeds_and_variants_have_models_of_their_own(tiny, monkeypatch):
    first, _ = recipes.show_and_tell()
    assert not same(first, recipes.show_and_tell(seed=1)[0])
    assert len(list(tiny.glob("ShowTellRNN-*.safetensors"))) == 2
    recipes.show_and_tell("ShowTellRNN short")
    assert len(list(tiny.glob("ShowTellRNN-short-*.safetensors"))) == 1
    forbid_training(monkeypatch)
    assert same(first, recipes.show_and_tell()[0])


def test_unknown_variant_is_named(tiny):
    with pytest.raises(ValueError, match="variant is 'GRU'; expected one of ShowTellRNN, ShowTellRNN short"):
        recipes.show_and_tell("GRU")


class Recorder(torch.nn.Module):
    """A stand-in captioner that keeps what it was asked to read."""

    def __init__(self):
        super().__init__()
        self.read = []

    def forward(self, image, captions):
        self.read.append((image, captions))
        return torch.zeros(*captions[:, 1:].shape, len(WORDS)) + torch.arange(len(WORDS))


def test_caption_loss_draws_a_reference_anew():
    grid, references = torch.rand(40, 2, 3), PARTS[0]["train"].reference_ids(WORDS)  # (N, R, T)
    model, index = Recorder(), torch.tensor([4, 4, 9, 31])
    loss = recipes.caption_loss(model, grid, references)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        value = loss(index, generator)
    image, captions = model.read[-1]
    assert torch.equal(image, grid[index])
    scores = torch.arange(float(len(WORDS))).expand(4, T_MAX - 1, -1)
    torch.testing.assert_close(value, teacher_forcing_loss(scores, captions))
    for row, i in enumerate(index.tolist()):
        seen = {tuple(captions[row].tolist()) for _, captions in model.read}
        assert seen == set(map(tuple, references[i].tolist()))  # both, and nothing else
    replayed = Recorder()
    recipes.caption_loss(replayed, grid, references)(index, torch.Generator().manual_seed(0))
    assert torch.equal(replayed.read[0][1], model.read[0][1])


def test_caption_loss_mixes_own_words_in():
    torch.manual_seed(0)
    model = ShowTellRNN(len(WORDS), L=2, D=3)
    grid, references, index = torch.rand(40, 2, 3), PARTS[0]["train"].reference_ids(WORDS)[:, :1], torch.arange(16)

    def value(epsilon):
        return recipes.caption_loss(model, grid, references, epsilon)(index, torch.Generator().manual_seed(3)).item()

    forced = teacher_forcing_loss(model(grid[index], references[index, 0]), references[index, 0]).item()
    assert value(1.0) == forced and abs(value(0.0) - forced) > 1e-3
    with pytest.raises(ValueError, match="epsilon=2.0; expected the probability"):
        value(2.0)


class Reciter(Captioner):
    """Says the ids (N, T) that it gets as an image, word for word."""

    def init_state(self, image):
        return image, torch.zeros(len(image), dtype=torch.long)

    def step(self, tokens, state):
        ids, t = state
        said = torch.nn.functional.one_hot(ids.gather(1, t[:, None] + 1)[:, 0], len(WORDS))
        return (said + 1e-9).log(), (ids, t + 1)


def test_evaluate_a_perfect_and_a_constant_captioner():
    scenes = PARTS[0]["train"]
    references = scenes.reference_ids(WORDS)
    for which in (0, 1):
        scores = recipes.evaluate(Reciter(), references[:, which], scenes)
        assert scores["exact_match"] == 1 and scores["bleu4"] == pytest.approx(1) and scores["binding_swaps"] == 0
        assert scores["distinct"] == len(set(WORDS.decode_batch(references[:, which])))
    constant = recipes.evaluate(Reciter(), references[:1, 0].expand(40, -1), scenes)
    right = sum(scenes.references(0)[0] in scenes.references(i) for i in range(40))
    assert constant["distinct"] == 1 and constant["exact_match"] == right / 40 < 0.2 and constant["bleu4"] < 0.5


def test_evaluate_counts_binding_swaps():
    scenes = PARTS[0]["train"]
    ids = scenes.reference_ids(WORDS)[:, 0].clone()
    last = (ids != 0).sum(1) - 2  # the second shape
    swap = ids.clone()
    swap[torch.arange(40), 2], swap[torch.arange(40), last - 1] = ids[torch.arange(40), last - 1], ids[:, 2]
    changed = (scenes.colours[:, 0] != scenes.colours[:, 1]) & (scenes.shapes[:, 0] != scenes.shapes[:, 1])
    scores = recipes.evaluate(Reciter(), swap, scenes)
    assert scores["binding_swaps"] == pytest.approx(changed.float().mean().item()) and scores["binding_swaps"] > 0.2
