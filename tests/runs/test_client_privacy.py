"""Privacy of clients: what it computes, what it spends, and what it refuses."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import fedcanon.engines.noisy_mean as noisy_mean
from fedcanon import FedAvg, FedCanonPlus, Federation, Quadratic, fit
from fedcanon.algorithms import AveragedFedCanonPlus
from fedcanon.compression import Clip, PrivateClip, TopK
from fedcanon.engines import Aggregation
from fedcanon.errors import FedcanonError
from fedcanon.objectives import FlatModule, ModuleClients, Problem
from fedcanon.penalties import L1
from fedcanon.privacy import ClientPrivacy, gaussian
from fedcanon.runs.config import load_config
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.guarantee import guarantees
from fedcanon.runs.observers import Observer
from fedcanon.runs.training import resume, train
from tests.problems import logistics, vector

STEPS = FedCanonPlus(alpha=0.5, beta=0.05, local_steps=5)
OPEN = ClientPrivacy(clip=1e9, noise=0.0, delta=1e-5, forgetting=0.0)
"""Settings with which nothing is hidden: no noise, no clip, no forgetting."""

PRIVATE = """
rounds = 6
batch_size = "full"
model.name = "linear"
penalty = {name = "l1", kappa = 1e-3}
clients.count = 20
algorithm = {name = "fedcanon+", beta = 0.05, local_steps = 3}
privacy = {level = "client", epsilon = 4.0, clip = 0.1}
"""


@pytest.fixture
def drawn(monkeypatch):
    """The noise that the server draws, in order."""
    found = []

    def record(like, deviation):
        noise = gaussian(like, deviation)
        if noise.numel():
            found.append(noise)
        return noise

    monkeypatch.setattr(noisy_mean, "gaussian", record)
    return found


@pytest.mark.parametrize("participants", [None, 3])
def test_without_noise_clip_and_forgetting_it_is_fedcanon_plus(participants):
    plain = Federation(logistics(), STEPS, L1(0.01), participants=participants)
    private = Federation(logistics(), STEPS, L1(0.01), participants=participants, privacy=OPEN)
    for _ in range(20):
        plain.step()
        private.step()
    assert torch.equal(plain.model, private.model)
    assert torch.equal(plain.server["e"], private.server["e"])


def reference(problem, privacy, penalty, rounds, participants, noises):
    """The method as it is written down, with states that fade in every round for everybody."""
    N, gamma, tau = len(problem.clients), 1 - privacy.forgetting, privacy.clip
    alpha, beta, K = STEPS.alpha, STEPS.beta, STEPS.local_steps
    z = problem.start.clone()
    b, e, w = torch.zeros_like(z), torch.zeros_like(z), torch.zeros_like(z)
    v = [torch.zeros_like(z) for _ in range(N)]
    for S, noise in zip(participants, noises, strict=True):
        Y = noise.clone()
        for i in range(N):
            if i not in S:
                v[i] = gamma * v[i]
                continue
            x, m = z.clone(), torch.zeros_like(z)
            for _ in range(K):
                g = problem.clients[i].full_gradient(x)
                m, x = m + g / K, x - beta * (g + b - v[i])
            u = m - gamma * v[i]
            u = u * min(1.0, tau / float(u.norm()))
            v[i], Y = gamma * v[i] + u, Y + u
        new = penalty.prox(z - alpha * (gamma * e + Y / len(S)), alpha)
        b, z, e, w = (z - new) / alpha, new, gamma * e + Y / N, gamma * w + noise / N
    return z, e, w, v


@pytest.mark.parametrize("participants", [None, 3])
@pytest.mark.parametrize("forgetting", [0.0, 0.1])
def test_iterates_are_those_of_the_formula_and_e_is_the_mean_plus_faded_noise(
    participants, forgetting, drawn
):
    problem, chosen, rounds = logistics(), [], 40
    privacy = ClientPrivacy(clip=0.1, noise=0.5, delta=1e-5, forgetting=forgetting)
    private = Federation(problem, STEPS, L1(0.01), participants=participants, privacy=privacy)
    for _ in range(rounds):
        chosen.append(private.draw_participants())
        private.step()
    z, e, w, v = reference(problem, privacy, L1(0.01), rounds, chosen, drawn)
    assert len(drawn) == rounds
    assert torch.allclose(private.server["z"], z, atol=1e-5)  # the clip leaves a margin of 1e-6
    lazy = [
        (1 - forgetting) ** (rounds - state["counted"]) * state["v"]
        for state in private.engine.clients.values()
    ]
    mean = sum(lazy) / len(problem.clients)
    assert float((private.server["e"] - mean - w).abs().max()) <= 1e-12
    assert float((e - sum(v) / len(v) - w).abs().max()) <= 1e-12


@pytest.mark.slow
def test_forgetting_bounds_how_far_noise_carries_the_mean(drawn):
    """‖e − mean v‖ relative to the noise of one round: √T without forgetting, bounded with it."""
    lengths = {}
    for forgetting in (0.0, 0.1, 1.0):
        privacy = ClientPrivacy(clip=0.01, noise=10.0, delta=1e-5, forgetting=forgetting)
        private = Federation(logistics(), STEPS, L1(0.01), privacy=privacy)
        for _ in range(200):
            private.step()
        states = [state["v"] for state in private.engine.clients.values()]
        walk = private.server["e"] - sum(states) / len(states)
        lengths[forgetting] = float(walk.norm()) / (0.1 * math.sqrt(len(walk)) / len(states))
    assert lengths[0.0] == pytest.approx(math.sqrt(200), rel=0.5)
    assert lengths[0.1] == pytest.approx(1 / math.sqrt(1 - 0.9**2), rel=0.5)
    assert lengths[1.0] == pytest.approx(1, rel=0.5)


def test_two_runs_with_one_seed_have_different_noise():
    models = []
    for _ in range(2):
        private = Federation(
            logistics(), STEPS, L1(0.01), privacy=ClientPrivacy(clip=0.1, noise=1.0, delta=1e-5)
        )
        private.step()
        models.append(private.model)
    assert not torch.equal(*models)


def test_the_model_is_averaged_over_the_second_half():
    privacy = ClientPrivacy(clip=1e9, noise=0.0, delta=1e-5, forgetting=0.0, rounds=8)
    private, plain = (
        Federation(logistics(), STEPS, L1(0.01), privacy=given) for given in (privacy, OPEN)
    )
    points = []
    for t in range(8):
        z, e = plain.server["z"], plain.server["e"]
        private.step()
        plain.step()
        # With all clients v̄ is the new e.
        if t >= 4:
            points.append(z - STEPS.alpha * plain.server["e"])
        else:
            assert torch.equal(private.model, plain.model)
        assert not torch.equal(e, plain.server["e"])
    expected = L1(0.01).prox(sum(points) / 4, STEPS.alpha)
    assert torch.allclose(private.model, expected, atol=1e-12)


def test_secret_draws_differ_and_an_empty_round_still_has_noise(drawn):
    privacy = ClientPrivacy(clip=0.1, noise=1.0, delta=1e-5, sampling=0.05)
    private = Federation(logistics(), STEPS, L1(0.01), privacy=privacy)
    draws = [tuple(private.draw_participants()) for _ in range(200)]
    assert len(set(draws)) > 3  # with the same seed and round
    assert 40 < sum(map(len, draws)) < 180  # 100 expected
    assert () in draws
    for _ in range(30):
        private.step()
    assert len(drawn) == 30
    assert private.spending.epsilon == pytest.approx(privacy.spent(30))


def test_a_client_spends_only_in_rounds_in_which_it_is_asked():
    privacy = ClientPrivacy(clip=0.1, noise=20.0, delta=1e-5)
    private = Federation(logistics(), STEPS, L1(0.01), participants=3, privacy=privacy)
    asked = np.zeros(10, dtype=int)
    for _ in range(30):
        asked[private.draw_participants()] += 1
        private.step()
    assert asked.max() < 30
    assert private.spending.epsilon == privacy.spent(int(asked.max()))


def test_a_run_ends_before_the_round_that_would_exceed_its_budget():
    privacy = ClientPrivacy.within(2.0, 10, clip=0.1, delta=1e-5)
    private = Federation(logistics(), STEPS, L1(0.01), privacy=privacy)
    result = fit(private, 100, evaluate_every=7)
    assert (result.stopped, result.last.round) == ("privacy budget used up", 10)
    assert [r.round for r in result.records] == [0, 7, 10]
    spent = [record.diagnostics["epsilon"] for record in result.records]
    assert spent[0] == 0 < spent[1] < spent[2] <= 2.0
    with pytest.raises(FedcanonError, match="budget ε = 2 is used up"):
        private.step()


def test_nothing_is_measured_on_the_data_of_clients():
    class Watched(Quadratic):
        def value_and_gradient(self, x):
            raise AssertionError("the loss of a client was measured")

    problem = Problem([Watched(vector(1, 1), vector(0, k)) for k in range(3)], vector(0, 0))
    privacy = ClientPrivacy(clip=0.1, noise=1.0, delta=1e-5)
    result = fit(Federation(problem, STEPS, L1(0.01), privacy=privacy), 3)
    assert all(math.isnan(r.loss) and not r.client_losses for r in result.records)
    assert result.history["loss"].isna().all()
    with pytest.raises(FedcanonError, match="measures nothing on the clients' data"):
        fit(Federation(problem, STEPS, L1(0.01), privacy=privacy), 3, gradient_tolerance=1e-3)


class Median(Aggregation):
    def finish(self, parts, weights):
        return parts[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"algorithm": FedAvg(0.1)}, "privacy of clients is for FedCanon"),
        ({"algorithm": FedCanonPlus(0.5, 0.1, 5, accelerated=True)}, "amplifies noise"),
        ({"compressor": TopK(0.1)}, "no other compression goes with it"),
        ({"aggregation": Median()}, "behind a robust rule"),
        ({"weights": [1.0] * 9 + [2.0]}, "the same weight for all"),
        ({"sampling": 0.5, "participants": 3}, "leave out clients.participants"),
    ],
)
def test_what_cannot_be_private_is_refused(given, message):
    problem = logistics()
    if weights := given.pop("weights", None):
        problem = Problem(problem.clients, problem.start, weights)
    sampling = given.pop("sampling", 1.0)
    privacy = ClientPrivacy(clip=0.1, noise=1.0, delta=1e-5, sampling=sampling)
    algorithm = given.pop("algorithm", STEPS)
    with pytest.raises(FedcanonError, match=message):
        Federation(problem, algorithm, L1(0.01), privacy=privacy, **given)


def test_statistics_of_normalisation_are_refused():
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    flat = FlatModule(network)
    clients = ModuleClients(
        flat, nn.CrossEntropyLoss(), torch.randn(8, 2), torch.randint(2, (8,)), [4, 4]
    )
    privacy = ClientPrivacy(clip=0.1, noise=1.0, delta=1e-5)
    with pytest.raises(FedcanonError, match="cannot train a model with batch normalisation"):
        Federation(Problem(clients, flat.vector), STEPS, L1(0.01), privacy=privacy)


def test_a_clip_is_no_other_compression():
    privacy = ClientPrivacy(clip=0.1, noise=1.0, delta=1e-5)
    private = Federation(logistics(), STEPS, L1(0.01), privacy=privacy, compressor=Clip(5.0))
    assert private.rules.compressor == PrivateClip(0.1)


def test_an_update_that_is_not_finite_counts_as_nothing():
    """An error that names the client would be a release about it."""

    class Broken(Quadratic):
        def gradient(self, x, batch=None):
            return super().gradient(x) * math.nan

    clients = [Quadratic(vector(1, 1), vector(1, k)) for k in range(3)]
    privacy = ClientPrivacy(clip=1.0, noise=0.0, delta=1e-5, forgetting=0.0)
    problem = Problem([*clients, Broken(vector(1, 1), vector(0, 0))], vector(0, 0))
    private = Federation(problem, STEPS, L1(0.01), privacy=privacy)
    private.step()
    assert bool(private.model.isfinite().all())
    assert not private.engine.clients[3]["v"].any()


def test_other_forms_of_the_method_are_refused():
    """Only states that fade forget their averages when clients leave."""
    privacy = ClientPrivacy(clip=1.0, noise=1.0, delta=1e-5)
    with pytest.raises(FedcanonError, match="privacy of clients is for FedCanon"):
        Federation(logistics(), AveragedFedCanonPlus(0.5, 0.1, 5), L1(0.01), privacy=privacy)


def test_costs_do_not_tell_how_many_clients_were_drawn():
    privacy = ClientPrivacy(clip=0.1, noise=1.0, delta=1e-5, sampling=0.3)
    result = fit(Federation(logistics(), STEPS, L1(0.01), privacy=privacy), 5)
    cost = result.last.cost
    assert (cost.floats_up, cost.bytes_down, cost.seconds) == (0, 0, 0.0)


def test_a_private_run_cannot_slow_down_by_its_losses():
    privacy = ClientPrivacy(clip=0.1, noise=1.0, delta=1e-5)
    result = fit(Federation(logistics(), STEPS, L1(0.01), privacy=privacy), 3, may_slow_down=True)
    assert result.last.round == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["algorithm.beta=auto"], "algorithm.beta cannot be automatic in a private run"),
        (['algorithm={name = "fedcanon+"}'], "algorithm.beta cannot be automatic"),
        (["privacy.delta=0.1"], "would permit to name one of 20 clients"),
        (["privacy.level=record", "privacy.forgetting=0.1"], "privacy.forgetting is for"),
        (["privacy.level=nobody"], "privacy.level = 'nobody'"),
        (["privacy.epsilon=0"], "privacy.epsilon"),
        (["privacy.budget=3"], "unknown key 'privacy.budget'"),
        (["clients.weights=samples"], "the same weight for all"),
        (["data={name = 'table', path = 'x.csv', label = 'y'}"], "scale them by public numbers"),
        (["evaluate.gradient=true"], "measures nothing"),
    ],
)
def test_configurations_that_cannot_be_private_are_refused(settings, message, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(PRIVATE)
    with pytest.raises(FedcanonError, match=message):
        train(load_config(path, settings))


def test_a_private_run_from_a_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(PRIVATE)
    result = train(path, folder=tmp_path / "run")
    assert result.last.diagnostics["epsilon"] == pytest.approx(4.0, rel=1e-4)
    assert 0 < result.last.test["accuracy"] < 1  # the server's own test data may be used
    asked = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert asked == {str(client): 6 for client in range(20)}
    assert (tmp_path / "run").stat().st_mode & 0o077 == 0
    stored = RunFolder(tmp_path / "run").config.privacy
    assert stored.noise == pytest.approx(
        ClientPrivacy.within(4.0, 6, clip=0.1, delta=1e-5).noise, rel=1e-6
    )
    told = RunFolder(tmp_path / "run").data
    assert (told.label_counts, told.samples) == ([], [])  # neither labels nor sizes
    promise = " ".join(guarantees(RunFolder(tmp_path / "run").config))
    assert "ε = 4" in promise
    assert "The server is trusted" in promise
    assert "No protection from hostile clients" in promise


def test_guarantees_name_the_robust_rule():
    config = load_config(None, ["robust.byzantine=2"])
    privacy, robust = guarantees(config)
    assert privacy.startswith("No privacy: the server sees")
    assert robust.startswith("Up to 2 of 10 clients may send anything: the rule filter")


class Crash(Observer):
    """Ends a run as a crash would, in the middle of its fourth round."""

    def begin(self, federation, rounds):
        def collect(*given, **others):
            if federation.rounds_done == 3:
                raise RuntimeError("crash")
            return original(*given, **others)

        original, federation.engine.collect = federation.engine.collect, collect


def test_a_round_counts_when_it_begins_and_a_resumed_run_counts_on(tmp_path):
    path, folder = tmp_path / "run.toml", tmp_path / "run"
    path.write_text(PRIVATE)
    with pytest.raises(RuntimeError, match="crash"):
        train(path, folder=folder, observers=[Crash()], checkpoint={"rounds": 1})
    # Three rounds were finished; the fourth had begun, and what it sent may be known.
    asked = json.loads((folder / "privacy.json").read_text())
    assert set(asked.values()) == {4}
    result = resume(folder)
    assert result.stopped == "privacy budget used up"
    assert result.last.round == 5  # of six: one was lost
    assert set(json.loads((folder / "privacy.json").read_text()).values()) == {6}


def test_a_run_that_does_not_know_what_it_has_spent_does_not_go_on(tmp_path):
    path, folder = tmp_path / "run.toml", tmp_path / "run"
    path.write_text(PRIVATE)
    with pytest.raises(RuntimeError):
        train(path, folder=folder, observers=[Crash()], checkpoint={"rounds": 1})
    (folder / "privacy.json").unlink()
    with pytest.raises(FedcanonError, match="nobody knows how much of its privacy budget"):
        resume(folder)


def test_more_rounds_do_not_change_the_noise(tmp_path):
    path, folder = tmp_path / "run.toml", tmp_path / "run"
    path.write_text(PRIVATE)
    train(path, folder=folder)
    noise = RunFolder(folder).config.privacy.noise
    result = resume(folder, rounds=12)
    assert result.stopped == "privacy budget used up"
    assert RunFolder(folder).config.privacy.noise == noise
