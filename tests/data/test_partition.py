"""Partitions: every sample once, deterministic, skewed as asked."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fedcanon import FedcanonError, build, load_config
from fedcanon.data import DATASETS, MINIMUM, Partition, Split, make_partition, partition
from fedcanon.data.partition import PARTITIONS
from fedcanon.data.partition.skew import label_counts, label_skew, size_skew
from fedcanon.randomness import Purpose, generator

labels_of = st.integers(2, 6).flatmap(
    lambda classes: st.lists(st.integers(0, classes - 1), min_size=60, max_size=300)
)
SPECS = [
    "iid",
    "dirichlet:1e-300",
    "dirichlet:0.01",
    "dirichlet:0.2",
    "dirichlet:100",
    "quantity:0.01",
    "quantity:1",
    "shards:1",
    "shards:2",
    "noise:0.5",
]


def draw(seed=0):
    return np.random.default_rng(seed)


def assert_exactly_once(parts, samples):
    assert torch.cat(parts).sort().values.tolist() == list(range(samples))
    assert min(len(part) for part in parts) >= MINIMUM


@settings(deadline=None)
@given(
    labels=labels_of,
    clients=st.integers(1, 25),
    spec=st.sampled_from(SPECS),
    seed=st.integers(0, 1000),
)
def test_every_sample_goes_to_exactly_one_client_and_none_is_empty(labels, clients, spec, seed):
    targets = torch.tensor(labels)
    parts = partition(spec, targets, clients, draw(seed))
    assert len(parts) == clients
    assert_exactly_once(parts, len(labels))
    again = partition(spec, targets, clients, draw(seed))
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=5, max_size=60),
    eta=st.sampled_from([0.01, 0.5, 100]),
    clients=st.integers(1, 30),
    seed=st.integers(0, 1000),
)
def test_writers_stay_whole(sizes, eta, clients, seed):
    users = torch.from_numpy(draw(seed).permutation(np.repeat(np.arange(len(sizes)) * 7, sizes)))
    targets = users % 3
    if sum(size >= MINIMUM for size in sizes) < clients or sum(sizes) < clients * MINIMUM:
        with pytest.raises(FedcanonError, match="too few for"):
            partition(f"writers:{eta}", targets, clients, draw(seed), users)
        return
    parts = partition(f"writers:{eta}", targets, clients, draw(seed), users)
    assert len(parts) == clients
    assert_exactly_once(parts, len(users))
    assert sum(len(users[part].unique()) for part in parts) == len(sizes)
    again = partition(f"writers:{eta}", targets, clients, draw(seed), users)
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))


def test_small_concentration_deals_writers_unevenly():
    users = torch.arange(3000) // 10
    even, uneven = (
        size_skew(label_counts(users * 0, partition(spec, users * 0, 20, draw(), users), 1))
        for spec in ("writers:100", "writers:0.05")
    )
    assert even < 0.3 < 1 < uneven


def test_one_client_for_each_user():
    users = torch.tensor([5, 9, 5, 2, 9, 2, 2])
    parts = partition("users", users % 2, 3, draw(), users)
    assert [part.tolist() for part in parts] == [[3, 5, 6], [0, 2], [1, 4]]
    with pytest.raises(FedcanonError, match="number of clients must be 3, not 2"):
        partition("users", users % 2, 2, draw(), users)
    with pytest.raises(FedcanonError, match="1 of 3 users have fewer than 2 samples"):
        partition("users", users[:6] % 2, 3, draw(), torch.tensor([5, 9, 5, 2, 9, 5]))


def counts_of(spec, clients=10, seed=0):
    targets = DATASETS["digits"]().train.targets
    return label_counts(targets, partition(spec, targets, clients, draw(seed)), 10)


def test_smaller_concentration_means_more_label_skew():
    specs = ("dirichlet:100", "dirichlet:1", "dirichlet:0.2", "dirichlet:0.01")
    skews = [label_skew(counts_of(spec)) for spec in specs]
    assert skews == sorted(skews)
    assert skews[-1] > 0.7
    assert label_skew(counts_of("iid")) < 0.15


def test_smaller_concentration_means_more_size_skew_but_the_same_labels():
    counts = [counts_of(f"quantity:{eta}") for eta in (100, 1, 0.1)]
    skews = [size_skew(c) for c in counts]
    assert skews == sorted(skews)
    assert skews[-1] > 1
    assert label_skew(counts[0]) < 0.15
    assert size_skew(counts_of("iid")) < 0.01


@pytest.mark.parametrize("s", [1, 2, 3])
def test_shards_limit_the_labels_of_a_client(s):
    counts = counts_of(f"shards:{s}", clients=20)
    assert ((counts > 0).sum(1) <= 2 * s).all()
    assert size_skew(counts) < 0.02


def test_a_huge_concentration_is_even():
    assert size_skew(counts_of("dirichlet:1e308")) < 0.02


def test_the_partition_of_the_default_run_does_not_change():
    targets = DATASETS["digits"]().train.targets
    parts = partition("dirichlet:0.2", targets, 10, generator(0, Purpose.PARTITION))
    assert [len(part) for part in parts] == [97, 180, 144, 136, 77, 149, 183, 257, 191, 23]


def test_noise_grows_with_the_client_and_is_drawn_once():
    split = Split(torch.zeros(6000, 2, 5), torch.arange(6000) % 3)
    rule = make_partition("noise:0.8")

    def noisy(seed):
        rng = draw(seed)
        parts = rule.parts(split.targets, 4, rng)
        return rule.distort(split, parts, rng), parts

    distorted, parts = noisy(0)
    levels = [float(distorted.inputs[part].std()) for part in parts]
    assert levels == pytest.approx([0.2, 0.4, 0.6, 0.8], rel=0.03)
    assert not split.inputs.any()
    assert torch.equal(distorted.inputs, noisy(0)[0].inputs)
    assert not torch.equal(distorted.inputs, noisy(1)[0].inputs)
    assert make_partition("iid").distort(split, parts, draw()) is split


@pytest.mark.parametrize("inputs", [sparse.csr_array((8, 3)), torch.zeros(8, 3, dtype=torch.int64)])
def test_noise_needs_real_dense_inputs(inputs):
    split = Split(inputs, torch.arange(8) % 2)
    with pytest.raises(FedcanonError, match="dense inputs"):
        make_partition("noise:1").distort(split, [torch.arange(8)], draw())


def test_noise_reaches_the_clients_of_a_run():
    def losses(spec):
        run = ["data.name=breast_cancer", "model.name=logistic", f"data.partition={spec}"]
        problem = build(load_config(settings=run)).problem
        x = torch.ones_like(problem.start)
        return np.array([client.value(x) for client in problem.clients]), problem.test(x)

    (plain, plain_test), (noisy, noisy_test) = losses("iid"), losses("noise:1.0")
    assert (plain != noisy).all()
    assert abs(plain - noisy)[0] < abs(plain - noisy)[-1]
    assert plain_test == noisy_test


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec", ["dirichlet:0.01", "quantity:0.01", "shards:2", "writers:0.1", "users"]
)
def test_a_hundred_thousand_clients(spec):
    """Seconds of work; a rule that looks at every sample for each client runs into the limit."""
    rng = draw()
    targets = torch.from_numpy(rng.integers(0, 62, 1_000_000))
    users = torch.from_numpy(rng.permutation(1_000_000) % 100_000)
    parts = partition(spec, targets, 100_000, rng, users)
    assert len(parts) == 100_000
    assert min(map(len, parts)) >= MINIMUM
    assert len(torch.cat(parts).unique()) == 1_000_000


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dirchlet:0.2", "no partition called 'dirchlet'"),
        ("dirichlet", "number after a colon, such as dirichlet:0.2"),
        ("dirichlet:much", "number after a colon"),
        ("dirichlet:-1", "above 0"),
        ("dirichlet:nan", "above 0"),
        ("quantity:inf", "finite"),
        ("noise:0", "above 0"),
        ("shards:2.5", "whole number after a colon, such as shards:2"),
        ("shards:0", "above 0"),
        ("shards:30", "too few for 5 clients of 30 shards"),
        ("iid:3", "written without ':3'"),
        ("users", "does not know its users"),
        ("writers:1", "does not know its users"),
    ],
)
def test_a_bad_description_is_explained(spec, message):
    with pytest.raises(FedcanonError, match=message):
        partition(spec, torch.arange(100) % 3, 5, draw())


def test_too_few_samples_are_refused():
    with pytest.raises(FedcanonError, match="too few for 60 clients"):
        partition("iid", torch.arange(100) % 3, 60, draw())


class TestFlower:
    """Flower's own partitioners through the adapter."""

    targets = torch.arange(1437) % 10

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("IidPartitioner", {}),
            ("LinearPartitioner", {}),
            ("DirichletPartitioner", {"alpha": 0.3, "min_partition_size": 5}),
            (
                "PathologicalPartitioner",
                {"num_classes_per_partition": 2, "class_assignment_mode": "deterministic"},
            ),
        ],
    )
    def test_parts_are_those_of_flower_on_the_shuffled_samples(self, name, options):
        import datasets
        from flwr_datasets import partitioner

        written = ",".join(f"{key}={value}" for key, value in options.items())
        parts = partition(f"flower:{name}:{written}", self.targets, 12, draw(3))
        assert_exactly_once(parts, len(self.targets))

        rng = draw(3)
        samples = rng.permutation(len(self.targets))
        if name in {"DirichletPartitioner", "PathologicalPartitioner"}:
            options |= {"partition_by": "label", "seed": int(rng.integers(2**31))}
        theirs = getattr(partitioner, name)(num_partitions=12, **options)
        theirs.dataset = datasets.Dataset.from_dict(
            {"at": np.arange(len(samples)), "label": self.targets.numpy()[samples]}
        )
        for number, part in enumerate(parts):
            assert part.tolist() == samples[theirs.load_partition(number)["at"][:]].tolist()

    @pytest.mark.parametrize("k", [1, 2, 5])
    def test_pathological_gives_every_client_exactly_k_classes(self, k):
        parts = partition(f"pathological:{k}", self.targets, 20, draw())
        assert_exactly_once(parts, len(self.targets))
        assert {len(self.targets[part].unique()) for part in parts} == {k}

    def test_natural_ids_are_users(self):
        users = torch.arange(1437) // 200
        parts = partition("flower:NaturalIdPartitioner", self.targets, 8, draw(), users)
        assert all(len(users[part].unique()) == 1 for part in parts)
        ours = partition("users", self.targets, 8, draw(), users)
        assert [part.sort().values.tolist() for part in parts] == [part.tolist() for part in ours]

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("flower", "no partitioner ''"),
            ("flower:VerticalEvenPartitioner", "no partitioner 'VerticalEvenPartitioner' of sam"),
            ("flower:IidPartitioner:3", "written key=value, not '3'"),
            ("flower:IidPartitioner:speed=3", "refuses: .*unexpected keyword argument 'speed'"),
            ("flower:DirichletPartitioner", "refuses: .*'alpha'"),
            ("flower:NaturalIdPartitioner", "refuses: Column .user. not in table"),
            ("flower:ShardPartitioner:num_shards_per_partition=2", "leaves 37 of 1437 samples out"),
            ("flower:NaturalIdPartitioner:partition_by=label", "makes 10 clients of these data"),
            ("flower:DirichletPartitioner:alpha=0.01,min_partition_size=0", "leaves a client with"),
            ("pathological:11", "refuses: .*greater than the number of unique classes"),
            ("pathological:x", "such as pathological:2"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, spec, message):
        with pytest.raises(FedcanonError, match=message):
            partition(spec, self.targets, 20, draw())

    def test_without_flower_the_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "flwr_datasets.partitioner", None)
        with pytest.raises(FedcanonError, match=r"pip install 'fedcanon\[data\]'"):
            partition("pathological:2", self.targets, 10, draw())


def test_every_partition_says_what_it_is_in_one_line():
    for rule in PARTITIONS.values():
        assert issubclass(rule, Partition)
        assert (rule.__doc__ or "").partition("\n")[0].endswith(".")
