"""Messages that are under way between the server and its clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized

from fedcanon.deployment.protocol import Message, Network, Reply
from fedcanon.deployment.status import Status
from fedcanon.errors import FedcanonError

ATTEMPTS = 5
"""The run ends after so many attempts in a row in which every client that was asked has failed."""


class Exchange:
    """Sends messages, matches the replies to them, and asks again if too few have come.

    Args:
        network: Carries messages to the clients and back.
        status: Where events are noted.
        deadline: Seconds after which an attempt ends without the clients that have not answered.
        pause: Seconds to wait before clients are asked again.
    """

    def __init__(self, network: Network, status: Status, deadline: float, pause: float) -> None:
        self._network, self._status = network, status
        self._deadline, self._pause = deadline, pause
        self._open: dict[str, int] = {}
        self.errors: list[FedcanonError] = []
        self._waited_for = 0

    def repeat(self, ask: Callable[[], bool], answers: Sized) -> None:
        """Call ``ask`` until it returns True; raise an error if every client keeps failing."""
        failed = 0
        self.forget()
        while True:
            self.begin()
            if ask():
                return
            failed = 0 if answers or not self.is_hopeless else failed + 1
            if failed == ATTEMPTS:
                raise self.errors[-1]
            self._status.wait(self._pause)

    def forget(self) -> None:
        """Ignore replies to all messages so far, should they still come."""
        self._open = {}

    def begin(self) -> None:
        """Count from now on how many clients are asked, and how many fail."""
        self.errors, self._waited_for = [], 0

    @property
    def is_hopeless(self) -> bool:
        """Whether every client that was asked has failed by an error of its own."""
        return len(self.errors) >= self._waited_for > 0

    def replies(self, messages: Iterable[Message]) -> Iterator[tuple[int, Reply]]:
        """Send messages and yield replies until the deadline, each with its client.

        Messages are made one by one as they are sent, so that few are in memory. A message stays
        open until it is answered or another round begins: a reply that is too late for one attempt
        is used in the next one.
        """
        waiting: set[str] = set()

        def opened() -> Iterator[Message]:
            for message in messages:
                self._open[message.id] = message.client
                waiting.add(message.id)
                yield message

        self._network.send(opened())
        self._waited_for += len(waiting)
        end = time.monotonic() + self._deadline
        while waiting and (left := end - time.monotonic()) > 0:
            replies = self._network.receive(left)
            if not replies:
                return
            while replies:  # popped, so that a reply can be forgotten before the next is decoded
                reply = replies.pop(0)
                waiting.discard(reply.answers)
                client = self._open.pop(reply.answers, None)
                if client is None or client != reply.client:
                    self._status.note(f"ignored a late or repeated reply of client {reply.client}")
                elif reply.kind in ("failure", "lost"):
                    if reply.kind == "failure":
                        self.errors.append(FedcanonError(reply.reason))
                    self._status.note(f"client {client} has failed: {reply.reason}")
                else:
                    yield client, reply
