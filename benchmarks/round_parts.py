"""Where the time of a round goes: python benchmarks/round_parts.py [--markdown FILE].

A round of the MLP, as in engine.py, in one process: processor time of each part, median over
clients and rounds, and its share of the round, for all clients where it is one client's. The parts
of a client are beside its local steps what a round needs at least: draws, vectors that a method
makes, one look at an upload for numbers that are not finite, its sum with others. "Matrix products"
are those of the local steps alone, which no engine can avoid: they are the floor of a round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from engine import FEDCANON_PLUS, fedavg
from machine import machine, table
from peers.common import CLIENTS, STEPS
from peers.limit import multiply

from fedcanon import build, load_config
from fedcanon.engines import tasks
from fedcanon.engines.aggregation import Accumulator
from fedcanon.engines.work import ClientWork

HEADER = ("part", "FedAvg", "FedCanon+ with MCP")
SERVER, ROUND = "the server's step", "a round in one process"
Seconds = dict[str, list[float]]


def timed(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        start = time.process_time()
        result = function(*arguments, **options)
        seconds.append(time.process_time() - start)
        return result

    return call


def measure(settings: list[str], rounds: int) -> dict[str, float]:
    """Milliseconds of each part."""
    federation = build(load_config(None, [*settings, "engine.name=serial"]))
    places = {
        "steps": (ClientWork, "descend"),
        "local": (type(federation.algorithm), "local"),
        "finite": (tasks, "require_finite"),
        "client": (tasks, "_train_one"),
        "sum": (Accumulator, "push"),
        "server": (type(federation.algorithm), "aggregate"),
        "round": (type(federation), "step"),
    }
    for _ in range(2):
        federation.step()
    seconds: Seconds = defaultdict(list)
    originals = {name: getattr(*place) for name, place in places.items()}
    for name, (owner, attribute) in places.items():
        setattr(owner, attribute, timed(originals[name], seconds[name]))
    for _ in range(rounds):
        federation.step()
    for name, (owner, attribute) in places.items():
        setattr(owner, attribute, originals[name])
    products: list[float] = []
    for _ in range(rounds):
        timed(multiply, products)(STEPS)
    part = {name: 1000 * statistics.median(several) for name, several in seconds.items()}
    return {
        "a client: its local steps": part["steps"],
        "of these, matrix products": 1000 * statistics.median(products),
        "a client: other vectors of the method": part["local"] - part["steps"],
        "a client: is its upload finite?": part["finite"],
        "a client: draws, state, messages": part["client"] - part["local"] - part["finite"],
        "a client: its sum with others": part["sum"],
        SERVER: part["server"],
        ROUND: part["round"],
    }


def cell(column: dict[str, float], part: str) -> str:
    """The milliseconds of a part, and the share of the round that it takes."""
    times = 1 if part in (SERVER, ROUND) else CLIENTS
    return f"{column[part]:.2f} ms, {times * column[part] / column[ROUND]:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--markdown", type=Path, help="a file for the table")
    parser.add_argument("--smoke", action="store_true", help="two rounds on small images")
    options = parser.parse_args()
    torch.set_num_threads(1)
    setting = fedavg("digits" if options.smoke else "fashion_mnist", "mlp")
    rounds = 2 if options.smoke else options.rounds
    before = machine()
    columns = [measure(each, rounds) for each in (setting, setting + FEDCANON_PLUS)]
    lines = [(part, *(cell(column, part) for column in columns)) for part in columns[0]]
    text = table([HEADER, *lines], before)
    print(text, end="")
    if options.markdown:
        options.markdown.write_text(text)


if __name__ == "__main__":
    main()
