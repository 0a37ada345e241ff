"""One client's part of a round, in whichever process or place it is run."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from fedcanon.algorithms import State, Work
from fedcanon.compression import decoded
from fedcanon.engines.base import Rules
from fedcanon.engines.traffic import vectors
from fedcanon.engines.work import ClientWork, CountedProx
from fedcanon.errors import (
    DivergenceError,
    EngineSignalError,
    FedcanonError,
    is_out_of_memory,
)
from fedcanon.objectives import Objective
from fedcanon.randomness import module_draws

BUFFERS = "buffers"
"""The name under which normalisation statistics travel."""


@contextmanager
def working(
    rules: Rules,
    objective: Objective,
    t: int,
    client: int,
    received: State,
    prox: CountedProx,
    secret: int | None = None,
) -> Iterator[ClientWork]:
    """The work of a client in round ``t``, begun with the statistics that it received.

    See ``ClientWork`` for the arguments. An unexpected error is named after client and round.
    """
    with naming_errors(f"client {client} failed in round {t}"):
        objective.buffers.copy_(received[BUFFERS])
        with module_draws(rules.seed, t, client):
            yield ClientWork(rules, objective, prox, t, client, secret)


def leaving(rules: Rules, upload: State, buffers: Tensor, work: Work) -> State:
    """The gate that everything passes when an update leaves its client.

    Vectors that the method names as ``alterable`` are encoded, unless the method has done so
    itself. Normalisation statistics go beside them, as far as the compressor lets them.
    """
    if not rules.is_compressed:
        return {**upload, BUFFERS: buffers}
    altered = {
        name: work.encode(entry)
        for name, entry in upload.items()
        if name in rules.algorithm.alterable and isinstance(entry, Tensor)
    }
    return {**upload, **altered, **rules.compressor.beside({BUFFERS: buffers})}


def refuse_divergence(upload: State, t: int, client: int) -> None:
    """Refuse an update with an entry that is not finite."""
    if not all(bool(vector.sum().isfinite()) for vector in vectors(decoded(upload))):
        raise DivergenceError(
            f"client {client} diverged in round {t}: its update is not finite. "
            "Use smaller steps (beta, alpha), or check its data for missing values."
        )


@contextmanager
def naming_errors(what: str) -> Iterator[None]:
    """Turn an unexpected error into one sentence that begins with ``what`` has failed."""
    try:
        yield
    except (FedcanonError, EngineSignalError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if is_out_of_memory(error):
            reason = (
                "there is not enough memory. Use fewer engine.workers, a smaller batch_size or a "
                "smaller model."
            )
        named = FedcanonError(f"{what}: {reason}")
        named.add_note(traceback.format_exc())  # which a process would else keep for itself
        raise named from error
