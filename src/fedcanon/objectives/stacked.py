"""Local steps and gradients of several clients at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcanon.objectives.compiled_steps import descend_, worth_compiling
from fedcanon.objectives.module import ModuleClients
from fedcanon.objectives.perceptron import Batch


class StackedModule:
    """n clients that share one perceptron, each at a row of an n×d matrix.

    Args:
        clients: All clients of a problem.
        members: Which of them are computed together, in the order of the rows.
    """

    def __init__(self, clients: ModuleClients, members: Sequence[int]) -> None:
        assert clients.perceptron is not None
        self._perceptron, flat = clients.perceptron, clients.flat
        self._inputs, self._targets = clients.inputs.flatten(1), clients.targets
        first = [clients.offsets[client] for client in members]
        self._first = torch.tensor(first, device=flat.vector.device)[:, None]
        self._layout = flat.layout
        self.vector = flat.vector.new_empty(len(members), len(flat.vector))

    def _pieces(self, rows: Tensor) -> list[Tensor]:
        """The parameters inside the rows of a matrix, as views."""
        return [
            rows[:, slot.offset : slot.offset + slot.size].view(-1, *slot.shape)
            for slot in self._layout
        ]

    def _batch(self, rows: Tensor, sizes: Tensor) -> Batch:
        """The samples at these rows; the weight of those beyond a client's own number is 0."""
        inputs = self._inputs.index_select(0, rows.flatten()).view(*rows.shape, -1)
        own = torch.arange(rows.shape[1], device=rows.device) < sizes[:, None]
        shares = own.to(inputs.dtype) / sizes[:, None]
        return Batch(inputs, self._targets[rows], shares[:, None])

    def gradient(self, x: Tensor, samples: Tensor, sizes: Tensor) -> Tensor:
        """The gradient of each client's loss over some of its samples, at its row of ``x``.

        Args:
            x: A row for each client, or a vector for all.
            samples: The samples of client i are the first in row i, as indices among its own.
            sizes: How many samples each client has there.
        """
        network = self._perceptron.at(self._pieces(self.vector.copy_(x)))
        found = network.gradient(self._batch(samples + self._first, sizes))
        return torch.cat([part.flatten(1) for part in found], 1)

    def descend_(
        self, samples: Tensor, sizes: Tensor, step: float, shift: Tensor | None = None
    ) -> None:
        """Move every row of ``vector`` by −step·(gradient there + shift), several times.

        Args:
            samples: The samples of each step, at [step, client], as in ``gradient``.
            sizes: How many samples each client has in a step.
            step: The step size.
            shift: A vector for all clients, or a row for each.
        """
        rows, vector = samples + self._first, self.vector
        if worth_compiling(vector):
            data = self._inputs, self._targets, rows, sizes
            descend_(self._perceptron, self._layout, vector, *data, step, shift)
            return
        network = self._perceptron.at(self._pieces(vector))
        for own in rows:
            network.descend_(self._batch(own, sizes), step)
            if shift is not None:
                vector.add_(shift, alpha=-step)


def can_stack(clients: object) -> bool:
    """Whether the gradients of these clients can be computed together, whatever it costs."""
    return (
        isinstance(clients, ModuleClients)
        and clients.perceptron is not None
        and not clients.augment
    )
