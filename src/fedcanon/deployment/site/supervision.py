"""Starts what a site needs, and starts it again when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from fedcanon.deployment.flower.environment import flower_environment
from fedcanon.deployment.flower.internals import TESTED, is_tested
from fedcanon.deployment.flower.waiting import say
from fedcanon.deployment.site.flower import private_folder, supernode_arguments
from fedcanon.deployment.site.settings import Site
from fedcanon.errors import FedcanonError
from fedcanon.files import explained

DELAY = 5.0
"""Seconds before what has ended is started again."""

GRACE = 10.0
"""Seconds to end by itself when asked to."""


@dataclass
class _Process:
    """A process in a group of its own, so that its children end with it."""

    name: str
    command: list[str]
    environment: dict[str, str]
    due: float = 0.0
    running: subprocess.Popen[bytes] | None = None

    def keep_up(self) -> None:
        """Start the process if it is due, and notice if it has ended."""
        if self.running is None:
            if time.monotonic() >= self.due:
                self.running = subprocess.Popen(
                    self.command, env=self.environment, start_new_session=True, umask=0o077
                )
                say(f"{self.name} started, process {self.running.pid}")
        elif (code := self.running.poll()) is not None:
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
            say(f"{self.name} ended {how}: again in {DELAY:.0f} s")
            self.running, self.due = None, time.monotonic() + DELAY

    def ask_to_end(self) -> None:
        self._send(signal.SIGTERM)

    def end(self, until: float) -> None:
        """Wait for the end until a moment, and then force it."""
        if self.running is not None:
            with suppress(subprocess.TimeoutExpired):
                self.running.wait(max(0.0, until - time.monotonic()))
            if sys.platform != "win32":
                self._send(signal.SIGKILL)
            self.running.wait()

    def _send(self, what: signal.Signals) -> None:
        if self.running is not None and sys.platform != "win32":
            with suppress(ProcessLookupError):
                os.killpg(self.running.pid, what)


def run_site(site: Site) -> None:
    """Run a SuperNode and its worker until SIGTERM or Ctrl-C.

    With a Flower or a system that was not tested, the SuperNode starts its processes itself.

    Raises:
        FedcanonError: The folder for the state cannot be made, or the system is Windows.
    """
    if os.name == "nt":
        raise FedcanonError("a site needs Linux or macOS: use one of them.")
    with explained(f"cannot make {site.state}"):
        site.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with private_folder(site) as private:
        processes = _processes(site, private)
        try:
            while not ended.wait(0.2):
                for process in processes:
                    process.keep_up()
        finally:
            for process in processes:
                process.ask_to_end()
            until = time.monotonic() + GRACE
            for process in processes:
                process.end(until)
    say("ended")


def _processes(site: Site, private: Path) -> list[_Process]:
    can_fork = is_tested() and sys.platform == "linux"
    arguments = supernode_arguments(site, private, with_worker=can_fork)
    settings = flower_environment(private / "flower")
    settings["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = "0.1"  # by default a second for each message
    if can_fork:
        python = [sys.executable, "-m"]
        supernode = [*python, "fedcanon.deployment.site.supernode", *arguments]
        worker = [*python, "fedcanon.deployment.site.worker", str(site.port), str(private)]
        return [_Process("SuperNode", supernode, settings), _Process("worker", worker, settings)]
    say(
        f"Flower {version('flwr')} on {sys.platform} was not tested, only {TESTED}x on linux: the "
        "SuperNode starts a process for every message, and other users of this machine can take "
        f"messages from port {site.port}"
    )
    supernode = [str(Path(sys.executable).with_name("flower-supernode")), *arguments]
    return [_Process("SuperNode", supernode, settings)]
