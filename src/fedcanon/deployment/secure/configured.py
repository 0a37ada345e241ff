"""Makes clients of secure sums from the settings of a configuration."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from pathlib import Path

from fedcanon.deployment.configured import weights_rule
from fedcanon.deployment.participant import Participant
from fedcanon.deployment.secure.client import Member, SecretFile
from fedcanon.deployment.secure.identity import Identity
from fedcanon.deployment.secure.participant import SecureParticipant
from fedcanon.deployment.secure.settings import SMALLEST, relative_weights
from fedcanon.errors import FedcanonError
from fedcanon.runs.config import Config


def secured(
    participant: Participant, config: Config, states: Path | None, identity: Path
) -> SecureParticipant:
    """Return a client that answers nothing but secure sums.

    Args:
        participant: The client as it would be without them.
        config: The configuration of the run.
        states: The folder for what must survive a restart.
        identity: The file with the identity of the site.

    Raises:
        FedcanonError: The client has no folder or another identity than the others know, or the
            configuration has a mistake.
    """
    client, settings = participant.client, config.deployment
    if states is None:
        raise FedcanonError(
            f"client {client} needs a folder for the secrets of secure sums: start its SuperNode "
            'with state="folder" in --node-config.'
        )
    own = Identity.read(identity)
    if own.public not in settings.identities[client : client + 1]:
        raise FedcanonError(
            f"entry {client} of deployment.identities is not the identity of this site: the "
            f"operator must enter {own.public}."
        )
    member = Member(
        client,
        own,
        settings.identities,
        max(SMALLEST, settings.minimum),
        partial(SecretFile.on_disk, states, client),
        relative_weights(weights_rule(config), len(settings.identities))[client],
    )
    same = {f.name: getattr(participant, f.name) for f in fields(participant)}
    return SecureParticipant(**same, member=member)


def new_identities(config: Config) -> list[Identity]:
    """Return new identities for all clients of a trial, if it has secure sums and none yet."""
    wanted = config.deployment.secure and not config.deployment.identities
    return [Identity.new() for _ in range(config.clients.count)] if wanted else []
