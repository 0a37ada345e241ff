"""What the server of secure sums writes into the folder of the run, beside its checkpoints."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import TypeAdapter
from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.checkpoint import read_tree, write_tree
from fedcanon.errors import FedcanonError
from fedcanon.files import Count, read_json, write_whole

_ATTEMPTS = "attempts.json"
_OPENED = "opened.safetensors"
_COUNT: TypeAdapter[int] = TypeAdapter(Count)


@dataclass(frozen=True)
class Opened:
    """A sum that the server knows: Σ w_i u_i, and the names of the updates in it."""

    updates: dict[int, str]
    total: Tensor


@dataclass
class Journal:
    """Two files: the number of attempts so far, and the last sum that was opened.

    Args:
        folder: The folder of the run; None writes nothing.
    """

    folder: Path | None = None
    _last: State | None = None

    def attempts(self) -> int:
        """Return the number of attempts that was written last."""
        return 0 if self.folder is None else read_json(self.folder / _ATTEMPTS, _COUNT) or 0

    def count(self, attempts: int) -> None:
        """Write the number of attempts; it is durable at the end."""
        if self.folder is not None:
            write_whole(self.folder / _ATTEMPTS, str(attempts))

    def keep(self, place: State, opened: Opened) -> None:
        """Write a sum that was opened; ``place`` says in which round of which run."""
        self._last = place
        if self.folder is not None:
            updates = {str(client): update for client, update in opened.updates.items()}
            content = {"place": place, "updates": updates, "total": opened.total}
            write_whole(self.folder / _OPENED, lambda path: write_tree(path, content))

    def opened(self, place: State) -> Opened | None:
        """Return the sum that was opened in this place, if it was not counted yet."""
        path = None if self.folder is None else self.folder / _OPENED
        if path is not None and path.exists() and self._last in (None, place):
            with suppress(FedcanonError):  # a damaged file is as good as none
                found = read_tree(path, torch.device("cpu"))
                if found.get("place") == place:
                    updates = {int(client): name for client, name in found["updates"].items()}
                    return Opened(updates, found["total"])
        return None
