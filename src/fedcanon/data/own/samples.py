"""Samples with labels of any kind, numbered and split into training and test data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedcanon.data.dataset import Dataset, Inputs, Names, Split
from fedcanon.errors import FedcanonError

Prepare = Callable[[Any, Any], tuple[Inputs, Inputs, Names]]
"""Makes numbers of training and test inputs, and names them."""


@dataclass(frozen=True)
class Samples:
    """Inputs in any form that can be split by rows, with a label and maybe a user for each.

    ``part`` is "training" or "test", for messages.
    """

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
    prepare: Prepare = lambda train, test: (train, test, Names()),
    classes: int | None = None,
    holdout: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A dataset of samples: number labels and users, and hold test data out where there are none.

    Args:
        name: What the dataset is called in results.
        train: The training data.
        test: The test data, or None to hold some of the training data out.
        prepare: Makes tensors or matrices of the training and the test inputs, and names them. What
            it learns, such as a mean, must come from the training inputs, which no longer have
            those held out.
        classes: The number of classes, if the labels are already their numbers.
        holdout: The share to hold out.
        seed: What the choice of the samples held out is drawn from.
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
    train_inputs, test_inputs, names = prepare(train.inputs, test.inputs)
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

    named = replace(
        names,
        classes=tuple(map(str, labels)) if classes is None else (),
        users=tuple(map(str, users)),
    )
    splits = numbered(train_inputs, train), numbered(test_inputs, test)
    return Dataset(name, *splits, len(labels), note, named)


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
    from sklearn.model_selection import train_test_split  # takes more than a second to import

    columns = [samples.inputs, samples.labels, *([samples.users] if samples.users else [])]
    strata = [numbers[k] for k in samples.labels] if by_class else None
    parts = train_test_split(*columns, test_size=held_out, random_state=seed, stratify=strata)
    return Samples(samples.part, *parts[::2]), Samples(samples.part, *parts[1::2])


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
