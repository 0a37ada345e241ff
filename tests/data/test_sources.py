"""Datasets by name."""

import pytest
import torch

from fedcanon import FedcanonError
from fedcanon.data import DATASETS


@pytest.mark.parametrize(
    ("name", "train", "test", "shape", "classes"),
    [("digits", 1437, 360, (64,), 10), ("breast_cancer", 455, 114, (30,), 2)],
)
def test_bundled_datasets(name, train, test, shape, classes):
    dataset = DATASETS[name]()
    assert (len(dataset.train), len(dataset.test)) == (train, test)
    assert (dataset.shape, dataset.classes) == (shape, classes)
    assert set(dataset.train.targets.tolist()) == set(range(classes))
    again = DATASETS[name]()
    assert torch.equal(dataset.train.inputs, again.train.inputs)


def test_a9a(needs_data):
    needs_data("a9a")
    dataset = DATASETS["a9a"]()
    assert (len(dataset.train), len(dataset.test)) == (32_561, 16_281)
    assert dataset.train.inputs.shape == (32_561, 123)
    assert dataset.test.inputs.shape == (16_281, 123)
    assert (dataset.train.inputs.nnz, dataset.test.inputs.nnz) == (451_592, 225_731)
    assert int(dataset.train.targets.sum()) == 7_841
    assert int(dataset.test.targets.sum()) == 3_846


def test_an_absent_dataset_says_what_to_put_where(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDCANON_DATA", str(tmp_path))
    with pytest.raises(FedcanonError, match=r"a9a\.t .* into .*a9a"):
        DATASETS["a9a"]()
