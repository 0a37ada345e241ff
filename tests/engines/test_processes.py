"""Worker processes: the same bits as one process, whatever happens to them."""

import contextlib
import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import torch

from fedcanon import FedAvg, FedcanonError, FedCanonPlus, Federation, Objective, Problem
from fedcanon.algorithms import ALGORITHMS
from fedcanon.compression import Quantise
from fedcanon.engines import Local
from fedcanon.engines.processes import Processes
from fedcanon.layout import Layout
from fedcanon.objectives import ModuleObjective
from fedcanon.penalties import L1
from fedcanon.runs.build import build
from fedcanon.runs.config import load_config
from fedcanon.runs.training import resume, train
from tests.engines.networks import algorithm, classifiers, classifiers_for
from tests.problems import logistics
from tests.waiting import PATIENCE, until

TWO = Local(workers=2)


def trained(problem, method, engine, rounds=3, participants=None, **settings):
    if not method.partial_participation:
        participants = None
    federation = Federation(
        problem,
        method,
        L1(1e-3),
        participants=participants,
        batch_size=8,
        engine=engine,
        **settings,
    )
    for _ in range(rounds):
        federation.step()
    found = federation.engine.evaluate(federation.model, gradient=True)
    federation.close()
    return federation, found


def require_same(one, other):
    (first, found), (second, again) = one, other
    assert torch.equal(first.model, second.model)
    assert torch.equal(first.engine.buffers, second.engine.buffers)
    assert first.engine.clients.keys() == second.engine.clients.keys()
    for client, state in first.engine.clients.items():
        for name, entry in state.items():
            assert torch.equal(
                torch.as_tensor(entry), torch.as_tensor(second.engine.clients[client][name])
            )
    assert found.losses == again.losses
    assert found.test == again.test
    assert torch.equal(found.gradient, again.gradient)
    before, after = vars(first.cost), vars(second.cost)
    assert {**before, "seconds": 0} == {**after, "seconds": 0}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_any_number_of_processes_gives_the_same_bits(name):
    problem, method = classifiers_for(name, clients=11, norm=True), algorithm(name)
    serial = trained(problem, method, Local(), participants=7)
    for count in (1, 2, 3):
        others = trained(problem, method, Local(workers=count), participants=7)
        require_same(serial, others)


def test_compressed_uploads_have_the_same_bits_too():
    problem, method = logistics(clients=9, d=30), FedCanonPlus(0.5, 0.1, 4)
    runs = [
        trained(problem, method, workers, participants=5, compressor=Quantise(4))
        for workers in (Local(), TWO)
    ]
    require_same(*runs)


@pytest.mark.slow
def test_processes_that_are_started_afresh_instead_of_forked():
    problem, method = classifiers(), FedCanonPlus(0.05, 0.05, 3)
    spawned = Local(workers=2, start_method="spawn")
    require_same(trained(problem, method, Local()), trained(problem, method, spawned))


