"""Worker processes with one thread each, which live as long as the run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fedcanon.engines.aggregation import Streaming
from fedcanon.engines.arena import Arena
from fedcanon.engines.tasks import WorkerSetup
from fedcanon.engines.workers import Answer, Shared, Task, Workers
from fedcanon.errors import FedcanonError
from fedcanon.units import MIB

ATTEMPTS = 3
"""How many processes may die at the same task before the run ends with an error."""

_VECTORS = 64
"""An upper limit on the vectors in a message, without the rows of a decentralised method."""

_MAIN_REGION = 0
"""The region of the arena for messages of this process; worker k has region k + 1."""


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection


class Processes(Workers):
    """``count`` worker processes, each with a copy of the setup.

    Tasks and results go through pipes, tensors and client states through shared memory. The data
    are never copied: a process is forked, or gets handles of the data if it is spawned. A process
    that dies is replaced and its task is run again. The processes end when this one ends, even if
    it is killed.

    Args:
        setup: What workers need in all rounds.
        count: How many processes to start.
        method: How to start them; None is "fork" on Linux, and "spawn" where that is not safe
            (on other systems, and with devices, because CUDA does not allow forks).
        devices: Worker k moves the problem to device k, modulo their number; empty for none.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        count: int,
        method: Literal["fork", "spawn"] | None = None,
        devices: Sequence[torch.device] = (),
    ) -> None:
        self.count, self._devices = count, devices
        if method is None:
            method = "fork" if sys.platform == "linux" and not devices else "spawn"
        self._context: Any = torch.multiprocessing.get_context(method)
        problem = setup.problem
        rows = 1 if isinstance(setup.aggregation, Streaming) else len(problem.clients)
        size = (_VECTORS + 4 * rows) * (problem.start.nbytes + problem.start_buffers.nbytes)
        self._setup, self._arena = setup, Arena(count + 1, size + MIB)
        self._workers: list[_Worker | None] = [None] * count
        weakref.finalize(self, _end, self._workers)

    def map(
        self,
        function: Callable[[WorkerSetup, Shared, Task], Answer],
        shared: Shared,
        tasks: Sequence[Task],
    ) -> Iterator[tuple[int, Answer]]:
        self._arena.begin(_MAIN_REGION)
        order = self._arena.dump(shared)
        waiting, busy, deaths = deque(range(len(tasks))), dict[int, int](), Counter[int]()

        def give_work(number: int) -> None:
            if waiting:
                busy[number] = waiting.popleft()
                self._send(number, self._arena.dump((function, order, tasks[busy[number]])))

        try:
            for number in range(self.count):
                give_work(number)
            while busy:
                for number, reply in self._replies(list(busy)):
                    task = busy.pop(number)
                    if reply is None:
                        deaths[task] += 1
                        self._remove_dead(number, deaths[task])
                        waiting.appendleft(task)
                    else:
                        result = self._arena.load(reply)
                        if isinstance(result, FedcanonError):
                            raise result
                        yield task, result
                    give_work(number)  # only now, because the next result overwrites this one
        finally:
            if busy:  # nobody waits for the results any more
                self.close()

    def close(self) -> None:
        _end(self._workers)

    def _send(self, number: int, message: bytes) -> None:
        try:
            self._worker(number).connection.send_bytes(message)
        except ConnectionError:  # the process died while it was idle
            self._remove_dead(number)
            self._worker(number).connection.send_bytes(message)

    def _worker(self, number: int) -> _Worker:
        """Return the worker with this number and start its process if there is none."""
        worker = self._workers[number]
        if worker is None:
            own_end, worker_end = self._context.Pipe()
            inherited = [other.connection for other in self._workers if other] + [own_end]
            if self._context.get_start_method() != "fork":
                inherited = []
            device = self._devices[number % len(self._devices)] if self._devices else None
            process = self._context.Process(
                target=_serve,
                args=(self._setup, self._arena, number + 1, worker_end, inherited, device),
                daemon=True,
                name=f"fedcanon-{number}",
            )
            # A forked process inherits this limit, ten times faster than by setting it itself.
            with threadpool_limits(1), warnings.catch_warnings():
                # Python warns of forks in processes with threads. Threads of this process, such as
                # a progress bar's, hold no lock that a worker needs.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            worker_end.close()
            worker = self._workers[number] = _Worker(process, own_end)
        return worker

    def _replies(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
        """Wait for answers of busy workers; the answer of a worker that has died is None."""
        by_connection = {self._worker(number).connection: number for number in numbers}
        for connection in wait(list(by_connection)):
            assert isinstance(connection, Connection)
            try:
                yield by_connection[connection], connection.recv_bytes()
            except (EOFError, ConnectionError):
                yield by_connection[connection], None

    def _remove_dead(self, number: int, deaths: int = 1) -> None:
        """Remove a worker that died; raise an error if ``deaths`` workers died at its task."""
        worker, self._workers[number] = self._workers[number], None
        assert worker is not None
        worker.process.join()
        worker.connection.close()
        if deaths >= ATTEMPTS:
            code = worker.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise FedcanonError(
                f"a worker process ended {deaths} times while it worked for the same clients "
                f"({how}), perhaps for lack of memory: use fewer engine.workers, a smaller "
                "batch_size or a smaller model."
            )


def _end(workers: list[_Worker | None]) -> None:
    """Kill all processes; their work is lost."""
    for number, worker in enumerate(workers):
        if worker is not None:
            worker.process.kill()
            worker.process.join()
            worker.connection.close()
            workers[number] = None


def _serve(
    setup: WorkerSetup,
    arena: Arena,
    region: int,
    connection: Connection,
    inherited: list[Connection],
    device: torch.device | None,
) -> None:
    """Run tasks in a worker process until the main process ends."""
    for other in inherited:  # while one is open, no worker notices that the main process has ended
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what Ctrl-C means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    if not inherited:  # a spawned process does not inherit the limit
        threadpool_limits(1)
    if device is not None:
        setup = replace(setup, problem=setup.problem.to(device))
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, ConnectionError):  # the main process has ended
            return
        function, order, task = arena.load(message)
        arena.begin(region)
        try:
            result = function(setup, arena.load(order), task)
        except FedcanonError as error:
            result = error
        try:
            connection.send_bytes(arena.dump(result))
        except ConnectionError:
            return


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def can_start_processes() -> bool:
    """Tell whether this process may start others; a worker of ``multiprocessing.Pool`` may not."""
    return not multiprocessing.current_process().daemon
