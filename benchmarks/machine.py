"""The machine on which a benchmark runs and how fast it is, to be written beside the results."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable

import torch

SIDE, VECTOR, TRIALS = 512, 16_000_000, 15
"""Of the matrices that are multiplied, of the vector that is copied (64 MB), and how often."""


def machine() -> dict[str, object]:
    """Cores, load, versions, and two speeds of one thread, as medians over some trials."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    left, right, product = torch.randn(3, SIDE, SIDE)
    source, copy = torch.ones(VECTOR), torch.empty(VECTOR)
    try:
        multiplying = _seconds(lambda: torch.mm(left, right, out=product))
        copying = _seconds(lambda: copy.copy_(source))
    finally:
        torch.set_num_threads(threads)
    return {
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "product_gflops": 2 * SIDE**3 / multiplying / 1e9,
        "copy_gb_per_s": source.nbytes / copying / 1e9,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _seconds(operation: Callable[[], object]) -> float:
    found = []
    for _ in range(TRIALS):
        start = time.perf_counter()
        operation()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def table(lines: list[tuple[str, ...]], found: dict[str, object]) -> str:
    """A header and rows as a table in Markdown, and a sentence about the machine under it."""
    header, *rows = lines
    text = "".join(f"| {' | '.join(line)} |\n" for line in (header, ["---"] * len(header), *rows))
    return (
        f"{text}\nThe machine, when this was measured: {found['cores']} cores, load "
        f"{found['load'][0]:.1f}; one thread makes {found['product_gflops']:.0f} GFLOP/s in a "
        f"float32 matrix product and copies {found['copy_gb_per_s']:.1f} GB/s.\n"
    )
