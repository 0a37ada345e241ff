"""A dry run of a deployment on one machine, with a verdict for every check."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from safetensors.torch import load_file

from fedcanon.deployment.app.credentials import write_node_key
from fedcanon.deployment.flower.nodes import read_nodes
from fedcanon.deployment.operate.checks import (
    Verdict,
    check_certificate,
    check_doors,
    check_loopback,
    check_secrets,
)
from fedcanon.deployment.operate.copying import ROUNDS, SAMPLES, copy_of, free_ports
from fedcanon.deployment.operate.folder import CONNECTION, DeploymentFolder
from fedcanon.deployment.operate.keys import check_keys, replace_key
from fedcanon.deployment.operate.processes import Processes
from fedcanon.deployment.operate.server import running
from fedcanon.deployment.operate.sites import site_command, supernode
from fedcanon.deployment.status import read_status
from fedcanon.errors import FedcanonError
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.training import MODEL

PATIENCE = 300.0
"""Seconds in which something must happen: a site comes in, a stranger is refused, a round ends."""

IMPOSTORS_SAMPLES = 5 * SAMPLES
"""By its number of samples it is seen whether a site or an impostor was believed."""


class Trial:
    """A dry run: the server, all sites and some strangers.

    Args:
        folder: The deployment, which is not touched.
        place: A folder to make for the copy and its logs.
        progress: Is called with what is being done now.
    """

    def __init__(
        self, folder: DeploymentFolder, place: Path, progress: Callable[[str], None]
    ) -> None:
        self._original, self._progress = folder, progress
        self._copy, self._public = copy_of(folder, place)
        self._logs = place / "logs"
        self._logs.mkdir()
        self._processes = Processes(place, self._logs)
        self._sites = sorted(self._copy.keys)

    def verdicts(self) -> list[Verdict]:
        """Do it all and return what was found; later checks are left out if one must fail them."""
        original = self._original
        found = [
            check_keys(original),
            check_certificate(original),
            check_secrets(original, "secrets"),
        ]
        self._progress("starting the server")
        try:
            with running(self._copy, self._note):
                found.append(
                    Verdict("server up", True, f"nginx and SuperLink, port {self._public}")
                )
                try:
                    found += self._with_server()
                finally:
                    self._progress("ending all processes")
                    for name in self._processes.names:
                        self._processes.stop(name)
        except FedcanonError as error:
            found.append(Verdict("server up", False, str(error)))
        return [*found, check_secrets(self._copy, "what the server writes")]

    def _with_server(self) -> list[Verdict]:
        self._progress("knocking at the doors")
        found = check_doors(self._public, self._copy.server / "ca.pem")
        found.append(check_loopback(self._copy.port, self._copy.loopback / "ca.pem"))
        self._start_strangers()
        first, *others = self._sites
        for client in others:
            self._start(f"site-{client}", site_command(self._copy.site(client)))
        found.append(self._refused("no-key", "a stranger without a key refused"))
        found.append(self._refused("unknown-key", "a key that is not registered refused"))
        self._progress("beginning the run, with an impostor in the place of a site")
        self._start("run", ["flwr", "run", str(self._copy.path), CONNECTION, "--stream"])
        self._until(lambda: "Sent successfully" in self._processes.said("impostor"))
        self._start(f"site-{first}", site_command(self._copy.site(first)))
        self._progress("waiting for the sites and round 1")
        run = RunFolder(self._copy.run)
        self._until(partial(self._has_done, run, 1))
        wanted = {read_nodes(self._copy.nodes)[client] for client in self._sites}
        here = wanted <= self._online()
        count = len(self._sites)
        found.append(Verdict("sites with their keys let in", here, f"{count} sites"))
        return [*found, *self._run_verdicts(run)] if here else found

    def _start_strangers(self) -> None:
        """Start a node without key, one with an unknown key, and one that claims a site's number.

        The last has a registered key, but for a number that no site has.
        """
        keys = self._copy.path / "strangers"
        keys.mkdir(mode=0o700)
        for name in ("unknown", "impostor"):
            write_node_key(keys / name)
        number = len(self._sites)
        replace_key(self._copy, number, keys / "impostor.pub", running=True)
        claim: dict[str, object] = {"client": self._sites[0], "samples": IMPOSTORS_SAMPLES}
        self._start("no-key", self._stranger(claim, None, answers=False))
        self._start("unknown-key", self._stranger(claim, keys / "unknown", answers=False))
        self._start("impostor", self._stranger(claim, keys / "impostor", answers=True))

    def _stranger(self, node: dict[str, object], key: Path | None, *, answers: bool) -> list[str]:
        [port] = free_ports(1)
        server, authority = f"127.0.0.1:{self._public}", self._copy.server / "ca.pem"
        return supernode(server, authority, port, node, key, answers=answers)

    def _run_verdicts(self, run: RunFolder) -> list[Verdict]:
        for goal in range(1, ROUNDS + 1):
            self._progress(f"round {goal} of {ROUNDS}")
            if not self._until(partial(self._has_done, run, goal)):
                words = self._processes.last_words("run")
                return [Verdict("rounds", False, f"round {goal} does not end: {words}")]
        self._until(lambda: run.result is not None)
        result, told = run.result, read_status(run.path)
        if result is None or told is None or run.data is None:
            return [Verdict("rounds", False, self._processes.last_words("run"))]
        alone = run.data.samples[0] == SAMPLES
        who = "the number stays with its key" if alone else "the impostor was believed"
        if set(run.data.samples) == {1}:  # which clients say that hide the number
            alone, who = True, "not seen: samples are private"
        times = told.since_start
        seconds = times.seconds / max(times.count, 1)
        own = times.client_seconds / max(times.count, 1)
        objective, finite = run.records()[-1].objective, _is_finite(run)
        measured = "" if math.isnan(objective) else f"f + h = {objective:.4g}"
        return [
            Verdict("a site that claims another's number refused", alone, who),
            Verdict("rounds", result.round == ROUNDS, f"{result.round} of {ROUNDS}"),
            Verdict("seconds a round", True, f"{seconds:.1f}, the slowest site's own {own:.1f}"),
            Verdict("model finite", finite, measured),
        ]

    @staticmethod
    def _has_done(run: RunFolder, rounds: int) -> bool:
        told = read_status(run.path)
        return told is not None and told.round >= rounds

    def _refused(self, name: str, check: str) -> Verdict:
        self._progress(f"waiting: {check}")
        ended = self._until(lambda: self._processes.code(name) is not None)
        passed = ended and self._processes.code(name) != 0
        codes = re.findall(r"code[^0-9\n]{0,20}(20\d\d)", self._processes.said(name))
        reason = f"by the SuperLink, error {codes[-1]}" if codes else ""
        return Verdict(check, passed, reason if passed else self._processes.last_words(name))

    def _online(self) -> set[int]:
        """Return the nodes that the SuperLink counts as connected."""
        command = ["flwr", "supernode", "list", CONNECTION, "--format", "json"]
        done = subprocess.run(command, env=self._copy.environment, capture_output=True, text=True)
        nodes = json.loads(done.stdout)["nodes"] if done.returncode == 0 else []
        return {int(node["node-id"]) for node in nodes if node["status"] == "online"}

    def _start(self, name: str, command: list[str]) -> None:
        self._processes.start(name, command, self._copy.environment)

    def _note(self, event: str) -> None:
        with (self._logs / "server.log").open("a", encoding="utf-8") as log:
            log.write(event + "\n")

    def _until(self, holds: Callable[[], bool]) -> bool:
        """Wait until something holds; return whether it did in time."""
        end = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > end:
                return False
            time.sleep(0.2)
        return True


def _is_finite(run: RunFolder) -> bool:
    """Tell whether all parameters of the trained model are finite."""
    return all(bool(part.isfinite().all()) for part in load_file(run.path / MODEL).values())
