"""Flower's simulation runtime as the network of a run."""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Container
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedcanon.compression import Compressor
from fedcanon.deployment.messages import Message, Presence, Reply
from fedcanon.engines.flower.network import GridNetwork
from fedcanon.errors import FedcanonError

for _name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
    os.environ.setdefault(_name, "0")  # nothing is told about a run unless its user says so


class Simulation:
    """Virtual nodes, each with a ClientApp, on so many processors of this machine.

    ``make_app`` gets a folder in which clients may keep their states. Flower wants to call a
    ServerApp; ours hands over its grid and waits, so that the run goes on where it was started.
    """

    def __init__(
        self,
        make_app: Callable[[Path], ClientApp],
        nodes: int,
        cpus: int,
        compressor: Compressor,
        sizes: Container[int],
        lifetime: float,
    ) -> None:
        self._make_app, self._nodes, self._cpus = make_app, nodes, cpus
        self._compressor, self._sizes, self._lifetime = compressor, sizes, lifetime
        self._network: GridNetwork | None = None
        self._folder: Path | None = None

    def keep_in(self, folder: Path) -> None:
        self._folder = folder / "clients"

    def present(self) -> dict[int, Presence]:
        return self._started().present()

    def send(self, messages: list[Message]) -> None:
        self._started().send(messages)

    def receive(self, seconds: float) -> list[Reply]:
        return self._started().receive(seconds)

    def close(self) -> None:
        if self._network is not None:
            self._network = None
            self._over.set()
            self._thread.join()
            self._scratch.cleanup()

    def _started(self) -> GridNetwork:
        if self._network is None:
            grids: Queue[Grid | BaseException] = Queue()
            self._over = threading.Event()
            self._scratch = TemporaryDirectory(prefix="fedcanon-")
            self._thread = threading.Thread(target=self._run, args=(grids,), daemon=True)
            self._thread.start()
            grid = grids.get()
            if isinstance(grid, BaseException):
                raise FedcanonError(f"Flower's simulation ended: {grid}") from grid
            self._network = GridNetwork(
                grid, self._compressor, self._sizes, self._lifetime, poll=0.01
            )
            self._wait_for_nodes(self._network)
        if not self._thread.is_alive():
            raise FedcanonError("Flower's simulation has ended by itself: its log may say why.")
        return self._network

    def _wait_for_nodes(self, network: GridNetwork) -> None:
        while len(network.present()) < self._nodes and self._thread.is_alive():
            if network.refusals:
                raise FedcanonError(f"a client cannot be started: {network.refusals[-1]}")
            time.sleep(0.05)

    def _run(self, grids: Queue[Grid | BaseException]) -> None:
        app, over = ServerApp(), self._over

        @app.main()
        def main(grid: Grid, context: Context) -> None:
            grids.put(grid)
            over.wait()

        logging.getLogger("flwr").setLevel(logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Ray announces what it will change
                run_simulation(
                    app,
                    self._make_app(self._folder or Path(self._scratch.name)),
                    self._nodes,
                    backend_config={
                        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                        "init_args": {
                            "num_cpus": self._cpus,
                            "include_dashboard": False,
                            "log_to_driver": False,
                            "logging_level": logging.ERROR,
                        },
                    },
                )
        except BaseException as error:  # whatever ends it, the run must not wait for ever
            grids.put(error)
