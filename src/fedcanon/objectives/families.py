"""Families of responses: how a response y is distributed, given its score η = xᵀw + b + offset.

The loss of a sample is its negative log-likelihood without what does not depend on η.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

from fedcanon.errors import FedcanonError

Array = NDArray[np.floating]

LARGEST = 80.0
"""The largest score whose exponential is taken, which single precision can still hold."""

FEW = 0.01
"""A share of samples below which Huber's loss counts as linear everywhere."""


class Family(ABC):
    """A family of responses: losses and their derivatives in η, sample by sample.

    ``has_dispersion`` says whether the variance has a factor that is estimated beside the model.
    """

    has_dispersion: ClassVar[bool] = False

    @abstractmethod
    def loss(self, scores: Array, y: Array) -> Array:
        """The loss of every sample."""

    @abstractmethod
    def slopes(self, scores: Array, y: Array) -> Array:
        """∂loss/∂η of every sample."""

    @abstractmethod
    def curvatures(self, scores: Array, y: Array) -> Array:
        """∂²loss/∂η² of every sample."""

    def expected_curvatures(self, scores: Array, y: Array) -> Array:
        """The expectation of the curvatures over responses with these scores."""
        return self.curvatures(scores, y)

    @abstractmethod
    def means(self, scores: Array) -> Array:
        """The expected response at every score: the inverse of the link."""

    @abstractmethod
    def variances(self, means: Array) -> Array:
        """The variance of a response with every mean, without the dispersion."""

    @abstractmethod
    def deviances(self, scores: Array, y: Array) -> Array:
        """Twice the loss of every sample, above that of a model that knows its response."""

    def responses(self, y: Array) -> Array:
        """Return the responses in the form that losses take.

        Raises:
            FedcanonError: A response cannot come from this family.
        """
        return y


@dataclass(frozen=True)
class Gaussian(Family):
    """Numbers with normal errors: loss ½(η − y)², mean η."""

    has_dispersion = True

    def loss(self, scores: Array, y: Array) -> Array:
        return 0.5 * (scores - y) ** 2

    def slopes(self, scores: Array, y: Array) -> Array:
        return scores - y

    def curvatures(self, scores: Array, y: Array) -> Array:
        return np.ones_like(scores)

    def means(self, scores: Array) -> Array:
        return scores

    def variances(self, means: Array) -> Array:
        return np.ones_like(means)

    def deviances(self, scores: Array, y: Array) -> Array:
        deviances: Array = (scores - y) ** 2
        return deviances


@dataclass(frozen=True)
class Binomial(Family):
    """Two classes, y = ±1: loss log(1 + exp(−yη)), mean 1/(1 + exp(−η)) of the second class."""

    def loss(self, scores: Array, y: Array) -> Array:
        return np.logaddexp(0, -y * scores)

    def slopes(self, scores: Array, y: Array) -> Array:
        slopes: Array = -y * expit(-y * scores)
        return slopes

    def curvatures(self, scores: Array, y: Array) -> Array:
        curvatures: Array = expit(scores) * expit(-scores)
        return curvatures

    def means(self, scores: Array) -> Array:
        means: Array = expit(scores)
        return means

    def variances(self, means: Array) -> Array:
        variances: Array = means * (1 - means)
        return variances

    def deviances(self, scores: Array, y: Array) -> Array:
        return 2 * self.loss(scores, y)

    def responses(self, y: Array) -> Array:
        if not np.isin(y, (-1, 0, 1)).all() or len(np.unique(y)) > 2:
            raise FedcanonError("logistic regression needs labels −1 and 1, or 0 and 1.")
        return np.where(y > 0, 1, -1)


@dataclass(frozen=True)
class Poisson(Family):
    """Counts: loss e^η − yη, mean e^η. The logarithm of an exposure is an offset."""

    def loss(self, scores: Array, y: Array) -> Array:
        loss: Array = _exp(scores) - y * scores
        return loss

    def slopes(self, scores: Array, y: Array) -> Array:
        slopes: Array = _exp(scores) - y
        return slopes

    def curvatures(self, scores: Array, y: Array) -> Array:
        return _exp(scores)

    def means(self, scores: Array) -> Array:
        return _exp(scores)

    def variances(self, means: Array) -> Array:
        return means

    def deviances(self, scores: Array, y: Array) -> Array:
        deviances: Array = 2 * (xlogy(y, y) - y - y * scores + _exp(scores))
        return deviances

    def responses(self, y: Array) -> Array:
        return _at_least(y, 0, "counts", "poisson")


