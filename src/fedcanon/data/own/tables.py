"""CSV and Parquet files as a dataset."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcanon.data.dataset import Dataset, Inputs, Names
from fedcanon.data.own.arrays import numbers
from fedcanon.data.own.samples import Samples, build
from fedcanon.data.sources.files import entries
from fedcanon.errors import FedcanonError, first_line

if TYPE_CHECKING:
    from sklearn.compose import ColumnTransformer

PACKED = (".gz", ".xz", ".bz2", ".zip")
"""Endings of compressed tables; a zip file must hold nothing but the table."""


MOST_CLASSES = 20
"""A label of numbers with more different values is rather a quantity than a class."""


def from_table(
    path: str | Path,
    label: str,
    *,
    client: str | None = None,
    test: str | Path | None = None,
    columns: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    numeric_classes: bool = False,
) -> Dataset:
    """Your own table: a CSV or Parquet file with one row for each sample.

    Columns of numbers are standardised with the mean and deviation of the training data. A column
    of strings or categories becomes one column of zeros and ones for each value; a value that only
    test data have is zero in all of them, and a warning says so.

    Args:
        path: The table of the training data.
        label: The column of classes.
        client: The column that says whom a row comes from.
        test: A table of test data. Without it, a fifth of the rows is held out.
        columns: The columns to learn from; all but label and client if it is empty.
        drop: Columns to leave out, such as identifiers.
        numeric_classes: Whether a label of numbers with more than ``MOST_CLASSES`` different values
            holds classes all the same.

    Raises:
        FedcanonError: A table cannot be read, lacks a column or values, has a column that is
            neither numbers nor categories, or a label that is a quantity.

    Warns:
        UserWarning: Test data have a category that the training data do not have.
    """

    def samples(part: str, path: str | Path) -> Samples:
        table = chosen(part, read_table(Path(path)), [label, client], columns, drop)
        return table_samples(part, table, label, client)

    train = samples("training", path)
    if not numeric_classes:
        _refuse_quantity(label, train.labels)
    return build(
        Path(path).name.partition(".")[0],
        train,
        None if test is None else samples("test", test),
        prepare=encode_tables,
    )


def chosen(
    part: str,
    table: Any,
    named: Sequence[str | None],
    columns: Sequence[str],
    drop: Sequence[str],
) -> Any:
    """The columns of a pandas table that are asked for, and those of label and client.

    Args:
        part: "training" or "test", for messages.
        table: The table.
        named: The columns of label and client.
        columns: The columns to learn from; none are all.
        drop: The columns to leave out.

    Raises:
        FedcanonError: There is no such column, or the label is among those to leave out.
    """
    for column in (*columns, *drop):
        if column not in table.columns:
            raise FedcanonError(
                f"the {part} table has no column '{column}': use some of "
                f"{', '.join(map(str, table.columns))}."
            )
    for column in drop:
        if column in named or column in columns:
            raise FedcanonError(
                f"the column '{column}' cannot be left out (drop) and used at once: choose one."
            )
    kept = columns or [column for column in table.columns if column not in drop]
    return table[[c for c in table.columns if c in kept or c in named]]


def _refuse_quantity(label: str, values: Sequence[Any]) -> None:
    """Raise a ``FedcanonError`` if a label is a quantity, such as an age."""
    distinct = set(values)
    if len(distinct) > MOST_CLASSES and all(isinstance(v, int | float) for v in distinct):
        raise FedcanonError(
            f"the label '{label}' holds numbers with {len(distinct)} different values, as a "
            "quantity does: fedcanon run learns classes, and 'fedcanon glm' quantities. If the "
            "numbers do name classes, set data.numeric_classes=true."
        )


def read_table(path: Path) -> Any:
    """Read a table into a data frame of pandas.

    Raises:
        FedcanonError: It cannot be read.
    """
    import pandas  # takes half a second

    try:
        if path.suffix in (".parquet", ".pq"):
            return pandas.read_parquet(path)
        if path.suffix == ".csv":
            return pandas.read_csv(path, low_memory=False)
        if path.suffixes[-2:-1] == [".csv"] and path.suffix in PACKED:
            [entry] = entries(path.parent, path)
            return pandas.read_csv(BytesIO(entry.content), low_memory=False)
    except FedcanonError:
        raise
    except Exception as error:  # pandas and pyarrow raise nearly anything
        raise FedcanonError(f"cannot read {path}: {first_line(error)}.") from None
    raise FedcanonError(f"{path} is not a table that can be read: give a .csv or .parquet file.")


def table_samples(part: str, table: Any, label: str, client: str | None) -> Samples:
    """Split a pandas table into features, labels and users; ``part`` names it in messages."""
    named = [column for column in (label, client) if column is not None]
    for column in named:
        if column not in table.columns:
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
    return Samples(part, table.drop(columns=named), table[label].tolist(), users)


def warn_of_new(column: str, values: Any, known: Collection[Any], taken: str) -> None:
    """Warn if a column has values that a model has never seen.

    Args:
        column: The name of the column.
        values: Its values, as a series of pandas.
        known: The values that the model has seen.
        taken: What is done with others, at the end of a sentence.
    """
    new = values[~values.isin(known)]
    if len(new):
        warnings.warn(
            f"the column '{column}' has {len(new)} of {len(values)} rows with a category that the "
            f"training data do not have, such as {new.iloc[0]!r}, {taken}.",
            stacklevel=2,
        )


def encode_tables(train: Any, test: Any) -> tuple[Inputs, Inputs, Names]:
    """Standardise numeric columns and one-hot encode the others, as the training table says."""
    from pandas.api import types

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
    for column in categories:
        warn_of_new(column, test[column], set(train[column]), "which is taken as none of them")
    # Take more than a second to import.
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    encoder = ColumnTransformer(
        [
            ("numbers", StandardScaler(), numeric),
            ("categories", OneHotEncoder(handle_unknown="ignore"), categories),
        ]
    )
    fitted = numbers(encoder.fit_transform(train), "training")
    return fitted, numbers(encoder.transform(test), "test"), _names(encoder, numeric, categories)


def _names(encoder: ColumnTransformer, numeric: Sequence[Any], categories: Sequence[Any]) -> Names:
    """What the encoder has made of the columns: its numbers, and zeros and ones."""
    names, means, deviations = [str(column) for column in numeric], list[float](), list[float]()
    if numeric:
        scaler = encoder.named_transformers_["numbers"]
        means, deviations = scaler.mean_.tolist(), scaler.scale_.tolist()
    if categories:
        values = encoder.named_transformers_["categories"].categories_
        of_each = zip(categories, values, strict=True)
        indicators = [f"{column}={value}" for column, own in of_each for value in own]
        names += indicators
        means += [0.0] * len(indicators)
        deviations += [1.0] * len(indicators)
    return Names(tuple(names), tuple(means), tuple(deviations))
