"""Robust rules and adversaries in whole runs: the same in all engines, and what they achieve."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer

from fedcanon import FedAvg, FedcanonError, FedCanonPlus, Federation, Local, Logistic, Problem
from fedcanon.algorithms import ALGORITHMS, DecentralisedProxSkip
from fedcanon.checkpoint import Checkpoints
from fedcanon.data import partition
from fedcanon.deployment import Deployment
from fedcanon.deployment.overview import read_overview
from fedcanon.deployment.status import EXCLUDE, give_order
from fedcanon.engines import Mean, Robust
from fedcanon.penalties import L1, ElasticNet, Zero
from fedcanon.robustness import ATTACKS, RULES, Adversary
from tests.deployment.network import World
from tests.engines.networks import algorithm, classifiers, classifiers_for
from tests.problems import logistics, quadratics

CPU = torch.device("cpu")
PLUS = FedCanonPlus(0.5, 0.1, 3)
FILTER = Robust("filter", byzantine=2)
UPLOADS = [name for name, attack in ATTACKS.items() if attack.act is not None]


def after(rounds, problem, method=PLUS, penalty=None, chosen=None, **others):
    """A federation after some rounds, with the ``chosen`` participants of each if given."""
    federation = Federation(problem, method, penalty or L1(0.01), **others)
    for t in range(rounds):
        federation.step(None if chosen is None else chosen[t])
    federation.close()
    return federation


def levels(federation):
    """The vectors v_i of all clients in the order of their numbers, by client."""
    return {client: state["v"] for client, state in federation.engine.clients.items()}


def combined(vectors, bad, rule="filter"):
    return RULES[rule](torch.stack(list(vectors)), bad)


class TestTheRuleIsOverAllStates:
    @pytest.mark.parametrize("rule", ["filter", "geometric-median", "trimmed-mean", "nnm+median"])
    def test_the_server_has_what_the_rule_makes_of_all_vectors(self, rule):
        federation = Federation(
            quadratics(clients=9), PLUS, L1(0.1), participants=4, aggregation=Robust(rule, 2)
        )
        moved = 0
        for _ in range(12):
            before = federation.model
            federation.step()
            found = levels(federation)
            if len(found) < 7:
                assert torch.equal(federation.model, before)
                assert federation.distances == {}
                continue
            moved += 1
            expected = combined(found.values(), 2, rule)
            e, z = federation.server["e"], federation.model
            assert torch.allclose(e, expected.vector, rtol=0, atol=1e-13)
            assert torch.allclose(z, L1(0.1).prox_(before - 0.5 * e, 0.5), rtol=0, atol=1e-13)
            assert federation.distances == dict(zip(found, expected.ratios.tolist(), strict=True))
        assert 5 <= moved < 12

    def test_few_answers_are_awaited_before_the_model_moves(self):
        chosen = [[0, 1], [1, 2], [3, 4]]
        federation = after(3, quadratics(clients=8), chosen=chosen, aggregation=FILTER)
        assert torch.equal(federation.model, federation.problem.start)
        assert (federation.rounds_done, set(levels(federation))) == (3, {0, 1, 2, 3, 4})
        federation.step([5])  # the sixth of 8 − 2
        assert not torch.equal(federation.model, federation.problem.start)

    def test_clients_that_started_over_are_awaited_again(self):
        federation = after(2, quadratics(clients=8), aggregation=FILTER)
        federation._init_server(federation.model)
        federation.engine.start_over(federation.model)
        before = federation.model
        federation.step([0, 1, 2, 3, 4])
        assert torch.equal(federation.model, before)
        federation.step([5])
        assert not torch.equal(federation.model, before)

    def test_other_methods_combine_the_uploads_of_a_round(self):
        problem, method = quadratics(clients=8), FedAvg(0.1, 2)
        found = after(1, problem, method, Zero(), aggregation=Robust("trimmed-mean", 1))
        moves = [after(1, problem, method, Zero(), [[c]]).model - problem.start for c in range(8)]
        expected = problem.start + combined(moves, 1, "trimmed-mean").vector
        assert torch.allclose(found.model, expected, rtol=0, atol=1e-14)
        few = after(1, problem, method, Zero(), [[1, 3]], aggregation=Robust("trimmed-mean", 2))
        assert torch.allclose(few.model, problem.start + (moves[1] + moves[3]) / 2, atol=1e-14)
        assert few.distances.keys() == {1, 3}

    @pytest.mark.parametrize("method", [PLUS, FedAvg(0.1, 2)])
    @pytest.mark.parametrize("rule", [Robust("filter"), Robust("mean", byzantine=2)])
    def test_without_bad_clients_it_is_the_mean_to_the_last_bit(self, method, rule):
        problem = quadratics(clients=5)
        plain = after(4, problem, method, participants=3)
        found = after(4, problem, method, participants=3, aggregation=rule)
        assert torch.equal(plain.model, found.model)
        assert isinstance(found.engine._combining.rule, Mean)
        assert found.drops == {}


class TestAttacks:
    def test_the_server_believes_what_bad_clients_say_and_they_stay_honest(self):
        problem, adversary = quadratics(clients=5), Adversary("sign_flip", (1, 4))
        federation = after(1, problem, adversary=adversary)
        honest = levels(after(1, problem))
        believed = [-10 * v if c in (1, 4) else v for c, v in honest.items()]
        assert torch.allclose(federation.server["e"], torch.stack(believed).mean(0), atol=1e-13)
        for client, own in levels(federation).items():
            assert torch.equal(own, honest[client])

    @pytest.mark.parametrize("attack", UPLOADS)
    def test_the_mean_stays_that_of_what_is_believed(self, attack):
        """Over rounds with few participants, whatever was sent before."""
        federation = Federation(
            quadratics(clients=6), PLUS, L1(0.1), participants=3, adversary=Adversary(attack, 2)
        )
        for _ in range(8):
            federation.step()
        believed = {**levels(federation), **federation.engine._combining._believed}
        zero = torch.zeros_like(federation.model)
        total = sum(believed.values(), start=zero) / 6
        assert len(federation.engine._combining._believed) == 2
        assert torch.allclose(federation.server["e"], total, rtol=1e-12, atol=1e-12)

    def test_uploads_of_other_methods_are_altered_before_they_are_combined(self):
        problem, method = quadratics(clients=4), FedAvg(0.1, 2)
        found = after(1, problem, method, Zero(), adversary=Adversary("ipm", (2,), strength=3.0))
        moves = [after(1, problem, method, Zero(), [[c]]).model - problem.start for c in range(4)]
        moves[2] = -3 * (moves[0] + moves[1] + moves[3]) / 3
        assert torch.allclose(found.model, problem.start + sum(moves) / 4, rtol=0, atol=1e-14)

    @pytest.mark.parametrize("name", ALGORITHMS)
    def test_every_method_can_be_attacked_and_defended(self, name):
        problem, method = classifiers_for(name, clients=8), algorithm(name)
        adversary = Adversary("ipm", (0, 3))
        honest, attacked = (
            after(2, problem, method, batch_size=8, adversary=a) for a in (None, adversary)
        )
        assert not torch.equal(honest.model, attacked.model)
        assert bool(attacked.model.isfinite().all())
        if isinstance(method, DecentralisedProxSkip):
            return
        defended = Federation(
            problem, method, L1(0.01), batch_size=8, adversary=adversary, aggregation=FILTER
        )
        defended.step()
        assert len(defended.distances) == 8

    def test_statistics_of_normalisation_are_combined_but_not_attacked(self):
        problem = classifiers(clients=8, norm=True)
        plain, attacked = (
            after(1, problem, FedAvg(0.05, 2), Zero(), batch_size=8, adversary=adversary)
            for adversary in (None, Adversary("scaled", 2))
        )
        assert torch.equal(plain.engine.buffers, attacked.engine.buffers)
        rule = Robust("median", byzantine=2)
        robust = after(1, problem, FedAvg(0.05, 2), Zero(), batch_size=8, aggregation=rule)
        assert not torch.equal(plain.engine.buffers, robust.engine.buffers)


def run_for_bits(problem, method, engine, participants=None):
    adversary = Adversary("gaussian", 2, 5.0)
    return after(
        4,
        problem,
        method,
        participants=participants,
        batch_size=8,
        aggregation=FILTER,
        adversary=adversary,
        engine=engine,
    )


class TestEngines:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["fedcanon+", "scaffold"])
    @pytest.mark.parametrize("participants", [None, 5])
    def test_processes_have_the_bits_of_one_process(self, name, participants):
        problem, method = classifiers(clients=8, norm=True), algorithm(name)
        alone = run_for_bits(problem, method, Local(), participants)
        for engine in (Local(workers=2), Local(workers=2, start_method="fork", state_memory=1)):
            found = run_for_bits(problem, method, engine, participants)
            assert torch.equal(alone.model, found.model)
            assert torch.equal(alone.engine.buffers, found.engine.buffers)
            assert (alone.distances, alone.drops) == (found.distances, found.drops)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["fedcanon+", "fedavg"])
    def test_clients_that_work_together_give_the_same(self, name):
        problem, method = classifiers(clients=8, dtype=torch.float64), algorithm(name)
        alone = run_for_bits(problem, method, Local())
        found = run_for_bits(problem, method, Local(vectorised=True))
        assert torch.allclose(alone.model, found.model, rtol=0, atol=1e-12)
        assert alone.drops == found.drops

    @pytest.mark.parametrize("method", [PLUS, FedAvg(0.1, 2)])
    @pytest.mark.parametrize("adversary", [None, Adversary("sign_flip", (1, 4))])
    def test_a_deployment_has_the_bits_of_the_local_engine(self, method, adversary, tmp_path):
        problem = logistics(clients=8, d=5, samples=10)
        settings = {"aggregation": FILTER, "adversary": adversary}
        local = Federation(problem, method, L1(0.01), **settings)
        world = World(problem, method, L1(0.01), "server", **settings)
        world.federation.engine.use_folder(tmp_path)
        for _ in range(5):
            local.step()
            world.step()
            world.start_server()  # from its checkpoint
            world.federation.engine.use_folder(tmp_path)
        world.step()
        local.step()
        assert torch.equal(local.model, world.federation.model)
        assert world.federation.distances == local.distances
        assert world.federation.drops == local.drops
        seen = read_overview(tmp_path)
        assert seen.columns[-1] == "distance"
        shown = [float(row[-1]) for row in seen.rows]
        assert shown == pytest.approx(list(local.distances.values()), abs=5e-3)

    def test_an_operator_may_exclude_a_bad_client_and_the_rule_goes_on(self, tmp_path):
        problem = logistics(clients=8, d=5, samples=10)
        world = World(problem, PLUS, L1(0.01), "server", aggregation=FILTER)
        world.federation.engine.use_folder(tmp_path)
        world.step()
        give_order(tmp_path, EXCLUDE, 4)
        before = world.federation.model
        world.step()
        assert world.federation.distances.keys() == {0, 1, 2, 3, 5, 6, 7}
        vectors = [world.federation.engine.states.read(c)["v"] for c in (0, 1, 2, 3, 5, 6, 7)]
        expected = combined(vectors, 2).vector
        assert torch.allclose(world.federation.server["e"], expected, rtol=0, atol=1e-13)
        assert not torch.equal(world.federation.model, before)


class TestResuming:
    @pytest.mark.parametrize("method", [PLUS, FedAvg(0.1, 2)])
    def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(self, method, tmp_path):
        def new():
            return Federation(
                quadratics(clients=9),
                method,
                L1(0.01),
                participants=6,
                aggregation=FILTER,
                adversary=Adversary("sign_flip", 2),
            )

        undisturbed, resumed = new(), new()
        for _ in range(5):
            undisturbed.step()
        Checkpoints(tmp_path).save(5, undisturbed.state())
        assert sum(undisturbed.drops.values()) > 0
        resumed.load(Checkpoints(tmp_path).load(CPU))
        assert resumed.drops == undisturbed.drops
        for _ in range(5):
            undisturbed.step()
            resumed.step()
        assert torch.equal(undisturbed.model, resumed.model)
        assert undisturbed.drops == resumed.drops
        assert undisturbed.distances == resumed.distances

    def test_a_checkpoint_of_an_old_version_is_refused_with_a_sentence(self):
        state = after(2, quadratics(clients=5)).state()
        del state["format"], state["drops"], state["engine"]["combining"]
        new = Federation(quadratics(clients=5), PLUS, L1(0.01))
        with pytest.raises(FedcanonError, match="another version of fedcanon: go on with that"):
            new.load(state)


KAPPA, RIDGE = 0.01, 0.02


def breast_cancer():
    """Ten clients with very different labels, and the samples of each."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    rng = np.random.default_rng(0)
    parts = [p.numpy() for p in partition("dirichlet:0.5", torch.from_numpy(y), 10, rng)]
    clients = [Logistic(X[part], y[part], intercept=False) for part in parts]
    return Problem(clients, torch.zeros(30, dtype=torch.float64)), X, y, parts


