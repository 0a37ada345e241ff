"""Secure sums in deployments: the same results, no single update, and every sum exactly once."""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from fedcanon import FedCanon, FedcanonError, FedCanonPlus, Federation, Problem
from fedcanon.algorithms import ALGORITHMS
from fedcanon.compression import Clip, Encoded, TopK
from fedcanon.deployment import Deployment, Ledger
from fedcanon.deployment.secure.engine import SecureEngine
from fedcanon.deployment.secure.identity import Identity
from fedcanon.deployment.secure.ring import rounding_of
from fedcanon.deployment.status import EXCLUDE, give_order
from fedcanon.deployment.weights import Weights
from fedcanon.engines.aggregation import Aggregation
from fedcanon.penalties import L1
from fedcanon.privacy import ClientPrivacy
from tests.deployment.secure_world import Killed, SecureWorld
from tests.deployment.test_faults import (
    arrives,
    asked_twice,
    disk_restored,
    disk_wiped,
    doubled,
    forger,
    late,
    late_ones_come,
    lost,
    nothing,
    old_message,
    reply_lost,
    server_put_back,
    server_restarts,
)
from tests.problems import logistics, quadratics

METHOD = FedCanonPlus(0.5, 0.1, 3)
CLIENTS = 5
KINDS = ("keys", "shares", "train", "confirm", "unmask")


def world(clients=CLIENTS, d=3, method=METHOD, **settings):
    return SecureWorld(quadratics(clients=clients, d=d), method, L1(0.1), **settings)


# The same results


@pytest.mark.slow
@pytest.mark.parametrize("accelerated", [False, True])
def test_a_secure_run_is_the_plain_run_up_to_the_fixed_point(accelerated):
    problem = logistics(clients=4, d=8, samples=30)
    method = FedCanonPlus(2.0, 0.2, 5, accelerated=accelerated)
    there = SecureWorld(problem, method, L1(0.01))
    plain = Federation(problem, method, L1(0.01))
    for _ in range(25):
        there.step()
        plain.step()
        assert float((there.federation.model - plain.model).norm()) < 1e-7
        assert there.on_disks() < 1e-14
    assert there.federation.engine.attempts == 25
    assert there.federation.cost.bytes_up == plain.cost.bytes_up / 2
    assert there.federation.cost.floats_down <= plain.cost.floats_down


def test_weights_are_applied_by_the_clients():
    problem = logistics(clients=4, d=5, samples=30)
    counts = [10, 40, 25, 5]
    weighted = Problem(problem.clients, problem.start, [float(c) for c in counts])
    there = SecureWorld(weighted, METHOD, L1(0.01), weights=Weights(True, counts))
    plain = Federation(weighted, METHOD, L1(0.01))
    for _ in range(8):
        there.step()
        plain.step()
        assert float((there.federation.model - plain.model).norm()) < 1e-7
        assert there.on_disks() < 1e-14


@pytest.mark.slow
def test_the_scale_shrinks_with_the_updates_so_that_the_error_does_too():
    there = world(clients=3)
    scales = []
    for _ in range(60):
        there.step()
        scales.append(there.federation.engine._scale)
    assert scales[0] == 4.0
    assert scales[-1] < 1e-3
    optimum = Federation(there.problem, METHOD, L1(0.1))
    for _ in range(400):
        optimum.step()
    before = float((there.federation.model - optimum.model).norm())
    for _ in range(60):
        there.step()
    assert float((there.federation.model - optimum.model).norm()) < before / 50


# Nothing but sums


