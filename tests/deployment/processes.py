"""A deployment in real processes on loopback, by the commands in the README that it comes with."""

import json
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import tomli_w
from typer.testing import CliRunner

from fedcanon.cli.app import app
from fedcanon.deployment.operate.folder import DeploymentFolder
from fedcanon.deployment.operate.sites import site_command
from tests.waiting import PATIENCE

BIN = Path(sys.executable).parent
MARK = "FEDCANON_TEST_DEPLOYMENT"
"""An environment variable by which the processes of a deployment are known."""


def free_ports(count):
    """The first of so many ports in a row that are free now.

    They are below those that Linux gives to connections, one of which could take them meanwhile.
    """
    for _ in range(100):
        first = 10_000 + secrets.randbelow(20_000)
        if all(is_free(first + k) for k in range(count)):
            return first
    raise AssertionError("no free ports")


def make_deployment(folder, *arguments):
    """Make the folder of a deployment by its command, without the start of another process."""
    made = CliRunner().invoke(app, ["deploy", "init", str(folder), *arguments])
    assert made.exit_code == 0, made.output


def is_free(port):
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) != 0


@dataclass
class Deployment:
    """The folder of a deployment, and the processes that were started from it."""

    folder: Path
    processes: dict = field(default_factory=dict)

    def __post_init__(self):
        readme = (self.folder / "README.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```bash\n(.*?)```", readme, re.DOTALL)
        [self.try_command], [self.server_command], _, run, keys = map(_commands, blocks)
        self.run_command, self.status_command, _ = run
        self.key_command = keys[-1][:-2]
        settings = DeploymentFolder(self.folder).environment
        self.environment = {**settings, MARK: str(self.folder), "OMP_NUM_THREADS": "1"}
        self.logs = self.folder.parent / "logs"
        self.logs.mkdir(exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        for name in list(self.processes):
            self.stop(name, signal.SIGKILL)
        self.kill_all()

    def kill_all(self, word=""):
        """Kill the processes of this deployment whose command has this word in it."""
        for process in psutil.process_iter(["cmdline"]):
            with suppress(psutil.Error):  # it has just ended, or is somebody else's
                mine = process.environ().get(MARK) == str(self.folder)
                if mine and word in " ".join(process.info["cmdline"] or []):
                    process.kill()

    def start(self, name, command):
        """Start a process in a group of its own, so that its children end with it."""
        with (self.logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.processes[name]

    def stop(self, name, how=signal.SIGTERM):
        process = self.processes.pop(name)
        group, others = process.pid, _descendants(process.pid)
        if how == signal.SIGTERM:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        for other in others:
            with suppress(psutil.NoSuchProcess):
                other.kill()
        process.wait(PATIENCE)

    def start_server(self):
        """Start the server and wait until sites can come in."""
        before = len(self.log("server"))
        server = self.start("server", self.server_command)

        def is_ready():
            assert server.poll() is None, self.log("server")
            return "ready" in self.log("server")[before:]

        self.until(is_ready, PATIENCE, "the server is ready")

    def change_site(self, client, node=None, **settings):
        """Change the settings of a site, and what ``load`` is given as its node."""
        file = self.folder / "sites" / str(client) / "site.toml"
        before = tomllib.loads(file.read_text())
        after = {**before, **settings, "node": {**before.get("node", {}), **(node or {})}}
        file.write_text(tomli_w.dumps(after))

    def start_site(self, client):
        site = self.folder / "sites" / str(client)
        return self.start(f"client-{client}", site_command(site))

    def nodes(self):
        """The node of every client, as the server has written them."""
        return json.loads((self.folder / "nodes.json").read_text())

    def online(self):
        """The nodes that the SuperLink says are there."""
        listed = self.call(["flwr", "supernode", "list", "deployment", "--format", "json"])
        nodes = json.loads(listed.stdout)["nodes"]
        return {int(node["node-id"]) for node in nodes if node["status"] == "online"}

    def start_run(self):
        return self.start("run", self.run_command)

    def call(self, command, *, check=True):
        return subprocess.run(
            command,
            env=self.environment,
            check=check,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def log(self, name):
        path = self.logs / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def until(self, holds, seconds, what):
        """Wait until something holds; fail with the logs if it takes too long."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                tails = "\n".join(
                    f"--- {p.name}\n{self.log(p.stem)[-3000:]}" for p in self.logs.iterdir()
                )
                raise AssertionError(f"not within {seconds} s: {what}\n{tails}")
            time.sleep(0.2)


def _descendants(process):
    try:
        return psutil.Process(process).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _commands(block):
    """The commands of a block, each as its words."""
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines() if line.strip()]
