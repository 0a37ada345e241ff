"""Your own data: arrays, tables and folders of images."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor

from fedcanon.data.dataset import Dataset, Inputs, Split
from fedcanon.errors import FedcanonError

Picture = tuple[str, Path | bytes]
"""What an image is called in a message, and where it is or what its file holds."""


def from_arrays(
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None = None,
    *,
    users: Iterable[Hashable] | None = None,
    holdout: float = 0.2,
    seed: int = 0,
    name: str = "arrays",
) -> Dataset:
    """Pairs of inputs and labels: tensors, NumPy arrays or SciPy sparse matrices.

    Inputs are (N, d) features or (N, channels, height, width) images and are taken as they are:
    scale them first. Labels are of any hashable kind; sorted, they become 0 … classes − 1.
    ``users`` says whom each training sample comes from. Without ``test``, the share ``holdout`` of
    the training data is held out, class by class where every class has enough samples.
    """
    return build(
        name,
        Samples("training", _numbers(train[0], "training"), _listed(train[1]), _listed(users)),
        None if test is None else Samples("test", _numbers(test[0], "test"), _listed(test[1])),
        holdout=holdout,
        seed=seed,
    )


def from_table(
    path: str | Path, label: str, *, client: str | None = None, test: str | Path | None = None
) -> Dataset:
    """Your own table: a CSV or Parquet file with one row for each sample.

    ``label`` names the column of classes. Numeric columns are standardised with the mean and
    deviation of the training data; columns of strings or categories become one 0/1 column for
    each value. ``client`` names a column that says whom a row comes from. Without a ``test``
    file, a fifth of the rows is held out.
    """
    return build(
        Path(path).name.partition(".")[0],
        table_samples("training", _read_table(Path(path)), label, client),
        None if test is None else table_samples("test", _read_table(Path(test)), label, client),
        prepare=encode_tables,
    )


def from_images(folder: str | Path) -> Dataset:
    """Your own images: a folder with one folder for each class.

    The images must be of one size and are scaled to [0, 1]. If the folder has a folder ``train``,
    the classes are in there, and those of ``test``, if there is one, are the test data;
    otherwise a fifth of the images is held out. Images have one channel if all of them are
    grey, and otherwise three.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FedcanonError(f"there is no folder {folder}: give one that holds folders of images.")
    if not (folder / "train").is_dir():
        return build(folder.name, _pictures("training", folder), None, prepare=read_images)
    test = _pictures("test", folder / "test") if (folder / "test").is_dir() else None
    return build(folder.name, _pictures("training", folder / "train"), test, prepare=read_images)


def library(name: str) -> Any:
    """Import a library of the extra ``data``."""
    try:
        return import_module(name)
    except ImportError:
        raise FedcanonError(f'{name} is not installed: pip install "fedcanon[data]".') from None


@dataclass(frozen=True)
class Samples:
    """Inputs in any form that can be split by rows, with a label and maybe a user for each."""

    part: str
    inputs: Any
    labels: list[Any]
    users: list[Any] | None = None

    def __post_init__(self) -> None:
        rows = self.inputs.shape[0] if hasattr(self.inputs, "shape") else len(self.inputs)
        for what, values in (("labels", self.labels), ("users", self.users)):
            if values is not None and len(values) != rows:
                raise FedcanonError(
                    f"the {self.part} data have {rows} inputs but {len(values)} {what}: "
                    "give one for each input."
                )
        if rows == 0:
            raise FedcanonError(f"the {self.part} data are empty: give at least one sample.")


