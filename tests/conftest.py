"""Real data where they are, one thread for each test process."""

import os
import tempfile
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)

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
