"""A server and its clients in training: their state, and the operation that runs a round."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter
from torch import Tensor

from fedcanon.algorithms import (
    Algorithm,
    Assembling,
    Cached,
    SecondOrder,
    State,
    scaled,
    sends_steps,
)
from fedcanon.compression import Compressor, Identity
from fedcanon.engines import (
    Aggregation,
    Collected,
    Evaluation,
    Local,
    MakeEngine,
    Robust,
    Rules,
    Verdict,
)
from fedcanon.engines.work import CountedProx
from fedcanon.errors import FedcanonError, RegroupError, StartOverError
from fedcanon.files import Count
from fedcanon.objectives import Problem
from fedcanon.penalties import Penalty
from fedcanon.privacy import Privacy, bernoulli
from fedcanon.randomness import Purpose, generator
from fedcanon.robustness import Adversary
from fedcanon.runs.compatibility import (
    check_compression,
    check_draws,
    check_participants,
    check_second_order,
    secret_draw,
)
from fedcanon.runs.guard import Guard
from fedcanon.runs.measures import Cost
from fedcanon.runs.privacy import Parts, Spending, private_parts
from fedcanon.runs.record_checks import selection_is_noise
from fedcanon.threads import one_thread


class Federation:
    """A server and its clients, which minimise f + h round by round.

    Args:
        problem: The clients with their losses f_i, and the starting model.
        algorithm: The federated method.
        penalty: The regulariser h.
        participants: How many clients take part in each round, chosen at random; None is all.
        batch_size: Samples in a mini-batch of a local step; None is all samples of a client.
        seed: The seed of all random draws of the run.
        compressor: Compresses or clips the uploads, if the algorithm allows it.
        privacy: The guarantee that the run gives: ``ClientPrivacy`` or ``RecordPrivacy``. It may
            change the algorithm, the compressor and the rule; see ``runs.privacy``.
        aggregation: How uploads are combined, such as ``Robust("filter", byzantine=2)``; None uses
            the rule of the algorithm.
        adversary: Bad clients that attack, in a simulation; None if there are none.
        engine: Where clients run: ``Local(workers=2)``, ``RayCluster()``, …; None is ``Local()``.

    Raises:
        FedcanonError: Some of these do not fit together; the message says which.

    Examples:
        Two clients that want 0 and 2; κ = 0.1 takes a tenth off their mean, 1.

        >>> import torch
        >>> from fedcanon import Federation, FedCanonPlus, Problem, Quadratic
        >>> from fedcanon.penalties import L1
        >>> clients = [Quadratic(torch.ones(1), torch.tensor([b])) for b in (0.0, 2.0)]
        >>> problem = Problem(clients, start=torch.zeros(1))
        >>> federation = Federation(problem, FedCanonPlus(0.5, 0.1, 5), L1(0.1))
        >>> for _ in range(50):
        ...     federation.step()
        >>> federation.model
        tensor([0.9000])
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        penalty: Penalty,
        *,
        participants: int | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        compressor: Compressor | None = None,
        aggregation: Aggregation | None = None,
        privacy: Privacy | None = None,
        adversary: Adversary | None = None,
        engine: MakeEngine | None = None,
    ) -> None:
        algorithm, compressor, aggregation = private_parts(
            privacy, problem, Parts(algorithm, compressor or Identity(), aggregation)
        )
        self.problem, self.algorithm, self.penalty = problem, algorithm, penalty
        self.participants, self.seed = participants, seed
        self.privacy, self.spending = privacy, None if privacy is None else Spending(privacy)
        check_participants(algorithm, len(problem.clients), participants)
        check_draws(batch_size, participants, privacy)
        if isinstance(aggregation, Robust) and not isinstance(algorithm, Cached):
            aggregation.check_participants(participants or len(problem.clients))
        if isinstance(algorithm, SecondOrder):
            check_second_order(problem, algorithm)
        penalty.check_step(algorithm.prox_step(1))
        penalty.value(problem.start)  # raises an error if the penalty does not fit the model
        self.rounds_done, self.cost = 0, Cost()
        self.step_scale, self._guard = 1.0, Guard()
        self.distances, self.drops = dict[int, float](), Counter[int]()
        self._init_server(problem.start)
        self.rules = Rules(
            algorithm,
            penalty,
            batch_size,
            seed,
            compressor,
            aggregation,
            privacy,
            adversary,
        )
        if self.rules.is_compressed:
            check_compression(algorithm, problem.start, self.server)
        self.engine = (engine or Local())(problem, self.rules)
        if shortage := self.engine.shortage(participants or len(problem.clients)):
            raise FedcanonError(f"not even one round fits: {shortage}")

    def _init_server(self, z: Tensor) -> None:
        prox = CountedProx(self.penalty)
        self.server = self.algorithm.server_init(z, prox)
        self.cost.server_prox += prox.calls

    @property
    def model(self) -> Tensor:
        """The current model."""
        return self.algorithm.model(self.server)

    @property
    def _secret_draw(self) -> float | None:
        """The probability with which each client is drawn into a round in secret, if it is."""
        return secret_draw(self.privacy)

    @property
    def _needs_everyone(self) -> bool:
        """Whether the next round needs all clients."""
        if isinstance(self.algorithm, Assembling):
            return self.algorithm.everyone(self.server)
        return not self.algorithm.partial_participation

    def state(self) -> State:
        """Return what a checkpoint must contain: everything that the next rounds depend on."""
        return {
            "format": _FORMAT,
            "rounds_done": self.rounds_done,
            "server": self.server,
            "engine": self.engine.state(),
            "cost": asdict(self.cost),
            "step_scale": self.step_scale,
            "guard": self._guard.state(),
            "spending": None if self.spending is None else self.spending.state(),
            "drops": {str(client): count for client, count in self.drops.items()},
        }

    def load(self, state: State) -> None:
        """Restore a state that ``state`` returned, of a federation with the same settings.

        Raises:
            FedcanonError: The state was written by a version that arranges it in another way.
            ValueError: The state is not of such a federation.
        """
        if state.get("format") != _FORMAT:
            raise FedcanonError(
                "this checkpoint was written by another version of fedcanon: go on with that "
                "version, or begin a new run."
            )
        saved = _SAVED.validate_python(state)
        _require_like(saved.server, self.server)
        self.engine.load(saved.engine)
        self._guard.load(saved.guard)
        if self.spending is not None:
            self.spending.load(saved.spending or {})
        self.drops = Counter(saved.drops)
        self.rounds_done, self.server, self.cost = saved.rounds_done, saved.server, saved.cost
        self._scale_steps(saved.step_scale / self.step_scale)

    def warnings(self, rounds: int) -> list[str]:
        """Return what a user should know before a run of so many rounds begins."""
        records, found = self.rules.records, list[str | None]()
        if records is not None:
            found.append(selection_is_noise(self.problem, self.penalty, records, rounds))
        # In the last round, its participants have two states.
        clients = len(self.problem.clients)
        each = self.participants or clients
        seen = clients * (1 - (1 - each / clients) ** rounds)  # so many are ever drawn, on average
        if shortage := self.engine.shortage(round(seen) + each):
            found.append(f"these rounds may not fit on the disk: {shortage}")
        return [sentence for sentence in found if sentence is not None]

    def use_folder(self, folder: Path, *, begun: bool = False) -> None:
        """Keep what must survive this process in the folder of the run.

        Args:
            folder: The folder.
            begun: Whether the run has been in this folder before.
        """
        if self.spending is not None:
            self.spending.use_folder(folder, begun=begun)
        self.engine.use_folder(folder)

    def close(self) -> None:
        """End the processes that were started; the next round starts them again."""
        self.engine.close()

    def is_diverging(self, objective: float, model: Tensor, buffers: Tensor) -> bool:
        """Tell whether the run diverges, if f + h is ``objective`` at a model on its way."""
        return self._guard.diverges(objective, model, buffers)

    def slow_down(self) -> bool:
        """Go back to the best model so far, with new client states and steps of half the size.

        A model that is hardly better than the start was spoilt already: then the start itself.

        Returns:
            Whether that was possible: the steps of some methods cannot change during a run, and a
            run that diverges again and again has another fault.
        """
        good = self._guard.go_back() if sends_steps(self.algorithm, self.server) else None
        if good is None:
            return False
        if not self._guard.has_gained:
            good = self.problem.start, self.problem.start_buffers
        model, self.engine.buffers = good
        self._scale_steps(0.5)
        self._init_server(model)
        self.engine.start_over(model)
        return True

    def _scale_steps(self, factor: float) -> None:
        """Multiply α, β and the gain; clients learn of it by the next broadcast."""
        if factor == 1:
            return
        self.step_scale *= factor
        self.algorithm = scaled(self.algorithm, factor)

    def draw_participants(self) -> list[int]:
        """Return the participants of the next round, in increasing order."""
        able = self.engine.available()
        if self._secret_draw is not None:
            # Who knew the draws would know who has contributed to a sum.
            drawn = bernoulli(len(able), self._secret_draw).tolist()
            return [client for client, takes_part in zip(able, drawn, strict=True) if takes_part]
        if self.participants is None or self._needs_everyone:
            return list(able)
        rng = generator(self.seed, Purpose.PARTICIPANTS, self.rounds_done)
        chosen = rng.choice(len(able), min(self.participants, len(able)), replace=False)
        return sorted(able[position] for position in chosen.tolist())

    @one_thread()
    def step(self, participants: list[int] | None = None) -> Evaluation | None:
        """Run one round on one thread, with the given participants or with random ones.

        Returns:
            The measures of the model before the round, if the engine was asked for them.

        Raises:
            FedcanonError: A participant does not exist, or the round needs all clients.
        """
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
                self.engine.start_over(self.model)
        prox = CountedProx(self.penalty)
        if not collected.waits:
            mean, share = self._mean_and_share(collected)
            self.server = self.algorithm.aggregate(self.server, sent, mean, share, prox)
        self.engine.commit()
        self._note(collected.verdict)
        self.rounds_done += 1
        self.cost.server_prox += prox.calls
        if self._secret_draw is None:  # costs would tell how many clients were drawn
            self.cost.add(collected)
            self.cost.seconds += time.perf_counter() - started
        return collected.evaluation

    def _mean_and_share(self, collected: Collected) -> tuple[State, float]:
        """Return the aggregated upload; by it all clients move the mean of their states."""
        if collected.level is None:
            return collected.mean, collected.share
        assert isinstance(self.algorithm, Cached)
        [ours] = self.algorithm.averages
        return self.algorithm.moved(self.server[ours], collected.level), 1.0

    def _note(self, verdict: Verdict | None) -> None:
        """Remember how far clients were from the others, and count how often they were dropped."""
        self.distances = {} if verdict is None else verdict.distances
        self.drops.update(() if verdict is None else verdict.dropped)

    def _collect(self, participants: list[int] | None) -> tuple[State, Collected]:
        t = self.rounds_done
        self.server = self.engine.regroup(self.server)
        sent = self.algorithm.broadcast(self.server, t, generator(self.seed, Purpose.COINS, t))
        if participants is None:
            participants = self.draw_participants()
        if self.spending is not None:
            # A client that might have been drawn in secret has spent as much as one that was.
            is_secret = self._secret_draw is not None
            self.spending.count(self.engine.available() if is_secret else participants)
        complete = self._needs_everyone
        return sent, self.engine.collect(t, participants, sent, complete=complete)

    def _checked(self, participants: list[int]) -> list[int]:
        """Check the participants and return them in increasing order."""
        clients = self.engine.available()
        if unknown := set(participants) - set(clients):
            raise FedcanonError(
                f"there is no client {min(unknown)}: there are {len(clients)} clients, numbered "
                f"{min(clients)} to {max(clients)}."
            )
        if self._secret_draw is not None:
            raise FedcanonError(
                "with privacy.sampling the participants are drawn in secret: name none."
            )
        participants = sorted(set(participants))
        check_participants(self.algorithm, len(self.problem.clients), len(participants))
        if len(participants) < len(clients) and self._needs_everyone:
            raise FedcanonError(f"round {self.rounds_done} of {self.algorithm} needs all clients.")
        return participants


_FORMAT = 2
"""How checkpoints are arranged; another arrangement gets another number."""


@dataclass(frozen=True)
class _Saved:
    """What a checkpoint contains; engine and guard check more of their own states."""

    rounds_done: Count
    server: State
    engine: State
    cost: Cost
    step_scale: Annotated[float, Field(gt=0, le=1)]
    guard: State
    spending: State | None
    drops: dict[int, Count]


_SAVED = TypeAdapter(_Saved)


def _require_like(state: State, own: State) -> None:
    """Raise a ``ValueError`` if a state lacks an entry of ``own`` or has it in another form.

    Some methods add an entry, or a row for each node, in their first round.
    """
    if missing := own.keys() - state.keys():
        raise ValueError(f"it has no entry '{min(missing)}'")
    for name, value in own.items():
        found = state[name]
        if isinstance(value, Tensor):
            alike = isinstance(found, Tensor) and found.shape[-1:] == value.shape[-1:]
        else:
            alike = value is None or found is None or isinstance(found, int | float)
        if not alike:
            raise ValueError(f"its entry '{name}' does not fit the model")
