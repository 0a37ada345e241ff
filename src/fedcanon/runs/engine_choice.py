"""Which engine runs a configuration: the one it names, or by static rules on sizes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import torch

from fedcanon.algorithms import Algorithm, Mixed
from fedcanon.engines import Local, MakeEngine
from fedcanon.engines.processes import can_start_processes, cores
from fedcanon.errors import FedcanonError
from fedcanon.importing import import_object
from fedcanon.objectives import Problem
from fedcanon.objectives.stacked import can_stack
from fedcanon.runs.config import Config
from fedcanon.units import GIB

WORTH_PROCESSES = 20_000_000
"""Samples × steps × parameters of a round from which several processes pay."""

WORTH_STACKING = 200_000
"""Samples × parameters of one step up to which most of its time is not arithmetic."""

WORKERS = "FEDCANON_WORKERS"
"""The environment variable with the number of processes where the configuration has none."""

ELSEWHERE = {
    "ray": "fedcanon.engines.ray_actors:RayCluster",
    "flower": "fedcanon.deployment.flower.simulation:FlowerSimulation",
}
"""Engines that need further packages, imported when they are asked for."""


def engine_for(config: Config, problem: Problem, algorithm: Algorithm) -> MakeEngine:
    """The recipe of the engine that a configuration asks for."""
    name, memory = config.engine.name, int(config.engine.state_memory * GIB)
    if name == "flower":
        return _elsewhere(config)(config)
    vectorised = _is_vectorised(config, problem, algorithm)
    if name == "ray":
        return _elsewhere(config)(config.engine.workers, vectorised, memory)
    several = name == "processes" or (name == "auto" and _pays(config, problem, algorithm))
    workers = _count(config) if several else None
    return Local(workers, vectorised, memory, tuple(devices(config)))


def _elsewhere(config: Config) -> Callable[..., MakeEngine]:
    """The class of an engine that needs further packages."""
    name = config.engine.name
    if config.device != "cpu":
        raise FedcanonError(f'engine.name = "{name}" trains on processors: use device = "cpu".')
    try:
        found: Callable[..., MakeEngine] = import_object(ELSEWHERE[name], "engine")
        return found
    except FedcanonError as error:
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        raise FedcanonError(
            f'engine.name = "{name}" needs a package: pip install "fedcanon[{name}]".'
        ) from None


def _is_vectorised(config: Config, problem: Problem, algorithm: Algorithm) -> bool:
    """Whether clients take their local steps together."""
    if config.engine.vectorised is not None:
        return config.engine.vectorised
    participants = config.clients.participants or len(problem.clients)
    return (
        participants > 1
        and can_stack(problem.clients)
        and not isinstance(algorithm, Mixed)
        and _batch(config, problem) * len(problem.start) <= WORTH_STACKING
    )


def _pays(config: Config, problem: Problem, algorithm: Algorithm) -> bool:
    """Whether a round has work enough for several processes."""
    participants = config.clients.participants or len(problem.clients)
    steps = getattr(algorithm, "local_steps", 1)
    work = participants * steps * _batch(config, problem) * len(problem.start)
    worth = config.engine.workers is not None or work >= WORTH_PROCESSES
    return worth and _count(config) > 1 and participants > 1 and can_start_processes()


def _count(config: Config) -> int:
    """How many processes there are to be."""
    return config.engine.workers or len(devices(config)) or _default_count()


def devices(config: Config) -> list[torch.device]:
    """The devices that processes share out, for a configuration that names them all as "cuda"."""
    if config.device != "cuda" or config.engine.name == "serial":
        return []
    found = [torch.device("cuda", k) for k in range(torch.cuda.device_count())]
    return found if len(found) > 1 or config.engine.name == "processes" else []


def require_bfloat16(device: torch.device) -> None:
    """Refuse bfloat16 where it is computed without hardware: 5 to 40 times slower than float32."""
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
    """Samples of a local step, of the largest client."""
    size = math.inf if config.batch_size == "full" else config.batch_size
    return min(size, max(client.samples for client in problem.clients))


def _default_count() -> int:
    text = os.environ.get(WORKERS, "")
    if text and not (text.isdecimal() and int(text) > 0):
        raise FedcanonError(f"{WORKERS} must be a number of processes, not '{text}'.")
    return int(text) if text else cores()
