"""Test accuracies that are known for these datasets and models, with FedCanon+ over ten clients."""

import pytest

from fedcanon import build, load_config

pytestmark = pytest.mark.slow


def accuracy(rounds, *settings):
    federation = build(load_config(settings=["data.partition=iid", *settings]))
    for _ in range(rounds):
        federation.step()
    return federation.problem.test(federation.model)["accuracy"]


@pytest.mark.data("a9a")
def test_a_linear_model_on_a9a():
    steps = "algorithm={name='fedcanon+', beta=0.2, local_steps=10}"
    penalty = "penalty={name='l1', kappa=1e-4}"
    found = accuracy(100, "data.name=a9a", "model.name=linear", steps, penalty, "batch_size=128")
    assert found == pytest.approx(0.85, abs=0.005)


NETWORK = (
    "data.name=fashion_mnist",
    "penalty={name='scad', kappa=1e-5}",
)


@pytest.mark.data("fashion_mnist")
def test_an_mlp_on_fashion_mnist():
    steps = "algorithm={name='fedcanon+', beta=0.1, local_steps=20}"
    assert accuracy(80, *NETWORK, "model.name=mlp", steps, "batch_size=64") >= 0.86


@pytest.mark.exhaustive
@pytest.mark.data("fashion_mnist")
def test_a_cnn_on_fashion_mnist():
    steps = "algorithm={name='fedcanon+', beta=0.2, local_steps=20}"
    assert accuracy(60, *NETWORK, "model.name=cnn", steps, "batch_size=16") >= 0.88
