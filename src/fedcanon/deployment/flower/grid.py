"""Flower's grid as the network of a deployment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from flwr.app import Message as FlowerMessage
from flwr.app import RecordDict
from flwr.serverapp import Grid

from fedcanon.compression import Compressor
from fedcanon.deployment.flower.nodes import Nodes
from fedcanon.deployment.flower.waiting import FOR_REPLIES, pause
from fedcanon.deployment.flower.wire import to_presence, to_records, to_reply
from fedcanon.deployment.protocol import Message, Presence, Reply
from fedcanon.errors import FedcanonError

_log = logging.getLogger(__name__)

AT_ONCE = 16
"""So many messages at most are sent, or asked for, at once: they are all in memory then."""

PATIENCE = 10.0
"""Seconds after which a node that was refused is asked again which client it is."""


class GridNetwork:
    """A network whose clients are nodes of a Flower grid.

    Every new node is asked which client it is. Replies are matched with messages by the ids and
    nodes that Flower gives them, not by what a reply says about itself.

    Args:
        grid: Flower's grid.
        compressor: What decodes the vectors of uploads.
        sizes: The lengths that vectors in replies may have.
        lifetime: Seconds after which Flower drops a message that was not answered.
        nodes: Says which node may speak for which client.
        poll: The most seconds between two looks for replies.
    """

    def __init__(
        self,
        grid: Grid,
        compressor: Compressor,
        sizes: Container[int],
        lifetime: float,
        nodes: Nodes | None = None,
        poll: float = FOR_REPLIES,
    ) -> None:
        self._grid, self._compressor, self._sizes = grid, compressor, sizes
        self._lifetime, self._nodes, self._poll = lifetime, nodes or Nodes(), poll
        self._known: dict[int, tuple[int, Presence]] = {}  # the client at each node
        self._asked: dict[str, tuple[int, float]] = {}  # by Flower's id: node, and when asked
        self._sent: dict[str, tuple[Message, int]] = {}  # by Flower's id: header and node
        self._refused: dict[int, float] = {}  # nodes that may not speak, and since when
        self.refusals: list[str] = []  # why nodes have not said which client they are
        self._replies: list[Reply] = []

    def present(self) -> dict[int, Presence]:
        return {client: presence for client, (_, presence) in self._clients().items()}

    def _clients(self) -> dict[int, tuple[int, Presence]]:
        """Return the node and the presence of every connected client."""
        nodes = set(self._grid.get_node_ids())
        self._known = {
            node: (client, presence)
            for node, (client, presence) in self._known.items()
            if node in nodes and self._nodes.refusal(client, node) is None
        }
        now = time.monotonic()
        self._asked = {
            message_id: (node, when)
            for message_id, (node, when) in self._asked.items()
            if node in nodes and now - when < self._lifetime
        }
        self._refused = {n: when for n, when in self._refused.items() if now - when < PATIENCE}
        asked = {node for node, _ in self._asked.values()}
        new = sorted(nodes - self._known.keys() - self._refused.keys() - asked)
        queries = [self._to_flower(RecordDict(), node, "query") for node in new]
        for node, message_id in zip(new, self._push(queries), strict=True):
            self._asked[message_id] = (node, now)
        self._pull()
        return {client: (node, presence) for node, (client, presence) in self._known.items()}

    def send(self, messages: Iterable[Message]) -> None:
        clients, waiting = self._clients(), iter(messages)
        some = list(islice(waiting, AT_ONCE))
        for first in some[:1]:  # replies to earlier rounds are not needed any more
            wanted = (first.kind, first.round)
            self._sent = {k: v for k, v in self._sent.items() if (v[0].kind, v[0].round) == wanted}
        while some:
            there = [(m, clients[m.client][0]) for m in some if m.client in clients]
            pushed = self._push(
                [self._to_flower(to_records(m), node, _flower_kind(m)) for m, node in there]
            )
            headers = [(replace(message, content={}), node) for message, node in there]
            self._sent |= dict(zip(pushed, headers, strict=True))
            some = list(islice(waiting, AT_ONCE))

    def receive(self, seconds: float) -> list[Reply]:
        begun = time.monotonic()
        end = begun + seconds
        while True:
            self._pull()
            if self._replies or time.monotonic() >= end:
                replies, self._replies = self._replies, []
                return replies
            time.sleep(min(pause(begun, self._poll), max(0.0, end - time.monotonic())))

    def wait_for(
        self, clients: Collection[int], report_missing: Callable[[set[int]], None]
    ) -> dict[int, Presence]:
        """Wait until all these clients are connected.

        ``report_missing`` is called with the missing clients whenever they change.
        """
        missing: set[int] = set()
        begun = time.monotonic()
        while left := set(clients) - (present := self.present()).keys():
            if left != missing:
                missing = left
                report_missing(missing)
            time.sleep(pause(begun, self._poll))
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
        waiting = [*self._asked, *self._sent]
        for first in range(0, len(waiting), AT_ONCE):
            for answer in self._grid.pull_messages(waiting[first : first + AT_ONCE]):
                message_id = answer.metadata.reply_to_message_id
                if message_id in self._asked:
                    self._register(self._asked.pop(message_id)[0], answer)
                elif message_id in self._sent:
                    self._replies.append(self._reply(*self._sent.pop(message_id), answer))
            if self._replies:  # others wait, so that few are in memory
                return

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
        refusal = self._nodes.refusal(client, node)
        if refusal is not None:
            self._refused[node] = time.monotonic()
            _log.warning("refused node %d, which claims to be client %d: %s", node, client, refusal)
            return
        self._known[node] = (client, presence)

    def _reply(self, message: Message, node: int, answer: FlowerMessage) -> Reply:
        """Return the client's reply to a message; one of the kind "lost" if it is unusable."""
        lost = Reply(message.id, message.client, "lost", message.generation, message.round)
        if answer.has_error():
            return replace(lost, reason=f"Flower: {answer.error.reason}")
        if answer.metadata.src_node_id != node:
            return replace(lost, reason="another node has answered")
        try:
            reply = to_reply(answer.content, self._compressor, self._sizes)
        except FedcanonError as error:
            return replace(lost, reason=str(error))
        return replace(reply, answers=message.id)


def _flower_kind(message: Message) -> str:
    """Return the kind of message that Flower's apps know: all questions of a round are one."""
    return message.kind if message.kind == "evaluate" else "train"
