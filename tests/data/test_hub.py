"""The Hugging Face hub, through small repositories in its own layouts; no network is used."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
import yaml

from fedcanon import FedcanonError
from fedcanon.data.hub import HUB, from_dataset, from_hub
from fedcanon.data.sources import SOURCES, cifar10, cinic10, femnist, tiny_imagenet
from tests.data.written import as_bytes, write_idx

NOWHERE = "http://127.0.0.1:9"  # refuses every connection
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def images(size, classes, shape=(4, 6, 3), image="image", label="label", **columns):
    """Random images in a dataset of the library; every class occurs."""
    kinds = {str: "string", int: "int64"}
    features = {
        image: datasets.Image(),
        label: datasets.ClassLabel(num_classes=classes),
        **{name: datasets.Value(kinds[type(values[0])]) for name, values in columns.items()},
    }
    data = {
        image: list(rng.integers(0, 256, (size, *shape), dtype=np.uint8)),
        label: [i % classes for i in range(size)],
        **columns,
    }
    return datasets.Dataset.from_dict(data, features=datasets.Features(features))


def repository(folder, splits, card=True):
    """Parquet files in ``data/``, and a README.md whose header describes them, as on the hub."""
    (folder / "data").mkdir(parents=True)
    for name, split in splits.items():
        split.to_parquet(folder / "data" / f"{name}-00000-of-00001.parquet")
    if card:
        header = {
            "dataset_info": {
                "features": split.features._to_yaml_list(),
                "splits": [{"name": name, "num_examples": len(splits[name])} for name in splits],
            },
            "configs": [
                {
                    "config_name": "default",
                    "data_files": [{"split": name, "path": f"data/{name}-*"} for name in splits],
                }
            ],
        }
        text = f"---\n{yaml.safe_dump(header)}---\n\n# Dataset card\n"
        (folder / "README.md").write_text(text, encoding="utf-8")
    return folder


def pixels(split, column="image"):
    """(N, channels, height, width) in [0, 1], by way of the library's own decoding."""
    arrays = np.stack([np.asarray(picture) for picture in split[column]])
    if arrays.ndim == 3:
        arrays = arrays[..., None]
    return torch.from_numpy(arrays).permute(0, 3, 1, 2).float() / 255


# A folder


@pytest.mark.parametrize("card", [True, False])
def test_a_folder_in_the_layout_of_a_repository(tmp_path, card):
    train, test = images(12, 3), images(6, 3)
    folder = repository(tmp_path / "mine", {"train": train, "test": test}, card=card)
    data = from_hub(str(folder))
    assert (data.name, data.classes, data.shape, data.note) == ("mine", 3, (3, 4, 6), "")
    torch.testing.assert_close(data.train.inputs, pixels(train))
    torch.testing.assert_close(data.test.inputs, pixels(test))
    assert data.train.inputs.dtype == torch.float32
    assert data.train.targets.tolist() == train["label"][:]
    assert data.train.targets.dtype == torch.int64
    assert data.train.users is None


def test_a_fifth_is_held_out_where_there_is_no_test_split(tmp_path):
    writers = [f"f{i % 5:04}" for i in range(30)]
    train = images(30, 3, (28, 28), label="character", writer_id=writers)
    folder = repository(tmp_path / "mine", {"train": train})
    data, again = from_hub(str(folder)), from_hub(str(folder))
    assert (len(data.train), len(data.test), data.shape) == (24, 6, (1, 28, 28))
    assert data.note == "20% of the samples held out for testing"
    assert torch.equal(data.test.inputs, again.test.inputs)
    everything = {tuple(x.flatten().tolist()): i for i, x in enumerate(pixels(train))}
    for split in (data.train, data.test):
        for x, y, user in zip(split.inputs, split.targets, split.users, strict=True):
            row = everything.pop(tuple(x.flatten().tolist()))
            assert (y, user) == (row % 3, row % 5)
    assert not everything


