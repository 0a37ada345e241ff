"""Another rule than the mean: the median of each entry, which one false client cannot move far."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcanon import FedAvg, Federation, Problem, Quadratic
from fedcanon.engines import Aggregation, Mean
from fedcanon.penalties import Zero


class Median(Aggregation):
    """The median over the participants, entry by entry; weights are not looked at."""

    def finish(
        self, parts: Sequence[dict[str, Tensor]], weights: Sequence[float]
    ) -> dict[str, Tensor]:
        return {
            name: torch.stack([part[name] for part in parts]).median(0).values for name in parts[0]
        }


def distances(targets: list[float]) -> Problem:
    """f_i = ½‖x − b_i‖² in two dimensions, where all entries of b_i are the same number."""
    clients = [Quadratic(torch.eye(2), torch.full((2,), target)) for target in targets]
    return Problem(clients, torch.zeros(2))


problem = distances([0.9, 1.0, 1.1, 1.0, 1000.0])  # the last one is wrong, or lies
for rule in (Mean(), Median()):
    federation = Federation(problem, FedAvg(beta=0.1), Zero(), aggregation=rule)
    for _ in range(50):
        federation.step()
    print(f"{type(rule).__name__:7} ends at {federation.model[0]:.4g}")
