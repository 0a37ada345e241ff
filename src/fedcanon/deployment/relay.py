"""Clients that keep nothing: the server holds their states and sends what they need."""

from __future__ import annotations

from dataclasses import dataclass

from fedcanon.algorithms import Algorithm, Relayed, State, Work

_OWN = "client/"
"""Marks the entries of a client's own state in messages."""


@dataclass(frozen=True)
class WholeState:
    """The way of a method that knows no shorter one: the client's state travels down and back."""

    algorithm: Algorithm

    def ask(self, client: State, sent: State, *, compressed: bool) -> State:
        """The broadcast and the client's state, in one message."""
        return {**sent, **{f"{_OWN}{name}": entry for name, entry in client.items()}}

    def answer(self, received: State, work: Work) -> State:
        """The upload and the new state, in one message."""
        client = {k.removeprefix(_OWN): v for k, v in received.items() if k.startswith(_OWN)}
        sent = {name: entry for name, entry in received.items() if not name.startswith(_OWN)}
        upload, state = self.algorithm.local(client, sent, work)
        return {**upload, **{f"{_OWN}{name}": entry for name, entry in state.items()}}

    def settle(self, client: State, sent: State, answer: State) -> tuple[State, State]:
        """Upload and new state, taken apart."""
        state = {k.removeprefix(_OWN): v for k, v in answer.items() if k.startswith(_OWN)}
        return {k: v for k, v in answer.items() if not k.startswith(_OWN)}, state


def relay_of(algorithm: Algorithm) -> Relayed | WholeState:
    """How a round of the algorithm goes with clients that keep nothing."""
    return algorithm if isinstance(algorithm, Relayed) else WholeState(algorithm)
