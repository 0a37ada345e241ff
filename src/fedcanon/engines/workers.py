"""The contract of workers, which run tasks, and the simplest implementation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fedcanon.engines.tasks import WorkerSetup

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Answer = TypeVar("Answer")


class Workers(ABC):
    """Runs tasks on ``count`` workers, each with its own ``WorkerSetup``."""

    count: int

    @abstractmethod
    def map(
        self,
        function: Callable[[WorkerSetup, Shared, Task], Answer],
        shared: Shared,
        tasks: Sequence[Task],
    ) -> Iterator[tuple[int, Answer]]:
        """Run ``function(setup, shared, task)`` for all tasks.

        Args:
            function: A function defined at the top level of a module, so that it can be sent.
            shared: An argument that is the same for all tasks.
            tasks: The tasks.

        Yields:
            The number of a task and its result, in any order. Tensors of a result are valid until
            the next result is requested.
        """

    def close(self) -> None:  # noqa: B027  # most have nothing to close
        """End everything that was started."""


class InProcess(Workers):
    """Runs one task after the other in this process, for small problems and for debugging."""

    count = 1

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup

    def map(
        self,
        function: Callable[[WorkerSetup, Shared, Task], Answer],
        shared: Shared,
        tasks: Sequence[Task],
    ) -> Iterator[tuple[int, Answer]]:
        for number, task in enumerate(tasks):
            yield number, function(self._setup, shared, task)


MakeWorkers = Callable[[WorkerSetup], Workers]
"""Makes workers, each of which has this setup or a copy of it."""
