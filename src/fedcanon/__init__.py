"""Composite federated learning: minimise f + h over clients that keep their data."""

from importlib.metadata import version

from fedcanon.algorithms import PGD, FedAvg, FedCanon, FedCanonII, FedCanonPlus
from fedcanon.errors import FedcanonError
from fedcanon.objectives import FlatModule, Logistic, ModuleObjective, Objective, Problem, Quadratic
from fedcanon.runs import Federation, Observer, Record, Result, fit
from fedcanon.runs.build import build
from fedcanon.runs.config import Config, load_config
from fedcanon.runs.training import load, resume, train

__version__ = version("fedcanon")

__all__ = [
    "PGD",
    "Config",
    "FedAvg",
    "FedCanon",
    "FedCanonII",
    "FedCanonPlus",
    "FedcanonError",
    "Federation",
    "FlatModule",
    "Logistic",
    "ModuleObjective",
    "Objective",
    "Observer",
    "Problem",
    "Quadratic",
    "Record",
    "Result",
    "build",
    "fit",
    "load",
    "load_config",
    "resume",
    "train",
]
