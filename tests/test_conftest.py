"""What a test needs and is not there: left out on a user's machine, a failure in CI."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MODULES = {
    "without_data": """
import pytest

@pytest.mark.data("no such dataset")
def test_never_runs():
    raise AssertionError
""",
    "without_library": """
import pytest

pytest.importorskip("no_such_library")
""",
    "for_a_reason": """
import pytest

def test_on_a_gpu():
    pytest.skip("no CUDA")
""",
}


def test_every_test_has_a_limit():
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 900


@pytest.mark.slow
@pytest.mark.parametrize(("ci", "found"), [("false", "3 skipped"), ("true", "1 skipped, 2 errors")])
def test_for_want_of_parts(tmp_path, ci, found):
    for name, text in MODULES.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-q", tmp_path]
    command += ["-p", "tests.conftest", "--continue-on-collection-errors"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", f"--rootdir={tmp_path}"],
        cwd=ROOT,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1].startswith(f"{found} in"), done.stdout + done.stderr
