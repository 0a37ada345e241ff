"""Training over real clients: messages, books and rounds, whatever network carries them."""

from fedcanon.deployment.engine import DeployedEngine
from fedcanon.deployment.ledger import Ledger
from fedcanon.deployment.messages import Message, Network, Presence, Reply
from fedcanon.deployment.participant import Participant

__all__ = ["DeployedEngine", "Ledger", "Message", "Network", "Participant", "Presence", "Reply"]
