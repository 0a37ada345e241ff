"""The convex suite: linear models of small tables and of A9A, divided among clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import scale

from fedcanon import Logistic, Objective, Problem
from fedcanon.data import DATASETS, partition
from fedcanon.objectives.least_squares import LeastSquares
from fedcanon.penalties import L1, MCP, SCAD, GroupLasso, Penalty, on_weights

Array = NDArray[np.float64]
Scope = Literal["grids", "auto", "few"]


@dataclass(frozen=True)
class Data:
    """Features, labels (0 and 1) or targets, and the model that is fitted to them."""

    X: Array | sparse.csr_array
    y: Array
    model: type[Logistic | LeastSquares]


@dataclass(frozen=True)
class Case:
    """A problem of the suite.

    Args:
        data: All samples. With clients weighted by their samples, f is the mean over all of them.
        problem: The same samples, divided among the clients.
        penalty: The regulariser h.
        participants: How many clients take part in a round; None is all.
        scope: "grids": every method at "auto" and with its grid; "auto": every method at "auto", a
            grid for FedCanon+ only; "few": FedCanon+ and newton only, at "auto".
    """

    data: Data
    problem: Problem
    penalty: Penalty
    participants: int | None = None
    scope: Scope = "auto"

    @property
    def pooled(self) -> Objective:
        """The mean loss f as one objective, for a quick measure of ‖G‖."""
        return self.data.model(self.data.X, self.data.y)


def breast_cancer() -> Data:
    X, y = load_breast_cancer(return_X_y=True)
    return Data(scale(X), y, Logistic)


def wine() -> Data:
    """The second and the third kind of wine."""
    X, y = load_wine(return_X_y=True)
    return Data(scale(X[y > 0]), y[y > 0] - 1, Logistic)


def digits() -> Data:
    """Threes and eights."""
    X, y = load_digits(return_X_y=True)
    rows = np.isin(y, (3, 8))
    return Data(scale(X[rows]), (y[rows] == 8).astype(int), Logistic)


def a9a() -> Data:
    train = DATASETS["a9a"]().train
    return Data(train.features("float64"), train.targets.numpy(), Logistic)


def sparse_regression() -> Data:
    """200 samples of 500 independent features, ten of which matter."""
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((200, 500)), np.zeros(500)
    w[:10] = 2.0 * rng.choice([-1, 1], 10)
    return Data(X, X @ w + rng.standard_normal(200), LeastSquares)


def grouped_regression() -> Data:
    """400 samples of 100 correlated features in groups of five; three groups matter."""
    rng = np.random.default_rng(1)
    features = np.arange(100)
    correlation = 0.5 ** abs(np.subtract.outer(features, features))
    X = rng.standard_normal((400, 100)) @ np.linalg.cholesky(correlation).T
    w = np.where(features < 15, rng.standard_normal(100), 0)
    return Data(X, X @ w + rng.standard_normal(400), LeastSquares)


def divided(
    load: Callable[[], Data],
    penalty: Penalty,
    clients: int = 10,
    participants: int | None = None,
    scope: Scope = "auto",
) -> Case:
    """Divide samples among clients by Dir(0.5) over labels, or over quartiles of the targets."""
    data = load()
    X, y, labels = data.X, data.y, data.y
    if data.model is LeastSquares:
        labels = np.digitize(y, np.quantile(y, (0.25, 0.5, 0.75)))
    parts = partition("dirichlet:0.5", torch.from_numpy(labels), clients, np.random.default_rng(0))
    objectives = [data.model(X[part.numpy()], y[part.numpy()]) for part in parts]
    start = torch.zeros(X.shape[1] + 1, dtype=torch.float64)
    problem = Problem(objectives, start, [len(part) for part in parts])
    return Case(data, problem, on_weights(penalty, problem.layout), participants, scope)


GROUPS = GroupLasso(0.05, axis=1, groups=5)
CASES: dict[str, Callable[[], Case]] = {
    "wine, ℓ1": lambda: divided(wine, L1(0.01)),
    "breast cancer, ℓ1": lambda: divided(breast_cancer, L1(0.01), scope="grids"),
    "breast cancer, ℓ1, 30 %": lambda: divided(breast_cancer, L1(0.01), participants=3),
    "breast cancer, SCAD": lambda: divided(breast_cancer, SCAD(0.05)),
    "digits 3/8, ℓ1": lambda: divided(digits, L1(0.01)),
    "digits 3/8, MCP": lambda: divided(digits, MCP(0.05)),
    "digits 3/8, MCP, 30 %": lambda: divided(digits, MCP(0.05), participants=3),
    "200×500, ℓ1": lambda: divided(sparse_regression, L1(0.1), scope="grids"),
    "200×500, MCP": lambda: divided(sparse_regression, MCP(0.3)),
    "group lasso": lambda: divided(grouped_regression, GROUPS),
    "group lasso, 30 %": lambda: divided(grouped_regression, GROUPS, participants=3),
    "A9A, ℓ1": lambda: divided(a9a, L1(1e-3)),
    "A9A, ℓ1, N = 100, 30 %": lambda: divided(a9a, L1(1e-3), 100, 30, scope="few"),
    "A9A, ℓ1, N = 100": lambda: divided(a9a, L1(1e-3), 100, scope="few"),
}
"""The suite by name: N = 10 clients and all of them in every round, where nothing else is said."""
