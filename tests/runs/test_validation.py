"""Samples held out of every client take the place of the test data."""

import pytest
import torch

from fedcanon import FedcanonError, build, load_config
from fedcanon.data import DATASETS
from fedcanon.data.partition.base import MINIMUM, held_out_of_each
from fedcanon.randomness import Purpose, generator
from fedcanon.runs.build import divide_dataset
from fedcanon.runs.config import changed


def test_every_sample_is_kept_or_held_out_and_none_is_both():
    config, digits = load_config(), DATASETS["digits"]()
    _, before = divide_dataset(config, digits)
    share = 0.25
    divided, parts = divide_dataset(changed(config, {"data.validation": share}), digits)
    held = sum(min(int(share * len(part)), len(part) - MINIMUM) for part in before)
    assert len(divided.test) == held
    for part, whole in zip(parts, before, strict=True):
        assert set(part.tolist()) <= set(whole.tolist())
        assert len(part) == len(whole) - min(int(share * len(whole)), len(whole) - MINIMUM)
    kept = torch.cat(parts)
    both = torch.cat([divided.train.inputs[kept], divided.test.inputs]).flatten(1)
    assert sorted(both.tolist()) == sorted(digits.train.inputs.flatten(1).tolist())
    assert "validation on 25% of each client's samples" in divided.note


def test_runs_without_validation_are_as_they_were():
    digits = DATASETS["digits"]()
    divided, _ = divide_dataset(load_config(), digits)
    assert divided.test is digits.test
    data = build(load_config(settings=["data.validation=0.5", "model.name=linear"])).problem.data
    assert data.total < 0.6 * len(digits.train)


def test_clients_keep_enough_to_train_on():
    rng = generator(0, Purpose.PARTITION)
    kept, held = held_out_of_each([torch.arange(3), torch.arange(3, 40)], 0.9, rng)
    assert [len(part) for part in kept] == [2, 37 - 33]
    assert len(held) == 34
    with pytest.raises(FedcanonError, match="no client has enough samples to hold 90%"):
        held_out_of_each([torch.arange(2)], 0.9, rng)


@pytest.mark.parametrize("share", ["1", "-0.1", "x"])
def test_a_share_is_between_0_and_1(share):
    with pytest.raises(FedcanonError, match=r"data\.validation"):
        load_config(settings=[f"data.validation={share}"])
