"""Synthetic(α, β): each knob moves what it names, and nothing else."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fedcanon import FedcanonError
from fedcanon.data.synthetic import synthetic

CLIENTS = 12


def client_data(alpha, beta, seed):
    data = synthetic(alpha, beta, clients=CLIENTS, d=10, classes=3, seed=seed).train
    for user in range(CLIENTS):
        mine = data.users == user
        yield data.inputs[mine].numpy(), data.targets[mine].numpy()


def distance_between_optima(alpha, seed):
    """Mean distance of the directions that logistic regression finds on single clients."""
    directions = []
    for inputs, labels in client_data(alpha, 0.0, seed):
        if len(np.unique(labels)) == 3:
            model = LogisticRegression(max_iter=1000).fit(inputs, labels)
            weights = np.column_stack([model.coef_, model.intercept_])
            directions.append(weights / np.linalg.norm(weights))
    pairs = [(a, b) for i, a in enumerate(directions) for b in directions[:i]]
    return np.mean([np.linalg.norm(a - b) for a, b in pairs])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_models_differ_more_as_alpha_grows(seed):
    distances = [distance_between_optima(alpha, seed) for alpha in (0.0, 0.5, 1.0)]
    assert distances == sorted(distances)
    assert distances[2] > 2 * distances[0]


def test_inputs_differ_in_proportion_to_beta():
    def spread(beta):
        means = np.array([inputs.mean(0) for inputs, _ in client_data(1.0, beta, 0)])
        return np.linalg.norm(means - means.mean(0), axis=1).mean()

    assert spread(0.0) < 0.2
    assert spread(2.0) == pytest.approx(2 * spread(1.0), rel=0.05)
    assert spread(1.0) > 10 * spread(0.0)


def test_alpha_changes_labels_only():
    one, other = synthetic(alpha=0.0), synthetic(alpha=1.0)
    assert torch.equal(one.train.inputs, other.train.inputs)
    assert (one.train.targets != other.train.targets).float().mean() > 0.3


def test_without_heterogeneity_one_linear_model_fits_all_clients():
    data = synthetic(alpha=0.0, beta=0.0, d=10, classes=3)
    model = LogisticRegression(C=1e4, max_iter=5000).fit(data.train.inputs, data.train.targets)
    assert model.score(data.test.inputs, data.test.targets) > 0.98


def test_covariance_of_the_inputs():
    data = synthetic(beta=0.0, clients=60).train
    variances = data.inputs.var(0).numpy()
    np.testing.assert_allclose(variances, np.arange(1, 61) ** -1.2, rtol=0.1)


def test_shapes_and_clients():
    data = synthetic()
    assert (data.name, data.shape, data.classes, data.note) == ("synthetic", (60,), 10, "")
    assert data.train.inputs.dtype == torch.float32
    assert data.train.targets.dtype == torch.int64
    for split in (data.train, data.test):
        assert set(split.users.tolist()) == set(range(30))
        assert 0 <= int(split.targets.min()) <= int(split.targets.max()) < 10
    sizes = torch.bincount(data.train.users) + torch.bincount(data.test.users)
    assert int(sizes.min()) >= 50
    assert sizes.max() > 10 * sizes.min()
    assert len(data.test) / int(sizes.sum()) == pytest.approx(0.1, abs=0.01)


def test_the_seed_determines_everything():
    one, same, other = synthetic(seed=1), synthetic(seed=1), synthetic(seed=2)
    assert torch.equal(one.train.inputs, same.train.inputs)
    assert torch.equal(one.train.targets, same.train.targets)
    assert torch.equal(one.test.users, same.test.users)
    assert len(one.train) != len(other.train)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"alpha": 1.5}, r"alpha = 1\.5 must lie between 0 .* and 1"),
        ({"beta": -1.0}, r"beta = -1\.0 must be at least 0"),
        ({"clients": 0}, "clients = 0 must be at least 1"),
        ({"d": 0}, "d = 0 must be at least 1"),
        ({"classes": 1}, "classes = 1 must be at least 2"),
    ],
)
def test_mistakes(option, message):
    with pytest.raises(FedcanonError, match=message):
        synthetic(**option)
