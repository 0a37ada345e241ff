"""How often a client answers in private runs, as it counts itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from fedcanon.errors import FedcanonError
from fedcanon.files import Count, private_folder, read_json, write_whole
from fedcanon.privacy import Privacy

_COUNT: TypeAdapter[int] = TypeAdapter(Count)


@dataclass(frozen=True)
class Allowance:
    """Counts how many updates were computed from a client's data, on the client's own disk.

    A server that is not trusted could ask too often, or begin one run after the other: the count is
    for all runs together.

    Args:
        path: The file with the count.
        privacy: The guarantee, whose budget limits it.
    """

    path: Path
    privacy: Privacy

    def spend(self) -> None:
        """Count another update; it is on disk before anything is computed.

        Raises:
            FedcanonError: That would exceed the budget.
        """
        done = read_json(self.path, _COUNT) or 0
        if not self.privacy.allows(done + 1):
            raise FedcanonError(
                f"this client has computed {done:,} updates, as many as its privacy budget allows: "
                f"if another run may spend as much again, remove {self.path}."
            )
        private_folder(self.path.parent)
        write_whole(self.path, str(done + 1))
