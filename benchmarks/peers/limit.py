"""The arithmetic alone: python -m peers.limit.

The matrix products of the MLP's forward and backward passes, in their shapes and memory layouts,
as often as in a round, in one single-threaded process for each core. The first layer's inputs need
no gradient.
"""

from __future__ import annotations

import os
from itertools import pairwise
from multiprocessing import Pool

import torch
from peers.common import BATCH, CLIENTS, STEPS, turns

WIDTHS = (784, 200, 200, 10)
LAYERS = [
    (torch.randn(BATCH, fan_in), torch.randn(fan_out, fan_in), torch.randn(BATCH, fan_out))
    for fan_in, fan_out in pairwise(WIDTHS)
]
RESULTS = [tuple(map(torch.empty_like, layer)) for layer in LAYERS]


def multiply(steps: int) -> None:
    for _ in range(steps):
        for index, (inputs, weight, gradient) in enumerate(LAYERS):
            for_inputs, for_weight, outputs = RESULTS[index]
            torch.mm(inputs, weight.T, out=outputs)
            torch.mm(gradient.T, inputs, out=for_weight)
            if index > 0:
                torch.mm(gradient, weight, out=for_inputs)


if __name__ == "__main__":
    cores = os.cpu_count() or 1
    with Pool(cores, torch.set_num_threads, (1,)) as pool:
        for _ in turns():
            pool.map(multiply, [STEPS * CLIENTS // cores] * cores, chunksize=1)
