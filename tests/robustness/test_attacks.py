"""Attacks against their formulas in NumPy, and who attacks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcanon import FedcanonError
from fedcanon.robustness import ATTACKS, Adversary, flipped


def vectors(count, d, seed=0):
    return np.random.default_rng(seed).normal(size=(count, d))


def sent(attack, honest, own, *, t=0, strength=None, seed=0):
    adversary = Adversary(attack, len(own), strength, seed)
    return adversary.altered(torch.from_numpy(honest), torch.from_numpy(own), t).numpy()


def away(found, honest):
    """How far all bad clients are from the honest mean; they must be at one place."""
    assert (found == found[0]).all()
    return np.linalg.norm(found[0] - honest.mean(0))


def distances(honest):
    return np.linalg.norm(honest - honest.mean(0), axis=1)


FORMULAS = {
    "sign_flip": lambda honest, own: -10 * own,
    "scaled": lambda honest, own: 10 * own,
    "alie": lambda honest, own: np.tile(honest.mean(0) - 1.5 * honest.std(0), (len(own), 1)),
    "ipm": lambda honest, own: np.tile(-0.5 * honest.mean(0), (len(own), 1)),
    "mimic": lambda honest, own: np.tile(honest[0], (len(own), 1)),
    "label_flip": lambda honest, own: own,
}


@pytest.mark.parametrize("attack", FORMULAS)
@given(st.integers(1, 7), st.integers(1, 3), st.integers(1, 6), st.integers(0, 99))
def test_attacks_are_their_formulas(attack, good, bad, d, seed):
    honest, own = vectors(good, d, seed), vectors(bad, d, seed + 1)
    expected = FORMULAS[attack](honest, own)
    assert sent(attack, honest, own) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_every_attack_has_a_test():
    assert ATTACKS.keys() == FORMULAS.keys() | {"gaussian", "bounded", "push"}


@given(st.integers(2, 8), st.integers(0, 99))
def test_bounded_and_push_go_one_way_in_all_rounds(good, seed):
    honest, own = vectors(good, 5, seed), vectors(2, 5, seed + 1)
    bounded, pushed = (sent(attack, honest, own, seed=seed) for attack in ("bounded", "push"))
    assert away(bounded, honest) == pytest.approx(distances(honest).max(), rel=1e-12)
    assert away(pushed, honest) == pytest.approx(2.9 * np.median(distances(honest)), rel=1e-12)
    assert np.array_equal(sent("push", honest, own, t=7, seed=seed), pushed)
    assert not np.allclose(sent("push", honest, own, seed=seed + 1), pushed)
    further = sent("push", honest, own, strength=5.8, seed=seed)
    assert away(further, honest) == pytest.approx(2 * away(pushed, honest), rel=1e-12)


def test_noise_is_normal_and_new_in_every_round():
    honest, own = vectors(3, 2000), vectors(2, 2000)
    one, other = sent("gaussian", honest, own), sent("gaussian", honest, own, t=1)
    assert not np.allclose(one, other)
    assert one.std() == pytest.approx(1, abs=0.05)
    assert np.array_equal(sent("gaussian", honest, own, strength=3.0), 3 * one)


def test_without_honest_vectors_the_bad_clients_take_their_own():
    own = vectors(2, 4)
    assert sent("ipm", own[:0], own) == pytest.approx(FORMULAS["ipm"](own, own), abs=1e-15)


def test_the_seed_says_who_is_bad():
    found = {Adversary("ipm", 3, seed=seed).bad(10) for seed in range(20)}
    assert len(found) > 10
    assert all(len(bad) == 3 and max(bad) < 10 for bad in found)
    assert Adversary("ipm", 3, seed=4).bad(10) == Adversary("mimic", 3, seed=4).bad(10)
    assert Adversary("ipm", (1, 5)).bad(6) == {1, 5}


def test_labels_are_mirrored():
    assert flipped(torch.tensor([0, 1, 2, 9]), 10).tolist() == [9, 8, 7, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sign_flop", 1), "there is no attack called 'sign_flop': did you mean 'sign_flip'?"),
        (("mimic", 1, 2.0), "the attack 'mimic' has no strength: leave it out."),
        (("ipm", 1, float("inf")), "must be finite"),
    ],
)
def test_mistakes_are_explained(arguments, message):
    with pytest.raises(FedcanonError) as caught:
        Adversary(*arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize("clients", [0, 4, (3,), (-1,), ()])
def test_bad_clients_must_be_clients(clients):
    with pytest.raises(FedcanonError, match=r"adversary\.clients"):
        Adversary("ipm", clients).bad(3)
