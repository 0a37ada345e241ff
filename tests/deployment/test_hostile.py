"""Clients that mean harm: whatever they send, the run goes on or ends with a sentence on them."""

import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedcanon import FedcanonError, FedCanonPlus
from fedcanon.compression import Clip, decoded
from fedcanon.deployment.flower.nodes import Nodes
from fedcanon.deployment.flower.wire import MAX_HEADER, to_message, to_records, to_reply
from fedcanon.deployment.measuring import MOST_HELD_OUT, measures_fault, pooled_measures
from fedcanon.deployment.protocol import Message, Reply, packed
from fedcanon.deployment.status import read_status
from fedcanon.deployment.weights import Weights
from fedcanon.penalties import L1
from tests.deployment.network import World
from tests.problems import logistics, quadratics

pytestmark = pytest.mark.flower

METHOD = FedCanonPlus(0.5, 0.1, 3)
CLIENTS, D = 4, 3


def world(keeper="server", method=METHOD, clients=CLIENTS, **settings):
    return World(quadratics(clients=clients, d=D), method, L1(0.1), keeper, **settings)


class Wired(World):
    """A world whose replies pass Flower's records; those of client 0 are ``mutated`` there."""

    mutated = staticmethod(lambda records: records)

    def send(self, messages):
        for message in messages:
            message = to_message(to_records(message))
            reply = self.participant(message.client).answer(message)
            records = to_records(reply)
            if message.client == 0:
                records = self.mutated(records)
            lost = Reply(message.id, message.client, "lost", message.generation, message.round)
            try:
                reply = to_reply(records, self.compressor, {D, 0})
            except FedcanonError as error:
                self.arrived.append(replace(lost, reason=str(error)))
                continue
            self.arrived.append(replace(reply, answers=message.id))


