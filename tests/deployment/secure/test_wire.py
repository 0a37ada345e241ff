"""Secure sums over Flower's records: what is sent arrives, and whatever else comes does no harm."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr")

from dataclasses import replace

from flwr.app import ConfigRecord, RecordDict

from fedcanon import FedcanonError, FedCanonPlus
from fedcanon.deployment.flower.wire import to_message, to_records, to_reply
from fedcanon.deployment.protocol import Message, Reply
from fedcanon.penalties import L1
from tests.deployment.secure_world import SecureWorld, in_ring
from tests.deployment.test_hostile import VALUES, mutations
from tests.problems import quadratics

pytestmark = pytest.mark.flower

CLIENTS, D = 4, 3


class Wired(SecureWorld):
    """A secure world whose messages pass Flower's records; those of client 0 are changed there."""

    mutated = staticmethod(lambda records: records)
    limit = 0

    def send(self, messages):
        for message in messages:
            message = to_message(to_records(message))
            reply = self.participant(message.client).answer(message)
            records = to_records(reply)
            if message.client == 0 and self.limit:
                records, self.limit = self.mutated(records), self.limit - 1
            lost = Reply(message.id, message.client, "lost", message.generation, message.round)
            try:
                reply = to_reply(records, self.compressor, {D, 0})
            except FedcanonError as error:
                self.arrived.append(replace(lost, reason=str(error)))
                continue
            self.arrived.append(replace(reply, answers=message.id))


def wired():
    return Wired(quadratics(clients=CLIENTS, d=D), FedCanonPlus(0.5, 0.1, 3), L1(0.1))


def test_a_sum_over_the_wire_is_the_same():
    there, plain = (
        wired(),
        SecureWorld(quadratics(clients=CLIENTS, d=D), wired().algorithm, L1(0.1)),
    )
    for _ in range(3):
        there.step()
        plain.step()
        assert there.federation.model.equal(plain.federation.model)
    assert there.on_disks() < 1e-14


@st.composite
def peer_mutations(draw):
    """A function that changes what a client sends for or of its peers."""
    value, key = draw(VALUES), draw(st.sampled_from(["0", "1", "7", "-1", "x", "99999999999999"]))
    whole = draw(st.booleans())

    def mutate(records):
        header = json.loads(records.config_records["header"]["json"])
        header["peers"] = value if whole else {**header["peers"], key: value}
        text = json.dumps(header)
        arrays = records.array_records["arrays"]
        return RecordDict({"arrays": arrays, "header": ConfigRecord({"json": text})})

    return mutate


@pytest.mark.slow
@given(st.lists(st.one_of(mutations(), peer_mutations()), min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_whatever_a_client_sends_the_run_goes_on(changes):
    there = wired()
    for mutate in changes:
        there.mutated, there.limit = mutate, 7
        there.federation.step()
        assert bool(there.federation.model.isfinite().all())
        assert len(json.dumps(there.membership.state())) < 10_000
    assert there.federation.rounds_done == len(changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"peers": {"1": "abc"}},
        {"peers": {"1": "AB"}},
        {"peers": {"1": "ab" * 161}},
        {"peers": {"-1": "ab"}},
        {"peers": {str(2**41): "ab"}},
        {"peers": {str(k): "" for k in range(1001)}},
        {"peers": []},
        {"kind": "key"},
        {"scale": -1.0},
        {"scale": 1e300},
        {"broadcast": "a|b"},
    ],
)
def test_bounds_of_a_message(changes):
    good = to_records(Message("id", 0, "keys", "run", 1, 0, {}, scale=4.0, broadcast="d"))
    header = {**json.loads(good.config_records["header"]["json"]), **changes}
    bad = RecordDict(
        {
            "arrays": good.array_records["arrays"],
            "header": ConfigRecord({"json": json.dumps(header)}),
        }
    )
    assert to_message(good).scale == 4.0
    with pytest.raises(FedcanonError, match="malformed"):
        to_message(bad)


def test_a_masked_update_travels_as_32_bit_numbers():
    there = wired()
    masked = in_ring([2**31 - 1, -(2**31), 5])
    reply = Reply("id", 0, "update", 1, 0, {"u": masked}, update="name")
    records = to_records(reply)
    back = to_reply(records, there.compressor, {D})
    assert back.content["u"].parts["values"].equal(masked.parts["values"])
    [array] = records.array_records["arrays"].values()
    assert array.dtype == "int32"
