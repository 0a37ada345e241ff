"""The privacy that a configuration asks for, with the noise that its budget allows."""

from __future__ import annotations

from typing import Any

from fedcanon.errors import FedcanonError
from fedcanon.privacy import ClientPrivacy, Privacy, RecordPrivacy
from fedcanon.runs.config import Config
from fedcanon.runs.named import make_algorithm
from fedcanon.runs.privacy import require_delta
from fedcanon.runs.steps import without_auto


def make_privacy(config: Config) -> Privacy | None:
    """Return the guarantee of a configuration, with the noise that its budget allows.

    Raises:
        FedcanonError: A setting does not fit the level.
    """
    given = config.privacy
    if given is None:
        return None
    if config.data.name == "table":
        raise FedcanonError(
            "the columns of a table are scaled by their own means and deviations, which are exact "
            "numbers about the data: scale them by public numbers, and load them as arrays "
            '(data.name = "package.module:name").'
        )
    common = {
        "clip": given.clip,
        "delta": given.delta,
        "sampling": given.sampling,
        "accountant": given.accountant,
    }
    if given.level == "record":
        if given.forgetting is not None:
            raise FedcanonError('privacy.forgetting is for privacy.level = "client": leave it out.')
        steps = getattr(make_algorithm(without_auto(config.algorithm)), "local_steps", 1)
        return _with_noise(RecordPrivacy, config, {**common, "steps": steps})
    require_delta(given.delta, config.clients.count)
    fading = {} if given.forgetting is None else {"forgetting": given.forgetting}
    return _with_noise(ClientPrivacy, config, {**common, **fading})


def with_noise(config: Config) -> Config:
    """Return a configuration with its noise written out, which must not change when a run goes on.

    Otherwise another number of rounds would mean other noise.
    """
    section, found = config.privacy, make_privacy(config)
    if section is None or found is None:
        return config
    fixed = section.model_copy(update={"noise": found.noise, "rounds": found.rounds})
    return config.model_copy(update={"privacy": fixed})


def _with_noise(kind: type[Privacy], config: Config, settings: dict[str, Any]) -> Privacy:
    """Return a guarantee with the given noise, or with the noise that the budget allows."""
    given = config.privacy
    assert given is not None
    rounds = given.rounds or config.rounds
    if given.noise is None:
        return kind.within(given.epsilon, rounds, **settings)
    return kind(noise=given.noise, budget=given.epsilon, rounds=rounds, **settings)
