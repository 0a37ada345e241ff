"""A server that tells clients different things, together with clients that obey it."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from fedcanon import FedcanonError
from fedcanon.deployment.secure.agreement import Agreement
from fedcanon.deployment.secure.keys import PublicKeys
from fedcanon.deployment.secure.masks import pair_mask, self_mask
from fedcanon.deployment.secure.ring import VALUES
from fedcanon.deployment.secure.shares import join, threshold
from tests.deployment.secure.test_client import Sum, survivors
from tests.deployment.secure_world import in_ring

N, T = 10, 7
UPDATE = [58, 47, 49]


class Attack:
    """A sum in which the server has told each honest client what it likes.

    Args:
        there: The members of the sum.
        colluders: Those who sign whatever the server wants, and give it all that they know.
        boxes: What each client has sent to the others.
        senders: Whose boxes each client was given; None for all.
    """

    def __init__(self, there, colluders, boxes, senders=None):
        self.there, self.colluders, self.sent = there, colluders, {}
        self.honest = [i for i in range(len(there.members)) if i not in colluders]
        for i, member in enumerate(there.members):
            given = (senders or {}).get(i, boxes[i])
            mine = {j: boxes[j][i] for j in given}
            self.sent[i] = member.mask(there.message("train", peers=mine), in_ring(UPDATE))

    def revealed(self, told):
        """Name survivors to each client, collect signatures, and return the shares of each."""
        there, signed, shown = self.there, {}, {}
        for i in self.honest:
            asked = there.message("confirm", peers=survivors(*told[i]))
            with suppress(FedcanonError):
                signed |= there.members[i].confirm(asked)
        for i in self.honest:
            kept = there.safes[i].kept
            wanted = Agreement(kept.terms, kept.peers, kept.received, told[i]).text
            signed |= {c: there.identities[c].sign(wanted).hex() for c in self.colluders}
            peers = {j: signed.get(j, "") for j in told[i]}
            with suppress(FedcanonError):
                shown[i] = there.unmask(i, peers)
        return shown

    def secret(self, of, survives, shown, told):
        """The seed or the pairing key of a client, from shares that were revealed or betrayed."""
        shares = {
            i: bytes.fromhex(shown[i][of])
            for i in shown
            if of in shown[i] and (of in told[i]) == survives
        }
        for c in self.colluders:
            content = self.there.members[c]._opened(self.there.safes[c].kept, of)
            shares[c] = content[32:] if survives else content[:32]
        return join(shares, self.there.safes[of].kept.peers)


def two_faced():
    """The victim hears of t clients only; each other is asked to expose some of the victim's peers.

    So every peer's pairing key is exposed by enough clients, and the victim's seed by all.
    """
    there, colluders, victim = Sum(N), (0, 1), 2
    group = [victim, *colluders, 3, 4, 5, 6]
    boxes = there.boxes(there.keys())
    attack = Attack(there, colluders, boxes, {victim: group})
    wanted = dict.fromkeys(group[3:], T - len(colluders))
    told = {victim: group}
    for i in range(3, N):
        out = sorted((p for p in wanted if p != i and wanted[p]), key=lambda p: -wanted[p])[: N - T]
        wanted |= {p: wanted[p] - 1 for p in out}
        told[i] = [j for j in range(N) if j not in out]
    assert not any(wanted.values())
    return attack, victim, group, told


def read_update(attack, victim, group, told, shown):
    """The victim's update, from all that the server and its colluders know in the end."""
    safes = attack.there.safes
    terms, size = safes[victim].kept.terms, len(UPDATE)
    public = PublicKeys.parsed(safes[victim].kept.peers[victim])[0].pairing
    total = attack.sent[victim].parts[VALUES].numpy().view("uint32").copy()
    total -= self_mask(attack.secret(victim, True, shown, told), terms, victim, size)
    for peer in set(group) - {victim}:
        if peer in attack.colluders:
            key = bytes.fromhex(safes[peer].kept.pairing)
        else:
            key = attack.secret(peer, False, shown, told)
        total += pair_mask(key, public, terms, peer, victim, size)
    return total.view(np.int32).tolist()


def test_clients_that_were_told_different_things_reveal_nothing():
    attack, victim, group, told = two_faced()
    shown = attack.revealed(told)
    assert shown == {}
    with pytest.raises(FedcanonError, match="only 2 of 7 shares"):
        read_update(attack, victim, group, told, shown)


def test_without_signatures_two_of_ten_clients_and_the_server_would_read_an_update(monkeypatch):
    """The attack is one: only the signatures stop it."""
    monkeypatch.setattr(Agreement, "signers", lambda self, *_: self.survivors)
    attack, victim, group, told = two_faced()
    assert read_update(attack, victim, group, told, attack.revealed(told)) == UPDATE


@pytest.fixture(scope="module")
def dealt():
    there = Sum(N)
    boxes = there.boxes(there.keys())
    return there, boxes, [safe.kept for safe in there.safes]


SETS = st.sets(st.integers(0, N - 1), min_size=T)


@pytest.mark.slow
@given(st.integers(0, 3), st.data())
@settings(max_examples=60, deadline=None)
def test_all_who_reveal_were_told_the_same(dealt, count, data):
    there, boxes, kept = dealt
    for safe, secrets in zip(there.safes, kept, strict=True):
        safe.kept = secrets
    views = data.draw(st.lists(st.tuples(SETS, SETS), min_size=2, max_size=3))
    chosen = {i: data.draw(st.sampled_from(views)) for i in range(N)}
    senders = {i: {*chosen[i][0], *chosen[i][1], i} for i in range(N)}
    attack = Attack(there, range(count), boxes, senders)
    told = {i: sorted(chosen[i][1]) for i in range(N)}
    shown = attack.revealed(told)
    seen = {(tuple(sorted(senders[i])), tuple(told[i])) for i in shown}
    assert len(seen) <= 1
    if shown:  # more than a third of all are honest, and were told the same
        [one] = seen
        same = [i for i in attack.honest if (tuple(sorted(senders[i])), tuple(told[i])) == one]
        assert len(same) + count >= threshold(N)


@pytest.mark.parametrize(("count", "both"), [(3, False), (4, True)])
def test_two_sets_of_survivors_need_more_than_a_third_of_all(count, both):
    there = Sum(N)
    attack = Attack(there, range(count), there.boxes(there.keys()))
    half = (len(attack.honest) + 1) // 2
    first, second = attack.honest[:half], attack.honest[half:]
    told = {
        i: [j for j in range(N) if j != (second if i in first else first)[0]] for i in attack.honest
    }
    assert attack.revealed(told).keys() == set(attack.honest if both else first)


@pytest.mark.parametrize("named", [True, False], ids=["in their sums", "not in their sums"])
def test_clients_that_were_given_few_keys_reveal_nothing_of_one_that_was_given_all(named):
    """Five of sixteen collude: fewer than a third, but enough to sign in a group of seven."""
    there, colluders, victim = Sum(16), range(5), 5
    keys, boxes = there.keys(), {}
    few = {i: {*colluders, victim, i} for i in range(6, 16)}
    for i, member in enumerate(there.members):
        given = {j: keys[j] for j in few.get(i, keys)}
        boxes[i] = member.share(there.message("shares", peers=given))
    attack = Attack(there, colluders, boxes, few)
    told = {i: group - (set() if named else {victim}) for i, group in few.items()}
    shown = attack.revealed({victim: range(16), **told})
    assert shown.keys() == few.keys()
    assert not any(victim in shares for shares in shown.values())
