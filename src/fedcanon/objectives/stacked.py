"""Several clients' gradients as one batched computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fedcanon.objectives.module import ModuleClients
from fedcanon.objectives.perceptron import Batch


class StackedModule:
    """∇f_i for n clients that share one perceptron, each at a row of an n×d matrix.

    Args:
        clients: All clients of a problem.
        members: Which of them are computed together, in the order of the rows.
    """

    def __init__(self, clients: ModuleClients, members: Sequence[int]) -> None:
        assert clients.perceptron is not None
        self._inputs, self._targets = clients.inputs.flatten(1), clients.targets
        vector, first = clients.flat.vector, [clients.offsets[client] for client in members]
        self._first = torch.tensor(first, device=vector.device)[:, None]
        self.vector = vector.new_empty(len(members), len(vector))
        self._gradient = torch.empty_like(self.vector)
        pieces, self._gradients = (
            [
                rows[:, slot.offset : slot.offset + slot.size].view(-1, *slot.shape)
                for slot in clients.flat.layout
            ]
            for rows in (self.vector, self._gradient)
        )
        self._network = clients.perceptron.at(pieces)

    def batches(self, samples: Tensor, shares: Tensor) -> Iterator[Batch]:
        """The mini-batches of several steps, each with one of every client.

        Args:
            samples: The index among client i's samples of its j-th sample in a step, at
                [step, i, j].
            shares: The weight of that sample in the loss, at [i, j].
        """
        size = samples.shape[1:]
        rows = (samples + self._first).flatten(1)
        targets = self._targets[rows].view(samples.shape)
        for own, labels in zip(rows, targets, strict=True):
            yield Batch(self._inputs.index_select(0, own).view(*size, -1), labels, shares[:, None])

    def gradient(self, x: Tensor, batch: Batch) -> Tensor:
        """The gradient of each client's loss over its samples in the batch, at its row of ``x``.

        The caller may write to the result, which is valid until the next call.
        """
        self.vector.copy_(x)
        found = self._network.gradient(batch)
        torch._foreach_copy_(self._gradients, found)
        return self._gradient

    def descend_(self, batch: Batch, step: float) -> None:
        """Move every row of ``vector`` by −step times the gradient there."""
        self._network.descend_(batch, step)


def can_stack(clients: object) -> bool:
    """Whether the gradients of these clients can be computed together, whatever it costs."""
    return (
        isinstance(clients, ModuleClients)
        and clients.perceptron is not None
        and not clients.augment
    )
