"""A run that was killed goes on to the bits of one that was not."""

import errno
import json
import os
import shutil
import signal
import sys
from dataclasses import asdict
from multiprocessing import get_context

import numpy as np
import pytest
import torch

from fedcanon import FedcanonError, FedCanonPlus
from fedcanon.algorithms import ALGORITHMS
from fedcanon.checkpoint import Checkpoints, read_tree, write_tree
from fedcanon.compression import COMPRESSORS
from fedcanon.runs.build import build
from fedcanon.runs.config import load_config
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.observers import Observer
from fedcanon.runs.training import RunStoppedError, load, resume, train

CPU = torch.device("cpu")
FORK = get_context("fork")  # children that start in milliseconds
SMALL = {"model": "linear", "rounds": 6, "checkpoint": {"rounds": 1}, "evaluate": {"every": 2}}


def contents(federation):
    """The state of a federation, with the states of clients by client and not as they are kept."""
    state = federation.state()
    return {**state, "engine": {**state["engine"], "clients": federation.engine.clients}}


def tensors(state, place=""):
    """Every tensor and number of a nested state by its place."""
    if isinstance(state, dict):
        for key, value in state.items():
            yield from tensors(value, f"{place}/{key}")
    else:
        yield place, state


def same(one, other):
    one, other = dict(tensors(contents(one))), dict(tensors(contents(other)))
    del one["/cost/seconds"], other["/cost/seconds"]
    assert one.keys() == other.keys()
    return all(
        torch.equal(a, other[k]) if isinstance(a, torch.Tensor) else a == other[k]
        for k, a in one.items()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ALGORITHMS, *(f"fedcanon+ {c}" for c in COMPRESSORS)])
def test_every_method_goes_on_from_a_checkpoint_to_the_same_bits(name, tmp_path):
    method, _, compressor = name.partition(" ")
    settings = [f"algorithm.name={method}", "model.name=linear", "batch_size=16"]
    if compressor:
        settings.append(f"compression.name={compressor}")
    if ALGORITHMS[method].partial_participation:
        settings.append("clients.participants=4")
    config = load_config(settings=settings)
    undisturbed = build(config)
    for _ in range(3):
        undisturbed.step()
    Checkpoints(tmp_path).save(3, undisturbed.state())
    resumed = build(config)
    resumed.load(Checkpoints(tmp_path).load(CPU))
    for _ in range(3):
        undisturbed.step()
        resumed.step()
    assert same(undisturbed, resumed)


@pytest.mark.slow
def test_normalisation_statistics_go_on_too(tmp_path):
    config = load_config(settings=["model.name=tests.runs.test_resume:normalised", "rounds=4"])
    one, two = build(config), build(config)
    for _ in range(2):
        one.step()
    Checkpoints(tmp_path).save(2, one.state())
    two.load(Checkpoints(tmp_path).load(CPU))
    one.step()
    two.step()
    assert one.engine.buffers.numel() == 16
    assert same(one, two)


def normalised(shape, classes):
    return torch.nn.Sequential(
        torch.nn.Linear(*shape, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, classes)
    )


def measures(run):
    """The history without what depends on the clock."""
    rows = [asdict(record) for record in run.records()]
    for row in rows:
        row.pop("evaluation_seconds")
        row["cost"].pop("seconds")
    return rows


def outcome(folder):
    run = RunFolder(folder)
    return measures(run), (run.path / "model.safetensors").read_bytes()


def killed(work, *arguments):
    """Run ``work`` in a child process; whether a signal ended it."""
    child = FORK.Process(target=work, args=arguments)
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL, -signal.SIGALRM)
    return child.exitcode != 0


def go_on(folder):
    """Begin a run, or go on with it, as far as it has come."""
    if (folder / "config.toml").exists():
        if RunFolder(folder).result is None:
            resume(folder)
    else:
        if folder.exists():  # killed before it was a run
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
        train(SMALL, folder=folder)


