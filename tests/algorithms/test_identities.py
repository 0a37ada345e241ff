"""Methods that must coincide for special parameters, step by step."""

import pytest
import torch

from fedcanon import (
    PGD,
    FedAvg,
    FedCanon,
    FedCanonII,
    FedCanonPlus,
    Federation,
    Problem,
    build,
    load_config,
)
from fedcanon.penalties import L1, MCP, Zero
from tests.algorithms import reference
from tests.problems import logistics, quadratics, smoothness

ROUNDS = 60
PROBLEMS = {"quadratic": quadratics(), "logistic": logistics(clients=5, d=8, samples=30)}


@pytest.fixture(params=PROBLEMS, ids=str)
def problem(request):
    return PROBLEMS[request.param]


def path(problem, algorithm, penalty, rounds=ROUNDS, **options):
    federation = Federation(problem, algorithm, penalty, **options)
    models = []
    for _ in range(rounds):
        federation.step()
        models.append(federation.model)
    return models


def difference(one, other):
    assert len(one) == len(other)
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


def same_path(problem, other, algorithm):
    penalty = L1(0.05)
    return difference(path(problem, algorithm, penalty), path(other, algorithm, penalty)) < 1e-13


def steps(problem, K=7):
    L = smoothness(problem)
    return {"alpha": 0.5 / L, "beta": 0.05 / L, "local_steps": K}


@pytest.mark.parametrize("penalty", [L1(0.05), MCP(0.05, 4.0), Zero()], ids=str)
def test_fedcanon_two_is_fedcanon_bit_for_bit(problem, penalty):
    one = path(problem, FedCanon(**steps(problem)), penalty)
    two = path(problem, FedCanonII(**steps(problem)), penalty)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_published_form_with_control_variables_on_the_clients(problem):
    s = steps(problem)
    published = reference.fedcanon(problem, L1(0.05), s["alpha"], s["beta"], 7, ROUNDS)
    assert difference(path(problem, FedCanon(**s), L1(0.05)), published) < 1e-13


def test_without_penalty_it_is_scaffold(problem):
    s = steps(problem)
    scaffold = reference.scaffold(problem, s["beta"], 7, s["alpha"] / (s["beta"] * 7), ROUNDS)
    assert difference(path(problem, FedCanon(**s), Zero()), scaffold) < 1e-13
    assert difference(path(problem, FedCanonPlus(**s), Zero()), scaffold) < 1e-12


@pytest.mark.parametrize("algorithm", [FedCanon, FedCanonII, FedCanonPlus])
def test_one_local_step_is_proximal_gradient_descent(problem, algorithm):
    s = steps(problem, K=1)
    expected = path(problem, PGD(s["alpha"]), L1(0.05))
    assert difference(expected, reference.pgd(problem, L1(0.05), s["alpha"], ROUNDS)) < 1e-14
    assert difference(path(problem, algorithm(**s), L1(0.05)), expected) < 1e-13


def test_one_local_step_with_any_controls_of_zero_sum_is_pgd_and_others_are_not(problem):
    generator = torch.Generator().manual_seed(0)
    controls = torch.randn(5, len(problem.start), generator=generator, dtype=torch.float64)
    expected = path(problem, PGD(steps(problem)["alpha"]), L1(0.05))
    for centred in (True, False):
        federation = Federation(problem, FedCanon(**steps(problem, K=1)), L1(0.05))
        federation.engine.clients = {
            i: {"v": -(c - controls.mean(0)) if centred else -c} for i, c in enumerate(controls)
        }
        models = []
        for _ in range(ROUNDS):
            federation.step()
            models.append(federation.model)
        assert (difference(models, expected) < 1e-13) == centred


def test_one_client_without_penalty_is_gradient_descent_seen_every_k_steps(problem):
    alone = Problem([problem.clients[0]], problem.start)
    beta = 0.05 / smoothness(problem)
    seen = path(alone, PGD(beta), Zero(), rounds=7 * ROUNDS)[6::7]
    assert difference(path(alone, FedCanon(beta=beta, local_steps=7), Zero()), seen) < 1e-14


def test_identical_clients_are_one_client(problem):
    s = steps(problem)
    many = Problem([problem.clients[0]] * 5, problem.start)
    one = Problem([problem.clients[0]], problem.start)
    assert (
        difference(path(many, FedCanon(**s), L1(0.05)), path(one, FedCanon(**s), L1(0.05))) < 1e-13
    )


def test_fedavg_with_one_local_step_is_gradient_descent(problem):
    beta = 0.2 / smoothness(problem)
    averaged = path(problem, FedAvg(beta=beta, local_steps=1, server_step=2.0), L1(0.05))
    assert difference(averaged, path(problem, PGD(2 * beta), Zero())) < 1e-13


def test_equal_weights_given_as_numbers_change_nothing(problem):
    weighted = Problem(problem.clients, problem.start, [3.0] * 5)
    s = steps(problem)
    for algorithm in (FedCanon(**s), FedCanonPlus(**s)):
        assert (
            difference(path(weighted, algorithm, L1(0.05)), path(problem, algorithm, L1(0.05)))
            < 1e-13
        )


def test_integer_weights_are_repeated_clients(problem):
    weighted = Problem(problem.clients[:2], problem.start, [1.0, 2.0])
    repeated = Problem([problem.clients[0], problem.clients[1], problem.clients[1]], problem.start)
    for algorithm in (FedCanon(**steps(problem)), FedCanonPlus(**steps(problem))):
        assert (
            difference(path(weighted, algorithm, L1(0.05)), path(repeated, algorithm, L1(0.05)))
            < 1e-13
        )


def test_mini_batches_and_networks_too_fedcanon_two_is_fedcanon_bit_for_bit():
    """With the same draws, in float32, on the default network."""
    models = []
    for name in ("fedcanon", "fedcanon2"):
        settings = [f"algorithm={{name='{name}', beta=0.05}}", "clients.weights=samples"]
        federation = build(load_config(settings=settings))
        for _ in range(4):
            federation.step()
        models.append(federation.model)
    assert torch.equal(*models)
    assert not torch.equal(models[0], federation.problem.start)