class Deadly(Objective):
    """½‖x‖² of a client that ends its own process when it is asked for a gradient."""

    layout = Layout.of([("x", (3,))])
    samples = 1

    def __init__(self, marker, times):
        self._marker, self._times = marker, times

    def value(self, x):
        return 0.5 * float(x @ x)

    def value_and_gradient(self, x):
        return self.value(x), x.clone()

    def gradient(self, x, batch):
        if multiprocessing.parent_process() is not None and self._deaths() < self._times:
            with self._marker.open("a") as file:
                file.write("died\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return x.clone()

    def _deaths(self):
        return len(self._marker.read_text().splitlines()) if self._marker.exists() else 0


def deadly(folder, times):
    clients = [Deadly(folder / str(k), times if k in (1, 4) else 0) for k in range(6)]
    return Problem(clients, torch.tensor([1.0, 2.0, 3.0]))


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_clients_run_again(tmp_path):
    method = FedCanonPlus(0.5, 0.1, 2)
    undisturbed = trained(deadly(tmp_path / "none", 0), method, Local())
    (tmp_path / "two").mkdir()
    disturbed = trained(deadly(tmp_path / "two", 2), method, TWO)
    require_same(undisturbed, disturbed)
    assert [(tmp_path / "two" / k).read_text() for k in "14"] == ["died\ndied\n"] * 2


@pytest.mark.slow
def test_clients_that_always_end_their_process_are_given_up(tmp_path):
    federation = Federation(deadly(tmp_path, 10), FedCanonPlus(0.5, 0.1, 2), L1(0.1), engine=TWO)
    with pytest.raises(FedcanonError, match=r"ended 3 times .* \(SIGKILL\).*engine.workers"):
        federation.step()
    assert not multiprocessing.active_children()
    assert federation.engine.clients == {}


def forked():
    """The children of this process that were forked from it, and so have its command."""
    this = psutil.Process()
    for child in this.children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if child.cmdline() == this.cmdline():
                yield child


@pytest.mark.slow
def test_workers_killed_from_outside_at_any_time(monkeypatch):
    problem, method = classifiers(clients=12, hidden=(40,)), FedCanonPlus(0.05, 0.05, 20)
    undisturbed = trained(problem, method, Local(), rounds=12)
    work_begins, deaths, give_out = threading.Event(), [], Processes.map

    def watched(self, *arguments):
        work_begins.set()
        return give_out(self, *arguments)

    def kill_workers():
        """No two in the same round: work that ends its process again and again is given up."""
        draw = random.Random(0)
        while len(deaths) < 12:
            work_begins.clear()
            work_begins.wait()
            time.sleep(draw.uniform(0, 0.05))
            if workers := list(forked()):
                deaths.append(draw.choice(workers))
                deaths[-1].kill()

    monkeypatch.setattr(Processes, "map", watched)
    killer = threading.Thread(target=kill_workers, daemon=True)
    killer.start()
    while killer.is_alive():
        require_same(undisturbed, trained(problem, method, TWO, rounds=12))


def test_an_error_in_a_client_is_named_and_its_place_shown():
    problem = logistics(clients=4, d=5)

    class Broken(FedAvg):
        def local(self, client, received, work):
            raise KeyError("no such thing")

    for workers in (Local(), TWO):
        federation = Federation(problem, Broken(0.1, 2), L1(0.1), engine=workers)
        with pytest.raises(FedcanonError, match=r"client \d failed in round 0: KeyError") as caught:
            federation.step()
        assert "in local" in caught.value.__notes__[0]
        federation.close()


def shared_memory():
    """How many pieces of it this process has mapped."""
    return sum("memfd:fedcanon" in piece.path for piece in psutil.Process().memory_maps(False))


@pytest.mark.slow
def test_nothing_is_left_when_a_federation_is_no_longer_used():
    gc.collect()
    before = shared_memory()
    federation = Federation(classifiers(), FedCanonPlus(0.05, 0.05, 3), L1(0.1), engine=TWO)
    federation.step()
    assert len(multiprocessing.active_children()) == 2
    assert shared_memory() > before
    federation.close()
    assert not multiprocessing.active_children()
    federation.step()  # starts them again
    assert len(multiprocessing.active_children()) == 2
    del federation
    gc.collect()
    assert not multiprocessing.active_children()
    assert shared_memory() <= before


LONG_RUN = [sys.executable, "-m", "fedcanon", "run", "--workers", "2", "--set", "rounds=100000"]


def started(tmp_path):
    """A run of two workers, once it has done some rounds."""
    environment = {**os.environ, "FEDCANON_RUNS": str(tmp_path)}
    process = subprocess.Popen(
        LONG_RUN,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    history = until(lambda: list(tmp_path.glob("*/history.jsonl")), lambda: process.poll() is None)
    until(lambda: history[0].read_text().count("\n") > 3, lambda: process.poll() is None)
    return process, psutil.Process(process.pid).children()


def require_gone(workers):
    assert len(workers) == 2
    _, alive = psutil.wait_procs(workers, timeout=PATIENCE)
    assert not alive


@pytest.mark.slow
def test_ctrl_c_ends_a_run_with_a_checkpoint_and_leaves_no_process(tmp_path):
    process, workers = started(tmp_path)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "fedcanon resume" in errors
    assert "error:" not in errors
    require_gone(workers)
    assert list(tmp_path.glob("*/checkpoints/*"))


@pytest.mark.slow
def test_workers_end_with_a_run_that_is_killed(tmp_path):
    process, workers = started(tmp_path)
    process.kill()
    _, errors = process.communicate()
    require_gone(workers)
    assert errors == ""


@pytest.mark.slow
def test_a_process_for_each_device():
    """With processors as the devices, which is what there is here."""
    problem, method = classifiers(norm=True), FedCanonPlus(0.05, 0.05, 3)
    devices = [torch.device("cpu")] * 2
    moved = trained(problem, method, Local(workers=2, devices=tuple(devices)))
    require_same(trained(problem, method, Local()), moved)


def chosen(*settings):
    """How many processes a configuration gets; None for this one."""
    workers = build(load_config(None, ["data.name=digits", *settings])).engine._workers
    return workers.count if isinstance(workers, Processes) else None


def test_processes_are_chosen_where_they_pay_and_where_they_are_asked_for(monkeypatch):
    monkeypatch.setenv("FEDCANON_WORKERS", "3")
    assert chosen() == 3
    assert chosen("model.name=linear") is None
    assert chosen("model.name=linear", "engine.name=processes") == 3
    assert chosen("model.name=linear", "engine.workers=2") == 2
    assert chosen("engine.name=serial") is None
    monkeypatch.setenv("FEDCANON_WORKERS", "1")
    assert chosen() is None
    monkeypatch.setenv("FEDCANON_WORKERS", "many")
    with pytest.raises(FedcanonError, match="FEDCANON_WORKERS must be a number"):
        chosen()


def test_bfloat16_is_refused_without_hardware_for_it_and_keeps_vectors_as_they_are():
    if not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        with pytest.raises(FedcanonError, match="no bfloat16 arithmetic"):
            chosen("engine.bfloat16=true")
    clients = classifiers(clients=3).clients
    parts = (clients.flat, clients.loss, clients.inputs, clients.targets)
    exact = ModuleObjective(*parts).gradient(clients.flat.vector, None).clone()
    rough = ModuleObjective(*parts, bfloat16=True).gradient(clients.flat.vector, None)
    assert rough.dtype == torch.float32
    assert not torch.equal(rough, exact)
    assert torch.allclose(rough, exact, atol=0.02)


class Greedy(FedAvg):
    """Asks for more memory than any machine has."""

    def local(self, client, received, work):
        return {"move": torch.zeros(10**15)}, client


@pytest.mark.parametrize("workers", [Local(), TWO])
def test_a_client_without_memory_gets_a_sentence(workers):
    federation = Federation(logistics(clients=2), Greedy(0.1, 1), L1(0.1), engine=workers)
    with pytest.raises(FedcanonError, match=r"client \d .* not enough memory.*engine\.workers"):
        federation.step()
    federation.close()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_a_run_goes_on_with_another_number_of_workers_to_the_same_bits(model, tmp_path):
    settings = {"model": model, "evaluate": {"every": 2}, "clients": {"participants": 7}}
    whole = train(settings, rounds=6, engine={"name": "serial"}, folder=tmp_path / "whole")
    train(settings, rounds=3, engine={"workers": 2}, folder=tmp_path / "parts")
    parts = resume(tmp_path / "parts", rounds=6, workers=3)
    assert torch.equal(whole.vector, parts.vector)
    assert whole.last.loss == parts.last.loss
    assert whole.last.gradient_norm == parts.last.gradient_norm
