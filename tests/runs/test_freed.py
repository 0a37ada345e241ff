"""What a run has used is given back when it ends, without the help of the garbage collector.

A sweep, or a table of the paper, trains hundreds of models in one process.
"""

import gc
import mmap
import weakref

import numpy as np
import pytest
import torch

from fedcanon.checkpoint import read_tree, write_tree
from fedcanon.errors import DivergenceError
from fedcanon.runs.training import resume, train

SMALL = {"rounds": 2, "model": "linear"}
METHOD = {"name": "feddr", "beta": 0.1, "eta": 1.0}


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def mapped(monkeypatch, no_collector):
    """References to all memory that is mapped."""
    found, real = [], mmap.mmap

    def noted(*args):
        memory = real(*args)
        found.append(weakref.ref(memory))
        return memory

    monkeypatch.setattr(mmap, "mmap", noted)
    return found


def left(references):
    return [each() for each in references if each() is not None]


def test_no_memory_of_clients_is_left(mapped, tmp_path):
    train(**SMALL, algorithm=METHOD, folder=tmp_path / "run")
    before = len(mapped)
    resume(tmp_path / "run", rounds=4)
    assert len(mapped) > before > 0
    assert not left(mapped)


def test_nor_after_a_run_that_diverges(mapped, tmp_path):
    diverged = False
    try:  # pytest.raises would keep the frames of the run
        train(**SMALL, algorithm={**METHOD, "beta": 1e30}, folder=tmp_path / "run")
    except DivergenceError:
        diverged = True
    assert diverged
    assert mapped
    assert not left(mapped)


def test_a_state_that_was_written_or_read_is_not_kept(no_collector, tmp_path):
    array, path = np.zeros(3), tmp_path / "state.safetensors"
    written = weakref.ref(array)
    write_tree(path, {"v": torch.from_numpy(array)})
    del array
    assert written() is None
    state = read_tree(path, torch.device("cpu"))
    found = weakref.ref(state["v"])
    del state
    assert found() is None
