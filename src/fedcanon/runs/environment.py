"""A description of the machine and the software of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

LIBRARIES = ("fedcanon", "torch", "numpy", "scipy", "scikit-learn", "numba")


def environment() -> dict[str, Any]:
    """Return versions, hardware, the command, and the commit of the current folder."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "commit": _commit(Path.cwd()),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "threads": torch.get_num_threads(),
        "cuda": [torch.cuda.get_device_name(device) for device in range(torch.cuda.device_count())],
    }


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
