"""Secure sums in real processes on loopback, with sites and a server that are killed."""

import json
import shutil
import signal

import pytest
import torch

pytest.importorskip("flwr")

from fedcanon.checkpoint import Checkpoints
from tests.deployment.driver import CPU, HERE, Driver
from tests.deployment.problem import CLIENTS
from tests.deployment.test_real import local_run
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.flower, pytest.mark.nginx]

ROUNDS = 6
SETTINGS = {
    "rounds": ROUNDS,
    "evaluate.gradient": "false",
    "deployment.secure": "true",
    "deployment.minimum": CLIENTS,
}


def halted(there, client, kind):
    """Let a site halt when it has an answer of this kind ready."""
    (there.data / f"halt-{client}-{kind}").touch()
    there.until(
        (there.data / f"halted-{client}-{kind}").exists, PATIENCE, f"{client} halts at {kind}"
    )


def kill_worker(there, client):
    """Kill the process that answers for a site; its supervisor starts another one."""
    worker = there.processes_of(client)["worker"]
    for process in (*worker.children(recursive=True), worker):
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps", [("train",), pytest.param(("keys", "train", "confirm"), marks=pytest.mark.exhaustive)]
)
def test_sites_that_are_killed_in_the_steps_of_a_sum_break_nothing(steps, tmp_path):
    with Driver.at(tmp_path, "client", **SETTINGS) as there:
        shutil.copy(HERE / "app_secure_client.py", there.folder / "app" / "client.py")
        there.bring_up(deadline=10)
        there.rounds_pass(1)
        for client, kind in enumerate(steps):
            halted(there, client, kind)
            kill_worker(there, client)
            assert there.invariant() < 1e-14
        there.rounds_pass(1)
        halted(there, 1, "unmask")
        there.kill_server()
        assert there.invariant() < 1e-14
        there.stop("client-1", signal.SIGKILL)
        there.bring_back(1)
        there.start_run()
        there.until(there.ended, PATIENCE, "the run ends")
        assert there.invariant() < 1e-14
        engine = Checkpoints(there.run / "checkpoints").load(CPU)["engine"]
        assert engine["membership"]["generation"] == 1  # nobody has lost a state
        assert engine["secure"]["attempts"] > ROUNDS
        assert engine["clients"] == {}
        state = Checkpoints(there.run / "checkpoints").load(CPU)
        exact = local_run(ROUNDS).server["z"]
        assert torch.allclose(state["server"]["z"], exact, rtol=0, atol=1e-6)
        for client in range(CLIENTS):
            [secrets] = there.state(client).glob(f"*/secrets-{client}.json")
            assert secrets.stat().st_mode & 0o077 == 0
            last = json.loads(secrets.read_text())["terms"]["round"]
            assert last == engine["secure"]["attempts"] - 1
