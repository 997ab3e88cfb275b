"""The grid encoder: shapes, order, independence of the batch, its pretraining loss and accuracy, bad input."""

import math

import pytest
import torch
from torch.nn import functional as F

from course_utils.encoders import GridEncoder, attribute_accuracy, attribute_loss, encode
from course_utils.scenes import Recipe, generate

SCENES = generate(40, seed=5)
L, D = 64, 48


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return GridEncoder()


def test_grid_is_a_row_of_annotation_vectors(encoder):
    grid = encoder(SCENES.images)
    assert grid.shape == (40, L, D) and grid.dtype == torch.float32 and grid.min() == 0
    maps = encoder.convolutions(SCENES.images - 0.5)  # (N, D, 8, 8)
    for row, column in ((0, 0), (0, 7), (3, 5), (7, 7)):
        assert torch.equal(grid[:, 8 * row + column], maps[:, :, row, column])
    assert encoder.attributes(SCENES.images).shape == (40, 7)
    torch.testing.assert_close(encoder.attributes(SCENES.images), encoder.head(grid.flatten(1)))


def test_one_location_reads_its_own_patch(encoder):
    image = SCENES.images[:1].clone()
    with torch.no_grad():
        before = encoder.convolutions[0](image)
        image[:, :, 4:8, 12:16] = 0  # row 1, column 3
        changed = (encoder.convolutions[0](image) - before).abs().sum((0, 1)) > 0  # (8, 8)
    assert changed.nonzero().tolist() == [[1, 3]]


@pytest.mark.parametrize("canvas", [16, 32, 48])
def test_canvas_sets_the_number_of_locations(canvas):
    encoder = GridEncoder(canvas)
    images = torch.rand(2, 3, canvas, canvas)
    assert encoder(images).shape == (2, (canvas // 4) ** 2, D) and encoder.locations == (canvas // 4) ** 2
    assert encoder.attributes(images).shape == (2, 7)


def test_a_grid_depends_neither_on_the_batch_nor_on_the_mode(encoder):
    alone = torch.cat([encoder(SCENES.images[i : i + 1]) for i in range(40)])
    torch.testing.assert_close(encoder(SCENES.images), alone, rtol=1e-4, atol=1e-5)
    assert torch.equal(encoder.train()(SCENES.images), encoder.eval()(SCENES.images))


@pytest.mark.parametrize("batch", [1, 7, 40, 100])
def test_encoding_in_batches_equals_all_at_once(encoder, batch):
    grids = encode(encoder, SCENES.images, batch)
    torch.testing.assert_close(grids, encoder(SCENES.images), rtol=1e-4, atol=1e-5)
    assert not grids.requires_grad


def test_attribute_loss_is_the_mean_binary_cross_entropy(encoder):
    index = torch.tensor([3, 3, 17])
    p = encoder.attributes(SCENES.images[index]).sigmoid()
    y = SCENES.attributes[index]
    by_hand = -(y * p.log() + (1 - y) * (1 - p).log()).mean()
    loss = attribute_loss(encoder, SCENES, index)
    torch.testing.assert_close(loss, by_hand)
    assert abs(loss.item() - math.log(2)) < 0.2  # nothing is known yet
    assert loss.item() > F.binary_cross_entropy(p.detach().round(), p.detach().round()).item()


def test_attribute_accuracy_counts_each_and_all_seven(encoder, monkeypatch):
    logits = 2 * SCENES.attributes - 1  # right, with the smallest confidence
    logits[:10, 2] *= -1
    logits[5:20, 6] *= -1
    monkeypatch.setattr(encoder, "attributes", lambda images: logits)
    each, all_seven = attribute_accuracy(encoder, SCENES)
    torch.testing.assert_close(each, torch.tensor([1, 1, 0.75, 1, 1, 1, 0.625]))
    assert all_seven == 0.5


def test_pretraining_learns(encoder):
    optimiser, everything = torch.optim.Adam(encoder.parameters(), lr=5e-3), torch.arange(40)
    for _ in range(40):
        optimiser.zero_grad()
        attribute_loss(encoder, SCENES, everything).backward()
        optimiser.step()
    assert attribute_loss(encoder, SCENES, everything) < 0.1
    assert attribute_accuracy(encoder, SCENES)[1] > 0.9


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (torch.rand(2, 3, 48, 48), ValueError, r"images have shape \(2, 3, 48, 48\); expected \(N, 3, 32, 32\)"),
        (torch.rand(2, 1, 32, 32), ValueError, r"shape \(2, 1, 32, 32\)"),
        (torch.rand(3, 32, 32), ValueError, r"shape \(3, 32, 32\)"),
        (torch.zeros(2, 3, 32, 32, dtype=torch.uint8), TypeError, "torch.uint8; expected float.*divide uint8 by 255"),
        (torch.zeros(2, 3, 32, 32, dtype=torch.int64), TypeError, "images are torch.int64"),
    ],
)
def test_bad_images_are_named(encoder, images, error, message):
    with pytest.raises(error, match=message):
        encode(encoder, images)


def test_bad_canvas_is_named():
    with pytest.raises(ValueError, match="canvas is 30; expected a multiple of the patch size 4"):
        GridEncoder(30)
    scenes = generate(1, Recipe(canvas=48), seed=0)
    with pytest.raises(ValueError, match=r"expected \(N, 3, 32, 32\)"):
        attribute_loss(GridEncoder(), scenes, torch.tensor([0]))


@pytest.mark.parametrize("images", [torch.full((1, 3, 32, 32), 255.0), torch.full((1, 3, 32, 32), float("nan"))])
def test_images_outside_0_to_1_are_refused(images):
    with pytest.raises(ValueError, match=r"expected \[0, 1\]: divide by 255 once"):
        encode(GridEncoder(), images)
