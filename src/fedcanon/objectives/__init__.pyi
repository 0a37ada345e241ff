# What fedcanon.objectives offers, by where it lives.
from .base import Objective as Objective
from .flat import FlatModule as FlatModule
from .lipschitz import curvature as curvature
from .lipschitz import smoothness as smoothness
from .logistic import Logistic as Logistic
from .losses import LOSSES as LOSSES
from .losses import Loss as Loss
from .module import ModuleClients as ModuleClients
from .module import ModuleObjective as ModuleObjective
from .problem import DataSummary as DataSummary
from .problem import Problem as Problem
from .quadratic import Quadratic as Quadratic