def test_a_repository_with_several_datasets_needs_a_choice(tmp_path):
    for name, classes in (("coarse", 2), ("fine", 4)):
        images(8, classes).to_parquet(tmp_path / name / "train.parquet")
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n"
        "- config_name: coarse\n  data_files: coarse/*.parquet\n"
        "- config_name: fine\n  data_files: fine/*.parquet\n---\n"
    )
    with pytest.raises(FedcanonError, match="set config to one of coarse, fine"):
        from_hub(str(tmp_path))
    assert from_hub(str(tmp_path), config="fine").classes == 4
    with pytest.raises(FedcanonError, match="'rough' not found"):
        from_hub(str(tmp_path), config="rough")


def test_a_folder_without_data(tmp_path):
    with pytest.raises(FedcanonError, match=r"the files of .* are not a complete dataset"):
        from_hub(str(tmp_path))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda file: file.unlink(), "'test': .None"),
        (lambda file: file.write_bytes(b"PAR1"), "Parquet"),
        (lambda file: images(2, 3).to_parquet(file), "num_examples=3.*num_examples=2"),
    ],
    ids=["absent", "damaged", "short"],
)
def test_a_file_that_is_not_what_the_card_says(tmp_path, spoil, message):
    folder = repository(tmp_path / "mine", {"train": images(6, 3), "test": images(3, 3)})
    spoil(folder / "data" / "test-00000-of-00001.parquet")
    with pytest.raises(FedcanonError, match=f"not a complete dataset .*{message}.*again") as raised:
        from_hub(str(folder))
    assert "\n" not in str(raised.value)


# The hub's cache


def cached_repository(home, repo, splits):
    """Files as ``hf download`` leaves them: blobs, links to them in a snapshot, and a reference."""
    files = repository(home / "downloads" / repo, splits)
    folder = home / "hub" / f"datasets--{repo.replace('/', '--')}"
    revision = hashlib.sha1(repo.encode()).hexdigest()
    for part in ("blobs", "refs"):
        (folder / part).mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    for file in files.rglob("*"):
        if file.is_file():
            blob = folder / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
            file.rename(blob)
            link = folder / "snapshots" / revision / file.relative_to(files)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(blob, link.parent))


def in_new_process(code, home, **environment):
    """Run code where ``HF_HOME`` is another folder, and return the JSON that it prints."""
    environment = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": NOWHERE, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


