"""What server and clients of a deployment say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.compression import Encoded, Lossless

START = "start"
"""The model at the beginning of the generation, in a message to a client that has no state yet.

It is left out where it is the "z" of the broadcast.
"""


@dataclass(frozen=True)
class Message:
    """The server's request to one client: to train in a round, or to evaluate a model.

    ``run`` names the run, under which a client that ``keeps`` its own state finds it. ``ack`` names
    the client's last update that counted in this generation. A client that ``recalls`` computes
    what is missing in the broadcast itself.
    """

    id: str
    client: int
    kind: Literal["train", "evaluate"]
    run: str
    generation: int
    round: int
    content: State
    keeps: bool = False
    ack: str | None = None
    recalls: bool = False


@dataclass(frozen=True)
class Reply:
    """A client's answer: an update, measures, a mismatch where one side has lost its state.

    A failure is an error of the client's own; "lost" says that there will be no answer.
    ``update`` names an update, ``base`` the one before it that counted. ``seconds`` is what the
    client's own work took, ``reason`` what went wrong in a failure.
    """

    answers: str
    client: int
    kind: Literal["update", "measures", "mismatch", "failure", "lost"]
    generation: int
    round: int
    content: State = field(default_factory=dict)
    update: str = ""
    base: str | None = None
    prox_calls: int = 0
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Presence:
    """A client that is there: how many samples it has for training, and how many held out."""

    samples: int
    held_out: int = 0


class Network(Protocol):
    """Carries messages to clients and replies back; both may be lost, late or doubled."""

    def present(self) -> dict[int, Presence]:
        """The clients that are there now."""
        ...

    def send(self, messages: list[Message]) -> None:
        """Send messages to clients that are there."""
        ...

    def receive(self, seconds: float) -> list[Reply]:
        """The replies that have come; waits for the first one, but not longer than so many."""
        ...

    def use_folder(self, folder: Path) -> None:
        """The run is kept in this folder: clients of this machine may keep their states there."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


class LosslessVector(Encoded):
    """A vector as ``Lossless`` encodes it."""


def packed(content: State) -> State:
    """The message with its vectors as they travel: by their entries other than 0 if shorter."""
    lossless = Lossless()
    return {
        name: LosslessVector(lossless.encode(v), v) if isinstance(v, Tensor) else v
        for name, v in content.items()
    }
