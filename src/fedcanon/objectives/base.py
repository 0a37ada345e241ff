"""The contract of an objective f_i."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout


class Objective(ABC):
    """One client's smooth loss f_i, seen as a function of one flat vector.

    f_i(x) is the mean over ``samples`` terms; a mini-batch is a tensor of their indices. An
    objective that is not a mean (a quadratic) has one term and only a full gradient.
    """

    layout: Layout
    samples: int

    @abstractmethod
    def value(self, x: Tensor) -> float:
        """f_i(x)."""

    @abstractmethod
    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        """f_i(x) and the exact ∇f_i(x), a new tensor."""

    def full_gradient(self, x: Tensor) -> Tensor:
        """∇f_i(x), exact, as a new tensor."""
        return self.value_and_gradient(x)[1]

    @abstractmethod
    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        """The mean gradient over the terms in ``batch`` (all terms where it is None).

        The result may be written to by the caller and is valid until the next call.
        """

    def descend_(self, x: Tensor, batch: Tensor | None, step: float) -> None:
        """x ← x − step·(the gradient over ``batch`` at x), in place."""
        x.add_(self.gradient(x, batch), alpha=-step)

    def workspace(self, start: Tensor) -> Tensor:
        """A writable copy of ``start`` at which local steps are cheapest; one at a time."""
        return start.clone()

    def taken_out(self, workspace: Tensor) -> Tensor:
        """What is in the workspace, as a tensor that later steps do not touch."""
        return workspace

    def module(self, x: Tensor, buffers: Tensor) -> nn.Module:
        """A module of its own with these parameters and normalisation statistics."""
        raise FedcanonError(f"{type(self).__name__} is no network: there is no module of it.")

    @property
    def buffers(self) -> Tensor:
        """Normalisation statistics that travel beside the vector; empty where there are none."""
        return torch.empty(0)
