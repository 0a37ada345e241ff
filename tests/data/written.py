"""Small datasets written in the formats of their authors."""

import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from PIL import Image

PACKERS = {"": bytes, ".gz": partial(gzip.compress, mtime=0), ".xz": lzma.compress}


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def put(path, content, packing=""):
    """Write a file, compressed as its new ending says."""
    path = path.with_name(path.name + packing)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PACKERS[packing](content))
    return path


def as_bytes(inputs, mean, std):
    """Undo the normalisation."""
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    return ((inputs * std + mean) * 255).round().to(torch.uint8).numpy()


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder, packing="", train=20, test=10):
    """An MNIST of few images; gives the images and labels of both splits."""
    arrays = {}
    for seed, (prefix, count) in enumerate((("train", train), ("t10k", test))):
        images, labels = pixels(count, 28, 28, seed=seed), np.arange(count, dtype=np.uint8) % 10
        put(folder / f"{prefix}-images-idx3-ubyte", idx(images), packing)
        put(folder / f"{prefix}-labels-idx1-ubyte", idx(labels), packing)
        arrays[prefix] = images, labels
    return arrays


BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def cifar_records(size=4):
    """The records of six small batches."""
    batches = {}
    for seed, name in enumerate(BATCHES):
        batches[name] = pixels(size, 3073, seed=seed)
        batches[name][:, 0] %= 10
    return batches


class Python2Pickler(pickle._Pickler):
    """Writes bytes as the strings of Python 2, as in the official CIFAR-10 batches."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value):
        self.write(b"T" + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes


def python_batch(records):
    batch = {
        b"batch_label": b"a batch",
        b"labels": records[:, 0].tolist(),
        b"data": np.ascontiguousarray(records[:, 1:]),
        b"filenames": [b"some.png"] * len(records),
    }
    stream = io.BytesIO()
    Python2Pickler(stream, 2).dump(batch)
    return stream.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def png(image, mode="RGB", format="PNG"):
    stream = io.BytesIO()
    Image.fromarray(image, mode=None).convert(mode).save(stream, format)
    return stream.getvalue()


def write_tree(files, target):
    """Files by name, in a folder or in an archive, as the ending of the target says."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.name.endswith(".zip"):
        with zipfile.ZipFile(target, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    elif ".tar" in target.name or target.name.endswith(".tgz"):
        compression = {".gz": "gz", ".tgz": "gz", ".xz": "xz"}.get(target.suffix, "")
        with tarfile.open(target, f"w:{compression}") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    else:
        for name, content in files.items():
            put(target / name, content)
    return target


CINIC_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def cinic_files(splits=("train", "valid", "test"), each=2, prefix=""):
    """Pictures of one colour: 10 times the number of the class, plus the number of the picture."""
    return {
        f"{prefix}{split}/{name}/cifar10-{split}-{number}.png": png(
            np.full((32, 32, 3), 10 * label + number, np.uint8)
        )
        for split in splits
        for label, name in enumerate(CINIC_CLASSES)
        for number in range(each)
    }


TINY_CLASSES = ("n01443537", "n01629819", "n01641577")


def tiny_files(prefix="tiny-imagenet-200/"):
    """Grey JPEGs of one shade, 4 for training and 2 for validation in each of 3 classes."""
    files = {f"{prefix}wnids.txt": "\n".join(TINY_CLASSES).encode()}
    lines = []
    for label, name in enumerate(TINY_CLASSES):
        shade = png(np.full((64, 64), 50 * label, np.uint8), "L", "JPEG")
        for number in range(4):
            files[f"{prefix}train/{name}/images/{name}_{number}.JPEG"] = shade
        for number in (2 * label, 2 * label + 1):
            files[f"{prefix}val/images/val_{number}.JPEG"] = shade
            lines.append(f"val_{number}.JPEG\t{name}\t0\t0\t9\t9")
    files[f"{prefix}val/val_annotations.txt"] = "\n".join(lines).encode()
    files[f"{prefix}test/images/test_0.JPEG"] = b"no picture, and not read"
    return files


def leaf(users):
    """LEAF's JSON of {user: (images as bytes, labels)}."""
    return json.dumps(
        {
            "users": list(users),
            "num_samples": [len(labels) for _, labels in users.values()],
            "user_data": {
                user: {
                    "x": (images.reshape(-1, 784) / 255).tolist(),
                    "y": [int(label) for label in labels],
                }
                for user, (images, labels) in users.items()
            },
        }
    ).encode()
