"""Which guarantees a configuration gives, in sentences."""

from __future__ import annotations

from fedcanon.privacy import ClientPrivacy, Privacy
from fedcanon.runs.config import Config, RobustSection
from fedcanon.runs.private_settings import make_privacy

NO_PRIVACY = (
    "No privacy: the server sees the update of every client in every round, and updates can reveal "
    "data."
)

NOT_ROBUST = "No protection from hostile clients: a single one can carry the model anywhere."


def guarantees(config: Config) -> list[str]:
    """Return what a run of this configuration guarantees, a sentence or two for each promise.

    Raises:
        FedcanonError: The settings of privacy have a mistake.
    """
    privacy, settings = make_privacy(config), config.deployment
    promises = [] if privacy is None else [_promise(privacy)]
    if settings.secure:
        promises.append(_hidden(settings.minimum))
    else:
        promises.append(NO_PRIVACY if privacy is None else _trust(privacy))
    robust = config.robust
    if robust is None or not robust.byzantine:
        return [*promises, NOT_ROBUST]
    return [*promises, _withstands(robust, config.clients.count)]


def in_short(config: Config) -> str:
    """Return the privacy of a configuration in a few words; empty if there is none."""
    given = config.privacy
    if given is None:
        return ""
    return f"ε = {given.epsilon:g}, δ = {given.delta:g} for every {given.level}"


def _hidden(minimum: int) -> str:
    return (
        f"Secure sums: the server sees sums over {minimum} clients or more, and no single update. "
        "It is not trusted with anything else."
    )


def _withstands(robust: RobustSection, clients: int) -> str:
    return (
        f"Up to {robust.byzantine} of {clients} clients may send anything: the rule "
        f"{robust.rule} limits what they can do to what honest clients differ by."
    )


def _promise(privacy: Privacy) -> str:
    hidden = {
        "client": "whether a client takes part, whatever its data",
        "record": "whether a record is among the data of a client",
    }[privacy.protects]
    rounds = privacy.rounds or 0
    sampling = f", each drawn with probability {privacy.sampling:g}" if privacy.sampling < 1 else ""
    return (
        f"Privacy of every {privacy.protects}: all models of {rounds:,} rounds together hide "
        f"{hidden}, with ε = {privacy.spent(rounds):.3g} and δ = {privacy.delta:g} (contributions "
        f"clipped to norm {privacy.clip:g}, noise {privacy.noise:.3g} times that{sampling})."
    )


def _trust(privacy: Privacy) -> str:
    if isinstance(privacy, ClientPrivacy):
        return (
            "The server is trusted: it sees single updates and adds the noise. Its checkpoints "
            "contain updates without noise and must be kept secret."
        )
    return "Nobody else is trusted: each client adds the noise itself, before anything leaves it."
