"""Parts of a user's own, named package.module:Name in a configuration."""

import subprocess
import sys

import pytest
import tomli_w
import torch
from typer.testing import CliRunner

from fedcanon import FedcanonError, build, load, load_config, train
from fedcanon.cli.app import app
from fedcanon.compression import Chain, Clip, TopK
from fedcanon.runs.compare import variants
from fedcanon.runs.named import make_compressor
from tests.waiting import PATIENCE

SOURCE = '''
from dataclasses import dataclass

import numpy as np
from torch.nn import functional

from fedcanon.algorithms import FedAvg
from fedcanon.compression import TopK
from fedcanon.data import DATASETS
from fedcanon.data.partition import Partition
from fedcanon.penalties import L1


@dataclass(frozen=True)
class Method(FedAvg):
    """FedAvg under another name."""


@dataclass(frozen=True)
class Norm(L1):
    """The ℓ1 norm under another name."""


@dataclass(frozen=True)
class Shorter(TopK):
    """Top-k under another name."""


@dataclass(frozen=True)
class Alternate(Partition):
    """Samples dealt out one by one."""

    def deal(self, labels, users, clients, rng):
        return [np.arange(len(labels))[client::clients] for client in range(clients)]


class Focal:
    """The focal loss of Lin et al. 2017; γ = 0 is the cross-entropy."""

    def __init__(self, gamma: float = 2.0):
        self.gamma = gamma

    def __call__(self, outputs, targets):
        log_p = outputs.log_softmax(1).gather(1, targets[:, None])[:, 0]
        return -((1 - log_p.exp()) ** self.gamma * log_p).mean()


class Summed(Focal):
    """No mean over samples."""

    def __call__(self, outputs, targets):
        return super().__call__(outputs, targets) * len(targets)


class Weighted(Focal):
    """No mean either: the weights of the classes are normalised over a batch."""

    def __call__(self, outputs, targets):
        weights = 1.0 + np.arange(outputs.shape[1])
        return functional.cross_entropy(outputs, targets, outputs.new_tensor(weights))


def digits():
    return DATASETS["digits"]()


def nothing():
    return 3
'''

OWN = {
    "data": {"name": "own_parts:digits", "partition": "own_parts:Alternate"},
    "model": "linear",
    "penalty": {"name": "own_parts:Norm", "kappa": 0.01},
    "algorithm": {"name": "own_parts:Method", "beta": 0.2},
    "compression": {"name": "own_parts:Shorter", "fraction": 0.5},
    "loss": {"name": "own_parts:Focal", "gamma": 0.0},
    "clients": {"count": 3},
    "rounds": 2,
}
OURS = {
    **OWN,
    "data": {"name": "digits", "partition": "own_parts:Alternate"},
    "penalty": {"name": "l1", "kappa": 0.01},
    "algorithm": {"name": "fedavg", "beta": 0.2},
    "compression": {"name": "top_k", "fraction": 0.5},
}


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "own_parts.py").write_text(SOURCE)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)


def test_a_run_of_nothing_but_own_parts():
    own, ours = train(OWN), train(OURS)
    assert torch.equal(own.vector, ours.vector)
    entropy = train({**OURS, "loss": {"name": "cross_entropy"}})
    assert torch.allclose(own.vector, entropy.vector, atol=1e-5)
    focal = train({**OURS, "loss": {"name": "own_parts:Focal"}})
    assert not torch.allclose(own.vector, focal.vector, atol=1e-3)


@pytest.mark.slow
def test_an_evaluation_measures_the_loss_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fedcanon"])
    result = train({**OWN, "loss": {"name": "own_parts:Focal"}}, folder=tmp_path / "run")
    shown = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run")])
    assert shown.exit_code == 0, shown.output
    assert f"loss {result.last.test['test_loss']:.4f}" in shown.output
    assert "loss own_parts:Focal" in CliRunner().invoke(app, ["show", str(tmp_path / "run")]).output


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["processes", "ray", "flower"])
def test_they_are_found_wherever_clients_run(engine, fedcanon, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "RAY_worker_niceness", "0"
    )  # Ray's workers would wait as long as others work
    settings = {**OWN, "model": {"name": "linear"}, "engine": {"vectorised": False}}
    (tmp_path / "run.toml").write_text(tomli_w.dumps(settings))
    command = ["run", "run.toml", "--workers", "1"]
    assert fedcanon(*command, "--engine", "serial", "--folder", "here")[0] == 0
    elsewhere = [sys.executable, "-m", "fedcanon", *command, "--engine", engine]
    subprocess.run([*elsewhere, "--folder", "elsewhere"], check=True, timeout=PATIENCE)
    here, elsewhere = (load(tmp_path / folder) for folder in ("here", "elsewhere"))
    assert torch.equal(elsewhere.vector, here.vector)


def test_a_method_of_ones_own_can_be_compared():
    found = variants(load_config(), ["fedavg", "own_parts:Method", "own_parts:Method:beta=0.5"])
    fedavg, automatic, given = (build(config).algorithm.beta for config in found.values())
    assert automatic == fedavg
    assert given == 0.5


@pytest.mark.parametrize(
    ("key", "name", "words"),
    [
        (
            "algorithm.name",
            "own_parts:Norm",
            "makes a Norm, where a Algorithm",
        ),
        ("algorithm.name", "own_parts:Nobody", "has no function or class 'Nobody'"),
        ("algorithm.name", "no_such_module:Method", "cannot be imported"),
        ("algorithm.name", "fedavgg", "did you mean 'fedavg'"),
        ("penalty.name", "own_parts:Method", "makes a Method, where a Penalty"),
        ("compression.name", "own_parts:Norm", "makes a Norm, where a Compressor"),
        ("data.name", "own_parts:nothing", "makes a int, where a Dataset"),
        ("data.partition", "own_parts:Norm", "must be a Partition"),
        ("data.partition", "dirichlett:0.2", "no partition called 'dirichlett'"),
        ("loss.name", "own_parts:Summed", "is not the mean over samples"),
        ("loss.name", "own_parts:Weighted", "is not the mean over samples"),
        ("loss.name", "own_parts:digits", "the loss 'own_parts:digits' fails"),
        ("loss.name", "hinge", "there is no loss called 'hinge'"),
        ("loss.gama", "2.0", "unknown key 'loss.gama'"),
    ],
)
def test_what_is_no_such_part_is_refused_with_a_sentence(key, name, words):
    with pytest.raises(FedcanonError, match=words) as caught:
        build(load_config(settings=[f"{key}={name}"]))
    assert "\n" not in str(caught.value)


def test_a_chain_of_compressors_has_a_table_for_each():
    steps = [{"name": "clip", "limit": 2.0}, {"name": "top_k", "fraction": 0.1}]
    chain = make_compressor({"name": "chain", "steps": steps})
    assert chain == Chain((Clip(2.0), TopK(0.1)))
    with pytest.raises(FedcanonError, match=r"compression\.steps must be a list"):
        make_compressor({"name": "chain"})
