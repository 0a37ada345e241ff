"""How long networks take to compute their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import torch
from torch import nn
from torch.utils.benchmark import Timer

from fedcanon.export.operations import Shape

REPEATS = 7


def latencies(modules: Sequence[nn.Module], example_shape: Shape, batch: int) -> list[float]:
    """The median time in seconds that each network takes for a batch, on one thread.

    The networks take turns, so that a busy machine slows all of them down.

    Args:
        modules: The networks.
        example_shape: The shape of one input.
        batch: The number of inputs in a batch.
    """
    inputs = next(modules[0].parameters()).new_zeros(batch, *example_shape)
    found: list[list[float]] = [[] for _ in modules]
    with torch.inference_mode():
        for _ in range(REPEATS):
            for module, times in zip(modules, found, strict=True):
                timer = Timer("module(inputs)", globals={"module": module, "inputs": inputs})
                times.append(timer.blocked_autorange(min_run_time=0.05).median)
    return [median(times) for times in found]
