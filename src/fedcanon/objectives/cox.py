"""Cox's proportional hazards: the partial likelihood of times of events, stratified by client."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.objectives.families import Gaussian
from fedcanon.objectives.linear import Array, LinearObjective

Ties = Literal["efron", "breslow"]


class Cox(LinearObjective):
    """f(w) = −(1/m) Σ_{events j} [x_jᵀw − log Σ_{k at risk} exp(x_kᵀw)]: Cox's partial likelihood.

    Those at risk at a time are the client's own samples that have had no event before it. Over
    clients this is the likelihood **stratified by site**: each has its own baseline hazard, the
    coefficients are common, and f = Σ p_i f_i holds exactly with p_i in proportion to samples. The
    likelihood of the pooled rows is no sum over clients, since every risk set needs all of them.

    There is no intercept, which the baseline hazard contains. f is not a mean over samples, so that
    mini-batches are refused.

    Args:
        features: An m×d array or SciPy sparse matrix, whose rows are the x_j.
        times: The m times of the event, or of the end of observation.
        events: Whether each time is that of an event.
        ties: How events at the same time are treated: "efron", or "breslow".
        free: So many of the last features are not penalised.

    Raises:
        FedcanonError: Shapes do not fit, or a time is negative or not finite.
    """

    def __init__(
        self,
        features: ArrayLike | sparse.sparray,
        times: ArrayLike,
        events: ArrayLike,
        *,
        ties: Ties = "efron",
        free: int = 0,
    ) -> None:
        needs = "a Cox model needs an m×d feature matrix and m times"
        super().__init__(features, times, Gaussian(), intercept=False, free=free, needs=needs)
        happened = np.asarray(events)
        if happened.shape != self._y.shape or not np.isin(happened, (0, 1)).all():
            raise FedcanonError("a Cox model needs to know if each sample had the event: 0 or 1.")
        if not (np.isfinite(self._y).all() and (self._y >= 0).all()):
            raise FedcanonError("the times of a Cox model must be finite and not negative.")
        order = np.argsort(self._y, kind="stable")
        self._x, self._y = self._x[order], self._y[order]
        self.happened = happened[order].astype(bool)
        # One term of the sum for each event. At risk are all samples from the first with its time.
        times_of_terms = self._y[self.happened]
        self._first = np.searchsorted(self._y, times_of_terms, side="left")
        self._last = np.searchsorted(self._y, times_of_terms, side="right")
        _, self._group, self._tied = np.unique(self._first, return_inverse=True, return_counts=True)
        self._left_out = self._fractions(ties)

    def _fractions(self, ties: Ties) -> Array:
        """The part of the samples with an event at the same time that each term leaves out.

        Of n tied events, Efron's k-th term (k = 0, 1, …) leaves out k/n; Breslow's terms nothing.
        """
        starts = np.cumsum(self._tied) - self._tied
        ranks = np.arange(len(self._first)) - starts[self._group]
        if ties not in ("efron", "breslow"):
            raise FedcanonError(f'ties must be "efron" or "breslow", not "{ties}".')
        efron: Array = ranks / self._tied[self._group]
        return efron if ties == "efron" else np.zeros_like(efron)

    @property
    def times(self) -> Array:
        """The times, in increasing order, as the scores and ``happened`` are."""
        return self._y

    def value(self, x: Tensor) -> float:
        scores, hazards = self._hazards(x)
        sums = np.log(self._at_risk(hazards)) + scores.max()
        return float((sums - scores[self.happened]).sum()) / self.samples

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        if batch is not None:
            raise FedcanonError(
                "the partial likelihood of a Cox model is no mean over samples, so that there are "
                'no mini-batches: use batch_size = "full".'
            )
        _, hazards = self._hazards(x)
        slopes = self._expected(hazards) - self.happened
        return self._combined(self._x, slopes / self.samples)

    def require_records(self) -> None:
        raise FedcanonError(
            "a Cox model has no gradients of single records: in its partial likelihood every "
            "record is in the risk sets of others, so that its records cannot be made private."
        )

    def hessian(self, x: Tensor) -> Tensor:
        _, hazards = self._hazards(x)
        dense = self._x if isinstance(self._x, np.ndarray) else self._x.toarray()
        sums = self._at_risk(hazards)[:, None]
        means = self._at_risk(hazards[:, None] * dense) / sums
        square = self._weighted_square(self._expected(hazards))
        return square - torch.from_numpy(means.T @ means / self.samples)

    def information(self, x: Tensor) -> Tensor:
        """The observed information of the samples about the model at ``x``."""
        return self.hessian(x) * self.samples

    def score_square(self, x: Tensor) -> Tensor:
        """There are no weights, so that it is the information."""
        return self.information(x)

    def pearson(self, x: Tensor) -> None:
        """There is no dispersion."""

    def deviance(self, x: Tensor) -> float:
        """Twice the value: a model that knows the order of all events has the likelihood 1."""
        return 2 * self.value(x)

    def _hazards(self, x: Tensor) -> tuple[Array, Array]:
        """Return the scores η and exp(η − max η)."""
        scores = self.scores(x)
        return scores, np.exp(scores - scores.max())

    def _at_risk(self, rows: Array) -> Array:
        """Sum rows over those at risk at each term, less what the term leaves out."""
        from_here = np.cumsum(rows[::-1], axis=0)[::-1]
        tied = self._until(rows, self._last) - self._until(rows, self._first)
        left_out = self._left_out.reshape(-1, *[1] * (rows.ndim - 1))
        sums: Array = from_here[self._first] - left_out * tied
        return sums

    def _until(self, rows: Array, ends: NDArray[np.intp]) -> Array:
        """Sum the rows with an event before each of these places."""
        happened = np.where(self.happened.reshape(-1, *[1] * (rows.ndim - 1)), rows, 0)
        sums = np.cumsum(happened, axis=0)
        found: Array = np.concatenate([np.zeros_like(sums[:1]), sums])[ends]
        return found

    def _expected(self, hazards: Array) -> Array:
        """The events that each sample would have on average, given all times of events."""
        rates = 1 / self._at_risk(hazards)
        at_risk = np.cumsum(np.bincount(self._first, rates, minlength=self.samples))
        left_out = np.zeros(self.samples)
        left_out[self.happened] = np.bincount(self._group, self._left_out * rates)[self._group]
        expected: Array = (hazards * (at_risk - left_out)).astype(hazards.dtype)
        return expected
