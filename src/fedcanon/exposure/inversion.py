"""Gradient inversion: inputs that are computed from what a client has sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout


def reconstructed(layout: Layout, update: Tensor) -> Tensor:
    """Return the inputs that an update suggests, a row each.

    Let a linear layer with biases see the inputs x_j. The gradients of the weights and the bias of
    its output k are Σ_j s_jk x_j and Σ_j s_jk, whatever comes after the layer. Their ratio is a
    mean of inputs. If one record has most of the weight, it is that record.

    Args:
        layout: Names and shapes of the model's tensors.
        update: A gradient, a mean of gradients or a sum of local steps.

    Raises:
        FedcanonError: The model does not begin with such a layer.
    """
    first, *others = layout
    if len(first.shape) != 2 or not others or others[0].shape != first.shape[:1]:
        raise FedcanonError(
            "inputs can be read from updates of models that begin with a linear layer with biases "
            "(linear, logistic, mlp): this model has another form."
        )
    weights, biases = first.view(update), others[0].view(update)
    seen = biases.abs() > 1e-12 * biases.abs().max()
    return weights[seen] / biases[seen, None]


def similarity(layout: Layout, seen: Mapping[str, Tensor], z: Tensor, records: Tensor) -> float:
    """Return how much the best reconstruction is like one of these records: a correlation up to 1.

    The attacker chooses with knowledge of the records, which makes this an upper bound for attacks
    of this kind.

    Args:
        layout: Names and shapes of the model's tensors.
        seen: What the attacker has seen of a round, by name.
        z: The model that the round began with.
        records: Inputs, a row each.
    """
    guesses = torch.cat([reconstructed(layout, update) for update in _updates(seen, z)])
    return float((_standardised(guesses) @ _standardised(records).T).max())


def _updates(seen: Mapping[str, Tensor], z: Tensor) -> Iterator[Tensor]:
    """Yield what may be a sum of gradients: vectors of the model's size, and moves of the model."""
    for vector in seen.values():
        if vector.shape == z.shape:
            yield from (vector, z - vector)


def _standardised(rows: Tensor) -> Tensor:
    """Rows with mean 0 and length 1; a constant row is 0."""
    centred = rows.double() - rows.double().mean(1, keepdim=True)
    lengths: Tensor = centred.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return centred / lengths