NUMBERS = st.one_of(
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([2**70, -1, 2**63, 1e308, 0, 1]),
)
VALUES = st.recursive(
    st.one_of(NUMBERS, st.none(), st.booleans(), st.text(max_size=50), st.just("\x1b[2J" * 9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)
KINDS = ("update", "measures", "mismatch", "failure", "lost", "nonsense", "")


def header_of(records):
    return json.loads(records.config_records["header"]["json"])


def with_header(records, header):
    try:
        text = json.dumps(header)
    except ValueError:  # more digits than Python writes
        text = '{"client": ' + "9" * 5000 + "}"
    arrays = records.array_records["arrays"]
    return RecordDict({"arrays": arrays, "header": ConfigRecord({"json": text})})


@st.composite
def mutations(draw):
    """A function that changes what a client sends."""
    what = draw(st.sampled_from(["field", "entry", "kind", "text", "array", "drop", "extra"]))
    name, value = draw(st.sampled_from(sorted(vars(Reply("", 0, "update", 0, 0))))), draw(VALUES)
    kind, bits = draw(st.sampled_from(KINDS)), draw(st.binary(max_size=40))
    place, number = draw(st.integers(0, 10**6)), draw(NUMBERS)

    def mutate(records):
        header = header_of(records)
        if what == "field":
            return with_header(records, {**header, name: value})
        if what == "kind":
            return with_header(records, {**header, "kind": kind, "generation": number})
        if what == "entry":
            names = [*header["content"], "measure/loss", "measure/test/accuracy", "new"]
            entry = names[place % len(names)]
            return with_header(records, {**header, "content": {**header["content"], entry: value}})
        if what == "text":
            text = json.dumps(header)
            cut = text[: place % len(text)] + bits.decode("latin-1") + text[place % len(text) + 3 :]
            return RecordDict(
                {
                    "arrays": records.array_records["arrays"],
                    "header": ConfigRecord({"json": cut}),
                }
            )
        arrays = dict(records.array_records["arrays"].items())
        if what == "array" and arrays:
            chosen = sorted(arrays)[place % len(arrays)]
            data = bytearray(arrays[chosen].data)
            at = place % max(1, len(data))
            data[at : at + len(bits)] = bits
            old = arrays[chosen]
            arrays[chosen] = Array(old.dtype, old.shape, old.stype, bytes(data))
        elif what == "drop" and arrays:
            del arrays[sorted(arrays)[place % len(arrays)]]
        else:
            arrays["junk:parts"] = Array(torch.zeros(100).numpy())
        return RecordDict(
            {"arrays": ArrayRecord(arrays), "header": records.config_records["header"]}
        )

    return mutate


def goes_on(changes, keeper):
    """Check that a run goes on whatever one of its clients sends."""
    there = Wired(quadratics(clients=CLIENTS, d=D), METHOD, L1(0.1), keeper, minimum=2)
    engine = there.federation.engine
    for t, mutate in enumerate(changes):
        there.mutated = mutate
        if t % 2:
            engine.measure_with_next_round(there.federation.model, gradient=True)
        there.federation.step()  # others suffice: no error of client 0 may end the run
        found = engine.evaluate(there.federation.model, gradient=False)
        assert bool(there.federation.model.isfinite().all())
        assert math.isfinite(found.loss)
        assert all(0 <= value <= 1 for name, value in found.test.items() if "accuracy" in name)
        state = json.dumps(engine.membership.state())
        assert len(state) < 10_000
        assert there.federation.cost.client_prox < 10**8


SENT = (st.lists(mutations(), min_size=1, max_size=6), st.sampled_from(["server", "client"]))
test_whatever_a_client_sends_the_run_goes_on = settings(max_examples=80)(given(*SENT)(goes_on))
test_the_run_goes_on_whatever_else_is_sent = pytest.mark.exhaustive(
    settings(max_examples=2000)(given(*SENT)(goes_on))
)


@pytest.mark.parametrize("keeper", ["server", "client"])
def test_a_client_that_names_ever_newer_generations_is_excluded(keeper):
    there = world(keeper)

    def newer(world, message):
        generation = world.membership.generation + 5
        reply = Reply(message.id, message.client, "mismatch", generation, message.round)
        world.arrived.append(reply)

    def fate(world, message):
        if message.client == 0:
            newer(world, message)
        else:
            world.arrived.append(world.ask(message))

    there.fates = [fate] * 100
    there.step()
    assert there.membership.generation < 40
    assert (0 in there.membership.gone) == (keeper == "client")
    far = replace(Reply("", 0, "mismatch", 2**39, 0))
    assert not there.membership.is_credible(far.generation)


@pytest.mark.parametrize("factor", [1e4, -1e4, 1e30])
@pytest.mark.parametrize("keeper", ["server", "client"])
def test_an_update_far_from_what_is_usual_is_refused(keeper, factor):
    there = world(keeper, clients=5)
    for _ in range(3):
        there.step()
    alone = world(keeper, clients=5)
    for _ in range(3):
        alone.step()

    def poisoned(world, message):
        reply = world.ask(message)
        if message.client == 2:
            content = {k: v * factor if v.numel() else v for k, v in decoded(reply.content).items()}
            reply = replace(reply, content=packed(content))
        world.arrived.append(reply)

    there.fates = [poisoned] * 5
    there.step()
    alone.federation.step([0, 1, 3, 4])
    assert torch.equal(there.federation.model, alone.federation.model)
    assert there.membership.refusals == {2: 1}
    there.step()  # and it may come back
    assert 2 in there.membership.last_accepted


def test_a_clipped_client_cannot_let_its_state_grow_for_ever():
    problem = logistics(clients=5, d=D)  # gradients are bounded
    there = World(problem, METHOD, L1(0.01), "server", compressor=Clip(5.0))
    for _ in range(3):
        there.step()

    def pushes(world, message):
        reply = world.ask(message)
        if message.client == 2:
            content = decoded(reply.content)
            content["u"] = torch.full((D,), 5.0 / math.sqrt(D), dtype=content["u"].dtype) * 0.999
            reply = replace(reply, content=packed(content))
        world.arrived.append(reply)

    for _ in range(60):
        there.fates = [pushes] * 5
        there.step()
    usual = there.federation.engine._usual.median
    assert float(there.federation.engine.states.read(2)["v"].norm()) <= 10 * usual
    assert there.membership.refusals[2] > 0


def test_the_first_update_of_a_client_that_comes_late_is_not_odd():
    # Updates are changes of v_i: the first is the whole of it, and later ones are small.
    there = world("client")
    for _ in range(30):
        there.there = {0, 1}
        there.step()
    there.there = {0, 1, 2}
    there.step()
    there.there = {0, 1, 2, 3}
    there.step()
    assert there.membership.last_accepted == {0, 1, 2, 3}
    assert there.membership.refusals == {}


def test_a_round_that_needs_a_refused_client_ends_with_its_name():
    there = world(minimum=CLIENTS)

    def empty(world, message):
        reply = world.ask(message)
        world.arrived.append(replace(reply, content={}) if message.client == 1 else reply)

    there.fates = [empty] * 100
    with pytest.raises(FedcanonError, match="needs client 1, whose updates are refused"):
        there.step()


def test_a_loss_that_cannot_be_believed_does_not_count():
    there = world()

    def boasts(world, message):
        reply = world.ask(message)
        content = decoded(reply.content)
        if message.client == 3:
            content["loss"] = 1e300
        world.arrived.append(replace(reply, content=packed(content)))

    there.fates = [boasts] * CLIENTS
    z = there.problem.start
    found = there.federation.engine.evaluate(z, gradient=False)
    assert found.losses == there.problem.losses(z)[:3]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"test/accuracy": 0.5, "test/test_loss": 3.0}, None),
        ({"test/accuracy": 10.0}, "out of range"),
        ({"held_out": -1}, "out of range"),
        ({"held_out": 2**70}, "out of range"),
        ({"loss": 10**400}, "not finite"),
        ({"test/\x1b[2J": 1.0}, "malformed"),
        ({f"test/{k}": 1.0 for k in range(1000)}, "malformed"),
        ({"test/accuracy": [1.0]}, "malformed"),
    ],
)
def test_measures_have_known_names_and_ranges(changes, fault):
    assert measures_fault({"loss": 1.0, "held_out": 3, **changes}, None) == fault


