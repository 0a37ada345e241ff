"""Every table and figure by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedcanon.paper import (
    accuracy,
    costs,
    datasets,
    fig1,
    fig2,
    fig3,
    properties,
    prox,
    seconds,
    theory,
)
from fedcanon.paper.outcome import Outcome, Scale
from fedcanon.paper.trials import Trainer

Item = Callable[[Scale, Trainer], Iterator[Outcome]]
"""Yields outcomes, each of which replaces the one before: those of long work come part by part."""

ITEMS: dict[str, Item] = {
    "prox": prox.run,
    "properties": properties.run,
    "costs": costs.run,
    "datasets": datasets.run,
    "fig1": fig1.run,
    "fig2": fig2.run,
    "fig3": fig3.run,
    "time": seconds.run,
    "accuracy": accuracy.run,
    "theory": theory.run,
}
