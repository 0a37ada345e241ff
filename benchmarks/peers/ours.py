"""A round of fedcanon: python -m peers.ours KEY=VALUE ..."""

from __future__ import annotations

import sys

import torch
from peers.common import turns

from fedcanon import build, load_config
from fedcanon.data import DATASETS, Dataset, Split


def noise(samples: int) -> Dataset:
    """Random samples of 20 features, for more clients than real data have."""
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples, 20, generator=draws)
    split = Split(inputs, torch.randint(10, (samples,), generator=draws))
    return Dataset("noise", split, Split(inputs[:100], split.targets[:100]), classes=10)


def main(settings: list[str]) -> None:
    torch.set_num_threads(1)  # as the command line does
    DATASETS["noise"] = noise
    federation = build(load_config(None, settings))
    for _ in turns():
        federation.step()


if __name__ == "__main__":  # worker processes may import this module
    main(sys.argv[1:])
