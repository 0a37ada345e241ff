"""Augmentation: what it may do to an image, and what it depends on."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedcanon import FedAvg, FedcanonError, Federation, FlatModule, ModuleObjective, Problem
from fedcanon.objectives.augment import PADDING, augmentations, crop, flip
from fedcanon.penalties import Zero


def windows(image):
    """Every window that a crop of this image may be, by its top left corner."""
    _, height, width = image.shape
    padded = functional.pad(image, (PADDING,) * 4)
    return {
        (top, left): padded[:, top : top + height, left : left + width]
        for top in range(2 * PADDING + 1)
        for left in range(2 * PADDING + 1)
    }


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 6, 9)])
def test_a_crop_is_a_window_of_the_padded_image(shape):
    torch.manual_seed(0)
    images = torch.randn(40, *shape)
    before = images.clone()
    corners = []
    for image, cropped in zip(images, crop(images), strict=True):
        found = [at for at, window in windows(image).items() if torch.equal(window, cropped)]
        assert len(found) == 1
        corners += found
    assert len(set(corners)) > 20
    assert torch.equal(images, before)


def test_every_window_is_as_likely_as_any_other():
    torch.manual_seed(0)
    pixel = torch.zeros(1, 1, 9, 9)
    pixel[..., 4, 4] = 1
    draws = 81 * 200
    counts = crop(pixel.expand(draws, -1, -1, -1)).sum(0)[0]
    assert float(counts.sum()) == draws
    # χ² with 80 degrees of freedom exceeds 125 once in a thousand seeds.
    assert float(((counts - 200) ** 2 / 200).sum()) < 125


def test_a_flip_is_the_image_or_its_mirror_image_half_of_the_time_each():
    torch.manual_seed(0)
    images = torch.randn(2000, 2, 3, 4)
    before = images.clone()
    flipped = flip(images)
    mirrored = (flipped == images.flip(3)).flatten(1).all(1)
    same = (flipped == images).flatten(1).all(1)
    assert (mirrored ^ same).all()
    assert abs(int(mirrored.sum()) - 1000) < 4 * 500**0.5
    # Neighbours are drawn apart from each other.
    assert abs(int((mirrored[1:] == mirrored[:-1]).sum()) - 1000) < 4 * 500**0.5
    assert torch.equal(images, before)


@pytest.mark.parametrize("change", [crop, flip])
def test_draws_depend_on_the_seed_alone(change):
    images = torch.randn(30, 3, 8, 8)

    def drawn(seed):
        torch.manual_seed(seed)
        return change(images)

    assert torch.equal(drawn(0), drawn(0))
    assert not torch.equal(drawn(0), drawn(1))


@pytest.mark.parametrize("change", [crop, flip])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_precision_stay(change, dtype):
    changed = change(torch.randn(5, 3, 8, 6, dtype=dtype))
    assert changed.shape == (5, 3, 8, 6)
    assert changed.dtype == dtype


def test_only_images_can_be_augmented():
    assert augmentations(["crop", "flip"], (3, 32, 32)) == (crop, flip)
    assert augmentations([], (64,)) == ()
    with pytest.raises(FedcanonError, match=r"'flip' needs images .* have shape \(64,\)\.$"):
        augmentations(["flip"], (64,))


def objective(augment):
    torch.manual_seed(0)
    flat = FlatModule(nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 2)))
    inputs, targets = torch.randn(12, 3, 8, 8), torch.arange(12) % 2
    return flat, ModuleObjective(flat, nn.CrossEntropyLoss(), inputs, targets, augment=augment)


@pytest.mark.parametrize("batch", [None, torch.tensor([0, 5, 7])])
def test_local_steps_see_changed_images_and_exact_measures_the_images_themselves(batch):
    (flat, plain), (_, augmented) = objective(()), objective((crop, flip))
    x = flat.vector.clone()
    assert augmented.value(x) == plain.value(x)
    assert torch.equal(augmented.full_gradient(x), plain.full_gradient(x))
    first, second = (augmented.gradient(x, batch).clone() for _ in range(2))
    assert not torch.equal(first, second)
    assert not torch.equal(first, plain.gradient(x, batch))


def test_a_run_with_augmentation_depends_only_on_its_seed():
    def final(seed, noise):
        flat, client = objective((crop, flip))
        problem = Problem([client, client], flat.vector.clone())
        federation = Federation(problem, FedAvg(0.1, 3), Zero(), batch_size=4, seed=seed)
        torch.manual_seed(noise)
        federation.step()
        return federation.model

    assert torch.equal(final(0, noise=1), final(0, noise=2))
    assert not torch.equal(final(0, noise=1), final(1, noise=1))
