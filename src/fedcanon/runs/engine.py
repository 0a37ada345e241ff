"""Which engine runs a configuration: the one it names, or by static rules on sizes."""

from __future__ import annotations

import math
import os
from functools import partial

import torch

from fedcanon.algorithms import Algorithm
from fedcanon.compression import Compressor
from fedcanon.deployment import DeployedEngine, Network
from fedcanon.engines.processes import Processes, cores, may_have_children
from fedcanon.engines.store import GIB
from fedcanon.engines.workers import InProcess, MakeWorkers
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.objectives.stacked import can_stack
from fedcanon.penalties import Penalty
from fedcanon.runs.config import Config

WORTH_PROCESSES = 20_000_000
"""Samples × steps × parameters of a round from which several processes pay."""

WORTH_STACKING = 200_000
"""Samples × parameters of one step up to which most of its time is not arithmetic."""

WORKERS = "FEDCANON_WORKERS"
"""The environment variable with the number of processes where the configuration has none."""


def is_vectorised(config: Config, problem: Problem, algorithm: Algorithm) -> bool:
    """Whether clients take their local steps together."""
    if config.engine.vectorised is not None:
        return config.engine.vectorised
    participants = config.clients.participants or len(problem.clients)
    return (
        participants > 1
        and can_stack(problem.clients)
        and algorithm.links(len(problem.clients)) is None
        and _batch(config, problem) * len(problem.start) <= WORTH_STACKING
    )


def workers_for(config: Config, problem: Problem, algorithm: Algorithm) -> MakeWorkers:
    """Where clients run."""
    name = config.engine.name
    count = config.engine.workers or len(devices(config)) or _default_count()
    if name == "auto":
        participants = config.clients.participants or len(problem.clients)
        steps = getattr(algorithm, "local_steps", 1)
        work = participants * steps * _batch(config, problem) * len(problem.start)
        worth = config.engine.workers is not None or work >= WORTH_PROCESSES
        several = count > 1 and participants > 1 and may_have_children()
        name = "processes" if several and worth else "serial"
    if name == "processes":
        return partial(Processes, count=count, devices=devices(config))
    if name == "ray":
        return _ray_actors(config)
    return InProcess


def _ray_actors(config: Config) -> MakeWorkers:
    if config.device != "cpu":
        raise FedcanonError('engine.name = "ray" trains on processors: use device = "cpu".')
    try:
        from fedcanon.engines.ray_actors import RayActors
    except ModuleNotFoundError:
        raise FedcanonError(
            'engine.name = "ray" needs a package: pip install "fedcanon[ray]".'
        ) from None
    return partial(RayActors, count=config.engine.workers)


def deployed_engine(
    config: Config,
    network: Network,
    problem: Problem,
    algorithm: Algorithm,
    penalty: Penalty,
    compressor: Compressor,
) -> DeployedEngine:
    """The server's side, as the configuration has it."""
    settings = config.deployment
    most = config.clients.participants or config.clients.count
    if settings.minimum > most:
        raise FedcanonError(
            f"deployment.minimum is {settings.minimum}, but only {most} clients are asked in a "
            "round: set it to at most that."
        )
    return DeployedEngine(
        problem,
        algorithm,
        penalty,
        compressor,
        network,
        keeper=settings.state,
        minimum=settings.minimum,
        deadline=settings.deadline,
        most_epochs=settings.epochs,
        by_samples=config.clients.weights == "samples",
        state_memory=int(config.engine.state_memory * GIB),
    )


def vector_sizes(problem: Problem) -> set[int]:
    """The lengths that vectors in messages may have."""
    return {problem.start.numel(), problem.start_buffers.numel()}


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
