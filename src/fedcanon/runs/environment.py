"""A description of the machine and the software of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import torch

from fedcanon.errors import FedcanonError
from fedcanon.units import GIB

LIBRARIES = ("fedcanon", "torch", "numpy", "scipy", "scikit-learn", "numba")


@dataclass(frozen=True)
class Environment:
    """Versions, hardware, the command and the commit of the working folder.

    ``automatic`` names the settings that were "auto" before they were filled in.
    """

    started: str
    command: list[str]
    python: str
    versions: dict[str, str]
    commit: str | None
    system: str
    processor: str
    cores: int | None
    memory_gib: float
    threads: int
    cuda: list[str]
    automatic: list[str] = field(default_factory=list)

    @classmethod
    def here(cls, automatic: list[str]) -> Environment:
        """The environment of this process."""
        return cls(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            command=sys.argv,
            python=platform.python_version(),
            versions={name: importlib.metadata.version(name) for name in LIBRARIES},
            commit=_commit(Path.cwd()),
            system=platform.platform(),
            processor=_processor(),
            cores=os.cpu_count(),
            memory_gib=round(_memory() / GIB, 1),
            threads=torch.get_num_threads(),
            cuda=[torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())],
            automatic=automatic,
        )

    @property
    def software(self) -> str:
        """The libraries and Python with their versions, in one line."""
        libraries = {**self.versions, "Python": self.python}
        return ", ".join(f"{name} {version}" for name, version in libraries.items())

    @property
    def hardware(self) -> str:
        """Processor, cores, threads, memory and graphics cards, in one line."""
        threads = f"{self.threads} thread{'s' if self.threads != 1 else ''} used"
        memory = f"{self.memory_gib} GiB"
        return ", ".join([self.processor, f"{self.cores} cores", threads, memory, *self.cuda])


def _memory() -> int:
    if sys.platform != "win32":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    raise FedcanonError("runs are kept on Linux and macOS: use the Windows Subsystem for Linux.")


@cache  # the code of a process is that of its beginning
def _commit(folder: Path) -> str | None:
    """Return the git commit of a folder, marked "dirty" if files have changed, or None."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
