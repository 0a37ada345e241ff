"""FedCanon+ under compression: no error floor with a contraction, divergence without one."""

from dataclasses import dataclass

import pytest
import torch

from fedcanon import PGD, FedCanonPlus, Federation
from fedcanon.compression import Clip, Identity, Quantise, RandomK, Sign, TopK
from fedcanon.penalties import L1, MCP
from fedcanon.runs.measures import stationarity
from tests.problems import logistics, smoothness

PROBLEM = logistics()
L = smoothness(PROBLEM)
METHOD = FedCanonPlus(alpha=1 / L, beta=0.1 / L, local_steps=10)


def federation_with(compressor, participants=3, penalty=None, seed=0):
    penalty = penalty or L1(0.02)
    return Federation(
        PROBLEM, METHOD, penalty, participants=participants, compressor=compressor, seed=seed
    )


def stationarity_after(federation, rounds, goal):
    """‖G^α‖ after so many rounds, or fewer if it falls below the goal."""
    while federation.rounds_done < rounds:
        for _ in range(50):
            federation.step()
        z = federation.model
        assert float(z.norm()) < 100  # ‖G‖ is lost in rounding where z is huge
        gradient = PROBLEM.value_and_gradient(z)[1]
        reached = stationarity(federation.penalty, z, gradient, METHOD.alpha)
        if reached < goal:
            break
    return reached


@pytest.fixture(scope="module")
def optimum():
    """Of the problem with L1(0.02), by exact proximal gradient steps."""
    federation = Federation(PROBLEM, PGD(1 / L), L1(0.02))
    for _ in range(600):
        federation.step()
    before = federation.model
    federation.step()
    assert float((federation.model - before).norm()) < 1e-15
    return before


ROWS = {
    # compressor, participants of 10, goal for ‖G^α‖, rounds it may take (it takes about a half)
    "top 5 %, 3 of 10": (TopK(0.05), 3, 1e-12, 2000),
    "top 5 %, 1 of 10": (TopK(0.05), 1, 1e-10, 3000),
    "random 5 %, all": (RandomK(0.05), 10, 1e-8, 2000),
    "random 25 %, 3 of 10": (RandomK(0.25), 3, 1e-12, 1600),
    "2 bits, 3 of 10": (Quantise(2), 3, 1e-12, 2700),
    "4 bits, 3 of 10": (Quantise(4), 3, 1e-12, 900),
    "4 bits, 1 of 10": (Quantise(4), 1, 1e-12, 2000),
    "sign, 3 of 10": (Sign(), 3, 1e-12, 2800),
    "clip, 3 of 10": (Clip(0.05), 3, 1e-12, 1000),
}


