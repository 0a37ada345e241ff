"""What a client does not do, whatever the server asks."""

import stat
from dataclasses import replace

import pytest

pytest.importorskip("cryptography")

from fedcanon import FedcanonError
from fedcanon.deployment.protocol import Message
from fedcanon.deployment.secure.agreement import Agreement
from fedcanon.deployment.secure.client import Member, SecretFile
from fedcanon.deployment.secure.identity import Identity
from fedcanon.deployment.secure.keys import PublicKeys
from tests.deployment.secure_world import InMemory, in_ring

N = 5


class Sum:
    """The members of a sum, and a server that carries their messages."""

    def __init__(self, n=N, minimum=3, safes=None):
        self.identities = [Identity.new() for _ in range(n)]
        public = [identity.public for identity in self.identities]
        safes = safes or [InMemory() for _ in range(n)]
        self.members = [
            Member(i, self.identities[i], public, minimum, lambda run, i=i: safes[i])
            for i in range(n)
        ]
        self.safes = safes

    def message(self, kind, client=0, peers=None, **changes):
        base = Message("id", client, kind, "run", 1, 7, {}, scale=4.0, broadcast="d")
        return replace(base, peers=peers or {}, **changes)

    def keys(self, **changes):
        found = {}
        for member in self.members:
            found |= member.advertise(self.message("keys", **changes))
        return found

    def boxes(self, keys):
        return [member.share(self.message("shares", peers=keys)) for member in self.members]

    def ready(self):
        """All have masked an update of (1, 2, 3)."""
        boxes = self.boxes(self.keys())
        for i, member in enumerate(self.members):
            mine = {j: box[i] for j, box in enumerate(boxes)}
            member.mask(self.message("train", peers=mine), in_ring([1, 2, 3]))
        return self

    def signed(self, *clients, by=None):
        """These survivors, with the signatures of some or all."""
        asked = self.message("confirm", peers=survivors(*clients))
        signers = clients if by is None else by
        found = [self.members[client].confirm(asked) for client in signers]
        return survivors(*clients) | {c: text for one in found for c, text in one.items()}

    def unmask(self, client, peers):
        return self.members[client].reveal(self.message("unmask", peers=peers))


def survivors(*clients):
    return dict.fromkeys(clients, "")


def test_a_second_set_of_survivors_is_refused():
    there = Sum().ready()
    signed = there.signed(0, 1, 2, 3)
    assert signed == there.signed(0, 1, 2, 3)
    assert there.unmask(0, signed) == there.unmask(0, signed)
    for ask in (there.members[0].confirm, there.members[0].reveal):
        for kind in ("confirm", "unmask"):
            with pytest.raises(FedcanonError, match="told of other survivors before"):
                ask(there.message(kind, peers=survivors(0, 1, 2, 3, 4)))


def test_who_has_signed_nothing_reveals_if_others_have_and_then_signs_nothing_else():
    there = Sum().ready()
    signed = there.signed(0, 1, 2, 3, 4, by=(1, 2, 3, 4))
    assert there.unmask(0, signed).keys() == {0, 1, 2, 3, 4}
    with pytest.raises(FedcanonError, match="told of other survivors before"):
        there.signed(0, 1, 2, 3, by=(0,))
    assert there.signed(0, 1, 2, 3, 4, by=(0,))[0]


def test_of_no_peer_both_secrets_are_revealed():
    there = Sum().ready()
    shown = there.unmask(0, there.signed(0, 1, 2, 3))
    assert shown.keys() == {0, 1, 2, 3, 4}
    assert all(len(share) == 64 for share in shown.values())  # one share of 32 bytes, not two


@pytest.mark.parametrize(
    "peers", [(0, 1, 2), (1, 2, 3, 4), (0, 1, 2, 9), (), (0,)], ids=lambda peers: f"{peers}"
)
def test_survivors_that_are_too_few_strange_or_without_the_client_are_refused(peers):
    there = Sum().ready()
    for ask in (there.members[0].confirm, there.members[0].reveal):
        with pytest.raises(FedcanonError, match="does not accept these survivors"):
            ask(there.message("confirm", peers=survivors(*peers)))
    assert not there.safes[0].kept.survivors


def test_nothing_is_signed_or_revealed_before_an_update_was_masked():
    there = Sum()
    there.boxes(there.keys())
    for ask in (there.members[0].confirm, there.members[0].reveal):
        with pytest.raises(FedcanonError, match="does not accept these survivors"):
            ask(there.message("confirm", peers=survivors(0, 1, 2, 3)))


@pytest.mark.parametrize("how", ["missing", "bit", "other's", "twice", "length", "stranger"])
def test_signatures_that_are_missing_or_forged_are_refused(how):
    there = Sum().ready()
    signed = there.signed(0, 1, 2, 3)  # t = 4: each of them is needed
    assert there.safes[0].kept.survivors == [0, 1, 2, 3]
    forged = {
        "missing": "",
        "bit": signed[3][:-2] + f"{int(signed[3][-2:], 16) ^ 1:02x}",
        "other's": Identity.new().sign(b"anything").hex(),
        "twice": signed[2],
        "length": signed[3] + "00",
        "stranger": "",
    }[how]
    given = {**signed, 3: forged}
    if how == "stranger":  # a fifth client has signed, but is not among the survivors
        agreement = Agreement(
            *(there.safes[0].kept.terms, there.safes[0].kept.peers, range(N), range(4))
        )
        own = there.identities[4].sign(agreement.text).hex()
        assert agreement.signers(there.members[0].identities, {3: signed[3], 4: own}) == {3}
    with pytest.raises(FedcanonError, match="too few have signed what it was told"):
        there.unmask(0, given)
    assert len(there.unmask(0, signed)) == N


