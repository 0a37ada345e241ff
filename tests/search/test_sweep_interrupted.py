"""A sweep that is killed or stopped in the middle, and called again."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from fedcanon.runs.folder import RunFolder
from fedcanon.search.goal import Goal
from fedcanon.search.sampler import Sampler
from fedcanon.search.space import parse_space
from fedcanon.search.sweep import Sweep, run_sweep
from tests.search.held import MARK
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SETTINGS = ("data.name=breast_cancer", "model.name=tests.search.held:linear", "rounds=40")
SETTINGS += ("checkpoint.rounds=10", "evaluate.every=20")
OVER = ("algorithm.beta=0.01,0.03,0.1", "seed=0,1")
COMMAND = ["sweep", "--workers", "2"]
COMMAND += [word for over in OVER for word in ("--over", over)]
COMMAND += [word for setting in SETTINGS for word in ("--set", setting)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What the sweep finds when nothing happens to it."""
    folder = tmp_path_factory.mktemp("undisturbed") / "s"
    sweep = Sweep(None, SETTINGS, parse_space(OVER), Goal(), Sampler.grid)
    run_sweep(sweep, folder, 2, lambda done, trials: None)
    return (folder / "trials.csv").read_text(encoding="utf-8")


def begin(folder, **options):
    """The sweep in a process of its own; some runs have ended, and each worker holds another."""
    command = [sys.executable, "-m", "fedcanon", *COMMAND, "--folder", str(folder)]
    process = start(command, env={**os.environ, "HOLD": "1"}, **options)
    wait(process, lambda: len(list(folder.glob(f"trial-*/{MARK}"))) == 2)
    return process


def start(command, **options):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **pipes, **options)


def wait(process, happened):
    until(happened, alive=lambda: process.poll() is None)


def finished(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("trial-*/result.json")}


def check_the_rest(fedcanon, folder, undisturbed):
    """Calling the same command again gives what an undisturbed sweep gives, and no more."""
    done = finished(folder)
    assert 0 < len(done) < 6
    code, _, err = fedcanon(*COMMAND, "--folder", str(folder))
    assert code == 0, err
    assert (folder / "trials.csv").read_text(encoding="utf-8") == undisturbed
    runs = [RunFolder(path) for path in sorted(folder.glob("trial-*"))]
    assert len(runs) == 6
    assert all(run.status == "finished" for run in runs)
    after = finished(folder)
    assert {path: after[path] for path in done} == done  # nothing was repeated
    logs = [(run.path / "log.txt").read_text(encoding="utf-8") for run in runs]
    assert any(re.search(r"resumed after round [1-9]", log) for log in logs)


def test_killed(fedcanon, tmp_path, undisturbed):
    folder = tmp_path / "s"
    process = begin(folder)
    process.kill()
    process.communicate()
    until(lambda: all(run.status != "running" for run in map(RunFolder, folder.glob("trial-*"))))
    check_the_rest(fedcanon, folder, undisturbed)


def the_sentence(err):
    """What was said last; before it, nothing but how far the sweep had come."""
    *progress, sentence = err.splitlines()
    assert all(re.match(r"run \d of \d", line) for line in progress), err
    return sentence


@pytest.mark.parametrize("whom", ["terminal", "process"])
def test_stopped(fedcanon, tmp_path, undisturbed, whom):
    """Ctrl-C goes to all processes of a terminal, and ``kill -INT`` to one."""
    folder = tmp_path / "s"
    process = begin(folder, start_new_session=True)
    if whom == "terminal":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert the_sentence(err).startswith("stopped: the same command goes on")
    check_the_rest(fedcanon, folder, undisturbed)


def test_a_worker_is_killed(fedcanon, tmp_path, undisturbed):
    folder = tmp_path / "s"
    process = begin(folder)
    os.kill(next(w for server in children(process.pid) for w in children(server)), signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert the_sentence(err).startswith("error: a worker process was ended from outside")
    check_the_rest(fedcanon, folder, undisturbed)


def test_an_idle_worker_is_killed_while_the_other_one_trains(tmp_path):
    """It dies with the lock of the queue, for which the other one must not wait forever."""
    folder = tmp_path / "s"
    command = [sys.executable, "-m", "fedcanon", "sweep", "--workers", "2", "--set", SETTINGS[0]]
    command += ["--set", SETTINGS[1], "--over", "rounds=10,1000000", "--folder", str(folder)]
    command += ["--set", "checkpoint.rounds=10"]
    process = start(command)
    trains = folder / "trial-0001-seed-0"
    ended = folder / "trial-0000-seed-0" / "result.json"
    wait(process, lambda: ended.is_file() and list(trains.glob("checkpoints/round-*")))
    workers = [worker for server in children(process.pid) for worker in children(server)]
    idle = [worker for worker in workers if not has_open(worker, trains / ".lock")]
    assert (len(workers), len(idle)) == (2, 1)
    os.kill(idle[0], signal.SIGKILL)
    try:
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        for pid in (process.pid, *workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert process.returncode == 2
    assert the_sentence(err).startswith("error: a worker process was ended from outside")


def has_open(pid, path):
    return any(link.resolve() == path.resolve() for link in Path(f"/proc/{pid}/fd").iterdir())


def children(pid):
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def test_another_process_is_at_it(fedcanon, tmp_path):
    command = ["sweep", "--over", "rounds=1", "--set", "model.name=linear"]
    command += ["--folder", str(tmp_path / "s")]
    assert fedcanon(*command)[0] == 0
    with FileLock(tmp_path / "s" / ".lock"):
        code, _, err = fedcanon(*command)
    assert code == 2
    assert "is going on in another process" in err