def test_no_message_and_no_server_has_a_single_update():
    there = world(d=4)
    seen = []

    def watched(world, message):
        reply = world.ask(message)
        seen.append((message, reply))
        world.arrived.append(reply)

    there.fates = [watched] * (len(KINDS) * CLIENTS)
    there.step()
    updates = [(m, r) for m, r in seen if m.kind == "train"]
    assert len(updates) == CLIENTS
    for message, reply in updates:
        account = Ledger(there.disks[message.client]).load()
        own = account.pending.state["v"]  # v was 0: the update itself
        assert reply.content.keys() == {"u"}
        values = reply.content["u"].parts["values"]
        assert values.dtype == torch.int32
        step = there.federation.engine._scale / ((2**31 - 1) // CLIENTS)
        clear = torch.round(own / step).to(torch.int64)
        assert not bool((values == clear).any())
        assert not reply.seconds < 0
    assert "clients" in there.federation.state()["engine"]
    assert there.federation.state()["engine"]["clients"] == {}


def test_measures_and_updates_in_the_clear_are_refused_on_both_sides():
    there = world()
    engine = there.federation.engine
    for ask in (engine.evaluate, engine.measure_with_next_round):
        with pytest.raises(FedcanonError, match="measures would show"):
            ask(there.problem.start, gradient=False)
    there.step()
    train = next(m for m in there.asked if m.kind == "train")
    for bad in (
        replace(train, kind="evaluate"),
        replace(train, keeps=False),
        replace(train, round=99),
        replace(train, content={**train.content, "measure/z": 1}),
    ):
        reply = there.participant(train.client).answer(bad)
        assert reply.kind in ("failure", "mismatch")
        assert not reply.content


def test_a_plain_client_takes_no_part():
    from fedcanon.deployment import Participant

    there = world()
    there.step()
    keys = next(m for m in there.asked if m.kind == "keys")
    plain = Participant(keys.client, there.rules, there.problem.clients[keys.client])
    assert "secure sums" in plain.answer(keys).reason


def test_another_model_than_the_one_that_all_have_signed_is_refused():
    there = world()

    def another(world, message):
        if message.kind == "train" and message.client == 1:
            z = message.content["z"].vector + 1e-9
            other = Encoded({"values": z}, z)
            message = replace(message, content={**message.content, "z": other})
        arrives(world, message)

    there.fates = [another] * (len(KINDS) * CLIENTS)
    there.step()
    assert there.membership.last_accepted == {0, 2, 3, 4}
    assert there.on_disks() < 1e-14


# Drop-outs and repetitions


def without_peers(world, message):
    world.arrived.append(replace(world.ask(message), content={}, peers={}))


@pytest.mark.parametrize("how", [lost, reply_lost, without_peers])
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_can_drop_out_in_every_step(kind, how):
    there = world()
    there.step()

    def fate(world, message):
        drops = message.kind == kind and message.client == 1
        (how if drops else arrives)(world, message)

    there.fates = [fate] * (len(KINDS) * CLIENTS)
    there.step()
    everyone = set(range(CLIENTS))
    # Who has sent its masked update is in the sum, also if it vanishes before the end.
    assert there.membership.last_accepted == everyone - ({1} if kind in KINDS[:3] else set())
    assert there.on_disks() < 1e-14
    there.fates = []
    there.step()
    assert there.membership.last_accepted == everyone
    assert there.on_disks() < 1e-14
    assert there.federation.engine.attempts == 3


def test_too_few_survivors_give_up_the_attempt_and_count_nothing():
    there = world(clients=4, minimum=4)
    there.step()
    acks, model = dict(there.membership.acks), there.federation.model
    seen = []

    def fate(world, message):
        seen.append((message.round, message.kind))
        if len(seen) > 60:  # all is well again
            assert world.membership.acks == acks
            assert torch.equal(world.federation.model, model)
        drops = message.client == 2 and message.kind == "train" and len(seen) < 60
        (reply_lost if drops else arrives)(world, message)

    there.fates = [fate] * 200
    there.step()
    rounds = sorted({number for number, _ in seen})
    assert rounds == list(range(1, 1 + len(rounds)))
    assert len(rounds) > 3
    for number in rounds[:-1]:
        assert (number, "confirm") not in seen
    assert there.federation.rounds_done == 2
    assert there.on_disks() < 1e-14


def test_too_few_signatures_give_up_the_attempt_and_nobody_is_asked_to_reveal():
    there = world()
    there.step()
    seen = []

    def fate(world, message):
        seen.append((message.round, message.kind))
        drops = message.client < 2 and message.kind == "confirm" and message.round == 1
        (reply_lost if drops else arrives)(world, message)

    there.fates = [fate] * 100
    there.step()
    assert (1, "confirm") in seen
    assert (1, "unmask") not in seen
    assert (2, "unmask") in seen
    assert there.membership.last_accepted == set(range(CLIENTS))
    assert there.on_disks() < 1e-14


def test_a_client_that_signs_something_else_is_in_the_sum_and_not_believed():
    there = world()

    def lies(world, message):
        reply = world.ask(message)
        if message.kind == "confirm" and message.client == 2:
            reply = replace(reply, peers={2: there.identities[2].sign(b"else").hex()})
        world.arrived.append(reply)

    there.fates = [lies] * 100
    there.step()
    unmask = [m for m in there.asked if m.kind == "unmask"]
    assert all(m.peers.keys() == set(range(CLIENTS)) and m.peers[2] == "" for m in unmask)
    assert there.membership.refusals == {2: 1}
    assert there.federation.engine.attempts == 1
    assert there.on_disks() < 1e-14


def test_the_same_question_has_the_same_bytes_and_a_new_attempt_a_new_update():
    privacy = ClientPrivacy(clip=0.5, noise=2.0, delta=1e-5)
    there = world(privacy=privacy)
    twice, names = [], []

    def fate(world, message):
        first, second = world.ask(message), world.ask(message)
        if message.kind == "train":
            parts = [reply.content["u"].parts["values"] for reply in (first, second)]
            twice.append(torch.equal(*parts) and first.update == second.update)
            names.append(first.update)
        else:
            twice.append(first.peers == second.peers)
        lose = message.kind == "train" and len(names) <= CLIENTS and message.client < 3
        world.arrived += [] if lose else [first]

    there.fates = [fate] * 100
    there.step()
    assert all(twice)
    assert len(set(names)) == len(names) == 2 * CLIENTS
    assert there.federation.engine.attempts == 2


@pytest.mark.slow
def test_a_run_with_faults_ends_at_the_same_solution():
    there = world(clients=4)
    undisturbed = Federation(there.problem, METHOD, L1(0.1))
    rng = random.Random(0)
    for k in range(150):
        there.fates = [rng.choice([arrives] * 12 + [lost, reply_lost, doubled]) for _ in range(20)]
        there.step()
        if k == 40:
            there.start_server()
        undisturbed.step()
    for _ in range(150):
        undisturbed.step()
    assert torch.allclose(there.federation.model, undisturbed.model, rtol=0, atol=1e-6)
    assert there.on_disks() < 1e-13


def leaves_and_returns(world, client, number):
    world.there ^= {client} if len(world.there - {client}) > 3 else set()


def secrets_wiped(world, client, number):
    world.safes[client].kept = None


FATES = st.one_of(
    st.just(arrives),
    st.just(arrives),
    st.sampled_from([lost, reply_lost, late, doubled, asked_twice, late_ones_come]),
    st.sampled_from(["nan", "shape", "single", "number", "empty"]).map(forger),
)
ACCIDENTS = st.one_of(
    st.just(nothing),
    st.sampled_from(
        [
            server_restarts,
            server_put_back,
            disk_wiped,
            disk_restored,
            secrets_wiped,
            old_message,
            leaves_and_returns,
        ]
    ),
)
ROUNDS = st.tuples(
    st.lists(FATES, max_size=len(KINDS) * CLIENTS), ACCIDENTS, st.integers(0, 3), st.integers(0, 50)
)


@pytest.mark.slow
@given(st.lists(ROUNDS, max_size=6))
@settings(max_examples=15, deadline=None)
def test_no_schedule_of_faults_breaks_the_invariant(schedule):
    there = world()
    for fates, accident, client, number in schedule:
        there.fates = list(fates)
        there.step()
        assert there.invariant() < 1e-12
        accident(there, client, number)
        assert there.invariant() < 1e-12
    there.fates, there.there = [], set(range(CLIENTS))
    for _ in range(CLIENTS + 1):
        there.step()
    assert there.invariant() < 1e-12
    assert there.on_disks() < 1e-12
    assert there.membership.last_accepted == there.membership.members.keys()


# Crashes


def crashes(seed, folder, rounds=12):
    """Kill the server or a client anywhere, again and again; return rounds and attempts."""
    rng = random.Random(seed)
    clients = rng.randint(3, 5)
    problem = quadratics(clients=clients, d=2, seed=seed)
    there = SecureWorld(problem, FedCanonPlus(0.3, 0.1, 2), L1(0.1), folder=folder)
    there.server_disk.save(0, there.federation.state())

    def fate(world, message):
        world.fates.append(fate)
        what = rng.random()
        if what < 0.02:
            raise Killed
        if what < 0.06:
            return
        if what < 0.1:  # killed before, between or after its two writes
            dies = rng.choice([world.safes[message.client], world.disks[message.client]])
            save, dies.save = dies.save, killed
            try:
                world.ask(message)
            except Killed:
                pass
            finally:
                dies.save = save
            return
        reply = world.ask(message)
        if what > 0.13:
            world.arrived.append(reply)

    for _ in range(rounds):
        there.fates = [fate]
        try:
            there.federation.step()
            if rng.random() < 0.2:
                raise Killed  # before the checkpoint
            there.server_disk.save(there.federation.rounds_done, there.federation.state())
        except Killed:
            there.arrived, there.under_way = [], []
            there.start_server()
        assert there.on_disks() < 1e-12
    engine = there.federation.engine
    assert isinstance(engine, SecureEngine)
    there.fates = []
    there.step()
    assert there.on_disks() < 1e-12
    assert there.membership.generation == 1  # nobody has lost anything
    return there.federation.rounds_done, engine.attempts


def killed(*arguments):
    raise Killed


@pytest.mark.slow
def test_sums_count_exactly_once_whoever_is_killed(tmp_path):
    counted = attempted = 0
    for seed in range(8):
        (tmp_path / str(seed)).mkdir()
        done, attempts = crashes(seed, tmp_path / str(seed))
        counted, attempted = counted + done, attempted + attempts
    assert counted >= 8 * 6
    assert attempted > counted  # some were given up


@pytest.mark.exhaustive
def test_sums_count_exactly_once_in_many_schedules(tmp_path):
    for seed in range(100, 180):
        (tmp_path / str(seed)).mkdir()
        crashes(seed, tmp_path / str(seed), rounds=15)


def test_a_sum_that_was_opened_counts_even_if_the_server_is_killed(tmp_path):
    there = world(folder=tmp_path)
    there.step()
    there.federation.step()  # no checkpoint
    acks, model = dict(there.membership.acks), there.federation.model
    asked = len(there.asked)
    there.start_server()
    assert there.membership.acks != acks
    there.step()
    assert len(there.asked) == asked  # no client was asked again
    assert there.membership.acks == acks
    assert torch.equal(there.federation.model, model)
    assert there.on_disks() < 1e-14
    there.step()
    assert there.federation.engine.attempts == 3
    assert there.on_disks() < 1e-14


def test_numbers_of_attempts_are_durable_before_anything_is_sent(tmp_path):
    there = world(folder=tmp_path)
    there.step()

    def fate(world, message):
        raise Killed

    for number in range(2, 5):
        there.fates = [fate]
        with pytest.raises(Killed):
            there.step()
        there.start_server()
        assert there.federation.engine.attempts == number
    there.step()
    assert [m.round for m in there.asked][-1] == 4


# What clients do wrong


def test_a_sum_that_is_too_long_is_discarded():
    there = world(d=12, compressor=Clip(0.05))
    there.step()
    acks = dict(there.membership.acks)

    def pushed(world, message):
        reply = world.ask(message)
        if message.kind == "train" and message.client == 3:
            values = reply.content["u"].parts["values"]
            values = values + 3 * 2**29
            reply = replace(reply, content={"u": Encoded({"values": values}, values)})
        world.arrived.append(reply)

    there.fates = [pushed] * 1000
    with pytest.raises(FedcanonError, match="the sum is longer than it can be"):
        there.step()
    assert there.membership.acks == acks
    there.fates = []
    there.step()
    assert there.on_disks() < 1e-14
    limit = 2 * (0.05 + rounding_of(0.05, CLIENTS, 12))
    assert float(there.federation.server["e"].norm()) <= limit


def test_a_client_that_lies_about_its_keys_is_left_out():
    there = world()

    def lies(world, message):
        reply = world.ask(message)
        if message.kind == "keys" and message.client == 2:
            signed = reply.peers[2]
            reply = replace(reply, peers={2: signed[:-2] + f"{int(signed[-2:], 16) ^ 1:02x}"})
        world.arrived.append(reply)

    there.fates = [lies] * 100
    there.step()
    assert there.membership.last_accepted == {0, 1, 3, 4}
    assert there.membership.refusals == {2: 1}


@pytest.mark.parametrize("how", ["boxes", "shares"])
def test_secrets_that_cannot_be_put_together_give_up_the_attempt(how):
    there = world()

    def lies(world, message):
        reply = world.ask(message)
        if message.client == 2 and message.round == 0:
            if message.kind == "shares" and how == "boxes":
                reply = replace(reply, peers=dict.fromkeys(reply.peers, "00" * 80))
            if message.kind == "unmask" and how == "shares":
                reply = replace(reply, peers=dict.fromkeys(reply.peers, "ab" * 32))
        world.arrived.append(reply)

    there.fates = [lies] * 200
    there.step()
    assert there.federation.engine.attempts == 2
    assert there.membership.last_accepted == set(range(CLIENTS))
    assert there.on_disks() < 1e-14


def test_clients_that_all_fail_by_an_error_of_their_own_end_the_run():
    there = world()

    def fails(world, message):
        if message.kind == "train":
            there.rules = replace(there.rules, algorithm=replace(METHOD, local_steps=10**3))
            there.problem.clients[message.client].A[:] = 1e200
        arrives(world, message)

    there.fates = [fails] * 1000
    with pytest.raises(FedcanonError, match="not finite"):
        there.step()


def test_a_client_can_be_excluded_while_a_round_waits_for_it(tmp_path):
    there = world(clients=4, folder=tmp_path)
    there.step()
    there.there = {0, 1}

    def present():
        there.there = {0, 1}
        if len(seen := there.federation.engine.status._events) > 0:
            give_order(tmp_path, EXCLUDE, 3)
            there.there = {0, 1, 2}
        assert seen is not None
        return original()

    original, there.present = there.present, present
    there.step()
    assert there.membership.members.keys() == {0, 1, 2}
    assert there.membership.generation == 2
    assert there.on_disks() < 1e-14


# Noise


def test_the_noise_of_a_sum_has_the_deviation_that_was_asked_for():
    d, s, tau, minimum = 4000, 2.0, 0.5, 3
    problem = logistics(clients=CLIENTS, d=d, samples=5)
    privacy = ClientPrivacy(clip=tau, noise=s, delta=1e-5)
    there = SecureWorld(problem, METHOD, L1(0.0), minimum=minimum, privacy=privacy)
    there.step()
    assert there.membership.last_accepted == set(range(CLIENTS))
    states = [Ledger(disk).load().pending.state["v"] for disk in there.disks]
    assert all(float(v.norm()) <= tau * (1 + 1e-5) for v in states)
    noise = (there.federation.server["e"] - torch.stack(states).mean(0)) * CLIENTS
    expected = s * tau * (CLIENTS / minimum) ** 0.5
    assert abs(float(noise.std()) / expected - 1) < 6 / (2 * d) ** 0.5


def test_every_attempt_of_a_private_run_is_counted_and_fewer_than_the_minimum_release_nothing():
    privacy = ClientPrivacy(clip=0.5, noise=2.0, delta=1e-5)
    there = world(clients=4, minimum=4, privacy=privacy)
    there.step()
    before, seen = there.federation.server["e"], []

    def fate(world, message):
        seen.append(message)
        if message.kind == "train" and message.client == 2 and message.round < 4:
            assert torch.equal(world.federation.server["e"], before)
            lost(world, message)
        else:
            arrives(world, message)

    there.fates = [fate] * 100
    there.step()
    assert {message.round for message in seen} == {1, 2, 3, 4}
    assert not any(message.kind == "unmask" for message in seen if message.round < 4)
    assert there.federation.spending.state() == dict.fromkeys("0123", 5)
    assert there.federation.rounds_done == 2


# What secure sums are not for


class Median(Aggregation):
    def finish(self, parts, weights):
        raise AssertionError


IDENTITIES = [Identity.new().public for _ in range(CLIENTS)]


@pytest.mark.parametrize(
    ("deployment", "rules", "sentence"),
    [
        ({"keeper": "server"}, {}, 'deployment.state = "client"'),
        ({"minimum": 2}, {}, "set deployment.minimum to 3 or more, not 2"),
        ({"identities": IDENTITIES[:-1]}, {}, "has 4 entries for 5 clients"),
        ({"identities": [*IDENTITIES[:-1], "ab"]}, {}, "entry 4 of deployment.identities"),
        ({"identities": [*IDENTITIES[:-1], IDENTITIES[0]]}, {}, "entry 4 of deployment.identities"),
        ({"weights": Weights(True)}, {}, "weights that all clients know"),
        ({}, {"compressor": TopK(0.5)}, "take no other compressor than a clip"),
        ({}, {"aggregation": Median()}, "all other rules than the mean"),
        ({}, {"algorithm": FedCanon(0.5, 0.1, 3)}, "need FedCanon+"),
        ({}, {"algorithm": ALGORITHMS["decentralised-proxskip"]()}, "need FedCanon+"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(deployment, rules, sentence):
    there = world()
    settings = {"keeper": "client", "minimum": 3, "identities": IDENTITIES, **deployment}
    with pytest.raises(FedcanonError, match=sentence) as refusal:
        Deployment(there, **settings)(there.problem, replace(there.rules, **rules))
    assert "\n" not in str(refusal.value)


def test_models_with_normalisation_statistics_are_refused():
    there = world()
    object.__setattr__(there.problem, "start_buffers", torch.ones(2))
    with pytest.raises(FedcanonError, match="normalisation statistics"):
        there.start_server()


def test_a_run_keeps_its_way():
    there = world()
    there.step()
    state = there.federation.state()
    del state["engine"]["secure"]
    with pytest.raises(FedcanonError, match="had no secure sums"):
        there.federation.load(state)
