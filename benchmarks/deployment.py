"""What a round of a deployment costs: seconds by phase, processor time, bytes on the wire.

    python benchmarks/deployment.py [--smoke] [--parameters 1e6] [--clients 3] [--rounds 6]
        [--repeats 2] [--state server|client] [--markdown FILE]

Three ways take turns, in real processes on loopback with TLS and keys: `flower-supernode`, which
starts a process for every message; `fedcanon site start`; and a minimal app of NumPy with
`flower-supernode`. Phases are those of the client that is last: *transfer* of the message and the
answer between all processes, *polling* (nobody works, somebody waits to look again), *start* of the
process that answers, its *imports*, its *work* with the loading of its data, and what the server
does before it sends the next messages (*commit*). *beyond* is all but the training itself, which
clients measure. Processor time is that of all processes of a site, waiting included, divided by the
messages.

Every byte between SuperNodes and SuperLink passes a counter, and is compared with what the run
counts. ``--smoke`` is the least that shows that it works.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from comparison import tables
from deployments import numpy_app
from deployments.phases import PHASES, events, phases, sendings
from machine import machine, table
from tests.deployment.processes import Deployment, free_ports, make_deployment

from fedcanon.deployment.operate.sites import supernode
from fedcanon.deployment.site import read_site

FEATURES, CLASSES = 64, 10
TRACER = Path(__file__).parent / "deployments" / "tracer"
PATIENCE = 3000
COLUMNS = (*PHASES, "a round", "beyond", "processor")
OLD, NEW, NUMPY = WAYS = ("flower-supernode", "fedcanon site start", "NumPy app")


MODEL = """
from torch import nn


def wide(shape, classes, hidden):
    return nn.Sequential(nn.Linear(shape[0], hidden), nn.ReLU(), nn.Linear(hidden, classes))
"""


class Counter:
    """Forwards connections from one port to another and counts the bytes each way."""

    def __init__(self, port: int, to: int) -> None:
        self.down = self.up = 0
        self._port, self._to = port, to
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except ConnectionError:  # the SuperLink has ended
            writer.close()
            return

        async def forward(
            source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: str
        ) -> None:
            try:
                while data := await source.read(1 << 18):
                    setattr(self, way, getattr(self, way) + len(data))
                    sink.write(data)
                    await sink.drain()
            except ConnectionError:
                pass
            finally:
                sink.close()

        await asyncio.gather(
            forward(reader, there_writer, "up"), forward(there_reader, writer, "down")
        )


@dataclass
class Cost:
    """What the rounds of one way have cost."""

    phases: list[dict[str, float]] = field(default_factory=list)
    beyond: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    wire: list[tuple[tuple[float, float], ...]] = field(default_factory=list)

    @property
    def row(self) -> list[float]:
        seconds = [statistics.median(p[name] for p in self.phases) for name in PHASES]
        total = statistics.median(sum(p.values()) for p in self.phases)
        beyond, processor = map(statistics.median, (self.beyond, self.processor))
        return [*seconds, total, beyond, processor]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parameters", type=float, default=1e6)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--state", choices=["server", "client"], default="server")
    parser.add_argument("--local-steps", type=int, default=10)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--markdown", type=Path, help="a file for the tables")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.parameters, options.rounds, options.clients, options.repeats = 1e3, 1, 1, 1
    before, costs = machine(), {way: Cost() for way in WAYS}
    for _ in range(options.repeats):
        for way, cost in costs.items():
            with tempfile.TemporaryDirectory() as scratch:
                measure(way, cost, Path(scratch), options)
            load = os.getloadavg()[0]
            print(f"{way}: {cost.row[-2]:.1f} s beyond the work (load {load:.1f})", flush=True)
    show(costs)
    if options.markdown:
        options.markdown.write_text(as_markdown(costs, before))


def measure(way: str, cost: Cost, scratch: Path, options: argparse.Namespace) -> None:
    """Run some rounds in one way, and add what they have cost; the first one is not counted."""
    clients, rounds = options.clients, options.rounds
    port = free_ports(clients + 3)
    # nginx has the port, the SuperLink the next one, and the sites those after it.
    superlink, outside = port + 1, port + clients + 2
    ports = [port + 2 + client for client in range(clients)]
    folder, trace = scratch / "app", scratch / "trace"
    write_app(folder, port, options)
    if way == NUMPY:
        numbers = {"parameters": int(options.parameters), "clients": clients, "rounds": rounds}
        (folder / "app" / "server.py").write_text(numpy_app.SERVER.format(**numbers))
        (folder / "app" / "client.py").write_text(numpy_app.CLIENT)
    for settings in folder.glob("sites/*/site.toml"):
        settings.write_text(settings.read_text().replace(f":{port}", f":{outside}"))
    status = folder / "run" / "deployment.json"

    def told() -> dict:
        return json.loads(status.read_text()) if status.exists() else {"round": 0}

    def done() -> int:
        """How many rounds are done."""
        sent = len(sendings(events(trace), superlink))
        return sent - 1 if way == NUMPY else told()["round"]

    with Deployment(folder) as there:
        path = os.pathsep.join([str(TRACER), there.environment.get("PYTHONPATH", "")])
        there.environment |= {"PYTHONPATH": path, "FEDCANON_TRACE": str(trace)}
        there.environment["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = "0.1"  # as at our sites
        counter = Counter(outside, port)
        there.start_server()
        for client in range(clients):
            if way == NEW:
                there.start_site(client)
            else:
                there.start(f"client-{client}", supernode_alone(folder / "sites" / str(client)))
        run = there.start_run()

        def after(count: int) -> tuple[dict, float, int, int]:
            there.until(lambda: done() >= count, PATIENCE, f"round {count}")
            return told(), processor_time(there, clients), counter.down, counter.up

        first, last = after(1), after(1 + rounds)
        there.until(lambda: run.poll() is not None, PATIENCE, "the run ends")
    found = events(trace)
    moments = sendings(found, superlink)[-1 - rounds :]
    seconds = [phases(found, superlink, ports, begin, end) for begin, end in pairwise(moments)]
    cost.phases += seconds
    cost.processor.append((last[1] - first[1]) / rounds / clients)
    own = 0.0
    if way != NUMPY:
        own, down, up = (
            (last[0][table][key] - first[0][table][key]) / rounds
            for table, key in (
                ("since_start", "client_seconds"),
                ("traffic", "bytes_down"),
                ("traffic", "bytes_up"),
            )
        )
        wire = ((last[k] - first[k]) / rounds for k in (2, 3))
        cost.wire.append(tuple(zip(wire, (down, up), strict=True)))
    cost.beyond += [sum(parts.values()) - own for parts in seconds]


def write_app(folder: Path, port: int, options: argparse.Namespace) -> None:
    """Write the app of a deployment, for a network of about so many parameters."""
    hidden = round((options.parameters - CLASSES) / (FEATURES + 1 + CLASSES))
    settings = {
        "rounds": options.rounds + 1,
        "algorithm.local_steps": options.local_steps,
        "penalty.name": "zero",
        "evaluate.every": options.rounds + 1,
        "evaluate.gradient": "false",
        "deployment.state": options.state,
        "deployment.deadline": PATIENCE,
    }
    make_deployment(
        folder,
        *("--clients", str(options.clients), "--port", str(port)),
        *(f"--set={key}={value}" for key, value in settings.items()),
    )
    (folder / "app" / "model.py").write_text(MODEL)
    configuration = folder / "app" / "run.toml"
    named = f'name = "app.model:wide"\nhidden = {hidden}'
    configuration.write_text(configuration.read_text().replace('name = "mlp"', named))


def supernode_alone(folder: Path) -> list[str]:
    """The command of a site's SuperNode alone, which starts a process for every message."""
    site = read_site(folder)
    node = {"client": site.client, "state": str(site.state)}
    return supernode(site.server, site.root_certificates, site.port, node, site.key)


