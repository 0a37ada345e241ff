"""The messages between the server and the clients of a deployment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.compression import Encoded, Lossless

Number = Annotated[int, Field(ge=0, lt=2**40)]
"""A number of a client, a generation, a round or samples, as it may stand in a message."""

Name = Annotated[str, Field(pattern="^[0-9A-Za-z_-]{0,64}$")]
"""The name of a message, a run or an update: names become names of files and stand in tables."""

Hex = Annotated[str, Field(pattern="^([0-9a-f]{2}){0,160}$")]
"""Bytes of a secure sum, in hexadecimal digits."""

Peers = Annotated[dict[Number, Hex], Field(max_length=1000)]
"""What a message of a secure sum has from or for each client."""

Kind = Literal["train", "evaluate", "keys", "shares", "confirm", "unmask"]
"""What a message asks."""

Answer = (
    Literal["update", "measures", "mismatch", "failure", "lost"]
    | Literal["keys", "shares", "confirm", "unmask"]
)
"""What a reply is."""

START = "start"
"""The entry with the model at the beginning of the generation, for a client without a state.

It is left out if it is the same as the "z" of the broadcast.
"""


_MEASURE = "measure/"
"""The prefix of entries about a model that clients measure while they train."""


@dataclass(frozen=True)
class Message:
    """The server's request to one client: to train in a round, or to evaluate a model.

    The kinds "keys", "shares", "confirm" and "unmask" are the other questions of a secure sum; see
    ``secure``.

    Args:
        id: The name of this message.
        client: The number of the client.
        kind: What the client is asked to do.
        run: The name of the run, under which a client stores its state.
        generation: The generation of the round.
        round: The number of the round.
        content: The broadcast, or the model to be evaluated.
        keeps: Whether the client stores its own state.
        ack: The name of the client's last accepted update in this generation.
        recalls: Whether the client computes a part of the broadcast itself; see ``Recalling``.
        scale: The largest entry of an update in a secure sum, in its first question.
        broadcast: The digest of the broadcast that will follow, also there.
        peers: What the server passes on in a secure sum: to "shares" the signed keys of all
            clients, to "train" the boxes for this client, to "confirm" who has survived, to
            "unmask" the same with their signatures.
    """

    id: Name
    client: Number
    kind: Kind
    run: Name
    generation: Number
    round: Number
    content: State
    keeps: bool = False
    ack: Name | None = None
    recalls: bool = False
    scale: Annotated[float, Field(ge=0, lt=1e100)] = 0.0
    broadcast: Name = ""
    peers: Peers = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """A client's answer to a message.

    Args:
        answers: The name of the message.
        client: The number of the client.
        kind: "update" after training; "measures" after an evaluation; "mismatch" if client or
            server has lost its state; "failure" after an error of the client; "lost" if there will
            be no answer; "keys", "shares", "confirm" and "unmask" after these questions of a secure
            sum.
        generation: The generation of the round; for a mismatch, the one that the client knows.
        round: The number of the round.
        content: The upload, or the measures.
        update: The name of this update.
        base: The name of the client's last accepted update, on which this one is based.
        prox_calls: How often the client has evaluated the prox.
        seconds: How long the client has worked.
        reason: What went wrong in a failure.
        peers: In a secure sum: the client's own signed keys, its boxes for all clients, its
            signature, or a share of one secret of each client.
    """

    answers: Name
    client: Number
    kind: Answer
    generation: Number
    round: Number
    content: State = field(default_factory=dict)
    update: Name = ""
    base: Name | None = None
    prox_calls: Annotated[int, Field(ge=0, le=10**6)] = 0
    seconds: Annotated[float, Field(ge=0, le=10**7)] = 0.0
    reason: Annotated[str, Field(max_length=2000)] = ""
    peers: Peers = field(default_factory=dict)


@dataclass(frozen=True)
class Presence:
    """What a connected client tells about its data.

    Args:
        samples: The number of training samples.
        held_out: The number of held-out samples.
        told: The numbers from which the server chooses step sizes that are "auto"; none if all are
            given. See ``told_by``.
    """

    samples: int
    held_out: int = 0
    told: tuple[float, ...] = ()


class Network(Protocol):
    """Carries messages to clients and their replies; it may lose, delay or repeat both."""

    def present(self) -> dict[int, Presence]:
        """Return the clients that are connected now."""
        ...

    def send(self, messages: Iterable[Message]) -> None:
        """Send messages to clients, each as it is made; to absent clients they may be dropped."""
        ...

    def receive(self, seconds: float) -> list[Reply]:
        """Return the replies that have come; wait at most ``seconds`` for the first one."""
        ...

    def use_folder(self, folder: Path) -> None:
        """Let clients on this machine store their states in the folder of the run."""
        ...

    def close(self) -> None:
        """End the processes and threads that were started."""
        ...


class LosslessVector(Encoded):
    """A vector in the encoding of ``Lossless``."""


def packed(content: State) -> State:
    """Return the message with its vectors encoded without loss: a sparse vector becomes shorter."""
    lossless = Lossless()
    return {
        name: LosslessVector(lossless.encode(v), v) if isinstance(v, Tensor) else v
        for name, v in content.items()
    }


def joined(content: State, measures: State) -> State:
    """Add what is asked or told of a model's measures to the content of a round."""
    return {**content, **{f"{_MEASURE}{name}": entry for name, entry in measures.items()}}


def parted(content: State) -> tuple[State, State]:
    """Separate the content of a round from what is asked or told of a model's measures."""
    measures = {k.removeprefix(_MEASURE): v for k, v in content.items() if k.startswith(_MEASURE)}
    return {k: v for k, v in content.items() if not k.startswith(_MEASURE)}, measures
