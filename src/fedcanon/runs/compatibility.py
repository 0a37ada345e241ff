"""Whether the parts of a federation fit together, asked before its first round."""

from __future__ import annotations

from torch import Tensor

from fedcanon.algorithms import Algorithm, SecondOrder, State
from fedcanon.compression import Identity
from fedcanon.engines.work import IdleWork
from fedcanon.errors import FedcanonError
from fedcanon.expansion import expansion_length
from fedcanon.objectives import Problem
from fedcanon.objectives.base import NO_HESSIAN
from fedcanon.privacy import ClientPrivacy, Privacy, RecordPrivacy
from fedcanon.randomness import Purpose, generator


def check_participants(algorithm: Algorithm, clients: int, participants: int | None) -> None:
    """Raise a ``FedcanonError`` if so many of the clients cannot take part; None is all."""
    if participants is None:
        participants = clients
    if not 1 <= participants <= clients:
        raise FedcanonError(
            f"{participants} participants per round are asked for, but there are "
            f"{clients} clients: set participants between 1 and {clients}."
        )
    if participants < clients and not algorithm.partial_participation:
        raise FedcanonError(
            f"{type(algorithm).__name__} needs all {clients} clients in every round, but "
            f"only {participants} are to take part: leave participants out, or use FedCanon+."
        )


def secret_draw(privacy: Privacy | None) -> float | None:
    """Return the probability with which each client is drawn in secret; None if all are asked."""
    if isinstance(privacy, ClientPrivacy) and privacy.sampling < 1:
        return privacy.sampling
    return None


def check_draws(batch_size: int | None, participants: int | None, privacy: Privacy | None) -> None:
    """Raise a ``FedcanonError`` if samples or clients are drawn as the guarantee forbids."""
    if batch_size is not None and batch_size < 1:
        raise FedcanonError(f"batch_size must be at least 1, not {batch_size}.")
    if batch_size is not None and isinstance(privacy, RecordPrivacy):
        raise FedcanonError(
            "records are private only if they are drawn independently, which shuffled batches "
            'are not: use batch_size = "full", and privacy.sampling for smaller batches.'
        )
    if participants is not None and secret_draw(privacy) is not None:
        raise FedcanonError(
            "only clients that are drawn independently and in secret have the privacy of a "
            "sample: leave out clients.participants, or privacy.sampling."
        )


def check_second_order(problem: Problem, algorithm: SecondOrder) -> None:
    """Raise a ``FedcanonError`` if the model has no Hessian, or one that is too large."""
    if not problem.clients[0].has_hessian:
        raise FedcanonError(NO_HESSIAN)
    d = len(problem.start)
    if (floats := expansion_length(d)) > algorithm.max_floats:
        raise FedcanonError(
            f"with {d:,} parameters every client would send {floats:,} floats in each round, "
            f"but algorithm.max_floats is {algorithm.max_floats:,}: raise it, or use FedCanon+."
        )


def check_compression(algorithm: Algorithm, start: Tensor, server: State) -> None:
    """Raise a ``FedcanonError`` if an upload has a vector that must not be compressed.

    Args:
        algorithm: The method.
        start: The model with which clients begin.
        server: The state with which the server begins.
    """
    sent = algorithm.broadcast(server, 0, generator(0, Purpose.COINS))
    upload, _ = algorithm.local(algorithm.client_init(start), sent, IdleWork(Identity()))
    fixed = sorted(upload.keys() - algorithm.alterable)
    if fixed:
        raise FedcanonError(
            f"{type(algorithm).__name__} cannot compress its uploads, because '{fixed[0]}' "
            "must arrive unchanged: use FedCanon+, which is exact under compression, or no "
            "compressor."
        )
