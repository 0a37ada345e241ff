"""The memory of a server with many participants."""

import subprocess
import sys

import pytest

from tests.waiting import PATIENCE

SCRIPT = """
import sys
from pathlib import Path
import torch
from fedcanon import FedCanonPlus, Federation, Problem, Quadratic
from fedcanon.deployment import Deployment
from fedcanon.deployment.protocol import Presence, Reply, packed
from fedcanon.engines.client import BUFFERS
from fedcanon.objectives.remote import Remote
from fedcanon.penalties import L1

clients, d, memory = map(int, sys.argv[1:])
torch.set_num_threads(1)


class Crowd:
    # Clients that answer when they are looked at, so that only the server's memory is seen.
    def __init__(self):
        self.waiting = []

    def present(self):
        return {client: Presence(10) for client in range(clients)}

    def send(self, messages):
        for message in messages:
            header = message.id, message.client, message.generation, message.round, message.ack
            self.waiting.append(header)

    def receive(self, seconds):
        id, client, generation, t, base = self.waiting.pop(0)
        vector = torch.full((d,), float(client))
        content = packed({"u": vector, BUFFERS: torch.empty(0)})
        name = f"u{client}-{t}"
        return [Reply(id, client, "update", generation, t, content, update=name, base=base)]

    def use_folder(self, folder):
        pass

    def close(self):
        pass


one = Quadratic(torch.ones(d), torch.zeros(d))
problem = Problem([Remote(one, 10) for _ in range(clients)], torch.zeros(d))
engine = Deployment(Crowd(), keeper="client", minimum=clients, state_memory=memory)
federation = Federation(problem, FedCanonPlus(1.0, 0.1, 2), L1(0.0), engine=engine)
for _ in range(2):
    federation.step()
expected = -3 * (clients - 1) / 2  # v̄ is the mean of 0, 1, …, and twice that in the second
assert torch.allclose(federation.model, torch.full((d,), expected), rtol=1e-3), federation.model
# Not the system's ru_maxrss, which begins with that of the process that has started this one.
status = Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


def peak(clients, d, memory):
    """The KiB that a server needs at most for two rounds of so many clients."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, (clients, d, memory))],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.exhaustive
def test_a_thousand_participants_of_a_million_parameters_fit_in_two_gib():
    most = peak(1000, 1_000_000, 2**28)
    assert most < 2 * 2**20


@pytest.mark.slow
def test_uploads_of_many_participants_are_not_all_in_memory():
    few, many = (peak(clients, 500_000, 2**25) for clients in (10, 160))  # 20 MB and 320 MB
    assert many - few < 120 * 2**10
