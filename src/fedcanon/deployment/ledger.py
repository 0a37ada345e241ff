"""What a client stores that keeps its own state.

Every update has a name and names the accepted update before it. A client stores at most one update
of which it does not know whether the server has accepted it; the server's next message tells. It
writes the update to disk before it replies, so that a crash at any moment loses nothing.
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
from fedcanon.files import private_file, private_folder


@dataclass(frozen=True)
class Pending:
    """An update of which the client does not know yet whether it was accepted.

    ``message_digest`` is the hash of the message that it answers. If the update is accepted,
    ``state`` becomes the client's state.
    """

    round: int
    message_digest: str
    update: str
    state: State
    upload: State


@dataclass(frozen=True)
class Account:
    """All that a client stores of a run.

    Args:
        generation: The last generation that the client knows.
        state: Its state after its last accepted update; None if it has none yet.
        base: The name of that update; None at the start of a generation.
        answered: The last round for which it has computed an update.
        previous: The broadcast of that round, if the method can ``recall`` from it.
        pending: The update of which it does not know whether it was accepted.
        writes: How often the account has been written.
    """

    generation: int = 0
    state: State | None = None
    base: str | None = None
    answered: int = -1
    previous: State = field(default_factory=dict)
    pending: Pending | None = None
    writes: int = 0

    def after(self, message: Message) -> Account | None:
        """Return the account after a message, or None if client or server has lost its state.

        If the result has a pending update, the client must send that again. Otherwise it must
        compute a new one.
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
            account = replace(account, pending=None)  # it was not accepted and never will be
        elif pending is not None and pending.message_digest != digest(message.content):
            return None  # a server restored from a checkpoint sends other content in this round
        if account.pending is None and message.round <= account.answered:
            return None
        return account


def digest(content: State) -> str:
    """Return a hash of the content of a message."""
    found = hashlib.blake2b(digest_size=16)
    for name, entry in sorted(decoded(content).items()):
        is_vector = isinstance(entry, Tensor)
        found.update(f"{name}={entry.dtype if is_vector else repr(entry)};".encode())
        if is_vector:
            found.update(entry.detach().cpu().contiguous().numpy().data)
    return found.hexdigest()


def own_secret(folder: Path) -> int:
    """Return the secret random number in a folder; draw it and store it at the first call.

    Raises:
        FedcanonError: The file with the number is damaged.
    """
    path = folder / "secret"
    private_folder(folder)
    with suppress(FileExistsError), private_file(path) as file:
        file.write(secrets.token_hex(16).encode())
    try:
        return int(path.read_text(encoding="ascii"), 16)
    except ValueError:
        raise FedcanonError(f"{path} is damaged: remove it, and a new one will be drawn.") from None


class Storage(Protocol):
    """Storage of states: a state is written completely or not at all."""

    def save(self, t: int, state: State) -> None:
        """Store a state durably; states with larger numbers ``t`` are newer."""
        ...

    def load(self, device: torch.device) -> State | None:
        """Return the newest state, or None if there is none."""
        ...


@dataclass
class Ledger:
    """Stores the account of a client, so that it survives the end of the process."""

    storage: Storage

    @classmethod
    def on_disk(cls, folder: Path, client: int, run: str) -> Ledger:
        """Return the ledger of a client for a run, in a folder on the client's machine."""
        return cls(Checkpoints(folder / run / f"client-{client}", keep=1))

    def load(self) -> Account:
        """Return the account as it was last saved, or a new one.

        Raises:
            FedcanonError: What is stored is no account.
        """
        saved = self.storage.load(torch.device("cpu"))
        if saved is None:
            return Account()
        try:
            pending = saved["pending"]
            if pending:
                upload = {name: _restored(entry) for name, entry in pending["upload"].items()}
                pending = Pending(**{**pending, "upload": upload})
            return Account(**{**saved, "pending": pending or None})
        except (KeyError, TypeError, AttributeError):
            raise FedcanonError(
                "what this client has stored of the run is damaged: remove the run's folder in its "
                "folder 'state', and it begins anew."
            ) from None

    def save(self, account: Account) -> None:
        """Store the account durably."""
        account = replace(account, writes=account.writes + 1)
        self.storage.save(account.writes, {**vars(account), "pending": _table(account.pending)})


def _table(pending: Pending | None) -> State | None:
    if pending is None:
        return None
    upload = {k: vars(v) if isinstance(v, Encoded) else v for k, v in pending.upload.items()}
    return {**vars(pending), "upload": upload}


def _restored(entry: Any) -> Any:
    return Encoded(**entry) if isinstance(entry, dict) else entry
