"""How fast a round is, beside other ways to run it: python benchmarks/engine.py.

Every contender is a process of its own, in its own environment, that prepares its data and its
model, warms up, and then runs one round whenever it is its turn. Contenders take turns, and medians
are compared. All of them run FedAvg with SGD: 20 local steps of batch 64 on each client, i.i.d.
clients that all take part, no evaluation.

- mlp: Fashion-MNIST, 784-200-200-10, 10 clients: against the bare loop at its best number of
  threads, pfl-research (also at its best), FedJAX, Flower's simulation, and the matrix products
  alone. The overhead is the part of a round that workers do not spend in local steps.
- cnn: the same with the model 'cnn', against the bare loop.
- a9a: a linear model on 10, 100 and 1,000 clients, against the bare loop.
- growth: FedCanon+ on 10 to 100,000 clients of 20 samples, 100 of which take part.

The datasets are looked for where fedcanon looks for them. Peers are installed by `make
bench-peers`; one that is not installed is left out. The numbers mean something on a quiet machine.
``--smoke`` shows in half a minute that ours, the bare loop and the limit still run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from machine import machine, table
from peers.common import BATCH, CLIENTS, RATE, STEPS
from rich.console import Console
from rich.table import Table

from fedcanon.data import DATASETS

OURS_SETTINGS: list[str] = []
"""Settings of the engine that every run of ours gets, such as engine.workers=2."""

FOLDER = Path(__file__).parent
PEERS = {"pfl": "pfl-research", "fedjax": "FedJAX", "flower": "Flower"}
FEDCANON_PLUS = [
    "algorithm.name=fedcanon+",
    "algorithm.alpha=0.5",
    "algorithm.beta=0.05",
    "penalty.name=mcp",
    "penalty.kappa=1e-4",
]
Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Contender:
    """A module of peers/ with its arguments, run by our Python or by that of a peer."""

    name: str
    module: str
    arguments: Sequence[object] = ()
    python: str = sys.executable


@dataclass(frozen=True)
class Row:
    """The ratio of two times, and the most or the least that it should be."""

    part: str
    what: str
    seconds: float
    of_seconds: float
    target: str = ""

    @property
    def ratio(self) -> float:
        return self.seconds / self.of_seconds

    def cells(self) -> tuple[str, ...]:
        times = f"{self.seconds:.3g}", f"{self.of_seconds:.3g}"
        return self.part, self.what, *times, f"{self.ratio:.3f}", self.target


class Player:
    """A contender's process, ready for its turns."""

    def __init__(self, contender: Contender, scratch: Path) -> None:
        self._name, self._log = contender.name, scratch / f"{contender.name}.log"
        self._process = subprocess.Popen(
            [contender.python, "-m", f"peers.{contender.module}", *map(str, contender.arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("w"),
            text=True,
            cwd=FOLDER,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        self._read("ready")

    def _read(self, beginning: str) -> str:
        """The next line that begins like this; libraries may print others."""
        for line in self._process.stdout:
            if line.startswith(beginning):
                return line
        raise SystemExit(f"{self._name} ended early:\n{self._log.read_text()[-3000:]}")

    def turn(self) -> float:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._read('{"seconds"'))["seconds"]

    def close(self) -> None:
        self._process.stdin.close()  # upon which it ends
        self._process.wait()


class Bench:
    """Runs contenders side by side and keeps what it finds."""

    def __init__(self, rounds: int, scratch: Path, peers: Path, *, smoke: bool) -> None:
        self._rounds, self._scratch, self._peers = rounds, scratch, peers
        self.images = "digits" if smoke else "fashion_mnist"
        self.threads = [1] if smoke else sorted({1, os.cpu_count() or 1})
        self.crowds = (10, 100) if smoke else (10, 1_000, 10_000, 100_000)
        self.seconds: dict[str, Seconds] = {}

    def measure(self, part: str, contenders: Sequence[Contender]) -> dict[str, float]:
        """The median seconds of a round of each contender."""
        with ExitStack() as stack:
            players = {}
            for contender in contenders:
                players[contender.name] = Player(contender, self._scratch)
                stack.callback(players[contender.name].close)
            times: Seconds = {name: [] for name in players}
            for _ in range(self._rounds):
                for name, player in players.items():
                    times[name].append(player.turn())
        self.seconds[part] = times
        return {name: statistics.median(several) for name, several in times.items()}

    def file(self, name: str) -> Path:
        """A dataset's training data, shuffled, in a file that every contender can read."""
        path = self._scratch / f"{name}.npz"
        if not path.exists():
            train = DATASETS[name]().train
            order = torch.from_numpy(np.random.default_rng(0).permutation(len(train)))
            inputs, labels = train.tensors(torch.float32, torch.device("cpu"))
            np.savez(path, inputs=inputs[order].numpy(), labels=labels[order].numpy())
        return path

    def bare(self, dataset: str, model: str, clients: int = CLIENTS) -> list[Contender]:
        path = self.file(dataset)
        return [
            Contender(f"bare loop {threads}", "bare", (path, model, clients, threads))
            for threads in self.threads
        ]

    def installed(self, peer: str, threads: Sequence[int] = ()) -> list[Contender]:
        """The peer, once for each number of threads; nothing if it is not installed."""
        name, python = PEERS[peer], self._peers / peer / "bin" / "python"
        if not python.exists():
            print(f"{name} is not installed and left out: make bench-peers installs it.")
            return []
        path, python = self.file(self.images), str(python)
        if not threads:
            return [Contender(name, peer, (path,), python)]
        return [Contender(f"{name} {count}", peer, (path, count), python) for count in threads]


def ours(name: str, *settings: str) -> Contender:
    return Contender(name, "ours", (*settings, *OURS_SETTINGS))


def fedavg(dataset: str, model: str, clients: int = CLIENTS) -> list[str]:
    return [
        f"data.name={dataset}",
        "data.partition=iid",
        f"clients.count={clients}",
        f"model.name={model}",
        f"batch_size={BATCH}",
        "algorithm.name=fedavg",
        f"algorithm.beta={RATE}",
        f"algorithm.local_steps={STEPS}",
    ]


def best(median: dict[str, float], name: str) -> float:
    """The fastest of the contenders called so, which differ in their number of threads."""
    return min(seconds for contender, seconds in median.items() if contender.startswith(name))


def mlp(bench: Bench) -> list[Row]:
    setting = fedavg(bench.images, "mlp")
    us = ours("ours", *setting)
    median = bench.measure(
        "mlp",
        [
            us,
            ours("ours, beyond steps", "beyond-steps", *setting),
            ours("ours, FedCanon+ and MCP", *setting, *FEDCANON_PLUS),
            *bench.bare(bench.images, "mlp"),
            *bench.installed("pfl", bench.threads),
            *bench.installed("fedjax"),
            Contender("limit", "limit"),
        ],
    )
    own = median["ours"]
    targets = {"bare loop": "≤ 0.50", "pfl-research": "≤ 0.55", "FedJAX": "≤ 0.9"}
    rows = [
        Row("mlp", f"ours / {name}", own, best(median, name), target)
        for name, target in targets.items()
        if any(contender.startswith(name) for contender in median)
    ]
    rows += [
        Row("mlp", "arithmetic limit / ours", median["limit"], own, "≥ 0.70"),
        Row("mlp", "overhead / ours", median["ours, beyond steps"], own, "≤ 0.05"),
        Row("mlp", "FedCanon+ and MCP / ours", median["ours, FedCanon+ and MCP"], own, "≤ 1.05"),
    ]
    if flower := bench.installed("flower"):  # apart: its daemons take time from others' turns
        median = bench.measure("mlp, Flower", [us, *flower])
        rows.append(Row("mlp", "ours / Flower", median["ours"], median["Flower"]))
    return rows


def against_bare(
    bench: Bench, part: str, dataset: str, model: str, clients: int, target: str
) -> Row:
    own = ours("ours", *fedavg(dataset, model, clients))
    median = bench.measure(part, [own, *bench.bare(dataset, model, clients)])
    return Row(part, "ours / bare loop", median["ours"], best(median, "bare loop"), target)


def cnn(bench: Bench) -> list[Row]:
    return [against_bare(bench, "cnn", bench.images, "cnn", CLIENTS, "≤ 0.75")]


def a9a(bench: Bench) -> list[Row]:
    return [
        against_bare(bench, f"a9a, {clients:,} clients", "a9a", "linear", clients, target)
        for clients, target in ((10, ""), (100, "≤ 0.06"), (1_000, "≤ 0.06"))
    ]


def growth(bench: Bench) -> list[Row]:
    taking_part = {clients: min(clients, 100) for clients in bench.crowds}
    contenders = [
        ours(
            f"{clients:,} clients",
            *fedavg("noise", "linear", clients),
            *FEDCANON_PLUS,
            f"data.samples={20 * clients}",
            f"clients.participants={participants}",
            "batch_size=10",
        )
        for clients, participants in taking_part.items()
    ]
    times = bench.measure("growth", contenders).items()
    each = {
        name: seconds / participants
        for (name, seconds), participants in zip(times, taking_part.values(), strict=True)
    }
    first = each.pop("10 clients")
    return [
        Row("growth, per participant", f"{name} / 10 clients", seconds, first)
        for name, seconds in each.items()
    ]


PARTS = {"mlp": mlp, "cnn": cnn, "a9a": a9a, "growth": growth}
HEADER = ("part", "ratio of", "seconds", "of seconds", "ratio", "target")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    parser.add_argument("--rounds", type=int, default=9, help="turns of every contender")
    parser.add_argument("--json", type=Path, help="a file for all that was measured")
    parser.add_argument("--markdown", type=Path, help="a file for the table")
    parser.add_argument("--peers", type=Path, default=FOLDER.parent / ".bench")
    parser.add_argument("--smoke", action="store_true", help="the least of mlp and growth")
    options = parser.parse_args()
    if options.smoke:
        options.only, options.rounds, options.peers = "mlp,growth", 1, Path("none")
        os.environ["FEDCANON_BENCH_TURN"] = "0"
    before = machine()
    rows = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        peers = options.peers.absolute()
        bench = Bench(options.rounds, Path(scratch), peers, smoke=options.smoke)
        for part in options.only.split(","):
            rows += PARTS[part](bench)
    printed = Table(*HEADER)
    for row in rows:
        printed.add_row(*row.cells())
    Console().print(printed)
    if options.json:
        ratios = [{**asdict(row), "ratio": row.ratio} for row in rows]
        found = {"machine": before, "ratios": ratios, "seconds": bench.seconds}
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    if options.markdown:
        options.markdown.write_text(table([HEADER, *(row.cells() for row in rows)], before))


if __name__ == "__main__":
    main()
