"""The environment of Flower's programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def flower_environment(home: Path) -> dict[str, str]:
    """Return this process's environment, with Flower's settings and commands.

    Flower keeps its own files in ``home``. It sends nothing to its makers and installs nothing.
    """
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }
