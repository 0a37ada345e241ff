"""What a dataset on disk is, before it is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcanon.data.dataset import Dataset


def data_folder() -> Path:
    """Where datasets are looked for: ``FEDCANON_DATA``, or ``~/.fedcanon/data``."""
    return Path(os.environ.get("FEDCANON_DATA") or Path.home() / ".fedcanon" / "data")


class AbsentError(Exception):
    """Files of a dataset that are not in its folder."""


@dataclass(frozen=True)
class Source:
    """A dataset in the files that its authors publish.

    ``files`` finds these in a folder or raises ``AbsentError``; ``decode`` makes a dataset of them,
    and counts its changes in ``version``.
    """

    name: str
    about: str
    download: str
    files: Callable[[Path], list[Path]]
    decode: Callable[[Path, Sequence[Path]], Dataset]
    version: int = 1
