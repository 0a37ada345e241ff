"""Datasets are decoded once, and the cache is whole whatever happens to a process."""

import dataclasses
import json
import os
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest
import torch

from fedcanon import FedcanonError
from fedcanon.data import DATASETS, cache
from fedcanon.data.sources import SOURCES
from tests.data.written import leaf, pixels, put, write_idx
from tests.forked import run_script


@pytest.fixture
def mnist(data):
    """A small MNIST; gives its folder in the cache."""
    write_idx(data / "mnist", ".gz")
    return data.parent / "cache" / "mnist"


@pytest.fixture
def decodings(monkeypatch):
    """The decodings of MNIST so far."""
    source, calls = SOURCES["mnist"], []

    def decode(folder, files):
        calls.append(folder)
        return source.decode(folder, files)

    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(source, decode=decode))
    return calls


def load():
    return DATASETS["mnist"]()


def same(one, other):
    return all(
        getattr(one, part).inputs.equal(getattr(other, part).inputs)
        and getattr(one, part).targets.equal(getattr(other, part).targets)
        for part in ("train", "test")
    )


def entry(place):
    (tensors,) = place.glob("*.pt")
    return tensors


def test_the_second_load_does_not_decode_or_read_the_files(mnist, data, monkeypatch):
    first = load()

    def fail(*_):
        raise AssertionError

    source = dataclasses.replace(SOURCES["mnist"], decode=fail)
    monkeypatch.setitem(SOURCES, "mnist", source)
    monkeypatch.setattr(cache, "_sha256", fail)
    second = load()
    assert same(first, second)
    assert (first.note, first.classes, first.name) == (second.note, second.classes, second.name)


def test_a_changed_file_is_decoded_and_an_old_one_comes_back(mnist, data, decodings):
    first = load()
    write_idx(data / "mnist", ".gz", train=30)
    assert len(load().train) == 30
    write_idx(data / "mnist", ".gz")
    assert same(load(), first)
    assert len(decodings) == 2


def test_a_file_that_is_only_touched_is_read_but_not_decoded(mnist, data, decodings):
    first = load()
    for path in (data / "mnist").iterdir():
        os.utime(path)
    assert same(load(), first)
    assert len(decodings) == 1


def test_a_new_decoder_decodes_again(mnist, decodings, monkeypatch):
    load()
    newer = dataclasses.replace(SOURCES["mnist"], version=SOURCES["mnist"].version + 1)
    monkeypatch.setitem(SOURCES, "mnist", newer)
    load()
    assert len(decodings) == 2


def test_sparse_inputs_and_users_are_cached(data):
    put(data / "a9a" / "a9a", b"-1 3:1 11:1\n+1 1:1 123:0.5\n")
    put(data / "a9a" / "a9a.t", b"+1 2:1\n")
    first, second = (DATASETS["a9a"]() for _ in range(2))
    assert np.array_equal(first.train.inputs.toarray(), second.train.inputs.toarray())
    assert second.train.inputs.format == "csr"
    assert second.test.inputs.shape == (1, 123)
    for part in ("train", "test"):
        put(data / "femnist" / part / "a.json", leaf({"f1": (pixels(2, 28, 28), [1, 2])}))
    assert DATASETS["femnist"]().train.users.tolist() == [0, 0]
    assert DATASETS["femnist"]().train.users.tolist() == [0, 0]


def test_writing_to_a_dataset_does_not_change_the_cache(mnist):
    first = load()
    kept = first.train.inputs.clone()
    first.train.inputs.zero_()
    assert torch.equal(load().train.inputs, kept)


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, flip, os.unlink])
@pytest.mark.parametrize("suffix", [".pt", ".json"])
def test_a_damaged_entry_is_rebuilt(mnist, decodings, damage, suffix):
    kept = load().train.inputs.clone()
    damage(entry(mnist).with_suffix(suffix))
    assert torch.equal(load().train.inputs, kept)
    assert torch.equal(load().train.inputs, kept)
    assert len(decodings) <= 2


