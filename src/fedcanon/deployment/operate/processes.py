"""Processes that are started, watched and ended together."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

GRACE = 15.0
"""Seconds to end by itself when asked to."""


class Processes:
    """Named processes, each in a group of its own, so that its children end with it.

    Args:
        folder: Where they work.
        logs: The folder for a file with what each of them prints.
    """

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder, self._logs = folder, logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        with self._log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is for us
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )

    def stop(self, name: str) -> None:
        """End a process and what it has started, by force if it takes too long."""
        process = self._running.pop(name)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        if sys.platform != "win32":
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @property
    def names(self) -> list[str]:
        """The names of all that were started and not stopped, the latest first."""
        return list(reversed(self._running))

    def code(self, name: str) -> int | None:
        """Return the exit code of a process; None while it runs."""
        return self._running[name].poll()

    def said(self, name: str) -> str:
        """Return what a process has printed, without colours."""
        log = self._log(name)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    def last_words(self, name: str) -> str:
        """Return the last line that a process has printed, and where the others are."""
        lines = [line.strip() for line in self.said(name).splitlines() if line.strip()]
        return f"{lines[-1] if lines else 'it said nothing'} (see {self._log(name)})"

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"


def _end_with_parent() -> None:
    """Let Linux end this process when its parent is killed and cannot do it."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)
