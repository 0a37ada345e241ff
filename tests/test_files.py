"""Files that are there whole or not at all."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from fedcanon.errors import FedcanonError
from fedcanon.files import (
    Count,
    explained,
    new_folder,
    read_json,
    read_json_lines,
    remove_unfinished,
    write_whole,
)

NUMBERS = TypeAdapter(list[Count])


def test_a_file_is_replaced_by_text_or_by_what_a_function_writes(tmp_path):
    path = tmp_path / "a.txt"
    write_whole(path, "κ")
    assert path.read_bytes() == "κ".encode()
    seen = []
    write_whole(path, lambda temporary: (seen.append(temporary), temporary.write_bytes(b"new")))
    assert path.read_bytes() == b"new"
    assert (seen[0].parent, seen[0].suffix) == (tmp_path, ".txt")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError(28, "No space left"), ValueError(), KeyboardInterrupt()])
def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail(temporary):
        temporary.write_text("half")
        raise error

    with pytest.raises(type(error)):
        write_whole(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_on_the_disk_before_it_has_its_name_and_the_name_after(tmp_path, monkeypatch):
    path, synced = tmp_path / "a.txt", []
    flush = os.fsync

    def fsync(handle):
        synced.append((Path(f"/proc/self/fd/{handle}").readlink(), path.exists()))
        flush(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(path, "text")
    (file, early), (folder, late) = synced
    assert (file.parent, file.name[:11], early) == (tmp_path, "unfinished-", False)
    assert (folder, late) == (tmp_path, True)


KILLED = """
import os, signal, sys
from pathlib import Path
from fedcanon.files import write_whole
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
write_whole(Path(sys.argv[1]), "new")
"""


def test_what_a_killed_process_leaves_can_be_removed(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -9
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_has_its_name_once_it_is_complete(tmp_path):
    path = tmp_path / "new" / "folder"
    with pytest.raises(FileNotFoundError), new_folder(path) as folder:
        (folder / "half" / "full").touch()
    assert list(path.parent.iterdir()) == []
    with new_folder(path) as folder:
        (folder / "file").touch()
        assert not path.exists()
    assert [entry.name for entry in path.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o755


def test_errors_of_the_system_become_a_sentence(tmp_path):
    with (
        pytest.raises(FedcanonError, match=r"^cannot do it: No such file or directory\.$"),
        explained("cannot do it"),
    ):
        write_whole(tmp_path / "absent" / "a.txt", "")


DAMAGED = [
    b"",
    b"[1",
    b"{}",
    b"[1.5]",
    b'["1"]',
    b"[true]",
    b"[-1]",
    b"[NaN]",
    b"[9223372036854775808]",
    b"[" + b"9" * 5000 + b"]",
    b"[" * 100_000,
    b"\xff\x00",
    b'"\\ud800"',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_files_are_named(tmp_path, content):
    path = tmp_path / "numbers.json"
    path.write_bytes(content)
    with pytest.raises(FedcanonError, match=r"numbers\.json is damaged \(") as caught:
        read_json(path, NUMBERS)
    assert "\n" not in str(caught.value)
    path.write_bytes(b"[1]\n" + content + b"\n")
    with pytest.raises(FedcanonError, match=r"numbers\.json is damaged \(line 2: "):
        read_json_lines(path, NUMBERS)


def test_whole_files_are_read(tmp_path):
    @dataclass
    class Kept:
        name: str
        numbers: tuple[float, ...]

    path = tmp_path / "kept.json"
    assert read_json(path, NUMBERS) is None
    assert read_json_lines(path, NUMBERS) == []
    path.write_text('{"name": "a", "numbers": [1, Infinity]}')
    assert read_json(path, TypeAdapter(Kept)) == Kept("a", (1.0, float("inf")))
    path.write_text("[1]\n[2, 3]\n[4")  # the last line was cut off
    assert read_json_lines(path, NUMBERS) == [[1], [2, 3]]
    with pytest.raises(FedcanonError, match=r"cannot read .*: Is a directory"):
        read_json(tmp_path, NUMBERS)
