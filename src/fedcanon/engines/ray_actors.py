"""Workers that are Ray actors, on this machine or on the nodes of a cluster."""

from __future__ import annotations

import logging
import os
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ray
import torch
from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, RayActorError
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fedcanon.algorithms import State
from fedcanon.engines.base import Rules
from fedcanon.engines.local import LocalEngine
from fedcanon.engines.processes import ATTEMPTS, cores
from fedcanon.engines.ray_messages import PackedMessage, pack, unpack
from fedcanon.engines.tasks import Participation, WorkerSetup
from fedcanon.engines.workers import Answer, Shared, Task, Workers
from fedcanon.errors import FedcanonError, first_line
from fedcanon.objectives import ModuleClients, Problem
from fedcanon.units import GIB

ADDRESS = "RAY_ADDRESS"
"""Ray's environment variable for the address of a cluster."""

_LOST = (RayActorError, NodeDiedError, ObjectLostError, OutOfMemoryError)
"""What Ray raises if an actor has died, or a node together with the result stored on it."""

_sharing_our_ray = weakref.WeakSet["RayActors"]()
"""The users of a Ray that this module has started; the last of them to close shuts it down."""


class RayActors(Workers):
    """``count`` Ray actors with one thread each; by default one for each CPU of the cluster.

    They run in the Ray to which this process is connected, or else on the cluster at RAY_ADDRESS,
    or else in a new Ray on this machine. The data, and what all tasks of a round share, are sent to
    each node once; client states are sent with the tasks. If an actor or its node dies, it is
    replaced and its task is run again, by another actor if there is no room for a new one.
    """

    def __init__(self, setup: WorkerSetup, count: int | None = None) -> None:
        self._setup = setup
        self._actors: dict[int, Any] = {}
        self._sent_setup: Any = None
        self._connect(count or cores())
        resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
        self.count = count or int(resources.get("CPU", 0))
        if not self.count:
            raise FedcanonError("the Ray cluster has no CPUs: set engine.workers.")

    def map(
        self,
        function: Callable[[WorkerSetup, Shared, Task], Answer],
        shared: Shared,
        tasks: Sequence[Task],
    ) -> Iterator[tuple[int, Answer]]:
        self._connect(self.count)
        order = ray.put(pack(shared, all_read_only=True))
        waiting, idle, left = deque(range(len(tasks))), list[int](), len(tasks)
        busy: dict[Any, tuple[int, int | None]] = {}  # awaited result: number of actor and of task
        deaths = Counter[tuple[int | None, int | None]]()

        def ask_whether_ready(number: int) -> None:
            # A new actor waits until a CPU is free. An old one may have died meanwhile.
            busy[self._actor(number).__ray_ready__.remote()] = number, None

        def give_work() -> None:
            while waiting and idle:
                number, task = idle.pop(), waiting.popleft()
                sent = pack((tasks[task], self._states(tasks[task])), all_read_only=True)
                busy[self._actor(number).run.remote(function, order, sent)] = number, task

        try:
            for number in range(self.count):
                ask_whether_ready(number)
            while left:
                [reference], _ = ray.wait(list(busy), num_returns=1)
                number, task = busy.pop(reference)
                try:
                    reply = ray.get(reference)
                except _LOST as error:
                    work = (number, None) if task is None else (None, task)
                    deaths[work] += 1
                    self._remove_dead(number, deaths[work], error)
                    ask_whether_ready(number)
                    if task is not None:
                        waiting.appendleft(task)
                        give_work()
                    continue
                idle.append(number)
                if task is None:
                    give_work()
                    continue
                result, states = unpack(reply)
                if isinstance(result, FedcanonError):
                    raise result
                give_work()  # before the result is processed, so that no actor is idle
                for slot, state in states.items():
                    self._setup.store.write(slot, state)
                left -= 1
                yield task, result
        finally:
            if left:  # nobody waits for the results any more
                self._end()

    def close(self) -> None:
        self._end()
        if self in _sharing_our_ray:
            _sharing_our_ray.discard(self)
            if not _sharing_our_ray:
                ray.shutdown()

    def _connect(self, cpus: int) -> None:
        if not ray.is_initialized():
            _start(cpus)
            _sharing_our_ray.clear()
            _sharing_our_ray.add(self)
            self._actors.clear()
            self._sent_setup = None
        elif _sharing_our_ray:
            _sharing_our_ray.add(self)
        if self._sent_setup is None:
            setup = replace(self._setup, store=_States({}))  # the store stays here
            clients = setup.problem.clients
            data = [clients.inputs, clients.targets] if isinstance(clients, ModuleClients) else []
            self._sent_setup = ray.put(pack(setup, read_only=data))

    def _actor(self, number: int) -> Any:
        """Return the actor with this number and start it if there is none."""
        if number not in self._actors:
            self._actors[number] = _RemoteActor.remote(self._sent_setup)
        return self._actors[number]

    def _states(self, task: object) -> dict[int, State]:
        """Return the states of a task's clients before the round, by slot."""
        clients = task if isinstance(task, list) else []
        slots = [one.old for one in clients if isinstance(one, Participation)]
        return {slot: self._setup.store.read(slot) for slot in slots if slot is not None}

    def _remove_dead(self, number: int, deaths: int, error: Exception) -> None:
        """Remove an actor that died; raise an error if another one would die too."""
        ray.kill(self._actors.pop(number))  # perhaps it is alive and only unreachable
        if isinstance(error, RayActorError) and error.actor_init_failed:
            *_, reason = str(error).strip().splitlines()
            raise FedcanonError(f"a Ray actor cannot be started: {reason}") from error
        if deaths >= ATTEMPTS:
            raise FedcanonError(
                f"a Ray actor ended {deaths} times at the same work, perhaps for lack of memory: "
                "use fewer engine.workers, a smaller batch_size or a smaller model."
            ) from error

    def _end(self) -> None:
        """Kill all actors; their work is lost."""
        while self._actors:
            _, actor = self._actors.popitem()
            if ray.is_initialized():
                ray.kill(actor)


