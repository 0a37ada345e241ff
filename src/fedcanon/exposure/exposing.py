"""Measures what a run exposes of its clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedcanon.algorithms import State
from fedcanon.compression import decoded
from fedcanon.data import Split
from fedcanon.engines.client import BUFFERS, client_work, encode_upload
from fedcanon.engines.work import CountedProx
from fedcanon.exposure.inversion import similarity
from fedcanon.exposure.membership import Losses, Membership, membership
from fedcanon.objectives.losses import binomial
from fedcanon.objectives.models import BinaryLogistic
from fedcanon.randomness import Purpose, generator
from fedcanon.runs.build import assemble, check_names, divide_dataset, problem_on
from fedcanon.runs.config import Config
from fedcanon.runs.federation import Federation
from fedcanon.runs.named import make_dataset, make_loss, make_model
from fedcanon.runs.observers import Observer
from fedcanon.runs.training import fit_as

MOST_RECORDS = 2000
"""So many members and strangers are compared at most."""


@dataclass(frozen=True)
class Exposure:
    """What a run exposes.

    The first three numbers are correlations of the best reconstruction with a record; see
    ``similarity``.

    Args:
        update: From the first update of the smallest client, with one of its records.
        released: From the mean of the first round, as all others see it, with the same.
        strangers: From the same mean, with a record that nobody has trained on: what averages tell.
        members: How well the trained model tells the records that it has seen.
    """

    update: float
    released: float
    strangers: float
    members: Membership


def exposed(config: Config, observers: Sequence[Observer] = ()) -> Exposure:
    """Train as a configuration says, and measure what that exposes.

    Args:
        config: The configuration.
        observers: Follow the training.

    Raises:
        FedcanonError: The configuration has a mistake, or inputs cannot be read from its model.
    """
    check_names(config)
    dataset, parts = divide_dataset(config, make_dataset(config.data.source))
    problem = problem_on(config, dataset, parts)
    smallest = min(range(len(parts)), key=lambda client: len(parts[client]))
    own, others = _inputs(dataset.train)[parts[smallest]], _inputs(dataset.test)
    federation = assemble(config, problem)
    z, layout = problem.start, problem.layout
    update, released = _update_of(federation, smallest), _released(federation)
    shown = (
        similarity(layout, update, z, own),
        similarity(layout, released, z, own),
        similarity(layout, released, z, others),
    )
    module = fit_as(config, assemble(config, problem), observers=observers).model
    members, strangers = (_losses(config, module, s) for s in (dataset.train, dataset.test))
    return Exposure(*shown, membership(members, strangers))


def _update_of(federation: Federation, client: int) -> State:
    """Return what a server sees of one client in the first round."""
    rules, problem = federation.rules, federation.problem
    received = {**_broadcast(federation), BUFFERS: problem.start_buffers}
    objective, prox = problem.clients[client], CountedProx(rules.penalty)
    with client_work(rules, objective, 0, client, received, prox) as work:
        state = rules.algorithm.client_init(problem.start)
        upload, _ = rules.algorithm.local(state, received, work)
        return decoded(encode_upload(rules, upload, objective.buffers.clone(), work))


def _released(federation: Federation) -> State:
    """Return what everybody can know of the first round: the mean of the updates."""
    try:
        everyone = federation.engine.available()
        return federation.engine.collect(0, everyone, _broadcast(federation)).mean
    finally:
        federation.close()


def _broadcast(federation: Federation) -> State:
    coins = generator(federation.seed, Purpose.COINS, 0)
    return federation.algorithm.broadcast(federation.server, 0, coins)


def _inputs(split: Split) -> Tensor:
    return split.tensors(torch.float64, torch.device("cpu"))[0].flatten(1)


def _losses(config: Config, module: nn.Module, split: Split) -> Losses:
    """Return the loss of each record, or of some of them if there are many."""
    is_logistic = isinstance(make_model(config.model.model_dump()), BinaryLogistic)
    loss = binomial() if is_logistic else make_loss(config.loss)
    inputs, targets = split.tensors(next(module.parameters()).dtype, torch.device("cpu"))
    chosen = torch.linspace(0, len(targets) - 1, min(len(targets), MOST_RECORDS)).long()
    with torch.no_grad():
        outputs = module(inputs[chosen].flatten(1) if is_logistic else inputs[chosen])
        labels = targets[chosen]
        return np.array([float(loss(outputs[[k]], labels[[k]])) for k in range(len(labels))])
