"""Federated methods on one contract."""

from fedcanon.algorithms.base import Algorithm, Prox, State, StepRules, Work, safe_step, step_rules
from fedcanon.algorithms.capabilities import (
    Assembling,
    Diagnosed,
    Links,
    Mixed,
    Recalling,
    Relayed,
)
from fedcanon.algorithms.dual_averaging import FastFedDA, FedDA
from fedcanon.algorithms.fedavg import FedAvg, FedAvgM, FedProx
from fedcanon.algorithms.fedcanon import FedCanon, FedCanonII, FedCanonPlus
from fedcanon.algorithms.fedmid import FedMiD
from fedcanon.algorithms.pgd import PGD
from fedcanon.algorithms.proxskip import DecentralisedProxSkip, ProxSkip, Scaffnew
from fedcanon.algorithms.scaffold import Scaffold
from fedcanon.algorithms.schedules import (
    SCHEDULES,
    Cosine,
    InverseTime,
    Schedule,
    Step,
    StepDecay,
    largest,
    require_step,
    step_at,
)
from fedcanon.algorithms.splitting import FedADMM, FedDR, FedDyn, FedPD
from fedcanon.algorithms.za1 import ZA1

ALGORITHMS: dict[str, type[Algorithm]] = {
    "fedcanon": FedCanon,
    "fedcanon2": FedCanonII,
    "fedcanon+": FedCanonPlus,
    "fedmid": FedMiD,
    "fedda": FedDA,
    "fast-fedda": FastFedDA,
    "za1": ZA1,
    "feddr": FedDR,
    "fedadmm": FedADMM,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedavg-m": FedAvgM,
    "scaffold": Scaffold,
    "scaffnew": Scaffnew,
    "decentralised-proxskip": DecentralisedProxSkip,
    "fedpd": FedPD,
    "feddyn": FedDyn,
    "proxskip": ProxSkip,
    "pgd": PGD,
}
"""Every algorithm by its name in a configuration."""

__all__ = [
    "ALGORITHMS",
    "PGD",
    "SCHEDULES",
    "ZA1",
    "Algorithm",
    "Assembling",
    "Cosine",
    "DecentralisedProxSkip",
    "Diagnosed",
    "FastFedDA",
    "FedADMM",
    "FedAvg",
    "FedAvgM",
    "FedCanon",
    "FedCanonII",
    "FedCanonPlus",
    "FedDA",
    "FedDR",
    "FedDyn",
    "FedMiD",
    "FedPD",
    "FedProx",
    "InverseTime",
    "Links",
    "Mixed",
    "Prox",
    "ProxSkip",
    "Recalling",
    "Relayed",
    "Scaffnew",
    "Scaffold",
    "Schedule",
    "State",
    "Step",
    "StepDecay",
    "StepRules",
    "Work",
    "largest",
    "require_step",
    "safe_step",
    "step_at",
    "step_rules",
]
