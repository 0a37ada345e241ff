"""Runs on Flower's simulation runtime: the messages of a deployment, the data of a simulation."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path

from flwr.app import Context

from fedcanon.algorithms import Algorithm
from fedcanon.compression import Compressor
from fedcanon.deployment import DeployedEngine, Ledger, Participant
from fedcanon.engines.flower import client_app
from fedcanon.engines.flower.simulation import Simulation
from fedcanon.engines.processes import cores
from fedcanon.engines.round import Rules
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty
from fedcanon.runs.build import build_problem, make_rules
from fedcanon.runs.config import Config
from fedcanon.runs.engine import deployed_engine, vector_sizes
from fedcanon.runs.federation import MakeEngine


def simulated_engine(config: Config) -> MakeEngine:
    """An engine whose clients are virtual nodes of Flower, a node each."""

    def make(
        problem: Problem, algorithm: Algorithm, penalty: Penalty, compressor: Compressor
    ) -> DeployedEngine:
        written = config.model_dump_json()
        network = Simulation(
            lambda folder: client_app(partial(_participant, written, folder)),
            nodes=len(problem.clients),
            cpus=config.engine.workers or cores(),
            compressor=compressor,
            sizes=vector_sizes(problem),
            lifetime=2 * config.deployment.deadline,
        )
        return deployed_engine(config, network, problem, algorithm, penalty, compressor)

    return make


def _participant(written: str, folder: Path, context: Context) -> Participant:
    client = int(context.node_config["partition-id"])
    problem, rules = _loaded(written)
    objective = problem.clients[client]
    return Participant(client, rules, objective, ledger_of=partial(Ledger.on_disk, folder, client))


@lru_cache(maxsize=1)
def _loaded(written: str) -> tuple[Problem, Rules]:
    """Data and rules, which a process of the simulation loads once."""
    config = Config.model_validate_json(written)
    problem = build_problem(config)
    return problem, make_rules(config, problem.layout)
