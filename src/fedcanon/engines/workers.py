"""The contract of what runs tasks, and the simplest that does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fedcanon.engines.tasks import WorkerSetup

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Answer = TypeVar("Answer")


class Workers(ABC):
    """Runs tasks in some number of places, each with a ``WorkerSetup`` of its own."""

    count: int

    @abstractmethod
    def map(
        self,
        function: Callable[[WorkerSetup, Shared, Task], Answer],
        shared: Shared,
        tasks: Sequence[Task],
    ) -> Iterator[tuple[int, Answer]]:
        """Run ``function(setup, shared, task)`` for all tasks.

        Results come with the number of their task, in any order; what they hold may be changed by
        the next one. ``function`` is defined at the top of a module.
        """

    def close(self) -> None:  # noqa: B027  # most have nothing to close
        """End everything that was started."""


class InProcess(Workers):
    """One task after the other, in this process: for small problems and for debugging."""

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
"""Makes workers that have this setup, or copies of it."""
