"""Noise against the distributions it must have, with thresholds that chance hardly ever exceeds."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest, norm

from fedcanon.privacy import bernoulli, discrete_gaussian, gaussian

CHANCE = 1e-9
"""The probability with which one of these tests fails though all is right."""


def test_gaussian_noise_has_its_distribution():
    drawn = gaussian(torch.zeros(50_000, dtype=torch.float64), 3.0)
    assert kstest(drawn.numpy(), norm(scale=3.0).cdf).pvalue > CHANCE


def test_noise_fits_what_it_is_added_to():
    like = torch.zeros(3, 4, dtype=torch.float32)
    drawn = gaussian(like, 1.0)
    assert drawn.shape == like.shape
    assert drawn.dtype == like.dtype
    assert torch.equal(gaussian(like, 0.0), like)
    assert gaussian(torch.empty(0), 1.0).numel() == 0


def test_noise_does_not_depend_on_seeds():
    def draw():
        np.random.seed(0)  # noqa: NPY002  # the point is that it has no influence
        torch.manual_seed(0)
        return gaussian(torch.zeros(8), 1.0)

    assert not torch.equal(draw(), draw())


@pytest.mark.parametrize("deviation", [0.3, 1.0, 7.5])
def test_discrete_gaussian_has_its_probabilities(deviation):
    size, reach = 200_000, math.ceil(4 * deviation)
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-(k**2) / (2 * deviation**2))
    tail = 2 * np.exp(-(np.arange(reach + 1, 20 * reach + 20) ** 2) / (2 * deviation**2)).sum()
    drawn = discrete_gaussian(size, deviation)
    counts = np.array([(drawn == value).sum() for value in k])
    expected = size * weights / (weights.sum() + tail)
    counts, expected = np.append(counts, size - counts.sum()), np.append(expected, 0)
    expected[-1] = size - expected.sum()
    likely = expected >= 5
    rare = ~likely
    counts = np.append(counts[likely], counts[rare].sum())
    expected = np.append(expected[likely], max(expected[rare].sum(), 1e-9))
    if expected[-1] < 1:  # too rare for the test: merge with its neighbour
        counts, expected = (
            np.append(counts[:-2], counts[-2:].sum()),
            np.append(expected[:-2], expected[-2:].sum()),
        )
    assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > CHANCE


def test_wide_discrete_gaussian_is_like_a_continuous_one():
    drawn = discrete_gaussian(50_000, 1e7)
    assert kstest(drawn / 1e7, norm.cdf).pvalue > CHANCE
    assert not discrete_gaussian(5, 0.0).any()


def test_draws_have_their_probability():
    size, probability = 100_000, 0.3
    count = bernoulli(size, probability).sum()
    deviation = math.sqrt(size * probability * (1 - probability))
    assert abs(count - size * probability) < 7 * deviation
    assert bernoulli(size, 1.0).all()
