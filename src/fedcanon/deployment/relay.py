"""Rounds with clients that store nothing: the server keeps their states."""

from __future__ import annotations

from dataclasses import dataclass

from fedcanon.algorithms import Algorithm, Relayed, State, Work

_OWN = "client/"
"""The prefix of entries of the client's state in messages."""


@dataclass(frozen=True)
class WholeState:
    """Sends a client its whole state and gets the new one back, for any method.

    It has the methods of ``Relayed``, whose algorithms exchange less.
    """

    algorithm: Algorithm

    def ask(self, client: State, sent: State, *, compressed: bool) -> State:
        """Return the broadcast and the client's state as one message."""
        return {**sent, **{f"{_OWN}{name}": entry for name, entry in client.items()}}

    def answer(self, received: State, work: Work) -> State:
        """Return the upload and the new state as one message."""
        client = {k.removeprefix(_OWN): v for k, v in received.items() if k.startswith(_OWN)}
        sent = {name: entry for name, entry in received.items() if not name.startswith(_OWN)}
        upload, state = self.algorithm.local(client, sent, work)
        return {**upload, **{f"{_OWN}{name}": entry for name, entry in state.items()}}

    def settle(self, client: State, sent: State, answer: State) -> tuple[State, State]:
        """Separate the upload and the new state in an answer."""
        state = {k.removeprefix(_OWN): v for k, v in answer.items() if k.startswith(_OWN)}
        return {k: v for k, v in answer.items() if not k.startswith(_OWN)}, state


def make_relay(algorithm: Algorithm) -> Relayed | WholeState:
    """Return the way in which a method runs with clients that store nothing."""
    return algorithm if isinstance(algorithm, Relayed) else WholeState(algorithm)
