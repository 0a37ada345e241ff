"""Evaluated models after rounds 1, 2, 3, computed by hand and by two independent scripts."""

from typing import NamedTuple

import pytest

from fedcanon import PGD, FedAvg, FedCanon, FedCanonII, FedCanonPlus, Federation
from fedcanon.algorithms import (
    ZA1,
    Algorithm,
    DecentralisedProxSkip,
    FastFedDA,
    FedADMM,
    FedAvgM,
    FedDA,
    FedDR,
    FedDyn,
    FedMiD,
    FedPD,
    ProxSkip,
    Scaffnew,
    Scaffold,
)
from fedcanon.penalties import L1
from fedcanon.randomness import Purpose, generator
from tests.problems import golden, vector

PENALTY = L1(0.1)
HALF_A_DIGIT = 5.1e-11
"""Half of the last of ten decimals."""

ALL = ([0, 1], [0, 1], [0, 1])
SAMPLED = ([0], [1], [0])
COINS = (True, False, True)
EXACT = {"beta": 0.2, "tolerance": 1e-14}
"""Local subproblems solved by steps of 1/(L + 1/η) for L = 3, η = 0.5."""


class Row(NamedTuple):
    algorithm: Algorithm
    models: list[tuple[float, float]]
    participants: tuple[list[int], ...] = ALL


FEDCANON = [
    (-0.0700000000, 0.3525000000),
    (-0.4747500000, 0.2352500000),
    (-0.7367025000, 0.1497837500),
]
WITHOUT_PENALTY = [
    (-0.8333333333, 0.2500000000),
    (-1.1000000000, 0.1250000000),
    (-1.2111111111, 0.0625000000),
]
SPLITTING = [
    (-0.7833333333, 0.2000000000),
    (-1.0466666667, 0.0666666667),
    (-1.1577777778, 0.0000000000),
]
OVER_RELAXED = [
    (-0.7833333333, 0.2000000000),
    (-1.1783333333, 0.0000000000),
    (-1.2308333333, 0.0000000000),
]

