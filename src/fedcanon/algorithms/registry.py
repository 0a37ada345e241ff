"""Every algorithm by its name in a configuration."""

from fedcanon.algorithms.adaptive import FedAdam, FedExP, FedYogi
from fedcanon.algorithms.base import Algorithm
from fedcanon.algorithms.dual_averaging import FastFedDA, FedDA
from fedcanon.algorithms.fedavg import FedAvg, FedAvgM, FedProx
from fedcanon.algorithms.fedcanon import FedCanon, FedCanonII, FedCanonPlus
from fedcanon.algorithms.fedmid import FedMiD
from fedcanon.algorithms.newton import Newton
from fedcanon.algorithms.pgd import PGD
from fedcanon.algorithms.proxskip import DecentralisedProxSkip, ProxSkip, Scaffnew
from fedcanon.algorithms.scaffold import Scaffold
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
    "newton": Newton,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedavg-m": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedexp": FedExP,
    "scaffold": Scaffold,
    "scaffnew": Scaffnew,
    "decentralised-proxskip": DecentralisedProxSkip,
    "fedpd": FedPD,
    "feddyn": FedDyn,
    "proxskip": ProxSkip,
    "pgd": PGD,
}
"""Every algorithm by its name in a configuration."""
