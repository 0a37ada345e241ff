"""The state of a training run, and its one operation: a round."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from torch import Tensor

from fedcanon.algorithms import Algorithm, State
from fedcanon.compression import Compressor, Identity
from fedcanon.engines import Collected, Engine, LocalEngine, RegroupError, StartOverError
from fedcanon.engines.randomness import Purpose, generator
from fedcanon.engines.store import GIB
from fedcanon.engines.work import CountedProx
from fedcanon.engines.workers import InProcess, MakeWorkers
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty
from fedcanon.runs.measures import Cost

MakeEngine = Callable[[Problem, Algorithm, Penalty, Compressor], Engine]
"""Makes an engine whose clients are not those of this machine."""


@dataclass
class Federation:
    """A server and its clients, minimising f + h round by round.

    Each round draws ``participants`` clients (all by default), each of which takes its local steps
    on mini-batches of ``batch_size`` samples (all of its samples by default). ``compressor`` is
    what uploads go through, where the algorithm allows it.

    ``make_workers`` says where clients run: in this process, or in others. ``vectorised`` has small
    models take their local steps together. Client states that need more than ``state_memory`` bytes
    are kept on disk. With ``make_engine`` none of the three is used: it says where clients are.
    """

    problem: Problem
    algorithm: Algorithm
    penalty: Penalty
    participants: int | None = None
    batch_size: int | None = None
    seed: int = 0
    compressor: Compressor = field(default_factory=Identity)
    make_workers: MakeWorkers = InProcess
    vectorised: bool = False
    state_memory: int = GIB
    make_engine: MakeEngine | None = None
    rounds_done: int = field(init=False, default=0)
    server: State = field(init=False)
    engine: Engine = field(init=False)
    cost: Cost = field(init=False, default_factory=Cost)

    def __post_init__(self) -> None:
        clients = len(self.problem.clients)
        self._check_participants(clients if self.participants is None else self.participants)
        if not (self.algorithm.compressible or isinstance(self.compressor, Identity)):
            raise FedcanonError(
                f"{type(self.algorithm).__name__} cannot compress its uploads: use FedCanon+, "
                "which is exact under compression, or no compressor."
            )
        if self.batch_size is not None and self.batch_size < 1:
            raise FedcanonError(f"batch_size must be at least 1, not {self.batch_size}.")
        self.penalty.check_step(self.algorithm.prox_step(1))
        self.penalty.value(self.problem.start)  # refuses a penalty that does not fit the model
        self.engine = self._engine()
        self._init_server(self.problem.start)

    def _engine(self) -> Engine:
        if self.make_engine is not None:
            return self.make_engine(self.problem, self.algorithm, self.penalty, self.compressor)
        return LocalEngine(
            self.problem,
            self.algorithm,
            self.penalty,
            self.batch_size,
            self.seed,
            self.compressor,
            self.make_workers,
            self.vectorised,
            self.state_memory,
        )

    def _init_server(self, z: Tensor) -> None:
        prox = CountedProx(self.penalty)
        self.server = self.algorithm.server_init(z, prox)
        self.cost.server_prox += prox.calls

    def _check_participants(self, participants: int) -> None:
        clients = len(self.problem.clients)
        if not 1 <= participants <= clients:
            raise FedcanonError(
                f"{participants} participants per round are asked for, but there are "
                f"{clients} clients: set participants between 1 and {clients}."
            )
        if participants < clients and not self.algorithm.partial_participation:
            raise FedcanonError(
                f"{type(self.algorithm).__name__} needs all {clients} clients in every round, but "
                f"only {participants} are to take part: leave participants out, or use FedCanon+."
            )

    @property
    def model(self) -> Tensor:
        """The model after the rounds done so far."""
        return self.algorithm.model(self.server)

    def state(self) -> State:
        """All that the next rounds depend on, and what the run has cost."""
        return {
            "rounds_done": self.rounds_done,
            "server": self.server,
            "engine": self.engine.state(),
            "cost": asdict(self.cost),
        }

    def load(self, state: State) -> None:
        """Go on from a state of a federation with the same settings, to the same bits."""
        self.rounds_done = state["rounds_done"]
        self.server = state["server"]
        self.engine.load(state["engine"])
        self.cost = Cost(**state["cost"])

    def close(self) -> None:
        """End the processes that were started; a further round would start them again."""
        self.engine.close()

    def draw_participants(self) -> list[int]:
        """The clients of the next round, in increasing order."""
        able = self.engine.available()
        if self.participants is None or self.algorithm.everyone(self.server):
            return list(able)
        rng = generator(self.seed, Purpose.PARTICIPANTS, self.rounds_done)
        chosen = rng.choice(len(able), min(self.participants, len(able)), replace=False)
        return sorted(able[position] for position in chosen.tolist())

    def step(self, participants: list[int] | None = None) -> None:
        """Run one round, on the given clients or on drawn ones."""
        started = time.perf_counter()
        if participants is not None:
            participants = self._checked(participants)
        while True:
            try:
                sent, collected = self._collect(participants)
                break
            except RegroupError:
                continue
            except StartOverError:
                self._init_server(self.model)
                self.engine.begin_epoch(self.model)
        prox = CountedProx(self.penalty)
        self.server = self.algorithm.aggregate(
            self.server, sent, collected.mean, collected.share, prox
        )
        self.engine.commit()
        self.rounds_done += 1
        self.cost.add(collected)
        self.cost.server_prox += prox.calls
        self.cost.seconds += time.perf_counter() - started

    def _collect(self, participants: list[int] | None) -> tuple[State, Collected]:
        t = self.rounds_done
        self.server = self.engine.regroup(self.server)
        sent = self.algorithm.broadcast(self.server, t, generator(self.seed, Purpose.COINS, t))
        if participants is None:
            participants = self.draw_participants()
        complete = self.algorithm.everyone(self.server)
        return sent, self.engine.collect(t, participants, sent, complete=complete)

    def _checked(self, participants: list[int]) -> list[int]:
        """The participants in the order of every sum."""
        clients = self.engine.available()
        if unknown := set(participants) - set(clients):
            raise FedcanonError(
                f"there is no client {min(unknown)}: there are {len(clients)} clients, numbered "
                f"{min(clients)} to {max(clients)}."
            )
        participants = sorted(set(participants))
        self._check_participants(len(participants))
        if len(participants) < len(clients) and self.algorithm.everyone(self.server):
            raise FedcanonError(f"round {self.rounds_done} of {self.algorithm} needs all clients.")
        return participants
