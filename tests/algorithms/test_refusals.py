"""What a method cannot do is refused, in one sentence and before any harm."""

from contextlib import contextmanager

import pytest
import torch

from fedcanon import FedcanonError, Federation
from fedcanon.algorithms import (
    ALGORITHMS,
    PGD,
    ZA1,
    Algorithm,
    DecentralisedProxSkip,
    FastFedDA,
    FedAdam,
    FedADMM,
    FedAvg,
    FedAvgM,
    FedCanon,
    FedCanonII,
    FedCanonPlus,
    FedDA,
    FedDR,
    FedDyn,
    FedExP,
    FedMiD,
    FedPD,
    FedProx,
    FedYogi,
    Newton,
    ProxSkip,
    Scaffnew,
    Scaffold,
)
from fedcanon.compression import Clip, Identity, TopK
from fedcanon.penalties import L1, MCP, SCAD, Zero
from fedcanon.runs.fitting import fit
from fedcanon.runs.named import make_algorithm
from tests.problems import quadratics

PROBLEM = quadratics(clients=5, d=3)
WEAK = MCP(0.3, 4.0, "lambda")  # ρ = 1/4: the prox needs steps below 4
ALL_CLIENTS = (
    PGD,
    ZA1,
    DecentralisedProxSkip,
    FedCanonII,
    FedPD,
    Newton,
    ProxSkip,
    Scaffnew,
)
NO_LOCAL_STEPS = (PGD, Newton)


@contextmanager
def one_sentence(words):
    """A FedcanonError with these words, on one line that ends like a sentence."""
    with pytest.raises(FedcanonError, match=words) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))


def test_the_methods_that_need_all_clients_are_those_of_the_specification():
    assert {cls for cls in ALGORITHMS.values() if not cls.partial_participation} == set(ALL_CLIENTS)


@pytest.mark.parametrize("method", ALL_CLIENTS)
def test_sampling_is_refused_where_a_method_needs_all_clients(method):
    with one_sentence(f"{method.__name__} needs all 5 clients in every round, but only 2"):
        Federation(PROBLEM, method(), Zero(), participants=2)
    federation = Federation(PROBLEM, method(), Zero())
    with one_sentence(f"{method.__name__} needs all 5 clients"):
        federation.step([0, 2])
    assert federation.rounds_done == 0
    assert federation.engine.clients == {}
    federation.step()
    assert federation.rounds_done == 1


@pytest.mark.parametrize("penalty", [WEAK, SCAD(0.3, 5.0, "lambda")], ids=str)
def test_fedda_leaves_the_domain_of_a_weakly_convex_penalty(penalty):
    """E grows by βK = 1 in every round, and 1/ρ = 4 in both."""
    federation = Federation(PROBLEM, FedDA(0.1, 10), penalty)
    with one_sentence("needs a step below 1/ρ = 4, but the step is 4"):
        fit(federation, 4)
    with one_sentence("but the step is 100"):
        fit(federation, 100)
    assert federation.rounds_done == 0
    assert federation.cost.floats_up == 0
    fit(federation, 3)
    model, server = federation.model, federation.server
    assert server["E"] == pytest.approx(3)
    with one_sentence("needs a step below 1/ρ = 4"):
        federation.step()
    assert federation.rounds_done == 3
    assert federation.server is server
    assert federation.model is model


def test_fedda_has_no_end_under_a_convex_penalty():
    federation = Federation(PROBLEM, FedDA(0.1, 10), L1(0.3))
    fit(federation, 50, evaluate_every=50)
    assert federation.server["E"] == pytest.approx(50)


def test_the_local_steps_of_fedda_count_where_the_server_takes_small_ones():
    """With η_s = 0.01 the server's E is 0.01 after a round, but clients go to (K − 1)β."""
    inside, outside = FedDA(0.4, 10, server_step=0.01), FedDA(0.5, 10, server_step=0.01)
    assert inside.prox_step(1) == pytest.approx(3.6)
    fit(Federation(PROBLEM, inside, WEAK), 5)
    with one_sentence("but the step is 4.5"):
        Federation(PROBLEM, outside, WEAK)