ROWS = {
    "PGD": Row(
        PGD(0.2),
        [
            (-0.1800000000, 0.3300000000),
            (-0.5880000000, 0.2110000000),
            (-0.8328000000, 0.1277000000),
        ],
    ),
    "FedCanon, alpha 0.2": Row(FedCanon(alpha=0.2, beta=0.1, local_steps=2), FEDCANON),
    "FedCanon II, alpha 0.2": Row(FedCanonII(alpha=0.2, beta=0.1, local_steps=2), FEDCANON),
    "FedCanon, alpha 0.3": Row(
        FedCanon(alpha=0.3, beta=0.1, local_steps=2),
        [
            (-0.3550000000, 0.2787500000),
            (-0.8125000000, 0.1332968750),
            (-1.0246900000, 0.0473882422),
        ],
    ),
    "FedAvg": Row(
        FedAvg(beta=0.1, local_steps=2),
        [
            (-0.0900000000, 0.3725000000),
            (-0.4735000000, 0.2800625000),
            (-0.7227750000, 0.2130453125),
        ],
    ),
    "FedAvg-M": Row(
        FedAvgM(alpha=0.2, beta=0.1, local_steps=2, fresh=0.5),
        [
            (0.1775000000, 0.4306250000),
            (-0.2377187500, 0.3378359375),
            (-0.6191253906, 0.2471172852),
        ],
    ),
    "SCAFFOLD I": Row(
        Scaffold(beta=0.1, local_steps=2, option="I"),
        [
            (-0.0900000000, 0.3725000000),
            (-0.5135000000, 0.2688125000),
            (-0.7828750000, 0.1939578125),
        ],
    ),
    "SCAFFOLD II": Row(
        Scaffold(beta=0.1, local_steps=2),
        [
            (-0.0900000000, 0.3725000000),
            (-0.5077500000, 0.2697500000),
            (-0.7779925000, 0.1947537500),
        ],
    ),
    "SCAFFOLD II, sampled": Row(
        Scaffold(beta=0.1, local_steps=2),
        [
            (0.5950000000, -0.0400000000),
            (-0.6880750000, 0.0911000000),
            (-1.0444888750, 0.1217990000),
        ],
        SAMPLED,
    ),
    "FedMiD, published": Row(
        FedMiD(beta=0.1, local_steps=2),
        [
            (-0.0710000000, 0.3440000000),
            (-0.4421500000, 0.2309000000),
            (-0.6643975000, 0.1569025000),
        ],
    ),
    "FedMiD, no server prox": Row(
        FedMiD(beta=0.1, local_steps=2, server_prox="none"),
        [
            (-0.0910000000, 0.3640000000),
            (-0.4751500000, 0.2654000000),
            (-0.7058475000, 0.1939150000),
        ],
    ),
    "FedMiD, only server prox": Row(
        FedMiD(beta=0.1, local_steps=2, client_prox=False),
        [
            (-0.0700000000, 0.3525000000),
            (-0.4405000000, 0.2455625000),
            (-0.6813250000, 0.1680328125),
        ],
    ),
    "FedMiD, paper form": Row(
        FedMiD(beta=0.1, local_steps=2, server_prox="paper"),
        [
            (0.0000000000, 0.2640000000),
            (-0.3160000000, 0.0929000000),
            (-0.5024000000, 0.0000000000),
        ],
    ),
    "FedDA": Row(
        FedDA(beta=0.1, local_steps=2),
        [
            (-0.0710000000, 0.3540000000),
            (-0.4408450000, 0.2481500000),
            (-0.6835492500, 0.1702607500),
        ],
    ),
    "Fast-FedDA": Row(
        FastFedDA(beta=1 / 5, local_steps=2, mu=1.0),
        [
            (-0.3560606061, 0.2719696970),
            (-0.7135697636, 0.1515859141),
            (-0.8860228660, 0.0799957855),
        ],
    ),
    "ZA1": Row(
        ZA1(beta=0.1, local_steps=2),
        [
            (-0.0840000000, 0.3395000000),
            (-0.4857900000, 0.2273800000),
            (-0.7458105000, 0.1456222500),
        ],
    ),
    "FedPD": Row(FedPD(eta=0.5, **EXACT), WITHOUT_PENALTY),
    "FedDyn": Row(FedDyn(strength=2.0, **EXACT), WITHOUT_PENALTY),
    "FedDyn, sampled": Row(
        FedDyn(strength=2.0, **EXACT),
        [
            (0.7500000000, -0.6250000000),
            (-1.6416666667, 0.3125000000),
            (-1.2291666667, -0.0468750000),
        ],
        SAMPLED,
    ),
    "FedDR": Row(FedDR(eta=0.5, **EXACT), SPLITTING),
    "FedADMM": Row(FedADMM(eta=2.0, **EXACT), SPLITTING),
    "FedDR, relaxation 1.5": Row(FedDR(eta=0.5, relaxation=1.5, **EXACT), OVER_RELAXED),
    "FedADMM, relaxation 1.5": Row(FedADMM(eta=2.0, relaxation=1.5, **EXACT), OVER_RELAXED),
    "FedDR, sampled": Row(
        FedDR(eta=0.5, **EXACT),
        [
            (0.6166666667, -0.2000000000),
            (-0.7950000000, 0.0833333333),
            (-1.0386111111, 0.0833333333),
        ],
        SAMPLED,
    ),
    "FedADMM, two local steps": Row(
        FedADMM(eta=2.0, beta=0.1, local_steps=2),
        [
            (-0.4900000000, 0.2250000000),
            (-0.5846000000, 0.2250500000),
            (-0.7243840000, 0.1791325000),
        ],
    ),
}


def close(model, expected):
    return bool((model - vector(*expected)).abs().max() <= HALF_A_DIGIT)


def seed_that_draws(wanted, draw):
    """The first seed whose rounds 0, 1, … draw the wanted numbers."""
    return next(
        seed
        for seed in range(10_000)
        if all(draw(generator(seed, Purpose.COINS, t)) == w for t, w in enumerate(wanted))
    )


@pytest.mark.parametrize("row", ROWS)
def test_golden_values(row):
    algorithm, models, participants = ROWS[row]
    federation = Federation(golden(), algorithm, PENALTY)
    for chosen, expected in zip(participants, models, strict=True):
        federation.step(chosen)
        assert close(federation.model, expected)


def test_za1_shows_a_prox_of_the_start_before_its_first_round():
    assert close(Federation(golden(), ZA1(beta=0.1, local_steps=2), PENALTY).model, (0.48, 0.48))


def test_feddr_with_its_published_start_needs_one_round_to_make_it():
    federation = Federation(golden(), FedDR(eta=0.5, init="prox", **EXACT), PENALTY)
    federation.step()
    assert close(federation.model, (0.5, 0.5))
    for expected in [
        (-0.9611111111, 0.1166666667),
        (-1.1577777778, 0.0250000000),
        (-1.2214814815, 0.0000000000),
    ]:
        federation.step()
        assert close(federation.model, expected)


