"""Small classification problems whose clients share one network."""

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from fedcanon import FlatModule, Problem
from fedcanon.algorithms import ALGORITHMS
from fedcanon.objectives import ModuleClients
from fedcanon.objectives.module import ModuleObjective, ModuleTest

STEPS = {"beta": 0.05, "alpha": 0.05, "local_steps": 3}


def classifiers(clients=7, hidden=(5,), norm=False, sizes=(4, 30), dtype=torch.float32, seed=0):
    """Clients with different numbers of samples, from ``sizes[0]`` to ``sizes[1]``."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(sizes[0], sizes[1], clients, endpoint=True).tolist()
    inputs = torch.from_numpy(rng.standard_normal((sum(counts), 2, 3))).to(dtype)
    targets = torch.from_numpy(rng.integers(0, 3, sum(counts)))
    widths = [6, *hidden, 3]
    torch.manual_seed(seed)
    layers = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after) if norm else nn.ReLU()]
    flat, loss = FlatModule(nn.Sequential(*layers[:-1]).to(dtype)), nn.CrossEntropyLoss()
    own = ModuleClients(flat, loss, inputs, targets, counts)
    test = ModuleTest(ModuleObjective(flat, loss, inputs[:9], targets[:9]))
    return Problem(own, flat.vector, test=test)


def classifiers_for(name, **settings):
    """Classifiers that the method of this name can train: Newton needs a linear model."""
    return classifiers(**settings, hidden=() if name == "newton" else (5,))


def algorithm(name):
    """The method of this name with small steps."""
    kind = ALGORITHMS[name]
    known = kind.__dataclass_fields__
    steps = {key: value for key, value in STEPS.items() if key in known}
    return kind(**steps, **({"topology": "ring"} if "topology" in known else {}))
