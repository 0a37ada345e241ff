"""Faults on purpose, while a run goes on in real processes."""

import json
import shutil
import signal
import time
import tomllib
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import tomli_w
import torch

from fedcanon.checkpoint import Checkpoints
from fedcanon.deployment import Ledger
from fedcanon.deployment.app.credentials import write_node_key
from fedcanon.deployment.operate.sites import supernode
from fedcanon.runs.config import changed, load_config
from tests.deployment.problem import CLIENTS, SETTINGS, solution, write_clients
from tests.deployment.processes import Deployment, free_ports, make_deployment
from tests.waiting import PATIENCE

HERE = Path(__file__).parent
CPU = torch.device("cpu")


class Driver(Deployment):
    """A deployment of a FedCanon+ run on a convex problem, and what may happen to it."""

    @classmethod
    def at(cls, root, **settings):
        """Make the app, with the data of the test."""
        folder, data = root / "app", root / "data"
        chosen = {**SETTINGS, **settings}
        make_deployment(
            folder,
            *("--clients", str(CLIENTS), "--port", str(free_ports(CLIENTS + 3))),
            *(f"--set={key}={value}" for key, value in chosen.items()),
        )
        configuration = folder / "app" / "run.toml"
        configuration.write_text(
            configuration.read_text().replace("shape = [\n    30,\n]", "shape = [8]")
        )
        shutil.copy(HERE / "app_data.py", folder / "app" / "data.py")
        data.mkdir()
        write_clients(data)
        driver = cls(folder)
        driver.data, driver.made = data, load_config(configuration)
        for client in range(CLIENTS):
            driver.change_site(client, {"data": str(data)})
        return driver

    # What can be seen

    @property
    def run(self):
        return self.folder / "run"

    def round(self):
        """The last round with a checkpoint; the status tells of a round a moment before it."""
        names = (path.name for path in (self.run / "checkpoints").glob("round-*-*.safetensors"))
        return max((int(name.split("-")[1]) for name in names), default=0)

    def status(self):
        return json.loads((self.run / "deployment.json").read_text())

    def ended(self):
        return (self.run / "result.json").exists()

    def rounds_pass(self, count):
        """Let so many rounds pass, or the run end."""
        goal = self.round() + count
        self.until(lambda: self.round() >= goal or self.ended(), PATIENCE, f"round {goal}")

    # What can happen

    def bring_up(self):
        """Start the server and all sites."""
        begun = time.monotonic()
        self.start_server()
        self.slowness = time.monotonic() - begun
        for client in range(CLIENTS):
            self.start_site(client)

    def begin(self, keeper, *, deadline, client="app_client.py", **settings):
        """Begin a new run with other settings and another client, while the sites stay up.

        The ``deadline`` is for a quiet machine, and longer if the server was slow to start.
        """
        self.keeper, self.deadline = keeper, max(deadline, self.slowness)
        settings |= {"deployment.state": keeper, "deployment.deadline": self.deadline}
        config = changed(self.made, settings).model_dump(exclude_none=True)
        (self.folder / "app" / "run.toml").write_text(tomli_w.dumps(config))
        shutil.copy(HERE / client, self.folder / "app" / "client.py")
        if "run" in self.processes:
            self.kill_server()
        shutil.rmtree(self.run, ignore_errors=True)
        self.start_run()

    def bring_back(self, client):
        """Start a site; it tries again and again until it is let in."""
        name = f"client-{client}"
        before = len(self.log(name))
        self.start_site(client)
        self.until(
            lambda: "connected as node" in self.log(name)[before:], PATIENCE, f"{name} is let in"
        )

    def processes_of(self, client):
        """The processes of a site by their role: supernode, worker."""
        found = {}
        for process in psutil.Process(self.processes[f"client-{client}"].pid).children():
            with suppress(psutil.Error, IndexError):  # it has just ended
                found[process.cmdline()[2].rpartition(".")[2]] = process
        return found

    def state(self, client):
        return self.folder / "sites" / str(client) / "state"

    def wipe(self, client):
        shutil.rmtree(self.state(client), ignore_errors=True)

    def slow_down(self, client, seconds):
        (self.data / f"slow-{client}").write_text(str(seconds))

    def speed_up(self, client):
        (self.data / f"slow-{client}").unlink()

    def kill_server(self):
        """Kill the process in which the server trains, as want of memory would."""
        self.kill_all("flwr-serverapp")
        self.stop("run", signal.SIGKILL)

    def impostor(self, client):
        """A node with a key that is known, but for another client, and with forgeries."""
        folder = self.folder.parent
        write_node_key(folder / "impostor")
        self.call([*self.key_command, str(CLIENTS), str(folder / "impostor.pub")])
        node = {"client": client, "data": str(self.data), "attack": 1}
        self.start("impostor", self.supernode(folder / "impostor", node, answers=True))

    def supernode(self, key, node=None, certificates=None, *, answers=False):
        """The command of a SuperNode with any key, or none."""
        site = self.folder / "sites" / "0"
        server = tomllib.loads((site / "site.toml").read_text())["server"]
        node = node or {"client": 0, "data": str(self.data)}
        authority = certificates or site / "ca.pem"
        return supernode(server, authority, free_ports(1), node, key, answers=answers)

    # What must hold

    def error(self):
        """The largest distance of a coefficient from the centralised optimum."""
        state = Checkpoints(self.run / "checkpoints").load(CPU)
        return float(np.abs(state["server"]["z"].numpy() - solution()).max())

    def invariant(self):
        """‖e − mean v_i‖ from what is on disk."""
        state = Checkpoints(self.run / "checkpoints").load(CPU)
        engine, server = state["engine"], state["server"]
        membership = engine["membership"]
        vectors, kept = [], {}
        for part in engine["clients"].values():
            content = part.read()
            kept |= zip(map(str, content["clients"].tolist()), content["states"]["v"], strict=True)
        for client in membership["members"]:
            if client not in membership["acks"]:
                vectors.append(torch.zeros_like(server["e"]))
            elif self.keeper == "server":
                vectors.append(kept[client])
            else:
                vectors.append(self._kept(int(client), engine["run"], membership["acks"][client]))
        return float((server["e"] - torch.stack(vectors).mean(0)).norm())

    def _kept(self, client, run, ack):
        """What a client has on its disk under the name of its last update that counted."""
        account = Ledger.on_disk(self.state(client), client, run).load()
        if account.pending is not None and account.pending.update == ack:
            return account.pending.state["v"]
        assert account.base == ack
        return account.state["v"]