def test_proxskip_with_coins_1_0_1():
    seed = seed_that_draws(COINS, lambda rng: rng.random() < 0.5)
    federation = Federation(golden(), ProxSkip(beta=0.2, probability=0.5), PENALTY, seed=seed)
    proxes = []
    for expected in [
        (-0.1600000000, 0.3100000000),
        (-0.5760000000, 0.1970000000),
        (-0.8256000000, 0.1179000000),
    ]:
        federation.step()
        assert close(federation.model, expected)
        proxes.append(federation.cost.server_prox)
    assert proxes == [1, 1, 2]


SKIPPING = {
    "SCAFFNEW": (
        Scaffnew(beta=0.2, probability=0.5),
        [
            [(-0.2, 0.35), (-0.2, 0.35)],
            [(-0.36, 0.035), (-0.88, 0.455)],
            [(-0.82, 0.1925), (-0.82, 0.1925)],
        ],
    ),
    "Guo": (
        DecentralisedProxSkip(beta=0.2, probability=0.5, topology=((0.75, 0.25), (0.25, 0.75))),
        [
            [(0.4, 0.0125), (-0.8, 0.6875)],
            [(0.42, -0.33625), (-1.42, 0.89375)],
            [(0.173, -0.34496875), (-1.405, 0.85821875)],
        ],
    ),
}


@pytest.mark.parametrize("method", SKIPPING)
def test_clients_with_coins_1_0_1(method):
    """A round is a communication: with coins 1, 0, 1 the first has one iteration, the second two.

    After iteration 2, within the second round, a client is where it would be if it sent then.
    """
    algorithm, expected = SKIPPING[method]
    clients = []
    for steps, rounds in ((1,), 1), ((1, 1), 2), ((1, 2), 2):
        seed = seed_that_draws(steps, lambda rng: rng.geometric(0.5))
        federation = Federation(golden(), algorithm, PENALTY, seed=seed)
        for _ in range(rounds):
            federation.step()
        if steps == (1, 1):
            clients.append([federation.engine.clients[i]["x"] for i in (0, 1)])
        else:
            clients.append(federation.server["z"].expand(2, 2))
    for points, values in zip(clients, expected, strict=True):
        assert all(close(*pair) for pair in zip(points, values, strict=True))


COMPOSITE, SMOOTH, TWICE = (-1.2, 0), (-1.25, 0), (-1.15, 0)
LIMITS = {
    FedCanonPlus(alpha=0.2, beta=0.1, local_steps=2): (COMPOSITE, 200, 1e-14),
    PGD(0.2): (COMPOSITE, 200, 1e-14),
    ProxSkip(beta=0.2, probability=0.5): (COMPOSITE, 200, 1e-14),
    ZA1(beta=0.1, local_steps=2): (COMPOSITE, 200, 1e-14),
    FedDR(eta=0.5, beta=0.1, local_steps=2): (COMPOSITE, 200, 1e-14),
    FedADMM(eta=2.0, beta=0.1, local_steps=2): (COMPOSITE, 200, 1e-14),
    FedCanon(alpha=0.2, beta=0.01, local_steps=2): (COMPOSITE, 200, 2e-3),
    FastFedDA(beta=0.2, local_steps=2, mu=1.0): (COMPOSITE, 200, 2e-2),
    FedDA(beta=0.01, local_steps=2): (COMPOSITE, 400, 2e-2),
    FedMiD(beta=0.01, local_steps=2, server_prox="none"): (COMPOSITE, 400, 2e-2),
    FedMiD(beta=0.01, local_steps=2): (TWICE, 400, 2e-2),
    Scaffold(beta=0.1, local_steps=2): (SMOOTH, 200, 1e-14),
    Scaffold(beta=0.1, local_steps=2, option="I"): (SMOOTH, 200, 1e-14),
    Scaffnew(beta=0.2, probability=0.5): (SMOOTH, 200, 1e-14),
    DecentralisedProxSkip(beta=0.2, probability=0.5, topology="ring"): (SMOOTH, 200, 1e-14),
    FedPD(eta=0.5, beta=0.1, local_steps=2): (SMOOTH, 200, 1e-14),
    FedDyn(strength=2.0, beta=0.1, local_steps=2): (SMOOTH, 200, 1e-14),
    FedAvgM(alpha=0.2, beta=0.01, local_steps=2, fresh=0.5): (SMOOTH, 200, 1e-2),
    FedAvg(beta=0.01, local_steps=2): (SMOOTH, 400, 2e-2),
}


@pytest.mark.parametrize("algorithm", LIMITS, ids=str)
def test_limits(algorithm):
    """The optimum of f + h, of f or of f + 2h, or near it: which problem a method solves."""
    expected, rounds, tolerance = LIMITS[algorithm]
    federation = Federation(golden(), algorithm, PENALTY)
    for _ in range(rounds):
        federation.step()
    assert (federation.model - vector(*expected)).abs().max() < tolerance
