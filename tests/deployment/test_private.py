"""Private runs over a network: the same method, and nothing else leaves a client."""

import logging
from dataclasses import replace

import pytest
import torch

from fedcanon import FedCanonPlus, Federation, Problem, Quadratic, fit
from fedcanon.compression import decoded
from fedcanon.deployment.allowance import Allowance
from fedcanon.deployment.protocol import Message
from fedcanon.errors import FedcanonError
from fedcanon.penalties import L1
from fedcanon.privacy import ClientPrivacy, RecordPrivacy
from tests.deployment.network import World
from tests.problems import logistics

STEPS = FedCanonPlus(alpha=0.5, beta=0.05, local_steps=3)
CLIENTS = ClientPrivacy(clip=0.1, noise=1.0, delta=1e-5)
RECORDS = RecordPrivacy(clip=1.0, noise=1.0, delta=1e-5, steps=3)


def world(privacy, keeper="server"):
    return World(logistics(clients=4, d=6), STEPS, L1(0.01), keeper, privacy=privacy)


@pytest.mark.parametrize("keeper", ["server", "client"])
@pytest.mark.parametrize("forgetting", [0.0, 0.1])
def test_without_noise_a_deployment_has_the_bits_of_a_simulation(keeper, forgetting):
    privacy = replace(CLIENTS, noise=0.0, forgetting=forgetting)
    deployed = world(privacy, keeper)
    local = Federation(logistics(clients=4, d=6), STEPS, L1(0.01), privacy=privacy)
    for _ in range(6):
        deployed.step()
        local.step()
    assert torch.equal(deployed.federation.model, local.model)
    assert torch.equal(deployed.federation.server["e"], local.server["e"])


@pytest.mark.parametrize("keeper", ["server", "client"])
def test_the_server_adds_noise_and_counts(keeper):
    deployed = world(CLIENTS, keeper)
    result = fit(deployed.federation, 5)
    assert result.last.diagnostics["epsilon"] == CLIENTS.spent(5)
    assert {message.kind for message in deployed.asked} == {"train"}  # nothing was measured
    assert not torch.equal(fit(world(CLIENTS, keeper).federation, 5).vector, result.vector)


def test_when_a_client_leaves_all_states_begin_anew(tmp_path):
    deployed = world(CLIENTS)
    deployed.step()
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "exclude-2").touch()
    deployed.federation.engine.use_folder(tmp_path)
    before = deployed.membership.generation
    deployed.step()
    # The mean of the remaining states, without noise, would be a release of its own.
    assert deployed.membership.generation == before + 1
    assert all(state["counted"] in (0, 2) for state in states(deployed))


def states(deployed):
    engine = deployed.federation.engine
    return [engine.states.read(client) for client in engine.membership.members]


def test_a_client_tells_nothing_of_its_data():
    hidden = world(CLIENTS).participant(0)
    assert (hidden.presence.samples, hidden.presence.told) == (1, ())
    assert world(RECORDS, "client").participant(0).presence.samples == 100  # public here
    assert world(None).participant(0).presence.samples == 100


@pytest.mark.parametrize("privacy", [CLIENTS, RECORDS])
def test_failures_and_times_tell_nothing(privacy, caplog):
    deployed = world(privacy, "client")
    message = Message("m", 0, "evaluate", "run", 1, 0, {})
    with caplog.at_level(logging.WARNING):
        reply = deployed.participant(0).answer(message)
    assert (reply.kind, reply.seconds) == ("failure", 0.0)
    assert reply.reason == "its own log says why"
    assert "a private run measures nothing" in caplog.text


def test_nobody_is_asked_who_was_not_counted():
    """A sum that lacks updates is not filled up with other clients."""
    deployed = World(
        logistics(clients=6, d=6), STEPS, L1(0.01), "server", minimum=2, privacy=CLIENTS
    )
    deployed.federation.participants = 2
    lost = []

    def lose(world, message):
        lost.append(message.client)

    for _ in range(8):
        drawn = deployed.federation.draw_participants()
        deployed.fates = [lose]  # the first message of every round; it is asked again
        before = len(deployed.asked)
        deployed.step()
        assert {message.client for message in deployed.asked[before:]} == set(drawn)
    assert len(lost) == 8


def test_secret_draws_are_not_filled_up_either():
    privacy = replace(CLIENTS, sampling=0.2)
    deployed = World(
        logistics(clients=6, d=6), STEPS, L1(0.01), "server", minimum=2, privacy=privacy
    )
    for _ in range(60):
        deployed.step()
    # 72 are expected; with the minimum of two in every round there would be 120 at least.
    assert len(deployed.asked) < 120


def test_one_client_does_not_decide_whether_others_count():
    small = [Quadratic(torch.ones(2).double(), torch.full((2,), 1e-4).double()) for _ in range(5)]
    large = [Quadratic(torch.ones(2).double(), torch.full((2,), 5.0).double()) for _ in range(5)]
    problem = Problem([*small, *large], torch.zeros(2).double())
    privacy = replace(CLIENTS, clip=1.0, noise=0.0, forgetting=0.0)
    deployed = World(problem, STEPS, L1(0.01), "server", privacy=privacy)
    deployed.step()
    assert set(deployed.membership.acks) == set(range(10))  # none is refused as an outlier


def test_a_client_counts_itself_what_it_has_computed(tmp_path):
    privacy = RecordPrivacy.within(3.0, 3, clip=1.0, delta=1e-5, steps=3)
    deployed = world(privacy, "client")
    allowance = Allowance(tmp_path / "state" / "spent-0.json", privacy)
    original = deployed.participant
    deployed.participant = lambda client: replace(
        original(client), allowance=allowance if client == 0 else None
    )
    for _ in range(3):
        deployed.step()
    assert (tmp_path / "state" / "spent-0.json").read_text() == "3"
    message = replace(deployed.asked[-4], round=7, run="another", generation=1, ack=None)
    deployed.disks[0].copies.clear()  # a server begins another run
    reply = deployed.participant(0).answer(replace(message, client=0))
    assert reply.kind == "failure"


def test_a_repeated_question_is_answered_with_the_same_bytes():
    deployed = world(RECORDS, "client")
    deployed.step()
    message = deployed.asked[0]
    assert message.keeps
    deployed.disks[0].copies.clear()
    first, second = (deployed.participant(0).answer(message) for _ in range(2))
    assert torch.equal(decoded(first.content)["u"], decoded(second.content)["u"])
    assert first.update == second.update


def test_records_need_clients_that_keep_their_states():
    with pytest.raises(FedcanonError, match="an update with other noise would be another release"):
        world(RECORDS, "server")


def test_records_are_private_in_a_deployment():
    deployed = world(RECORDS, "client")
    result = fit(deployed.federation, 3)
    assert result.last.diagnostics["epsilon"] == RECORDS.spent(3)
    with pytest.raises(FedcanonError, match="measures nothing on the clients' data"):
        fit(world(RECORDS, "client").federation, 3, gradient=True)
