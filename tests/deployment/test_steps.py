"""Automatic steps in a deployment: clients tell numbers, the server chooses."""

import math

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, RecordDict

from fedcanon import FedcanonError
from fedcanon.deployment import Presence
from fedcanon.deployment.flower import apps
from fedcanon.deployment.flower.wire import presence_to_records, to_presence
from fedcanon.objectives.warm_up import TRIED
from fedcanon.runs.build import build_problem
from fedcanon.runs.config import changed, load_config
from fedcanon.runs.steps import told_by, with_steps

pytestmark = pytest.mark.flower

LINEAR = ["data.name=breast_cancer", "model.name=logistic", "penalty.name=l1", "batch_size=full"]
LINEAR += ["precision=float64", "clients.weights=samples"]
DEPLOYED = {"deployment.shape": [30], "deployment.classes": 2}


def presences(config, problem):
    batch = None if config.batch_size == "full" else config.batch_size
    return [
        Presence(
            client.samples,
            0,
            tuple(told_by(client, problem.start, batch, np.random.default_rng(i))),
        )
        for i, client in enumerate(problem.clients)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [LINEAR, ["rounds=5"]], ids=["linear", "network"])
def test_the_steps_are_those_of_a_simulation(settings):
    config = load_config(settings=settings)
    problem = build_problem(config)
    deployed = apps._with_steps(config, presences(config, problem), problem.layout).algorithm
    simulated = with_steps(config, problem).algorithm
    assert deployed.keys() == simulated.keys()
    for key, value in simulated.items():
        if isinstance(value, float):
            assert deployed[key] == pytest.approx(value, rel=1e-2 if settings is LINEAR else 0.5)
        else:
            assert deployed[key] == value


def test_given_steps_need_no_numbers():
    config = load_config(settings=["algorithm={name='fedavg', beta=0.1}"])
    assert apps._with_steps(config, [Presence(5), Presence(6)], None) is config


@pytest.mark.parametrize("told", [[(), ()], [(1.0,), ()], [(1.0,), (1.0,) * len(TRIED)]])
def test_clients_must_tell_the_same_kind_of_numbers(told):
    clients = [Presence(5, 0, numbers) for numbers in told]
    layout = build_problem(load_config()).layout
    with pytest.raises(FedcanonError, match=r"give all the same app/run\.toml"):
        apps._with_steps(load_config(), clients, layout)


@pytest.mark.parametrize(
    ("table", "key"),
    [("{name='feddr', beta=0.1}", "eta"), ("{name='feddr'}", "beta")],
)
def test_steps_that_clients_must_know_cannot_be_automatic(table, key):
    config = changed(load_config(settings=[f"algorithm={table}"]), DEPLOYED)
    with pytest.raises(FedcanonError, match=f"algorithm.{key} cannot be automatic in a deployment"):
        apps._check(config)


@pytest.mark.parametrize("name", ["fedcanon+", "fedcanon", "scaffold", "fedavg", "za1", "pgd"])
def test_steps_that_travel_can_be_automatic(name):
    apps._check(changed(load_config(settings=[f"algorithm={{name='{name}'}}"]), DEPLOYED))


def test_numbers_travel():
    there = Presence(12, 3, (0.5, 1.5))
    assert to_presence(presence_to_records(4, there)) == (4, there)


@pytest.mark.parametrize(
    "told", [[math.nan], [math.inf], [-1.0], ["a"], [1.0] * (len(TRIED) + 1), "text", 3.0, None]
)
def test_numbers_from_a_client_are_checked(told):
    numbers = {"client": 1, "samples": 5, "held_out": 0}
    content = numbers if told is None else {**numbers, "told": told}
    with pytest.raises(FedcanonError, match="malformed"):
        to_presence(RecordDict({"presence": ConfigRecord(content)}))
