"""Every format in which a dataset is published, and every way of packing it."""

import numpy as np
import pytest
import torch

from fedcanon import FedcanonError
from fedcanon.data.sources import SOURCES, cifar10, cinic10, femnist, tiny_imagenet
from tests.data.written import (
    BATCHES,
    as_bytes,
    cifar_records,
    cinic_files,
    leaf,
    pixels,
    put,
    python_batch,
    tiny_files,
    write_idx,
    write_tree,
)


def decode(name, folder):
    return SOURCES[name].decode(folder, SOURCES[name].files(folder))


@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
def test_libsvm_text(tmp_path, packing):
    put(tmp_path / "a9a", b"-1 3:1 11:1 \n+1 1:1 123:0.5\n-1\n", packing)
    put(tmp_path / "a9a.t", b"+1 2:1\n", packing)
    dataset = decode("a9a", tmp_path)
    dense = np.zeros((3, 123))
    dense[0, [2, 10]] = 1
    dense[1, [0, 122]] = 1, 0.5
    assert np.array_equal(dataset.train.inputs.toarray(), dense)
    assert dataset.train.targets.tolist() == [0, 1, 0]
    assert dataset.test.inputs.shape == (1, 123)
    assert dataset.note == "subset: 3 of 32,561 training and 1 of 16,281 test samples"


@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
@pytest.mark.parametrize(
    ("name", "mean", "std"), [("mnist", 0.1307, 0.3081), ("fashion_mnist", 0.2860, 0.3530)]
)
def test_idx(tmp_path, packing, name, mean, std):
    arrays = write_idx(tmp_path / "raw", packing)
    dataset = decode(name, tmp_path)
    for prefix, split in (("train", dataset.train), ("t10k", dataset.test)):
        images, labels = arrays[prefix]
        assert torch.allclose(
            split.inputs[:, 0], (torch.from_numpy(images) / 255 - mean) / std, atol=1e-6
        )
        assert np.array_equal(split.targets, labels)
    assert dataset.note == "subset: 20 of 60,000 training and 10 of 10,000 test samples"


def check_cifar(dataset, batches):
    train = np.concatenate([batches[name] for name in BATCHES[:5]])
    for split, records in ((dataset.train, train), (dataset.test, batches["test_batch"])):
        images = as_bytes(split.inputs, cifar10.MEAN, cifar10.STD)
        assert np.array_equal(images.reshape(len(records), -1), records[:, 1:])
        assert np.array_equal(split.targets, records[:, 0])
    assert dataset.shape == (3, 32, 32)


@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
@pytest.mark.parametrize("below", ["", "cifar-10-batches"])
def test_cifar_batches_in_a_folder(tmp_path, packing, below):
    batches = cifar_records()
    for kind, suffix, write in (("bin", ".bin", bytes), ("py", "", python_batch)):
        for name, records in batches.items():
            put(tmp_path / kind / below / f"{name}{suffix}", write(records), packing)
        check_cifar(decode("cifar10", tmp_path / kind), batches)


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tgz", ".tar.xz"])
@pytest.mark.parametrize("kind", ["binary", "python"])
def test_cifar_archives(tmp_path, ending, kind):
    batches = cifar_records()
    if kind == "binary":
        files = {f"cifar-10-batches-bin/{name}.bin": batches[name].tobytes() for name in batches}
    else:
        files = {f"cifar-10-batches-py/{name}": python_batch(batches[name]) for name in batches}
    files[f"cifar-10-batches-{kind}/readme.html"] = b"<html>"
    write_tree(files, tmp_path / f"cifar-10-{kind}{ending}")
    check_cifar(decode("cifar10", tmp_path), batches)


def test_an_unpacked_archive_is_preferred_to_the_archive_beside_it(tmp_path):
    batches = cifar_records()
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"cut off")
    for name, records in batches.items():
        put(tmp_path / "cifar-10-batches-py" / name, python_batch(records))
    check_cifar(decode("cifar10", tmp_path), batches)


def writer(seed, count):
    return pixels(count, 28, 28, seed=seed), np.arange(count) * 7 % 62


