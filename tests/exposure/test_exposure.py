"""What attackers find: the record itself in its gradient, and chance where all is noise."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from fedcanon.cli.app import app
from fedcanon.errors import FedcanonError
from fedcanon.exposure.exposing import exposed
from fedcanon.exposure.inversion import reconstructed, similarity
from fedcanon.exposure.membership import membership
from fedcanon.objectives import FlatModule
from fedcanon.runs.config import make_config

SMALL = {
    "rounds": 3,
    "batch_size": "full",
    "model": "linear",
    "penalty": {"name": "l1", "kappa": 1e-3},
    "algorithm": {"name": "fedcanon+", "beta": 0.05},
    "clients": {"count": 40},
}


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_the_gradient_of_one_record_is_that_record(hidden):
    torch.manual_seed(0)
    sizes = [6, *hidden, 3]
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    network = nn.Sequential(*[m for layer in layers for m in (layer, nn.Tanh())][:-1])
    record = torch.randn(1, 6)
    loss = nn.functional.cross_entropy(network(record), torch.tensor([1]))
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    update = torch.cat([g.flatten() for g in gradients])
    layout = FlatModule(network).layout
    found = reconstructed(layout, update)
    assert torch.allclose(found, record.expand_as(found), atol=1e-4)
    z = torch.zeros_like(update)
    assert similarity(layout, {"u": update}, z, record) == pytest.approx(1, abs=1e-6)
    # A method that sends its model instead of a step is read in the same way.
    assert similarity(layout, {"x": z - 0.1 * update}, z, record) == pytest.approx(1, abs=1e-6)


def test_other_models_are_refused():
    layout = FlatModule(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))).layout
    with pytest.raises(FedcanonError, match="begin with a linear layer with biases"):
        reconstructed(layout, torch.zeros(layout.size))


def test_membership_of_losses_that_are_told_apart_and_of_equal_ones():
    rng = np.random.default_rng(0)
    low, high = rng.random(500), 2 + rng.random(500)
    told = membership(low, high)
    assert (told.auc, told.hits) == (1.0, 1.0)
    alike = membership(rng.random(5000), rng.random(5000))
    assert alike.auc == pytest.approx(0.5, abs=0.03)
    assert alike.hits == pytest.approx(0.01, abs=0.015)


@pytest.mark.slow
def test_updates_expose_records_and_noise_hides_them_from_others():
    config = make_config(None, SMALL)
    bare = exposed(config)
    assert bare.update > 0.9
    private = {"level": "client", "epsilon": 0.5, "clip": 0.1}
    hidden = exposed(make_config(config, {"privacy": private}))
    assert hidden.update == pytest.approx(bare.update, abs=1e-4)  # the server is trusted
    assert hidden.released < bare.update


@pytest.mark.slow
def test_the_command_shows_both(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'rounds = 2\nbatch_size = "full"\nmodel.name = "linear"\nclients.count = 20\n'
        'penalty = {name = "l1", kappa = 1e-3}\n'
        'algorithm = {name = "fedcanon+", beta = 0.05}\n'
        'privacy = {level = "client", epsilon = 1.0, clip = 0.1}\n'
    )
    result = CliRunner().invoke(app, ["expose", str(path)])
    assert result.exit_code == 0, result.output
    assert "without privacy" in result.output
    assert "with privacy" in result.output
    assert "ε = 1" in result.output