def optimum(X, y, parts):
    """The minimiser over some clients with equal weights, by accelerated proximal gradients."""
    rows = np.concatenate([X[part] * (2 * y[part] - 1)[:, None] for part in parts])
    weights = np.concatenate([np.full(len(part), 1 / (len(part) * len(parts))) for part in parts])
    L = np.linalg.norm(rows.T @ (weights[:, None] * rows), 2) / 4 + RIDGE
    z = ahead = np.zeros(X.shape[1])
    for t in range(20_000):
        gradient = -rows.T @ (weights / (1 + np.exp(rows @ ahead))) + RIDGE * ahead
        step = ahead - gradient / L
        before, z = z, np.sign(step) * np.maximum(np.abs(step) - KAPPA / L, 0)
        ahead = z + t / (t + 3) * (z - before)
    assert np.linalg.norm(z - before) < 1e-9
    return z


class TestBreastCancer:
    """With equal weights, an ℓ1 norm and a ridge."""

    BAD = (2, 7)

    def distance(self, expected, **others):
        problem, *_ = breast_cancer()
        method = FedCanonPlus(alpha=1.0, beta=0.1, local_steps=10)
        found = after(400, problem, method, ElasticNet(KAPPA, RIDGE), **others)
        self.federation = found
        return np.linalg.norm(found.model.numpy() - expected) / np.linalg.norm(expected)

    @pytest.mark.slow
    def test_if_nobody_attacks_the_optimum_is_that_of_the_mean(self):
        _, *data = breast_cancer()
        expected = optimum(*data)
        assert self.distance(expected) < 1e-4
        assert self.distance(expected, aggregation=FILTER) < 1e-4
        assert self.distance(expected, aggregation=FILTER, participants=5) < 1e-3

    @pytest.mark.slow
    def test_two_bad_clients_carry_the_mean_away_but_not_the_filter(self):
        _, X, y, parts = breast_cancer()
        expected = optimum(X, y, [own for c, own in enumerate(parts) if c not in self.BAD])
        attack = Adversary("sign_flip", self.BAD)
        assert self.distance(expected, aggregation=FILTER, adversary=attack) < 1e-3
        assert set(self.federation.drops) == set(self.BAD)
        half = self.distance(expected, aggregation=FILTER, adversary=attack, participants=5)
        assert half < 1e-2
        assert self.distance(expected, adversary=attack) > 10