@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
def test_leaf_json(tmp_path, packing):
    first, second, third = writer(0, 5), writer(1, 3), writer(2, 4)
    put(tmp_path / "data/train/all_data_0.json", leaf({"f2": first, "f1": second}), packing)
    put(tmp_path / "data/train/all_data_1.json", leaf({"f3": third}), packing)
    put(tmp_path / "data/test/all_data_0.json", leaf({"f3": third, "f9": second}), packing)
    put(tmp_path / "data/all_data/all_data_0.json", b"not read", packing)
    dataset = decode("femnist", tmp_path)
    images = as_bytes(dataset.train.inputs, femnist.MEAN, femnist.STD)[:, 0]
    assert np.array_equal(images, np.concatenate([first[0], second[0], third[0]]))
    assert dataset.train.targets.tolist() == [*first[1], *second[1], *third[1]]
    assert dataset.train.users.tolist() == [1] * 5 + [0] * 3 + [2] * 4
    assert dataset.test.users.tolist() == [2] * 4 + [3] * 3
    assert dataset.note == "subset: 4 of 3,550 writers, with 12 training and 7 test samples"


def test_numpy_archives_of_femnist(tmp_path):
    images, labels = writer(0, 6)
    for part in ("train", "test"):
        np.savez(
            tmp_path / f"femnist_{part}.npz",
            x=images,
            y=labels.astype(np.uint8),
            writer=np.array([1, 1, 0, 0, 0, 1], np.uint16),
            writer_ids=np.array(["a", "b"]),
        )
    dataset = decode("femnist", tmp_path)
    assert np.array_equal(as_bytes(dataset.test.inputs, femnist.MEAN, femnist.STD)[:, 0], images)
    assert dataset.test.users.tolist() == [1, 1, 0, 0, 0, 1]


def shades(split, source):
    """The colour of pictures of one colour, which JPEG may change a little."""
    return as_bytes(split.inputs, source.MEAN, source.STD).mean((1, 2, 3)).round().tolist()


TARGETS = ["CINIC-10", "CINIC-10.tar", "CINIC-10.tar.gz", "CINIC-10.tar.xz", "CINIC-10.zip"]


@pytest.mark.parametrize("target", TARGETS)
def test_cinic10_with_its_splits(tmp_path, target):
    write_tree(cinic_files(), tmp_path / target)
    dataset = decode("cinic10", tmp_path)
    for split in (dataset.train, dataset.test):
        assert split.targets.tolist() == [label for label in range(10) for _ in range(2)]
        assert shades(split, cinic10) == [10 * c + n for c in range(10) for n in range(2)]
    assert dataset.note == "subset: 20 of 90,000 training and 20 of 90,000 test samples"


def test_every_fifth_picture_of_cinic10_without_a_split_is_held_out(tmp_path):
    write_tree(cinic_files(["sample"], each=10, prefix="CINIC-10/"), tmp_path / "sample.tar.xz")
    dataset = decode("cinic10", tmp_path)
    assert shades(dataset.test, cinic10) == [10 * c + n for c in range(10) for n in (4, 9)]
    assert len(dataset.train) == 80
    assert not set(shades(dataset.train, cinic10)) & set(shades(dataset.test, cinic10))
    assert "every fifth picture" in dataset.note


@pytest.mark.parametrize("target", ["unpacked", "tiny-imagenet-200.zip", "tiny.tar", "tiny.tar.gz"])
def test_tiny_imagenet_in_one_piece(tmp_path, target):
    write_tree(tiny_files(), tmp_path / target)
    check_tiny(decode("tiny_imagenet", tmp_path))


def test_tiny_imagenet_in_two_archives_that_overlap(tmp_path):
    files = tiny_files()
    write_tree({k: v for k, v in files.items() if "/val/" not in k}, tmp_path / "train.tar.xz")
    write_tree({k: v for k, v in files.items() if "_3.JPEG" not in k}, tmp_path / "val.tar.xz")
    with pytest.raises(FedcanonError, match=r"val_annotations\.txt .* do not agree on val_3"):
        decode("tiny_imagenet", tmp_path)
    write_tree({k: v for k, v in files.items() if "/val/" in k}, tmp_path / "val.tar.xz")
    write_tree({k: v for k, v in files.items() if "_3.JPEG" in k}, tmp_path / "again.tar.xz")
    check_tiny(decode("tiny_imagenet", tmp_path))


def check_tiny(dataset):
    assert dataset.train.targets.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert dataset.test.targets.tolist() == [0, 0, 1, 1, 2, 2]
    assert shades(dataset.train, tiny_imagenet) == [0] * 4 + [50] * 4 + [100] * 4
    assert shades(dataset.test, tiny_imagenet) == [0, 0, 50, 50, 100, 100]
    assert (dataset.shape, dataset.classes) == ((3, 64, 64), 3)
    assert dataset.note == "subset: 12 of 100,000 training and 6 of 10,000 test samples"