@pytest.mark.slow
@pytest.mark.parametrize("least", [1e-8, pytest.param(0.0, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("row", ROWS)
def test_contractions_leave_no_error_floor(row, least, optimum):
    compressor, participants, goal, rounds = ROWS[row]
    goal = max(goal, least)
    federation = federation_with(compressor, participants)
    assert stationarity_after(federation, rounds, goal) < goal
    assert float((federation.model - optimum).norm()) < 100 * goal
    assert torch.equal(federation.model == 0, optimum == 0)


@pytest.mark.slow
def test_weakly_convex_penalties_too():
    federation = federation_with(TopK(0.05), penalty=MCP(0.02, 3.0))
    assert stationarity_after(federation, 2000, 1e-12) < 1e-12


@dataclass(frozen=True)
class ScaledRandomK(RandomK):
    """With the factor d/k that makes it unbiased, and no contraction up to k = d/2."""

    def decode(self, parts, size):
        return super().decode(parts, size) * (size / self._kept(size))


@dataclass(frozen=True)
class UnscaledQuantise(Quantise):
    """Without the division by 1 + ω: unbiased, and no contraction for one level."""

    def decode(self, parts, size):
        return super().decode(parts, size) / self.contraction(size)


@pytest.mark.slow
@pytest.mark.parametrize("participants", [3, 10])
@pytest.mark.parametrize(
    "compressor", [ScaledRandomK(0.05), ScaledRandomK(0.4), UnscaledQuantise(2)], ids=str
)
def test_unbiased_compressors_that_are_no_contractions_diverge(compressor, participants, optimum):
    federation = federation_with(compressor, participants)
    norms = []
    for _ in range(4):
        for _ in range(50):
            federation.step()
        norms.append(float(federation.model.norm()))
    assert norms == sorted(norms)
    assert norms[-1] > 1e4 * float(optimum.norm())


@pytest.mark.slow
@pytest.mark.parametrize("compressor", [ScaledRandomK(0.8), UnscaledQuantise(4)], ids=str)
def test_and_converge_where_they_are_contractions_all_the_same(compressor):
    federation = federation_with(compressor)
    assert stationarity_after(federation, 1000, 1e-12) < 1e-12


@pytest.mark.slow
def test_a_limit_is_kept_in_every_upload_until_nothing_exceeds_it():
    federation = federation_with(Clip(0.05), participants=10)
    moves = []
    for _ in range(120):
        before = {i: state["v"] for i, state in federation.engine.clients.items()}
        federation.step()
        after = federation.engine.clients
        moves.append([float((after[i]["v"] - before.get(i, 0.0)).norm()) for i in range(10)])
    assert min(moves[0]) > 0.049  # all are clipped at first
    assert max(map(max, moves)) <= 0.05
    assert max(moves[-1]) < 1e-3  # and none at the end


COUNTS = {
    # floats and bytes of one upload of 40 numbers in double precision, and of 300
    Identity(): ((40, 320), (300, 2400)),
    Clip(0.05): ((40, 320), (300, 2400)),
    TopK(0.05): ((2, 2 * 8 + 2 * 1), (15, 15 * 8 + 15 * 2)),
    RandomK(0.05): ((2, 2 * 8 + 8), (15, 15 * 8 + 8)),
    Quantise(2): ((1, 8 + 10), (2, 2 * 8 + 75)),
    Quantise(4): ((1, 8 + 20), (2, 2 * 8 + 150)),
    Quantise(8): ((1, 8 + 40), (2, 2 * 8 + 300)),
    Quantise(4, bucket=16): ((3, 3 * 8 + 20), (19, 19 * 8 + 150)),
    Sign(): ((1, 8 + 5), (1, 8 + 38)),
}
WIDE = logistics(clients=3, d=300, samples=10)


@pytest.mark.parametrize("compressor", COUNTS, ids=str)
def test_uploads_are_counted_to_the_byte(compressor):
    for problem, (floats, size) in zip((PROBLEM, WIDE), COUNTS[compressor], strict=True):
        federation = Federation(problem, METHOD, L1(0.02), participants=3, compressor=compressor)
        for _ in range(4):
            federation.step()
        assert federation.cost.bytes_up == 4 * 3 * size
        assert federation.cost.floats_up == 4 * 3 * floats


def test_downloads_are_not_compressed():
    plain, compressed = (federation_with(c) for c in (Identity(), TopK(0.05)))
    for federation in (plain, compressed):
        for _ in range(4):
            federation.step()
    assert compressed.cost.bytes_down == plain.cost.bytes_down >= 4 * 3 * 320
    assert compressed.cost.bytes_up < plain.cost.bytes_up / 10


@pytest.mark.parametrize("compressor", [RandomK(0.25), Quantise(2)], ids=str)
def test_random_compressors_draw_from_the_seed_of_the_run(compressor):
    models = []
    for seed in (0, 0, 1):
        federation = federation_with(compressor, 10, seed=seed)  # all, so that nothing else differs
        for _ in range(3):
            federation.step()
        models.append(federation.model)
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])


def test_clients_and_rounds_draw_apart():
    """Otherwise the same coordinates would be left out by everyone, or for ever."""
    federation = federation_with(RandomK(0.05), participants=10)
    sent = set()
    for _ in range(3):
        before = {i: state["v"] for i, state in federation.engine.clients.items()}
        federation.step()
        for i, state in federation.engine.clients.items():
            moved = (state["v"] - before.get(i, 0.0)).nonzero().flatten()
            sent.add(tuple(moved.tolist()))
    assert len(sent) > 25
