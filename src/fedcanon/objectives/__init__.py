"""Objectives f_i as functions of one flat vector."""

from fedcanon.objectives.base import Objective
from fedcanon.objectives.flat import FlatModule
from fedcanon.objectives.logistic import Logistic
from fedcanon.objectives.losses import LOSSES, Loss
from fedcanon.objectives.module import ModuleClients, ModuleObjective
from fedcanon.objectives.problem import DataSummary, Problem
from fedcanon.objectives.quadratic import Quadratic
from fedcanon.objectives.smoothness import curvature, smoothness

__all__ = [
    "LOSSES",
    "DataSummary",
    "FlatModule",
    "Logistic",
    "Loss",
    "ModuleClients",
    "ModuleObjective",
    "Objective",
    "Problem",
    "Quadratic",
    "curvature",
    "smoothness",
]
