"""CSV and Parquet files as a dataset."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from io import BytesIO
from pathlib import Path
from typing import Any

from fedcanon.data.dataset import Dataset, Inputs
from fedcanon.data.own.arrays import numbers
from fedcanon.data.own.samples import Samples, build
from fedcanon.data.sources.files import entries
from fedcanon.errors import FedcanonError, first_line

PACKED = (".gz", ".xz", ".bz2", ".zip")
"""Endings of compressed tables; a zip file must hold nothing but the table."""


def from_table(
    path: str | Path, label: str, *, client: str | None = None, test: str | Path | None = None
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

    Raises:
        FedcanonError: A table cannot be read, lacks a column or values, or has a column that is
            neither numbers nor categories.

    Warns:
        UserWarning: Test data have a category that the training data do not have.
    """
    return build(
        Path(path).name.partition(".")[0],
        table_samples("training", read_table(Path(path)), label, client),
        None if test is None else table_samples("test", read_table(Path(test)), label, client),
        prepare=encode_tables,
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


def encode_tables(train: Any, test: Any) -> tuple[Inputs, Inputs]:
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
    return fitted, numbers(encoder.transform(test), "test")
