"""Decoded datasets on disk, so that files are decoded once and then only mapped into memory.

A dataset NAME has a folder ``cache_folder()/NAME``, which may be deleted at any time:

* ``CONTENT-vVERSION.pt`` holds its tensors. CONTENT is a hash of the source files, VERSION counts
  the changes of the decoder.
* ``CONTENT-vVERSION.json`` records size, time and SHA-256 of that file. It is written last: without
  it there is no entry.
* ``stamps/STAMP`` holds CONTENT, where STAMP is a hash of paths, sizes and times of the source
  files. A file whose size and time are unchanged is not read again.
* ``lock`` is held while files are hashed, decoded and written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from pydantic import TypeAdapter
from scipy import sparse
from torch import Tensor

from fedcanon.data.dataset import Dataset, Inputs, Split
from fedcanon.errors import FedcanonError
from fedcanon.files import read_json, remove_unfinished, write_whole


def cache_folder() -> Path:
    """Where decoded datasets are kept: ``FEDCANON_CACHE``, or ``~/.cache/fedcanon``."""
    return Path(os.environ.get("FEDCANON_CACHE") or Path.home() / ".cache" / "fedcanon")


def cached(
    name: str, version: int, folder: Path, files: Sequence[Path], decode: Callable[[], Dataset]
) -> Dataset:
    """A decoded dataset from the cache, where it is put if it is not there yet.

    Inputs, labels and users are mapped from the cache: pages are read when they are used, and
    shared between processes. Writing to them does not change the cache.

    Args:
        name: The name of the dataset.
        version: The version of ``decode``; data that another version has decoded are not used.
        folder: The folder of the files, whose names inside it are part of what is hashed.
        files: The files that the dataset is decoded from.
        decode: Makes the dataset of the files.

    Raises:
        FedcanonError: A file cannot be read, or the cache cannot be written.
    """
    place = cache_folder() / name
    stamp = place / "stamps" / _stamp(files)
    content = _remembered(stamp)
    if content and (dataset := _read(_tensors(place, content, version), name)):
        return dataset
    with _locked(place):
        content = _remembered(stamp)
        if not content:
            content = _content(folder, files)
            with _writing(place):
                write_whole(stamp, content)
        tensors = _tensors(place, content, version)
        dataset = _read(tensors, name)
        if not dataset:
            decoded = decode()
            with _writing(place):
                _write(tensors, decoded)
            dataset = _read(tensors, name)
            assert dataset, f"{tensors} is not what was written"
    return dataset


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Let one process at a time write; one that dies frees the lock, but may leave a file."""
    with _writing(place):
        (place / "stamps").mkdir(parents=True, exist_ok=True)
        lock = FileLock(place / "lock")
        lock.acquire()
    try:
        remove_unfinished(place)
        yield
    finally:
        lock.release()


def _stamp(files: Sequence[Path]) -> str:
    """A hash that changes when a file is added, removed, moved, resized or written."""
    stats = ((path, path.stat()) for path in files)
    seen = [(str(path.absolute()), stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def _content(folder: Path, files: Sequence[Path]) -> str:
    """A hash of the files' names inside the folder and of their bytes."""
    try:
        seen = [(path.relative_to(folder).as_posix(), _sha256(path)) for path in files]
    except OSError as problem:
        raise FedcanonError(f"a file of the dataset cannot be read: {problem}.") from problem
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _remembered(stamp: Path) -> str:
    """The hash of source files that were read before; empty if they were not."""
    try:
        found = stamp.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
    return found if re.fullmatch("[0-9a-f]{64}", found) else ""


def _tensors(place: Path, content: str, version: int) -> Path:
    return place / f"{content}-v{version}.pt"


def _read(tensors: Path, name: str) -> Dataset | None:
    """The cached dataset, or None where it is absent or damaged.

    The checksum is verified when the time of the file is not the recorded one.
    """
    try:
        record = read_json(tensors.with_suffix(".json"), TypeAdapter(dict[str, int | str]))
        stat = tensors.stat()
    except (FileNotFoundError, FedcanonError):
        return None
    if record is None or stat.st_size != record.get("size"):
        return None
    if stat.st_mtime_ns != record.get("mtime_ns") and _sha256(tensors) != record.get("sha256"):
        return None
    try:
        packed = torch.load(tensors, mmap=True, weights_only=True)
        train, test = (
            Split(**packed[part] | {"inputs": _unpacked(packed[part]["inputs"])})
            for part in ("train", "test")
        )
        return Dataset(name, train, test, packed["classes"], packed["note"])
    except Exception:  # what was not written by this program raises nearly anything
        return None


def _write(tensors: Path, dataset: Dataset) -> None:
    packed = {
        "train": vars(dataset.train) | {"inputs": _packed(dataset.train.inputs)},
        "test": vars(dataset.test) | {"inputs": _packed(dataset.test.inputs)},
        "classes": dataset.classes,
        "note": dataset.note,
    }
    write_whole(tensors, partial(torch.save, packed))
    stat = tensors.stat()
    known = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": _sha256(tensors)}
    write_whole(tensors.with_suffix(".json"), json.dumps(known))


_CSR = ("data", "indices", "indptr")


def _packed(inputs: Inputs) -> Tensor | dict[str, Any]:
    """The inputs as ``torch.save`` can write them: a sparse matrix becomes its arrays."""
    if isinstance(inputs, Tensor):
        return inputs
    arrays = {key: torch.from_numpy(getattr(inputs, key)) for key in _CSR}
    return {**arrays, "shape": inputs.shape}


def _unpacked(packed: Tensor | dict[str, Any]) -> Inputs:
    if isinstance(packed, Tensor):
        return packed
    return sparse.csr_array(tuple(packed[key].numpy() for key in _CSR), shape=packed["shape"])


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    """Explain why the cache cannot be written."""
    try:
        yield
    except (OSError, RuntimeError) as problem:
        raise FedcanonError(
            f"the cache folder {place} cannot be written ({problem}): make room or give access, "
            "or point FEDCANON_CACHE at another folder."
        ) from problem
