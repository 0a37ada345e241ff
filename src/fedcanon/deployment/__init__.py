"""Training over real clients: messages, rounds and stored states, independent of the network."""

from fedcanon.deployment.ledger import Ledger
from fedcanon.deployment.participant import Participant
from fedcanon.deployment.protocol import Message, Network, Presence, Reply
from fedcanon.deployment.server import DeployedEngine, Deployment

__all__ = [
    "DeployedEngine",
    "Deployment",
    "Ledger",
    "Message",
    "Network",
    "Participant",
    "Presence",
    "Reply",
]
