"""The accountant: from noise to ε, and back.

A release adds Gaussian noise of deviation s·τ to a sum in which one contribution has at most the
norm τ; s is the noise multiplier. Contributions are replaced by zero to be removed (add or remove
one). If each is drawn into a release independently with the same secret probability q, that
amplifies the privacy of all releases together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy  # imports its own packages when they are used: runs without privacy do without
from numpy.typing import NDArray

from fedcanon.errors import FedcanonError

Accountant = Literal["rdp", "prv"]
"""How sampled releases are composed: by Rényi divergences, or by Opacus' PRV, which is tighter."""

_ORDERS = np.unique(np.r_[2:65, np.round(np.geomspace(64, 2048, 80))]).astype(int)
"""The Rényi orders that are tried."""

_SMALLEST, _LARGEST = 1e-2, 1e6
"""Noise multipliers between which one is looked for."""


@lru_cache(maxsize=4096)
def epsilon(
    noise: float,
    releases: int,
    delta: float,
    sampling: float = 1.0,
    accountant: Accountant = "rdp",
) -> float:
    """Return ε so that so many releases together are (ε, δ)-differentially private.

    Without sampling this is exact: the releases are μ-Gaussian differentially private with
    μ = √releases/s. With sampling it is an upper bound.

    Args:
        noise: The noise multiplier s; with 0 there is no privacy.
        releases: How many.
        delta: δ, in (0, 1).
        sampling: The probability q with which each contribution is drawn into a release.
        accountant: How sampled releases are composed.

    Raises:
        FedcanonError: An argument is out of range, or a package is missing.

    Examples:
        >>> round(epsilon(noise=6.0, releases=100, delta=1e-5), 3)
        8.004
    """
    if not (noise >= 0 and 0 < delta < 1 and 0 < sampling <= 1):
        raise FedcanonError("privacy needs noise ≥ 0, 0 < delta < 1 and 0 < sampling ≤ 1.")
    if releases == 0:
        return 0.0
    if noise == 0:
        return math.inf
    if sampling == 1:
        return _exact(math.sqrt(releases) / noise, delta)
    compose = _by_prv if accountant == "prv" else _by_renyi
    return compose(noise, releases, delta, sampling)


def noise_multiplier(
    target: float,
    releases: int,
    delta: float,
    sampling: float = 1.0,
    accountant: Accountant = "rdp",
) -> float:
    """Return the smallest noise multiplier s with which so many releases spend at most ε.

    Args:
        target: ε, above 0.
        releases: How many.
        delta: δ, in (0, 1).
        sampling: The probability q with which each contribution is drawn into a release.
        accountant: How sampled releases are composed.

    Raises:
        FedcanonError: No noise multiplier up to a million suffices, or an argument is out of range.

    Examples:
        >>> round(noise_multiplier(3.0, releases=100, delta=1e-5), 1)
        13.9
    """

    def spends_too_much(noise: float) -> bool:
        return epsilon(noise, releases, delta, sampling, accountant) > target

    if not target > 0:
        raise FedcanonError(f"the privacy budget epsilon must be above 0, not {target:g}.")
    low, high = _SMALLEST, _LARGEST
    if spends_too_much(high):
        raise FedcanonError(f"no noise is enough for ε = {target:g} over {releases:,} releases.")
    if not spends_too_much(low):
        return low
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spends_too_much(middle) else (low, middle)
    return high


def _exact(mu: float, delta: float) -> float:
    """ε of a μ-Gaussian differentially private mechanism.

    It solves Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) = δ, here in logarithms.
    """

    def excess(epsilon: float) -> float:
        first, second = (
            float(scipy.special.log_ndtr(-epsilon / mu + half)) for half in (mu / 2, -mu / 2)
        )
        ratio = min(epsilon + second - first, -1e-300)
        return float(first + np.log(-np.expm1(ratio))) - math.log(delta)

    if excess(0.0) < 0:
        return 0.0
    largest = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 10
    found: float = scipy.optimize.brentq(excess, 0.0, largest)
    return found


def _by_renyi(noise: float, releases: int, delta: float, sampling: float) -> float:
    """ε from Rényi divergences of whole orders."""
    orders = _ORDERS.astype(float)
    spent = releases * _renyi(noise, sampling)
    bounds = spent + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(bounds.min()))


@lru_cache(maxsize=256)
def _renyi(noise: float, sampling: float) -> NDArray[np.float64]:
    """The Rényi divergence of one sampled release, for every order (Mironov et al., 2019)."""

    def divergence(order: int) -> float:
        k = np.arange(order + 1)
        log_factorial = scipy.special.gammaln(np.arange(1, order + 2))
        choices = log_factorial[order] - log_factorial[k] - log_factorial[order - k]
        draws = (order - k) * math.log1p(-sampling) + k * math.log(sampling)
        terms = choices + draws + k * (k - 1) / (2 * noise**2)
        return float(scipy.special.logsumexp(terms)) / (order - 1)

    return np.array([divergence(int(order)) for order in _ORDERS])


def _by_prv(noise: float, releases: int, delta: float, sampling: float) -> float:
    """ε from Opacus' accountant of privacy random variables."""
    try:
        # Here, because the import takes several seconds.
        from opacus.accountants import PRVAccountant
    except ModuleNotFoundError:
        raise FedcanonError(
            'privacy.accountant = "prv" needs a package: pip install "fedcanon[privacy]".'
        ) from None
    accountant = PRVAccountant()
    accountant.history = [(noise, sampling, releases)]
    spent: Callable[..., float] = accountant.get_epsilon
    return float(spent(delta=delta))
