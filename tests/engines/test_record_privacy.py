"""Private records: noisy gradients in local steps, and what is refused before a run begins."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_breast_cancer
from torch import nn

from fedcanon import (
    FedAvg,
    FedcanonError,
    FedCanonPlus,
    Federation,
    FlatModule,
    Logistic,
    Problem,
    Quadratic,
)
from fedcanon.algorithms import ALGORITHMS, FedDR, FedPD, ProxSkip, Scaffnew, Scaffold
from fedcanon.engines import Local, Rules
from fedcanon.engines.private_work import PrivateWork
from fedcanon.engines.work import CountedProx
from fedcanon.objectives import ModuleClients, Objective
from fedcanon.objectives.families import Gaussian
from fedcanon.objectives.linear import LinearObjective
from fedcanon.penalties import L1, MCP, PerLayer, Ridge, Sum, Zero
from fedcanon.privacy import RecordPrivacy
from fedcanon.runs.config import load_config
from fedcanon.runs.engine_choice import engine_for
from fedcanon.runs.record_checks import selection_is_noise
from tests.engines.networks import algorithm, classifiers
from tests.problems import logistics, quadratics

UNLIKELY = 1e-9
"""The probability with which a statistical test may fail."""


def privacy(clip=1e6, noise=0.0, steps=3, **settings):
    """Settings that change nothing unless they are given."""
    return RecordPrivacy(clip=clip, noise=noise, delta=1e-5, steps=steps, **settings)


def work_of(objective, records):
    rules = Rules(FedAvg(), Zero(), privacy=records)
    return PrivateWork(records, rules, objective, CountedProx(rules.penalty), 0, 0)


def trained(problem, method, penalty=None, rounds=10, **settings):
    federation = Federation(problem, method, penalty or L1(0.01), **settings)
    for _ in range(rounds):
        federation.step()
    federation.close()
    return federation.model


class Spy(Objective):
    """An objective that remembers the batches it was given."""

    def __init__(self, samples):
        self.samples, self.batches = samples, []

    def value(self, x):
        raise NotImplementedError

    value_and_gradient = gradient = value

    def clipped_sum(self, x, batch, bound):
        self.batches.append(batch)
        return torch.zeros_like(x)


def test_batches_are_drawn_record_by_record():
    q, n, steps = 0.3, 400, 500
    objective = Spy(n)
    work = work_of(objective, privacy(steps=steps, sampling=q))
    for _ in range(steps):
        work.gradient(torch.zeros(1))
    sizes = np.array([len(batch) for batch in objective.batches])
    assert stats.binomtest(int(sizes.sum()), n * steps, q).pvalue > UNLIKELY
    # The sum of squared deviations of binomial numbers is nearly a multiple of χ².
    spread = ((sizes - n * q) ** 2).sum() / (n * q * (1 - q))
    assert UNLIKELY < stats.chi2.cdf(spread, steps) < 1 - UNLIKELY
    times = np.bincount(torch.cat(objective.batches), minlength=n)
    assert stats.kstest(times, stats.binom(steps, q).cdf).statistic < 0.25
    assert all(bool((batch.diff() > 0).all()) for batch in objective.batches)


def test_without_sampling_all_records_are_used():
    objective = Spy(7)
    work_of(objective, privacy()).gradient(torch.zeros(1))
    assert objective.batches == [None]


@pytest.mark.parametrize("q", [1.0, 0.25])
def test_noise_has_the_deviation_of_the_formula(q):
    n, d, s, C = 40, 20_000, 1.5, 0.3
    objective = LinearObjective(np.zeros((n, d)), np.zeros(n), Gaussian(), intercept=False)
    work = work_of(objective, privacy(clip=C, noise=s, sampling=q, steps=2))
    x = torch.ones(d, dtype=torch.float64)
    expected = s * C / (q * n)
    noise = work.gradient(x).numpy()
    assert stats.kstest(noise / expected, stats.norm.cdf).pvalue > UNLIKELY
    moved = x.numpy() - work.descend(x, 0.1, 1).numpy()
    assert stats.kstest(moved / (0.1 * expected), stats.norm.cdf).pvalue > UNLIKELY
    assert abs(np.corrcoef(noise, moved)[0, 1]) < 6.2 / math.sqrt(d)


def test_sampled_gradients_are_unbiased():
    problem = logistics(clients=1, d=4, samples=50)
    [client], x = problem.clients, torch.ones(4, dtype=torch.float64)
    draws = 2000
    work = work_of(client, privacy(sampling=0.5, steps=draws))
    found = torch.stack([work.gradient(x) for _ in range(draws)])
    errors = (found.mean(0) - client.gradient(x, None)) / (found.std(0) / math.sqrt(draws))
    assert float(errors.abs().max()) < 7


@pytest.mark.parametrize("name", ["fedcanon+", "fedavg", "fedda", "feddr", "fedcanon", "za1"])
@pytest.mark.parametrize("network", [False, True])
def test_without_noise_and_clipping_it_is_the_plain_method(name, network):
    problem = classifiers(dtype=torch.float64) if network else logistics(clients=3, d=6)
    plain = trained(problem, algorithm(name))
    assert torch.allclose(trained(problem, algorithm(name), privacy=privacy()), plain, atol=1e-12)
    assert float((plain - problem.start).norm()) > 1e-3


@pytest.mark.slow
def test_a_network_with_convolutions_is_trained_in_its_own_memory():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 3, 2), nn.GroupNorm(3, 3), nn.Flatten(), nn.Linear(6, 2))
    flat = FlatModule(module.double())
    inputs, targets = torch.randn(20, 1, 2, 3).double(), torch.randint(2, (20,))
    clients = ModuleClients(flat, nn.CrossEntropyLoss(), inputs, targets, [12, 8])
    problem = Problem(clients, flat.vector)
    method = FedCanonPlus(0.3, 0.1, 3)
    plain = trained(problem, method)
    assert torch.allclose(trained(problem, method, privacy=privacy()), plain, atol=1e-12)


def test_acceleration_is_refused():
    refuses("acceleration amplifies noise", FedCanonPlus(0.5, 0.1, 3, accelerated=True))


def test_shuffled_batches_are_refused():
    refuses("drawn independently", batch_size=2)


@pytest.mark.parametrize("settings", [{"noise": 1.0}, {"sampling": 0.5}])
def test_runs_with_one_seed_differ(settings):
    problem, method = logistics(clients=3, d=6), FedCanonPlus(0.5, 0.1, 3)
    records = privacy(clip=1.0, **settings)
    first, second = (trained(problem, method, privacy=records, rounds=2) for _ in range(2))
    assert float((first - second).norm()) > 1e-6


def test_draws_of_dropout_do_not_come_from_the_seed():
    torch.manual_seed(0)
    flat = FlatModule(nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 2)))
    inputs, targets = torch.randn(20, 6), torch.randint(2, (20,))
    problem = Problem(
        ModuleClients(flat, nn.CrossEntropyLoss(), inputs, targets, [20]), flat.vector
    )
    method = FedAvg(0.1, 3)
    first, second = (trained(problem, method, rounds=1) for _ in range(2))
    assert torch.equal(first, second)
    first, second = (trained(problem, method, rounds=1, privacy=privacy()) for _ in range(2))
    assert not torch.equal(first, second)


def test_processes_keep_records_private_too():
    problem, method = classifiers(dtype=torch.float64), FedCanonPlus(0.3, 0.1, 3)
    plain = trained(problem, method)
    records = privacy()
    in_processes = trained(problem, method, privacy=records, engine=Local(workers=2))
    assert torch.allclose(in_processes, plain, atol=1e-12)


def breast_cancer():
    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    order = np.argsort(features[:, 0])  # clients that differ
    parts = np.array_split(order, 5)
    clients = [Logistic(features[part], labels[part]) for part in parts]
    return Problem(clients, torch.zeros(31, dtype=torch.float64), [len(part) for part in parts])


@pytest.mark.slow
def test_clipping_leads_near_the_solution():
    problem, penalty = breast_cancer(), Sum((L1(0.01), Ridge(0.02)))
    method = FedCanonPlus(0.1, 0.02, 5)

    def phi(model):
        return problem.value(model) + penalty.value(model)

    start, best = phi(problem.start), phi(trained(problem, method, penalty, rounds=300))
    records = privacy(clip=3.0, steps=5)
    found = phi(trained(problem, method, penalty, rounds=300, privacy=records))
    assert found - best < 0.02 * (start - best)
    records = RecordPrivacy.within(8.0, 100, clip=3.0, delta=1e-4, steps=5)
    noisy = phi(trained(problem, method, penalty, rounds=100, privacy=records))
    assert found < noisy < start  # it learns, and the noise is there


def test_a_round_with_more_steps_than_accounted_is_stopped():
    [client] = logistics(clients=1, d=4).clients
    x = torch.zeros(4, dtype=torch.float64)
    work = work_of(client, privacy(steps=2))
    work.gradient(x)
    with pytest.raises(FedcanonError, match="accounted for 2 gradient steps in a round"):
        work.descend(x, 0.1, 2)


def test_exact_sums_are_refused():
    [client] = logistics(clients=1, d=4).clients
    x = torch.zeros(4, dtype=torch.float64)
    work = work_of(client, privacy())
    how = {"step": 0.1, "steps": 3}
    with pytest.raises(FedcanonError, match=r"full gradients, which are exact.*use FedCanon\+"):
        work.full_gradient(x)
    with pytest.raises(FedcanonError, match="second derivatives, which are exact sums"):
        work.expansion(x)
    with pytest.raises(FedcanonError, match="solutions to a tolerance, which are exact sums"):
        work.solve(x, 1.0, x, tolerance=1e-3, **how)
    assert len(work.solve(x, 1.0, x, tolerance=0.0, **how)) == 4


def refuses(words, method=None, problem=None, **settings):
    records = settings.pop("privacy", privacy())
    with pytest.raises(FedcanonError, match=words):
        Federation(
            problem or logistics(clients=2, d=4),
            method or FedCanonPlus(0.5, 0.1, 3),
            L1(0.01),
            privacy=records,
            **settings,
        )


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_method_is_private_or_refused(name):
    exact = {"newton", "pgd"}
    random = {"proxskip", "scaffnew", "decentralised-proxskip", "fedpd"}
    method, problem = algorithm(name), logistics(clients=4, d=4)
    if name in exact | random:
        words = "exact sums over records" if name in exact else "draws at random"
        refuses(words, method, problem)
        return
    federation = Federation(problem, method, L1(0.01), privacy=privacy(noise=1.0))
    federation.step()
    assert bool(federation.model.isfinite().all())


def test_methods_that_release_something_else_are_refused():
    refuses("full gradients", Scaffold(0.1, 3, option="I"))
    refuses("solutions to a tolerance", FedDR(0.1, 3, tolerance=1e-3))
    refuses("draws at random", FedPD(0.1, 3, skip=0.001))
    refuses("draws at random", Scaffnew(0.1, 3, probability=0.999))
    refuses("draws at random", ProxSkip(0.1, 1))


def test_the_number_of_steps_is_that_of_the_accountant():
    refuses(r"FedCanonPlus has 3 gradient steps.*RecordPrivacy to 3\.", privacy=privacy(steps=10))
    Federation(logistics(), FedAvg(0.1, 7), Zero(), privacy=privacy(steps=7))


def test_objectives_without_single_records_are_refused():
    refuses("no gradients of single records", problem=quadratics())
    refuses("use group normalisation", problem=classifiers(norm=True))
    plain = Problem([Logistic(np.ones((3, 2)), [0, 1, 1], intercept=False)] * 2, torch.zeros(2))
    Federation(plain, FedAvg(0.1, 3), Zero(), privacy=privacy())
    weighted = LinearObjective(np.ones((3, 2)), np.ones(3), Gaussian(), weights=[1, 2, 3])
    start = torch.zeros(3, dtype=torch.float64)
    fine = LinearObjective(np.ones((3, 2)), np.ones(3), Gaussian())
    refuses("leave the weights out", problem=Problem([fine, weighted], start))


def test_clients_do_not_take_private_steps_together():
    refuses("leave engine.vectorised out", problem=classifiers(), engine=Local(vectorised=True))
    Federation(classifiers(), FedAvg(0.1, 3), Zero(), engine=Local(vectorised=True))


def test_small_networks_are_not_vectorised_if_records_are_private(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('[data]\nname = "digits"\n[model]\nname = "linear"\n[algorithm]\nname="fedavg"')
    config, problem = load_config(file), classifiers()
    assert engine_for(config, problem, FedAvg()).vectorised
    assert not engine_for(config, problem, FedAvg(), private_records=True).vectorised


def test_selection_is_called_noise_where_it_is():
    problem = breast_cancer()
    n, sizes = 569, [client.samples for client in problem.clients]
    records = privacy(clip=3.0, noise=6.0, steps=5, sampling=0.5)
    # In every round each client adds noise of deviation sC/(q n_i) to K steps.
    each = [size / n * 6 * 3 / (0.5 * size) for size in sizes]
    expected = math.sqrt(sum(number**2 for number in each) / 5) / math.sqrt(50)
    below, above = L1(0.99 * 4 * expected), L1(1.01 * 4 * expected)
    warning = selection_is_noise(problem, below, records, 100)
    assert warning.startswith("the selection is noise: after 100 rounds")
    assert f"is {expected:.2g}," in warning
    assert f"a κ of at least {4 * expected:.2g}." in warning
    assert selection_is_noise(problem, above, records, 100) is None
    layers = problem.layout
    per_layer = PerLayer(layers, (("weight", above), ("bias", Sum((MCP(1e-9), Ridge(9.0))))))
    assert "κ = 1e-09" in selection_is_noise(problem, per_layer, records, 100)
    for nothing in (Zero(), Ridge(1e-9), L1(0.0)):
        assert selection_is_noise(problem, nothing, records, 100) is None
    assert selection_is_noise(problem, below, privacy(steps=5), 100) is None


def test_a_warning_agrees_with_the_noise_of_a_round():
    problem = logistics(clients=4, d=2000, samples=10)
    records = privacy(clip=1e-6, noise=1e6, steps=3)
    method = FedCanonPlus(1.0, 1e-9, 3)
    federation = Federation(problem, method, Zero(), privacy=records)
    federation.step()
    found = float(federation.server["b"].std())
    limit = 4 * found / math.sqrt(50)
    assert selection_is_noise(problem, L1(0.9 * limit), records, 100) is not None
    assert selection_is_noise(problem, L1(1.1 * limit), records, 100) is None


def test_a_quadratic_alone_has_no_records():
    with pytest.raises(FedcanonError, match="mean over records"):
        Quadratic(torch.ones(1), torch.zeros(1)).clipped_sum(torch.zeros(1), None, 1.0)
