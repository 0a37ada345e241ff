"""Chooses the engine of a configuration: the one it names, or one by fixed rules on sizes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import torch

from fedcanon.algorithms import Algorithm, Mixed, SecondOrder
from fedcanon.engines import Local, MakeEngine
from fedcanon.engines.processes import can_start_processes, cores
from fedcanon.errors import FedcanonError
from fedcanon.importing import import_object
from fedcanon.objectives import Problem
from fedcanon.objectives.stacked import can_stack
from fedcanon.runs.config import Config
from fedcanon.units import GIB

WORTH_PROCESSES = 20_000_000
"""From this value of samples × steps × parameters in a round on, several processes are faster."""

WORTH_STACKING = 200_000
"""Up to this value of samples × parameters in a step, overhead takes longer than arithmetic."""

WORKERS = "FEDCANON_WORKERS"
"""The environment variable for the number of processes if the configuration has none."""

ENGINES = {
    "auto": "serial or processes, by the size of the problem.",
    "serial": "One client after the other, or together if they are small, in this process.",
    "processes": "Processes on this machine, by default one for each core.",
    "ray": "A Ray cluster.",
    "flower": "Flower's simulation.",
}
"""Where clients run, by the name of the engine in a configuration."""

OPTIONAL_ENGINES = {
    "ray": "fedcanon.engines.ray_actors:RayCluster",
    "flower": "fedcanon.deployment.flower.simulation:FlowerSimulation",
}
"""Engines that need further packages; they are imported only if a configuration names them."""


def engine_for(
    config: Config, problem: Problem, algorithm: Algorithm, *, private_records: bool = False
) -> MakeEngine:
    """Return what makes the engine of a configuration.

    Args:
        config: The configuration.
        problem: The problem.
        algorithm: The federated method.
        private_records: Whether records are private, so that every client must work by itself.

    Raises:
        FedcanonError: A package is missing, or the engine does not fit the device.
    """
    name, memory = config.engine.name, int(config.engine.state_memory * GIB)
    if name == "flower":
        return _optional_engine(config)(config)
    vectorised = _is_vectorised(config, problem, algorithm, private_records)
    if name == "ray":
        return _optional_engine(config)(config.engine.workers, vectorised, memory)
    several = name == "processes" or (name == "auto" and _is_large(config, problem, algorithm))
    workers = _worker_count(config) if several else None
    return Local(workers, vectorised, memory, tuple(devices(config)))


def _optional_engine(config: Config) -> Callable[..., MakeEngine]:
    """Import the class of an engine that needs further packages."""
    name = config.engine.name
    if config.device != "cpu":
        raise FedcanonError(f'engine.name = "{name}" trains on processors: use device = "cpu".')
    try:
        found: Callable[..., MakeEngine] = import_object(OPTIONAL_ENGINES[name], "engine")
        return found
    except FedcanonError as error:
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        raise FedcanonError(
            f'engine.name = "{name}" needs a package: pip install "fedcanon[{name}]".'
        ) from None


def _is_vectorised(
    config: Config, problem: Problem, algorithm: Algorithm, private_records: bool
) -> bool:
    """Tell whether clients take their local steps together."""
    if config.engine.vectorised is not None:
        return config.engine.vectorised
    participants = config.clients.participants or len(problem.clients)
    return (
        participants > 1
        and not private_records
        and can_stack(problem.clients)
        and not isinstance(algorithm, Mixed | SecondOrder)
        and _batch(config, problem) * len(problem.start) <= WORTH_STACKING
    )


def _is_large(config: Config, problem: Problem, algorithm: Algorithm) -> bool:
    """Tell whether a round has enough work for several processes."""
    participants = config.clients.participants or len(problem.clients)
    steps = getattr(algorithm, "local_steps", 1)
    work = participants * steps * _batch(config, problem) * len(problem.start)
    worth = config.engine.workers is not None or work >= WORTH_PROCESSES
    return worth and _worker_count(config) > 1 and participants > 1 and can_start_processes()


def _worker_count(config: Config) -> int:
    """Return the number of processes."""
    return config.engine.workers or len(devices(config)) or _default_worker_count()


def devices(config: Config) -> list[torch.device]:
    """Return the CUDA devices that several processes use; empty if one process uses one device."""
    if config.device != "cuda" or config.engine.name == "serial":
        return []
    found = [torch.device("cuda", k) for k in range(torch.cuda.device_count())]
    return found if len(found) > 1 or config.engine.name == "processes" else []


def require_bfloat16(device: torch.device) -> None:
    """Raise a ``FedcanonError`` if a device has no bfloat16 arithmetic.

    Without it, bfloat16 is 5 to 40 times slower than float32.
    """
    if device.type == "cuda":
        there = torch.cuda.is_bf16_supported()
    else:
        there = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    if not there:
        raise FedcanonError(
            f"this {'processor' if device.type == 'cpu' else 'device'} has no bfloat16 arithmetic, "
            "which would make steps many times slower: leave engine.bfloat16 out."
        )


def _batch(config: Config, problem: Problem) -> float:
    """Return the number of samples in a local step of the largest client."""
    size = math.inf if config.batch_size == "full" else config.batch_size
    return min(size, max(problem.samples))


def _default_worker_count() -> int:
    text = os.environ.get(WORKERS, "")
    if text and not (text.isdecimal() and int(text) > 0):
        raise FedcanonError(f"{WORKERS} must be a number of processes, not '{text}'.")
    return int(text) if text else cores()
