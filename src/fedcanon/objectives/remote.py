"""The loss of a client elsewhere."""

from __future__ import annotations

from typing import NoReturn

from torch import Tensor, nn

from fedcanon.errors import FedcanonError
from fedcanon.objectives.base import Objective


class Remote(Objective):
    """f_i of a client whose data are not here: only the number of its samples is known.

    Args:
        like: An objective of the same model, on any data.
        samples: How many samples the client has.
    """

    def __init__(self, like: Objective, samples: int) -> None:
        self._like, self.layout, self.samples = like, like.layout, samples

    @property
    def buffers(self) -> Tensor:
        return self._like.buffers

    @property
    def has_hessian(self) -> bool:
        return self._like.has_hessian

    def require_records(self) -> None:
        self._like.require_records()

    def module(self, x: Tensor, buffers: Tensor) -> nn.Module:
        return self._like.module(x, buffers)

    def gradient(self, x: Tensor, batch: Tensor | None = None, bound: float = 0.0) -> NoReturn:
        """Refuse, as all others that need the data do.

        Raises:
            FedcanonError: Always.
        """
        raise FedcanonError("only the client itself can compute its loss.")

    value = value_and_gradient = hessian = clipped_sum = gradient
