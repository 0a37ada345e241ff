"""What the classifier and the regressor share: parameters, training, the model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from fedcanon.algorithms import ALGORITHMS, Algorithm
from fedcanon.errors import FedcanonError
from fedcanon.estimators.features import indices, over_features
from fedcanon.estimators.private import PrivacySettings, read_privacy, train_privately
from fedcanon.estimators.problems import dense, require_kappa
from fedcanon.layout import Layout
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty, PerLayer, on_weights
from fedcanon.privacy import Privacy
from fedcanon.runs.federation import Federation
from fedcanon.runs.fitting import fit
from fedcanon.runs.named import find, make_algorithm, make_penalty
from fedcanon.runs.result import Result
from fedcanon.runs.steps import AUTO, fill_in, find_facts, method_for, open_steps, without_auto
from fedcanon.search.kappas import null_model
from fedcanon.threads import one_thread

FLOATS = (np.float64, np.float32)


@dataclass(eq=False, repr=False, kw_only=True)
class Federated(BaseEstimator):
    """Minimises f + h over clients: the parameters, and how they become a run.

    f is the mean loss over all samples, whichever client has them, unless ``weights`` says
    otherwise. The penalty h acts on weights and not on biases. ``fit`` looks at the parameters.

    Args:
        penalty: h, by its name in ``fedcanon list penalties`` if it has a ``kappa``, or as a
            dictionary with the name and all parameters, or as a ``Penalty``. The ``groups`` of
            a penalty with groups are groups of features: the number of features in each, lists
            of them, or a dictionary from a name to such a list. Features are counted from 0,
            or, in a dictionary of parameters, named like the columns of a data frame.
        kappa: κ of a penalty that is given by its name.
        algorithm: The method, by its name in ``fedcanon list algorithms``, or as a dictionary
            with the name and its other parameters. "auto" is Newton's for a linear model of up to
            3,000 features, and FedCanon+ otherwise.
        alpha: Server step; "auto" is the method's own rule, from curvature or trials.
        beta: Local step, likewise.
        local_steps: K, the number of gradient steps of a client in a round.
        rounds: Rounds after which training ends at the latest.
        tol: Training ends once ‖G(z)‖ ≤ tol·‖∇f(z̄)‖. G(z) = z − prox_h(z − ∇f(z)), the
            proximal gradient mapping, is zero at a solution; z̄ is the model whose weights are
            zero and whose intercepts are at their best (the start, for a network). With 0 all
            rounds are done.
        batch_size: Samples of a gradient; all of the client's by default.
        hidden: Sizes of hidden layers, with ReLU between them; none is a linear model.
        fit_intercept: Whether layers have biases.
        random_state: Seed of mini-batches and of a network's start.
        weights: How clients are weighed in f: by their "samples", or "uniform", all the same, which
            is the default of ``clients.weights`` in a configuration.
        privacy: None, or a dictionary such as ``{"epsilon": 3}``, with which the model is
            differentially private: it hides whether a record was among the data, and nothing else
            is told of them. ``PrivacySettings`` has its keys and their defaults. Then ``rounds``
            and ``local_steps`` are those of the dictionary, all rounds are done whatever ``tol``
            is, and the method is FedCanon+. "auto" steps are βK = 1 and α = βK, for features of
            deviation about 1; networks need a ``beta`` and a ``clip``. Labels count as public.
    """

    penalty: str | Mapping[str, Any] | Penalty = "l1"
    kappa: float = 1e-3
    algorithm: str | Mapping[str, Any] = "fedcanon+"
    alpha: float | str = AUTO
    beta: float | str = AUTO
    local_steps: int = 10
    rounds: int = 3000
    tol: float = 1e-6
    batch_size: int | None = None
    hidden: Sequence[int] = ()
    fit_intercept: bool = True
    random_state: int | np.random.RandomState | None = None
    weights: str = "samples"
    privacy: Mapping[str, Any] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()  # type: ignore[no-untyped-call]
        tags.input_tags.sparse = True
        return tags

    def _draw_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    @one_thread()
    def _train(self, problem: Problem, seed: int) -> None:
        """Solve the problem and keep the model."""
        if self.weights not in ("samples", "uniform"):
            raise FedcanonError(f'weights must be "samples" or "uniform", not {self.weights!r}.')
        if self.weights == "uniform":
            problem = replace(problem, weights=())
        penalty = self._penalty(problem.layout)
        self.privacy_: Privacy | None = None
        self.epsilon_: float | None = None
        if self.privacy is not None:
            settings = read_privacy(
                self.privacy,
                None if self.hidden else self.n_features_in_,  # type: ignore[attr-defined]
            )
            table = self._private_table(settings)
            result, self.privacy_, self.epsilon_ = train_privately(
                problem, penalty, settings, table, batch_size=self.batch_size, seed=seed
            )
            self._keep(result)
            return
        algorithm = self._algorithm(problem, penalty)
        federation = Federation(problem, algorithm, penalty, batch_size=self.batch_size, seed=seed)
        # Not the gradient at the start: in a regression it is as large as the mean of the targets.
        plain = problem.start if self.hidden else null_model(problem, penalty)
        scale = float(problem.value_and_gradient(plain)[1].double().norm()) or 1.0
        tolerance = self.tol * scale
        result = fit(
            federation,
            self.rounds,
            gradient=tolerance > 0,
            gradient_tolerance=tolerance,
            may_slow_down=self.beta == AUTO,
        )
        reached = result.last.gradient_norm
        if reached is not None and reached > tolerance:
            warnings.warn(
                f"training has not converged after {self.rounds} rounds, and coefficients may be "
                f"far from the solution: ‖G‖ is {reached / scale:.1e} of its scale, above tol = "
                f'{self.tol:g}. Scale the features, use more rounds or algorithm="newton", or '
                "accept a larger tol; with tol=0 nothing is checked.",
                ConvergenceWarning,
                stacklevel=4,  # fit, _train and the limit on threads stand between
            )
        self._keep(result)

    def _keep(self, result: Result) -> None:
        self.model_ = result.model
        self.records_ = result.records
        self.n_iter_ = result.last.round

    def _penalty(self, layout: Layout) -> Penalty:
        if isinstance(self.penalty, Penalty):
            chosen = isinstance(self.penalty, PerLayer)
            return over_features(on_weights(self.penalty, layout), chosen=chosen)
        if isinstance(self.penalty, str):
            require_kappa(self.penalty)
            return make_penalty({"name": self.penalty, "kappa": _plain(self.kappa)}, layout)
        table = _plain(self.penalty, list(getattr(self, "feature_names_in_", ())))
        return over_features(make_penalty(table, layout), chosen="layers" in table)

    def _algorithm(self, problem: Problem, penalty: Penalty) -> Algorithm:
        named = method_for(problem) if self.algorithm == AUTO else self.algorithm
        given = {"name": named} if isinstance(named, str) else named
        kind = find(str(given.get("name")), ALGORITHMS, "algorithm")
        known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
        steps = {"alpha": self.alpha, "beta": self.beta, "local_steps": self.local_steps}
        table = {key: value for key, value in steps.items() if key in known} | dict(given)
        table = _plain(table)
        if open_steps(table):
            # One seed for all, so that a linear model does not depend on random_state.
            facts = find_facts(problem, table, self.batch_size, seed=0)
            table = fill_in(table, replace(facts, rho=penalty.rho))
        return make_algorithm(table)

    def _private_table(self, settings: PrivacySettings) -> dict[str, Any]:
        """Return the method of a private training with the parameters that are given."""
        if self.batch_size is not None and settings.level == "record":
            raise FedcanonError(
                "records are private only if they are drawn independently, which mini-batches are "
                "not: leave out batch_size, and use privacy['sampling'] for smaller batches."
            )
        named = "fedcanon+" if self.algorithm == AUTO else self.algorithm
        given = {"name": named} if isinstance(named, str) else named
        steps = {"alpha": self.alpha, "beta": self.beta, "local_steps": settings.local_steps}
        table: dict[str, Any] = _plain({**steps, **given})
        if self.hidden and "beta" not in without_auto(table):
            raise FedcanonError(
                "steps of a network cannot be tried on data that are private: give beta."
            )
        return table

    @property
    def _is_network(self) -> bool:
        """Whether the model has hidden layers; ``hidden`` may have been set anew since."""
        return sum(isinstance(layer, nn.Linear) for layer in self.model_.modules()) > 1

    def _linear(self) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Weights (outputs × features) and intercepts of a linear model."""
        if self._is_network:
            raise AttributeError("a network has no coef_ and no intercept_: see model_.")
        weight, *bias = (parameter.detach().numpy() for parameter in self.model_.parameters())
        return weight, bias[0] if bias else np.zeros(len(weight), weight.dtype)

    def _outputs(self, X: Any) -> NDArray[np.floating]:
        """What the model makes of each sample, a row each."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)
        outputs: NDArray[np.floating]
        if self._is_network:
            first = next(self.model_.parameters())
            inputs = torch.tensor(dense(X), dtype=first.dtype)
            with torch.no_grad():
                outputs = self.model_(inputs).numpy()
        else:
            weight, intercept = self._linear()
            outputs = X @ weight.T + intercept
        return outputs


def _plain(value: Any, features: Sequence[str] = ()) -> Any:
    """Numbers and arrays of NumPy, PyTorch and pandas, as a parameter grid has them, as Python's.

    Names of ``features`` among groups become their indices.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {
            key: indices(_plain(entry), features) if key == "groups" else _plain(entry, features)
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple | range):
        return [_plain(entry, features) for entry in value]
    return value
