"""A hundred thousand clients, of which few take part."""

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import numpy as np, psutil, sys, torch
    from torch import nn
    from fedcanon import FedCanonPlus, Federation, FlatModule, Local, Problem
    from fedcanon.objectives import ModuleClients
    from fedcanon.penalties import L1

    rss = lambda: psutil.Process().memory_info().rss / 2**20
    clients, features = 100_000, 20_000
    torch.manual_seed(0)
    samples = torch.randn(2 * clients, 4)
    spread = nn.Linear(4, features)
    spread.requires_grad_(False)
    flat = FlatModule(nn.Sequential(spread, nn.ReLU(), nn.Linear(features, 5)))
    targets = torch.randint(0, 5, (2 * clients,))
    own = ModuleClients(flat, nn.CrossEntropyLoss(), samples, targets, [2] * clients)
    L1(1e-3).prox(torch.zeros(2), 1.0)  # what the compiler of kernels takes is not the clients'
    before = rss()
    problem = Problem(own, flat.vector)
    federation = Federation(
        problem,
        FedCanonPlus(0.1, 0.1, 2),
        L1(1e-3),
        participants=100,
        batch_size=2,
        engine=Local(state_memory=2**24),
    )
    made = rss()
    for _ in range(5):
        federation.step()
    clients_seen = len(federation.engine._store)
    print(made - before, rss() - made, clients_seen)
"""


@pytest.mark.slow
def test_memory_grows_with_the_clients_that_took_part():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], capture_output=True, text=True, check=True
    )
    made, trained, seen = map(float, done.stdout.split())
    assert 480 < seen <= 500
    assert made < 40  # MiB for 100,000 clients, before any of them has a state
    # 500 states of 0.4 MB are 190 MiB, of which 16 may stay in memory; some is PyTorch's own.
    assert trained < 16 + 80
