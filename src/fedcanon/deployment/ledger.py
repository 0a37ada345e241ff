"""The books of a client that keeps its own state.

Every update has a name and says which one came before it. A client keeps at most one update of
which it does not know whether it counted, and decides by the server's next message. What it keeps
is written before it replies, so that a crash at any moment loses nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.checkpoint import Checkpoints
from fedcanon.compression import Encoded, decoded
from fedcanon.deployment.protocol import Message
from fedcanon.errors import FedcanonError
from fedcanon.files import private_file


@dataclass(frozen=True)
class Pending:
    """An update that was sent, of which it is not known yet whether it counted.

    ``question`` is a digest of the message that it answers.
    """

    round: int
    question: str
    update: str
    state: State
    upload: State


@dataclass(frozen=True)
class Account:
    """A client's committed state, and at most one update in the air.

    ``base`` names the last update that counted (None at the start of a generation), ``answered`` is
    the last round that was answered and ``previous`` what is recalled of its broadcast. ``writes``
    counts how often it was written.
    """

    generation: int = 0
    state: State | None = None
    base: str | None = None
    answered: int = -1
    previous: State = field(default_factory=dict)
    pending: Pending | None = None
    writes: int = 0

    def after(self, message: Message) -> Account | None:
        """The account once a message is known; None where one side has lost its state.

        With an update pending after this, the client sends it again; without one, it computes.
        """
        fresh = Account(message.generation, writes=self.writes)
        account = self if message.generation == self.generation else fresh
        if message.generation < self.generation:
            return None
        pending = account.pending
        if pending is not None and message.ack == pending.update:
            account = replace(account, state=pending.state, base=pending.update, pending=None)
        elif message.ack != account.base:
            return None
        elif pending is not None and pending.round != message.round:
            account = replace(account, pending=None)  # it did not count, and never will
        elif pending is not None and pending.question != digest(message.content):
            return None  # a server that was put back asks another question in the same round
        if account.pending is None and message.round <= account.answered:
            return None
        return account


def digest(content: State) -> str:
    """A short name of what a message holds."""
    found = hashlib.blake2b(digest_size=16)
    for name, entry in sorted(decoded(content).items()):
        is_vector = isinstance(entry, Tensor)
        found.update(f"{name}={entry.dtype if is_vector else repr(entry)};".encode())
        if is_vector:
            found.update(entry.detach().cpu().contiguous().numpy().data)
    return found.hexdigest()


def own_secret(folder: Path) -> int:
    """A number that only the owner of this folder knows, drawn when it is first asked for."""
    path = folder / "secret"
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), private_file(path) as file:
        file.write(secrets.token_hex(16).encode())
    try:
        return int(path.read_text(encoding="ascii"), 16)
    except ValueError:
        raise FedcanonError(f"{path} is damaged: remove it, and a new one will be drawn.") from None


class Kept(Protocol):
    """Where a state is kept: whole or not at all, and durable once ``save`` returns."""

    def save(self, t: int, state: State) -> None:
        """Keep a state; those with larger numbers are newer."""
        ...

    def load(self, device: torch.device) -> State | None:
        """The newest state; None where there is none."""
        ...


@dataclass
class Ledger:
    """An account that outlives its process."""

    kept: Kept

    @classmethod
    def on_disk(cls, folder: Path, client: int, run: str) -> Ledger:
        """The books of a client and a run in a folder of the client's own."""
        return cls(Checkpoints(folder / run / f"client-{client}", keep=1))

    def load(self) -> Account:
        """The account as it was last written; a new one where there is none."""
        kept = self.kept.load(torch.device("cpu"))
        if kept is None:
            return Account()
        pending = kept["pending"]
        if pending:
            upload = {name: _restored(entry) for name, entry in pending["upload"].items()}
            pending = Pending(**{**pending, "upload": upload})
        return Account(**{**kept, "pending": pending or None})

    def save(self, account: Account) -> None:
        """Write the account, whole or not at all, and make it durable."""
        account = replace(account, writes=account.writes + 1)
        self.kept.save(account.writes, {**vars(account), "pending": _table(account.pending)})


def _table(pending: Pending | None) -> State | None:
    if pending is None:
        return None
    upload = {k: vars(v) if isinstance(v, Encoded) else v for k, v in pending.upload.items()}
    return {**vars(pending), "upload": upload}


def _restored(entry: Any) -> Any:
    return Encoded(**entry) if isinstance(entry, dict) else entry
