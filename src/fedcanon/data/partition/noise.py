"""Feature skew."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedcanon.data.dataset import Split
from fedcanon.data.partition.base import Graded
from fedcanon.data.partition.labels import Iid
from fedcanon.errors import FedcanonError


@dataclass(frozen=True)
class Noise(Graded, Iid):
    """Feature skew: i.i.d. parts, and noise of standard deviation σ·i/N on client i = 1 … N.

    The noise is Gaussian, drawn once and added to the training inputs; test data stay as they are.

    Args:
        sigma: The standard deviation σ > 0 of the noise on the last client.
    """

    sigma: float

    def distort(self, train: Split, parts: list[Tensor], rng: np.random.Generator) -> Split:
        if not (isinstance(train.inputs, Tensor) and train.inputs.is_floating_point()):
            raise FedcanonError(
                "the partition 'noise' needs dense inputs of real numbers: choose another one."
            )
        inputs = train.inputs.clone()
        for i, part in enumerate(parts, start=1):
            shape = (len(part), *inputs.shape[1:])
            noise = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
            inputs[part] += self.sigma * i / len(parts) * noise.to(inputs.dtype)
        return replace(train, inputs=inputs)
