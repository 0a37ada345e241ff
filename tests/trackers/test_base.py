"""What holds for every tracker, shown on one that keeps everything in memory."""

import logging
import math
import sys

import pytest
import torch

from fedcanon import FedcanonError
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.measures import Cost, Record
from fedcanon.runs.training import train
from fedcanon.trackers import TRACKERS, Tracker, check_trackers, tracking
from fedcanon.trackers.base import flattened, numbers
from tests.trackers.runs import expected, interrupt_tracked, resume_tracked, run_tracked


class Memory(Tracker):
    name = "memory"
    module = "math"
    opened, logged, closed = [], {}, []
    fails = ""
    knows = -1

    def open(self, settings):
        self._maybe_fail("open")
        self.opened.append(settings)
        return self.knows

    def log(self, t, numbers):
        self._maybe_fail(f"log {t}")
        for name, number in numbers.items():
            self.logged.setdefault(name, []).append((t, number))

    def close(self, completed):
        self._maybe_fail("close")
        self.closed.append(completed)

    def _maybe_fail(self, where):
        if where == self.fails:
            raise OSError(f"no server at {where}")


@pytest.fixture
def memory(monkeypatch):
    for name, value in {"opened": [], "logged": {}, "closed": []}.items():
        monkeypatch.setattr(Memory, name, value)
    monkeypatch.setitem(TRACKERS, "memory", Memory)
    return Memory


def test_a_tracker_gets_the_settings_once_and_every_number_of_every_record(memory, tmp_path):
    run_tracked("memory", tmp_path / "run")
    assert memory.logged == expected(tmp_path / "run")
    assert [t for t, _ in memory.logged["accuracy"]] == [0, 1, 2, 3, 4]
    assert memory.closed == [True]
    (settings,) = memory.opened
    assert settings["algorithm.name"] == "fedcanon+"
    assert settings["algorithm.beta"] == 0.1
    assert settings["penalty.gamma"] == RunFolder(tmp_path / "run").config.penalty["gamma"]


@pytest.mark.parametrize("stage", ["open", "log 2", "close"])
def test_a_tracker_that_fails_is_dropped_and_the_run_goes_on(
    memory, monkeypatch, tmp_path, caplog, stage
):
    monkeypatch.setattr(memory, "fails", stage)
    with caplog.at_level(logging.WARNING):
        result = run_tracked("memory", tmp_path / "run")
    assert torch.equal(
        result.vector, train(rounds=4, model="linear", algorithm={"beta": 0.1}).vector
    )
    message = f"the tracker memory failed, the run goes on without it: no server at {stage}"
    assert caplog.messages == [message]
    assert message in (tmp_path / "run" / "log.txt").read_text()
    assert not memory.closed
    reached = {"open": 0, "log 2": 2, "close": 5}[stage]
    assert len(memory.logged.get("loss", [])) == reached


def test_a_run_that_goes_on_sends_what_the_tool_lacks_and_nothing_twice(
    memory, monkeypatch, tmp_path
):
    interrupt_tracked("memory", tmp_path / "run")
    assert memory.closed == [False]
    memory.logged.clear()
    monkeypatch.setattr(memory, "knows", 2)  # the server was down after round 2
    resume_tracked("memory", tmp_path / "run")
    assert memory.closed == [False, True]
    assert memory.logged == {
        name: [pair for pair in pairs if pair[0] > 2]
        for name, pairs in expected(tmp_path / "run").items()
    }


def test_a_run_that_never_began_leaves_another_ones_folder_alone(memory, tmp_path):
    run_tracked("memory", tmp_path / "run")
    log = (tmp_path / "run" / "log.txt").read_text()
    with pytest.raises(FedcanonError, match="exists already"):
        run_tracked("memory", tmp_path / "run")
    assert memory.closed == [True]
    assert (tmp_path / "run" / "log.txt").read_text() == log


def test_a_name_that_does_not_exist_and_a_package_that_is_not_there(monkeypatch, tmp_path):
    with pytest.raises(FedcanonError, match="did you mean 'mlflow'"):
        check_trackers(["mlflw"])
    for name, tracker in TRACKERS.items():
        monkeypatch.setitem(sys.modules, tracker.module, None)
        with (
            pytest.raises(FedcanonError, match=rf'pip install "fedcanon\[{name}\]"'),
            tracking([name], tmp_path),
        ):
            pass


def test_the_command_line_refuses_them_before_anything_is_trained(fedcanon, tmp_path):
    for command in (["run", "--folder", str(tmp_path / "run")], ["resume", "absent"]):
        code, out, err = fedcanon(*command, "--track", "neptune")
        assert code == 2
        assert "there is no tracker called 'neptune': use one of mlflow, tensorboard, wandb." in err
        assert not out
    assert not (tmp_path / "run").exists()


def test_the_command_line_tracks_and_goes_on(memory, fedcanon, tmp_path):
    short = ["--set", "rounds=2", "--set", "model.name=linear", "--folder", str(tmp_path / "run")]
    assert fedcanon("run", *short, "--track", "memory", "--track", "memory")[0] == 0
    assert len(memory.opened) == 1
    resumed = fedcanon("resume", str(tmp_path / "run"), "--rounds", "3", "--track", "memory")
    assert resumed[0] == 0
    assert [t for t, _ in memory.logged["loss"]] == [0, 1, 2, 0, 1, 2, 3]


def test_tables_become_dotted_keys_and_lists_text():
    table = {"seed": 0, "data": {"name": "digits", "augment": ["crop"]}, "a": {"b": {"c": True}}}
    flat = {"seed": 0, "data.name": "digits", "data.augment": "['crop']", "a.b.c": True}
    assert flattened(table) == flat


def test_numbers_leave_out_what_is_missing_or_infinite():
    record = Record(3, 0.5, math.inf, None, 1, 0.5, {"accuracy": 1.0}, {}, [], Cost(), 0.1)
    assert numbers(record).keys().isdisjoint({"objective", "gradient_norm", "round"})
    assert numbers(record)["accuracy"] == 1.0
