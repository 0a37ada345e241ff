"""Deployments in real processes on loopback: SuperLink, SuperNodes, TLS and keys; secure sums.

One deployment is started, and does one run after the other.
"""

import json
import signal
from pathlib import Path

import psutil
import pytest
import torch

pytest.importorskip("flwr")

from fedcanon import FedCanonPlus, Federation, Logistic, Problem
from fedcanon.checkpoint import Checkpoints
from fedcanon.deployment.app.credentials import write_certificates, write_node_key
from fedcanon.penalties import L1, on_weights
from tests.deployment.driver import CPU, Driver
from tests.deployment.problem import CLIENTS, KAPPA, SETTINGS, samples
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.flower, pytest.mark.nginx]

KEEPERS = ("server", "client")
NOT_SECURE = {"deployment.secure": False, "deployment.identities": []}


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """The server and three sites, whose app can do secure sums."""
    secure = {"deployment.secure": "true", "deployment.state": "client"}
    secure |= {"deployment.minimum": CLIENTS, "evaluate.gradient": "false"}
    with Driver.at(tmp_path_factory.mktemp("real"), **secure) as driver:
        driver.bring_up()
        yield driver


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
def test_a_server_and_a_worker_that_are_killed_leave_the_bits_of_a_local_run(there, tmp_path):
    settings = {"rounds": 4, "evaluate.every": 10, "evaluate.gradient": True}
    there.begin("server", deadline=PATIENCE, **settings, **NOT_SECURE)
    strangers = refused_ones(there, tmp_path)
    there.rounds_pass(1)
    there.kill_server()
    assert there.invariant() < 1e-12
    there.start_run()
    there.rounds_pass(1)
    a_killed_worker_is_started_again(there, 1)
    there.until(there.ended, PATIENCE, "the run ends")
    assert there.invariant() < 1e-12
    state = Checkpoints(there.run / "checkpoints").load(CPU)
    assert torch.equal(state["server"]["z"], local_run(4).server["z"])
    assert "worker ended by SIGKILL: again in 5 s" in there.log("client-1")
    status = there.call(there.status_command)
    assert "finished, 4 of 4 rounds" in status.stdout
    assert "worst client" in status.stdout
    for name in strangers:
        there.until(lambda name=name: there.processes[name].poll(), PATIENCE, f"{name} gave up")
    assert there.online() == set(there.nodes().values())
    assert there.processes["run"].wait(PATIENCE) == 0
    a_worker_has_loaded_what_its_app_needs(there, 2)


def a_killed_worker_is_started_again(there, client):
    killed = there.processes_of(client)["worker"]
    killed.kill()
    there.until(
        lambda: there.processes_of(client).get("worker", killed).pid != killed.pid,
        PATIENCE,
        "the worker is started again",
    )


def a_worker_has_loaded_what_its_app_needs(there, client):
    """No table is read here, and nothing is kept in a database."""
    files = [Path(part.path) for part in there.processes_of(client)["worker"].memory_maps()]
    packages = {name for file in files for name in file.parts}
    assert {"numpy", "torch"} <= packages
    assert not packages & {"pandas", "sklearn", "sqlalchemy"}


def refused_ones(there, folder):
    """Nodes that must not be let in: an unknown key, no key, another authority's certificate."""
    write_certificates(folder / "other", ["127.0.0.1"])
    write_node_key(folder / "unknown")
    site = there.folder / "sites" / "0"
    commands = {
        "authority": there.supernode(site / "key", certificates=folder / "other" / "ca.pem"),
        "no-key": there.supernode(None),
        "unknown": there.supernode(folder / "unknown"),
    }
    for name, command in commands.items():
        there.start(name, command)
    return list(commands)


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps", [("train",), pytest.param(("keys", "train", "confirm"), marks=pytest.mark.exhaustive)]
)
def test_sites_that_are_killed_in_the_steps_of_a_sum_break_nothing(steps, there):
    rounds = len(steps) + 2
    for client, kind in enumerate(steps):
        halt(there, client, kind, after=client + 1)
    halt(there, 1, "unmask", after=len(steps) + 1)
    there.begin("client", deadline=10, client="app_secure_client.py", rounds=rounds)
    for client, kind in enumerate(steps):
        halted(there, client, kind)
        kill_worker(there, client)
        assert there.invariant() < 1e-14
    halted(there, 1, "unmask")
    there.kill_server()
    assert there.invariant() < 1e-14
    there.stop("client-1", signal.SIGKILL)
    there.bring_back(1)
    there.start_run()
    there.until(there.ended, PATIENCE, "the run ends")
    assert there.invariant() < 1e-14
    state = Checkpoints(there.run / "checkpoints").load(CPU)
    engine = state["engine"]
    assert engine["membership"]["generation"] == 1  # nobody has lost a state
    assert engine["secure"]["attempts"] > rounds
    assert engine["clients"] == {}
    exact = local_run(rounds).server["z"]
    assert torch.allclose(state["server"]["z"], exact, rtol=0, atol=1e-6)
    for client in range(CLIENTS):
        secrets = there.state(client) / engine["run"] / f"secrets-{client}.json"
        assert secrets.stat().st_mode & 0o077 == 0
        last = json.loads(secrets.read_text())["terms"]["round"]
        assert last == engine["secure"]["attempts"] - 1


def halt(there, client, kind, after):
    """Let a site halt when it has an answer of this kind ready, after so many rounds."""
    (there.data / f"halted-{client}-{kind}").unlink(missing_ok=True)
    (there.data / f"halt-{client}-{kind}").write_text(f"{after} {there.run / 'deployment.json'}")


def halted(there, client, kind):
    there.until(
        (there.data / f"halted-{client}-{kind}").exists, PATIENCE, f"{client} halts at {kind}"
    )


def kill_worker(there, client):
    """Kill the process that answers for a site; its supervisor starts another one."""
    worker = there.processes_of(client)["worker"]
    for process in (*worker.children(recursive=True), worker):
        process.kill()


@pytest.mark.slow
def test_the_processes_of_a_site_end_with_it(there):
    there.until(lambda: len(there.processes_of(2)) == 2, PATIENCE, "both processes of a site")
    children = psutil.Process(there.processes["client-0"].pid).children(recursive=True)
    there.processes["client-0"].send_signal(signal.SIGINT)
    assert there.processes["client-0"].wait(PATIENCE) == 0
    assert not any(child.is_running() for child in children)
    assert there.log("client-0").rstrip().endswith("ended")
    left = there.processes_of(2).values()
    there.processes["client-2"].kill()
    for child in left:  # what has lost its supervisor ends by itself
        child.wait(PATIENCE)


@pytest.mark.exhaustive
@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_run_with_every_kind_of_fault_ends_at_the_optimum(keeper, tmp_path):
    settings = {
        "rounds": 300,
        "evaluate.every": 5,
        "evaluate.gradient": True,
        "stop.gradient": 1e-7,
    }
    with Driver.at(tmp_path) as there:
        there.bring_up()
        there.begin(keeper, deadline=30, **settings)
        there.rounds_pass(2)
        there.stop("client-1", signal.SIGKILL)
        there.rounds_pass(2)
        there.bring_back(1)
        there.rounds_pass(1)
        there.wipe(2)
        there.rounds_pass(2)
        there.slow_down(0, 1.5 * there.deadline)
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
