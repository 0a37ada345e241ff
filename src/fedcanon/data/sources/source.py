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
    """A dataset's folder lacks files; the message names one of them."""


@dataclass(frozen=True)
class Source:
    """A dataset in the files that its authors publish.

    Args:
        name: Its name, which is also that of its folder.
        about: What it is, in one line.
        download: Which files to put into the folder, and where they are to be had.
        files: Finds the files in a folder, or raises ``AbsentError``.
        decode: Makes a dataset of a folder and the files found there.
        version: Counts the changes of ``decode``, so that what an earlier one decoded is not used.
    """

    name: str
    about: str
    download: str
    files: Callable[[Path], list[Path]]
    decode: Callable[[Path, Sequence[Path]], Dataset]
    version: int = 1