def copy_before_operations(folder, copies):
    """Train, and copy the folder before every file in it is opened, renamed or removed.

    A copy is what a process leaves that is killed there.
    """
    copying = False

    def hook(event, arguments):
        nonlocal copying
        concerns = event in ("open", "os.rename", "os.remove", "os.mkdir")
        if not copying and concerns and str(folder) in str(arguments[0]):
            copying = True
            copy = copies / str(len(list(copies.iterdir())))
            copy.mkdir()
            if folder.exists():
                shutil.copytree(folder, copy / "run")
            copying = False

    copies.mkdir()
    sys.addaudithook(hook)
    train(SMALL, folder=folder)


def on_disk(folder):
    """All that is in a folder: files with their contents, and folders."""
    paths = {path.relative_to(folder): path for path in folder.rglob("*")}
    return {name: path.is_file() and path.read_bytes() for name, path in paths.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    train(SMALL, folder=folder)
    return outcome(folder)


@pytest.mark.slow
def test_death_before_every_file_operation(undisturbed, tmp_path):
    folder, copies = tmp_path / "run", tmp_path / "copies"
    assert not killed(copy_before_operations, folder, copies)
    assert outcome(folder) == undisturbed
    shutil.rmtree(folder)
    deaths, left = len(list(copies.iterdir())), None
    for number in range(deaths):
        copy = copies / str(number)
        before, left = left, on_disk(copy)
        if left != before:  # what was opened to be read has changed nothing
            go_on(copy / "run")
            assert outcome(copy / "run") == undisturbed, number
    assert deaths > 60  # six checkpoints, the history, the model and all that is in the folder


def die_after_calls(number, moment, folder):
    """Go on, and die of a signal a moment after so many calls of functions, wherever that is."""
    seen = 0

    def count(*event):
        nonlocal seen
        seen += 1
        if seen == number:
            sys.setprofile(None)
            signal.setitimer(signal.ITIMER_REAL, moment)

    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the time limit of the tests has a handler
    sys.setprofile(count)
    go_on(folder)


@pytest.mark.slow
def test_death_at_random_places_again_and_again(undisturbed, tmp_path):
    rng = np.random.default_rng(0)
    for trial in range(6):
        folder, calls, deaths = tmp_path / str(trial), int(rng.uniform(500, 5000)), 0
        while killed(die_after_calls, calls, float(rng.uniform(1e-6, 1e-3)), folder):
            deaths += 1
            calls = int(calls * rng.uniform(1.1, 2))  # each child gets further than the last
        assert outcome(folder) == undisturbed
        assert deaths > 0


def test_a_damaged_checkpoint_is_passed_over(undisturbed, tmp_path):
    for damage in ("cut", "flip"):
        folder = tmp_path / damage
        train(SMALL, folder=folder)
        older, newest = sorted((folder / "checkpoints").glob("round-*"))
        content = bytearray(newest.read_bytes())
        if damage == "cut":
            content = content[: len(content) // 2]
        else:
            content[-100] ^= 1
        newest.write_bytes(content)
        assert older.name.startswith("round-000000005")
        (folder / "result.json").unlink()
        with (folder / "history.jsonl").open("a") as history:
            history.write('{"round": 6, "lo')  # torn by a crash
        resume(folder)
        assert outcome(folder) == undisturbed


def test_without_any_whole_checkpoint_it_begins_again(undisturbed, tmp_path):
    train(SMALL, folder=tmp_path / "run")
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():
        checkpoint.write_bytes(b"")
    (tmp_path / "run" / "result.json").unlink()
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


def test_a_longer_run_is_the_run_continued(tmp_path):
    train(SMALL, rounds=8, folder=tmp_path / "long")
    train(SMALL, folder=tmp_path / "run")
    resume(tmp_path / "run", rounds=8)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "long")
    assert RunFolder(tmp_path / "run").config.rounds == 8


def test_ctrl_c_ends_after_a_round_with_a_checkpoint(undisturbed, tmp_path):
    read, write = os.pipe()

    def interrupted():
        try:
            train(SMALL, rounds=6, folder=tmp_path / "run", observers=[Ask()])
        except FedcanonError as error:
            os.write(write, str(error).encode())

    class Ask(Observer):
        def record(self, record):
            os.kill(os.getpid(), signal.SIGINT)

    assert not killed(interrupted)
    message = os.read(read, 1000).decode()
    assert message.startswith("stopped after round 1: go on with 'fedcanon resume")
    assert RunFolder(tmp_path / "run").status == "interrupted"
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


def test_a_run_that_goes_on_cannot_be_resumed_twice(tmp_path):
    train(SMALL, folder=tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    ready, done = FORK.Event(), FORK.Event()

    def hold():
        with run.locked():
            ready.set()
            done.wait()

    child = FORK.Process(target=hold)
    child.start()
    ready.wait()
    (run.path / "result.json").unlink()
    assert run.status == "running"
    with pytest.raises(FedcanonError, match="going on in another process"):
        resume(run.path)
    done.set()
    child.join()
    assert run.status == "interrupted"


def test_ctrl_c_in_the_last_round_is_not_forgotten(tmp_path):
    class Interrupt(Observer):
        def round(self, t):
            if t == 6:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(RunStoppedError, match="run is finished"):
        train(SMALL, folder=tmp_path / "run", observers=[Interrupt()])
    assert load(tmp_path / "run").last.round == 6


def test_a_loaded_run_is_what_was_trained(tmp_path):
    result = train(SMALL, folder=tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert torch.equal(result.vector, loaded.vector)
    inputs = torch.randn(5, 64)
    assert torch.equal(result.model(inputs), loaded.model(inputs))
    assert list(result.history.columns) == list(loaded.history.columns)
    assert loaded.history["round"].tolist() == [0, 2, 4, 6]
    assert (tmp_path / "run" / "history.parquet").stat().st_size > 0
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["versions"]["torch"] == torch.__version__


@pytest.mark.slow
def test_a_loaded_run_has_trainable_parameters_and_statistics(tmp_path):
    model = {"name": "tests.runs.test_resume:normalised_and_frozen"}
    result = train(SMALL, model=model, rounds=2, folder=tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert loaded.buffers.numel() == 16
    assert torch.equal(result.buffers, loaded.buffers)
    assert torch.equal(result.vector, loaded.vector)


def normalised_and_frozen(shape, classes):
    module = normalised(shape, classes)
    module[0].requires_grad_(False)
    return module


def test_the_last_checkpoints_stay(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for t in range(12):
        checkpoints.save(t, {"t": t, "x": torch.full((3,), float(t)), "nested": {"y": [1, 2]}})
    assert len(list(tmp_path.iterdir())) == 3
    state = checkpoints.load(CPU)
    assert state["t"] == 11
    assert state["nested"] == {"y": [1, 2]}
    assert torch.equal(state["x"], torch.full((3,), 11.0))


def test_shared_tensors_are_stored_once(tmp_path):
    z = torch.randn(10_000)
    write_tree(tmp_path / "state", {"a": z, "b": {"c": z, "d": z[:5000]}})
    assert (tmp_path / "state").stat().st_size < 62_000
    state = read_tree(tmp_path / "state", CPU)
    assert torch.equal(state["b"]["c"], z)
    assert torch.equal(state["b"]["d"], z[:5000])


def test_time_between_checkpoints(tmp_path):
    for seconds, expected in ((1e-9, 6), (1e9, 1)):
        folder = tmp_path / str(expected)
        train({**SMALL, "checkpoint": {"seconds": seconds, "keep": 100}}, folder=folder)
        assert len(list((folder / "checkpoints").glob("round-*"))) == expected


def test_a_full_disk_ends_a_run_with_a_sentence_and_its_last_checkpoint(
    undisturbed, tmp_path, monkeypatch
):
    saved, save = [], Checkpoints.save

    def full_after_two(self, number, state):
        if len(saved) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        saved.append(number)
        save(self, number, state)

    monkeypatch.setattr(Checkpoints, "save", full_after_two)
    folder = tmp_path / "run"
    with pytest.raises(FedcanonError, match=r"is full: free some space.*fedcanon resume"):
        train(SMALL, folder=folder)
    monkeypatch.undo()
    resume(folder)
    assert outcome(folder) == undisturbed


def test_a_server_without_memory_ends_a_run_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(FedCanonPlus, "aggregate", lambda *_: torch.zeros(10**15))
    with pytest.raises(FedcanonError, match=r"not enough memory for this run.*fedcanon resume"):
        train(SMALL, folder=tmp_path / "run")
