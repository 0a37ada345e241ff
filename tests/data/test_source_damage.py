"""Damaged files are found, and named."""

import gzip
import lzma
import os
import pickle
import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedcanon import FedcanonError
from fedcanon.data import DATASETS
from fedcanon.data.sources import SOURCES
from tests.data.written import (
    cifar_records,
    cinic_files,
    idx,
    leaf,
    pixels,
    put,
    python_batch,
    tiny_files,
    write_idx,
    write_tree,
)


def refused(name, folder, file, reason):
    """Decoding fails with a sentence that names the file and the reason."""
    with pytest.raises(FedcanonError) as error:
        SOURCES[name].decode(folder, SOURCES[name].files(folder))
    message = str(error.value)
    assert str(file) in message
    assert re.search(reason, message)
    assert "again" in message or "put" in message


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def cut(path, share=0.6):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("train-images-idx3-ubyte", idx(pixels(20, 28, 28))[:-1], "15680 bytes .* 15679 follow"),
        ("train-images-idx3-ubyte", idx(pixels(20, 28, 28)) + b"x", "15681 follow"),
        ("train-images-idx3-ubyte", idx(pixels(20, 14, 56)), "not .28, 28."),
        ("train-images-idx3-ubyte", b"<html>not found</html>", "begin like an IDX file"),
        ("train-images-idx3-ubyte", b"", "begin like an IDX file"),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03\0\0", "begin like an IDX file"),
        ("t10k-labels-idx1-ubyte", idx(pixels(10, 28, 28)), "begin like an IDX file"),
        ("t10k-labels-idx1-ubyte", idx(np.zeros(9, np.uint8)), "9 labels for 10 images"),
        ("t10k-labels-idx1-ubyte", idx(np.full(10, 10, np.uint8)), "the label 10, but .* 10"),
    ],
)
def test_idx(tmp_path, file, content, reason):
    write_idx(tmp_path)
    (tmp_path / file).write_bytes(content)
    refused("mnist", tmp_path, tmp_path / file, reason)


@pytest.mark.parametrize("packing", [".gz", ".xz"])
def test_cut_and_flipped_compressed_files(tmp_path, packing):
    write_idx(tmp_path, packing)
    path = tmp_path / f"t10k-images-idx3-ubyte{packing}"
    whole = path.read_bytes()
    cut(path)
    refused("fashion_mnist", tmp_path, path, "damaged")
    for position in (0, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole)
        flip(path, position)
        refused("fashion_mnist", tmp_path, path, "damaged")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"-1 3:1\n+1 124:1\n", "damaged"),
        (b"-1 0:1\n", "damaged"),
        (b"-1 3:x\n", "damaged"),
        (b"<html>\n", "damaged"),
        (b"3 3:1\n", "not all -1 or"),
    ],
)
def test_libsvm_text(tmp_path, content, reason):
    put(tmp_path / "a9a", content)
    put(tmp_path / "a9a.t", b"+1 2:1\n")
    refused("a9a", tmp_path, tmp_path, reason)


def test_an_empty_file(data):
    put(data / "a9a" / "a9a", b"")
    put(data / "a9a" / "a9a.t", b"+1 2:1\n")
    with pytest.raises(FedcanonError, match="0 training and 1 test samples, and both are needed"):
        DATASETS["a9a"]()


def write_cifar(folder, suffix=".bin", write=bytes):
    for name, records in cifar_records().items():
        put(folder / f"{name}{suffix}", write(records))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bytes(3073 * 4 - 1), "not a multiple of 3073"),
        (bytes([10]) + bytes(3072), "the label 10"),
    ],
)
def test_binary_batches(tmp_path, content, reason):
    write_cifar(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(content)
    refused("cifar10", tmp_path, tmp_path / "data_batch_3.bin", reason)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("was-here",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (python_batch(cifar_records()["test_batch"])[:-100], "damaged"),
        (pickle.dumps({b"labels": [1], b"data": Evil()}), r"it asks for posix\.mkdir"),
        (pickle.dumps({b"labels": [1, 2], b"data": pixels(1, 3072)}, 4), "fit 2 labels"),
        (pickle.dumps({b"labels": [1], b"data": np.zeros((1, 3072))}, 4), "fit 1 labels"),
        (pickle.dumps({b"labels": [300], b"data": pixels(1, 3072)}, 4), "not a CIFAR-10 batch"),
        (pickle.dumps({b"data": pixels(1, 3072)}, 4), "not a CIFAR-10 batch"),
        (pickle.dumps([1]), "not a CIFAR-10 batch"),
        (b"<html>", "damaged"),
    ],
)
def test_python_batches(tmp_path, monkeypatch, content, reason):
    monkeypatch.chdir(tmp_path)
    write_cifar(tmp_path, "", python_batch)
    (tmp_path / "test_batch").write_bytes(content)
    refused("cifar10", tmp_path, tmp_path / "test_batch", reason)
    assert not Path("was-here").exists()


