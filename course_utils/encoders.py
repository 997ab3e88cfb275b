"""Image encoders: pictures in, a grid of annotation vectors out; pretrained on attribute recognition."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.scenes import COLOURS, SHAPES, Scenes

WIDTH = 48  # D, the width of one annotation vector
PATCH = 4  # pixels along one side of a grid location
ATTRIBUTES = COLOURS + SHAPES


class GridEncoder(nn.Module):
    """A small CNN: images (N, 3, S, S) float in [0, 1] -> annotation vectors (N, L, D) float, L = (S / 4)^2, D = 48.

    A 4 x 4 convolution with stride 4 reads one patch a location, a 3 x 3 convolution lets neighbours speak; both are
    followed by group normalisation and ReLU. A head reads the seven attributes off the flattened grid: pretraining on
    them stands in for ImageNet. canvas is the side S of the pictures.
    """

    def __init__(self, canvas: int = 32, hidden: int = 32):
        super().__init__()
        if canvas % PATCH:
            raise ValueError(f"canvas is {canvas}; expected a multiple of the patch size {PATCH}")
        self.canvas, self.locations = canvas, (canvas // PATCH) ** 2
        self.convolutions = nn.Sequential(
            nn.Conv2d(3, hidden, PATCH, PATCH), nn.GroupNorm(8, hidden), nn.ReLU(),
            nn.Conv2d(hidden, WIDTH, 3, padding=1), nn.GroupNorm(8, WIDTH), nn.ReLU())
        self.head = nn.Linear(self.locations * WIDTH, len(ATTRIBUTES))

    def forward(self, images: Tensor) -> Tensor:
        """Return the grid (N, L, D); row by row from the top left."""
        if images.shape[1:] != (3, self.canvas, self.canvas):
            raise ValueError(f"images have shape {tuple(images.shape)}; expected (N, 3, {self.canvas}, {self.canvas})")
        if not images.is_floating_point():
            raise TypeError(f"images are {images.dtype}; expected float in [0, 1]: divide uint8 by 255 first")
        return self.convolutions(images - 0.5).flatten(2).transpose(1, 2)  # (N, L, D)

    def attributes(self, images: Tensor) -> Tensor:
        """Return the logits (N, 7) of four colours and three shapes being present."""
        return self.head(self(images).flatten(1))


def attribute_loss(encoder: GridEncoder, scenes: Scenes, index: Tensor) -> Tensor:
    """Return the mean binary cross-entropy, in nats, of the attributes of scenes[index]; index (B,) int64."""
    return F.binary_cross_entropy_with_logits(encoder.attributes(scenes.images[index]), scenes.attributes[index])


@torch.no_grad()
def encode(encoder: GridEncoder, images: Tensor, batch: int = 250) -> Tensor:
    """Return the grids (N, L, D) of all images, computed in batches, so that each scene is encoded only once.

    ValueError unless they lie in [0, 1]: a mismatch with the encoder's training gives one caption for every image.
    """
    if not (images.min() >= 0 and images.max() <= 1):
        raise ValueError(f"images range from {images.min()} to {images.max()}; expected [0, 1]: divide by 255 once")
    return torch.cat([encoder(part) for part in images.split(batch)])


@torch.no_grad()
def attribute_accuracy(encoder: GridEncoder, scenes: Scenes) -> tuple[Tensor, float]:
    """Return the accuracy of each attribute (7,) and the share of scenes in which all seven are right."""
    right = (encoder.attributes(scenes.images) > 0) == scenes.attributes.bool()  # (N, 7)
    return right.float().mean(0), right.all(1).float().mean().item()
