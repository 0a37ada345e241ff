# What fedcanon.deployment offers, by where it lives.
from .flower.simulation import FlowerSimulation as FlowerSimulation
from .ledger import Ledger as Ledger
from .participant import Participant as Participant
from .protocol import Message as Message
from .protocol import Network as Network
from .protocol import Presence as Presence
from .protocol import Reply as Reply
from .server import DeployedEngine as DeployedEngine
from .settings import Deployment as Deployment
