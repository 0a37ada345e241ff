"""The real datasets: counts, labels and content are those that their authors published."""

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from fedcanon import FedcanonError
from fedcanon.data import DATASETS
from fedcanon.data.dataset import held_out
from fedcanon.data.sources import SOURCES, cifar10, cinic10, femnist, tiny_imagenet
from tests.data.written import as_bytes, idx


def folder(name):
    return Path(os.environ["FEDCANON_DATA"]) / name


def histogram(split, classes):
    return torch.bincount(split.targets, minlength=classes).tolist()


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


def test_digits_are_those_of_scikit_learn():
    images, labels = load_digits(return_X_y=True)
    found = DATASETS["digits"]()
    for mine, theirs in zip(
        (found.train, found.test), held_out(images / 16, labels, strata=labels), strict=True
    ):
        assert mine.inputs.dtype == theirs.inputs.dtype
        assert mine.targets.dtype == theirs.targets.dtype
        assert torch.equal(mine.inputs, theirs.inputs)
        assert torch.equal(mine.targets, theirs.targets)


def libsvm(split):
    """The text that the official files hold."""
    matrix = split.inputs
    lines = []
    for row, label in enumerate(split.targets.tolist()):
        columns = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        lines.append(f"{'+1' if label else '-1'} {''.join(f'{c + 1}:1 ' for c in columns)}\n")
    return "".join(lines).encode()