@pytest.mark.parametrize("what", ["terms", "keys", "senders", "survivors"])
def test_signatures_are_of_everything_that_a_client_was_told(what):
    there = Sum().ready()
    kept = there.safes[0].kept
    told = Agreement(kept.terms, kept.peers, range(N), range(4))
    other = {
        "terms": replace(kept.terms, round=8),
        "keys": {**kept.peers, 4: kept.peers[3]},
        "senders": range(4),
        "survivors": range(N),
    }[what]
    changed = replace(told, **{what: other})
    signatures = {i: there.identities[i].sign(changed.text).hex() for i in range(4)}
    with pytest.raises(FedcanonError, match="too few have signed what it was told"):
        there.unmask(0, signatures)
    right = {i: there.identities[i].sign(told.text).hex() for i in range(4)}
    assert len(there.unmask(0, right)) == N


@pytest.mark.parametrize("how", ["signature", "owner", "terms", "own", "few", "length", "stranger"])
def test_keys_that_their_owner_has_not_signed_for_this_sum_are_refused(how):
    there = Sum()
    keys = there.keys()
    if how == "signature":
        keys[2] = keys[2][:-2] + f"{int(keys[2][-2:], 16) ^ 1:02x}"
    elif how == "owner":  # the server's own keys
        fake = PublicKeys.of(bytes(32), bytes(32), bytes(32))
        terms = there.safes[0].kept.terms
        keys[2] = fake.signed(Identity.new(), terms, 2).hex()
    elif how == "terms":  # it was told another scale, so that it would send zeros
        there.safes[2].kept = None
        keys |= there.members[2].advertise(there.message("keys", scale=1e30))
    elif how == "own":
        keys[0] = keys[1]
    elif how == "few":
        keys = {0: keys[0], 1: keys[1]}
    elif how == "length":
        keys[2] = "ab"
    else:
        keys[17] = keys[2]
    with pytest.raises(FedcanonError):
        there.members[0].share(there.message("shares", peers=keys))
    assert not there.safes[0].kept.boxes  # nothing was dealt


def test_secrets_are_dealt_once():
    there = Sum()
    keys = there.keys()
    boxes = there.members[0].share(there.message("shares", peers=keys))
    assert boxes == there.members[0].share(there.message("shares", peers=keys))
    fewer = {client: key for client, key in keys.items() if client != 4}
    with pytest.raises(FedcanonError, match="told of other peers"):
        there.members[0].share(there.message("shares", peers=fewer))


def test_an_update_is_masked_for_one_set_of_peers():
    there = Sum()
    boxes = there.boxes(there.keys())
    mine = {j: box[0] for j, box in enumerate(boxes)}
    there.members[0].mask(there.message("train", peers=mine), in_ring([1, 2]))
    fewer = {j: box for j, box in mine.items() if j != 4}
    with pytest.raises(FedcanonError, match="given other boxes"):
        there.members[0].mask(there.message("train", peers=fewer), in_ring([1, 2]))
    for few in ({0: mine[0], 1: mine[1]}, {j: mine[j] for j in (0, 2, 3, 4)}, {**mine, 9: mine[1]}):
        with pytest.raises(FedcanonError):
            there.members[1].mask(there.message("train", peers=few), in_ring([1, 2]))


def test_a_box_that_cannot_be_opened_is_left_out_and_its_sender_not_confirmed():
    there = Sum()
    boxes = there.boxes(there.keys())
    for i, member in enumerate(there.members):
        spoilt = {3: "00" * 80, 4: ""} if i == 0 else {}
        mine = {j: box[i] for j, box in enumerate(boxes)} | spoilt
        member.mask(there.message("train", peers=mine), in_ring([1, 2]))
    with pytest.raises(FedcanonError, match="cannot open the box of client 3, which is in the sum"):
        there.signed(0, 1, 2, 3, by=(0,))
    shown = there.unmask(0, there.signed(0, 1, 2, 3, 4, by=(1, 2, 3, 4)))
    assert shown.keys() == {0, 1, 2}


def test_a_new_round_ends_the_one_before():
    there = Sum().ready()
    old = there.keys()
    assert old == there.keys()  # the same question has the same answer
    new = there.keys(round=8)
    assert all(new[client] != old[client] for client in range(N))
    with pytest.raises(FedcanonError, match="newer"):
        there.keys()
    for ask in (there.members[0].confirm, there.members[0].reveal):
        with pytest.raises(FedcanonError, match="no keys for round 7"):
            ask(there.message("unmask", peers=survivors(0, 1, 2, 3)))


def test_a_round_has_one_scale_and_one_broadcast():
    there = Sum()
    there.keys()
    for changes in ({"scale": 5.0}, {"broadcast": "another"}):
        with pytest.raises(FedcanonError, match="other terms"):
            there.keys(**changes)


def test_secrets_are_in_one_file_for_their_owner_alone(tmp_path):
    files = [SecretFile.on_disk(tmp_path, i, "run") for i in range(N)]
    there = Sum(safes=files).ready()
    seed = files[0].load().seed
    mode = stat.S_IMODE(files[0].path.stat().st_mode)
    assert mode == 0o600
    assert stat.S_IMODE(files[0].path.parent.stat().st_mode) == 0o700
    assert files[0].load().received.keys() == set(range(N))
    there.signed(0, 1, 2, 3)
    assert files[0].load().survivors == [0, 1, 2, 3]
    assert stat.S_IMODE(files[0].path.stat().st_mode) == 0o600
    there.keys(round=8)
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert seed.encode() not in left
    assert len(list(files[0].path.parent.iterdir())) == N
