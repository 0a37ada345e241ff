"""Simulations on Flower: the messages are those of a deployment, the clients are virtual."""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedcanon.compression import Compressor
from fedcanon.deployment.configured import deployment_on, vector_sizes
from fedcanon.deployment.flower.client import answering_app
from fedcanon.deployment.flower.grid import GridNetwork
from fedcanon.deployment.ledger import Ledger
from fedcanon.deployment.participant import Participant
from fedcanon.deployment.protocol import Message, Presence, Reply
from fedcanon.deployment.server import DeployedEngine
from fedcanon.engines import Rules
from fedcanon.engines.processes import cores
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.runs.build import build_problem, client_rules
from fedcanon.runs.config import Config

for _name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
    os.environ.setdefault(_name, "0")  # no telemetry unless the user asks for it


@dataclass(frozen=True)
class FlowerSimulation:
    """Makes engines whose clients are virtual nodes of Flower's simulation on this machine.

    Every node loads the data that the configuration names and answers like a real client.
    """

    config: Config

    def __call__(self, problem: Problem, rules: Rules) -> DeployedEngine:
        """Make the engine for a problem."""
        if self.config.deployment.secure:
            raise FedcanonError(
                "secure sums are for real clients: leave out deployment.secure in a simulation."
            )
        written = self.config.model_dump_json()
        network = SimulatedNetwork(
            lambda folder: answering_app(partial(_participant, written, folder)),
            nodes=len(problem.clients),
            cpus=self.config.engine.workers or cores(),
            compressor=rules.compressor,
            sizes=vector_sizes(problem, rules.algorithm),
            lifetime=2 * self.config.deployment.deadline,
        )
        return deployment_on(network, self.config)(problem, rules)


def _participant(written: str, folder: Path, context: Context) -> Participant:
    client = int(context.node_config["partition-id"])
    problem, rules = _loaded(written)
    open_ledger = partial(Ledger.on_disk, folder, client)
    return Participant(client, rules, problem.clients[client], open_ledger=open_ledger)


@lru_cache(maxsize=1)
def _loaded(written: str) -> tuple[Problem, Rules]:
    """Return data and rules; a process of the simulation loads them once."""
    config = Config.model_validate_json(written)
    problem = build_problem(config)
    return problem, client_rules(config, problem)


class SimulatedNetwork:
    """A network whose clients are virtual nodes of a Flower simulation.

    Flower calls a ServerApp in a thread. The one here only passes its grid to this object and
    waits, so that the run itself stays in the thread in which it was started.

    Args:
        make_app: Makes the ClientApp from a folder in which clients may store their states.
        nodes: The number of virtual nodes, one for each client.
        cpus: How many processors of this machine to use.
        compressor: What decodes the vectors of uploads.
        sizes: The lengths that vectors in replies may have.
        lifetime: Seconds after which Flower drops a message that was not answered.
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

    def use_folder(self, folder: Path) -> None:
        self._folder = folder / "clients"

    def present(self) -> dict[int, Presence]:
        return self._started().present()

    def send(self, messages: Iterable[Message]) -> None:
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
                warnings.simplefilter("ignore")  # Ray warns of future changes
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
        except BaseException as error:  # otherwise the run would wait for ever
            grids.put(error)
