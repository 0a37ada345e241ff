"""Real data where they are, one thread for each test process."""

import os
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from fedcanon import cli

torch.set_num_threads(1)
os.environ.setdefault("FEDCANON_WORKERS", "1")  # the tests themselves fill the cores

_BESIDE_THE_PROJECT = Path(__file__).parents[2] / "shared" / "data"
if "FEDCANON_DATA" not in os.environ and _BESIDE_THE_PROJECT.is_dir():
    os.environ["FEDCANON_DATA"] = str(_BESIDE_THE_PROJECT)


@pytest.fixture(scope="session", autouse=True)
def session_cache():
    """A cache of decoded datasets for the tests of one process, removed at its end."""
    with tempfile.TemporaryDirectory(prefix="fedcanon-cache-") as folder:
        before = os.environ.get("FEDCANON_CACHE")
        os.environ["FEDCANON_CACHE"] = folder
        yield
        if before is None:
            del os.environ["FEDCANON_CACHE"]
        else:
            os.environ["FEDCANON_CACHE"] = before


@pytest.fixture
def needs_data():
    """Skip a test whose dataset is absent; in CI, where it is there, fail instead."""

    def check(name: str) -> None:
        folder = Path(os.environ.get("FEDCANON_DATA", "")) / name
        if not ("FEDCANON_DATA" in os.environ and folder.is_dir()):
            reason = f"the dataset {name} is not in FEDCANON_DATA"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)

    return check


@pytest.fixture
def fedcanon(monkeypatch, capsys):
    """Run the command line in this process; the exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedcanon", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        printed = capsys.readouterr()
        return caught.value.code or 0, printed.out, printed.err

    return run