class TestRefusals:
    def test_weights_must_be_equal(self):
        base = quadratics(clients=6)
        problem = Problem(base.clients, base.start, [1.0, 2.0, 1.0, 1.0, 1.0, 1.0])
        with pytest.raises(FedcanonError, match=r'use clients\.weights = "uniform"\.'):
            Federation(problem, PLUS, Zero(), aggregation=FILTER)

    @pytest.mark.parametrize("engine", [Local(), Deployment(network=None)])
    def test_a_majority_must_be_honest(self, engine):
        rule = Robust("filter", byzantine=3)
        with pytest.raises(FedcanonError, match="3 bad clients cannot be outvoted by 3 others"):
            Federation(quadratics(clients=6), PLUS, Zero(), aggregation=rule, engine=engine)

    def test_more_than_a_quarter_is_warned_of(self):
        with pytest.warns(RuntimeWarning, match="2 of 7 clients may be bad"):
            Federation(quadratics(clients=7), PLUS, Zero(), aggregation=FILTER)

    @pytest.mark.parametrize(
        "settings", [{"aggregation": FILTER}, {"adversary": Adversary("ipm", 1)}]
    )
    def test_states_must_be_with_the_server(self, settings):
        engine = Deployment(network=None, keeper="client")
        with pytest.raises(FedcanonError, match=r'use deployment\.state = "server"\.'):
            Federation(quadratics(clients=9), PLUS, Zero(), engine=engine, **settings)

    def test_nodes_that_average_over_neighbours_have_no_other_rule(self):
        with pytest.raises(FedcanonError, match="it takes no other rule"):
            Federation(quadratics(), DecentralisedProxSkip(), Zero(), aggregation=FILTER)

    def test_unknown_rules_and_negative_numbers(self):
        with pytest.raises(FedcanonError, match="no robust rule called 'filtre': did you mean 'fi"):
            Robust("filtre", byzantine=1)
        with pytest.raises(FedcanonError, match=r"robust\.byzantine cannot be -1"):
            Robust(byzantine=-1)

    def test_bad_clients_must_exist(self):
        with pytest.raises(FedcanonError, match="0 to 4"):
            Federation(quadratics(clients=5), PLUS, Zero(), adversary=Adversary("ipm", (5,)))