OUTSIDE = {
    # just outside the domain of the prox, and just inside
    "PGD": (PGD(4.0), PGD(3.99)),
    "FedCanon": (FedCanon(4.0, 0.1, 2), FedCanon(3.99, 0.1, 2)),
    "FedCanon, α = βK": (FedCanon(None, 0.5, 8), FedCanon(None, 0.49, 8)),
    "FedCanon II": (FedCanonII(4.0, 0.1, 2), FedCanonII(3.99, 0.1, 2)),
    "FedCanon+": (FedCanonPlus(4.0, 0.1, 2), FedCanonPlus(3.99, 0.1, 2)),
    "ProxSkip": (ProxSkip(1.0, probability=0.25), ProxSkip(0.99, probability=0.25)),
    "FedADMM": (FedADMM(eta=0.25), FedADMM(eta=0.251)),
    "FedDR": (FedDR(eta=4.0), FedDR(eta=3.99)),
    "ZA1": (ZA1(0.5, 8), ZA1(0.49, 8)),
    "ZA1, large server step": (ZA1(0.1, 4, 10.0), ZA1(0.1, 4, 9.9)),
    "ZA1, small server step": (ZA1(0.5, 8, 0.1), ZA1(0.49, 8, 0.1)),
    "FedMiD, published": (FedMiD(0.5, 8), FedMiD(0.49, 8)),
    "FedMiD, paper": (
        FedMiD(0.1, 2, 4.0, server_prox="paper"),
        FedMiD(0.1, 2, 3.9, server_prox="paper"),
    ),
    "FedMiD, clients": (FedMiD(4.0, 2, server_prox="none"), FedMiD(3.9, 2, server_prox="none")),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_steps_outside_the_domain_of_the_prox_are_refused(name):
    outside, inside = OUTSIDE[name]
    with one_sentence(r"ρ = 0.25: its prox needs a step below 1/ρ = 4, but the step is"):
        Federation(PROBLEM, outside, WEAK)
    Federation(PROBLEM, outside, L1(0.3))  # a convex penalty has no such limit
    federation = Federation(PROBLEM, inside, WEAK)
    for _ in range(3):  # what is accepted is not refused later
        federation.step()


@pytest.mark.slow
def test_fast_fedda_needs_the_prox_up_to_two_over_mu():
    """A/D tends to 2/μ: within the domain for μ = 0.6 for ever, outside for μ = 0.4 in the end."""
    fit(Federation(PROBLEM, FastFedDA(0.1, 5, mu=0.6), WEAK), 300, evaluate_every=300)
    federation = Federation(PROBLEM, FastFedDA(0.1, 5, mu=0.4), WEAK)
    with one_sentence("needs a step below 1/ρ = 4"):
        fit(federation, 300)
    assert federation.rounds_done == 0


@pytest.mark.parametrize("method", [c for c in ALGORITHMS.values() if c.solves == "f"])
def test_methods_that_ignore_the_penalty_never_mind_its_domain(method):
    steep = MCP(1.0, 1e-6, "lambda")
    federation = Federation(PROBLEM, method(), steep)
    federation.step()
    assert federation.cost.server_prox == federation.cost.client_prox == 0
    assert method().prox_step(1000) == 0


WRONG = {
    "option": (lambda: Scaffold(option="III"), "option must be one of 'I', 'II', not 'III'"),
    "server_prox": (lambda: FedMiD(server_prox="x"), "server_prox must be one of 'published'"),
    "init": (lambda: FedDR(init="warm"), "init must be one of 'flat', 'prox', not 'warm'"),
    "evaluate": (lambda: FedDyn(evaluate="best"), "evaluate must be one of 'server', 'averaged'"),
    "probability 0": (lambda: Scaffnew(probability=0.0), "probability must be above 0"),
    "probability 1.5": (lambda: ProxSkip(probability=1.5), "at most 1, not 1.5"),
    "skip 1": (lambda: FedPD(skip=1.0), "skip must be at least 0 and below 1, not 1"),
    "skip -0.1": (lambda: FedPD(skip=-0.1), "skip must be at least 0 and below 1, not -0.1"),
    "relaxation 0": (lambda: FedDR(relaxation=0.0), "relaxation must be above 0 and at most 2"),
    "relaxation 2.5": (lambda: FedADMM(relaxation=2.5), "at most 2, not 2.5"),
    "FedProx mu": (lambda: FedProx(mu=-1.0), "mu must be at least 0, not -1"),
    "Fast-FedDA mu": (lambda: FastFedDA(mu=-1.0), "mu and power must be at least 0"),
    "Fast-FedDA power": (lambda: FastFedDA(power=-1.0), "mu and power must be at least 0"),
    "fresh 0": (lambda: FedAvgM(fresh=0.0), "fresh must be above 0 and at most 1, not 0"),
    "fresh 2": (lambda: FedAvgM(fresh=2.0), "fresh must be above 0 and at most 1, not 2"),
    "momentum 1": (lambda: FedAvg(momentum=1.0), "momentum must be at least 0 and below 1, not 1"),
    "momentum -0.1": (lambda: FedProx(momentum=-0.1), "momentum must be at least 0 and below 1"),
    "second_momentum": (lambda: FedYogi(second_momentum=1.0), "second_momentum must be at least 0"),
    "floor": (lambda: FedAdam(floor=0.0), "floor must be a positive, finite number, not 0"),
    "epsilon": (lambda: FedExP(epsilon=0.0), "epsilon must be a positive, finite number, not 0"),
    "chi": (lambda: DecentralisedProxSkip(chi=0.1), "chi must be at least 0.5"),
    "tolerance": (lambda: FedDR(tolerance=-1e-3), "tolerance must be a positive, finite number"),
    "eta": (lambda: FedADMM(eta=0.0), "eta must be a positive, finite number, not 0"),
    "strength": (lambda: FedDyn(strength=-1.0), "strength must be a positive, finite number"),
    "server_step": (lambda: ZA1(server_step=0.0), "server_step must be a positive, finite"),
    "alpha": (lambda: FedCanonPlus(alpha=-0.1), "alpha must be a positive, finite number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_do_not_exist_or_make_no_sense_are_refused(name):
    make, words = WRONG[name]
    with one_sentence(words):
        make()


@pytest.mark.parametrize("number", [0.0, -0.1, float("nan"), float("inf")])
@pytest.mark.parametrize("method", [c for c in ALGORITHMS.values() if c not in NO_LOCAL_STEPS])
def test_local_steps_that_are_no_step_sizes_are_refused(method, number):
    with one_sentence("beta must be a positive, finite number"):
        method(beta=number)


@pytest.mark.parametrize("method", [c for c in ALGORITHMS.values() if c not in NO_LOCAL_STEPS])
def test_no_local_steps_are_refused(method):
    with one_sentence("local_steps must be at least 1, not 0"):
        method(local_steps=0)


IN_A_CONFIGURATION = [
    ({"name": "scaffold", "option": "III"}, "option = 'III': input should be 'I' or 'II'"),
    ({"name": "fedmid", "server_prox": "x"}, "server_prox = 'x': input should be 'published'"),
    ({"name": "scaffnew", "probability": 0.0}, "probability must be above 0 and at most 1"),
    ({"name": "fedpd", "skip": 1.0}, "skip must be at least 0 and below 1"),
    ({"name": "feddr", "relaxation": "much"}, "relaxation = 'much': input should be a valid num"),
    ({"name": "feddyn", "local_steps": 2.5}, "local_steps = 2.5: input should be a valid integer"),
    ({"name": "feddr", "tolerance": 0.0}, "tolerance must be a positive, finite number"),
    ({"name": "decentralised-proxskip", "chi": 0.1}, "chi must be at least 0.5"),
    ({"name": "decentralised-proxskip", "topology": 3}, "topology = 3: input should be a valid"),
    ({"name": "fedda", "eta_c": 0.1}, "unknown key 'algorithm.eta_c': did you mean 'beta'"),
]


@pytest.mark.parametrize(("table", "words"), IN_A_CONFIGURATION, ids=str)
def test_the_same_in_a_configuration(table, words):
    with one_sentence(words):
        make_algorithm(table)


MUST_ARRIVE = {
    "za1": "y",
    "fast-fedda": "G",
    "feddr": "change",
    "fedadmm": "change",
    "scaffold": "change",
    "scaffnew": "x",
    "decentralised-proxskip": "x",
    "fedpd": "anchor",
    "fedexp": "move",
    "newton": "expansion",
}
"""What methods send that no compressor may alter."""


@pytest.mark.parametrize("name", MUST_ARRIVE)
def test_a_compressor_is_refused_where_an_upload_must_arrive_as_it_is(name):
    method = ALGORITHMS[name]
    words = f"{method.__name__} cannot compress its uploads, because '{MUST_ARRIVE[name]}' must"
    for compressor in (TopK(0.5), Clip(1.0)):
        with one_sentence(words):
            Federation(PROBLEM, method(), Zero(), compressor=compressor)
    Federation(PROBLEM, method(), Zero(), compressor=Identity())


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - MUST_ARRIVE.keys()))
def test_all_other_uploads_can_be_altered(name):
    method = ALGORITHMS[name]()
    federation = Federation(PROBLEM, method, Zero(), compressor=TopK(0.3))
    federation.step()
    whole = Federation(PROBLEM, method, Zero())
    whole.step()
    assert federation.cost.bytes_up < whole.cost.bytes_up
    assert not torch.equal(federation.model, whole.model)


def test_feddr_as_published_has_everyone_in_its_first_round_and_no_later_one():
    federation = Federation(PROBLEM, FedDR(init="prox"), L1(0.1), participants=2)
    with one_sentence(r"round 0 of FedDR\(.*\) needs all clients"):
        federation.step([0, 1])
    assert federation.rounds_done == 0
    assert federation.engine.clients == {}
    assert federation.draw_participants() == [0, 1, 2, 3, 4]
    federation.step()
    assert set(federation.engine.clients) == {0, 1, 2, 3, 4}
    assert federation.cost.server_prox == 0
    assert torch.equal(federation.model, PROBLEM.start)
    assert len(federation.draw_participants()) == 2
    before = federation.cost.floats_up
    federation.step()
    federation.step([4])
    assert federation.cost.floats_up - before == 3 * 3
    assert federation.cost.server_prox == 2


def test_feddr_from_a_flat_start_samples_from_the_first_round_on():
    federation = Federation(PROBLEM, FedDR(), L1(0.1), participants=2)
    federation.step([0, 1])
    assert set(federation.engine.clients) == {0, 1}


def test_every_method_is_an_algorithm_that_its_defaults_can_run():
    for cls in ALGORITHMS.values():
        assert issubclass(cls, Algorithm)
        federation = Federation(PROBLEM, cls(), L1(0.01))
        federation.step()
        assert bool(federation.model.isfinite().all())
    assert FedAvg in ALGORITHMS.values()
