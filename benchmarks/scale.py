"""What many clients and large models cost: python benchmarks/scale.py [clients] [model].

- clients: 1,000 to 1,000,000 clients of 4 samples, of whom 1,000 take part in a round of FedCanon+.
  All of them have a state, as after a long run. Seconds and bytes of a round, of a measurement, of
  a checkpoint and of going on from it, and the memory of the whole process.
- model: a perceptron of 100 million parameters. The memory of the server and of its workers, and
  what the states of clients take on the disk.

Every row is a process of its own. The tables go to benchmarks/results, or to ``--results``. The
numbers mean something on a quiet machine. ``--smoke`` only shows that everything runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch
from engine import FEDCANON_PLUS
from machine import machine, table
from peers.ours import noise
from rich.console import Console
from rich.table import Table
from torch import nn

from fedcanon import FedAvg, FedCanonPlus, Federation, FlatModule, Local, Problem, load_config
from fedcanon.checkpoint import Checkpoints
from fedcanon.data import DATASETS
from fedcanon.objectives import ModuleClients
from fedcanon.penalties import L1
from fedcanon.runs.build import assemble, build_problem

MIB, GIB = 2**20, 2**30
SAMPLES = 4
CPU = torch.device("cpu")
FOLDER = Path(__file__).parent
Measures = dict[str, float]


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def peak_memory() -> Iterator[dict[int, float]]:
    """The most memory that this process and each of its workers have had, shared pages once."""
    found: dict[int, float] = {}
    ended = threading.Event()

    def look() -> None:
        for process in [psutil.Process(), *psutil.Process().children()]:
            size = process.memory_full_info().pss
            found[process.pid] = max(found.get(process.pid, 0), size)

    def keep_looking() -> None:
        while not ended.wait(0.2):
            look()

    thread = threading.Thread(target=keep_looking)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
        look()


def size_of(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def measure_clients(clients: int, participants: int, rounds: int) -> Measures:
    """One row of the table of clients, in this process."""
    DATASETS["noise"] = noise
    shared = [
        *FEDCANON_PLUS,
        "algorithm.local_steps=5",
        "batch_size=2",
        "data.name=noise",
        "data.partition=iid",
        "model.name=linear",
        "engine.name=serial",
    ]

    def built(clients: int, participants: int) -> Federation:
        sizes = [f"data.samples={SAMPLES * clients}", f"clients.count={clients}"]
        config = load_config(None, [*shared, *sizes, f"clients.participants={participants}"])
        return assemble(config, build_problem(config))

    built(10, 10).step()  # imports modules and compiles kernels
    found: Measures = {"clients": clients, "participants": participants}
    memory = psutil.Process().memory_info
    before = memory().rss
    start = time.perf_counter()
    federation = built(clients, participants)
    found["build_seconds"] = time.perf_counter() - start
    gc.collect()
    found["build_bytes_per_client"] = (memory().rss - before) / clients
    federation.step()
    before = memory().rss
    times = [timed(federation.step) for _ in range(rounds)]
    found["round_ms_per_participant"] = 1000 * statistics.median(times) / participants
    found["bytes_per_participant"] = max(0, memory().rss - before) / (rounds * participants)
    model = federation.model
    found["evaluation_seconds"] = timed(lambda: federation.engine.evaluate(model, gradient=False))
    state = federation.algorithm.client_init(model)
    federation.engine.clients = dict.fromkeys(range(clients), state)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints, path = Checkpoints(Path(folder)), Path(folder)
        found["first_checkpoint_seconds"] = timed(lambda: checkpoints.save(0, federation.state()))
        found["first_checkpoint_bytes"] = sum(size_of(path).values())
        seconds, written = list[float](), list[int]()
        for t in range(1, 2 * rounds + 1):
            federation.step()
            old = size_of(path)
            seconds.append(timed(lambda t=t: checkpoints.save(t, federation.state())))
            written.append(sum(n for name, n in size_of(path).items() if name not in old))
        found["checkpoint_seconds"] = statistics.median(seconds)
        found["checkpoint_bytes"] = statistics.mean(written)
        found["largest_checkpoint_bytes"] = max(written)
        found["resume_seconds"] = timed(lambda: federation.load(checkpoints.load(CPU)))
    found["peak_bytes"] = peak_of_this_process()
    return found


def peak_of_this_process() -> int:
    import resource  # which Windows does not have

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure_model(width: int, method: str, workers: int, participants: int) -> Measures:
    """One row of the table of large models, in this process and its workers."""
    layers = nn.Linear(20, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    flat = FlatModule(nn.Sequential(*layers, nn.Linear(width, 10)))
    clients = 1_000
    inputs, labels = torch.randn(2 * clients, 20), torch.randint(10, (2 * clients,))
    own = ModuleClients(flat, nn.CrossEntropyLoss(), inputs, labels, [2] * clients)
    problem = Problem(own, flat.vector)
    algorithm = FedAvg(0.01, 1) if method == "fedavg" else FedCanonPlus(0.1, 0.01, 1)
    engine = Local(workers=workers or None)
    federation = Federation(
        problem, algorithm, L1(1e-6), participants=participants, batch_size=2, engine=engine
    )
    state = sum(v.nbytes for v in algorithm.client_init(problem.start).values())
    found: Measures = {
        "parameters": len(problem.start),
        "method": method,
        "workers": workers,
        "participants": participants,
        "state_bytes": state,
        "states_on_disk": shutil.disk_usage(tempfile.gettempdir()).free // state if state else 0,
    }
    federation.step()  # begins all processes, which must not be forked beside a thread
    with peak_memory() as peak:
        found["seconds_per_participant"] = timed(federation.step) / participants
        with tempfile.TemporaryDirectory() as folder:
            checkpoints = Checkpoints(Path(folder))
            found["checkpoint_seconds"] = timed(lambda: checkpoints.save(2, federation.state()))
            found["checkpoint_bytes"] = sum(size_of(Path(folder)).values())
    federation.close()
    found["server_bytes"] = peak.pop(os.getpid())
    found["worker_bytes"] = max(peak.values(), default=0)
    found["all_bytes"] = found["server_bytes"] + sum(peak.values())
    return found


MEASURE = {"clients": measure_clients, "model": measure_model}
CLIENTS_HEADER = (
    "clients",
    "build, s",
    "build, bytes per client",
    "round, ms per participant",
    "round, bytes per participant",
    "measurement, s",
    "checkpoint of all, MB",
    "after a round, MB",
    "at most, MB",
    "after a round, s",
    "resume, s",
    "peak, GiB",
)
MODEL_HEADER = (
    "method",
    "workers",
    "participants",
    "s per participant",
    "server, GiB",
    "each worker, GiB",
    "all, GiB",
    "a state, MiB",
    "states that the disk holds",
    "checkpoint, GiB",
    "checkpoint, s",
)


def clients_cells(row: Measures) -> tuple[str, ...]:
    return (
        f"{row['clients']:,}",
        f"{row['build_seconds']:.1f}",
        f"{row['build_bytes_per_client']:,.0f}",
        f"{row['round_ms_per_participant']:.2f}",
        f"{row['bytes_per_participant']:,.0f}",
        f"{row['evaluation_seconds']:.2f}",
        f"{row['first_checkpoint_bytes'] / 1e6:,.1f}",
        f"{row['checkpoint_bytes'] / 1e6:.1f}",
        f"{row['largest_checkpoint_bytes'] / 1e6:.1f}",
        f"{row['checkpoint_seconds']:.2f}",
        f"{row['resume_seconds']:.1f}",
        f"{row['peak_bytes'] / GIB:.2f}",
    )


def model_cells(row: Measures) -> tuple[str, ...]:
    return (
        str(row["method"]),
        str(row["workers"] or "none"),
        str(row["participants"]),
        f"{row['seconds_per_participant']:.1f}",
        f"{row['server_bytes'] / GIB:.1f}",
        f"{row['worker_bytes'] / GIB:.1f}" if row["workers"] else "",
        f"{row['all_bytes'] / GIB:.1f}",
        f"{row['state_bytes'] / MIB:,.0f}" if row["state_bytes"] else "none",
        f"{row['states_on_disk']:,}" if row["state_bytes"] else "",
        f"{row['checkpoint_bytes'] / GIB:.1f}",
        f"{row['checkpoint_seconds']:.0f}",
    )


TABLES = {"clients": (CLIENTS_HEADER, clients_cells), "model": (MODEL_HEADER, model_cells)}


def plan(part: str, *, smoke: bool) -> list[tuple[object, ...]]:
    """The arguments of every row."""
    if part == "clients":
        crowds = (200, 2_000) if smoke else (1_000, 10_000, 100_000, 1_000_000)
        return [(clients, 100 if smoke else 1_000, 2 if smoke else 7) for clients in crowds]
    width = 30 if smoke else 9_985
    ways = (("fedavg", 0, 2), ("fedcanon+", 0, 2), ("fedavg", 2, 4), ("fedcanon+", 2, 4))
    return [(width, *way) for way in ways]


def in_a_process(part: str, arguments: tuple[object, ...]) -> Measures:
    command = [sys.executable, __file__, "--measure", json.dumps([part, *arguments])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{part} {arguments} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help="clients, model, or both")
    parser.add_argument("--results", type=Path, default=FOLDER / "results")
    parser.add_argument("--smoke", action="store_true", help="the least of both")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        torch.set_num_threads(1)  # as the command line does
        part, *arguments = json.loads(options.measure)
        print(json.dumps(MEASURE[part](*arguments)))
        return
    for part in options.parts or MEASURE:
        before = machine()
        header, cells = TABLES[part]
        rows = [in_a_process(part, arguments) for arguments in plan(part, smoke=options.smoke)]
        printed = Table(*header)
        for row in rows:
            printed.add_row(*cells(row))
        Console().print(printed)
        path = options.results / f"scale-{part}"
        found = json.dumps({"machine": before, "rows": rows}, indent=2)
        path.with_suffix(".json").write_text(f"{found}\n")
        path.with_suffix(".md").write_text(table([header, *map(cells, rows)], before))


if __name__ == "__main__":
    main()
