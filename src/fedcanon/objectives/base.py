"""The contract of an objective f_i."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout

NO_HESSIAN = (
    "the Hessian is known for linear models only (logistic, linear, least squares), and this model "
    'is another: use FedCanon+ (algorithm.name = "fedcanon+"), which needs gradients only.'
)
"""Refuses second derivatives of a model that has none here."""

NO_RECORDS = (
    "this objective has no gradients of single records: the privacy of records needs a loss that "
    "is a mean over records, as those of linear models and networks are."
)
"""Refuses single records of a loss that is no sum over them."""


class Objective(ABC):
    """One client's smooth loss f_i, seen as a function of one flat vector.

    f_i(x) is the mean over ``samples`` terms, and a mini-batch is a tensor of indices of terms. An
    objective that is not a mean, such as a quadratic, has one term, and its gradient is always the
    full one. ``layout`` names the tensors inside the flat vector.
    """

    layout: Layout
    samples: int

    @property
    def draws(self) -> bool:
        """Whether its gradients may draw from PyTorch's generators, as dropout does."""
        return True

    @abstractmethod
    def value(self, x: Tensor) -> float:
        """f_i(x)."""

    @abstractmethod
    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        """f_i(x) and the exact ∇f_i(x), a new tensor."""

    def over_some(self, count: int, rng: np.random.Generator) -> Objective:
        """The same loss over ``count`` of its samples, if it has more and can leave some out."""
        return self

    def full_gradient(self, x: Tensor) -> Tensor:
        """∇f_i(x), exact, as a new tensor."""
        return self.value_and_gradient(x)[1]

    @property
    def has_hessian(self) -> bool:
        """Whether ``hessian`` is known."""
        return False

    def hessian(self, x: Tensor) -> Tensor:
        """∇²f_i(x), exact, as a new d×d matrix.

        Args:
            x: Where to take it.

        Raises:
            FedcanonError: It is not known for this model.
        """
        raise FedcanonError(NO_HESSIAN)

    def require_records(self) -> None:
        """Raise a ``FedcanonError`` if the gradients of single records are not known."""
        raise FedcanonError(NO_RECORDS)

    def clipped_sum(self, x: Tensor, batch: Tensor | None, bound: float) -> Tensor:
        """Σ_j ∇ℓ_j(x)·min(1, bound/‖∇ℓ_j(x)‖) over some records j, as a new tensor.

        ℓ_j is the loss of record j by itself, so that no record can change the sum by more than
        ``bound``, whatever it is. A gradient that is not finite counts as 0.

        Args:
            x: Where to take the gradients.
            batch: The indices of the records, of which there may be none; None stands for all.
            bound: The largest norm of one summand.

        Raises:
            FedcanonError: The gradients of single records are not known.
        """
        raise FedcanonError(NO_RECORDS)

    @abstractmethod
    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        """The mean gradient over some of the terms.

        The caller may write to the result, which is valid until the next call.

        Args:
            x: Where to take the gradient.
            batch: The indices of the terms; None stands for all of them.
        """

    def descend_(
        self,
        x: Tensor,
        batches: Sequence[Tensor | None],
        step: float,
        shift: Tensor | None = None,
    ) -> None:
        """x ← x − step·(the gradient over a batch at x + shift), in place, for one after the other.

        Args:
            x: The vector to move.
            batches: The indices of the terms, as many in each; None stands for all of them.
            step: The step size.
            shift: A vector that is added to every gradient; None for none.
        """
        for batch in batches:
            self._step_(x, batch, step)
            if shift is not None:
                x.add_(shift, alpha=-step)

    def _step_(self, x: Tensor, batch: Tensor | None, step: float) -> None:
        """x ← x − step·(the gradient over ``batch`` at x), in place."""
        x.add_(self.gradient(x, batch), alpha=-step)

    def workspace(self, start: Tensor) -> Tensor:
        """A copy of ``start`` in memory where local steps are cheapest.

        There is one workspace at a time: the next call may write over the last one.
        """
        return start.clone()

    def taken_out(self, workspace: Tensor) -> Tensor:
        """What is in the workspace, as a tensor that later steps do not touch."""
        return workspace

    def module(self, x: Tensor, buffers: Tensor) -> nn.Module:
        """A new module with given parameters.

        Args:
            x: The parameters, as a flat vector.
            buffers: The normalisation statistics.

        Raises:
            FedcanonError: The objective is not that of a network.
        """
        raise FedcanonError(f"{type(self).__name__} is no network: there is no module of it.")

    @property
    def buffers(self) -> Tensor:
        """The normalisation statistics that travel beside the vector; empty if there are none."""
        return torch.empty(0)
