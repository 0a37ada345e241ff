"""Methods that must coincide for special parameters, step by step: the 33 identities by number."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import pytest
import torch

from fedcanon import (
    PGD,
    FedAvg,
    FedCanon,
    FedCanonII,
    FedCanonPlus,
    Federation,
    Objective,
    Problem,
    build,
    load_config,
)
from fedcanon.algorithms import (
    ZA1,
    Cosine,
    DecentralisedProxSkip,
    FastFedDA,
    FedADMM,
    FedAvgM,
    FedDA,
    FedDR,
    FedDyn,
    FedMiD,
    FedPD,
    FedProx,
    ProxSkip,
    Scaffnew,
    Scaffold,
)
from fedcanon.layout import Layout
from fedcanon.penalties import L1, MCP, Penalty, Zero
from tests.algorithms import reference
from tests.problems import logistics, quadratics, smoothness

ROUNDS, K = 60, 7
SOLVED = 30
"""Rounds of the methods whose local subproblems are solved to the last digits, which is slow."""
BATCH = 10


@dataclass(frozen=True)
class Case:
    problem: Problem
    penalty: L1
    L: float

    @property
    def steps(self):
        """α, β and K of FedCanon."""
        return {"alpha": 0.5 / self.L, "beta": 0.05 / self.L, "local_steps": K}

    @property
    def loop(self):
        """The same under the names of the reference."""
        return {"alpha": self.steps["alpha"], "beta": self.steps["beta"], "K": K}

    @property
    def local(self):
        """β and K alone."""
        return {"beta": 0.05 / self.L, "local_steps": K}

    @property
    def ratio(self):
        """The server step η_g = α/(βK) that goes with α."""
        return self.steps["alpha"] / (self.steps["beta"] * K)

    @property
    def exact(self):
        """Local subproblems with η = 1/L solved to the last digits."""
        return {"beta": 0.5 / self.L, "tolerance": 1e-14}

    @property
    def rough(self):
        """The same by three gradient steps."""
        return {"beta": 0.4 / self.L, "local_steps": 3}

    @property
    def alone(self):
        """The first client as a problem of its own."""
        return replace(self, problem=Problem([self.problem.clients[0]], self.problem.start))

    def started_at(self, start):
        return replace(self, problem=Problem(self.problem.clients, start))

    @cached_property
    def optimum(self):
        return reference.pgd(self.problem, self.penalty, 1 / self.L, 3000)[-1]

    def pgd(self, alpha):
        return reference.pgd(self.problem, self.penalty, alpha, ROUNDS)

    def path(self, algorithm, penalty=None, rounds=ROUNDS, **options):
        """The evaluated models after each round; the case's own penalty where none is given."""
        return run(Federation(self.problem, algorithm, penalty or self.penalty, **options), rounds)


