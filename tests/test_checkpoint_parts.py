"""Checkpoints of which only what has changed is written."""

import torch

from fedcanon.checkpoint import Checkpoints, Part

CPU = torch.device("cpu")


def state(t, versions):
    clients = {
        str(client): Part(
            f"{client}-{version}", lambda v=version: {"v": torch.full((3,), float(v))}
        )
        for client, version in versions.items()
    }
    return {"t": t, "clients": clients}


def read(folder):
    found = Checkpoints(folder).load(CPU)
    return found["t"], {c: float(part.read()["v"][0]) for c, part in found["clients"].items()}


def test_parts_are_written_once_and_dropped_when_no_checkpoint_names_them(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state(1, {0: 1, 1: 1}))
    written = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("part-*")}
    checkpoints.save(2, state(2, {0: 1, 1: 2}))
    assert read(tmp_path) == (2, {"0": 1.0, "1": 2.0})
    now = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("part-*")}
    assert len(now) == 3  # the last two checkpoints are kept, and what they name
    assert written.items() <= now.items()
    checkpoints.save(3, state(3, {0: 1, 1: 3}))
    assert read(tmp_path) == (3, {"0": 1.0, "1": 3.0})
    assert sorted(path.name.split("-")[1:3] for path in tmp_path.glob("part-*")) == [
        ["0", "1"],
        ["1", "2"],
        ["1", "3"],
    ]


def test_a_checkpoint_with_a_damaged_or_lost_part_is_passed_over(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state(1, {0: 1}))
    checkpoints.save(2, state(2, {0: 2}))
    [newer] = tmp_path.glob("part-0-2-*")
    content = bytearray(newer.read_bytes())
    content[-1] ^= 1
    newer.write_bytes(content)
    assert read(tmp_path) == (1, {"0": 1.0})
    newer.unlink()
    assert read(tmp_path) == (1, {"0": 1.0})
