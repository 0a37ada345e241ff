"""Full and read-only disks and folders that are gone end in a sentence."""

import re
import shutil
import stat
import subprocess
import sys

import pytest

from fedcanon import FedcanonError, Observer, resume, train
from fedcanon.files import unfinished
from fedcanon.runs.config import make_config
from fedcanon.runs.folder import RunFolder

SMALL = {"rounds": 4, "model": "linear", "clients": {"count": 3}, "checkpoint": {"rounds": 1}}

FULL = """
import resource, sys
from fedcanon import FedcanonError, Observer, train
from fedcanon.export import Format, save

class Fills(Observer):
    def round(self, t):
        if t == 2:  # from here on, no file may have more bytes
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

try:
    result = train(%r, folder=sys.argv[1], observers=[Fills()])
except FedcanonError as error:
    print(error)
"""

FULL_EXPORT = """
import resource, sys
from pathlib import Path
from fedcanon import FedcanonError, load
from fedcanon.export import Format, save

model = load(sys.argv[1]).model
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
for kind in (Format.SAFETENSORS, Format.PYTORCH, Format.PROGRAM, Format.SPARSE):
    try:
        save(model, (64,), Path(sys.argv[1]) / f"model{kind.suffix}", kind)
    except FedcanonError as error:
        print(error)
"""


def printed(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_disk_that_is_really_full(tmp_path):
    folder = tmp_path / "run"
    told = printed(FULL % SMALL, folder)
    assert re.search(r"the disk of .* is full: free some space\..*fedcanon resume", told), told
    assert not list(folder.rglob("unfinished-*"))
    assert resume(folder).last.round == 4


@pytest.mark.slow
def test_an_export_to_a_full_disk(tmp_path):
    train(SMALL, folder=tmp_path / "run")
    told = printed(FULL_EXPORT, tmp_path / "run").splitlines()
    assert len(told) == 4
    assert all(line.startswith("cannot write ") for line in told)


class Meddles(Observer):
    """Does something to the folder after two rounds."""

    def __init__(self, action):
        self._action = action

    def round(self, t):
        if t == 2:
            self._action()


def test_a_folder_that_is_deleted_during_the_run(tmp_path):
    folder = tmp_path / "run"
    gone = Meddles(lambda: shutil.rmtree(folder))
    with pytest.raises(FedcanonError, match="cannot go on: No such file or directory"):
        train(SMALL, folder=folder, observers=[gone])


def test_a_folder_in_which_nothing_can_be_written(tmp_path):
    train(SMALL, folder=tmp_path / "run")
    (tmp_path / "run" / ".lock").unlink(missing_ok=True)
    (tmp_path / "run" / ".lock").mkdir()  # as good as read-only, also for an administrator
    with pytest.raises(FedcanonError, match=r"cannot write to .*run"):
        resume(tmp_path / "run", rounds=5)


def test_a_place_for_a_run_that_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FedcanonError, match="cannot make the folder"):
        train(SMALL, folder=tmp_path / "file" / "run")


@pytest.mark.parametrize("text", ["I/O error: No space left on device (os error 28)"])
def test_errors_of_libraries_become_errors_of_the_system(tmp_path, text):
    with pytest.raises(OSError, match="No space left") as caught, unfinished(tmp_path / "a"):
        raise RuntimeError(text)
    assert caught.value.errno == 28
    with pytest.raises(RuntimeError, match="other"), unfinished(tmp_path / "a"):
        raise RuntimeError("some other fault")


def test_a_line_of_the_log_stays_one_line_of_text(tmp_path):
    run = RunFolder(tmp_path)
    run.log("client 3 says \x1b[2J\nand \u202emore")
    [line] = (tmp_path / "log.txt").read_text().splitlines()
    assert line.endswith(r"client 3 says \x1b[2J\nand \u202emore")


def test_the_run_of_a_deployment_is_for_its_owner_alone(tmp_path):
    modes = {}
    for engine in ("deployed", "serial"):
        config = make_config(None, {"engine": {"name": engine}})
        folder = RunFolder.create(tmp_path / "new" / engine, config).path
        modes[engine] = stat.S_IMODE(folder.stat().st_mode)
    assert modes["deployed"] == 0o700
    assert modes["serial"] != 0o700
