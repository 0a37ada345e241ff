"""What a learning curve suggests for more rounds than were run: an extrapolation, not a result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import curve_fit

FEWEST = 5
"""Points after the start without which nothing is fitted."""
FIT_ERROR = 0.02
"""A curve that the fit misses by more, as a root mean square, is not extrapolated."""


def suggested(rounds: Sequence[float], accuracies: Sequence[float], target: float) -> float | None:
    """The accuracy after ``target`` rounds by the power law a − b t^(−c), fitted to a curve.

    a is at most 1, b at least 0 and c between 0.05 and 2. The start t = 0 is left out.

    Args:
        rounds: The rounds after which the accuracy was measured, with constant steps: those of
            falling steps end where they end because the steps do.
        accuracies: The accuracies.
        target: The number of rounds that the question is about.

    Returns:
        The accuracy, or None if there are too few points or the law does not fit them.
    """
    t, measured = np.array(rounds, dtype=float), np.array(accuracies, dtype=float)
    t, measured = t[t > 0], measured[t > 0]
    if len(t) < FEWEST:
        return None
    scaled = t / t[-1]  # so that b is the fall from the end to infinity

    def law(x: np.ndarray, a: float, b: float, c: float) -> np.ndarray:
        fitted: np.ndarray = a - b * x ** (-c)
        return fitted

    first = (min(measured[-1] + 0.1, 0.99), 0.1, 0.5)
    try:
        found, _ = curve_fit(
            law, scaled, measured, p0=first, bounds=([0.0, 0.0, 0.05], [1.0, 1.0, 2.0])
        )
    except RuntimeError:  # it has not converged
        return None
    error = float(np.sqrt(np.mean((law(scaled, *found) - measured) ** 2)))
    return float(law(np.array(target / t[-1]), *found)) if error <= FIT_ERROR else None