WITHOUT_NETWORK = """
import json, os, sys
from fedcanon import FedcanonError
from fedcanon.data.hub import from_hub
before, attempts = dict(os.environ), []
sys.addaudithook(lambda event, _: attempts.append(event) if event == "socket.connect" else None)
data = from_hub("someone/pictures")
try:
    from_hub("ylecun/mnist")
except FedcanonError as error:
    message = str(error)
print(json.dumps({
    "loaded": [data.name, data.train.inputs.tolist(), data.test.targets.tolist()],
    "message": message,
    "attempts": len(attempts),
    "unchanged": before == dict(os.environ),
}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("offline", ["1", "0"])
def test_without_network_the_cache_serves_and_what_it_lacks_is_explained_at_once(tmp_path, offline):
    train, test = images(4, 2), images(2, 2)
    cached_repository(tmp_path, "someone/pictures", {"train": train, "test": test})
    answer = in_new_process(WITHOUT_NETWORK, tmp_path, HF_HUB_OFFLINE=offline)
    name, inputs, targets = answer["loaded"]
    assert (name, targets) == ("pictures", [0, 1])
    torch.testing.assert_close(torch.tensor(inputs), pixels(train))
    assert "hf download --repo-type dataset ylecun/mnist" in answer["message"]
    assert str(tmp_path / "hub" / "datasets--ylecun--mnist") in answer["message"]
    assert "\n" not in answer["message"]
    # The library by itself tries eight times for a dataset, and waits 23 seconds in between.
    assert answer["attempts"] <= (0 if offline == "1" else 4)
    assert answer["unchanged"]


# Datasets by name


def described(name, repo, splits):
    """Load a known dataset from a small repository of its name and columns, here as a folder."""
    repository(Path(repo), splits)
    data = HUB[name]()
    users = data.train.users
    return (
        (data.name, data.classes, data.shape, len(data.train), len(data.test)),
        None if users is None else len(users.unique()),
        data,
    )


@pytest.mark.parametrize(
    ("name", "repo"),
    [("mnist", "ylecun/mnist"), ("fashion_mnist", "zalando-datasets/fashion_mnist")],
)
def test_the_hub_and_the_official_files_give_the_same_bits(tmp_path, monkeypatch, name, repo):
    monkeypatch.chdir(tmp_path)
    arrays = write_idx(tmp_path / "raw")
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)}
    )
    splits = {
        split: datasets.Dataset.from_dict(
            {"image": list(arrays[prefix][0]), "label": arrays[prefix][1]}, features=features
        )
        for split, prefix in (("train", "train"), ("test", "t10k"))
    }
    summary, users, data = described(name, repo, splits)
    assert (summary, users) == ((name, 10, (1, 28, 28), 20, 10), None)
    source = SOURCES[name]
    official = source.decode(tmp_path / "raw", source.files(tmp_path / "raw"))
    for one, other in ((data.train, official.train), (data.test, official.test)):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets, other.targets)


def test_cifar10(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train, test = (images(size, 10, (32, 32, 3), image="img") for size in (20, 10))
    splits = {"train": train, "test": test}
    summary, users, data = described("cifar10", "uoft-cs/cifar10", splits)
    assert (summary, users) == (("cifar10", 10, (3, 32, 32), 20, 10), None)
    found = as_bytes(data.test.inputs, cifar10.MEAN, cifar10.STD)
    assert np.array_equal(found, (pixels(test, "img") * 255).round())


def test_cinic10_is_without_its_validation_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {"train": 20, "validation": 30, "test": 10}
    splits = {name: images(size, 10, (32, 32, 3)) for name, size in sizes.items()}
    summary, users, data = described("cinic10", "flwrlabs/cinic10", splits)
    assert (summary, users, data.note) == (("cinic10", 10, (3, 32, 32), 20, 10), None, "")
    found = as_bytes(data.test.inputs, cinic10.MEAN, cinic10.STD)
    assert np.array_equal(found, (pixels(splits["test"]) * 255).round())


def test_femnist_knows_its_writers_and_has_data_held_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    writers = [f"f{i // 31:04}_14" for i in range(124)]
    train = images(124, 62, (28, 28), label="character", writer_id=writers, hsf_id=[0] * 124)
    summary, users, data = described("femnist", "flwrlabs/femnist", {"train": train})
    assert (summary, users) == (("femnist", 62, (1, 28, 28), 99, 25), 4)
    assert data.note == "20% of the samples held out for testing"
    assert data.train.inputs.max() == pytest.approx((1 - femnist.MEAN) / femnist.STD)


@pytest.mark.slow
def test_tiny_imagenet_is_tested_on_its_validation_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    splits = {"train": images(400, 200, (64, 64, 3)), "valid": images(200, 200, (64, 64, 3))}
    summary, users, data = described("tiny_imagenet", "zh-plus/tiny-imagenet", splits)
    assert (summary, users) == (("tiny_imagenet", 200, (3, 64, 64), 400, 200), None)
    found = as_bytes(data.test.inputs, tiny_imagenet.MEAN, tiny_imagenet.STD)
    assert np.array_equal(found, (pixels(splits["valid"]) * 255).round())


# Mistakes and datasets of the library


def test_a_name_that_no_repository_can_have():
    with pytest.raises(FedcanonError, match="my/own/data is neither a folder nor"):
        from_hub("my/own/data")


@pytest.mark.parametrize("absent", ["datasets", "huggingface_hub"])
def test_without_the_library_the_extra_is_named(monkeypatch, absent):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(FedcanonError, match=rf'{absent} is not installed: .* "fedcanon\[data\]"'):
        from_hub("ylecun/mnist")


def test_columns_are_found_or_named():
    splits = datasets.DatasetDict(
        {
            "fit": images(9, 3, image="scan", site=["a", "b", "c"] * 3),
            "check": images(6, 3, image="scan", site=["c"] * 6),
        }
    )
    data = from_dataset(splits, train="fit", test="check", user="site", name="scans")
    assert (data.name, data.classes, len(data.train), len(data.test)) == ("scans", 3, 9, 6)
    assert data.train.users.tolist() == [0, 1, 2] * 3
    assert data.test.users.tolist() == [2] * 6
    torch.testing.assert_close(data.train.inputs, pixels(splits["fit"], "scan"))


def test_classes_that_do_not_occur_are_counted():
    assert from_dataset(images(10, 10).select(range(6))).classes == 10


def test_images_in_files_are_read(tmp_path):
    for i, picture in enumerate(images(4, 2)["image"]):
        picture.save(tmp_path / f"{i}.png")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    paths = [str(tmp_path / f"{i}.png") for i in range(4)]
    rows = datasets.Dataset.from_dict({"image": paths, "label": ["b", "a"] * 2}, features=features)
    data = from_dataset(datasets.DatasetDict(train=rows, test=rows))
    torch.testing.assert_close(data.train.inputs, pixels(rows))
    assert data.train.targets.tolist() == [1, 0, 1, 0]


def test_without_images_the_columns_are_features():
    columns = {
        "height": [150.0, 160.0, 170.0, 180.0] * 10,
        "eyes": ["blue", "brown"] * 20,
        "blood": [0, 1, 2, 3] * 10,
        "client_id": [7, 7, 8, 8] * 10,
        "label": [0, 1] * 20,
    }
    features = datasets.Features(
        {
            "height": datasets.Value("float32"),
            "eyes": datasets.Value("string"),
            "blood": datasets.ClassLabel(names=["0", "A", "B", "AB"]),
            "client_id": datasets.Value("int64"),
            "label": datasets.Value("int64"),
        }
    )
    rows = datasets.Dataset.from_dict(columns, features=features)
    data = from_dataset(datasets.DatasetDict(train=rows, test=rows), label="label")
    assert (data.shape, data.classes) == ((7,), 2)
    assert data.train.users.tolist() == [0, 0, 1, 1] * 10
    np.testing.assert_allclose(
        data.train.inputs[:4, 0], np.array([-3, -1, 1, 3]) / 5**0.5, rtol=1e-5
    )
    np.testing.assert_array_equal(data.train.inputs[:2, 1:3], np.eye(2))
    np.testing.assert_array_equal(data.train.inputs[:4, 3:], np.eye(4))


def odd_sizes():
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    pictures = [np.zeros((4, 4 + (i == 3)), dtype=np.uint8) for i in range(6)]
    return datasets.Dataset.from_dict({"image": pictures, "label": [0, 1] * 3}, features=features)


def hidden_labels(label):
    rows = images(6, 3)
    hidden = rows.remove_columns("label").add_column("label", [label] * 6)
    return datasets.DatasetDict(train=rows, test=hidden)


def two_label_columns():
    rows = images(6, 3, label="fine")
    return rows.add_column("coarse", rows["fine"][:]).cast_column(
        "coarse", datasets.ClassLabel(num_classes=3)
    )


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (images(6, 3), {"train": "train", "test": "valid"}, "no split 'valid': use one of train"),
        (datasets.DatasetDict(a=images(6, 3)), {}, "no split 'train': use one of a"),
        (images(6, 3), {"label": "lable"}, "no label column 'lable': use one of image, label"),
        (images(6, 3), {"user": "who"}, "no user column 'who'"),
        (two_label_columns(), {}, r"several columns may be the label: .*'fine', 'coarse'"),
        (
            datasets.Dataset.from_dict({"a": [1], "b": [2]}),
            {},
            "which column is the label: use one",
        ),
        (odd_sizes(), {}, r"image \d of train has 5×4 pixels but"),
        (hidden_labels(None), {}, "label None in the test data is not one of the 3 classes"),
        (hidden_labels(-1), {}, "label -1 in the test data is not one of the 3 classes"),
        ([1, 2], {}, "list is not a datasets.Dataset"),
        (images(6, 3).to_iterable_dataset(), {}, "IterableDataset is not .* without streaming"),
    ],
)
def test_mistakes(dataset, options, message):
    with pytest.raises(FedcanonError, match=message):
        from_dataset(dataset, **options)
