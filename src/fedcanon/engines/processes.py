"""Worker processes that stay for the whole run, one thread each."""

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
"""How often a task may end its process before it is given up."""

_VECTORS = 64
"""More vectors of the model's size than any message has, beside rows for each node."""

_MINE = 0
"""The region of the arena from which this process sends; worker k has region k + 1."""


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection


class Processes(Workers):
    """``count`` processes, each with a copy of the setup.

    Tasks and results go through pipes, their tensors and the clients' states through shared memory,
    and the data are never copied: a process is forked or, where that cannot be (``method``
    "spawn", as CUDA needs), is sent handles of them. With ``devices``, worker k moves the problem
    to the k-th of them. A process that dies is replaced and its
    task run again. Processes end with this one, however it ends.
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
        self._arena.begin(_MINE)
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
                        self._bury(number, deaths[task])
                        waiting.appendleft(task)
                    else:
                        result = self._arena.load(reply)
                        if isinstance(result, FedcanonError):
                            raise result
                        yield task, result
                    give_work(number)  # not before the result has been read, which it overwrites
        finally:
            if busy:  # with work that nobody waits for any more
                self.close()

    def close(self) -> None:
        _end(self._workers)

    def _send(self, number: int, message: bytes) -> None:
        try:
            self._worker(number).connection.send_bytes(message)
        except ConnectionError:  # it died while it was idle
            self._bury(number)
            self._worker(number).connection.send_bytes(message)

    def _worker(self, number: int) -> _Worker:
        """The worker of this number, started if it is not there."""
        worker = self._workers[number]
        if worker is None:
            mine, its = self._context.Pipe()
            others = [other.connection for other in self._workers if other] + [mine]
            forked = self._context.get_start_method() == "fork"
            device = self._devices[number % len(self._devices)] if self._devices else None
            arguments = (
                self._setup,
                self._arena,
                number + 1,
                its,
                others if forked else [],
                device,
            )
            process = self._context.Process(
                target=_serve, args=arguments, daemon=True, name=f"fedcanon-{number}"
            )
            # A forked process has the limit from here, in a tenth of the time of setting it itself.
            with threadpool_limits(1), warnings.catch_warnings():
                # Threads of this process, such as a progress bar's, hold no lock that a worker
                # takes.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            its.close()
            worker = self._workers[number] = _Worker(process, mine)
        return worker

    def _replies(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
        """What some busy workers have answered; None for one that has died."""
        by_connection = {self._worker(number).connection: number for number in numbers}
        for connection in wait(list(by_connection)):
            assert isinstance(connection, Connection)
            try:
                yield by_connection[connection], connection.recv_bytes()
            except (EOFError, ConnectionError):
                yield by_connection[connection], None

    def _bury(self, number: int, deaths: int = 1) -> None:
        """Forget a worker that died; give up where the same task has ended several."""
        worker, self._workers[number] = self._workers[number], None
        assert worker is not None
        worker.process.join()
        worker.connection.close()
        if deaths >= ATTEMPTS:
            code = worker.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise FedcanonError(
                f"a worker process was ended {deaths} times while it worked for the same clients "
                f"({how}), perhaps for want of memory: use fewer engine.workers, a smaller "
                "batch_size or a smaller model."
            )


def _end(workers: list[_Worker | None]) -> None:
    """Kill processes; their work is lost."""
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
    """The life of a worker: a task in, its result or its error out."""
    for other in inherited:  # or the end of this run's process would not be seen
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides what Ctrl-C means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    if not inherited:  # started afresh
        threadpool_limits(1)
    if device is not None:
        setup = replace(setup, problem=setup.problem.to(device))
    while True:
        try:
            message = connection.recv_bytes()
        except EOFError:
            return
        function, order, task = arena.load(message)
        arena.begin(region)
        try:
            result = function(setup, arena.load(order), task)
        except FedcanonError as error:
            result = error
        try:
            connection.send_bytes(arena.dump(result))
        except ConnectionError:  # nobody is there to read it
            return


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def may_have_children() -> bool:
    """Whether this process can start others; a worker of ``multiprocessing.Pool`` cannot."""
    return not multiprocessing.current_process().daemon
