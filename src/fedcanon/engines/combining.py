"""What the uploads of a round become: the same steps in every engine.

Bad clients of a simulation alter their uploads. Then the rule of the run combines the uploads, or,
if it is robust and the method is ``Cached``, the vectors of all clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedcanon.algorithms import Cached, State
from fedcanon.engines.aggregation import Accumulator, Aggregation, make_aggregation
from fedcanon.engines.base import Rules, Verdict
from fedcanon.engines.client import BUFFERS
from fedcanon.engines.robust import Robust
from fedcanon.engines.store import RoundStates
from fedcanon.engines.summation import Vectors
from fedcanon.objectives import Problem


class Combined(NamedTuple):
    """What ``Collected`` tells of the uploads; see there."""

    mean: Vectors
    level: Tensor | None = None
    verdict: Verdict | None = None
    waits: bool = False


@dataclass(frozen=True)
class Unmerged(Aggregation):
    """Leaves uploads as they are, so that some can be altered before ``rule`` combines them."""

    rule: Aggregation

    def finish(self, parts: Sequence[Vectors], weights: Sequence[float]) -> Vectors:
        uploads = Accumulator(self.rule)
        for part, weight in zip(parts, weights, strict=True):
            uploads.push(part, weight)
        return self.rule.finish(uploads.parts(), weights)

    def copies(self, client: int) -> int:
        return self.rule.copies(client)


class Combining:
    """Combines the uploads of rounds.

    ``gathering`` is the rule by which engines collect uploads. Of ``Cached`` methods, this object
    knows which clients have ever answered, and what bad ones have made the server believe; their
    own states stay honest.
    """

    def __init__(self, problem: Problem, rules: Rules) -> None:
        self.rule = make_aggregation(rules.algorithm, problem.weights, rules.aggregation)
        self._rules, self._device, self._bad = rules, problem.start.device, frozenset[int]()
        if rules.adversary is not None:
            bad = rules.adversary.bad(len(problem.clients))
            self._bad = bad if rules.adversary.alters_uploads else self._bad
        self.gathering = Unmerged(self.rule) if self._bad else self.rule
        self._cached = rules.algorithm if isinstance(rules.algorithm, Cached) else None
        self._level_name = next(iter(rules.algorithm.averages.values()), "")
        self._answered, self._believed = set[int](), dict[int, Tensor]()
        self._participants, self._altered = list[int](), dict[int, Tensor]()

    @property
    def over_levels(self) -> bool:
        """Whether the vectors of all clients are combined, and not the uploads of a round."""
        return self._cached is not None and isinstance(self.rule, Robust)

    def combine(
        self,
        t: int,
        clients: Sequence[int],
        parts: Sequence[Vectors],
        weights: Sequence[float],
        states: RoundStates,
        members: int,
    ) -> Combined:
        """Combine the uploads of round ``t``.

        Args:
            t: The number of the round.
            clients: The participants in increasing order.
            parts: What was gathered of them.
            weights: Their weights.
            states: The states of all clients before and after the round.
            members: The number of all clients.
        """
        self._participants, self._altered = list(clients), {}
        if self._bad.intersection(clients):
            parts = self._attacked(t, parts, states)
        if not isinstance(self.rule, Robust):
            return Combined(self.gathering.finish(parts, weights))
        if not self.over_levels:
            mean, verdict = self.rule.judged(clients, parts)
            return Combined(mean, verdict=verdict)
        mean = {BUFFERS: self.rule.combined([part[BUFFERS] for part in parts]).vector}
        known = self._known(states)
        bad = self.rule.byzantine
        if len(known) < max(members - bad, min(members, 2 * bad + 1)):  # so that most are honest
            return Combined(mean, waits=True)
        found = self.rule.combined([self._level(client, states) for client in known])
        return Combined(mean, found.vector, Verdict.of(known, [found]))

    def commit(self) -> None:
        """Let the last round count."""
        if self._cached is not None and (self._bad or self.over_levels):
            self._answered.update(self._participants)
            self._believed |= self._altered

    def start_over(self) -> None:
        """Forget all clients."""
        self._answered.clear()
        self._believed.clear()

    def state(self) -> State:
        """Return what a checkpoint must contain."""
        believed = {str(client): vector for client, vector in self._believed.items()}
        return {"answered": sorted(self._answered), "believed": believed}

    def load(self, state: State) -> None:
        """Restore a state that ``state`` returned."""
        self._answered = set(state["answered"])
        self._believed = {int(c): vector for c, vector in state["believed"].items()}

    def _attacked(self, t: int, parts: Sequence[Vectors], states: RoundStates) -> Sequence[Vectors]:
        """Return the uploads with those of bad clients altered."""
        adversary, clients = self._rules.adversary, self._participants
        assert adversary is not None
        bad = [k for k, client in enumerate(clients) if client in self._bad]
        good = [k for k in range(len(clients)) if k not in bad]
        changed = list(parts)
        if self._cached is not None:
            honest = [self._level(c, states) for c in self._known(states) if c not in self._bad]
            own = [self._own(states.after(clients[k])) for k in bad]
            for k, new in zip(bad, adversary.altered(*_rows(honest, own), t), strict=True):
                old = self._believed.get(clients[k], self._own(states.before(clients[k])))
                self._altered[clients[k]] = new.clone()
                changed[k] = {**parts[k], **self._cached.moved(old, new)}
            return changed
        for name in (self._rules.algorithm.alterable or parts[0].keys()) & parts[0].keys():
            if name == BUFFERS or not parts[0][name].is_floating_point():
                continue
            rows = _rows([parts[k][name] for k in good], [parts[k][name] for k in bad])
            for k, new in zip(bad, adversary.altered(*rows, t), strict=True):
                changed[k] = {**changed[k], name: new}
        return changed

    def _known(self, states: RoundStates) -> list[int]:
        """Return the clients that have ever answered, in increasing order."""
        return [c for c in states if c in self._answered or c in states.slots]

    def _level(self, client: int, states: RoundStates) -> Tensor:
        """Return the vector of a client as the server believes it to be after the round."""
        for believed in (self._altered, self._believed):
            if client in believed:
                return believed[client]
        return self._own(states.after(client))

    def _own(self, state: State) -> Tensor:
        vector: Tensor = state[self._level_name]
        return vector.to(self._device)


def _rows(honest: Sequence[Tensor], own: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    rows = torch.stack(list(own))
    return torch.stack(list(honest)) if honest else rows[:0], rows
