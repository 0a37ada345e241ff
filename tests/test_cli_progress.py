"""Commands whose output goes into a file say on standard error what they do, and how far it is."""

import threading
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

from fedcanon.cli import progress
from tests.waiting import PATIENCE

SHORT = ["--set", "rounds=3", "--set", "model.name=linear"]


@pytest.fixture
def every_time(fedcanon, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    monkeypatch.setattr("fedcanon.cli.progress.stage", nullcontext)


def test_a_run_tells_its_rounds_measures_and_the_time_left(fedcanon, every_time, tmp_path):
    code, out, err = fedcanon("run", *SHORT, "--folder", str(tmp_path / "run"))
    assert code == 0
    lines = err.splitlines()
    assert [line.split(" · ")[0] for line in lines] == [f"round {t} of 3" for t in (1, 2, 3)]
    assert all(" left · loss " in line and "accuracy" in line for line in lines)
    assert "round 1" not in out


def test_a_short_command_is_not_interrupted_by_lines(fedcanon, tmp_path):
    _, _, err = fedcanon("run", *SHORT, "--folder", str(tmp_path / "run"))
    assert err == ""


def test_a_stage_without_steps_says_now_and_then_that_it_goes_on(capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.001)
    said, seen = threading.Event(), progress.say
    monkeypatch.setattr(progress, "say", lambda text: (seen(text), said.set()))
    with progress.stage("estimating L …"):
        assert said.wait(PATIENCE)
    assert capsys.readouterr().err.splitlines()[0] == "estimating L … (0 s so far)"


def test_lines_are_so_far_apart_however_many_parts_there_are(capsys, monkeypatch):
    assert progress.EVERY == 10.0
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    progress.say("begin")
    for part in range(6):  # of four seconds each, in two steps
        with progress.meter(f"part {part}: step", 2) as tell:
            for step in (1, 2):
                now += 2.0
                tell(step, "")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "begin",
        "part 2: step 1 of 2 · about 2 s left",
        "part 4: step 2 of 2 · about 0 s left",
    ]


def test_a_resumed_run_is_not_thought_faster_than_it_is(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    progress.say("begin")
    with progress.meter("round", 100, done=90) as tell:
        now = 20.0
        tell(92, "")
    assert capsys.readouterr().err.splitlines()[-1] == "round 92 of 100 · about 80 s left"


def test_parts_of_the_paper_are_counted(capsys, every_time):
    with progress.Bars().steps("theorems", 3) as done:
        done()
        done()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" · ")[0] for line in lines] == ["theorems 1 of 3", "theorems 2 of 3"]


@pytest.mark.slow
def test_a_study_tells_how_far_it_is_and_prints_nothing_but_results(fedcanon, every_time, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=60), "ill": np.arange(60) % 2})
    table.to_csv(tmp_path / "site.csv", index=False)
    options = ("--label", "ill", "--cv", "2", "--report", str(tmp_path / "report.html"))
    code, out, err = fedcanon("glm", str(tmp_path / "site.csv"), *options)
    assert code == 0, err
    assert err.splitlines()[0].startswith("following the path 1 of ")
    assert "following" not in out
    assert "preparing" not in out


def test_a_comparison_of_attacks_names_each_of_them(fedcanon, every_time):
    code, out, err = fedcanon("attack", *SHORT, "--rule", "mean", "--attack", "sign_flip")
    assert code == 0, err
    lines = err.splitlines()
    assert [line.rpartition(" · ")[2] for line in lines] == [
        "mean against nobody",
        "mean against sign_flip",
    ]
    assert lines[0].startswith("run 0 of 2")
    assert "against" not in out
