"""Sparse files are smaller and hold the same numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from fedcanon import FedcanonError
from fedcanon.export import load_sparse
from fedcanon.export.sparse import save_sparse


def sparse_tensor(shape, zeros, seed, precision=torch.float32):
    rng = torch.Generator().manual_seed(seed)
    tensor = torch.randn(shape, generator=rng, dtype=precision)
    tensor[torch.rand(shape, generator=rng) < zeros] = 0
    return tensor


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    st.integers(0, 2**31),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_every_bit_comes_back(tmp_path_factory, shape, zeros, seed, precision):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    tensors = {
        "layer.weight": sparse_tensor(shape, zeros, seed, precision),
        "count": torch.tensor(7),
        "wide": sparse_tensor((2, 70_000), 0.99, seed, precision),
    }
    save_sparse(tensors, path)
    found = load_sparse(path)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert found[name].numpy().tobytes() == tensor.numpy().tobytes()


def test_only_the_sign_of_zeros_is_lost(tmp_path):
    weight = torch.zeros(3, 9)
    weight[0], weight[1, 1] = -0.0, float("nan")
    save_sparse({"weight": weight}, tmp_path / "model")
    found = load_sparse(tmp_path / "model")["weight"]
    assert torch.equal(found.isnan(), weight.isnan())
    assert not found.signbit()[0].any()


def test_a_weight_with_nine_zeros_in_ten_takes_a_fraction(tmp_path):
    tensors = {
        "fc.weight": sparse_tensor((200, 784), 0.9, 0),
        "conv.weight": sparse_tensor((32, 16, 5, 5), 0.9, 1),
    }
    save_sparse(tensors, tmp_path / "sparse")
    save_file(tensors, tmp_path / "dense")
    ratio = (tmp_path / "sparse").stat().st_size / (tmp_path / "dense").stat().st_size
    assert ratio < 0.17  # 4 + 2 of 4 bytes for a tenth, and the row pointers
    stored = load_file(tmp_path / "sparse")
    assert stored["fc.weight.column_indices"].dtype == torch.uint16
    assert len(stored["conv.weight.row_pointers"]) == 33


def test_what_is_not_sparse_stays_as_it_is(tmp_path):
    tensors = {
        "weight": torch.ones(5, 5),
        "bias": torch.zeros(50),
        "steps": torch.zeros(9, 9).int(),
    }
    save_sparse(tensors, tmp_path / "model")
    assert load_file(tmp_path / "model").keys() == tensors.keys()


def test_other_files_are_refused_in_a_sentence(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(FedcanonError, match="cannot read"):
        load_sparse(path)
    path.write_bytes(b"not safetensors")
    with pytest.raises(FedcanonError, match="cannot read"):
        load_sparse(path)
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(FedcanonError, match="was not written by 'fedcanon export --format sparse'"):
        load_sparse(path)


@pytest.mark.parametrize("part", ["column_indices", "row_pointers"])
def test_indices_that_point_outside_are_refused(tmp_path, part):
    path = tmp_path / "model.safetensors"
    save_sparse({"weight": sparse_tensor((4, 50), 0.9, 0)}, path)
    stored = {name: tensor.long() for name, tensor in load_file(path).items()}
    stored["weight.values"] = stored["weight.values"].float()
    stored[f"weight.{part}"][-1] += 200
    save_file(stored, path, metadata={"csr_shapes": '{"weight": [4, 50]}'})
    with pytest.raises(FedcanonError, match="cannot read"):
        load_sparse(path)


def test_indices_are_kept_in_the_smallest_type(tmp_path):
    for columns, expected in ((200, np.uint8), (300, np.uint16), (70_000, np.uint32)):
        weight = torch.zeros(2, columns)
        weight[0, -1] = 1
        save_sparse({"weight": weight}, tmp_path / "model")
        found = load_file(tmp_path / "model")["weight.column_indices"]
        assert found.numpy().dtype == expected
