"""Makes a deployment from the settings of a configuration."""

from __future__ import annotations

from fedcanon.algorithms import Algorithm, SecondOrder
from fedcanon.deployment.protocol import Network
from fedcanon.deployment.settings import Deployment
from fedcanon.deployment.weights import Weights
from fedcanon.errors import FedcanonError
from fedcanon.expansion import expansion_length
from fedcanon.objectives import Problem
from fedcanon.runs.config import Config
from fedcanon.units import GIB


def deployment_on(network: Network, config: Config) -> Deployment:
    """Return the deployment over a network with the settings of a configuration.

    Raises:
        FedcanonError: A round needs more updates than clients are asked, or secure sums have no
            identities.
    """
    settings = config.deployment
    most = config.clients.participants or config.clients.count
    if settings.minimum > most:
        raise FedcanonError(
            f"deployment.minimum is {settings.minimum}, but only {most} clients are asked in a "
            "round: set it to at most that."
        )
    if settings.secure and not settings.identities:
        raise FedcanonError(
            "deployment.secure needs deployment.identities, the public identities of all clients "
            "in their order: 'fedcanon site identity' prints them, each at its site."
        )
    return Deployment(
        network,
        keeper=settings.state,
        minimum=settings.minimum,
        deadline=settings.deadline,
        max_restarts=settings.restarts,
        weights=weights_rule(config),
        outlier=settings.outlier,
        state_memory=int(config.engine.state_memory * GIB),
        identities=settings.identities if settings.secure else (),
    )


def weights_rule(config: Config) -> Weights:
    """Return the rule for the weights of clients in a configuration."""
    return Weights(config.clients.weights == "samples", config.deployment.samples)


def vector_sizes(problem: Problem, algorithm: Algorithm) -> set[int]:
    """Return the lengths that vectors in messages may have: of the model and its statistics.

    Clients of a second-order method also send their Hessians.
    """
    d = problem.start.numel()
    second_order = {expansion_length(d)} if isinstance(algorithm, SecondOrder) else set()
    return {d, problem.start_buffers.numel()} | second_order
