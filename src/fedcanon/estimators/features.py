"""Groups of features, for penalties with groups."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedcanon.errors import FedcanonError
from fedcanon.penalties import Penalty, PerLayer, SparseGroupLasso, Sum
from fedcanon.penalties.group import Grouped


def indices(groups: Any, features: Sequence[str]) -> Any:
    """``groups`` with the index of a feature in place of its name.

    Args:
        groups: A number, lists of features, or a dictionary of such lists.
        features: The names of all features, if they have names.

    Raises:
        FedcanonError: No feature has such a name.
    """
    if isinstance(groups, dict):
        groups = list(groups.values())
    if isinstance(groups, list):
        return [indices(group, features) for group in groups]
    if isinstance(groups, str):
        if groups not in features:
            raise FedcanonError(
                f"there is no feature called '{groups}': groups hold names of columns of the data "
                "frame, or features counted from 0."
            )
        return features.index(groups)
    return groups


def over_features(penalty: Penalty, *, chosen: bool) -> Penalty:
    """``penalty`` with groups of features, which are the columns of the first layer's weights.

    Args:
        penalty: What was placed on the layers of a model; a penalty of the whole vector is returned
            as it is.
        chosen: Whether the user has said which layers it is placed on.

    Raises:
        FedcanonError: A layer that does not see the features has groups, and nobody has chosen it.
    """
    if not isinstance(penalty, PerLayer):
        return penalty
    rules: list[tuple[str, Penalty]] = []
    for slot, term in penalty.placed:
        by_columns = _by_columns(term)
        if slot.offset > 0 and by_columns is not term and not chosen:
            raise FedcanonError(
                "groups of features belong to the first layer of a network, not to all: place the "
                'penalty there, penalty={"layers": [{"match": "0.weight", …}]}.'
            )
        rules.append((glob.escape(slot.name), term if slot.offset > 0 else by_columns))
    return PerLayer(penalty.layout, tuple(rules))


def _by_columns(penalty: Penalty) -> Penalty:
    """The penalty with groups of columns; the same object if it has no groups."""
    if isinstance(penalty, Sum):
        terms = tuple(map(_by_columns, penalty.terms))
        changed = any(new is not old for new, old in zip(terms, penalty.terms, strict=True))
        return Sum(terms) if changed else penalty
    if isinstance(penalty, Grouped | SparseGroupLasso) and penalty.groups is not None:
        return replace(penalty, axis=1)  # type: ignore[type-var]
    return penalty
