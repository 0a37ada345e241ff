"""Checkpoints of a simulation write only those large client states that have changed."""

import pytest
import torch

from fedcanon import Observer, resume, train
from fedcanon.engines import local
from fedcanon.runs.folder import RunFolder

SETTINGS = {
    "rounds": 4,
    "model": "linear",
    "clients": {"count": 6, "participants": 2},
    "algorithm": {"name": "scaffold", "beta": 0.1},
    "checkpoint": {"rounds": 1, "keep": 2},
}


@pytest.fixture(autouse=True)
def small_states_are_large(monkeypatch):
    monkeypatch.setattr(local, "LARGE", 1)


class Parts(Observer):
    """Notes which files of client states there are after each round."""

    def __init__(self, folder):
        self.folder, self.seen = folder, []

    def round(self, t):
        self.seen.append({path.name for path in self.folder.glob("checkpoints/part-*")})


def test_only_what_has_changed_is_written(tmp_path):
    parts = Parts(tmp_path / "run")
    train(SETTINGS, folder=tmp_path / "run", observers=[parts])
    written = [
        after - before for before, after in zip([set(), *parts.seen], parts.seen, strict=False)
    ]
    assert [len(new) for new in written] == [2, 2, 2, 2]
    [newest] = sorted((tmp_path / "run" / "checkpoints").glob("round-*"))[-1:]
    assert newest.stat().st_size < 20_000


def test_a_resumed_run_has_the_same_bits_and_keeps_the_files(tmp_path):
    whole = train(SETTINGS, folder=tmp_path / "whole")
    train(SETTINGS, rounds=2, folder=tmp_path / "run")
    before = {path.name for path in (tmp_path / "run").glob("checkpoints/part-*")}
    parts = Parts(tmp_path / "run")
    resumed = resume(tmp_path / "run", rounds=4, observers=[parts])
    assert torch.equal(resumed.vector, whole.vector)
    assert before & parts.seen[0]  # what has not changed is not written again
    states = [
        RunFolder(tmp_path / name).checkpoints.load(torch.device("cpu"))["engine"]["clients"]
        for name in ("whole", "run")
    ]
    assert states[0].keys() == states[1].keys()
    for client, part in states[0].items():
        for name, vector in part.read().items():
            assert torch.equal(vector, states[1][client].read()[name])


def test_checkpoints_without_parts_are_still_read(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "LARGE", 10**9)
    whole = train(SETTINGS, folder=tmp_path / "whole")
    train(SETTINGS, rounds=2, folder=tmp_path / "run")
    assert not list((tmp_path / "run").glob("checkpoints/part-*"))
    monkeypatch.setattr(local, "LARGE", 1)
    assert torch.equal(resume(tmp_path / "run", rounds=4).vector, whole.vector)
    assert list((tmp_path / "run").glob("checkpoints/part-*"))