def processor_time(there: Deployment, clients: int) -> float:
    """The seconds that the processes of all sites have computed."""
    total = 0.0
    for client in range(clients):
        top = psutil.Process(there.processes[f"client-{client}"].pid)
        for process in [top, *top.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])  # with those of children that have ended
    return total


def as_markdown(costs: dict[str, Cost], before: dict[str, object]) -> str:
    """What ``show`` prints as two tables, and a sentence about the machine."""
    wire = [
        (way, *(cell for pair in costs[way].wire[-1] for cell in _bytes(*pair)))
        for way in (OLD, NEW)
    ]
    seconds = zip(*(cost.row for cost in costs.values()), strict=True)
    rows = [
        (name, *(f"{value:.2f}" for value in several))
        for name, several in zip(COLUMNS, seconds, strict=True)
    ]
    header = ("bytes of a round", "down", "/ counted", "up", "/ counted")
    return f"{tables.table(header, wire)}\n{table([('seconds', *costs), *rows], before)}"


def _bytes(sent: float, counted: float) -> tuple[str, str]:
    return f"{sent / 1e6:.1f} MB", f"{sent / counted:.3f}"


def show(costs: dict[str, Cost]) -> None:
    print(f"\nseconds{'':<14}" + "".join(f"{name:>10}" for name in COLUMNS))
    for way, cost in costs.items():
        print(f"{way:<21}" + "".join(f"{value:>10.2f}" for value in cost.row))
    for other in (OLD, NUMPY):
        of, to = costs[NEW].row, costs[other].row
        print(
            f"{NEW} / {other}: {of[-2] / to[-2]:.2f} of the seconds beyond the work, "
            f"{of[-1] / to[-1]:.2f} of the processor time"
        )
    for way in (OLD, NEW):
        (down, down_counted), (up, up_counted) = costs[way].wire[-1]
        print(
            f"{way}: {down:,.0f} bytes down a round, {down / down_counted:.3f} of what is counted; "
            f"{up:,.0f} up, {up / up_counted:.3f}"
        )


if __name__ == "__main__":
    main()
