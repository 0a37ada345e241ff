"""Deployments in real processes on loopback: SuperLink, SuperNodes, TLS and keys."""

import signal

import pytest
import torch

pytest.importorskip("flwr")

from fedcanon import FedCanonPlus, Federation, Logistic, Problem
from fedcanon.checkpoint import Checkpoints
from fedcanon.deployment.app.credentials import write_certificates, write_node_key
from fedcanon.penalties import L1, on_weights
from tests.deployment.driver import CPU, Driver
from tests.deployment.problem import CLIENTS, KAPPA, SETTINGS, samples
from tests.deployment.processes import free_ports
from tests.waiting import PATIENCE

pytestmark = pytest.mark.flower

KEEPERS = ("server", "client")


def local_run(rounds):
    """The same rounds in this process."""
    features, labels = samples()
    size = len(labels) // CLIENTS
    own = [slice(size * client, size * (client + 1)) for client in range(CLIENTS)]
    clients = [Logistic(features[part].astype("float64"), labels[part]) for part in own]
    problem = Problem(clients, torch.zeros(clients[0].layout.size, dtype=torch.float64))
    steps = (SETTINGS[f"algorithm.{key}"] for key in ("alpha", "beta", "local_steps"))
    penalty = on_weights(L1(KAPPA), problem.layout)
    # What the settings leave open follows from what clients tell: no gain for a linear model.
    federation = Federation(problem, FedCanonPlus(*steps, accelerated=True), penalty)
    for _ in range(rounds):
        federation.step()
    return federation


@pytest.mark.slow
def test_a_deployment_with_a_server_that_is_killed_has_the_bits_of_a_local_run(tmp_path):
    settings = {"rounds": 2, "evaluate.every": 10, "deployment.minimum": CLIENTS}
    with Driver.at(tmp_path, "client", **settings) as there:
        there.bring_up()
        strangers = refused_ones(there, tmp_path)
        there.rounds_pass(1)
        there.kill_server()
        assert there.invariant() < 1e-12
        there.start_run()
        there.until(there.ended, PATIENCE, "the run ends")
        assert there.invariant() < 1e-12
        state = Checkpoints(there.run / "checkpoints").load(CPU)
        assert torch.equal(state["server"]["z"], local_run(2).server["z"])
        status = there.call(there.status_command)
        assert "finished, 2 of 2 rounds" in status.stdout
        assert "worst client" in status.stdout
        for name in strangers:
            there.until(lambda name=name: there.processes[name].poll(), PATIENCE, f"{name} gave up")
        assert there.call(["flwr", "supernode", "list", "deployment"]).stdout.count("online") == 3


def refused_ones(there, folder):
    """Nodes that must not be let in: an unknown key, no key, another authority's certificate."""
    write_certificates(folder / "other", ["127.0.0.1"])
    first = there.supernode_command(0)
    key = first.index("--auth-supernode-private-key")
    port = first.index("--port") + 1
    another_authority = list(first)
    another_authority[first.index("--root-certificates") + 1] = str(folder / "other" / "ca.pem")
    no_key = [*first[:key], *first[key + 2 :]]
    write_node_key(folder / "unknown")
    unknown_key = [*first[: key + 1], str(folder / "unknown"), *first[key + 2 :]]
    commands = {"authority": another_authority, "no-key": no_key, "unknown": unknown_key}
    for command in commands.values():
        command[port] = str(free_ports(1))
    for name, command in commands.items():
        there.start(name, command)
    return list(commands)


@pytest.mark.exhaustive
@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_run_with_every_kind_of_fault_ends_at_the_optimum(keeper, tmp_path):
    settings = {
        "rounds": 300,
        "evaluate.every": 5,
        "evaluate.gradient": "true",
        "stop.gradient": 1e-7,
        "deployment.deadline": 30,
    }
    with Driver.at(tmp_path, keeper, **settings) as there:
        there.bring_up()
        there.rounds_pass(2)
        there.stop("client-1", signal.SIGKILL)
        there.rounds_pass(2)
        there.bring_back(1)
        there.rounds_pass(1)
        there.wipe(2)
        there.rounds_pass(2)
        there.slow_down(0, 45)
        there.rounds_pass(2)
        there.speed_up(0)
        there.kill_server()
        assert there.invariant() < 1e-12
        there.start_run()
        there.rounds_pass(2)
        there.stop("client-1")
        there.impostor(1)
        there.rounds_pass(5)
        there.stop("impostor")
        there.bring_back(1)
        there.until(there.ended, 1200, "the run ends by itself")
        assert there.error() < 1e-4
        assert there.invariant() < 1e-12
        assert len(there.status()["membership"]["members"]) == CLIENTS
