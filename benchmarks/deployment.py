"""What a deployment costs: bytes on the wire and seconds per round, in real processes on loopback.

    python benchmarks/deployment.py [--smoke] [--parameters 1e6] [--clients 3]
        [--state server|client]

Every byte between SuperNodes and SuperLink passes a counter, TLS, polling and all. It is compared
with the floats that the run counts. Seconds are those of a round beyond the slowest client's own
work; on one machine the processes of all clients share its cores. ``--smoke`` is the least that
shows that it works.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.deployment.processes import BIN, Deployment, free_ports

FEATURES, CLASSES = 64, 10


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parameters", type=float, default=1e6)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--state", choices=["server", "client"], default="server")
    parser.add_argument("--local-steps", type=int, default=10)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.parameters, options.rounds, options.clients = 1e3, 2, 2
    clients = options.clients
    hidden = round((options.parameters - CLASSES) / (FEATURES + 1 + CLASSES))
    port = free_ports(clients + 3)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "app"
        settings = {
            "rounds": options.rounds,
            "algorithm.local_steps": options.local_steps,
            "penalty.name": "zero",
            "evaluate.every": options.rounds,
            "evaluate.gradient": "false",
            "deployment.state": options.state,
            "deployment.deadline": 3000,
        }
        subprocess.run(
            [
                *(BIN / "fedcanon", "deploy", "init", folder),
                *("--clients", str(clients), "--port", str(port)),
                *(f"--set={key}={value}" for key, value in settings.items()),
            ],
            check=True,
        )
        (folder / "app" / "model.py").write_text(MODEL)
        configuration = folder / "app" / "run.toml"
        written = configuration.read_text()
        named = f'name = "app.model:wide"\nhidden = {hidden}'
        configuration.write_text(written.replace('name = "mlp"', named))
        with Deployment(folder) as there:
            counter = Counter(port + clients + 2, port)
            there.start_server()
            for client in range(clients):
                there.change_site(client, server=f"127.0.0.1:{port + clients + 2}")
                there.start_site(client)
            there.start_run()
            measure(there, folder, counter, options.rounds)


def measure(there: Deployment, folder: Path, counter: Counter, rounds: int) -> None:
    status = folder / "run" / "deployment.json"

    def told() -> dict:
        return json.loads(status.read_text()) if status.exists() else {"round": 0}

    print(f"{'round':>5} {'down':>22} {'up':>22} {'seconds':>8} {'own':>6} {'beyond':>7}")
    print(f"{'':>5} {'bytes':>13} {'/counted':>8} {'bytes':>13} {'/counted':>8}")
    before, seen = None, 0
    started = (0, 0)
    while seen < rounds:
        there.until(lambda seen=seen: told()["round"] > seen, 3000, "the next round")
        now, wire = told(), (counter.down, counter.up)
        if before is not None and now["round"] == seen + 1:
            row = _row(before, now, started, wire)
            print(f"{now['round']:>5} {row}", flush=True)
        before, started, seen = now, wire, now["round"]
    time.sleep(1)


def _row(before: dict, now: dict, started: tuple[int, int], wire: tuple[int, int]) -> str:
    cells = []
    for way, first, last in zip(("down", "up"), started, wire, strict=True):
        counted = now["traffic"][f"bytes_{way}"] - before["traffic"][f"bytes_{way}"]
        cells.append(f"{last - first:>13,} {(last - first) / counted:>8.3f}")
    seconds, own = (
        now["since_start"][key] - before["since_start"][key]
        for key in ("seconds", "client_seconds")
    )
    return f"{' '.join(cells)} {seconds:>8.1f} {own:>6.1f} {seconds - own:>7.1f}"


if __name__ == "__main__":
    main()
