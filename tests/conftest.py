"""Real data where they are, one thread for each test process."""

import functools
import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest
import torch
import typer.main
import typer.testing

from fedcanon import cli
from fedcanon.cli import progress
from fedcanon.runs import steps
from tests.waiting import PATIENCE

hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")
torch.set_num_threads(1)
# What a shell starts in the background ignores Ctrl-C, and so would every process of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("FEDCANON_WORKERS", "1")  # the tests themselves fill the cores

_BESIDE_THE_PROJECT = Path(__file__).parents[2] / "shared" / "data"
if "FEDCANON_DATA" not in os.environ and _BESIDE_THE_PROJECT.is_dir():
    os.environ["FEDCANON_DATA"] = str(_BESIDE_THE_PROJECT)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
DISTANCE = 8
"""How many other files begin between two deployments."""

IN_CI = os.environ.get("CI") == "true"


def _lacks_data(*names: str) -> str:
    folder = Path(os.environ.get("FEDCANON_DATA", "FEDCANON_DATA"))
    absent = [name for name in names if not (folder / name).is_dir()]
    return f"not in FEDCANON_DATA: {', '.join(absent)}" if absent else ""


def _lacks(library: str) -> str:
    return "" if importlib.util.find_spec(library) else f"{library} is not installed"


LACKS = {
    "data": _lacks_data,
    "browser": lambda: "" if CHROMIUM else "there is no chromium",
    "nginx": lambda: "" if NGINX else "there is no nginx",
    "flower": lambda: _lacks("flwr"),
    "ray": lambda: _lacks("ray"),
}
"""By marker, what is not there of that which a test needs."""


def pytest_xdist_auto_num_workers():
    """One more than there are cores, because tests of deployments mostly wait."""
    return len(os.sched_getaffinity(0)) + 1 if sys.platform == "linux" else None


def pytest_configure(config):
    """One cache of decoded datasets for all test processes, removed at the end."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="fedcanon-cache-")
        config.add_cleanup(folder.cleanup)
        os.environ["FEDCANON_CACHE"] = folder.name


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker("browser")
        if item.get_closest_marker("exhaustive"):
            item.add_marker(pytest.mark.timeout(7200))
    place = {path: k for k, path in enumerate(_in_order(items))}
    items.sort(key=lambda item: place[item.path])


def pytest_collection_finish():
    """Keep the collector from walking through thousands of tests again and again."""
    gc.freeze()


def _in_order(items):
    """Files with slow tests before others, large ones before small; deployments among the first.

    A deployment mostly waits, hence a distance between them: others use the cores meanwhile.
    """
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)

    def has(path, mark):
        return any(item.get_closest_marker(mark) for item in files[path])

    paths = sorted(files, key=lambda path: (not has(path, "slow"), -len(files[path])))
    waiting = [path for path in paths if has(path, "nginx")]
    busy = [path for path in paths if path not in waiting]
    while waiting or busy:
        yield from waiting[:1]
        yield from busy[:DISTANCE]
        del waiting[:1], busy[:DISTANCE]


def pytest_runtest_setup(item):
    """Skip a test for want of a part; in CI, where all parts are there, fail instead."""
    for mark in item.iter_markers():
        if mark.name in LACKS and (reason := LACKS[mark.name](*mark.args)):
            (pytest.fail if IN_CI else pytest.skip)(reason)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """In CI a module whose library is not there (``importorskip``) is a failure as well."""
    report = yield
    if IN_CI and report.skipped:
        report.outcome = "failed"
    return report


def _once(find):
    """What ``find`` has found for the same client, start and draws, without finding it again."""
    found = {}

    @functools.wraps(find)
    def remembered(objective, start, *settings):
        rng = settings[-1]
        gradient = objective.value_and_gradient(start)[1]
        numbers = (start.numpy(force=True).tobytes(), gradient.numpy(force=True).tobytes())
        key = (*numbers, *map(repr, settings[:-1]), repr(rng.bit_generator.state))
        if key not in found:
            found[key] = find(objective, start, *settings), rng.bit_generator.state
        told, rng.bit_generator.state = found[key]
        return told

    return remembered


@pytest.fixture(scope="session", autouse=True)
def steps_found_once():
    """Find automatic step sizes once per client: they take most of the time of a short run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "curvature", _once(steps.curvature))
        patch.setattr(steps, "trial_losses", _once(steps.trial_losses))
        yield


@pytest.fixture(scope="session", autouse=True)
def commands_made_once():
    """Make the command line once: Typer would make all commands anew whenever a test calls one."""
    made = functools.cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", made)
        patch.setattr(typer.testing, "_get_command", made, raising=False)
        yield


@pytest.fixture(scope="module")
def patient_ray():
    """Let Ray's processes take their time: it gives up after half a minute, and has no setting."""
    from ray._private import node

    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=time.sleep, time=time.time)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "time", clock)
        patch.setenv("RAY_worker_register_timeout_seconds", str(PATIENCE))
        yield
    gc.collect()  # files that Ray leaves open are told to the tests that expect it


@pytest.fixture
def fedcanon(monkeypatch, capsys):
    """Run the command line in this process; the exit code, standard output and standard error.

    Lines on how far a command is, which a slow machine would have, are left out.
    """
    monkeypatch.setattr(progress, "EVERY", 1e6)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedcanon", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        printed = capsys.readouterr()
        return caught.value.code or 0, printed.out, printed.err

    return run
