"""Checkpoints write only those client states that have changed, however many there are."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcanon import FedcanonError, Observer, resume, train
from fedcanon.checkpoint import Checkpoints
from fedcanon.engines import batches
from fedcanon.engines.store import StateStore
from fedcanon.runs.folder import RunFolder

CPU = torch.device("cpu")
SETTINGS = {
    "rounds": 4,
    "model": "linear",
    "clients": {"count": 6, "participants": 2},
    "algorithm": {"name": "scaffold", "beta": 0.1},
    "checkpoint": {"rounds": 1, "keep": 2},
}


@pytest.fixture
def a_file_for_each(monkeypatch):
    """Every state is large enough for a file of its own."""
    monkeypatch.setattr(batches, "FULL", 1)


class Parts(Observer):
    """Notes which files of client states there are after each round."""

    def __init__(self, folder):
        self.folder, self.seen = folder, []

    def round(self, t):
        self.seen.append({path.name for path in self.folder.glob("checkpoints/part-*")})


def states(folder):
    """The newest state of every client in the newest checkpoint."""
    found = {}
    for part in RunFolder(folder).checkpoints.load(CPU)["engine"]["clients"].values():
        content = part.read()
        for k, client in enumerate(content["clients"].tolist()):
            found[client] = {name: rows[k] for name, rows in content["states"].items()}
    return found


@pytest.mark.usefixtures("a_file_for_each")
def test_only_what_has_changed_is_written(tmp_path):
    parts = Parts(tmp_path / "run")
    train(SETTINGS, folder=tmp_path / "run", observers=[parts])
    written = [
        after - before for before, after in zip([set(), *parts.seen], parts.seen, strict=False)
    ]
    assert [len(new) for new in written] == [2, 2, 2, 2]
    [newest] = sorted((tmp_path / "run" / "checkpoints").glob("round-*"))[-1:]
    assert newest.stat().st_size < 20_000


@pytest.mark.usefixtures("a_file_for_each")
def test_what_has_not_changed_is_not_written_again_by_a_resumed_run(tmp_path):
    train(SETTINGS, rounds=2, folder=tmp_path / "run")
    before = {path.name for path in (tmp_path / "run").glob("checkpoints/part-*")}
    parts = Parts(tmp_path / "run")
    resume(tmp_path / "run", rounds=4, observers=[parts])
    assert before & parts.seen[0]


@pytest.mark.parametrize("full", [1, 10_000, batches.FULL])
def test_a_resumed_run_has_the_same_bits(full, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "FULL", full)
    whole = train(SETTINGS, folder=tmp_path / "whole")
    train(SETTINGS, rounds=2, folder=tmp_path / "run")
    resumed = resume(tmp_path / "run", rounds=4)
    assert torch.equal(resumed.vector, whole.vector)
    one, other = states(tmp_path / "whole"), states(tmp_path / "run")
    assert one.keys() == other.keys()
    for client, state in one.items():
        for name, vector in state.items():
            assert torch.equal(vector, other[client][name])


def test_a_damaged_part_that_all_checkpoints_need_is_named(tmp_path):
    train(SETTINGS, folder=tmp_path / "run")
    for part in (tmp_path / "run" / "checkpoints").glob("part-*"):
        content = bytearray(part.read_bytes())
        content[-1] ^= 1
        part.write_bytes(content)
    history = (tmp_path / "run" / "history.jsonl").read_bytes()
    with pytest.raises(FedcanonError, match=r"part-\w+-\w+\.safetensors is damaged.*put back"):
        resume(tmp_path / "run", rounds=6)
    assert (tmp_path / "run" / "history.jsonl").read_bytes() == history  # nothing was begun anew
    for part in (tmp_path / "run" / "checkpoints").glob("part-*"):
        part.unlink()
    with pytest.raises(FedcanonError, match=r"part-\w+ is missing.*put back"):
        resume(tmp_path / "run", rounds=6)


def test_a_checkpoint_of_another_method_is_refused(tmp_path):
    store, other = (StateStore(3, {name: torch.zeros(2)}) for name in "vw")
    store.replace_all({1: {"v": torch.ones(2)}})
    with pytest.raises(ValueError, match="another method"):
        other.load(store.parts())
    longer = StateStore(3, {"v": torch.zeros(3)})
    with pytest.raises(ValueError, match="entry 'v' of its clients' states is of another model"):
        longer.load(store.parts())


TEMPLATE = {"v": torch.zeros(6), "n": 0, "scale": 0.0, "empty": torch.zeros(0, 3)}
SIZE = StateStore(1, TEMPLATE).state_size


def number(state):
    """What was written into a state, if all of it is of the same round."""
    assert torch.equal(state["v"], torch.full((6,), float(state["n"])))
    assert state["scale"] == state["n"] / 7
    assert state["empty"].shape == (0, 3)
    return state["n"]


@pytest.mark.slow
@settings(max_examples=60)
@given(
    rounds=st.lists(
        st.tuples(
            st.sets(st.integers(0, 19), max_size=12),
            st.sampled_from(["save", "look", "go on", "resume", "start over"]),
        ),
        min_size=1,
        max_size=15,
    ),
    full=st.integers(1, 30),
    keep=st.integers(1, 3),
)
def test_whatever_happens_the_newest_states_are_read(rounds, full, keep, tmp_path_factory):
    """Rounds after which a checkpoint is written, or made and not written, or nothing happens."""
    folder = tmp_path_factory.mktemp("checkpoints")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "FULL", full * SIZE)
        store, expected, saved = StateStore(20, TEMPLATE), {}, {}
        for t, (clients, what) in enumerate(rounds, start=1):
            slots = {client: store.reserve() for client in clients}
            for slot in slots.values():
                new = {"v": torch.full((6,), float(t)), "n": t, "scale": t / 7}
                store.write(slot, {**new, "empty": torch.zeros(0, 3)})
            store.commit(slots)
            expected |= dict.fromkeys(clients, t)
            if what == "save":
                Checkpoints(folder, keep).save(t, {"clients": store.parts()})
                saved = dict(expected)
            elif what == "look":
                store.parts()
            elif what == "start over":
                store.replace_all({c: store.read(store.slot(c)) for c in list(store)[::2]})
                expected = {c: expected[c] for c in store}
            elif what == "resume" and saved:
                store, expected = StateStore(20, TEMPLATE), dict(saved)
                store.load(Checkpoints(folder, keep).load(CPU)["clients"])
            assert {c: number(store.read(store.slot(c))) for c in store} == expected


@pytest.mark.slow
def test_bytes_and_files_do_not_grow_with_the_clients(tmp_path, monkeypatch):
    """Of 3,000 states 30 change between checkpoints: these and a bounded rest are written."""
    monkeypatch.setattr(batches, "FULL", 100 * SIZE)
    store, checkpoints = StateStore(3_000, TEMPLATE), Checkpoints(tmp_path)
    store.replace_all(dict.fromkeys(range(3_000), TEMPLATE))
    checkpoints.save(0, {"clients": store.parts()})
    draws = torch.Generator().manual_seed(0)
    written, files = [], []
    for t in range(1, 200):
        before = {path.name for path in tmp_path.iterdir()}
        slots = {c: store.reserve() for c in torch.randperm(3_000, generator=draws)[:30].tolist()}
        for slot in slots.values():
            store.write(slot, {**TEMPLATE, "n": t})
        store.commit(slots)
        checkpoints.save(t, {"clients": store.parts()})
        new = [path for path in tmp_path.iterdir() if path.name not in before]
        written.append(sum(path.stat().st_size for path in new))
        files.append(len(list(tmp_path.iterdir())))
    total = 3_000 * SIZE
    assert max(written) < 0.15 * total  # 30 changed and at most 100 others, with their names
    assert sum(written) / len(written) < 0.05 * total
    on_disk = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert on_disk < 3 * total
    assert max(files) < 120
