"""The contract of an engine, and the settings that every engine and every client follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from fedcanon.algorithms import Algorithm, State
from fedcanon.compression import Compressor, Identity
from fedcanon.engines.aggregation import Aggregation
from fedcanon.engines.traffic import Traffic
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty
from fedcanon.privacy import Privacy, RecordPrivacy
from fedcanon.robustness import Adversary, Combination


@dataclass(frozen=True)
class Rules:
    """The settings of local training and aggregation, the same for all clients and all rounds.

    Args:
        algorithm: The federated method.
        penalty: The regulariser h.
        batch_size: Samples of a mini-batch; None uses all samples of a client.
        seed: The seed of all random draws.
        compressor: What compresses or clips the uploads.
        aggregation: How uploads are combined; None uses the rule of the algorithm, which is the
            weighted mean, or one mean for each node of a decentralised method.
        privacy: The guarantee that the run gives; None if it gives none.
        adversary: Bad clients of a simulation; None if there are none.
    """

    algorithm: Algorithm
    penalty: Penalty
    batch_size: int | None = None
    seed: int = 0
    compressor: Compressor = field(default_factory=Identity)
    aggregation: Aggregation | None = None
    privacy: Privacy | None = None
    adversary: Adversary | None = None

    @property
    def records(self) -> RecordPrivacy | None:
        """How single records are kept private; None if they are not."""
        return self.privacy if isinstance(self.privacy, RecordPrivacy) else None

    @property
    def is_compressed(self) -> bool:
        """Whether uploads are compressed or clipped."""
        return not isinstance(self.compressor, Identity)


@dataclass(frozen=True)
class Evaluation:
    """Measures of a model z: f(z), the f_i(z), ∇f(z) if asked for, and measures on test data."""

    loss: float
    losses: list[float]
    gradient: Tensor | None
    test: dict[str, float]


@dataclass(frozen=True)
class Verdict:
    """What a robust rule has found in a round.

    Args:
        distances: D_i/ρ of every client that it has seen. N − B clients are within 0.5; from 1 on a
            client is odd, and from 2 on the filter drops it.
        dropped: The clients without any influence on the result.
    """

    distances: dict[int, float]
    dropped: frozenset[int]

    @classmethod
    def of(cls, clients: Sequence[int], found: Sequence[Combination]) -> Verdict:
        """Return the verdict on clients with one or more vectors each: the worst of them counts."""
        farthest = torch.stack([one.ratios for one in found]).amax(0).tolist()
        dropped = torch.stack([one.dropped for one in found]).any(0).tolist()
        return cls(
            dict(zip(clients, farthest, strict=True)),
            frozenset(c for c, out in zip(clients, dropped, strict=True) if out),
        )


@dataclass(frozen=True)
class Collected:
    """The result of the clients' part of a round.

    ``mean`` is the aggregated upload, ``share`` the participants' part of the weight of all
    clients. ``prox_calls`` counts the prox evaluations on clients. ``evaluation`` are the measures
    that were asked for with ``measure_with_next_round``.

    If a robust rule combines the vectors of all clients of a ``Cached`` method, ``level`` is the
    result and replaces ``mean``. ``verdict`` is what such a rule has found. The server ``waits``,
    and changes nothing in this round, as long as too few clients have ever answered.
    """

    mean: State
    share: float
    traffic: Traffic
    prox_calls: int
    evaluation: Evaluation | None = None
    level: Tensor | None = None
    verdict: Verdict | None = None
    waits: bool = False


class Engine(ABC):
    """Runs the client side of an algorithm, in this process, in others or over a network.

    ``buffers`` are the normalisation statistics, with a row for each node if every node has its
    own.
    """

    problem: Problem
    rules: Rules
    buffers: Tensor

    durable_rounds: ClassVar[bool] = False
    """Whether a checkpoint must be written after every round."""

    @abstractmethod
    def available(self) -> Sequence[int]:
        """Return the clients that may take part in the next round, in increasing order."""

    @abstractmethod
    def collect(
        self, t: int, participants: Sequence[int], sent: State, *, complete: bool = False
    ) -> Collected:
        """Run round ``t`` on the participants and aggregate their uploads.

        The states of clients do not change before ``commit``, so that a round that fails has no
        effect.

        Args:
            t: The number of the round, counted from 0.
            participants: The clients to ask, in increasing order.
            sent: The broadcast of the algorithm.
            complete: Whether the updates of all clients are needed. If not, clients that do not
                answer may be left out.

        Raises:
            RegroupError: Clients have left; call ``regroup`` and collect again.
            StartOverError: Client states are lost; call ``start_over`` and collect again.
        """

    @abstractmethod
    def commit(self) -> None:
        """Make the new client states and statistics of the last collected round permanent."""

    def regroup(self, server: State) -> State:
        """Add clients that have joined, remove those that have left, and adapt the server's state.

        Returns:
            The server's state for the next round.
        """
        return server

    @abstractmethod
    def start_over(self, z: Tensor) -> None:
        """Discard all client states; clients start again from ``z``."""

    @abstractmethod
    def evaluate(self, z: Tensor, *, gradient: bool) -> Evaluation:
        """Measure the model ``z``: all f_i(z), ∇f(z) if ``gradient`` is set, and the test data."""

    def test(self, z: Tensor) -> dict[str, float]:
        """Measure the model ``z`` on the server's test data alone."""
        self.problem.buffers.copy_(self.model_buffers)
        return self.problem.test(z)

    @property
    def measures_clients(self) -> bool:
        """Whether losses of clients may be measured; in a private run they may not."""
        return self.rules.privacy is None

    @property
    def model_buffers(self) -> Tensor:
        """The normalisation statistics of the model, averaged over nodes if each has its own."""
        return self.buffers.mean(0) if self.buffers.ndim == 2 else self.buffers

    def shortage(self, states: int) -> str | None:
        """Return a sentence if there is no room for the states of so many clients."""
        return None

    def use_folder(self, folder: Path) -> None:  # noqa: B027  # most engines write no files
        """Write status files, if the engine has any, into the folder of the run."""

    @abstractmethod
    def state(self) -> State:
        """Return what a checkpoint must contain; its vectors are valid until the next round."""

    @abstractmethod
    def load(self, state: State) -> None:
        """Restore a state that ``state`` returned."""

    def close(self) -> None:  # noqa: B027  # some have nothing to close
        """End the processes that were started; the next round starts them again."""


class MeasuresWhileTraining(Engine):
    """An engine whose clients can measure a model in the round that begins at it.

    Over a network that saves messages, which take longer than measures.
    """

    @abstractmethod
    def measure_with_next_round(self, z: Tensor, *, gradient: bool) -> None:
        """Let clients measure ``z`` in the next round; ``Collected.evaluation`` has the answer.

        Args:
            z: The model.
            gradient: Whether to measure ∇f(z) too.
        """


MakeEngine = Callable[[Problem, Rules], Engine]
"""Makes the engine for a problem. ``Local(workers=2)`` is one: it says where clients are run."""
