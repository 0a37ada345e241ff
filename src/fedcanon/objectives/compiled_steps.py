"""Local steps of small perceptrons as one call of compiled code."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedcanon.layout import Layout
from fedcanon.objectives import kernels
from fedcanon.objectives.perceptron import Perceptron
from fedcanon.threads import one_blas_thread

WORTH_COMPILING = 500_000
"""Up to so many parameters, compiled steps on a CPU are faster than PyTorch's.

PyTorch takes longer to begin an operation, but has one that adds a product to a matrix, so that no
gradient is stored. The gradients of larger networks do not fit into the processor's cache.
"""


def worth_compiling(x: Tensor) -> bool:
    """Whether compiled steps are the fastest at these parameters, of one client or of several."""
    numbers = x.dtype in (torch.float32, torch.float64)
    return numbers and x.device.type == "cpu" and x.shape[-1] <= WORTH_COMPILING


def descend_(
    perceptron: Perceptron,
    layout: Layout,
    x: Tensor,
    inputs: Tensor,
    targets: Tensor,
    rows: Tensor,
    sizes: Tensor,
    step: float,
    shift: Tensor | None,
) -> None:
    """Move every row of ``x`` by −step·(mean cross-entropy gradient there + shift), several times.

    Args:
        perceptron: The network.
        layout: Where its parameters are in a row of ``x``.
        x: A contiguous matrix with a row of parameters for each client.
        inputs: The samples of all clients.
        targets: The class of each sample.
        rows: The samples of client i in a step are the first at [step, i], ``sizes[i]`` of them.
        sizes: How many samples each client has in a step.
        step: The step size.
        shift: A vector for all clients, or a row for each; None for none.
    """
    weights = [slot.shape for slot in layout if len(slot.shape) == 2]
    shifts = x.new_empty(0, 0) if shift is None else shift.expand_as(x).contiguous()
    with one_blas_thread():
        kernels.descend(
            x.numpy(),
            shifts.numpy(),
            inputs.flatten(1).numpy(),
            targets.numpy(),
            rows.numpy(),
            sizes.numpy(),
            np.array([weights[0][1], *(fan_out for fan_out, _ in weights)]),
            np.array(perceptron.has_bias),
            np.array(perceptron.relu),
            x.numpy().dtype.type(step),
        )
