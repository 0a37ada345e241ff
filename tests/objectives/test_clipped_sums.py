"""Sums of clipped gradients of single records, against autograd one record at a time."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from torch import distributions, nn
from torch.nn import functional

from fedcanon import FedcanonError, Logistic, Quadratic
from fedcanon.objectives import FlatModule, ModuleObjective, clipping
from fedcanon.objectives.augment import crop, flip
from fedcanon.objectives.cox import Cox
from fedcanon.objectives.families import FAMILIES
from fedcanon.objectives.linear import LinearObjective
from fedcanon.objectives.losses import LOSSES
from fedcanon.objectives.models.resnet import ResNet18
from fedcanon.objectives.multinomial import Multinomial
from fedcanon.objectives.perceptron import perceptron_of
from fedcanon.objectives.remote import Remote

M, D = 30, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(M, D)) * RNG.integers(0, 2, size=(M, D))
X[3] = 0  # a record without features
OFFSET = RNG.normal(size=M) / 3
RESPONSES = {
    "gaussian": RNG.normal(size=M),
    "binomial": RNG.integers(0, 2, M),
    "poisson": RNG.poisson(1.5, M),
    "gamma": RNG.gamma(2.0, size=M),
    "negative_binomial": RNG.poisson(1.5, M),
    "huber": 3 * RNG.normal(size=M),
}
LIKELIHOODS = {
    "gaussian": lambda eta, y: -distributions.Normal(eta, 1.0).log_prob(y),
    "binomial": functional.binary_cross_entropy_with_logits,
    "poisson": lambda eta, y: -distributions.Poisson(eta.exp()).log_prob(y),
    "gamma": lambda eta, y: -distributions.Exponential((-eta).exp()).log_prob(y),
    "negative_binomial": lambda eta, y: (
        -distributions.NegativeBinomial(1.0, logits=eta).log_prob(y)
    ),
    "huber": lambda eta, y: functional.huber_loss(eta, y, delta=1.35),
}
"""The losses of PyTorch, up to what does not depend on η."""

BOUNDS = [0.05, 0.8, 1e300]


def clipped(gradients, bound):
    """The sum of these vectors, each multiplied by min(1, bound/‖g‖)."""
    total = torch.zeros_like(gradients[0])
    for g in gradients:
        norm = float(g.norm())
        total += g if norm <= bound else g * (bound / norm)
    return total


def close(found, expected, atol=1e-10):
    return torch.allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", sorted(FAMILIES))
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("intercept", "free"), [(True, 0), (False, 0), (True, 2), (False, 2)])
def test_linear_models_in_closed_form_are_those_of_autograd(name, kind, intercept, free):
    objective = LinearObjective(
        kind(X), RESPONSES[name], FAMILIES[name](), offset=OFFSET, intercept=intercept, free=free
    )
    x = torch.from_numpy(RNG.normal(size=D + intercept))
    ones = np.ones((M, 1)) if intercept else np.empty((M, 0))
    rows = torch.from_numpy(np.hstack([X, ones]))
    y, offset = torch.tensor(RESPONSES[name], dtype=torch.float64), torch.from_numpy(OFFSET)

    def gradient(j):
        w = x.clone().requires_grad_()
        return torch.autograd.grad(LIKELIHOODS[name](rows[j] @ w + offset[j], y[j]), w)[0]

    for batch in (None, [7], [0, 3, 3, 29]):
        indices = range(M) if batch is None else batch
        for bound in BOUNDS:
            given = None if batch is None else torch.tensor(batch)
            expected = clipped([gradient(j) for j in indices], bound)
            assert close(objective.clipped_sum(x, given, bound), expected)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("intercept", "free"), [(True, 0), (False, 0), (True, 2), (False, 2)])
def test_multinomial_in_closed_form_is_that_of_autograd(kind, intercept, free):
    labels = RNG.integers(0, 3, M)
    objective = Multinomial(kind(X), labels, 3, intercept=intercept, free=free)
    x = torch.from_numpy(RNG.normal(size=objective.layout.size))

    def gradient(j):
        point = x.clone().requires_grad_()
        parts = {slot.name: slot.view(point) for slot in objective.layout}
        weight = parts["weight"]
        if free:
            weight = torch.cat([weight, parts["free"].view(3, free)], 1)
        scores = weight @ torch.from_numpy(X[j]) + parts.get("bias", 0)
        loss = functional.cross_entropy(scores, torch.tensor(labels[j]))
        return torch.autograd.grad(loss, point)[0]

    for bound in BOUNDS:
        expected = clipped([gradient(j) for j in range(M)], bound)
        assert close(objective.clipped_sum(x, None, bound), expected)
    batch = torch.tensor([2, 3, 11])
    assert close(objective.clipped_sum(x, batch, 0.5), clipped([gradient(j) for j in batch], 0.5))


class Shared(nn.Module):
    """A network with a module that is used twice, a tied, a frozen and an unused parameter."""

    def __init__(self):
        super().__init__()
        self.first, self.unused = nn.Linear(6, 6), nn.Parameter(torch.ones(2))
        self.again = self.first
        self.tied, self.last = nn.Linear(6, 6), nn.Linear(6, 3)
        self.tied.weight = self.first.weight
        self.last.bias.requires_grad_(False)

    def forward(self, inputs):
        once = self.first(inputs.flatten(1)).tanh()
        return self.last(self.tied(self.again(once).tanh()))


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4, bias=False), nn.Linear(4, 3)
    )


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 2, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def network(make, loss=None, *, samples=12, dtype=torch.float64, shape=(1, 2, 3), **settings):
    """An objective of a small network, and the inputs and targets of its records."""
    torch.manual_seed(0)
    module = make().to(dtype)
    inputs, targets = torch.randn(samples, *shape, dtype=dtype), torch.randint(3, (samples,))
    loss = loss or nn.CrossEntropyLoss()
    flat = FlatModule(module)
    objective = ModuleObjective(flat, loss, inputs, targets, **settings)
    return objective, flat, inputs, targets


def one_by_one(objective, flat, inputs, targets):
    """The gradients of single records by PyTorch's autograd, on a copy of the module."""
    module = copy.deepcopy(flat.module).train()
    parameters = [p for p in module.parameters() if p.requires_grad]
    for j in range(len(inputs)):
        loss = objective.loss(module(inputs[j : j + 1]), targets[j : j + 1])
        found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        yield torch.cat([g.flatten() for g in found])


