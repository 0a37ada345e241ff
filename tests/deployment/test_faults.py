"""Exactly-once control variables: random schedules of faults, in one process."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcanon import FedCanon, FedcanonError, FedCanonPlus, Federation
from fedcanon.algorithms import ALGORITHMS, FedADMM, FedDR, FedDyn, Scaffold
from fedcanon.compression import Clip, Quantise, TopK, decoded
from fedcanon.deployment import Ledger
from fedcanon.deployment.exchange import ATTEMPTS
from fedcanon.deployment.status import EXCLUDE, give_order, read_status
from fedcanon.penalties import L1
from tests.deployment.network import World, forged
from tests.problems import quadratics

KEEPERS = ("server", "client")
METHODS = (FedCanonPlus(0.5, 0.1, 3), FedCanon(0.5, 0.1, 3))
CLIENTS = 4

FORGERIES = ("nan", "shape", "single", "number", "empty")


def lost(world, message):
    pass


def arrives(world, message):
    world.arrived.append(world.ask(message))


def reply_lost(world, message):
    world.ask(message)


def late(world, message):
    world.under_way.append(world.ask(message))


def doubled(world, message):
    world.arrived += [world.ask(message)] * 2


def asked_twice(world, message):
    world.ask(message)
    arrives(world, message)


def late_ones_come(world, message):
    arrives(world, message)
    world.arrived += world.under_way
    world.under_way = []


def forger(how):
    def fate(world, message):
        world.arrived.append(forged(world.ask(message), how))

    return fate


def server_restarts(world, client, number):
    world.start_server()


def server_put_back(world, client, number):
    """An older checkpoint is all that is left."""
    copies = world.server_disk.copies
    del copies[max(1, len(copies) - 1 - number % 3) :]
    world.start_server()


def disk_wiped(world, client, number):
    world.disks[client].copies.clear()


def disk_restored(world, client, number):
    copies = world.disks[client].copies
    del copies[1 + number % max(1, len(copies)) :]


def old_message(world, client, number):
    if world.asked:
        world.under_way.append(world.ask(world.asked[number % len(world.asked)]))


def leaves_and_returns(world, client, number):
    world.there ^= {client} if len(world.there - {client}) > 2 else set()


def nothing(world, client, number):
    pass


FATES = st.one_of(
    st.just(arrives),
    st.sampled_from([lost, reply_lost, late, doubled, asked_twice, late_ones_come]),
    st.sampled_from(FORGERIES).map(forger),
)
ACCIDENTS = st.one_of(
    st.just(nothing),
    st.sampled_from(
        [
            server_restarts,
            server_put_back,
            disk_wiped,
            disk_restored,
            old_message,
            leaves_and_returns,
        ]
    ),
)
ROUNDS = st.tuples(
    st.lists(FATES, max_size=2 * CLIENTS), ACCIDENTS, st.integers(0, 3), st.integers(0, 50)
)


def world(keeper, method=METHODS[0], **settings):
    return World(quadratics(clients=CLIENTS, d=3), method, L1(0.1), keeper, **settings)


def holds(schedule, keeper, method, minimum):
    """Check the invariant after every round and accident of a schedule."""
    there = world(keeper, method, minimum=minimum)
    for fates, accident, client, number in schedule:
        there.fates = list(fates)
        there.step()
        assert there.invariant() < 1e-12
        accident(there, client, number)
        assert there.invariant() < 1e-12
    there.fates, there.there = [], set(range(CLIENTS))
    for _ in range(CLIENTS + 1):  # a lost state is found out, and a new generation begun
        there.step()
    assert there.invariant() < 1e-12
    assert there.membership.last_accepted == there.membership.members.keys()
    for client, ack in there.membership.acks.items():
        expected = there.computed[ack]["v"]
        if keeper == "server":
            found = [there.federation.engine.states.read(client)]
        else:
            account = there.disks[client].copies[-1]
            found = [account["state"], (account["pending"] or {}).get("state")]
        assert any(state is not None and torch.equal(state["v"], expected) for state in found)


SCHEDULES = (
    st.lists(ROUNDS, max_size=12),
    st.sampled_from(KEEPERS),
    st.sampled_from(METHODS),
    st.integers(1, 3),
)
test_no_schedule_of_faults_breaks_the_invariant = settings(max_examples=80)(
    given(*SCHEDULES)(holds)
)
test_no_other_schedule_does = pytest.mark.exhaustive(
    settings(max_examples=1000)(given(*SCHEDULES)(holds))
)


@pytest.mark.parametrize("keeper", KEEPERS)
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_rounds_are_those_of_the_local_engine(name, keeper):
    there = world(keeper, ALGORITHMS[name]())
    local = Federation(there.problem, there.algorithm, there.penalty)
    for _ in range(4):
        there.step()
        local.step()
        assert torch.equal(there.federation.model, local.model)
    assert there.federation.cost.client_prox == local.cost.client_prox
    if keeper == "client":
        assert there.federation.cost.floats_up == local.cost.floats_up


@pytest.mark.parametrize("keeper", KEEPERS)
@pytest.mark.parametrize("compressor", [TopK(0.4), Quantise(4), Clip(0.2)])
def test_compressed_rounds_are_those_of_the_local_engine(compressor, keeper):
    there = world(keeper, compressor=compressor)
    local = Federation(there.problem, there.algorithm, there.penalty, compressor=compressor)
    for _ in range(6):
        there.step()
        local.step()
        assert torch.equal(there.federation.model, local.model)
    assert there.federation.cost.bytes_up == local.cost.bytes_up


@pytest.mark.parametrize(
    ("method", "keeper", "floats"),
    [
        (METHODS[0], "server", 3),
        (METHODS[0], "client", 2),
        (METHODS[1], "server", 3),
        (METHODS[1], "client", 3),
    ],
)
def test_a_participant_costs_the_floats_of_the_specification(method, keeper, floats):
    there = World(quadratics(clients=CLIENTS, d=30), method, L1(0.0), keeper)
    there.step()
    before = there.federation.cost.floats_down + there.federation.cost.floats_up
    there.step()
    after = there.federation.cost.floats_down + there.federation.cost.floats_up
    assert after - before == floats * 30 * CLIENTS


@pytest.mark.slow
@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_run_with_faults_ends_at_the_same_solution(keeper):
    there = world(keeper)
    for k in range(400):
        there.fates = [doubled if (k + 3 * client) % 5 else lost for client in range(CLIENTS)]
        there.step()
        if k == 100:
            there.disks[2].copies.clear()
        if k == 150:
            there.start_server()
    undisturbed = Federation(there.problem, there.algorithm, there.penalty)
    for _ in range(400):
        undisturbed.step()
    assert torch.allclose(there.federation.model, undisturbed.model, rtol=0, atol=1e-9)


def test_a_client_that_keeps_losing_its_state_is_excluded():
    there = world("client")
    for _ in range(12):
        there.step()
        there.disks[1].copies.clear()
    assert there.membership.members.keys() == {0, 2, 3}
    assert "too often" in there.membership.gone[1]
    there.step()
    assert there.invariant() < 1e-12


@pytest.mark.parametrize("keeper", KEEPERS)
def test_too_few_answers_repeat_the_round(keeper):
    there = world(keeper, minimum=3)
    there.fates = [arrives, arrives, lost, lost, lost, lost]
    there.step()
    assert there.federation.rounds_done == 1
    assert there.membership.last_accepted == {0, 1, 2, 3}  # the third attempt was answered
    assert there.invariant() < 1e-12


@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_an_honest_client_clips_is_never_refused(keeper):
    there = world(keeper, compressor=Clip(0.05))
    for _ in range(20):
        there.step()
        assert len(there.membership.last_accepted) == CLIENTS


@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_is_longer_than_the_limit_is_refused(keeper):
    there = world(keeper, compressor=Clip(0.05))
    there.fates = [forger("huge")] * CLIENTS
    there.step()
    assert there.invariant() < 1e-12
    assert float(there.federation.server["e"].norm()) <= 0.05


@pytest.mark.parametrize("keeper", KEEPERS)
@pytest.mark.parametrize(
    "method",
    [*METHODS, Scaffold(0.05, 3), FedDyn(0.1, 3), FedDR(0.1, 3), FedADMM(0.1, 3)],
    ids=lambda method: type(method).__name__,
)
def test_clients_join_and_leave_for_good(keeper, method, tmp_path):
    there = world(keeper, method)
    there.federation.engine.use_folder(tmp_path)
    there.there = {0, 1, 2}
    del there.membership.members[3]
    for _ in range(3):
        there.step()
    there.there.add(3)  # joins
    for _ in range(3):
        there.step()
        assert there.invariant() < 1e-12
    assert there.membership.members.keys() == {0, 1, 2, 3}
    assert there.membership.last_accepted == {0, 1, 2, 3}
    give_order(tmp_path, EXCLUDE, 1)
    for _ in range(3):
        there.step()
        assert there.invariant() < 1e-12
    assert there.membership.members.keys() == {0, 2, 3}
    assert there.membership.generation == (1 if keeper == "server" else 3)
    there.start_server()
    assert there.membership.members.keys() == {0, 2, 3}
    there.step()
    assert there.invariant() < 1e-12


def test_clients_that_all_fail_by_an_error_of_their_own_end_the_run():
    there = world("server")

    def fails(world, message):
        message.content["beta"] = float("nan")
        arrives(world, message)

    there.fates = [fails] * (ATTEMPTS * CLIENTS)
    with pytest.raises(FedcanonError, match="diverged in round 0"):
        there.step()
    there.step()  # and nothing was lost
    assert there.invariant() < 1e-12


def test_a_client_that_fails_does_not_end_a_run_in_which_others_answer():
    there = world("server", minimum=3)
    there.there = {0, 1, 2}

    def fails(world, message):
        message.content["beta"] = float("nan")
        arrives(world, message)

    there.fates = [arrives, arrives, *[fails] * (2 * ATTEMPTS)]
    there.step()
    assert there.membership.last_accepted == {0, 1, 2}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_client_can_leave_while_a_round_waits_for_it(keeper, tmp_path):
    there = world(keeper, ALGORITHMS["fedcanon2"]())
    there.federation.engine.use_folder(tmp_path)
    there.step()
    there.there = {0, 1, 3}

    def asked_to_leave(world, message):
        give_order(tmp_path, EXCLUDE, 2)
        arrives(world, message)

    there.fates = [asked_to_leave]
    there.step()
    assert there.membership.members.keys() == {0, 1, 3}
    assert read_status(tmp_path).membership.gone == {2: "excluded by the operator"}


def test_what_a_stalled_round_waits_for_can_be_seen(tmp_path):
    there = world("server", minimum=4)
    there.federation.engine.use_folder(tmp_path)
    there.there = {0, 1}
    seen = []

    original = there.present

    def present():
        if read_status(tmp_path) is not None:
            seen.append(read_status(tmp_path))
            there.there = {0, 1, 2, 3}
        return original()

    there.present = present
    there.step()
    assert seen[0].present.keys() == {0, 1}
    assert "2 of 4 needed updates" in seen[0].events[-1]


@pytest.mark.parametrize(
    "forgery",
    [
        {"kind": "mismatch", "generation": 2**39},
        {"round": 5},
        {"generation": 7},
        {"client": 3},
        {"kind": "measures"},
    ],
)
@pytest.mark.parametrize("keeper", KEEPERS)
def test_forged_headers_change_nothing_that_counts(keeper, forgery):
    there = world(keeper)
    there.step()

    def forge(world, message):
        world.arrived.append(replace(world.ask(message), **forgery))

    there.fates = [forge]
    there.step()
    there.step()
    assert there.invariant() < 1e-12
    assert there.membership.members.keys() == {0, 1, 2, 3}


def test_a_run_that_diverged_says_so():
    there = world("server")

    def diverged(world, message):
        reply = world.participant(message.client).answer(message)
        content = {**decoded(reply.content), "loss": float("inf")}
        world.arrived.append(replace(reply, content=content))

    there.fates = [diverged] * (ATTEMPTS * CLIENTS)
    with pytest.raises(FedcanonError, match="has diverged"):
        there.federation.engine.evaluate(there.problem.start, gradient=False)


def test_a_damaged_file_costs_a_client_one_generation(tmp_path):
    there = world("client")
    made = there.participant

    def participant(client):
        one = made(client)
        one.open_ledger = partial(Ledger.on_disk, tmp_path, client)
        return one

    there.participant = participant
    there._new_state = lambda message, reply: (
        Ledger.on_disk(tmp_path, message.client, message.run).load().pending.state
    )
    for _ in range(3):
        there.step()
    [file] = (tmp_path / there.federation.engine.run / "client-1").glob("round-*")
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    for _ in range(4):
        there.step()
        assert there.invariant() < 1e-12
    assert there.membership.generation == 2
    assert there.membership.last_accepted == {0, 1, 2, 3}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_methods_that_need_all_clients_wait_for_them(keeper):
    there = world(keeper, ALGORITHMS["fedcanon2"]())
    there.fates = [arrives, lost, arrives, lost, lost]
    there.step()
    assert there.membership.last_accepted == {0, 1, 2, 3}
