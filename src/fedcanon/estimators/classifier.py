"""A scikit-learn classifier."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch.nn import functional

from fedcanon.estimators.base import FLOATS, Federated
from fedcanon.estimators.problems import (
    labels_of,
    linear_problem,
    network_problem,
    rows_of_clients,
)
from fedcanon.objectives import Logistic


class FederatedClassifier(ClassifierMixin, Federated):
    """Logistic regression, or a network under the cross-entropy loss, over clients.

    A linear model of two classes minimises f(w, b) = (1/n) Σ_j log(1 + exp(−y_j (x_jᵀw + b))) with
    y_j = ±1. With more classes or with ``hidden`` layers f is the mean cross-entropy of the
    outputs. With the penalty κ‖w‖₁ a linear model is that of scikit-learn's
    ``LogisticRegression(l1_ratio=1)`` with C = 1/(κn).

    Sparse features stay sparse for a linear model of two classes and are made dense otherwise.

    Attributes:
        classes_: The labels.
        model_: The trained ``nn.Module``.
        records_: The measures of every round: loss, stationarity, zeros, bytes.
        n_iter_: The number of rounds.
        privacy_: The guarantee, ``RecordPrivacy`` or ``ClientPrivacy``; None without privacy.
        epsilon_: The ε that was spent; None without privacy.
        n_features_in_: The number of features.
        feature_names_in_: Their names, if they are strings.
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train on samples that are spread over clients.

        Args:
            X: Features, a row for each sample: an array, a data frame or a sparse matrix.
            y: The label of each sample.
            groups: The client of each sample, by a number or a name of any kind. Without it all
                samples are one client's.

        Raises:
            FedcanonError: The parameters do not fit one another or the data.

        Warns:
            ConvergenceWarning: The rounds ended before the tolerance was met.
            RuntimeWarning: The noise of privacy decides which weights are zero.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=FLOATS)
        self.classes_, labels = labels_of(y)
        clients, seed = rows_of_clients(groups, X), self._draw_seed()
        binary = len(self.classes_) == 2
        if binary and not self.hidden:
            objectives = [
                Logistic(X[rows], labels[rows], intercept=self.fit_intercept) for rows in clients
            ]
            problem = linear_problem(objectives, X.dtype)
        else:
            problem = network_problem(
                X,
                labels.astype(X.dtype) if binary else labels,
                clients,
                hidden=self.hidden,
                outputs=1 if binary else len(self.classes_),
                bias=self.fit_intercept,
                loss=_binary_cross_entropy if binary else functional.cross_entropy,
                seed=seed,
            )
        self._train(problem, seed)
        return self

    @property
    def coef_(self) -> NDArray[np.floating]:
        """Weights of a linear model, 1 × features for two classes, else classes × features."""
        return self._linear()[0]

    @property
    def intercept_(self) -> NDArray[np.floating]:
        """Intercepts of a linear model, 1 for two classes, else one for each."""
        return self._linear()[1]

    def decision_function(self, X: Any) -> NDArray[np.floating]:
        """A score of each sample for each class; for two classes one, positive for the second."""
        scores = self._outputs(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """The probability of each class, a row for each sample."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        probabilities: NDArray[np.floating] = softmax(scores, axis=1)
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each sample."""
        scores = self.decision_function(X)
        found = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[found.astype(int)]
        return labels


def _binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets)
