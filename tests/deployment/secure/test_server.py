"""The server's part in a sum: every client can drop out in every step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from fedcanon import FedcanonError
from fedcanon.deployment.secure.server import SecureSum
from fedcanon.deployment.secure.shares import threshold
from tests.deployment.secure.test_client import Sum, survivors
from tests.deployment.secure_world import in_ring

D = 6
GONE = st.sets(st.integers(0, 6), max_size=3)


def server(there, n, minimum=3):
    terms = there.safes[0].kept.terms if there.safes[0].kept else None
    return SecureSum(terms, [i.public for i in there.identities], minimum, D)


def through(n, vectors, gone, change=lambda client, shares: shares):
    """A sum in which clients vanish before they share, send, sign or reveal."""
    there = Sum(n)
    keys = there.keys()
    secure = server(there, n)
    for client, own in keys.items():
        secure.advertise(client, {client: own})
    for client in set(range(n)) - gone[0]:
        secure.share(client, there.members[client].share(there.message("shares", peers=keys)))
    if not secure.is_enough(secure.boxes):
        return secure, None
    for client in secure.boxes.keys() - gone[1]:
        message = there.message("train", peers=secure.boxes_for(client))
        masked = there.members[client].mask(message, in_ring(vectors[client].view(np.int32)))
        secure.add(client, f"u{client}", {"u": masked})
    if not secure.is_enough(secure.survivors):
        return secure, None
    told = survivors(*secure.survivors)
    for client in secure.survivors.keys() - gone[2]:
        secure.confirm(client, there.members[client].confirm(there.message("confirm", peers=told)))
    if not secure.is_confirmed:
        return secure, None
    for client in secure.survivors.keys() - gone[3]:
        shown = there.unmask(client, told | secure.signatures)
        secure.reveal(client, change(client, shown))
    return secure, secure.total() if secure.is_open else None


@pytest.mark.slow
@given(st.integers(3, 7), st.tuples(GONE, GONE, GONE, GONE), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_a_sum_is_that_of_the_survivors_or_there_is_none(n, gone, seed):
    vectors = np.random.default_rng(seed).integers(0, 2**32, (n, D), dtype=np.uint32)
    secure, total = through(n, vectors, gone)
    everyone = set(range(n))
    alive = everyone - gone[0] - gone[1]
    enough = len(alive) >= max(3, threshold(n)) and all(
        len(alive - late) >= threshold(n) for late in gone[2:]
    )
    assert (total is not None) == enough
    if total is not None:
        assert secure.survivors.keys() == alive
        assert np.array_equal(total, vectors[sorted(alive)].sum(0, dtype=np.uint32))


VECTORS = np.arange(7 * D, dtype=np.uint32).reshape(7, D)


@pytest.mark.parametrize("of", [0, 5], ids=["of a survivor", "of one that is gone"])
def test_a_wrong_share_spoils_no_sum_unnoticed(of):
    def lie(client, shares):
        return {**shares, of: "ab" * 32} if client == 1 else shares

    with pytest.raises(FedcanonError, match=f"client {of}'s secret do not fit"):
        through(6, VECTORS, (set(), {5}, set(), set()), lie)


def test_shares_that_are_left_out_do_no_harm_while_there_are_enough():
    def silent(client, shares):
        return {} if client == 1 else shares

    secure, total = through(6, VECTORS, (set(), {5}, set(), set()), silent)
    assert total is None  # 5 survivors less one: 4 of the 5 needed
    secure, total = through(7, VECTORS, (set(), {5}, set(), set()), silent)
    assert np.array_equal(total, VECTORS[[0, 1, 2, 3, 4, 6]].sum(0, dtype=np.uint32))
    assert len(secure.revealed[0]) == 5


def test_what_clients_send_is_checked():
    there = Sum(4)
    keys = there.keys()
    secure = server(there, 4)
    for sent in ({}, {1: keys[1]}, {0: keys[1]}, {0: keys[0], 1: keys[1]}, {0: "ab"}):
        with pytest.raises(FedcanonError):
            secure.advertise(0, sent)
    for client, own in keys.items():
        secure.advertise(client, {client: own})
    boxes = there.members[0].share(there.message("shares", peers=keys))
    for sent in ({}, {**boxes, 9: boxes[1]}, {**boxes, 1: "ab"}, {0: boxes[0]}):
        with pytest.raises(FedcanonError, match="malformed"):
            secure.share(0, sent)
    secure.share(0, boxes)
    for content in ({}, {"u": 3}, {"u": in_ring([1])}, {"u": in_ring([0] * D), "buffers": 1}):
        with pytest.raises(FedcanonError, match="malformed"):
            secure.add(0, "name", content)
    with pytest.raises(FedcanonError, match="malformed"):
        secure.add(0, "", {"u": in_ring([0] * D)})
    secure.add(0, "name", {"u": in_ring([0] * D)})
    with pytest.raises(FedcanonError, match="malformed"):
        secure.add(0, "name", {"u": in_ring([0] * D)})
    for client in (1, 2, 3):
        message = there.message("shares", client, keys)
        secure.share(client, there.members[client].share(message))
        secure.add(client, "name", {"u": in_ring([0] * D)})
    for client, member in enumerate(there.members):
        message = there.message("train", client, secure.boxes_for(client))
        member.mask(message, in_ring([0] * D))
    signed = there.signed(0, 1, 2, 3)
    for sent in ({}, {0: ""}, {0: "ab"}, {0: signed[1]}, {1: signed[1]}, signed):
        with pytest.raises(FedcanonError, match="no signature of what it was told"):
            secure.confirm(0, sent)
    for client in range(3):
        assert not secure.is_confirmed
        secure.confirm(client, {client: signed[client]})
    assert secure.is_confirmed
    for sent in ({0: "ab"}, {9: "ab" * 32}):
        with pytest.raises(FedcanonError, match="malformed"):
            secure.reveal(0, sent)