@pytest.mark.data("a9a")
def test_a9a():
    dataset = DATASETS["a9a"]()
    assert dataset.note == ""
    assert dataset.train.inputs.shape == (32_561, 123)
    assert dataset.test.inputs.shape == (16_281, 123)
    assert (dataset.train.inputs.nnz, dataset.test.inputs.nnz) == (451_592, 225_731)
    assert (dataset.train.inputs.data == 1).all()
    assert (dataset.test.inputs.data == 1).all()
    assert histogram(dataset.train, 2) == [24_720, 7_841]
    assert histogram(dataset.test, 2) == [12_435, 3_846]
    for split, sha256 in (
        (dataset.train, "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
        (dataset.test, "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
    ):
        assert hashlib.sha256(libsvm(split)).hexdigest() == sha256


MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
IDX_FILES = {
    "mnist": {
        "train-images-idx3": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
    "fashion_mnist": {
        "train-images-idx3": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train", "test", "mean", "std"),
    [
        ("mnist", MNIST_TRAIN, MNIST_TEST, 0.1307, 0.3081),
        ("fashion_mnist", [6_000] * 10, [1_000] * 10, 0.2860, 0.3530),
    ],
)
@pytest.mark.data("mnist", "fashion_mnist")
def test_mnist_and_fashion_mnist(name, train, test, mean, std):
    dataset = DATASETS[name]()
    assert (dataset.shape, dataset.classes, dataset.note) == ((1, 28, 28), 10, "")
    assert (histogram(dataset.train, 10), histogram(dataset.test, 10)) == (train, test)
    assert abs(float(dataset.train.inputs.mean())) < 1e-3
    assert abs(float(dataset.train.inputs.std()) - 1) < 1e-3
    for prefix, split in (("train", dataset.train), ("t10k", dataset.test)):
        assert split.inputs.dtype == torch.float32
        assert split.targets.dtype == torch.int64
        decoded = {
            "images-idx3": idx(as_bytes(split.inputs, mean, std)[:, 0]),
            "labels-idx1": idx(split.targets.to(torch.uint8).numpy()),
        }
        for kind, content in decoded.items():
            packed = (folder(name) / f"{prefix}-{kind}-ubyte.gz").read_bytes()
            assert hashlib.sha256(packed).hexdigest() == IDX_FILES[name][f"{prefix}-{kind}"]
            assert gzip.decompress(packed) == content


CIFAR10_MD5 = [
    "5dd7e06a14cb22eb9f671a540d1b7c25",
    "5ea93a67294ea407fff1d09f752e9692",
    "942cd6a4bcdd0dd3c604fbe906cb4421",
    "ae636b3ba5c66a11e91e8cb52e771fcb",
    "53f37980c15c3d472c316c40844f3f0d",
    "803d5f7f4d78ea53de84dbe85f74fb6d",
]


@pytest.mark.slow
@pytest.mark.data("cifar10")
def test_cifar10():
    dataset = DATASETS["cifar10"]()
    assert (dataset.shape, dataset.classes, dataset.note) == ((3, 32, 32), 10, "")
    assert histogram(dataset.train, 10) == [5_000] * 10
    assert histogram(dataset.test, 10) == [1_000] * 10
    md5 = []
    for split in (dataset.train, dataset.test):
        images = as_bytes(split.inputs, cifar10.MEAN, cifar10.STD).reshape(len(split), -1)
        records = np.column_stack([split.targets.to(torch.uint8).numpy(), images])
        parts = np.split(records, len(records) // 10_000)
        md5 += [hashlib.md5(part.tobytes()).hexdigest() for part in parts]
    assert md5 == CIFAR10_MD5


@pytest.mark.slow
@pytest.mark.data("femnist")
def test_femnist():
    dataset = DATASETS["femnist"]()
    assert (dataset.shape, dataset.classes) == ((1, 28, 28), 62)
    assert dataset.note == (
        "subset: 300 of 3,550 writers, with 41,495 training and 4,763 test samples"
    )
    for split, digits, capitals, small in (
        (dataset.train, 29_289, 6_170, 6_036),
        (dataset.test, 3_341, 721, 701),
    ):
        counts = np.array(histogram(split, 62))
        assert (counts > 0).all()
        assert counts[:10].sum() == digits
        assert counts[10:36].sum() == capitals
        assert counts[36:].sum() == small
    by_writer = np.bincount(dataset.train.users)
    assert len(by_writer) == 300
    assert (by_writer.min(), by_writer.max(), np.median(by_writer)) == (2, 320, 150.5)
    by_writer = np.bincount(dataset.test.users)
    assert len(by_writer) == 300
    assert (by_writer.min(), by_writer.max()) == (1, 36)
    for split, part, sha256 in (
        (
            dataset.train,
            "train",
            "5b97f3a9a803708562ee97d2ef699c8663ad1edf03c84f3dffb040844d54903e",
        ),
        (dataset.test, "test", "cf5013735b5a7a4c0d69a4e9fdb4f9a437ce0537263d229504349157fc39a8f9"),
    ):
        path = folder("femnist") / f"femnist_{part}.npz"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256
        arrays = np.load(path)
        images = as_bytes(split.inputs, femnist.MEAN, femnist.STD)
        assert np.array_equal(images[:, 0], arrays["x"])
        assert np.array_equal(split.targets, arrays["y"])
        assert np.array_equal(split.users, arrays["writer"])


LEAF_FILES = {
    "train/all_data_0": "8313a15e16f33b6d76dd61d3c7df36d025ca44d1cdee86b61d7d246c89ad123d",
    "train/all_data_1": "35570f4b0b3d8065b010cb9509d14449a9c78e5bfbde2768bae90e179c4cfe84",
    "train/all_data_2": "d877098f694a5198da5ac9f7723153b610030d30c9bd162bd2b45c535588d5a4",
    "test/all_data_0": "9d66184d85fe4b5c8b778200aa2104cebd54d301a891e9cc1fefbabae6af8c3c",
    "test/all_data_1": "f5648c5aa87df93661efadbc3d5bc8d1e2774f313060b911b3e02ce3e2546400",
    "test/all_data_2": "7603f84bfec06939c01226bd5feb6dca0a3204f93f0d15d4a89b584236a9d872",
}


@pytest.mark.slow
@pytest.mark.data("femnist")
def test_the_json_files_of_leaf_hold_the_images_of_the_archives():
    shards = folder("femnist") / "leaf_json"
    files = femnist.files(shards)
    for path in files:
        start = f"{path.parent.name}/{path.name[:10]}"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == LEAF_FILES[start]
    leaf, whole = femnist.decode(shards, files), DATASETS["femnist"]()
    assert (len(leaf.train), len(leaf.test)) == (779 + 772 + 777, 89 + 89 + 88)
    assert leaf.note.startswith("subset: 16 of 3,550 writers")

    def by_writer(split):
        """What each writer has: images and labels, in whatever order."""
        rows = zip(split.users.tolist(), split.targets.tolist(), split.inputs, strict=True)
        written = {}
        for user, label, image in rows:
            written.setdefault(user, []).append((label, image.numpy().tobytes()))
        return [sorted(samples) for samples in written.values()]

    for part in ("train", "test"):
        known = by_writer(getattr(whole, part))
        assert all(samples in known for samples in by_writer(getattr(leaf, part)))


@pytest.mark.slow
@pytest.mark.data("tiny_imagenet")
def test_tiny_imagenet():
    dataset = DATASETS["tiny_imagenet"]()
    assert (dataset.shape, dataset.classes) == ((3, 64, 64), 200)
    assert dataset.note == ("subset: 10,000 of 100,000 training and 2,000 of 10,000 test samples")
    assert histogram(dataset.train, 200) == [50] * 200
    assert histogram(dataset.test, 200) == [10] * 200
    grey = 0
    for split in (dataset.train, dataset.test):
        images = as_bytes(split.inputs, tiny_imagenet.MEAN, tiny_imagenet.STD)
        grey += int((images == images[:, :1]).all(axis=(1, 2, 3)).sum())
    assert grey >= 225  # JPEGs without colour, and colour JPEGs of grey pictures
    for path, sha256 in (
        ("train50", "81217a772a54b446a46e27462cc08635dc3a3ed10297efee731f852aaf5cadde"),
        ("val10", "aea92aaf919da606646bef46551ad8efbf2ac7a307aad512596d3a11c7099e1b"),
    ):
        content = (folder("tiny_imagenet") / f"tiny-imagenet-200-{path}.tar.xz").read_bytes()
        assert hashlib.sha256(content).hexdigest() == sha256


@pytest.mark.data("cinic10")
def test_cinic10():
    dataset = DATASETS["cinic10"]()
    assert (dataset.shape, dataset.classes) == ((3, 32, 32), 10)
    assert dataset.note.startswith(
        "subset: 1,600 of 90,000 training and 400 of 90,000 test samples; the files have no split"
    )
    assert histogram(dataset.train, 10) == [160] * 10
    assert histogram(dataset.test, 10) == [40] * 10
    content = (folder("cinic10") / "cinic10-sample2000.tar.xz").read_bytes()
    expected = "3bc3aae6b93c7a32f515c20dcf21243cc37168ebadf51b173a886e1423e0cb73"
    assert hashlib.sha256(content).hexdigest() == expected


@pytest.mark.slow
@pytest.mark.data("cinic10", "cifar10")
def test_the_pictures_that_cinic10_took_from_cifar10():
    """468 of the 2,000 are CIFAR-10 training images of the same class, none is a test image."""
    cinic, cifar = DATASETS["cinic10"](), DATASETS["cifar10"]()

    def samples(split, source):
        images = as_bytes(split.inputs, source.MEAN, source.STD)
        return {
            (label, image.tobytes())
            for label, image in zip(split.targets.tolist(), images, strict=True)
        }

    pictures = samples(cinic.train, cinic10) | samples(cinic.test, cinic10)
    assert len(pictures) == 2_000
    assert len(pictures & samples(cifar.train, cifar10)) == 468
    assert not pictures & samples(cifar.test, cifar10)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("a9a", ["a9a", "a9a.t", "libsvmtools"]),
        ("mnist", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "https://"]),
        ("fashion_mnist", ["train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "https://"]),
        ("femnist", ["train", "test", ".json", "TalwalkarLab/leaf"]),
        ("cifar10", ["cifar-10-binary.tar.gz", "cifar-10-python.tar.gz", "https://"]),
        ("cinic10", ["CINIC-10.tar.gz", "https://datashare"]),
        ("tiny_imagenet", ["tiny-imagenet-200.zip", "http://cs231n"]),
    ],
)
def test_an_absent_dataset_says_what_to_put_where(data, name, files):
    with pytest.raises(FedcanonError) as error:
        DATASETS[name]()
    message = str(error.value)
    assert f"into {data / name}," in message
    assert "FEDCANON_DATA" in message
    assert all(file in message for file in files)


def test_every_dataset_has_a_line_for_the_list():
    assert all(load.__doc__ for load in DATASETS.values())
    assert len({load.__doc__ for load in DATASETS.values()}) == len(DATASETS)
    assert all(name == source.name for name, source in SOURCES.items())