@pytest.mark.parametrize("make", [mlp, cnn, Shared])
@pytest.mark.parametrize("limit", [{}, {"ROOM": 1000}, {"WORTH_BATCHING": 0}])
def test_networks_are_those_of_autograd(make, limit, monkeypatch):
    for name, value in limit.items():  # few records at a time, or one by one
        monkeypatch.setattr(f"fedcanon.objectives.module.{name}", value)
    objective, flat, inputs, targets = network(make)
    gradients = list(one_by_one(objective, flat, inputs, targets))
    x = flat.vector.clone()
    for bound in BOUNDS:
        expected = clipped(gradients, bound)
        assert close(objective.clipped_sum(x, None, bound), expected)
        assert close(objective.clipped_sum(flat.vector, None, bound), expected)
    parameters = [p for p in flat.module.parameters() if p.requires_grad]
    assert all(a is b for a, b in zip(parameters, flat.parameters, strict=True))  # as before
    batch = torch.tensor([1, 4, 4])
    expected = clipped([gradients[j] for j in batch], 0.5)
    assert close(objective.clipped_sum(x, batch, 0.5), expected)


def test_a_perceptron_by_hand_is_that_of_autograd():
    objective, flat, inputs, targets = network(mlp)
    by_hand = network(mlp, perceptron=perceptron_of(flat.module, objective.loss))[0]
    gradients = list(one_by_one(objective, flat, inputs, targets))
    for bound in BOUNDS:
        expected = clipped(gradients, bound)
        assert close(by_hand.clipped_sum(flat.vector, None, bound), expected)
    batch = torch.tensor([5, 0])
    expected = clipped([gradients[j] for j in batch], 0.3)
    assert close(by_hand.clipped_sum(flat.vector, batch, 0.3), expected)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_of_networks_has_single_records(name):
    objective, flat, inputs, targets = network(mlp, LOSSES[name]())
    gradients = list(one_by_one(objective, flat, inputs, targets))
    found = objective.clipped_sum(flat.vector, None, 0.4)
    assert close(found, clipped(gradients, 0.4))


