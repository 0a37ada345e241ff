"""The server of a deployment: SuperLink, launcher and nginx, started and kept going."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcanon.deployment.app.credentials import write_certificates
from fedcanon.deployment.flower.internals import TESTED, is_tested
from fedcanon.deployment.operate.folder import DeploymentFolder
from fedcanon.deployment.operate.keys import register_all
from fedcanon.deployment.operate.processes import Processes
from fedcanon.errors import FedcanonError
from fedcanon.files import locked, private_file

PATIENCE = 60.0
"""Seconds in which a process must listen."""

RESTART = 5.0
"""Seconds between the end of a process and its next start."""


class Server:
    """The processes of a deployment's server.

    The SuperLink and its launcher listen to this machine only, with certificates and secrets that
    are made here and that only this user may read. nginx is what sites reach.

    Args:
        folder: The deployment.
        report: Is called with one line for every event.
    """

    def __init__(self, folder: DeploymentFolder, report: Callable[[str], None]) -> None:
        self._folder, self._report = folder, report
        self._processes = Processes(folder.path, folder.logs)
        self._commands = self._all_commands()

    def start(self) -> None:
        """Start everything; the keys are registered before a site can come in.

        Raises:
            FedcanonError: A process does not start; the message has what it said last.
        """
        self._start("superlink")
        self._wait_for("superlink", lambda: answers("127.0.0.1", self._folder.port))
        for client, node in register_all(self._folder).items():
            self._report(f"client {client} is node {node}")
        self._start("launcher")
        listens = self._folder.server / "nginx" / "pid"  # nginx writes it when it has its port
        listens.unlink(missing_ok=True)
        self._start("nginx")
        self._wait_for("nginx", listens.exists)

    def keep(self, stop: threading.Event) -> None:
        """Start again whatever ends, until ``stop`` is set.

        A SuperLink that was restarted knows no key: all are registered again. The run that was
        going on is lost to Flower; 'fedcanon deploy run' continues it from its checkpoint.
        """
        while not stop.wait(0.2):
            ended = [
                name for name in self._processes.names if self._processes.code(name) is not None
            ]
            for name in ended:
                self._report(f"{name} has ended: {self._processes.last_words(name)}")
            if "superlink" in ended:
                self._restart(stop)
            else:
                for name in ended:
                    self._processes.stop(name)
                    if not stop.wait(RESTART):
                        self._start(name)

    def _restart(self, stop: threading.Event) -> None:
        """Start everything again, as often as it takes."""
        while True:
            for name in self._processes.names:
                self._processes.stop(name)
            if stop.wait(RESTART):
                return
            try:
                self.start()
            except FedcanonError as error:
                self._report(str(error))
            else:
                self._report("ready again: 'fedcanon deploy run' continues the run")
                return

    def end(self) -> None:
        """End all processes, nginx first."""
        for name in self._processes.names:
            self._processes.stop(name)
            self._report(f"{name} is stopped")

    def _all_commands(self) -> dict[str, list[str]]:
        folder, secrets = self._folder, self._folder.loopback
        ours = [sys.executable, "-m", "fedcanon.deployment.operate.flower"]
        secret = ["--superexec-auth-secret-file", str(secrets / "secret")]
        certificates = ["--ssl-ca-certfile", str(secrets / "ca.pem")]
        certificates += ["--ssl-certfile", str(secrets / "server.pem")]
        certificates += ["--ssl-keyfile", str(secrets / "server.key")]
        here = ["--host", "127.0.0.1", "--port", str(folder.port)]
        superlink = ["superlink", *here, *certificates, "--enable-supernode-auth", *secret]
        launcher = ["superexec", "--runtime-api-address", folder.address, *secret]
        launcher += ["--root-certificates", str(secrets / "ca.pem"), "--parent-pid"]
        return {
            "superlink": [*ours, *superlink, "--isolation", "process"],
            "launcher": [*ours, *launcher, str(os.getpid())],
            "nginx": [_nginx(), "-p", str(folder.server), "-c", str(folder.server / "nginx.conf")],
        }

    def _start(self, name: str) -> None:
        self._processes.start(name, self._commands[name], self._folder.environment)
        self._report(f"{name} is started")

    def _wait_for(self, name: str, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            if self._processes.code(name) is not None or time.monotonic() > end:
                words = self._processes.last_words(name)
                raise FedcanonError(f"{name} does not start: {words}")
            time.sleep(0.1)


@contextmanager
def running(folder: DeploymentFolder, report: Callable[[str], None]) -> Iterator[Server]:
    """Run the server of a deployment; no second one can be started in the same folder.

    All that the server and its processes write is for their owner alone.

    Raises:
        FedcanonError: It runs already, Flower is another version than was tested, a port is taken,
            nginx is missing, or it does not start.
    """
    before = os.umask(0o077)
    try:
        with locked(folder.server, f"the server of {folder.path} runs already: end it first."):
            if not is_tested():
                raise FedcanonError(f"this needs Flower {TESTED}x: pip install 'fedcanon[flower]'.")
            if answers("127.0.0.1", folder.port):
                raise FedcanonError(
                    f"port {folder.port} is in use on this machine: end what uses it, or change "
                    "the port in flower/config.toml and in server/nginx.conf."
                )
            _write_secrets(folder)
            server = Server(folder, report)
            try:
                server.start()
                yield server
            finally:
                server.end()
    finally:
        os.umask(before)


def is_running(folder: DeploymentFolder) -> bool:
    """Tell whether the server of a deployment runs."""
    try:
        with locked(folder.server, ""):
            return False
    except FedcanonError:
        return True


def answers(host: str, port: int) -> bool:
    """Tell whether something listens there."""
    with socket.socket() as trial:
        trial.settimeout(5)
        return trial.connect_ex((host, port)) == 0


def _write_secrets(folder: DeploymentFolder) -> None:
    """Make new certificates and a new secret for the SuperLink on its own machine."""
    if folder.loopback.is_dir():
        shutil.rmtree(folder.loopback)  # ours, from the last start
    write_certificates(folder.loopback, ["localhost", "127.0.0.1"])
    with private_file(folder.loopback / "secret") as file:
        file.write(os.urandom(32).hex().encode())
    folder.logs.mkdir(exist_ok=True)
    (folder.server / "nginx").mkdir(exist_ok=True)


def _nginx() -> str:
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which("nginx", path=places)
    if found is None:
        raise FedcanonError(
            "nginx is not installed, which keeps strangers out of Flower's port: install it, on "
            "Debian with 'apt-get install nginx-light'."
        )
    return str(Path(found))
