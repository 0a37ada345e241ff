"""Workers that are actors of Ray, on this machine or on the nodes of a cluster."""

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
from fedcanon.errors import FedcanonError
from fedcanon.objectives import ModuleClients, Problem
from fedcanon.units import GIB

ADDRESS = "RAY_ADDRESS"
"""The environment variable with the address of a cluster, as Ray itself reads it."""

_LOST = (RayActorError, NodeDiedError, ObjectLostError, OutOfMemoryError)
"""What Ray says where an actor is gone, or its node with the result that was there."""

_for_whom_we_started = weakref.WeakSet["RayActors"]()
"""Those that use a Ray that none but they asked for: the last to close ends it."""


class RayActors(Workers):
    """``count`` actors, each with a copy of the setup and one thread; by default one for each CPU.

    They are in the Ray that this process uses already, on the cluster at RAY_ADDRESS, or on this
    machine. What all tasks share goes to each node once, and so do the data; the clients' states
    travel with the tasks. An actor that dies, alone or with its node, is replaced and its task run
    again, by another one where there is no place for a new one.
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
        order = ray.put(pack(shared, lend=True))
        waiting, idle, left = deque(range(len(tasks))), list[int](), len(tasks)
        busy: dict[Any, tuple[int, int | None]] = {}  # what is awaited: of which actor, which task
        deaths = Counter[tuple[int | None, int | None]]()

        def ask_whether_ready(number: int) -> None:
            # A new actor waits for a free CPU, perhaps for long. An old one may have died.
            busy[self._actor(number).__ray_ready__.remote()] = number, None

        def give_work() -> None:
            while waiting and idle:
                number, task = idle.pop(), waiting.popleft()
                sent = pack((tasks[task], self._states(tasks[task])), lend=True)
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
                    self._bury(number, deaths[work], error)
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
                give_work()  # before the result is looked at, so that none is idle
                for slot, state in states.items():
                    self._setup.store.write(slot, state)
                left -= 1
                yield task, result
        finally:
            if left:  # some have work that nobody waits for any more
                self._end()

    def close(self) -> None:
        self._end()
        if self in _for_whom_we_started:
            _for_whom_we_started.discard(self)
            if not _for_whom_we_started:
                ray.shutdown()

    def _connect(self, cpus: int) -> None:
        if not ray.is_initialized():
            _start(cpus)
            _for_whom_we_started.clear()
            _for_whom_we_started.add(self)
            self._actors.clear()
            self._sent_setup = None
        elif _for_whom_we_started:
            _for_whom_we_started.add(self)
        if self._sent_setup is None:
            setup = replace(self._setup, store=_States({}))  # the store stays here
            clients = setup.problem.clients
            data = [clients.inputs, clients.targets] if isinstance(clients, ModuleClients) else []
            self._sent_setup = ray.put(pack(setup, lent=data))

    def _actor(self, number: int) -> Any:
        """The actor of this number, made if it is not there."""
        if number not in self._actors:
            self._actors[number] = _RemoteActor.remote(self._sent_setup)
        return self._actors[number]

    def _states(self, task: object) -> dict[int, State]:
        """The states that participants have before the round."""
        clients = task if isinstance(task, list) else []
        slots = [one.old for one in clients if isinstance(one, Participation)]
        return {slot: self._setup.store.read(slot) for slot in slots if slot is not None}

    def _bury(self, number: int, deaths: int, error: Exception) -> None:
        """Forget an actor that died; give up where there is no hope for another."""
        ray.kill(self._actors.pop(number))  # it may be out of reach only
        if isinstance(error, RayActorError) and error.actor_init_failed:
            *_, reason = str(error).strip().splitlines()
            raise FedcanonError(f"a Ray actor cannot be started: {reason}") from error
        if deaths >= ATTEMPTS:
            raise FedcanonError(
                f"a Ray actor was ended {deaths} times at the same work, perhaps for want of "
                "memory: use fewer engine.workers, a smaller batch_size or a smaller model."
            ) from error

    def _end(self) -> None:
        """Kill the actors; their work is lost."""
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
            # Ray announces what it will change, which is nothing that is used here.
            warnings.simplefilter("ignore", FutureWarning)
            ray.init(**place, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise FedcanonError(
            f"Ray cannot be used at {address or 'this machine'}: {reason}"
        ) from error


class _States:
    """In the place of a store: states that came with a task, and those that go back."""

    def __init__(self, old: dict[int, State]) -> None:
        self._old = old
        self.new: dict[int, State] = {}

    def read(self, slot: int) -> State:
        return self._old[slot]

    def write(self, slot: int, state: State) -> None:
        # Copies, since a client's vector may be memory in which the next one works.
        self.new[slot] = {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in state.items()
        }


class _Actor:
    """Works for clients, one task after the other."""

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
        except FedcanonError as error:  # as it is: what an actor raises, Ray wraps
            return pack((error, {}))


_RemoteActor: Any = ray.remote(num_cpus=1)(_Actor)


@dataclass(frozen=True)
class RayCluster:
    """The engine of a Ray cluster, or of Ray on this machine.

    Args:
        workers: How many actors to start; None is one for each CPU of the cluster.
        vectorised: Whether clients of small models take their local steps together.
        state_memory: Bytes of client states beyond which this machine keeps them on disk.
    """

    workers: int | None = None
    vectorised: bool = False
    state_memory: int = GIB

    def __call__(self, problem: Problem, rules: Rules) -> LocalEngine:
        """An engine for a problem."""
        make = partial(RayActors, count=self.workers)
        return LocalEngine(problem, rules, make, self.vectorised, self.state_memory)
