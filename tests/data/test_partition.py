"""Partitions: every sample once, deterministic, skewed as asked."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcanon import FedcanonError
from fedcanon.data import DATASETS, partition
from fedcanon.data.partition import MINIMUM

labels_of = st.integers(2, 6).flatmap(
    lambda classes: st.lists(st.integers(0, classes - 1), min_size=60, max_size=300)
)


@settings(deadline=None)
@given(
    labels=labels_of,
    clients=st.integers(1, 25),
    spec=st.sampled_from(["iid", "dirichlet:0.01", "dirichlet:0.2", "dirichlet:100"]),
    seed=st.integers(0, 1000),
)
def test_every_sample_goes_to_exactly_one_client_and_none_is_empty(labels, clients, spec, seed):
    targets = torch.tensor(labels)
    parts = partition(spec, targets, clients, np.random.default_rng(seed))
    assert len(parts) == clients
    assert torch.cat(parts).sort().values.tolist() == list(range(len(labels)))
    assert min(len(part) for part in parts) >= MINIMUM
    again = partition(spec, targets, clients, np.random.default_rng(seed))
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))


def mean_distance_from_the_whole(spec):
    """Average total-variation distance of the clients' label histograms from the pooled one."""
    targets = DATASETS["digits"]().train.targets
    whole = torch.bincount(targets, minlength=10) / len(targets)
    parts = partition(spec, targets, 10, np.random.default_rng(0))
    histograms = [torch.bincount(targets[p], minlength=10) / len(p) for p in parts]
    return float(sum((h - whole).abs().sum() / 2 for h in histograms) / len(parts))


def test_smaller_concentration_means_more_skew():
    specs = ("dirichlet:100", "dirichlet:1", "dirichlet:0.2", "dirichlet:0.01")
    distances = [mean_distance_from_the_whole(spec) for spec in specs]
    assert distances == sorted(distances)
    assert distances[-1] > 0.7
    assert mean_distance_from_the_whole("iid") < 0.15


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dirchlet:0.2", "no partition called 'dirchlet'"),
        ("dirichlet", "dirichlet:η"),
        ("dirichlet:much", "a number after the colon"),
        ("dirichlet:-1", "above 0"),
        ("iid:3", "iid or dirichlet"),
    ],
)
def test_a_bad_description_is_explained(spec, message):
    with pytest.raises(FedcanonError, match=message):
        partition(spec, torch.arange(100) % 3, 5, np.random.default_rng(0))


def test_too_few_samples_are_refused():
    with pytest.raises(FedcanonError, match="too few for 60 clients"):
        partition("iid", torch.arange(100) % 3, 60, np.random.default_rng(0))
