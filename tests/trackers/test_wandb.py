"""What Weights & Biases writes offline is what was recorded."""

import json

import pytest

from tests.trackers.runs import expected, interrupt_tracked, resume_tracked, run_tracked
from tests.waiting import until

pytest.importorskip("wandb")

from wandb.proto.wandb_internal_pb2 import Record

BLOCK, FILE_HEADER, HEADER = 32768, 7, 7
FULL, LAST = 1, 4


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_RUN_ID", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)


def messages(path):
    """All that a .wandb file holds, once its writer, another process, has reached the end."""

    def complete():
        found = list(written(path))
        return found if found and found[-1].HasField("exit") else None

    return until(complete)


def written(path):
    """The protocol buffers of a .wandb file, which is a LevelDB log: records in blocks."""
    content, position, pieces = path.read_bytes(), FILE_HEADER, b""
    while position < len(content):
        left = BLOCK - position % BLOCK
        if left < HEADER:
            position += left
            continue
        length = int.from_bytes(content[position + 4 : position + 6], "little")
        kind, position = content[position + 6], position + HEADER
        pieces, position = pieces + content[position : position + length], position + length
        if kind in (FULL, LAST) and position <= len(content):
            yield Record.FromString(pieces)
            pieces = b""


def offline_runs(folder):
    """The .wandb files, oldest first."""
    return sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_ctime)


def history(path):
    table = {}
    for message in messages(path):
        row = {item.key or item.nested_key[0]: item.value_json for item in message.history.item}
        for name in row.keys() - {"_step", "_runtime", "_timestamp"}:
            pair = json.loads(row["_step"]), json.loads(row[name])
            table.setdefault(name, []).append(pair)
    return table


@pytest.mark.slow
def test_numbers_and_settings_equal_the_records(tmp_path):
    run_tracked("wandb", tmp_path / "run")
    (path,) = offline_runs(tmp_path / "run")
    assert history(path) == expected(tmp_path / "run")
    (begun,) = (message.run for message in messages(path) if message.HasField("run"))
    settings = {item.key or item.nested_key[0]: item.value_json for item in begun.config.update}
    assert json.loads(settings["algorithm.beta"]) == 0.1
    assert (begun.project, begun.display_name) == ("fedcanon", "run")
    assert messages(path)[-1].exit.exit_code == 0


def test_an_interrupted_run_goes_on_under_its_id_and_the_last_file_is_complete(tmp_path):
    interrupt_tracked("wandb", tmp_path / "run")
    resume_tracked("wandb", tmp_path / "run")
    first, last = offline_runs(tmp_path / "run")
    assert first.name == last.name == f"run-{(tmp_path / 'run/wandb_run_id.txt').read_text()}.wandb"
    assert messages(first)[-1].exit.exit_code == 1
    assert history(last) == expected(tmp_path / "run")