QUADRATICS, LOGISTICS = quadratics(), logistics(clients=5, d=8, samples=30)
CASES = {
    "quadratic": Case(QUADRATICS, L1(0.3), smoothness(QUADRATICS)),
    "logistic": Case(LOGISTICS, L1(0.05), smoothness(LOGISTICS)),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture
def batches():
    """The problem that has mini-batches: same seed, same draws for each client and round."""
    return CASES["logistic"]


def run(federation, rounds=ROUNDS):
    models = []
    for _ in range(rounds):
        federation.step()
        models.append(federation.model)
    return models


def difference(one, other):
    """The largest difference of two paths, the first of which must lead somewhere."""
    assert len(one) == len(other)
    assert (one[-1] - one[0]).abs().max() > 1e-2
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("penalty", [L1(0.05), MCP(0.05, 4.0), Zero()], ids=str)
def test_01_fedcanon_two_is_fedcanon_bit_for_bit(case, penalty):
    one = case.path(FedCanon(**case.steps), penalty)
    two = case.path(FedCanonII(**case.steps), penalty)
    assert difference(one, two) == 0


def test_01_with_mini_batches(batches):
    one = batches.path(FedCanon(**batches.steps), batch_size=BATCH)
    assert difference(one, batches.path(FedCanonII(**batches.steps), batch_size=BATCH)) == 0
    assert difference(one, batches.path(FedCanon(**batches.steps))) > 1e-3


def test_01_with_mini_batches_of_a_network():
    """In float32, on the default network."""
    models = []
    for name in ("fedcanon", "fedcanon2"):
        settings = [f"algorithm={{name='{name}', beta=0.05}}", "clients.weights=samples"]
        federation = build(load_config(settings=settings))
        models.append(run(federation, 4)[-1])
    assert torch.equal(*models)
    assert not torch.equal(models[0], federation.problem.start)


def test_02_fedcanon_without_penalty_is_scaffold(case):
    scaffold = case.path(Scaffold(server_step=case.ratio, **case.local))
    assert difference(case.path(FedCanon(**case.steps), Zero()), scaffold) < 1e-13
    assert difference(case.path(FedCanonPlus(**case.steps), Zero()), scaffold) < 1e-13
    loop = reference.scaffold(case.problem, case.steps["beta"], K, case.ratio, ROUNDS)
    assert difference(scaffold, loop) < 1e-13


def test_02_from_the_same_controls(case):
    """e − e_i = c_i at the start, here with other controls than zeros."""
    generator = torch.Generator().manual_seed(1)
    controls = torch.randn(5, len(case.problem.start), generator=generator, dtype=torch.float64)
    controls -= controls.mean(0)
    fedcanon = Federation(case.problem, FedCanon(**case.steps), Zero())
    scaffold = Federation(case.problem, Scaffold(server_step=case.ratio, **case.local), Zero())
    fedcanon.engine.clients = {i: {"v": -c} for i, c in enumerate(controls)}
    scaffold.engine.clients = {i: {"e": -c} for i, c in enumerate(controls)}
    loop = reference.fedcanon(
        case.problem, Zero(), **case.loop, rounds=ROUNDS, controls=list(controls)
    )
    models = run(fedcanon)
    assert difference(models, run(scaffold)) < 1e-13
    assert difference(models, loop) < 1e-13


def test_02_with_mini_batches(batches):
    one = batches.path(FedCanon(**batches.steps), Zero(), batch_size=BATCH)
    two = batches.path(Scaffold(server_step=batches.ratio, **batches.local), batch_size=BATCH)
    assert difference(one, two) < 1e-13


@pytest.mark.parametrize("algorithm", [FedCanon, FedCanonII, FedCanonPlus])
@pytest.mark.parametrize("beta", [0.05, 3.0])
def test_03_one_local_step_is_proximal_gradient_descent(case, algorithm, beta):
    """For any β."""
    one_step = algorithm(alpha=0.5 / case.L, beta=beta / case.L, local_steps=1)
    assert difference(case.path(one_step), case.pgd(0.5 / case.L)) < 1e-13


def test_03_the_method_pgd_is_that_loop(case):
    assert difference(case.path(PGD(0.5 / case.L)), case.pgd(0.5 / case.L)) < 1e-14


def test_03_any_controls_of_zero_sum_and_no_others(case):
    generator = torch.Generator().manual_seed(0)
    controls = torch.randn(5, len(case.problem.start), generator=generator, dtype=torch.float64)
    away = {}
    for centred in (True, False):
        algorithm = FedCanon(alpha=0.5 / case.L, beta=0.05 / case.L, local_steps=1)
        federation = Federation(case.problem, algorithm, case.penalty)
        shift = controls.mean(0) if centred else torch.zeros(1)
        federation.engine.clients = {i: {"v": -(c - shift)} for i, c in enumerate(controls)}
        away[centred] = difference(run(federation), case.pgd(0.5 / case.L))
    assert away[True] < 1e-13
    assert away[False] > 0.5


def test_04_one_client_without_penalty_is_gradient_descent_seen_every_k_steps(case):
    beta = 0.05 / case.L
    seen = reference.gd(case.alone.problem, beta, K * ROUNDS)[K - 1 :: K]
    assert difference(case.alone.path(FedCanon(beta=beta, local_steps=K), Zero()), seen) < 1e-14


def test_05_identical_clients_are_one_client(case):
    many = replace(case, problem=Problem([case.problem.clients[0]] * 5, case.problem.start))
    algorithm = FedCanon(**case.steps)
    assert difference(many.path(algorithm), case.alone.path(algorithm)) < 1e-13


class Frozen(FedCanon):
    """FedCanon whose control variables stay 0."""

    def local(self, client, received, work):
        frozen = {**received, "e": torch.zeros_like(received["e"])}
        return super().local(client, frozen, work)[0], client


def test_06_fedcanon_with_frozen_controls_is_fedmid_with_only_the_server_prox(case):
    frozen = case.path(Frozen(**case.steps))
    fedmid = case.path(FedMiD(server_step=case.ratio, client_prox=False, **case.local))
    assert difference(frozen, fedmid) < 1e-13
    assert difference(frozen, case.path(FedCanon(**case.steps))) > 1e-3


class EveryKSteps(Scaffnew):
    """SCAFFNEW that communicates after exactly K steps, with p = 1/K."""

    def broadcast(self, server, t, rng):
        return {**super().broadcast(server, t, rng), "steps": self.local_steps}


def test_07_fedcanon_without_penalty_is_scaffnew_that_communicates_every_k_steps(case):
    scaffnew = case.path(EveryKSteps(**case.local))
    assert difference(case.path(FedCanon(**case.local), Zero()), scaffnew) < 1e-13


@pytest.mark.parametrize("server_step", [1.0, 0.6])
def test_08_za1_without_penalty_is_fedcanon(case, server_step):
    alpha = case.local["beta"] * server_step * K
    fedcanon, za1 = FedCanon(alpha, **case.local), ZA1(server_step=server_step, **case.local)
    assert difference(case.path(za1, Zero()), case.path(fedcanon, Zero())) < 1e-13


def test_08_with_falling_steps(case):
    """Control variables are scaled by the step of the round in which they were measured."""
    beta = Cosine(case.local["beta"], rounds=ROUNDS, floor=0.05)
    za1, fedcanon = ZA1(beta, K), FedCanon(None, beta, K)
    assert difference(case.path(za1, Zero()), case.path(fedcanon, Zero())) < 1e-13


def test_08_does_not_hold_with_a_penalty(case):
    za1, fedcanon = case.path(ZA1(**case.local)), case.path(FedCanon(**case.local))
    assert difference(za1, fedcanon) > 1e-3


def test_08_with_mini_batches(batches):
    one = batches.path(ZA1(**batches.local), Zero(), batch_size=BATCH)
    two = batches.path(FedCanon(**batches.local), Zero(), batch_size=BATCH)
    assert difference(one, two) < 1e-13


@dataclass
class OnlyFirstProx:
    """A client's means of which the prox works once."""

    work: object
    used: bool = False

    def gradient(self, x):
        return self.work.gradient(x)

    def prox(self, x, step):
        used, self.used = self.used, True
        return x if used else self.work.prox(x, step)


class WithoutLocalProx(ZA1):
    """ZA1 that starts each round from the prox and takes none afterwards."""

    def local(self, client, received, work):
        return super().local(client, received, OnlyFirstProx(work))


def test_09_za1_without_the_local_prox_is_fedcanon_from_the_prox_of_the_start(case):
    alpha = case.local["beta"] * 0.6 * K
    start = case.penalty.prox(case.problem.start + 1, alpha)
    without = case.started_at(case.problem.start + 1).path(
        WithoutLocalProx(server_step=0.6, **case.local)
    )
    fedcanon = case.started_at(start).path(FedCanon(alpha, **case.local))
    assert difference(without, fedcanon) < 1e-13


def test_10_za1_with_one_local_step_is_pgd_from_the_prox_of_the_start(case):
    step = 0.5 / case.L
    before = case.problem.start + 1
    za1 = case.started_at(before).path(ZA1(beta=2 * step, local_steps=1, server_step=0.5))
    proximal = case.started_at(case.penalty.prox(before, step)).pgd(step)
    assert difference(za1, proximal) < 1e-13


def test_11_scaffnew_that_always_communicates_is_gradient_descent(case):
    step = 0.5 / case.L
    scaffnew = case.path(Scaffnew(beta=step, probability=1.0))
    assert difference(scaffnew, reference.gd(case.problem, step, ROUNDS)) < 1e-13


def test_12_proxskip_that_never_skips_is_pgd(case):
    step = 0.5 / case.L
    proxskip = case.path(ProxSkip(beta=step, probability=1.0))
    assert difference(proxskip, case.pgd(step)) < 1e-13


class Stacked(Objective):
    """f(X) = Σ f_i(x_i) of the rows of X, one after the other in one vector."""

    samples = 1

    def __init__(self, clients):
        self.clients = clients
        self.layout = Layout.of([("x", (sum(client.layout.size for client in clients),))])

    def value(self, x):
        rows = x.view(len(self.clients), -1)
        return sum(f.value(row) for f, row in zip(self.clients, rows, strict=True))

    def value_and_gradient(self, x):
        return self.value(x), self.gradient(x)

    def gradient(self, x, batch=None):
        rows = x.view(len(self.clients), -1)
        return torch.cat([f.full_gradient(row) for f, row in zip(self.clients, rows, strict=True)])


@dataclass(frozen=True)
class Consensus(Penalty):
    """The indicator of equal rows; its prox is their average."""

    clients: int

    def value(self, x):
        rows = x.view(self.clients, -1)
        return 0.0 if bool((rows - rows.mean(0)).abs().max() < 1e-12) else math.inf

    def _prox_(self, x, step):
        rows = x.view(self.clients, -1)
        rows.copy_(rows.mean(0, keepdim=True).expand_as(rows).clone())


def test_13_proxskip_towards_consensus_is_scaffnew_with_the_same_coins(case):
    """The coins of SCAFFNEW are its numbers of local steps: k − 1 times tails, then heads."""
    step, p = 1 / case.L, 0.3
    coins = []

    class Recorded(Scaffnew):
        def broadcast(self, server, t, rng):
            sent = super().broadcast(server, t, rng)
            coins.extend([False] * (sent["steps"] - 1) + [True])
            return sent

    class Scripted(ProxSkip):
        def broadcast(self, server, t, rng):
            return {**super().broadcast(server, t, rng), "coin": coins[t]}

    scaffnew = case.path(Recorded(beta=step, probability=p))
    assert coins.count(True) == ROUNDS
    assert len(coins) == pytest.approx(ROUNDS / p, rel=0.3)
    f, h, start = Stacked(case.problem.clients), Consensus(5), case.problem.start.repeat(5)
    proxskip = Federation(Problem([f], start), Scripted(beta=step, probability=p), h)
    models = run(proxskip, len(coins))
    loop = reference.proxskip(f.gradient, start, h.prox, step, p, coins)
    assert difference(models, loop) < 1e-13
    communicated = [x.view(5, -1) for x, coin in zip(models, coins, strict=True) if coin]
    assert difference(communicated, scaffnew) < 1e-13


def test_14_guo_that_averages_everything_is_scaffnew_with_the_same_coins(case):
    options = {"beta": 1 / case.L, "probability": 0.3}
    scaffnew = case.path(Scaffnew(**options))
    guo = case.path(DecentralisedProxSkip(topology="star", chi=0.5, **options))
    assert difference(guo, scaffnew) < 1e-13
    matrix = tuple((0.2,) * 5 for _ in range(5))
    assert (
        difference(guo, case.path(DecentralisedProxSkip(topology=matrix, chi=0.5, **options)))
        < 1e-13
    )
    cautious = DecentralisedProxSkip(topology="star", chi=1.0, **options)
    assert difference(case.path(cautious), scaffnew) > 1e-3


CYCLE = torch.eye(5, dtype=torch.float64).roll(1, 0)
MIXING = {
    "ring": (torch.eye(5) + CYCLE + CYCLE.T) / 3,
    "matrix": 0.1 * torch.eye(5)
    + 0.35 * (CYCLE + CYCLE.T)
    + 0.1 * (CYCLE @ CYCLE + CYCLE.T @ CYCLE.T),
}


@pytest.mark.parametrize("topology", MIXING)
def test_15_guo_that_always_communicates_is_exact_diffusion(case, topology):
    """Node by node."""
    step, W = 0.5 / case.L, MIXING[topology]
    given = "ring" if topology == "ring" else tuple(map(tuple, W.tolist()))
    guo = DecentralisedProxSkip(beta=step, probability=1.0, topology=given)
    federation = Federation(case.problem, guo, Zero())
    nodes = []
    for _ in range(ROUNDS):
        federation.step()
        nodes.append(federation.server["z"])
    diffusion = reference.exact_diffusion(case.problem, W, step, ROUNDS)
    assert difference(nodes, diffusion) < 1e-13
    assert (nodes[0] - nodes[0].mean(0)).abs().max() > 1e-2


def test_16_fedmid_without_penalty_is_fedavg(case):
    options = {**case.local, "server_step": 1.3}
    assert difference(case.path(FedMiD(**options), Zero()), case.path(FedAvg(**options))) == 0


def test_17_fedda_without_penalty_is_fedavg(case):
    options = {**case.local, "server_step": 1.3}
    assert difference(case.path(FedDA(**options), Zero()), case.path(FedAvg(**options))) < 1e-14


def test_17_with_mini_batches(batches):
    one = batches.path(FedDA(**batches.local), Zero(), batch_size=BATCH)
    assert difference(one, batches.path(FedAvg(**batches.local), batch_size=BATCH)) < 1e-14


def test_18_fedmid_with_only_the_server_prox_and_one_local_step_is_pgd(case):
    step = 0.5 / case.L
    fedmid = FedMiD(beta=2 * step, local_steps=1, server_step=0.5, client_prox=False)
    assert difference(case.path(fedmid), case.pgd(step)) < 1e-13


def test_19_fedmid_of_one_client_without_server_prox_is_pgd_seen_every_k_steps(case):
    fedmid = case.alone.path(FedMiD(server_prox="none", **case.local))
    pgd = reference.pgd(case.alone.problem, case.penalty, case.local["beta"], K * ROUNDS)
    assert difference(fedmid, pgd[K - 1 :: K]) < 1e-13


def test_20_published_fedmid_of_one_client_ends_at_the_minimum_of_f_plus_2h(case):
    step, rounds = 1 / case.L, 800
    twice = reference.pgd(case.alone.problem, L1(2 * case.penalty.kappa), step, rounds)
    assert (twice[-1] - twice[-2]).abs().max() < 1e-14
    once = reference.pgd(case.alone.problem, case.penalty, step, rounds)
    limit = case.alone.path(FedMiD(beta=step, local_steps=1), rounds=rounds)[-1]
    assert (limit - twice[-1]).abs().max() < 1e-13
    assert (limit - once[-1]).abs().max() > 0.1


@pytest.mark.parametrize("server_step", [1.0, 0.5])
def test_21_fedda_with_one_local_step_is_central_dual_averaging(case, server_step):
    """With the step η_s β."""
    step = 0.5 / case.L
    fedda = case.path(FedDA(beta=step / server_step, local_steps=1, server_step=server_step))
    loop = reference.dual_averaging(case.problem, case.penalty, step, ROUNDS)
    assert difference(fedda, loop) < 1e-13


@pytest.mark.parametrize("steps", [1, K])
def test_22_fast_fedda_without_mu_is_fedda(case, steps):
    options = {"beta": 0.05 / case.L, "local_steps": steps}
    fedda = case.path(FedDA(**options))
    assert difference(case.path(FastFedDA(mu=0.0, **options)), fedda) < 1e-13


def test_22_does_not_hold_with_mu(case):
    fedda = case.path(FedDA(**case.local))
    assert difference(case.path(FastFedDA(mu=0.1, **case.local)), fedda) > 1e-3


def test_22_with_mini_batches(batches):
    one = batches.path(FastFedDA(mu=0.0, **batches.local), batch_size=BATCH)
    assert difference(one, batches.path(FedDA(**batches.local), batch_size=BATCH)) < 1e-13


@pytest.fixture(params=["exact", "rough"])
def solver(case, request):
    """How local subproblems with η = 1/L are solved: to the last digits, or by three steps."""
    return getattr(case, request.param)


def split(case, algorithm, penalty=None, **options):
    return case.path(algorithm, penalty, SOLVED, **options)


@pytest.mark.slow
def test_23_fedadmm_is_feddr(case, solver):
    fedadmm = split(case, FedADMM(eta=case.L, **solver))
    assert difference(fedadmm, split(case, FedDR(eta=1 / case.L, **solver))) < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize(("relaxation", "participants"), [(0.6, 5), (1.5, 5), (1.5, 2)])
def test_24_relaxed_fedadmm_is_relaxed_feddr(case, solver, relaxation, participants):
    """With all clients, and with the same two of five in each round."""
    options = {**solver, "relaxation": relaxation}
    fedadmm = split(case, FedADMM(eta=case.L, **options), participants=participants)
    feddr = split(case, FedDR(eta=1 / case.L, **options), participants=participants)
    assert difference(fedadmm, feddr) < 1e-13


@pytest.mark.slow
def test_25_fedpd_that_never_skips_is_fedadmm_without_penalty(case, solver):
    fedpd = split(case, FedPD(eta=1 / case.L, **solver))
    assert difference(fedpd, split(case, FedADMM(eta=case.L, **solver), Zero())) < 1e-13


@pytest.mark.slow
def test_26_feddyn_is_fedadmm_without_penalty(case):
    feddyn = split(case, FedDyn(strength=case.L, **case.exact))
    assert difference(feddyn, split(case, FedADMM(eta=case.L, **case.exact), Zero())) < 1e-12


def test_26_does_not_hold_under_sampling(case):
    feddyn = split(case, FedDyn(strength=case.L, **case.exact), participants=2)
    fedadmm = split(case, FedADMM(eta=case.L, **case.exact), Zero(), participants=2)
    assert difference(feddyn, fedadmm) > 0.1


def test_26_does_not_hold_with_inexact_solvers(case):
    """FedDyn starts its local solvers at the server's model, FedADMM where they ended."""
    feddyn = split(case, FedDyn(strength=case.L, **case.rough))
    assert difference(feddyn, split(case, FedADMM(eta=case.L, **case.rough), Zero())) > 1e-3


@pytest.mark.slow
def test_25_26_23_chain(case):
    """FedPD = FedDyn (here against the two ends of the chain) = FedADMM = FedDR, without h."""
    feddyn = split(case, FedDyn(strength=case.L, **case.exact))
    assert difference(feddyn, split(case, FedPD(eta=1 / case.L, **case.exact))) < 1e-12
    assert difference(feddyn, split(case, FedDR(eta=1 / case.L, **case.exact), Zero())) < 1e-12


@pytest.mark.slow
def test_27_feddr_with_relaxation_2_is_fedsplit(case):
    feddr = split(case, FedDR(eta=1 / case.L, relaxation=2.0, **case.exact), Zero())
    assert difference(feddr, reference.fedsplit(case.problem, 1 / case.L, SOLVED)) < 1e-12


@pytest.mark.parametrize("relaxation", [1.0, 1.5])
def test_28_feddr_of_one_client_is_douglas_rachford(case, relaxation):
    eta, alone = 1 / case.L, case.alone
    feddr = split(alone, FedDR(eta=eta, relaxation=relaxation, **case.exact))
    f, start = alone.problem.clients[0], alone.problem.start
    loop = reference.douglas_rachford(f, case.penalty, start, eta, relaxation, SOLVED)
    assert difference(feddr, loop) < 1e-12


def test_29_fedavg_m_without_momentum_is_fedavg(case):
    fedavg_m = case.path(FedAvgM(fresh=1.0, **case.steps))
    fedavg = case.path(FedAvg(server_step=case.ratio, **case.local))
    assert difference(fedavg_m, fedavg) < 1e-13
    assert difference(case.path(FedAvgM(fresh=0.9, **case.steps)), fedavg) > 1e-3


def test_29_with_mini_batches(batches):
    one = batches.path(FedAvgM(fresh=1.0, **batches.local), batch_size=BATCH)
    assert difference(one, batches.path(FedAvg(**batches.local), batch_size=BATCH)) < 1e-13


@pytest.mark.parametrize("beta", [0.05, 2.0])
def test_30_fedavg_m_with_one_local_step_is_gradient_descent_with_averaged_momentum(case, beta):
    """For any local step."""
    alpha = 0.5 / case.L
    fedavg_m = case.path(FedAvgM(alpha=alpha, beta=beta / case.L, local_steps=1, fresh=0.3))
    assert (
        difference(fedavg_m, reference.averaged_momentum(case.problem, alpha, 0.3, ROUNDS)) < 1e-13
    )


@pytest.mark.parametrize("option", ["I", "II"])
def test_31_scaffold_with_one_local_step_is_gradient_descent(case, option):
    beta = 0.2 / case.L
    scaffold = case.path(Scaffold(beta=beta, local_steps=1, server_step=2.0, option=option))
    assert difference(scaffold, reference.gd(case.problem, 2 * beta, ROUNDS)) < 1e-13


def test_32_fedavg_with_one_local_step_is_gradient_descent(case):
    beta = 0.2 / case.L
    averaged = case.path(FedAvg(beta=beta, local_steps=1, server_step=2.0))
    assert difference(averaged, reference.gd(case.problem, 2 * beta, ROUNDS)) < 1e-13


def test_33_fedcanon_as_published_with_control_variables_on_the_clients(case):
    """FedCanon is written for any participants; with all of them it is the published form."""
    published = reference.fedcanon(case.problem, case.penalty, **case.loop, rounds=ROUNDS)
    everyone = [range(5)] * ROUNDS
    extended = reference.sampled_fedcanon(case.problem, case.penalty, **case.loop, sets=everyone)
    models = case.path(FedCanon(**case.steps))
    assert difference(models, published) < 1e-13
    assert difference(models, extended) < 1e-13


def test_33_with_sampled_clients_it_is_the_extension(case):
    federation = Federation(case.problem, FedCanon(**case.steps), case.penalty, participants=2)
    models, sets = [], []
    for _ in range(ROUNDS):
        sets.append(federation.draw_participants())
        federation.step()
        models.append(federation.model)
    extended = reference.sampled_fedcanon(case.problem, case.penalty, **case.loop, sets=sets)
    assert difference(models, extended) < 1e-13


def test_fedprox_is_its_loop_and_without_a_pull_fedavg(case):
    beta = case.local["beta"]
    loop = reference.fedprox(case.problem, beta, K, 2.0, ROUNDS)
    assert difference(case.path(FedProx(mu=2.0, **case.local)), loop) < 1e-13
    fedavg = case.path(FedAvg(**case.local))
    assert difference(case.path(FedProx(mu=0.0, **case.local)), fedavg) < 1e-14
    assert difference(fedavg, loop) > 1e-3


@pytest.mark.parametrize("form", ["published", "paper", "per_step", "none"])
def test_each_form_of_fedmid_is_its_loop(case, form):
    beta, server_step = case.local["beta"], 0.8
    tau = {
        "published": server_step * beta * K,
        "paper": server_step,
        "per_step": server_step * beta,
        "none": 0.0,
    }[form]
    away = case.started_at(case.problem.start + 1)
    fedmid = away.path(FedMiD(server_step=server_step, server_prox=form, **case.local))
    loop = reference.fedmid(away.problem, case.penalty, beta, K, server_step, tau, ROUNDS)
    assert difference(fedmid, loop) < 1e-13


@pytest.mark.parametrize("power", [0.0, 2.0])
def test_fast_fedda_with_growing_weights_is_its_loop(case, power):
    """With γ_t = a_t/β, which grows with the weights."""
    fast = case.path(FastFedDA(mu=0.1, power=power, **case.local))
    gamma = 1 / case.local["beta"]
    loop = reference.fast_fedda(
        case.problem, case.penalty, gamma, 0.1, lambda t: (t + 1) ** power, K, ROUNDS
    )
    assert difference(fast, loop) < 1e-13


def test_fedpd_that_skips_is_its_loop_seen_at_communications(case):
    """The number of cycles of a round is that of tails before heads, and one."""
    coins = []

    class Recorded(FedPD):
        def broadcast(self, server, t, rng):
            sent = super().broadcast(server, t, rng)
            coins.extend([False] * (sent["cycles"] - 1) + [True])
            return sent

    eta = 1 / case.L
    skipping = split(case, Recorded(eta=eta, skip=0.7, **case.rough))
    assert coins.count(True) == SOLVED
    assert len(coins) == pytest.approx(SOLVED / 0.3, rel=0.3)
    loop = reference.fedpd(case.problem, eta, case.rough["beta"], 3, coins)
    assert difference(skipping, loop) < 1e-13


def test_feddyn_averaged_is_the_mean_of_the_local_models(case):
    """θ = mean θ_i − H/a: the two evaluated models differ by the server's correction."""
    algorithm = FedDyn(strength=case.L, evaluate="averaged", **case.rough)
    federation = Federation(case.problem, algorithm, Zero(), participants=2)
    for _ in range(5):
        before, chosen = federation.server, federation.draw_participants()
        controls = {i: federation.engine.clients[i]["g"] for i in federation.engine.clients}
        federation.step(chosen)
        local = [
            before["z"]
            - (federation.engine.clients[i]["g"] - controls.get(i, 0 * before["z"])) / case.L
            for i in chosen
        ]
        assert (federation.model - sum(local) / 2).abs().max() < 1e-13
        server = federation.model - federation.server["H"] / case.L
        assert (federation.server["z"] - server).abs().max() < 1e-13
    assert (federation.model - federation.server["z"]).abs().max() > 1e-3


def test_equal_weights_given_as_numbers_change_nothing(case):
    weighted = replace(case, problem=Problem(case.problem.clients, case.problem.start, [3.0] * 5))
    for algorithm in (FedCanon(**case.steps), FedCanonPlus(**case.steps)):
        assert difference(weighted.path(algorithm), case.path(algorithm)) < 1e-13


def test_integer_weights_are_repeated_clients(case):
    one, two = case.problem.clients[:2]
    weighted = replace(case, problem=Problem([one, two], case.problem.start, [1.0, 2.0]))
    repeated = replace(case, problem=Problem([one, two, two], case.problem.start))
    for algorithm in (FedCanon(**case.steps), FedCanonPlus(**case.steps)):
        assert difference(weighted.path(algorithm), repeated.path(algorithm)) < 1e-13


def moved(case, algorithm, server, clients):
    """How far five rounds lead away from the optimum."""
    federation = Federation(case.problem, algorithm, case.penalty)
    federation.server, federation.engine.clients = server, clients
    return float((run(federation, 5)[-1] - case.optimum).abs().max())


@pytest.fixture
def at_the_optimum(case):
    """z*, ∇f(z*) and the ∇f_i(z*)."""
    gradients = [f.full_gradient(case.optimum) for f in case.problem.clients]
    gradient = sum(gradients) / len(gradients)
    again = case.penalty.prox(case.optimum - gradient, 1.0)
    assert (again - case.optimum).abs().max() < 1e-14
    return case.optimum, gradient, gradients


def test_za1_stays_at_the_optimum(case, at_the_optimum):
    z, gradient, gradients = at_the_optimum
    za1 = ZA1(**case.local)
    tau = K * case.local["beta"]
    server = {"before": z - tau * gradient, "z": z, "tau": tau}
    clients = {i: {"p": z, "mean_gradient": g} for i, g in enumerate(gradients)}
    assert moved(case, za1, server, clients) < 1e-13


def test_za1_stays_at_the_optimum_while_its_steps_fall(case, at_the_optimum):
    z, gradient, gradients = at_the_optimum
    za1 = ZA1(Cosine(case.local["beta"], rounds=5), K)
    tau = K * case.local["beta"]
    server = {"before": z - tau * gradient, "z": z, "tau": tau}
    clients = {i: {"p": z, "mean_gradient": g} for i, g in enumerate(gradients)}
    assert moved(case, za1, server, clients) < 1e-13


def test_fedcanon_plus_stays_at_the_optimum_and_fedcanon_drifts(case, at_the_optimum):
    z, gradient, gradients = at_the_optimum
    clients = {i: {"v": g} for i, g in enumerate(gradients)}
    plus = {"z": z, "b": torch.zeros_like(z), "e": gradient, "server_step": 1.0}
    assert moved(case, FedCanonPlus(**case.steps), plus, clients) < 1e-13
    memory = {"w": z, "v": gradient, "theta": 7.0, "curvature": 0.5}
    assert moved(case, FedCanonPlus(**case.steps, accelerated=True), plus | memory, clients) < 1e-13
    drift = moved(case, FedCanon(**case.steps), {"z": z, "e": gradient}, clients)
    assert 1e-3 < drift < 1e-1


def test_fedmid_leaves_the_optimum(case, at_the_optimum):
    far = moved(case, FedMiD(**case.local), {"z": at_the_optimum[0]}, {})
    assert 0.03 < far < 1
