"""Private runs over a network: the same method, and nothing else leaves a client."""

import logging
from dataclasses import replace

import pytest
import torch

from fedcanon import FedCanonPlus, Federation, fit
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
    return [part.read() for part in deployed.federation.engine.states.parts().values()]


def test_a_client_tells_nothing_of_its_data():
    hidden = world(CLIENTS).participant(0)
    assert (hidden.presence.samples, hidden.presence.told) == (1, ())
    assert world(RECORDS).participant(0).presence.samples == 100  # public at this level
    assert world(None).participant(0).presence.samples == 100


@pytest.mark.parametrize("privacy", [CLIENTS, RECORDS])
def test_failures_and_times_tell_nothing(privacy, caplog):
    deployed = world(privacy)
    message = Message("m", 0, "evaluate", "run", 1, 0, {})
    with caplog.at_level(logging.WARNING):
        reply = deployed.participant(0).answer(message)
    assert (reply.kind, reply.seconds) == ("failure", 0.0)
    assert reply.reason == "its own log says why"
    assert "a private run measures nothing" in caplog.text


def test_records_are_private_in_a_deployment():
    deployed = world(RECORDS)
    result = fit(deployed.federation, 3)
    assert result.last.diagnostics["epsilon"] == RECORDS.spent(3)
    with pytest.raises(FedcanonError, match="measures nothing on the clients' data"):
        fit(world(RECORDS).federation, 3, gradient=True)