def cifar_members():
    return {f"b/{name}.bin": records.tobytes() for name, records in cifar_records().items()}


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tar.xz", ".zip"])
def test_cut_archives(tmp_path, ending):
    path = write_tree(cifar_members(), tmp_path / f"cifar-10-binary{ending}")
    cut(path)
    refused("cifar10", tmp_path, path, "damaged")


def test_a_tar_file_cut_between_two_members(tmp_path):
    path = write_tree(cinic_files(), tmp_path / "CINIC-10.tar")
    with tarfile.open(path) as archive:
        end = archive.getmembers()[30].offset
    path.write_bytes(path.read_bytes()[:end])
    refused("cinic10", tmp_path, path, "ends too early")


def test_a_tar_file_with_a_damaged_header(tmp_path):
    path = write_tree(cinic_files(), tmp_path / "CINIC-10.tar")
    with tarfile.open(path) as archive:
        flip(path, archive.getmembers()[30].offset + 5)
    refused("cinic10", tmp_path, path, "ends too early")


def test_an_archive_without_a_batch(tmp_path):
    files = cifar_members()
    del files["b/data_batch_4.bin"]
    path = write_tree(files, tmp_path / "cifar-10-binary.tar.gz")
    refused("cifar10", tmp_path, path, "no data_batch_4")


def test_an_archive_of_something_else(data):
    write_tree({"hello.txt": b"hello"}, data / "cinic10" / "archive.zip")
    with pytest.raises(FedcanonError, match=r"0 training and 0 test samples.*CINIC-10\.tar\.gz"):
        DATASETS["cinic10"]()


def one_writer(**changes):
    """LEAF's JSON with some part of it changed."""
    text = leaf({"f1": (pixels(3, 28, 28), [1, 2, 3])}).decode()
    for before, after in changes.values():
        assert before in text
        text = text.replace(before, after, 1)
    return text.encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (one_writer(a=('"num_samples": [3]', '"num_samples": [4]')), "f1 has 3 images .* not 4"),
        (one_writer(a=('"y": [1, 2, 3]', '"y": [1, 2]')), "3 images and 2 labels"),
        (one_writer(a=('"y": [1, 2, 3]', '"y": [1, 62, 3]')), "the label 62"),
        (one_writer(a=('"y": [1, 2, 3]', '"y": [1, -2, 3]')), "the label -2"),
        (one_writer(a=('"x": [[', '"x": [[1.5, ')), "damaged"),
        (one_writer(a=('"users": ["f1"]', '"users": ["f2"]')), "f2"),
        (one_writer()[:-20], "damaged"),
        (b"[]", "damaged"),
    ],
)
def test_leaf_json(tmp_path, content, reason):
    path = put(tmp_path / "train" / "all_data_0.json", content)
    put(tmp_path / "test" / "all_data_0.json", one_writer())
    refused("femnist", tmp_path, path, reason)


def test_brightness_must_be_between_0_and_1(tmp_path):
    text = one_writer().decode()
    start = text.index("[[") + 2
    text = text[:start] + "1.5" + text[text.index(",", start) :]
    path = put(tmp_path / "train" / "all_data_0.json", text.encode())
    put(tmp_path / "test" / "all_data_0.json", one_writer())
    refused("femnist", tmp_path, path, r"outside \[0, 1\]")


def save_femnist(path, **changes):
    arrays = {
        "x": pixels(4, 28, 28),
        "y": np.arange(4, dtype=np.uint8),
        "writer": np.zeros(4, np.uint16),
        "writer_ids": np.array(["a"]),
    }
    np.savez_compressed(path, **(arrays | changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"y": np.full(4, 62, np.uint8)}, "the label 62"),
        ({"y": np.zeros(3, np.uint8)}, "4 images, 3 labels"),
        ({"writer": np.full(4, 1, np.uint16)}, "damaged"),
        ({"x": pixels(4, 784)}, "shape"),
        ({"y": np.array([Evil()] * 4)}, "allow_pickle"),
    ],
)
def test_numpy_archives(tmp_path, changes, reason):
    save_femnist(tmp_path / "femnist_test.npz")
    save_femnist(tmp_path / "femnist_train.npz", **changes)
    refused("femnist", tmp_path, tmp_path / "femnist_train.npz", reason)