@pytest.mark.slow
@pytest.mark.parametrize("worth", [10**9, 0])
def test_a_residual_network_with_group_normalisation(worth, monkeypatch):
    monkeypatch.setattr("fedcanon.objectives.module.WORTH_BATCHING", worth)
    model = ResNet18(norm="group")
    objective, flat, inputs, targets = network(
        lambda: model.build((1, 8, 8), 3), samples=3, dtype=torch.float32, shape=(1, 8, 8)
    )
    gradients = list(one_by_one(objective, flat, inputs, targets))
    found = objective.clipped_sum(flat.vector, None, 0.5)
    assert close(found, clipped(gradients, 0.5), atol=1e-4)


@pytest.mark.parametrize("worth", [10**6, 0])
def test_products_in_bfloat16_are_clipped_all_the_same(worth, monkeypatch):
    monkeypatch.setattr("fedcanon.objectives.module.WORTH_BATCHING", worth)
    objective, flat, inputs, targets = network(mlp, dtype=torch.float32, bfloat16=True)
    gradients = list(one_by_one(objective, flat, inputs, targets))
    found = objective.clipped_sum(flat.vector, None, 0.1)
    assert found.dtype == torch.float32
    assert float((found - clipped(gradients, 0.1)).norm()) < 0.05 * float(found.norm())


def test_dropout_draws_for_every_record_by_itself():
    objective, flat, inputs, _ = network(
        lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 3, bias=False)),
        samples=64,
    )
    inputs.fill_(1)
    objective.targets.fill_(0)
    flat.module.eval()  # as after a measurement; local steps train
    sums = objective.clipped_sum(torch.zeros_like(flat.vector), None, 1e9).view(3, 6)[0]
    # Every summand is 0 or the same: a column counts in how many records its input was kept.
    kept = sums / (-2 / 3 * 2)
    assert torch.allclose(kept, kept.round())
    assert bool(((kept > 8) & (kept < 56)).all())
    assert not bool((kept.round() == 32).all())  # as it would be without dropout


@pytest.mark.parametrize("change", [flip, crop])
def test_augmented_records_are_clipped(change):
    objective, flat, *_ = network(cnn, augment=(change,))
    assert float(objective.clipped_sum(flat.vector, None, 0.1).norm()) <= 12 * 0.1 + 1e-9


OBJECTIVES = {
    "linear": LinearObjective(X, RESPONSES["poisson"], FAMILIES["poisson"]()),
    "sparse": LinearObjective(
        sparse.csr_array(X.astype(np.float32)), RESPONSES["huber"], FAMILIES["huber"]()
    ),
    "multinomial": Multinomial(X, RNG.integers(0, 3, M), 3),
    "network": network(cnn)[0],
    "perceptron": network(
        mlp, perceptron=perceptron_of(mlp(), nn.CrossEntropyLoss()), dtype=torch.float32
    )[0],
}