@dataclass(frozen=True)
class Gamma(Family):
    """Positive numbers, such as costs, with a log link: loss η + y e^{−η}, mean e^η."""

    has_dispersion = True

    def loss(self, scores: Array, y: Array) -> Array:
        loss: Array = scores + y * _exp(-scores)
        return loss

    def slopes(self, scores: Array, y: Array) -> Array:
        slopes: Array = 1 - y * _exp(-scores)
        return slopes

    def curvatures(self, scores: Array, y: Array) -> Array:
        curvatures: Array = y * _exp(-scores)
        return curvatures

    def expected_curvatures(self, scores: Array, y: Array) -> Array:
        return np.ones_like(scores)

    def means(self, scores: Array) -> Array:
        return _exp(scores)

    def variances(self, means: Array) -> Array:
        variances: Array = means**2
        return variances

    def deviances(self, scores: Array, y: Array) -> Array:
        ratios = y * _exp(-scores)
        deviances: Array = 2 * (ratios - 1 - np.log(ratios))
        return deviances

    def responses(self, y: Array) -> Array:
        if not (y > 0).all():
            raise FedcanonError("the family gamma needs responses above 0.")
        return y


@dataclass(frozen=True)
class NegativeBinomial(Family):
    """Counts that vary more than Poisson's: variance μ + αμ² with a fixed dispersion α, mean e^η.

    The loss is (y + 1/α) log(1 + α e^η) − yη.
    """

    dispersion: float = 1.0

    def __post_init__(self) -> None:
        if not self.dispersion > 0:
            raise FedcanonError(f"dispersion must be above 0, not {self.dispersion:g}.")

    def _log(self, scores: Array) -> Array:
        """log(1 + α e^η)."""
        log: Array = np.logaddexp(0, scores + np.log(self.dispersion))
        return log

    def loss(self, scores: Array, y: Array) -> Array:
        loss: Array = (y + 1 / self.dispersion) * self._log(scores) - y * scores
        return loss

    def slopes(self, scores: Array, y: Array) -> Array:
        share = expit(scores + np.log(self.dispersion))
        slopes: Array = (y + 1 / self.dispersion) * share - y
        return slopes

    def curvatures(self, scores: Array, y: Array) -> Array:
        shifted = scores + np.log(self.dispersion)
        curvatures: Array = (y + 1 / self.dispersion) * expit(shifted) * expit(-shifted)
        return curvatures

    def expected_curvatures(self, scores: Array, y: Array) -> Array:
        expected: Array = expit(scores + np.log(self.dispersion)) / self.dispersion
        return expected

    def means(self, scores: Array) -> Array:
        return _exp(scores)

    def variances(self, means: Array) -> Array:
        variances: Array = means + self.dispersion * means**2
        return variances

    def deviances(self, scores: Array, y: Array) -> Array:
        alpha = self.dispersion
        best = xlogy(y, y) - (y + 1 / alpha) * np.log1p(alpha * y)
        deviances: Array = 2 * (best + self.loss(scores, y))
        return deviances

    def responses(self, y: Array) -> Array:
        return _at_least(y, 0, "counts", "negative_binomial")


@dataclass(frozen=True)
class Huber(Family):
    """Numbers with outliers: loss ½r² for residuals r = η − y up to δ, δ|r| − ½δ² beyond.

    The deviance is twice the loss.
    """

    delta: float = 1.35

    def __post_init__(self) -> None:
        if not self.delta > 0:
            raise FedcanonError(f"delta must be above 0, not {self.delta:g}.")

    def loss(self, scores: Array, y: Array) -> Array:
        size = np.abs(scores - y)
        return np.where(size <= self.delta, 0.5 * size**2, self.delta * size - 0.5 * self.delta**2)

    def slopes(self, scores: Array, y: Array) -> Array:
        slopes: Array = np.clip(scores - y, -self.delta, self.delta)
        return slopes

    def curvatures(self, scores: Array, y: Array) -> Array:
        """1 up to δ, 0 beyond; but far from all responses, where that would be 0 everywhere, δ/|r|.

        The latter is the curvature of the parabola that touches the loss from above. With it a step
        of Newton's method leads from there to the responses.
        """
        size = np.abs(scores - y)
        inside = size <= self.delta
        if inside.mean() < FEW:
            return (self.delta / np.maximum(size, self.delta)).astype(scores.dtype)
        return inside.astype(scores.dtype)

    def means(self, scores: Array) -> Array:
        return scores

    def variances(self, means: Array) -> Array:
        return np.ones_like(means)

    def deviances(self, scores: Array, y: Array) -> Array:
        return 2 * self.loss(scores, y)


FAMILIES: dict[str, Callable[..., Family]] = {
    "gaussian": Gaussian,
    "binomial": Binomial,
    "poisson": Poisson,
    "gamma": Gamma,
    "negative_binomial": NegativeBinomial,
    "huber": Huber,
}
"""Every family by its name; each is made from its options."""


def _at_least(y: Array, least: float, what: str, name: str) -> Array:
    if not (y >= least).all():
        raise FedcanonError(f"the family {name} needs {what} of at least {least:g}.")
    return y


def _exp(scores: Array) -> Array:
    """e^η, but finite: a step that was far too long must be seen, and not end in an overflow."""
    found: Array = np.exp(np.minimum(scores, LARGEST))
    return found