def test_a_damaged_stamp_is_written_again(mnist, decodings):
    first = load()
    (stamp,) = (mnist / "stamps").iterdir()
    stamp.write_text("")
    assert same(load(), first)
    assert stamp.read_text() in entry(mnist).name
    assert len(decodings) == 1


def test_the_record_has_size_and_checksum(mnist):
    load()
    record = json.loads(entry(mnist).with_suffix(".json").read_text())
    assert record["size"] == entry(mnist).stat().st_size
    assert record["sha256"] == cache._sha256(entry(mnist))


def test_an_error_while_decoding_leaves_nothing(mnist, data, decodings):
    path = data / "mnist" / "t10k-labels-idx1-ubyte.gz"
    good = path.read_bytes()
    path.write_bytes(good[:-9])
    with pytest.raises(FedcanonError, match="damaged"):
        load()
    assert not list(mnist.glob("*.pt*"))
    path.write_bytes(good)
    assert len(load().train) == 20


def test_an_error_while_writing_leaves_nothing_and_is_explained(mnist, monkeypatch):
    def full(_, path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(FedcanonError, match=r"No space left .* FEDCANON_CACHE"):
            load()
    assert not list(mnist.glob("*.p*"))
    assert len(load().train) == 20


def test_a_cache_that_cannot_be_made_is_explained(mnist, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("FEDCANON_CACHE", str(tmp_path / "file"))
    with pytest.raises(FedcanonError, match=r"cannot be written .* FEDCANON_CACHE"):
        load()


def test_a_source_that_cannot_be_read_is_named(data):
    (data / "folder").mkdir(parents=True)
    with pytest.raises(FedcanonError, match=r"cannot be read: .*folder"):
        cache.cached("some", 1, data, [data / "folder"], load)


def start(code):
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


KILLED = """
import os, signal
from fedcanon.data import DATASETS
flush, left = os.fsync, [{syncs}]
def fsync(descriptor):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    flush(descriptor)
os.fsync = fsync
DATASETS["mnist"]()
"""


@pytest.mark.parametrize("syncs", [1, 3, 5])  # a file, its folder, the next file, …
def test_a_process_killed_while_it_writes_leaves_no_half_entry(mnist, decodings, syncs, tmp_path):
    """Killed before the stamp, the tensors or their record were in place."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED.format(syncs=syncs))
    assert run_script(script)[0] == -signal.SIGKILL
    assert list(mnist.rglob("unfinished-*"))
    assert not list(mnist.glob("[!u]*.json"))
    assert len(load().train) == 20
    assert not list(mnist.glob("unfinished-*"))
    assert len(decodings) == 1
    load()
    assert len(decodings) == 1


AT_THE_SAME_TIME = """
import dataclasses, time
from fedcanon.data import DATASETS
from fedcanon.data.sources import SOURCES
source = SOURCES["mnist"]
def decode(folder, files):
    print("decoded")
    time.sleep(1)
    return source.decode(folder, files)
SOURCES["mnist"] = dataclasses.replace(source, decode=decode)
print("ready", flush=True)
input()
print(len(DATASETS["mnist"]().train), "samples")
"""


@pytest.mark.slow
def test_of_processes_that_load_at_the_same_time_one_decodes(mnist):
    processes = [start(AT_THE_SAME_TIME) for _ in range(3)]
    assert all(process.stdout.readline() == "ready\n" for process in processes)
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    results = [process.communicate() for process in processes]
    assert all(process.returncode == 0 for process in processes), results
    output = "".join(out for out, _ in results)
    assert output.count("20 samples") == 3
    assert output.count("decoded") == 1


@pytest.mark.data("fashion_mnist")
def test_cached_fashion_mnist_is_mapped_and_not_read():
    DATASETS["fashion_mnist"]()
    before = psutil.Process().io_counters().read_chars
    dataset = DATASETS["fashion_mnist"]()
    assert psutil.Process().io_counters().read_chars - before < 2**20
    assert dataset.train.inputs.nbytes == 60_000 * 28 * 28 * 4