@given(
    name=st.sampled_from(sorted(OBJECTIVES)),
    bound=st.floats(1e-6, 1e6),
    scale=st.floats(0, 5),
    seed=st.integers(0, 2**32),
)
def test_no_record_counts_more_than_the_bound(name, bound, scale, seed):
    objective, rng = OBJECTIVES[name], np.random.default_rng(seed)
    dtype = torch.float32 if name in ("sparse", "perceptron") else torch.float64
    x = torch.from_numpy(scale * rng.standard_normal(objective.layout.size)).to(dtype)
    batch = torch.from_numpy(np.flatnonzero(rng.random(objective.samples) < 0.5))
    total = objective.clipped_sum(x, batch, bound)
    assert total.dtype == dtype
    assert float(total.norm()) <= bound * len(batch) * (1 + 1e-5)
    for j in batch[:3]:
        assert float(objective.clipped_sum(x, j[None], bound).norm()) <= bound * (1 + 1e-5)
    everything = objective.clipped_sum(x, None, math.inf)
    mean = objective.gradient(x, None)
    size = 1 + float(mean.norm())
    assert close(everything / objective.samples / size, mean / size, atol=1e-5)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_no_record_is_a_sum_of_zero(name):
    objective = OBJECTIVES[name]
    dtype = torch.float32 if name in ("sparse", "perceptron") else torch.float64
    x = torch.ones(objective.layout.size, dtype=dtype)
    found = objective.clipped_sum(x, torch.empty(0, dtype=torch.int64), 1.0)
    assert torch.equal(found, torch.zeros_like(x))


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("worth", [10**6, 0])
def test_a_record_without_a_finite_gradient_counts_as_zero(by_hand, worth, monkeypatch):
    monkeypatch.setattr("fedcanon.objectives.module.WORTH_BATCHING", worth)
    loss = nn.CrossEntropyLoss()
    perceptron = perceptron_of(mlp(), loss) if by_hand else None
    objective, flat, inputs, _ = network(mlp, loss, perceptron=perceptron)
    inputs[4, 0, 0, 0] = math.nan
    inputs[7, 0, 0, 0] = math.inf
    others = torch.tensor([0, 1, 2, 3, 5, 6, 8, 9, 10, 11])
    found = objective.clipped_sum(flat.vector, None, 0.5)
    assert close(found, objective.clipped_sum(flat.vector, others, 0.5))
    assert float(found.norm()) > 0


def test_a_response_without_a_finite_slope_counts_as_zero_or_is_clipped():
    y = RESPONSES["gaussian"].copy()
    y[1], y[2] = math.nan, math.inf
    objective = LinearObjective(X, y, FAMILIES["gaussian"]())
    x = torch.ones(D + 1, dtype=torch.float64)
    assert not objective.clipped_sum(x, torch.tensor([1]), 0.5).any()
    assert float(objective.clipped_sum(x, torch.tensor([2]), 0.5).norm()) == pytest.approx(0.5)


def test_gradients_of_a_network_fit_into_the_room(monkeypatch):
    objective, flat, *_ = network(cnn)
    monkeypatch.setattr("fedcanon.objectives.module.ROOM", 8 * 5 * len(flat.vector))
    seen = []

    def total(gradients, bound):
        seen.append(len(gradients[0]))
        return clipping.clipped_total(gradients, bound)

    monkeypatch.setattr("fedcanon.objectives.module.clipped_total", total)
    objective.clipped_sum(flat.vector, None, 1.0)
    assert seen == [5, 5, 2]


def refuses(objective, words):
    with pytest.raises(FedcanonError, match=words):
        objective.require_records()
    with pytest.raises(FedcanonError, match=words):
        objective.clipped_sum(torch.zeros(objective.layout.size), None, 1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
        lambda: nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), mlp()),
        lambda: nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True), mlp()),
    ],
)
def test_statistics_of_batches_are_refused(make):
    refuses(network(make)[0], "use group normalisation")


def test_what_has_no_single_records_is_refused():
    refuses(Quadratic(torch.ones(2), torch.zeros(2)), "no gradients of single records")
    refuses(Cox(X, np.arange(M), np.ones(M)), "a Cox model has no gradients of single records")
    poisson, weights = FAMILIES["poisson"](), np.arange(1.0, M + 1)
    refuses(
        LinearObjective(X, RESPONSES["poisson"], poisson, weights=weights), "leave the weights out"
    )
    refuses(Multinomial(X, np.zeros(M), 2, weights=weights), "leave the weights out")
    gaps = X.copy()
    gaps[2, 2] = math.nan
    refuses(Logistic(gaps, RESPONSES["binomial"]), "missing or not finite")
    refuses(network(cnn, augment=(lambda images: images.mean(0),))[0], "may mix records")


def test_the_server_of_a_deployment_knows_what_its_clients_can_do():
    x = torch.zeros(D + 1)
    logistic = Remote(Logistic(X, RESPONSES["binomial"]), 30)
    logistic.require_records()
    with pytest.raises(FedcanonError, match="only the client itself"):
        logistic.clipped_sum(x, None, 1.0)
    with pytest.raises(FedcanonError, match="no gradients of single records"):
        Remote(Quadratic(torch.ones(2), torch.zeros(2)), 30).require_records()
