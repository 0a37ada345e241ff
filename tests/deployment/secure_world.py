"""A world whose server learns sums only: identities, secrets on disk, and crashes on purpose."""

from dataclasses import dataclass, field

import torch

from fedcanon import Federation
from fedcanon.compression import Encoded
from fedcanon.deployment import Deployment, Ledger
from fedcanon.deployment.secure.client import Member
from fedcanon.deployment.secure.identity import Identity
from fedcanon.deployment.secure.participant import SecureParticipant
from fedcanon.deployment.secure.settings import relative_weights
from fedcanon.deployment.weights import Weights
from tests.deployment.network import World


class Killed(BaseException):
    """The process ends here."""


@dataclass
class InMemory:
    """A safe that outlives its client's process."""

    kept: object = None

    def load(self):
        return self.kept

    def save(self, secrets):
        self.kept = secrets


@dataclass
class SecureWorld(World):
    keeper: str = "client"
    minimum: int = 3
    folder: object = None
    weights: Weights = field(default_factory=Weights)

    def __post_init__(self):
        count = len(self.problem.clients)
        self.identities = [Identity.new() for _ in range(count)]
        self.safes = [InMemory() for _ in range(count)]
        super().__post_init__()

    @property
    def public(self):
        return [identity.public for identity in self.identities]

    def start_server(self):
        deployment = Deployment(
            self,
            keeper=self.keeper,
            minimum=self.minimum,
            pause=0.0,
            weights=self.weights,
            identities=self.public,
        )
        self.federation = Federation(
            self.problem,
            self.algorithm,
            self.penalty,
            compressor=self.compressor,
            aggregation=self.aggregation,
            privacy=self.privacy,
            engine=deployment,
        )
        self.rules = self.federation.rules
        if self.folder is not None:
            self.federation.engine.use_folder(self.folder)
        kept = self.server_disk.load(None)
        if kept is not None:
            self.federation.load(kept)

    def member(self, client):
        safe, weights = self.safes[client], relative_weights(self.weights, len(self.identities))
        return Member(
            client,
            self.identities[client],
            self.public,
            self.minimum,
            lambda run: safe,
            weights[client],
        )

    def participant(self, client):
        return SecureParticipant(
            client,
            self.rules,
            self.problem.clients[client],
            open_ledger=lambda run: Ledger(self.disks[client]),
            member=self.member(client),
        )

    def on_disks(self):
        """How far the server's mean is from that of the states that clients have on disk."""
        acks, server = self.membership.acks, self.federation.server
        start = self.algorithm.client_init(self.federation.engine.states.start)
        total = torch.zeros_like(server["e"])
        weight = sum(self.membership.members.values())
        for client, own in self.membership.members.items():
            if client not in acks:
                total += own / weight * start["v"]
                continue
            account = Ledger(self.disks[client]).load()
            pending = account.pending
            accepted = pending is not None and pending.update == acks[client]
            assert accepted or account.base == acks[client]
            total += own / weight * (pending.state if accepted else account.state)["v"]
        return float((server["e"] - total).norm())


def in_ring(values):
    values = torch.as_tensor(values, dtype=torch.int32)
    return Encoded({"values": values}, values)
