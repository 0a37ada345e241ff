"""Runs with automatic steps that diverge go back, and reach the end with smaller steps."""

import math

import pytest
import torch

from fedcanon import DivergenceError, FedcanonError
from fedcanon.algorithms import Facts
from fedcanon.runs import steps
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.guard import MOST_RETURNS, Guard
from fedcanon.runs.observers import Observer
from fedcanon.runs.training import resume, train

RUN = {"rounds": 20, "penalty": "zero", "clients": {"count": 4}, "checkpoint": {"rounds": 1}}
BUFFERS = torch.empty(0)


@pytest.fixture
def too_large_steps(monkeypatch):
    """Trials that recommend steps with which the default network diverges."""
    monkeypatch.setattr(steps, "find_facts", lambda *_: Facts(1 / 2, tried=True))


class Events(Observer):
    def __init__(self):
        self.messages = []

    def event(self, message):
        self.messages.append(message)


class StopAfter(Observer):
    def __init__(self, rounds):
        self.rounds = rounds

    def round(self, t):
        if t == self.rounds:
            raise FedcanonError("stopped for the test")


@pytest.mark.slow
def test_a_run_goes_back_and_goes_on(too_large_steps, tmp_path):
    events = Events()
    result = train(RUN, folder=tmp_path / "run", observers=[events])
    assert result.last.round == 20
    assert result.last.loss < result.records[0].loss
    scale = result.last.diagnostics["step_scale"]
    assert scale == 0.5 ** len(events.messages) < 1
    assert "going back to the best model" in events.messages[0]
    assert events.messages[0] in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.slow
def test_the_same_in_processes(too_large_steps):
    serial, processes = (
        train(RUN, engine={"name": name, "vectorised": False, **workers})
        for name, workers in (("serial", {}), ("processes", {"workers": 2}))
    )
    assert torch.equal(serial.vector, processes.vector)
    assert serial.last.diagnostics == processes.last.diagnostics


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 5, 9])
def test_a_run_that_went_back_resumes_to_the_same_bits(too_large_steps, tmp_path, stop):
    whole = train(RUN, folder=tmp_path / "whole")
    with pytest.raises(FedcanonError, match="stopped for the test"):
        train(RUN, folder=tmp_path / "parts", observers=[StopAfter(stop)])
    parts = resume(tmp_path / "parts")
    assert torch.equal(whole.vector, parts.vector)
    histories = [
        [(record.round, record.loss) for record in RunFolder(tmp_path / name).records()]
        for name in ("whole", "parts")
    ]
    assert histories[0] == histories[1]


def test_steps_that_were_given_end_the_run():
    given = {"name": "fedcanon+", "alpha": 300.0, "beta": 30.0, "gain": "off", "accelerated": False}
    with pytest.raises(DivergenceError):
        train(RUN, algorithm=given)


@pytest.mark.parametrize(
    ("objectives", "verdicts"),
    [
        ([1.0, 0.5, 0.6, 0.7], [False] * 4),
        ([1.0, 0.5, 2.1], [False, False, True]),
        ([1.0, 0.5, math.nan], [False, False, True]),
        ([1.0, 0.5, math.inf], [False, False, True]),
        ([1.0, 0.2, *[0.7] * 5], [False] * 6 + [True]),
        ([1.0, 0.2, *[0.7] * 4, 0.3, 0.7], [False] * 8),
        ([-1.0, -2.0, -1.9, 0.1], [False, False, False, True]),
        ([math.inf, 3.0, 2.0], [False] * 3),
    ],
)
def test_when_a_run_diverges(objectives, verdicts):
    guard = Guard()
    z = torch.zeros(2)
    assert [guard.diverges(value, z, BUFFERS) for value in objectives] == verdicts


def test_the_model_to_go_back_to_is_the_best_one():
    guard, models = Guard(), [torch.full((2,), float(i)) for i in range(4)]
    for value, z in zip((3.0, 1.0, 2.0, 7.0), models, strict=True):
        guard.diverges(value, z, BUFFERS)
    copy = Guard()
    copy.load(guard.state())
    for one in (guard, copy):
        model, _ = one.go_back()
        assert torch.equal(model, models[1])


def test_a_model_that_is_hardly_better_than_the_start_is_not_good():
    guard, z = Guard(), torch.zeros(2)
    for value, gained in ((2.3, False), (2.25, False), (2.0, True)):
        guard.diverges(value, z, BUFFERS)
        assert guard.has_gained == gained


def test_a_run_that_never_stops_diverging_ends():
    guard = Guard()
    guard.diverges(1.0, torch.zeros(2), BUFFERS)
    assert all(guard.go_back() for _ in range(MOST_RETURNS))
    assert guard.go_back() is None
