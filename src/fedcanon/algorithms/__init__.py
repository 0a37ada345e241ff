"""Federated methods on one contract."""

from fedcanon.algorithms.base import Algorithm, Prox, State, Work
from fedcanon.algorithms.fedavg import FedAvg
from fedcanon.algorithms.fedcanon import FedCanon, FedCanonII, FedCanonPlus
from fedcanon.algorithms.pgd import PGD
from fedcanon.algorithms.schedules import SCHEDULES, Cosine, InverseTime, Schedule, Step, StepDecay

ALGORITHMS: dict[str, type[Algorithm]] = {
    "fedcanon": FedCanon,
    "fedcanon2": FedCanonII,
    "fedcanon+": FedCanonPlus,
    "fedavg": FedAvg,
    "pgd": PGD,
}
"""Every algorithm by its name in a configuration."""

__all__ = [
    "ALGORITHMS",
    "PGD",
    "SCHEDULES",
    "Algorithm",
    "Cosine",
    "FedAvg",
    "FedCanon",
    "FedCanonII",
    "FedCanonPlus",
    "InverseTime",
    "Prox",
    "Schedule",
    "State",
    "Step",
    "StepDecay",
    "Work",
]
