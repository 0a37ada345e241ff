"""The loss of a client elsewhere."""

from __future__ import annotations

from typing import NoReturn

from torch import Tensor, nn

from fedcanon.errors import FedcanonError
from fedcanon.objectives.base import Objective


class Remote(Objective):
    """f_i of a client whose data are not here: only the number of its samples is known.

    ``like`` is an objective of the same model, on any data.
    """

    def __init__(self, like: Objective, samples: int) -> None:
        self._like, self.layout, self.samples = like, like.layout, samples

    @property
    def buffers(self) -> Tensor:
        return self._like.buffers

    def module(self, x: Tensor, buffers: Tensor) -> nn.Module:
        return self._like.module(x, buffers)

    def value(self, x: Tensor) -> float:
        self._refuse()

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        self._refuse()

    def gradient(self, x: Tensor, batch: Tensor | None) -> Tensor:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise FedcanonError("only the client itself can compute its loss.")
