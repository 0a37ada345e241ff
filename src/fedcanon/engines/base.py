"""The contract of an engine, and the rules of a round that every engine follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from fedcanon.algorithms import Algorithm, State
from fedcanon.compression import Compressor, Identity
from fedcanon.engines.aggregation import Aggregation
from fedcanon.engines.traffic import Traffic
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty


@dataclass(frozen=True)
class Rules:
    """What every client does, in all rounds.

    ``batch_size`` None stands for all samples of a client, ``aggregation`` None for what the
    algorithm asks for: the weighted mean, or one mean for each node of a network.
    """

    algorithm: Algorithm
    penalty: Penalty
    batch_size: int | None = None
    seed: int = 0
    compressor: Compressor = field(default_factory=Identity)
    aggregation: Aggregation | None = None

    @property
    def is_compressed(self) -> bool:
        """Whether uploads are altered on their way."""
        return not isinstance(self.compressor, Identity)


@dataclass(frozen=True)
class Collected:
    """One round of the clients: the aggregated upload, their share of the weight, the cost."""

    mean: State
    share: float
    traffic: Traffic
    prox_calls: int


@dataclass(frozen=True)
class Evaluation:
    """What the clients and the test data say of a model: f, the f_i, ∇f if asked for, the test."""

    loss: float
    losses: list[float]
    gradient: Tensor | None
    test: dict[str, float]


class Engine(ABC):
    """Runs the client side of an algorithm: it moves messages and knows where clients are."""

    problem: Problem
    rules: Rules

    durable_rounds: ClassVar[bool] = False
    """Whether a round must be on disk before the next one begins."""

    @abstractmethod
    def available(self) -> Sequence[int]:
        """The clients that may take part in the next round, in increasing order."""

    @abstractmethod
    def collect(
        self, t: int, participants: Sequence[int], sent: State, *, complete: bool = False
    ) -> Collected:
        """Run round ``t`` on the participants and aggregate their uploads.

        A ``complete`` round needs all clients, where others may do without those that do not
        answer. Nothing changes before ``commit``: a round that fails leaves everything as it was.
        """

    @abstractmethod
    def commit(self) -> None:
        """Let the round count that was collected last: clients keep their new states."""

    def regroup(self, server: State) -> State:
        """The server's state once clients have joined or left for good since the last round."""
        return server

    def start_over(self, z: Tensor) -> None:
        """After a ``StartOverError``: no client has a state any more, and ``z`` is the start."""
        raise NotImplementedError

    @abstractmethod
    def evaluate(self, z: Tensor, *, gradient: bool) -> Evaluation:
        """f_i(z), ∇f(z) if asked for, and the test measures of the model ``z``."""

    @property
    @abstractmethod
    def model_buffers(self) -> Tensor:
        """The normalisation statistics of the model, averaged over nodes where each has its own."""

    def keep_in(self, folder: Path) -> None:  # noqa: B027  # most keep nothing there
        """Use the run's folder for what is to be seen from outside."""

    @abstractmethod
    def state(self) -> State:
        """All that the engine must remember between rounds; it holds until the next one."""

    @abstractmethod
    def load(self, state: State) -> None:
        """Go on from a state."""

    def close(self) -> None:  # noqa: B027  # some have nothing to close
        """End the processes that were started; the next round starts them again."""


MakeEngine = Callable[[Problem, Rules], Engine]
"""A recipe for an engine, such as ``Local(workers=2)``: it says where clients are and run."""
