"""A network in one process that loses, delays, doubles and forges messages, and its clients."""

import copy
from dataclasses import dataclass, field, replace

import torch

from fedcanon import Federation
from fedcanon.checkpoint import Part
from fedcanon.compression import Identity, decoded
from fedcanon.deployment import Deployment, Ledger, Participant
from fedcanon.deployment.relay import make_relay
from fedcanon.engines import Rules
from fedcanon.engines.traffic import copied


class Disk:
    """What is kept is a copy, and old copies can be brought back."""

    def __init__(self):
        self.copies = []

    def save(self, t, state):
        self.copies.append(_copied(state))

    def load(self, device):
        return _copied(self.copies[-1]) if self.copies else None


def _copied(node):
    if isinstance(node, Part):
        kept = copied(node.read())
        return Part(node.name, lambda: copied(kept))
    if isinstance(node, dict):
        return {name: _copied(branch) for name, branch in node.items()}
    return node.clone() if isinstance(node, torch.Tensor) else copy.copy(node)


@dataclass
class World:
    """A server, its clients, and all that is under way between them.

    ``fates`` says what becomes of the next messages: a function of the world and a message that
    may call ``ask`` and ``arrive``. By default every message is answered once.
    """

    problem: object
    algorithm: object
    penalty: object
    keeper: str
    minimum: int = 1
    compressor: object = field(default_factory=Identity)
    aggregation: object = None
    adversary: object = None
    computed: dict = field(default_factory=dict)
    under_way: list = field(default_factory=list)
    arrived: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    fates: list = field(default_factory=list)

    def __post_init__(self):
        self.server_disk = Disk()
        self.disks = [Disk() for _ in self.problem.clients]
        self.there = set(range(len(self.problem.clients)))
        self.rules = Rules(self.algorithm, self.penalty, compressor=self.compressor)
        self.start_server()

    def start_server(self):
        """Start the server from what it has kept, or for the first time."""

        self.federation = Federation(
            self.problem,
            self.algorithm,
            self.penalty,
            compressor=self.compressor,
            aggregation=self.aggregation,
            adversary=self.adversary,
            engine=Deployment(self, keeper=self.keeper, minimum=self.minimum, pause=0.0),
        )
        kept = self.server_disk.load(None)
        if kept is not None:
            self.federation.load(kept)

    @property
    def membership(self):
        return self.federation.engine.membership

    def step(self):
        """A round, durable at its end as in every deployment."""
        self.federation.step()
        self.server_disk.save(self.federation.rounds_done, self.federation.state())

    def participant(self, client):
        objective = self.problem.clients[client]
        return Participant(
            client, self.rules, objective, open_ledger=lambda run: Ledger(self.disks[client])
        )

    def ask(self, message):
        """Let a client answer."""
        self.asked.append(message)
        reply = self.participant(message.client).answer(message)
        if reply.kind == "update":
            self.computed[reply.update] = self._new_state(message, reply)
        return reply

    def _new_state(self, message, reply):
        if self.keeper == "client":
            return copied(Ledger(self.disks[message.client]).load().pending.state)
        engine, content = self.federation.engine, decoded(reply.content)
        sent = engine._round.sent
        relay = make_relay(self.algorithm)
        return relay.settle(engine.states.read(message.client), sent, content)[1]

    # The network, as the engine sees it.

    def present(self):
        return {client: self.participant(client).presence for client in self.there}

    def send(self, messages):
        for message in messages:
            if self.fates:
                self.fates.pop(0)(self, message)
            else:
                self.arrived.append(self.ask(message))

    def receive(self, seconds):
        replies, self.arrived = self.arrived, []
        return replies

    def use_folder(self, folder):
        pass

    def close(self):
        pass

    # What must hold.

    def invariant(self):
        """How far the server's mean is from that of the clients, by the updates that counted."""
        acks = self.membership.acks
        [(ours, theirs)] = self.algorithm.averages.items()
        start = self.algorithm.client_init(self.federation.engine.states.start)
        vectors = [
            self.computed.get(acks.get(client), start)[theirs] for client in self.membership.members
        ]
        return float((self.federation.server[ours] - torch.stack(vectors).mean(0)).norm())


def forged(reply, how):
    """A reply that no honest client would send."""
    content = decoded(reply.content)
    vectors = {name: v for name, v in content.items() if v.numel()}
    changes = {
        "nan": {name: v * float("nan") for name, v in vectors.items()},
        "shape": {name: v[:-1] for name, v in vectors.items()},
        "single": {name: v.float() for name, v in vectors.items()},
        "huge": {name: v * 1e9 for name, v in vectors.items()},
        "number": dict.fromkeys(vectors, 0.0),
    }
    if how == "empty":
        return replace(reply, content={})
    return replace(reply, content={**content, **changes[how]})
