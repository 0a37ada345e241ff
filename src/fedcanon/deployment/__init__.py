"""Training over real clients: messages, books and rounds, whatever network carries them."""

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
