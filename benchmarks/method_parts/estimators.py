"""Rounds and errors of the estimators for scikit-learn, on data spread over five clients."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from comparison.journal import Journal, Outcome
from comparison.tables import table
from rich.progress import Progress
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
from sklearn.preprocessing import StandardScaler

from fedcanon.estimators import FederatedClassifier, FederatedRegressor
from method_parts.names import short

LOADERS = {
    "diabetes": load_diabetes,
    "iris": load_iris,
    "wine": load_wine,
    "breast cancer": load_breast_cancer,
}
MIXED = {"name": "elastic_net", "kappa1": 0.8, "kappa2": 0.2}
PROBLEMS: dict[str, tuple[str, float, dict[str, Any]]] = {
    "diabetes, `Lasso`": ("diabetes", 1.0, {}),
    "diabetes, `ElasticNet`": ("diabetes", 1.0, {"penalty": MIXED}),
    "iris, ℓ1, three classes": ("iris", 0.05, {}),
    "wine, ℓ1, three classes": ("wine", 0.05, {}),
    "breast cancer, ℓ1": ("breast cancer", 0.05, {}),
}
PLAIN = {"name": "fedcanon+", "accelerated": False}
SETTINGS: dict[str, dict[str, Any]] = {
    "FederatedClassifier()": {},
    "FederatedClassifier(local_steps=1)": {"local_steps": 1},
    "FederatedClassifier(local_steps=40)": {"local_steps": 40},
    'FederatedClassifier(algorithm={"name": "fedcanon+", "accelerated": False})': {
        "algorithm": PLAIN
    },
    'FederatedClassifier(algorithm="newton")': {"algorithm": "newton"},
}


def fitted(data: str, kappa: float, **settings: Any) -> Outcome:
    """Fit over five unequal clients: the rounds, and the errors against the pooled data."""
    X, y = LOADERS[data](return_X_y=True)
    clients = np.random.default_rng(0).choice(5, size=len(y), p=[0.4, 0.3, 0.15, 0.1, 0.05])
    X = StandardScaler().fit_transform(X)
    kind, pooled = FederatedClassifier, _logistic(kappa, len(y))
    if data == "diabetes":
        mixed = "penalty" in settings
        kind = FederatedRegressor
        pooled = ElasticNet(alpha=kappa, l1_ratio=0.8 if mixed else 1, tol=1e-12, max_iter=10_000)
        pooled = pooled if mixed else Lasso(alpha=kappa, tol=1e-12, max_iter=10_000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = kind(kappa=kappa, **settings).fit(X, y, groups=clients)
    oracle = pooled.fit(X, y).coef_
    return {
        "rounds": model.n_iter_,
        "converged": not caught,
        "error": float(np.abs(model.coef_ - oracle).max()),
        "largest": float(np.abs(oracle).max()),
    }


def _logistic(kappa: float, samples: int) -> LogisticRegression:
    options = {"solver": "saga", "tol": 1e-12, "max_iter": 100_000, "random_state": 0}
    return LogisticRegression(C=1 / (kappa * samples), l1_ratio=1, **options)


def measure(journal: Journal, progress: Progress, *, smoke: bool) -> Any:
    """Every problem with FedCanon+ and with newton, and one problem with every setting."""
    problems = dict(list(PROBLEMS.items())[: 1 if smoke else None])
    settings = {} if smoke else SETTINGS
    task = progress.add_task("", total=2 * len(problems) + len(settings))

    def fit(data: str, kappa: float, given: dict[str, Any]) -> Outcome:
        outcome = journal.outcome(
            {"data": data, "kappa": kappa, **given}, lambda: fitted(data, kappa, **given)
        )
        progress.update(task, advance=1, description=f"{data} {given}")
        return outcome

    return {
        "problems": {
            label: {
                "kappa": kappa,
                "fedcanon+": fit(data, kappa, given),
                "newton": fit(data, kappa, {**given, "algorithm": "newton"}),
            }
            for label, (data, kappa, given) in problems.items()
        },
        "settings": {label: fit("breast cancer", 0.05, given) for label, given in settings.items()},
    }


def tables(found: Any) -> Iterator[tuple[str, str]]:
    """The two tables of the page."""
    header = (
        "data",
        "κ",
        "rounds",
        "largest error of a coefficient",
        "largest coefficient",
        'rounds of `algorithm="newton"`',
        "its largest error",
    )
    yield "estimators", table(header, [_line(*item) for item in found["problems"].items()])
    yield (
        "estimator-rounds",
        table(
            ("estimator", "rounds"),
            [(f"`{label}`", _rounds(one)) for label, one in found["settings"].items()],
        ),
    )


def _line(label: str, one: Any) -> tuple[str, ...]:
    ours, newton = one["fedcanon+"], one["newton"]
    return (
        label,
        f"{one['kappa']:g}",
        _rounds(ours),
        short(ours["error"]),
        short(ours["largest"]),
        _rounds(newton),
        short(newton["error"]),
    )


def _rounds(one: Outcome) -> str:
    return f"{one['rounds']:,}" if one["converged"] else f"more than {one['rounds']:,}"


def sentences(found: Any) -> Iterator[tuple[str, str]]:
    """What other pages say of these fits: nothing."""
    yield from ()
