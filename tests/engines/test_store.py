"""Where client states are kept."""

import errno
import os
import re
import subprocess
import sys
import textwrap

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcanon import FedcanonError, FedCanonPlus, Federation, Local
from fedcanon.engines import store
from fedcanon.engines.memory import SparseFile
from fedcanon.engines.store import StateStore
from fedcanon.penalties import L1
from tests.problems import quadratics

TEMPLATE = {"v": torch.zeros(5), "w": torch.zeros(2, dtype=torch.float64), "scale": 0.0, "n": 3}


def state(number):
    return {
        "v": torch.full((5,), float(number)),
        "w": torch.full((2,), number / 3, dtype=torch.float64),
        "scale": number / 7,
        "n": number,
    }


def require_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, entry in expected.items():
        assert type(found[name]) is type(entry)
        assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(entry))


@pytest.mark.slow
@given(
    rounds=st.lists(
        st.tuples(st.sets(st.integers(0, 9), min_size=1), st.booleans()), min_size=1, max_size=12
    ),
    on_disk=st.booleans(),
)
def test_a_state_counts_once_its_round_does(rounds, on_disk):
    store, expected = StateStore(10, TEMPLATE, limit=1 if on_disk else 2**20), {}
    for number, (clients, counts) in enumerate(rounds):
        slots = {client: store.reserve() for client in clients}
        for client, slot in slots.items():
            store.write(slot, state(100 * number + client))
        if counts:
            store.commit(slots)
            expected |= {client: state(100 * number + client) for client in clients}
        else:
            store.release(slots)
        assert list(store) == sorted(expected)
        for client in store:
            require_equal(store.read(store.slot(client)), expected[client])
    assert store.slot(77) is None


def test_a_state_keeps_its_entries_and_shapes():
    store = StateStore(2, TEMPLATE)
    slot = store.reserve()
    with pytest.raises(FedcanonError, match="client_init gave it"):
        store.write(slot, {"v": torch.zeros(5)})
    with pytest.raises(FedcanonError, match=r"'v' .* shape \(4,\)"):
        store.write(slot, {**state(1), "v": torch.zeros(4)})


def test_methods_without_states_need_no_memory():
    store = StateStore(10**9, {})
    slots = {5: store.reserve()}
    store.write(slots[5], {})
    store.commit(slots)
    assert store.read(store.slot(5)) == {}


@pytest.mark.slow
def test_memory_grows_with_the_clients_that_took_part_and_not_beyond_the_limit():
    """A hundred thousand clients of 1 MB each, of which 400 take part, in 64 MB."""
    script = """
        import psutil, torch
        from fedcanon.engines.store import StateStore
        vector = torch.ones(2**18)
        store = StateStore(100_000, {"v": vector}, limit=64 * 2**20)
        before = psutil.Process().memory_info().rss
        peak = 0
        for client in range(400):
            slot = store.reserve()
            store.write(slot, {"v": vector * client})
            store.commit({client: slot})
            peak = max(peak, psutil.Process().memory_info().rss - before)
        assert all(float(store.read(store.slot(c))["v"][-1]) == c for c in range(400))
        print(peak / 2**20)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 64 + 16


@pytest.fixture(params=["posix_fallocate", "write"])
def allocation(request, monkeypatch):
    """The call that takes space: macOS has only the second one."""
    if request.param == "write":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    elif not hasattr(os, "posix_fallocate"):
        pytest.skip("this system has no posix_fallocate")
    return request.param


def test_what_is_reserved_takes_space_and_is_empty(allocation):
    file = SparseFile(8 * 2**20, on_disk=True)
    before = os.fstat(file._file).st_blocks
    file.reserve(2**20, 3 * 2**20 + 5)
    assert (os.fstat(file._file).st_blocks - before) * 512 >= 3 * 2**20 + 5
    assert not file.view(0, (8 * 2**20,), torch.uint8).any()
    assert os.fstat(file._file).st_size == 8 * 2**20


def test_a_full_disk_is_found_before_anything_is_written(allocation, monkeypatch):
    store = StateStore(1000, {"v": torch.ones(2**18)}, limit=2**20)
    store.write(store.reserve(), {"v": torch.ones(2**18)})

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, allocation, full)
        expected = r"no disk left .* 1 take 1\.0 MiB each \(No space left.*TMPDIR"
        with pytest.raises(FedcanonError, match=expected):
            store.reserve()
    require_equal(store.read(0), {"v": torch.ones(2**18)})
    store.write(store.reserve(), {"v": torch.full((2**18,), 2.0)})  # there is space again
    require_equal(store.read(1), {"v": torch.full((2**18,), 2.0)})


def test_states_that_no_disk_can_hold_are_refused_before_the_first_round(monkeypatch):
    """A million clients with 400 MB each, of whom a thousand take part."""
    monkeypatch.setattr(store, "_free_bytes", lambda: 50 * 2**30)
    large = StateStore(10**6, {"v": torch.empty(10**8, device="meta")})
    assert large.shortage(130) is None
    expected = r"1,000 clients take 372\.5 GiB, 381\.5 MiB each, .* only 50\.0 GiB: .* TMPDIR"
    assert re.match(f"the states of {expected}", large.shortage(1_000))
    assert StateStore(10**6, {}).shortage(10**6) is None  # FedAvg
    assert StateStore(10, {"v": torch.zeros(5)}).shortage(10**12) is None  # in memory


def test_a_store_is_never_larger_than_the_disk(monkeypatch):
    monkeypatch.setattr(store, "_free_bytes", lambda: 3 * 2**20 + 5)
    small = StateStore(1_000, {"v": torch.ones(2**18)}, limit=2**20)
    for number in range(3):
        small.write(small.reserve(), {"v": torch.full((2**18,), float(number))})
    with pytest.raises(FedcanonError, match=r"no disk left .* 3 take 1\.0 MiB each"):
        small.reserve()


def test_a_federation_says_before_it_begins_that_states_do_not_fit(monkeypatch):
    problem = quadratics(clients=9)
    state = problem.start.nbytes
    monkeypatch.setattr(store, "aligned", lambda size: size)

    def federation(room):
        monkeypatch.setattr(store, "_free_bytes", lambda: room * state)
        engine = Local(state_memory=1)
        return Federation(
            problem, FedCanonPlus(0.1, 0.1, 1), L1(0.1), participants=3, engine=engine
        )

    with pytest.raises(FedcanonError, match="not even one round fits: the states of 3 clients"):
        federation(room=2)
    [warning] = federation(room=4).warnings(rounds=100)
    assert warning.startswith("these rounds may not fit on the disk: the states of 12 clients")
    assert federation(room=12).warnings(rounds=100) == []