def test_a_claim_of_held_out_samples_is_bounded():
    found = {c: {"loss": 1.0, "held_out": 10, "test/accuracy": 1.0} for c in range(4)}
    found[9] = {"loss": 1.0, "held_out": 2**39, "test/accuracy": 0.0}
    expected = 40 / (40 + 10 * MOST_HELD_OUT)
    assert pooled_measures(found)["accuracy"] == pytest.approx(expected)


def test_no_client_can_claim_most_of_the_weight():
    rule = Weights(by_samples=True)
    assert rule.objection(0, 50, [30.0, 25.0]) is None
    assert "claims 549,755,813,888 samples" in rule.objection(2, 2**39, [30.0, 25.0])
    registered = Weights(by_samples=True, registered=[100, 200, 300])
    assert [registered.of(client, 2**39) for client in range(3)] == [100.0, 200.0, 300.0]
    assert registered.objection(2, 2**39, [100.0, 100.0]) is None
    assert Weights().of(0, 2**39) == 1.0


def test_junk_beside_an_update_is_refused():
    good = to_records(Reply("id", 0, "update", 1, 0, packed({"u": torch.ones(3)})))
    arrays = dict(good.array_records["arrays"].items())
    [name] = arrays
    large = Array(torch.zeros(10_000).numpy())
    for junk in ({f"{name}2": large}, {name: large}, {"other:": large}):
        records = RecordDict(
            {"arrays": ArrayRecord({**arrays, **junk}), "header": good.config_records["header"]}
        )
        with pytest.raises(FedcanonError, match="malformed"):
            to_reply(records, METHOD, {3})
    header = {**header_of(good), "reason": "x" * MAX_HEADER}
    with pytest.raises(FedcanonError, match="its header has"):
        to_reply(with_header(good, header), METHOD, {3})


def test_a_number_of_thousands_of_digits_is_refused():
    good = to_records(Reply("id", 0, "update", 1, 0, packed({"u": torch.ones(3)})))
    text = json.dumps(header_of(good)).replace('"prox_calls": 0', '"prox_calls": ' + "9" * 5000)
    records = RecordDict(
        {"arrays": good.array_records["arrays"], "header": ConfigRecord({"json": text})}
    )
    with pytest.raises(FedcanonError, match="malformed"):
        to_reply(records, METHOD, {3})


@pytest.mark.parametrize("run", ["../../etc", "a/b", "", "x" * 65, "\n"])
def test_a_server_cannot_name_a_run_outside_the_clients_folder(run):
    message = to_records(Message("id", 0, "train", run or "..", 1, 0, {}))
    with pytest.raises(FedcanonError, match="malformed: run"):
        to_message(message)


def test_what_clients_say_cannot_act_on_a_terminal(tmp_path):
    there = world()
    there.federation.engine.use_folder(tmp_path)

    def complains(world, message):
        reason = "\x1b[2J\x1b]0;owned\x07 [red]x[/red]\n" + "z" * 1500
        failure = Reply(message.id, message.client, "failure", 1, 0, reason=reason)
        world.arrived.append(failure)

    there.fates = [complains]
    there.step()
    [event] = [event for event in read_status(tmp_path).events if "owned" in event]
    assert event.isprintable()
    assert len(event) < 600


class TestNodes:
    def test_a_number_belongs_to_the_first_node_and_is_remembered(self, tmp_path):
        path = tmp_path / "nodes.json"
        nodes = Nodes(path)
        assert nodes.refusal(0, 111) is None
        assert nodes.refusal(0, 111) is None
        assert "another key" in nodes.refusal(0, 222)
        assert "belongs to client 0" in nodes.refusal(1, 111)
        again = Nodes(path)
        assert "another key" in again.refusal(0, 222)
        assert again.refusal(1, 222) is None

    def test_what_the_operator_writes_counts_at_once(self, tmp_path):
        path = tmp_path / "nodes.json"
        path.write_text('{"0": 5, "1": 6}')
        nodes = Nodes(path)
        assert nodes.refusal(0, 5) is None
        path.write_text('{"0": 7, "1": 6}  ')
        assert "another key" in nodes.refusal(0, 5)
        assert nodes.refusal(0, 7) is None

    def test_a_damaged_file_is_reported(self, tmp_path):
        (tmp_path / "nodes.json").write_text("{]")
        with pytest.raises(FedcanonError, match=r"nodes\.json"):
            Nodes(tmp_path / "nodes.json").refusal(0, 5)
