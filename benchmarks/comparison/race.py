"""Runs one method on one convex problem, until ‖G‖ is small or there is no more hope."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from scipy import sparse
from scipy.special import expit

from comparison.convex_problems import Array, Case
from comparison.journal import Outcome
from fedcanon import DivergenceError, FedcanonError, Federation, Logistic
from fedcanon.algorithms import Algorithm
from fedcanon.runs.measures import stationarity, stationarity_step

TOLERANCES = (1e-3, 1e-6, 1e-9)
CAP = 2000
Run = Iterator[tuple[torch.Tensor, int]]
"""The model and the bytes sent so far, after every round."""
NEVER = (math.inf,) * len(TOLERANCES)
WINDOW = 100
"""Rounds over which the pace of a run is measured."""
HOPE = 2.0
"""A run is given up if even this many times its pace would not do."""
SHOWN = 200
"""Points of a curve that are kept for the picture."""
OUTSIDE = "outside the domain of the prox"
"""How a run has ended whose steps the penalty's prox does not have."""


def federated(case: Case, algorithm: Algorithm, cap: int) -> Run:
    """A method of the library."""
    case.penalty.check_step(algorithm.prox_step(cap))
    federation = Federation(case.problem, algorithm, case.penalty, participants=case.participants)
    for _ in range(cap):
        federation.step()
        yield federation.model, federation.cost.bytes_down + federation.cost.bytes_up


def fista(case: Case, cap: int) -> Run:
    """FISTA with one exact gradient of f per round, written without the library but for the prox.

    The step is 1/L of the mean loss f, or 1/(2ρ) if that is shorter. The momentum is set back by
    the gradient scheme of O'Donoghue and Candès. Every client takes part; it receives the point and
    sends its gradient.

    Beck, Teboulle 2009: "A Fast Iterative Shrinkage-Thresholding Algorithm for Linear Inverse
    Problems". O'Donoghue, Candès 2015: "Adaptive Restart for Accelerated Gradient Schemes".
    """
    X, y, penalty = case.data.X, case.data.y, case.penalty
    dense = X.toarray() if sparse.issparse(X) else X
    A = np.hstack([dense, np.ones((len(dense), 1))])
    n, d = A.shape
    logistic = case.data.model is Logistic
    L = np.linalg.norm(A, 2) ** 2 / n * (0.25 if logistic else 1.0)
    step = min(1 / L, 0.5 / penalty.rho) if penalty.rho else 1 / L

    def gradient(w: Array) -> Array:
        scores = A @ w
        return A.T @ ((expit(scores) if logistic else scores) - y) / n

    w = point = np.zeros(d)
    theta = 1.0
    for t in range(1, cap + 1):
        moved = torch.from_numpy(point - step * gradient(point))
        new = penalty.prox(moved, step).numpy()
        if (point - new) @ (new - w) > 0:
            theta = 1.0
        longer = (1 + math.sqrt(1 + 4 * theta**2)) / 2
        w, point, theta = new, new + (theta - 1) / longer * (new - w), longer
        yield torch.from_numpy(w), t * len(case.problem.clients) * 2 * d * w.itemsize


def race(
    case: Case, run: Run, cap: int, best: tuple[float, ...] = NEVER, *, patient: bool = True
) -> Outcome:
    """Follow a run until ‖G‖ ≤ 1e-9; return rounds and bytes to each tolerance.

    A run ends early if it diverges, if it can be better than ``best`` at no tolerance any more, or,
    without patience, if twice its pace over the last 100 rounds would not bring it to the next
    tolerance.
    """
    pooled, step = case.pooled, stationarity_step(case.penalty)
    rounds: list[int] = []
    sent: list[int] = []
    curve: list[float] = []
    smallest: list[float] = []
    ended = f"{cap} rounds"
    try:
        for t, (z, traffic) in enumerate(run, 1):
            norm = stationarity(case.penalty, z, pooled.full_gradient(z), step)
            curve.append(norm)
            smallest.append(min(norm, smallest[-1] if smallest else math.inf))
            while len(rounds) < len(TOLERANCES) and norm <= TOLERANCES[len(rounds)]:
                rounds.append(t)
                sent.append(traffic)
            if len(rounds) == len(TOLERANCES):
                ended = "reached"
                break
            if not norm <= 1e6 * (1 + curve[0]):
                ended = "diverged"
                break
            if all(t >= other for other in best[len(rounds) :]):
                ended = "not the best"
                break
            if not patient and is_hopeless(smallest, TOLERANCES[len(rounds)], cap):
                ended = "given up"
                break
    except DivergenceError:
        ended = "diverged"
    except FedcanonError:  # a step that this penalty's prox does not have
        ended = OUTSIDE
    missing = [None] * (len(TOLERANCES) - len(rounds))
    every = -(-len(curve) // SHOWN) or 1
    return {
        "rounds": rounds + missing,
        "bytes": sent + missing,
        "ended": ended,
        "length": len(curve),
        "smallest": smallest[-1] if smallest else None,
        "curve": {"every": every, "norms": [float(f"{norm:.3g}") for norm in curve[::every]]},
    }


def is_hopeless(smallest: list[float], tolerance: float, cap: int) -> bool:
    """Tell whether twice the pace of the last rounds would not reach the tolerance by the cap."""
    t = len(smallest)
    if t < 2 * WINDOW or t % 50:  # looked at now and then
        return False
    pace = math.log(smallest[-WINDOW - 1] / smallest[-1]) / WINDOW
    return smallest[-1] * math.exp(-HOPE * pace * (cap - t)) > tolerance
