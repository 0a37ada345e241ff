"""A9A in LIBSVM text: a line is ``±1 index:value …``, with indices from 1."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy import sparse

from fedcanon.data.dataset import Dataset, Split
from fedcanon.data.sources.checks import check_official, subset_note
from fedcanon.data.sources.files import damaged, find, read
from fedcanon.data.sources.source import Source

FILES = ("a9a", "a9a.t")
FEATURES = 123
OFFICIAL = {
    32_561: "7c921cdd25d892a072b7027f8ff5b2808b64da977b132b8621af36da02695384",
    16_281: "ac25a5531cf01a59a330464f98fd8a641ef1b5ae75d40952ccde3f9f75e5dd70",
}
"""SHA-256 of labels and CSR arrays, by the number of training and of test samples."""


def decode(folder: Path, files: Sequence[Path]) -> Dataset:
    """The dataset of a file of training data and one of test data."""
    train, test = map(_read, files)
    return Dataset("a9a", train, test, 2, subset_note(train, test, (32_561, 16_281)))


def _read(path: Path) -> Split:
    text = io.BytesIO(read(path))
    try:
        from sklearn.datasets import load_svmlight_file  # takes more than a second to import

        matrix, labels = load_svmlight_file(text, n_features=FEATURES, zero_based=False)
    except (OverflowError, ValueError) as problem:
        raise damaged(path, problem) from problem
    if not np.isin(labels, (-1, 1)).all():
        raise damaged(path, "its labels are not all -1 or +1")
    if not np.isfinite(matrix.data).all():
        raise damaged(path, "it has a value that is not finite")
    features = sparse.csr_array(matrix)
    features.eliminate_zeros()
    if len(labels) in OFFICIAL:
        arrays = (labels, features.indptr, features.indices, features.data)
        content = b"".join(array.astype("<f8").tobytes() for array in arrays)
        check_official(content, OFFICIAL[len(labels)], path)
    return Split(features, torch.from_numpy((labels > 0).astype(np.int64)))


A9A = Source(
    "a9a",
    "A9A (LIBSVM, from UCI Adult): 123 sparse binary features, 2 classes.",
    "a9a and a9a.t (plain or .gz) from "
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
    partial(find, names=FILES),
    decode,
)
