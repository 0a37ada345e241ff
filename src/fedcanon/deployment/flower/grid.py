"""Flower's grid as the network of a deployment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import replace
from pathlib import Path

from flwr.app import Message as Letter
from flwr.app import RecordDict
from flwr.serverapp import Grid

from fedcanon.compression import Compressor
from fedcanon.deployment.flower.wire import to_presence, to_records, to_reply
from fedcanon.deployment.protocol import Message, Presence, Reply
from fedcanon.errors import FedcanonError

_log = logging.getLogger(__name__)


class GridNetwork:
    """Clients behind the nodes of a grid.

    A node that is new is asked who it is. Replies are matched by Flower's message ids, never by
    what they say of themselves. Vectors in replies must have one of these ``sizes``.
    """

    def __init__(
        self,
        grid: Grid,
        compressor: Compressor,
        sizes: Container[int],
        lifetime: float,
        poll: float = 0.2,
    ) -> None:
        self._grid, self._compressor, self._sizes = grid, compressor, sizes
        self._lifetime, self._poll = lifetime, poll
        self._known: dict[int, tuple[int, Presence]] = {}  # what nodes have said they are
        self._asked: dict[str, tuple[int, float]] = {}  # nodes that were asked who they are, when
        self._superseded: dict[int, int] = {}  # nodes whose client is now at another one
        self._sent: dict[str, Message] = {}  # by Flower's ids, without their content
        self.refusals: list[str] = []  # why nodes have not said who they are
        self._replies: list[Reply] = []

    def present(self) -> dict[int, Presence]:
        return {client: presence for client, (_, presence) in self._clients().items()}

    def _clients(self) -> dict[int, tuple[int, Presence]]:
        """The clients that are there: node and presence; of two that claim to be one, the later."""
        nodes = set(self._grid.get_node_ids())
        self._known = {node: who for node, who in self._known.items() if node in nodes}
        now = time.monotonic()
        self._asked = {
            letter: (node, when)
            for letter, (node, when) in self._asked.items()
            if node in nodes and now - when < self._lifetime
        }
        self._superseded = {
            node: by for node, by in self._superseded.items() if {node, by} <= nodes
        }
        asked = {node for node, _ in self._asked.values()}
        strangers = nodes - self._known.keys() - self._superseded.keys() - asked
        letters = [self._letter(RecordDict(), node, "query") for node in sorted(strangers)]
        for node, letter in zip(sorted(strangers), self._push(letters), strict=True):
            self._asked[letter] = (node, now)
        self._pull()
        return {client: (node, presence) for node, (client, presence) in self._known.items()}

    def send(self, messages: list[Message]) -> None:
        for message in messages[:1]:  # replies to earlier rounds are too late
            current = (message.kind, message.round)
            self._sent = {k: m for k, m in self._sent.items() if (m.kind, m.round) == current}
        clients = self._clients()
        there = [message for message in messages if message.client in clients]
        letters = [
            self._letter(to_records(message), clients[message.client][0], message.kind)
            for message in there
        ]
        headers = [replace(message, content={}) for message in there]
        self._sent |= dict(zip(self._push(letters), headers, strict=True))

    def receive(self, seconds: float) -> list[Reply]:
        end = time.monotonic() + seconds
        while True:
            self._pull()
            if self._replies or time.monotonic() >= end:
                replies, self._replies = self._replies, []
                return replies
            time.sleep(min(self._poll, max(0.0, end - time.monotonic())))

    def gather(
        self, clients: Collection[int], told: Callable[[set[int]], None]
    ) -> dict[int, Presence]:
        """Wait until these clients are there; ``told`` hears who is missing, at every change."""
        missing: set[int] = set()
        while left := set(clients) - (present := self.present()).keys():
            if left != missing:
                missing = left
                told(missing)
            time.sleep(self._poll)
        return present

    def use_folder(self, folder: Path) -> None:
        """No client is of this machine."""

    def close(self) -> None:
        """Nothing was started."""

    def _letter(self, content: RecordDict, node: int, kind: str) -> Letter:
        return Letter(content, node, kind, ttl=self._lifetime)

    def _push(self, letters: list[Letter]) -> list[str]:
        return list(self._grid.push_messages(letters)) if letters else []

    def _pull(self) -> None:
        """Take what has come for letters that are still open."""
        waiting = [*self._sent, *self._asked]
        answers: Iterable[Letter] = self._grid.pull_messages(waiting) if waiting else []
        for answer in answers:
            letter = answer.metadata.reply_to_message_id
            if letter in self._asked:
                self._meet(self._asked.pop(letter)[0], answer)
            elif letter in self._sent:
                self._replies.append(self._reply(self._sent.pop(letter), answer))

    def _meet(self, node: int, answer: Letter) -> None:
        try:
            if answer.has_error():
                raise FedcanonError(answer.error.reason or "no reason is given")
            client, presence = to_presence(answer.content)
        except FedcanonError as error:
            self.refusals.append(str(error))
            _log.warning("node %d does not say who it is: %s", node, error)
            return
        for other, (claimed, _) in list(self._known.items()):
            if claimed == client:
                _log.warning("client %d is now at node %d, not at %d", client, node, other)
                del self._known[other]
                self._superseded[other] = node
        self._known[node] = (client, presence)

    def _reply(self, message: Message, answer: Letter) -> Reply:
        """What a client has answered to this message, or why there is no answer."""
        lost = Reply(message.id, message.client, "lost", message.generation, message.round)
        if answer.has_error():
            return replace(lost, reason=f"Flower: {answer.error.reason}")
        try:
            reply = to_reply(answer.content, self._compressor, self._sizes)
        except FedcanonError as error:
            return replace(lost, reason=str(error))
        return replace(reply, answers=message.id)
