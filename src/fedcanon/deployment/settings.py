"""How a deployment treats its clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from fedcanon.deployment.protocol import Network
from fedcanon.deployment.weights import Weights
from fedcanon.engines import Rules
from fedcanon.objectives import Problem
from fedcanon.units import GIB

if TYPE_CHECKING:
    from fedcanon.deployment.server import DeployedEngine


NEEDS_STATES = (
    "privacy of records needs clients that keep what they have sent, because an update with other "
    'noise would be another release: use deployment.state = "client".'
)


@dataclass(frozen=True)
class Deployment:
    """Makes engines for real clients, which may answer late or not at all.

    Args:
        network: Carries messages to the clients and back.
        keeper: Who keeps client states: the "server", or each "client" its own.
        minimum: Updates that a round needs; clients are asked again if there are fewer.
        deadline: Seconds after which a round ends without the clients that have not answered.
        max_restarts: How often a client may lose its state before it is excluded.
        weights: The rule for the weight of a client that joins.
        outlier: An update is refused if its norm, or that of the client's new state, is more than
            so many times what is usual in the run.
        state_memory: The server keeps client states on disk if they need more than so many bytes.
        pause: Seconds to wait before clients are asked again.
        identities: The public identities of the clients in their order, for secure sums; without
            them, the server sees every single update.
    """

    network: Network
    keeper: Literal["server", "client"] = "server"
    minimum: int = 1
    deadline: float = 600.0
    max_restarts: int = 3
    weights: Weights = field(default_factory=Weights)
    outlier: float = 10.0
    state_memory: int = GIB
    pause: float = 2.0
    identities: Sequence[str] = ()

    def __call__(self, problem: Problem, rules: Rules) -> DeployedEngine:
        """Make the engine for a problem."""
        # Here, because engines know their settings, and secure sums need more packages.
        if self.identities:
            from fedcanon.deployment.secure.engine import SecureEngine

            return SecureEngine(problem, rules, self)
        from fedcanon.deployment.server import DeployedEngine

        return DeployedEngine(problem, rules, self)
