"""Attacks of bad clients in simulations: what they send instead of what they should.

An attack gets the vectors of honest clients and the vectors that the bad clients should send, as
rows of two matrices, its strength and a generator. It returns a row for each bad client.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcanon.errors import FedcanonError, unknown_name
from fedcanon.randomness import Purpose, generator

Act = Callable[[Tensor, Tensor, float, np.random.Generator], Tensor]


def sign_flip(honest: Tensor, own: Tensor, strength: float, rng: np.random.Generator) -> Tensor:
    """Send the opposite, ``strength`` times as large."""
    return -strength * own


def scaled(honest: Tensor, own: Tensor, strength: float, rng: np.random.Generator) -> Tensor:
    """Send ``strength`` times what is right, as a client with another unit would."""
    return strength * own


def gaussian(honest: Tensor, own: Tensor, strength: float, rng: np.random.Generator) -> Tensor:
    """Send noise of deviation ``strength``."""
    return strength * torch.from_numpy(rng.standard_normal(own.shape)).to(own)


def alie(honest: Tensor, own: Tensor, strength: float, rng: np.random.Generator) -> Tensor:
    """Stay ``strength`` deviations below the mean in every coordinate ("a little is enough")."""
    return (honest.mean(0) - strength * honest.std(0, correction=0)).expand_as(own)


def ipm(honest: Tensor, own: Tensor, strength: float, rng: np.random.Generator) -> Tensor:
    """Send the opposite of the honest mean, so that the inner product becomes negative."""
    return (-strength * honest.mean(0)).expand_as(own)


def mimic(honest: Tensor, own: Tensor, strength: float, rng: np.random.Generator) -> Tensor:
    """Send what the first honest client sends, which then counts several times."""
    return honest[0].expand_as(own)


def bounded(honest: Tensor, own: Tensor, strength: float, rng: np.random.Generator) -> Tensor:
    """Go as far from the mean as the farthest honest client, times ``strength``, all one way."""
    return _pushed(honest, own, strength * _distances(honest).max(), rng)


def push(honest: Tensor, own: Tensor, strength: float, rng: np.random.Generator) -> Tensor:
    """Go ``strength`` times the median distance of honest clients from the mean, all one way."""
    return _pushed(honest, own, strength * _distances(honest).quantile(0.5), rng)


def _distances(honest: Tensor) -> Tensor:
    distances: Tensor = torch.linalg.vector_norm(honest - honest.mean(0), dim=1)
    return distances


def _pushed(honest: Tensor, own: Tensor, length: Tensor, rng: np.random.Generator) -> Tensor:
    way = torch.from_numpy(rng.standard_normal(own.shape[1])).to(own)
    place: Tensor = honest.mean(0) + length * way / way.norm()
    return place.expand_as(own)


def flipped(labels: Tensor, classes: int) -> Tensor:
    """Turn the labels y of the data of bad clients into classes − 1 − y."""
    return classes - 1 - labels


@dataclass(frozen=True)
class Attack:
    """An attack with its default strength, None if it has none.

    ``act`` is None for an attack on data. The generator is the same in all rounds, so that clients
    push one way, unless they draw ``anew``.
    """

    act: Act | None
    strength: float | None = None
    anew: bool = False


ATTACKS: Mapping[str, Attack] = {
    "sign_flip": Attack(sign_flip, 10.0),
    "gaussian": Attack(gaussian, 1.0, anew=True),
    "alie": Attack(alie, 1.5),
    "ipm": Attack(ipm, 0.5),
    "mimic": Attack(mimic),
    "bounded": Attack(bounded, 1.0),
    "push": Attack(push, 2.9),
    "scaled": Attack(scaled, 10.0),
    "label_flip": Attack(None),
}
"""All attacks by name."""


@dataclass(frozen=True)
class Adversary:
    """Bad clients in a simulation: who they are, and what they do.

    Args:
        attack: The name of the attack, one of ``ATTACKS``. For "label_flip" the labels of bad
            clients must be ``flipped`` when the problem is made, as configurations do.
        clients: How many clients are bad, drawn from the seed, or which ones.
        strength: The strength of the attack; None is its default.
        seed: The seed of who is bad, and of the attack's own draws.

    Raises:
        FedcanonError: There is no such attack, or it cannot have such a strength.
    """

    attack: str
    clients: int | tuple[int, ...]
    strength: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.attack not in ATTACKS:
            raise FedcanonError(unknown_name("attack", self.attack, ATTACKS))
        if self.strength is None:
            return
        if ATTACKS[self.attack].strength is None:
            raise FedcanonError(f"the attack '{self.attack}' has no strength: leave it out.")
        if not math.isfinite(self.strength):
            raise FedcanonError(f"the strength of an attack must be finite, not {self.strength:g}.")

    @property
    def alters_uploads(self) -> bool:
        """Whether bad clients alter what they send; otherwise their data are altered."""
        return ATTACKS[self.attack].act is not None

    def bad(self, clients: int) -> frozenset[int]:
        """Return who is bad among so many clients.

        Raises:
            FedcanonError: There are no such clients.
        """
        if isinstance(self.clients, tuple):
            named = frozenset(self.clients)
            if not named or min(named) < 0 or max(named) >= clients:
                raise FedcanonError(
                    f"adversary.clients must name some of the clients 0 to {clients - 1}."
                )
            return named
        if not 0 < self.clients <= clients:
            raise FedcanonError(
                f"adversary.clients = {self.clients}: between 1 and {clients} clients can be bad."
            )
        drawn = generator(self.seed, Purpose.ADVERSARY).permutation(clients)[: self.clients]
        return frozenset(drawn.tolist())

    def altered(self, honest: Tensor, own: Tensor, t: int) -> Tensor:
        """Return what bad clients send in round ``t`` instead of ``own``, a row for each.

        If there are no ``honest`` vectors, they take their own for those of the others.
        """
        attack = ATTACKS[self.attack]
        if attack.act is None:
            return own
        strength = attack.strength if self.strength is None else self.strength
        rng = generator(self.seed, Purpose.ADVERSARY, t + 1 if attack.anew else 0, 1)
        return attack.act(honest if len(honest) else own, own, strength or 0.0, rng)