def test_a_flipped_bit_in_a_numpy_archive_is_found_or_harmless(tmp_path):
    save_femnist(tmp_path / "femnist_train.npz")
    path = tmp_path / "femnist_test.npz"
    save_femnist(path)
    whole = path.read_bytes()

    def read():
        return SOURCES["femnist"].decode(tmp_path, SOURCES["femnist"].files(tmp_path)).test

    clean = read()
    for position in range(0, len(whole), 41):
        path.write_bytes(whole)
        flip(path, position)
        try:
            split = read()
        except FedcanonError as error:
            message = str(error)
        else:
            assert split.inputs.equal(clean.inputs)
            assert split.targets.equal(clean.targets)
            continue
        assert str(path) in message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content[:40], "damaged"),
        (lambda content: b"<html>", "damaged"),
        (lambda content: tiny_files()["tiny-imagenet-200/val/images/val_0.JPEG"], "64"),
    ],
)
@pytest.mark.parametrize("target", ["", "CINIC-10.tar.gz"])
def test_pictures(tmp_path, target, change, reason):
    files = cinic_files()
    name = "test/dog/cifar10-test-1.png"
    files[name] = change(files[name])
    write_tree(files, tmp_path / target)
    refused("cinic10", tmp_path, name, reason)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (b"val_0.JPEG\tn01443537", b"val_0.JPEG\tn99999999", "n99999999 has no training"),
        (b"val_0.JPEG", b"val_77.JPEG", "do not agree on val_0.JPEG"),
    ],
)
def test_annotations(tmp_path, before, after, reason):
    files = tiny_files("")
    files["val/val_annotations.txt"] = files["val/val_annotations.txt"].replace(before, after)
    write_tree(files, tmp_path)
    refused("tiny_imagenet", tmp_path, tmp_path / "val" / "val_annotations.txt", reason)


def test_no_annotations(tmp_path):
    files = tiny_files("")
    del files["val/val_annotations.txt"]
    write_tree(files, tmp_path)
    refused("tiny_imagenet", tmp_path, tmp_path, r"val_annotations\.txt")


def test_a_file_that_may_not_be_read(tmp_path):
    write_idx(tmp_path)
    files = SOURCES["mnist"].files(tmp_path)
    files[0].unlink()
    files[0].mkdir()
    with pytest.raises(FedcanonError, match=f"{files[0]} cannot be read"):
        SOURCES["mnist"].decode(tmp_path, files)


def real(name):
    return Path(os.environ["FEDCANON_DATA"]) / name


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ],
)
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
@pytest.mark.data("mnist", "fashion_mnist")
def test_a_flipped_bit_in_a_plain_official_idx_file(tmp_path, name, file):
    for path in real(name).iterdir():
        content = bytearray(gzip.decompress(path.read_bytes()))
        if path.stem == file:
            content[5_000] ^= 1
        (tmp_path / path.stem).write_bytes(content)
    refused(name, tmp_path, tmp_path / file, "not the official|the label")


@pytest.mark.slow
@pytest.mark.data("cifar10")
def test_a_flipped_bit_in_a_plain_official_cifar_batch(tmp_path):
    write_cifar(tmp_path)
    content = bytearray(lzma.decompress((real("cifar10") / "data_batch_2.bin.xz").read_bytes()))
    content[20_000_000] ^= 1
    (tmp_path / "data_batch_2.bin").write_bytes(content)
    refused("cifar10", tmp_path, tmp_path / "data_batch_2.bin", "not the official")


@pytest.mark.parametrize(("before", "after"), [(b" 83:1", b" 82:1"), (b"-1 ", b"+1 ")])
@pytest.mark.data("a9a")
def test_a_changed_character_in_the_official_a9a(tmp_path, before, after):
    shutil.copy(real("a9a") / "a9a.gz", tmp_path)
    text = gzip.decompress((real("a9a") / "a9a.t.gz").read_bytes())
    (tmp_path / "a9a.t").write_bytes(text.replace(before, after, 1))
    refused("a9a", tmp_path, tmp_path / "a9a.t", "not the official")


@pytest.mark.data("a9a")
def test_an_explicit_zero_in_the_official_a9a_is_no_damage(tmp_path):
    """Some public copies of a9a.t name feature 123 in the first row, with the value 0."""
    shutil.copy(real("a9a") / "a9a.gz", tmp_path)
    text = gzip.decompress((real("a9a") / "a9a.t.gz").read_bytes())
    (tmp_path / "a9a.t").write_bytes(text.replace(b" \n", b" 123:0\n", 1))
    dataset = SOURCES["a9a"].decode(tmp_path, SOURCES["a9a"].files(tmp_path))
    assert dataset.test.inputs.nnz == 225_731