def _start(cpus: int) -> None:
    """Connect to the cluster, or start Ray on this machine."""
    address = os.environ.get(ADDRESS)
    place: dict[str, Any] = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
    if address:
        place = {"address": address}
    try:
        with warnings.catch_warnings():
            # Ray warns of future changes, none of which concerns this module.
            warnings.simplefilter("ignore", FutureWarning)
            ray.init(**place, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        place_name = address or "this machine"
        raise FedcanonError(f"Ray cannot be used at {place_name}: {first_line(error)}.") from error


class _States:
    """Replaces the store in an actor: holds the states sent with a task and the new ones."""

    def __init__(self, old: dict[int, State]) -> None:
        self._old = old
        self.new: dict[int, State] = {}

    def read(self, slot: int) -> State:
        return self._old[slot]

    def write(self, slot: int, state: State) -> None:
        # Copies, since the next client may overwrite the memory of this one's vectors.
        self.new[slot] = {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in state.items()
        }


class _Actor:
    """Runs one task after the other."""

    def __init__(self, setup: PackedMessage) -> None:
        torch.set_num_threads(1)
        threadpool_limits(1)
        self._setup: WorkerSetup = unpack(setup)

    def run(
        self,
        function: Callable[[WorkerSetup, Any, Any], Any],
        shared: PackedMessage,
        sent: PackedMessage,
    ) -> Any:
        task, old = unpack(sent)
        states = _States(old)
        setup = replace(self._setup, store=states)
        try:
            return pack((function(setup, unpack(shared), task), states.new))
        except FedcanonError as error:  # returned, because Ray would wrap an error that is raised
            return pack((error, {}))


_RemoteActor: Any = ray.remote(num_cpus=1)(_Actor)


@dataclass(frozen=True)
class RayCluster:
    """Makes engines that run clients on a Ray cluster, or with Ray on this machine.

    Args:
        workers: How many actors to start; None starts one for each CPU of the cluster.
        vectorised: Whether clients of small models take their local steps together.
        state_memory: This machine keeps client states on disk if they need more than so many bytes.
    """

    workers: int | None = None
    vectorised: bool = False
    state_memory: int = GIB

    def __call__(self, problem: Problem, rules: Rules) -> LocalEngine:
        """Make the engine for a problem."""
        make = partial(RayActors, count=self.workers)
        return LocalEngine(problem, rules, make, self.vectorised, self.state_memory)
