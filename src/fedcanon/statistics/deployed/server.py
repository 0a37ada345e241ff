"""The Flower app of the server of a study."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid, ServerApp
from flwr.superlink.grid import http_grid

from fedcanon.deployment.app.project import REPORT, STUDY
from fedcanon.deployment.flower.internals import ask_again_soon
from fedcanon.deployment.flower.nodes import FILE as NODES
from fedcanon.deployment.flower.nodes import Nodes
from fedcanon.deployment.flower.waiting import FOR_REPLIES, pause
from fedcanon.errors import FedcanonError
from fedcanon.runs.config import read_toml, validated
from fedcanon.statistics.deployed.client import RECORD
from fedcanon.statistics.deployed.wire import to_answer, to_request
from fedcanon.statistics.findings import investigate
from fedcanon.statistics.report import write_coefficients, write_report
from fedcanon.statistics.settings import StudySettings
from fedcanon.tables.site import Answer
from fedcanon.text import printable

COEFFICIENTS = "coefficients.csv"
"""The table that a study writes beside its report."""

ATTEMPTS = 3
"""A site that has failed so often to answer a request ends the study."""

Say = Callable[[str], object]


def study_server(folder: Path) -> ServerApp:
    """Return the server of the study in a folder; its report is written when it is done."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        torch.set_num_threads(1)
        ask_again_soon(http_grid, "pull_objects")
        target = Path(str(context.run_config["folder"]))
        try:
            _do_study(grid, folder, target, int(str(context.run_config["clients"])))
        except FedcanonError as error:  # Flower would print a traceback
            _say(f"error: {error}")

    return app


def _do_study(grid: Grid, folder: Path, target: Path, clients: int) -> None:
    settings = validated(StudySettings, read_toml(folder / STUDY))
    target.mkdir(mode=0o700, exist_ok=True)
    for name in (REPORT, COEFFICIENTS):  # of an earlier study, which is done again
        (target / name).unlink(missing_ok=True)
    sites = GridSites(grid, clients, Nodes(target.parent / NODES), _say)
    found = investigate(sites, settings, settings.columns, _Progress())
    write_coefficients(found, target / COEFFICIENTS)
    write_report(found, target / REPORT)
    _say(f"report written to {target / REPORT}")


class GridSites:
    """The sites of a study, as nodes of a Flower grid.

    Requests change nothing at a site, so that one that was not answered is simply sent again.

    Args:
        grid: Flower's grid.
        clients: How many sites there are; the study begins when all are there.
        nodes: Says which node may speak for which site.
        say: Is called with a line for every event.
        deadline: Seconds in which a site must answer a request.
        poll: The most seconds between two looks for replies.
    """

    def __init__(
        self,
        grid: Grid,
        clients: int,
        nodes: Nodes,
        say: Say,
        deadline: float = 600.0,
        poll: float = FOR_REPLIES,
    ) -> None:
        self._grid, self._nodes, self._say = grid, nodes, say
        self._deadline, self._poll = deadline, poll
        self._sites = self._introduced(clients)

    @property
    def names(self) -> list[str]:
        return list(self._sites)

    def ask(
        self, what: str, sites: int, arguments: Mapping[str, Any]
    ) -> dict[str, Answer | FedcanonError]:
        text = to_request(what, sites, arguments)
        found: dict[str, Answer | FedcanonError] = {}
        for attempt in range(1, ATTEMPTS + 1):
            waiting = {name: node for name, node in self._sites.items() if name not in found}
            replies = self._exchange({node: {"request": text} for node in waiting.values()})
            for name, node in waiting.items():
                reply = replies.get(node, {}).get("reply")
                if isinstance(reply, str):
                    found[name] = to_answer(what, arguments, name, reply)
            if len(found) == len(self._sites):
                break
            missing = ", ".join(sorted(self._sites.keys() - found.keys()))
            self._say(f"no answer from {missing} (attempt {attempt} of {ATTEMPTS})")
        lost = {
            name: FedcanonError(f"the site {name} does not answer: look at it, and begin again.")
            for name in self._sites.keys() - found.keys()
        }
        return {name: found[name] if name in found else lost[name] for name in self._sites}

    def _introduced(self, clients: int) -> dict[str, int]:
        """Wait for all sites, and return their nodes by name, in the order of their numbers."""
        known: dict[int, tuple[str, int]] = {}
        told: set[int] | None = None
        begun = time.monotonic()
        while missing := set(range(clients)) - known.keys():
            if missing != told:
                self._say(f"waiting for sites {', '.join(map(str, sorted(missing)))} …")
                told = missing
            new = set(self._grid.get_node_ids()) - {node for _, node in known.values()}
            for node, content in self._exchange({node: {} for node in new}, 30.0).items():
                client, name = content.get("client"), content.get("name")
                if not isinstance(client, int) or not isinstance(name, str):
                    continue
                if self._nodes.refusal(client, node) is None and client in missing:
                    known[client] = printable(name)[:60] or f"site {client}", node
            time.sleep(pause(begun, self._poll))
        names = [known[client][0] for client in sorted(known)]
        for name in names:
            if names.count(name) > 1:
                raise FedcanonError(f"two sites have the name {name}: give each its own.")
        return {known[client][0]: known[client][1] for client in sorted(known)}

    def _exchange(
        self, contents: Mapping[int, dict[str, Any]], seconds: float | None = None
    ) -> dict[int, Mapping[str, Any]]:
        """Send each node its content, and return what those that answer in time reply."""
        limit = self._deadline if seconds is None else seconds
        messages = [
            FlowerMessage(RecordDict({RECORD: ConfigRecord(content)}), node, "query", ttl=limit)
            for node, content in contents.items()
        ]
        if not messages:
            return {}
        pushed = list(self._grid.push_messages(messages))
        waiting = dict(zip(pushed, contents, strict=True))
        found: dict[int, Mapping[str, Any]] = {}
        begun = time.monotonic()
        while waiting and time.monotonic() < begun + limit:
            for answer in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(answer.metadata.reply_to_message_id, None)
                if node is None or answer.metadata.src_node_id != node:
                    continue
                if answer.has_error():
                    self._say(f"node {node}: {printable(str(answer.error.reason))[:500]}")
                elif RECORD in answer.content.config_records:
                    found[node] = dict(answer.content.config_records[RECORD])
            time.sleep(pause(begun, self._poll))
        return found


class _Progress:
    """Says what is being done, and every tenth of it."""

    def __init__(self) -> None:
        self._last = ("", -1)

    def __call__(self, what: str, done: int, of: int) -> None:
        tenth = 10 * done // max(1, of)
        if (what, tenth) != self._last:
            self._last = what, tenth
            _say(f"{what} …" if not done else f"{what}: {done} of {of}")


def _say(line: str) -> None:
    print(line, flush=True)
