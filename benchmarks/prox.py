"""How close the prox is to memory speed: python benchmarks/prox.py [--smoke].

Times the in-place prox of ℓ1, MCP and SCAD for the parameter counts of ResNet-18 and ResNet-101,
side by side with a copy of the vector and with boolean-mask tensor code. All contestants take turns
in one run, and medians are compared. The vector is restored before every turn, outside the clock.
Everything runs on one thread, as in a worker process. ``--smoke`` only shows that it works.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from fedcanon.paper.masks import MaskedL1, MaskedMCP, MaskedSCAD
from fedcanon.penalties import L1, MCP, SCAD, Penalty

SMALL = 10_000
SIZES = (11_200_000, 42_500_000)
STEP = 0.5
TURNS = 15
MASKED_TURNS = 3
PENALTIES: dict[str, Penalty] = {"ℓ1": L1(1.0), "MCP": MCP(1.0, 3.0), "SCAD": SCAD(1.0, 3.7)}
MASKED: dict[str, Penalty] = {
    "ℓ1": MaskedL1(1.0),
    "MCP": MaskedMCP(1.0, 3.0),
    "SCAD": MaskedSCAD(1.0, 3.7),
}


def seconds(work: Callable[[Tensor], object], x: Tensor, source: Tensor) -> float:
    x.copy_(source)
    start = time.perf_counter()
    work(x)
    return time.perf_counter() - start


def measure(size: int) -> dict[str, float]:
    source = torch.randn(size, generator=torch.Generator().manual_seed(0))
    x, out = source.clone(), source.clone()
    contestants: dict[str, Callable[[Tensor], object]] = {"copy": out.copy_}
    for name, penalty in PENALTIES.items():
        contestants[name] = lambda x, penalty=penalty: penalty.prox_(x, STEP)
        MASKED[name].prox_(x.copy_(source), STEP)
        torch.testing.assert_close(x, penalty.prox(source, STEP), rtol=1e-5, atol=1e-6)
    times: dict[str, list[float]] = {}
    for turn in range(TURNS):
        for name, work in contestants.items():
            times.setdefault(name, []).append(seconds(work, x, source))
        if turn < MASKED_TURNS:
            for name, masked in MASKED.items():
                spent = seconds(lambda x, masked=masked: masked.prox_(x, STEP), x, source)
                times.setdefault(f"masked {name}", []).append(spent)
    return {name: statistics.median(several) for name, several in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table("entries", "penalty", "copy", "prox", "prox / copy", "masks", "masks / prox")
    for size in (SMALL,) if options.smoke else SIZES:
        time_of = measure(size)
        for name in PENALTIES:
            prox, masks = time_of[name], time_of[f"masked {name}"]
            table.add_row(
                f"{size / 1e6:.1f} M",
                name,
                f"{1e3 * time_of['copy']:.1f} ms",
                f"{1e3 * prox:.1f} ms",
                f"{prox / time_of['copy']:.2f}",
                f"{1e3 * masks:.0f} ms",
                f"{masks / prox:.0f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
