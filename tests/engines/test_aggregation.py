"""Rules for uploads: the mean, means over neighbours, and rules that see every single upload."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcanon import FedAvg, FedcanonError, FedCanonPlus, Federation, Problem
from fedcanon.algorithms import DecentralisedProxSkip
from fedcanon.deployment import Deployment
from fedcanon.engines import Aggregation, Local, Mean
from fedcanon.engines.aggregation import Accumulator
from fedcanon.penalties import L1, Zero
from tests.deployment.network import World
from tests.engines.networks import classifiers
from tests.problems import logistics, quadratics


@dataclass(frozen=True)
class Median(Aggregation):
    """The median of every coordinate: a rule that does not stream."""

    def finish(self, parts, weights):
        return {
            name: torch.stack([part[name] for part in parts]).median(0).values for name in parts[0]
        }


@given(
    st.lists(
        st.tuples(st.floats(0.1, 10), st.lists(st.floats(-9, 9), min_size=3, max_size=3)),
        min_size=1,
        max_size=20,
    )
)
def test_the_mean_is_that_of_numpy(uploads):
    weights, rows = zip(*uploads, strict=True)
    accumulator = Accumulator(Mean())
    for weight, row in uploads:
        accumulator.push({"x": torch.tensor(row, dtype=torch.float64)}, weight)
    found = Mean().finish(accumulator.parts(), weights)["x"].numpy()
    assert found == pytest.approx(np.average(rows, axis=0, weights=weights), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_stacked_uploads_have_the_bits_of_single_ones(count):
    matrix = torch.randn(count, 5, generator=torch.Generator().manual_seed(0))
    weights = [1.0 + k / 7 for k in range(count)]
    single, stacked = Accumulator(Mean()), Accumulator(Mean())
    for row, weight in zip(matrix, weights, strict=True):
        single.push({"x": row}, weight)
    stacked.push_rows({"x": matrix}, weights)
    assert torch.equal(single.parts()[0]["x"], stacked.parts()[0]["x"])


@pytest.mark.parametrize("engine", [Local(), Local(workers=2)])
def test_a_rule_that_sees_single_uploads_needs_no_change_of_an_engine(engine):
    problem = quadratics(clients=5)
    federation = Federation(problem, FedAvg(0.1, 2), Zero(), aggregation=Median(), engine=engine)
    federation.step()
    moves = []
    for client in range(5):
        alone = Federation(problem, FedAvg(0.1, 2), Zero())
        alone.step([client])
        moves.append(alone.model - problem.start)
    federation.close()
    expected = torch.stack(moves).median(0).values
    assert torch.allclose(federation.model - problem.start, expected, rtol=0, atol=1e-15)


def test_such_a_rule_also_takes_clients_that_work_together():
    problem = classifiers()
    one, other = (
        Federation(
            problem, FedAvg(0.1, 2), Zero(), batch_size=8, aggregation=Median(), engine=engine
        )
        for engine in (Local(), Local(vectorised=True))
    )
    one.step()
    other.step()
    assert torch.allclose(one.model, other.model, atol=1e-5)


def test_a_deployment_follows_the_same_rule():
    problem, method = logistics(clients=3, d=4, samples=10), FedCanonPlus(0.5, 0.1, 2)
    local = Federation(problem, method, L1(0.01), aggregation=Median())
    world = World(problem, method, L1(0.01), "server", aggregation=Median())
    for _ in range(3):
        local.step()
        world.step()
    assert torch.equal(local.model, world.federation.model)


@pytest.mark.parametrize("engine", [Local(), Deployment(network=None)])
def test_no_engine_takes_a_decentralised_method_with_unequal_weights(engine):
    base = quadratics(clients=3)
    problem = Problem(base.clients, base.start, [1.0, 2.0, 1.0])
    with pytest.raises(FedcanonError, match="cannot weigh clients differently"):
        Federation(problem, DecentralisedProxSkip(), Zero(), engine=engine)
    with pytest.raises(FedcanonError, match="it takes no other rule"):
        Federation(base, DecentralisedProxSkip(), Zero(), aggregation=Mean(), engine=engine)
