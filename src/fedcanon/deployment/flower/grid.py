"""Flower's grid as the network of a deployment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import replace
from pathlib import Path

from flwr.app import Message as FlowerMessage
from flwr.app import RecordDict
from flwr.serverapp import Grid

from fedcanon.compression import Compressor
from fedcanon.deployment.flower.wire import to_presence, to_records, to_reply
from fedcanon.deployment.protocol import Message, Presence, Reply
from fedcanon.errors import FedcanonError

_log = logging.getLogger(__name__)


class GridNetwork:
    """A network whose clients are nodes of a Flower grid.

    Every new node is asked which client it is. Replies are matched with messages by the ids that
    Flower gives them, not by what a reply says about itself.

    Args:
        grid: Flower's grid.
        compressor: What decodes the vectors of uploads.
        sizes: The lengths that vectors in replies may have.
        lifetime: Seconds after which Flower drops a message that was not answered.
        poll: Seconds between two looks for replies.
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
        self._known: dict[int, tuple[int, Presence]] = {}  # the client at each node
        self._asked: dict[str, tuple[int, float]] = {}  # by Flower's id: node, and when asked
        self._superseded: dict[int, int] = {}  # nodes whose client is at another node now
        self._sent: dict[str, Message] = {}  # by Flower's id, without the content
        self.refusals: list[str] = []  # why nodes have not said which client they are
        self._replies: list[Reply] = []

    def present(self) -> dict[int, Presence]:
        return {client: presence for client, (_, presence) in self._clients().items()}

    def _clients(self) -> dict[int, tuple[int, Presence]]:
        """Return the node and the presence of every connected client.

        If two nodes claim to be the same client, the later one is used.
        """
        nodes = set(self._grid.get_node_ids())
        self._known = {node: who for node, who in self._known.items() if node in nodes}
        now = time.monotonic()
        self._asked = {
            message_id: (node, when)
            for message_id, (node, when) in self._asked.items()
            if node in nodes and now - when < self._lifetime
        }
        self._superseded = {
            node: by for node, by in self._superseded.items() if {node, by} <= nodes
        }
        asked = {node for node, _ in self._asked.values()}
        new = sorted(nodes - self._known.keys() - self._superseded.keys() - asked)
        queries = [self._to_flower(RecordDict(), node, "query") for node in new]
        for node, message_id in zip(new, self._push(queries), strict=True):
            self._asked[message_id] = (node, now)
        self._pull()
        return {client: (node, presence) for node, (client, presence) in self._known.items()}

    def send(self, messages: list[Message]) -> None:
        for message in messages[:1]:  # replies to earlier rounds are not needed any more
            current = (message.kind, message.round)
            self._sent = {k: m for k, m in self._sent.items() if (m.kind, m.round) == current}
        clients = self._clients()
        messages = [message for message in messages if message.client in clients]
        pushed = self._push(
            [self._to_flower(to_records(m), clients[m.client][0], m.kind) for m in messages]
        )
        headers = [replace(message, content={}) for message in messages]
        self._sent |= dict(zip(pushed, headers, strict=True))

    def receive(self, seconds: float) -> list[Reply]:
        end = time.monotonic() + seconds
        while True:
            self._pull()
            if self._replies or time.monotonic() >= end:
                replies, self._replies = self._replies, []
                return replies
            time.sleep(min(self._poll, max(0.0, end - time.monotonic())))

    def wait_for(
        self, clients: Collection[int], report_missing: Callable[[set[int]], None]
    ) -> dict[int, Presence]:
        """Wait until all these clients are connected.

        ``report_missing`` is called with the missing clients whenever they change.
        """
        missing: set[int] = set()
        while left := set(clients) - (present := self.present()).keys():
            if left != missing:
                missing = left
                report_missing(missing)
            time.sleep(self._poll)
        return present

    def use_folder(self, folder: Path) -> None:
        """Do nothing: clients store their states on their own machines."""

    def close(self) -> None:
        """Do nothing: the grid belongs to Flower."""

    def _to_flower(self, content: RecordDict, node: int, kind: str) -> FlowerMessage:
        return FlowerMessage(content, node, kind, ttl=self._lifetime)

    def _push(self, messages: list[FlowerMessage]) -> list[str]:
        """Send messages and return their ids."""
        return list(self._grid.push_messages(messages)) if messages else []

    def _pull(self) -> None:
        """Receive the answers to open messages."""
        waiting = [*self._sent, *self._asked]
        answers: Iterable[FlowerMessage] = self._grid.pull_messages(waiting) if waiting else []
        for answer in answers:
            message_id = answer.metadata.reply_to_message_id
            if message_id in self._asked:
                self._register(self._asked.pop(message_id)[0], answer)
            elif message_id in self._sent:
                self._replies.append(self._reply(self._sent.pop(message_id), answer))

    def _register(self, node: int, answer: FlowerMessage) -> None:
        """Record which client a node is, from its answer to the query."""
        try:
            if answer.has_error():
                raise FedcanonError(answer.error.reason or "no reason is given")
            client, presence = to_presence(answer.content)
        except FedcanonError as error:
            self.refusals.append(str(error))
            _log.warning("node %d does not say which client it is: %s", node, error)
            return
        for other, (claimed, _) in list(self._known.items()):
            if claimed == client:
                _log.warning("client %d is now at node %d, not at %d", client, node, other)
                del self._known[other]
                self._superseded[other] = node
        self._known[node] = (client, presence)

    def _reply(self, message: Message, answer: FlowerMessage) -> Reply:
        """Return the client's reply to a message; one of the kind "lost" if it is unusable."""
        lost = Reply(message.id, message.client, "lost", message.generation, message.round)
        if answer.has_error():
            return replace(lost, reason=f"Flower: {answer.error.reason}")
        try:
            reply = to_reply(answer.content, self._compressor, self._sizes)
        except FedcanonError as error:
            return replace(lost, reason=str(error))
        return replace(reply, answers=message.id)
