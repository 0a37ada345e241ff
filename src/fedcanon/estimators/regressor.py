"""A scikit-learn regressor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from fedcanon.errors import FedcanonError
from fedcanon.estimators.base import FLOATS, Federated
from fedcanon.estimators.problems import (
    InvalidDataError,
    linear_problem,
    network_problem,
    rows_of_clients,
)
from fedcanon.objectives.linear import LinearObjective
from fedcanon.runs.named import make_family, make_loss


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedRegressor(RegressorMixin, Federated):
    """Least squares, or another loss, with a linear model or a network, over clients.

    A linear model minimises f(w, b) = (1/(2n)) Σ_j (x_jᵀw + b − y_j)²; a network has its output in
    place of x_jᵀw + b. With the penalty κ‖w‖₁ a linear model is that of scikit-learn's
    ``Lasso(alpha=κ)``; with κ₁‖w‖₁ + (κ₂/2)‖w‖² it is that of ``ElasticNet`` with
    κ₁ = alpha·l1_ratio and κ₂ = alpha·(1 − l1_ratio).

    Args:
        loss: "gaussian", least squares; "huber", which outliers pull less; "poisson" or
            "negative_binomial" for counts and "gamma" for positive numbers, whose prediction is the
            exponential of the output. A dictionary has options too, {"name": "huber", "delta": 2}.

    Sparse features stay sparse for a linear model and are made dense otherwise.

    Attributes:
        model_: The trained ``nn.Module``.
        records_: The measures of every round: loss, stationarity, zeros, bytes.
        n_iter_: The number of rounds.
        privacy_: The guarantee, ``RecordPrivacy`` or ``ClientPrivacy``; None without privacy.
        epsilon_: The ε that was spent; None without privacy.
        n_features_in_: The number of features.
        feature_names_in_: Their names, if they are strings.
    """

    loss: str | Mapping[str, Any] = "gaussian"

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train on samples that are spread over clients.

        Args:
            X: Features, a row for each sample: an array, a data frame or a sparse matrix.
            y: The target of each sample.
            groups: The client of each sample, by a number or a name of any kind. Without it all
                samples are one client's.

        Raises:
            FedcanonError: The parameters do not fit one another or the data.

        Warns:
            ConvergenceWarning: The rounds ended before the tolerance was met.
            RuntimeWarning: The noise of privacy decides which weights are zero.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=FLOATS, y_numeric=True)
        y = y.astype(X.dtype)
        clients, seed = rows_of_clients(groups, X), self._draw_seed()
        table = {"name": self.loss} if isinstance(self.loss, str) else dict(self.loss)
        self._family = make_family(table)
        try:
            self._family.responses(y)
        except FedcanonError as error:
            raise InvalidDataError(str(error)) from None
        if self.hidden:
            problem = network_problem(
                X,
                y,
                clients,
                hidden=self.hidden,
                outputs=1,
                bias=self.fit_intercept,
                loss=make_loss(table),
                seed=seed,
            )
        else:
            objectives = [
                LinearObjective(X[rows], y[rows], self._family, intercept=self.fit_intercept)
                for rows in clients
            ]
            problem = linear_problem(objectives, X.dtype)
        self._train(problem, seed)
        return self

    @property
    def coef_(self) -> NDArray[np.floating]:
        """Weights of a linear model, one for each feature."""
        weight: NDArray[np.floating] = self._linear()[0][0]
        return weight

    @property
    def intercept_(self) -> float:
        """Intercept of a linear model; 0 without one."""
        return float(self._linear()[1][0])

    def predict(self, X: Any) -> NDArray[np.floating]:
        """The expected target of each sample."""
        outputs = self._outputs(X)
        return self._family.means(outputs[:, 0])
