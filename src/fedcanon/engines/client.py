"""One client's part of a round: the same code in every engine."""

from __future__ import annotations

import math
import secrets
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from torch import Tensor

from fedcanon.algorithms import State, Work
from fedcanon.compression import decoded
from fedcanon.engines.base import Rules
from fedcanon.engines.private_work import PrivateWork
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
"""The name of the normalisation statistics in broadcasts and uploads."""


@contextmanager
def client_work(
    rules: Rules,
    objective: Objective,
    t: int,
    client: int,
    received: State,
    prox: CountedProx,
    secret: int | None = None,
) -> Iterator[ClientWork]:
    """Provide the ``ClientWork`` of a client for round ``t``; see there for the arguments.

    The model starts with the normalisation statistics in ``received``. An unexpected error inside
    becomes a ``FedcanonError`` that names the client and the round.
    """
    settings = rules, objective, prox, t, client, secret
    with explain_errors(f"client {client} failed in round {t}"):
        objective.buffers.copy_(received[BUFFERS])
        if rules.records is None:
            # Setting the seed takes as long as several steps of a small model.
            with module_draws(rules.seed, t, client) if objective.draws else nullcontext():
                yield ClientWork(*settings)
        else:
            # Who knows which draw of a batch each record gets could tell if one before it is there.
            with module_draws(secrets.randbits(128), t, client):
                yield PrivateWork(rules.records, *settings)


def encode_upload(rules: Rules, upload: State, buffers: Tensor, work: Work) -> State:
    """Return what leaves the client: the gate that every update passes.

    Vectors that the method names as ``alterable`` are encoded, unless the method has done so
    itself. The normalisation statistics go beside them, as far as the compressor lets them.
    """
    if not rules.is_compressed:
        return {**upload, BUFFERS: buffers}
    altered = {
        name: work.encode(entry)
        for name, entry in upload.items()
        if name in rules.algorithm.alterable and isinstance(entry, Tensor)
    }
    return {**upload, **altered, **rules.compressor.beside({BUFFERS: buffers})}


def require_finite(upload: State, t: int, client: int) -> None:
    """Raise a ``DivergenceError`` if the upload of a client has an entry that is not finite."""
    if not all(math.isfinite(vector.sum()) for vector in vectors(decoded(upload))):
        raise DivergenceError(
            f"client {client} diverged in round {t}: its update is not finite. "
            "Use smaller steps (beta, alpha), or check its data for missing values."
        )


@contextmanager
def explain_errors(what: str) -> Iterator[None]:
    """Turn unexpected errors into a ``FedcanonError`` whose message begins with ``what``."""
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
        named.add_note(traceback.format_exc())  # the original is lost between processes
        raise named from error
