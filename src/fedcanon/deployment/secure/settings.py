"""What secure sums can be used with, and what not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcanon.algorithms import FedCanonPlus
from fedcanon.compression import Clip, Identity
from fedcanon.deployment.secure.identity import is_public_identity
from fedcanon.deployment.secure.ring import UPLOAD
from fedcanon.deployment.settings import Deployment
from fedcanon.deployment.weights import Weights
from fedcanon.engines import Rules
from fedcanon.engines.aggregation import Mean
from fedcanon.engines.work import CountedProx, IdleWork
from fedcanon.errors import FedcanonError
from fedcanon.objectives import Problem
from fedcanon.privacy import ClientPrivacy

SMALLEST = 3
"""With two clients, each could subtract its own update from the sum."""

LARGEST = 500
"""The boxes of so many clients fit into a message."""


def check(problem: Problem, rules: Rules, settings: Deployment) -> None:
    """Raise a ``FedcanonError`` if a run cannot have secure sums; it says why."""
    _check_clients(problem, settings)
    if settings.keeper != "client":
        raise FedcanonError(
            'secure sums need clients that keep their own states: use deployment.state = "client".'
        )
    if not isinstance(rules.compressor, Identity | Clip):
        raise FedcanonError(
            "secure sums have a fixed point of their own, and take no other compressor than a "
            'clip: use compression.name = "none" or "clip".'
        )
    if isinstance(rules.privacy, ClientPrivacy) and rules.privacy.sampling < 1:
        raise FedcanonError(
            "a server that is not trusted knows whom it has drawn: leave out privacy.sampling with "
            "secure sums."
        )
    if not (rules.aggregation is None or isinstance(rules.aggregation, Mean)):
        raise FedcanonError(
            "secure sums show no single update, and all other rules than the mean need them: leave "
            "out the rule, or secure sums."
        )
    if problem.start_buffers.numel():
        raise FedcanonError(
            "secure sums carry no normalisation statistics, which this model has: use a model "
            "without batch normalisation."
        )
    if not isinstance(rules.algorithm, FedCanonPlus) or _upload(problem, rules) != {UPLOAD}:
        raise FedcanonError(
            f"secure sums need FedCanon+, whose clients send one increment, and not "
            f"{type(rules.algorithm).__name__}."
        )


def _check_clients(problem: Problem, settings: Deployment) -> None:
    clients, identities = len(problem.clients), settings.identities
    if settings.minimum < SMALLEST:
        raise FedcanonError(
            f"secure sums hide a client among others: set deployment.minimum to {SMALLEST} or "
            f"more, not {settings.minimum}."
        )
    if not clients <= len(identities) <= LARGEST:
        raise FedcanonError(
            f"deployment.identities has {len(identities)} entries for {clients} clients: write the "
            f"public identity of each client there, in their order, for at most {LARGEST}."
        )
    for client, identity in enumerate(identities):
        if not is_public_identity(identity) or identity in identities[:client]:
            raise FedcanonError(
                f"entry {client} of deployment.identities is no public identity, or that of two "
                "clients: 'fedcanon site identity' prints the right one at the site."
            )
    rule = settings.weights
    if any(weight != rule.of(client, 0) for client, weight in enumerate(problem.weights)):
        raise FedcanonError(
            "secure sums need weights that all clients know: use clients.weights = "
            '"uniform", or write the samples of all clients into deployment.samples.'
        )


def _upload(problem: Problem, rules: Rules) -> set[str]:
    """Return the names of what a client of the method uploads."""
    algorithm, start = rules.algorithm, problem.start
    server = algorithm.server_init(start, CountedProx(rules.penalty))
    sent = algorithm.broadcast(server, 0, np.random.default_rng(0))
    return set(algorithm.local(algorithm.client_init(start), sent, IdleWork(Identity()))[0])


def relative_weights(rule: Weights, clients: int) -> Sequence[float]:
    """Return the weights of clients in sums, of which the largest is 1.

    They follow from settings that all share. If the server could choose them, it could give all
    clients but one a weight of nearly 0.

    Raises:
        FedcanonError: Clients have weights that are not registered.
    """
    if rule.by_samples and len(rule.registered) < clients:
        raise FedcanonError(
            "secure sums with weights need the samples of all clients in deployment.samples."
        )
    weights = [rule.of(client, 0) for client in range(clients)]
    return [weight / max(weights) for weight in weights]