def build(
    name: str,
    train: Samples,
    test: Samples | None,
    *,
    prepare: Callable[[Any, Any], tuple[Inputs, Inputs]] = lambda train, test: (train, test),
    classes: int | None = None,
    holdout: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Number labels and users, hold test data out where there are none, and prepare the inputs.

    ``prepare`` sees the training and the test inputs after that, so that what it learns comes from
    training data alone. Labels that are numbered already come with their number of ``classes``.
    """
    labels = (
        _numbering(train.labels, "label") if classes is None else {k: k for k in range(classes)}
    )
    if len(labels) < 2:
        raise FedcanonError(
            f"every training label is {train.labels[0]!r}: a classifier needs two classes or more."
        )
    note = ""
    if test is None:
        train, test = _hold_out(train, holdout, seed)
        note = f"{holdout:.0%} of the samples held out for testing"
    users = _numbering([*(train.users or ()), *(test.users or ())], "user")
    train_inputs, test_inputs = prepare(train.inputs, test.inputs)
    if train_inputs.shape[1:] != test_inputs.shape[1:]:
        raise FedcanonError(
            f"a training input has shape {tuple(train_inputs.shape[1:])} but a test input "
            f"{tuple(test_inputs.shape[1:])}: give both the same features."
        )

    def numbered(inputs: Inputs, samples: Samples) -> Split:
        unknown = [k for k in samples.labels if k not in labels]
        if unknown:
            raise FedcanonError(
                f"the label {unknown[0]!r} in the {samples.part} data is not one of the "
                f"{len(labels)} classes to learn: leave its samples out."
            )
        return Split(
            inputs,
            torch.tensor([labels[k] for k in samples.labels]),
            None if samples.users is None else torch.tensor([users[k] for k in samples.users]),
        )

    return Dataset(
        name, numbered(train_inputs, train), numbered(test_inputs, test), len(labels), note
    )


def _hold_out(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples]:
    if not 0 < share < 1:
        raise FedcanonError(f"holdout = {share} is not a share: take one between 0 and 1.")
    size = len(samples.labels)
    held_out = math.ceil(share * size)
    if held_out == size:
        raise FedcanonError(
            f"{size} samples are too few to hold {share:.0%} of them out: give more, or test data."
        )
    counts = Counter(samples.labels)
    by_class = min(counts.values()) > 1 and len(counts) <= min(held_out, size - held_out)
    numbers = _numbering(samples.labels, "label")
    parts = train_test_split(
        samples.inputs,
        samples.labels,
        samples.users or samples.labels,
        test_size=held_out,
        random_state=seed,
        stratify=[numbers[k] for k in samples.labels] if by_class else None,
    )
    train, test = (
        Samples(samples.part, inputs, labels, users if samples.users else None)
        for inputs, labels, users in (parts[::2], parts[1::2])
    )
    return train, test


def _numbering(values: list[Any], what: str) -> dict[Any, int]:
    """Number the distinct values in their order, or by type and text if they have none."""
    try:
        distinct = set(values)
    except TypeError:
        raise FedcanonError(
            f"a {what} is a list or an array: give one value for each sample."
        ) from None
    for value in distinct:
        if value is None or value != value:
            raise FedcanonError(
                f"the {what} of sample {values.index(value)} is missing: fill it in or leave the "
                "sample out."
            )
        if what == "label" and isinstance(value, float) and not value.is_integer():
            raise FedcanonError(
                f"the label {value} is not a class: fedcanon learns to classify; if it does name a "
                "class, make the labels strings."
            )
    try:
        ordered = sorted(distinct)
    except TypeError:
        ordered = sorted(distinct, key=lambda value: (type(value).__name__, str(value)))
    return {value: number for number, value in enumerate(ordered)}


def _listed(values: Any) -> Any:
    """The values as a list of Python objects; None stays None."""
    if values is None:
        return None
    values = values.tolist() if hasattr(values, "tolist") else values
    return [v.item() if isinstance(v, Tensor | np.generic) else v for v in values]


def _numbers(inputs: Any, part: str) -> Inputs:
    """The inputs in float32, dense or CSR, after the checks."""
    if hasattr(inputs, "tocsr"):
        matrix = sparse.csr_array(inputs.tocsr().astype(np.float32))
        entries = matrix.tocoo()
        for entry in np.flatnonzero(~np.isfinite(entries.data))[:1]:
            raise FedcanonError(_not_finite(part, entries.row[entry], entries.col[entry]))
        return matrix
    array = inputs.detach().cpu().numpy() if isinstance(inputs, Tensor) else np.asarray(inputs)
    if array.dtype.kind not in "biuf":
        raise FedcanonError(
            f"the {part} inputs are not numbers ({array.dtype}): encode them first, or use "
            "from_table, which does."
        )
    if array.ndim not in (2, 4):
        raise FedcanonError(
            f"the {part} inputs have the shape {array.shape}: give (samples, features), or "
            "(samples, channels, height, width) for images."
        )
    with np.errstate(over="ignore"):
        array = np.array(array, dtype=np.float32, order="C")
    for row, *column in np.argwhere(~np.isfinite(array))[:1]:
        raise FedcanonError(_not_finite(part, row, ", ".join(str(c) for c in column)))
    return torch.from_numpy(array)


def _not_finite(part: str, row: int, column: int | str) -> str:
    return (
        f"the {part} inputs are NaN or infinite in row {row}, column {column}: fill such values or "
        "leave their rows out."
    )


def _read_table(path: Path) -> Any:
    pandas = library("pandas")
    try:
        if path.suffix in (".parquet", ".pq"):
            return pandas.read_parquet(path)
        if ".csv" in path.suffixes:
            return pandas.read_csv(path, low_memory=False)
    except ImportError:
        raise FedcanonError('pyarrow is not installed: pip install "fedcanon[data]".') from None
    except (OSError, ValueError) as error:
        raise FedcanonError(f"cannot read {path}: {error}.") from None
    raise FedcanonError(f"{path} is not a table that can be read: give a .csv or .parquet file.")


def table_samples(part: str, table: Any, label: str, client: str | None) -> Samples:
    """Split a pandas table into features, labels and users."""
    for column in (label, client):
        if column is not None and column not in table.columns:
            raise FedcanonError(
                f"the {part} table has no column '{column}': use one of "
                f"{', '.join(map(str, table.columns))}."
            )
    for column in table.columns:
        missing = table[column].isna()
        if missing.any():
            raise FedcanonError(
                f"the column '{column}' of the {part} table lacks {missing.sum()} values, the "
                f"first in row {missing.argmax()}: fill them in or leave the rows out."
            )
    users = None if client is None else table[client].tolist()
    features = table.drop(columns=[column for column in (label, client) if column is not None])
    return Samples(part, features, table[label].tolist(), users)


def encode_tables(train: Any, test: Any) -> tuple[Inputs, Inputs]:
    """Standardise numeric columns and one-hot encode the others, as the training table says."""
    types = library("pandas").api.types
    numeric, categories = [], []
    for column in train.columns:
        values = train[column]
        if types.is_numeric_dtype(values):
            numeric.append(column)
        elif types.is_string_dtype(values) or isinstance(values.dtype, types.CategoricalDtype):
            categories.append(column)
            if (distinct := values.nunique()) > max(100, len(values) / 2):
                raise FedcanonError(
                    f"the column '{column}' has {distinct} different values in {len(values)} rows, "
                    "as a text or an identifier has: leave it out or group its values."
                )
        else:
            raise FedcanonError(
                f"the column '{column}' holds neither numbers nor categories ({values.dtype}): "
                "turn it into one of them or leave it out."
            )
    if absent := set(train.columns) ^ set(test.columns):
        raise FedcanonError(
            f"the column '{min(absent, key=str)}' is in only one of the training and test tables: "
            "give both the same columns."
        )
    if not len(train.columns):
        raise FedcanonError("the table has no column besides labels and clients: add features.")
    encoder = ColumnTransformer(
        [
            ("numbers", StandardScaler(), numeric),
            ("categories", OneHotEncoder(handle_unknown="ignore"), categories),
        ]
    )
    fitted = _numbers(encoder.fit_transform(train), "training")
    return fitted, _numbers(encoder.transform(test), "test")


def _pictures(part: str, folder: Path) -> Samples:
    """Every file below the class folders; hidden ones are left out."""
    paths = [
        path
        for path in sorted(folder.glob("*/**/*"))
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    ]
    if not paths:
        raise FedcanonError(f"{folder} has no images in folders: make a folder for each class.")
    labels = [path.relative_to(folder).parts[0] for path in paths]
    return Samples(part, [(str(path), path) for path in paths], labels)


def read_images(train: Sequence[Picture], test: Sequence[Picture]) -> tuple[Tensor, Tensor]:
    """Images as float32 in [0, 1], (N, channels, height, width); grey if all of them are."""
    pictures = [*train, *test]
    decoded = [_decode(*picture) for picture in pictures]
    height, width = decoded[0].shape[:2]
    for (name, _), image in zip(pictures, decoded, strict=True):
        if image.shape[:2] != (height, width):
            raise FedcanonError(
                f"{name} has {image.shape[1]}×{image.shape[0]} pixels but {pictures[0][0]} has "
                f"{width}×{height}: bring all images to one size."
            )
    channels = max(image.shape[2] for image in decoded)
    pixels = np.empty((len(decoded), height, width, channels), dtype=np.uint8)
    for index, image in enumerate(decoded):
        pixels[index] = image  # a grey image fills all channels
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().contiguous().div_(255)
    return images[: len(train)], images[len(train) :]


def _decode(name: str, source: Path | bytes) -> NDArray[np.uint8]:
    """Height × width × channels: one channel for a grey image, otherwise three."""
    try:
        with Image.open(BytesIO(source) if isinstance(source, bytes) else source) as image:
            if image.mode[0] in "IF":
                raise FedcanonError(
                    f"{name} has more than 8 bits for each channel: convert it to 8."
                )
            pixels = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    except UnidentifiedImageError:
        raise FedcanonError(f"{name} is not an image: take it out of the data.") from None
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises
        raise FedcanonError(f"{name} cannot be read: {error}.") from None
    return pixels.reshape(*pixels.shape[:2], -1)
