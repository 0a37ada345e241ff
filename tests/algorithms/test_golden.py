"""Evaluated models after rounds 1, 2, 3, computed by hand and by two independent scripts."""

import pytest

from fedcanon import PGD, FedAvg, FedCanon, FedCanonII, FedCanonPlus, Federation
from fedcanon.penalties import L1
from tests.problems import golden, vector

VALUES = {
    PGD(0.2): [
        (-0.1800000000, 0.3300000000),
        (-0.5880000000, 0.2110000000),
        (-0.8328000000, 0.1277000000),
    ],
    FedCanon(alpha=0.2, beta=0.1, local_steps=2): [
        (-0.0700000000, 0.3525000000),
        (-0.4747500000, 0.2352500000),
        (-0.7367025000, 0.1497837500),
    ],
    FedCanonII(alpha=0.2, beta=0.1, local_steps=2): [
        (-0.0700000000, 0.3525000000),
        (-0.4747500000, 0.2352500000),
        (-0.7367025000, 0.1497837500),
    ],
    FedCanon(alpha=0.3, beta=0.1, local_steps=2): [
        (-0.3550000000, 0.2787500000),
        (-0.8125000000, 0.1332968750),
        (-1.0246900000, 0.0473882422),
    ],
    FedAvg(beta=0.1, local_steps=2): [
        (-0.0900000000, 0.3725000000),
        (-0.4735000000, 0.2800625000),
        (-0.7227750000, 0.2130453125),
    ],
}


@pytest.mark.parametrize("algorithm", VALUES, ids=str)
def test_golden_values(algorithm):
    federation = Federation(golden(), algorithm, L1(0.1))
    for expected in VALUES[algorithm]:
        federation.step()
        assert (federation.model - vector(*expected)).abs().max() <= 5e-11


def test_fedcanon_plus_ends_at_the_optimum_of_the_golden_problem():
    federation = Federation(golden(), FedCanonPlus(alpha=0.2, beta=0.1, local_steps=2), L1(0.1))
    for _ in range(300):
        federation.step()
    assert (federation.model - vector(-1.2, 0)).abs().max() < 1e-14
