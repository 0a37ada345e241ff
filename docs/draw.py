"""Draws the pictures of pages that show what the library computes: ``python docs/draw.py``.

They are kept in docs/images, so that a page can be read without being built.
"""

from __future__ import annotations

import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parent))
import pictures

from fedcanon.data import DATASETS, partition
from fedcanon.randomness import Purpose, generator
from fedcanon.statistics import StudySettings, StudySite, investigate
from fedcanon.statistics.report import figures
from fedcanon.tables import LocalSites

PROJECT = Path(__file__).parents[1]
EXAMPLES = PROJECT / "examples"


def label_spread() -> Figure:
    """The classes that each client holds in the default run."""
    targets = DATASETS["digits"]().train.targets
    parts = partition("dirichlet:0.2", targets, 10, generator(0, Purpose.PARTITION))
    counts = np.stack([np.bincount(targets[part], minlength=10) for part in parts])
    return pictures.label_spread(counts)


def drift() -> Figure:
    """The example on structural drift, run."""
    histories = runpy.run_path(str(EXAMPLES / "structural_drift.py"))["compare"]()
    names = {"FedCanon": "FedCanon", "FedCanonPlus": "FedCanon+"}
    norms = {names[key]: [r.gradient_norm for r in records] for key, records in histories.items()}
    return pictures.drift(norms)


def hospitals() -> Iterator[tuple[str, Figure]]:
    """The study over five hospitals, done."""
    tables = runpy.run_path(str(EXAMPLES / "five_hospitals.py"))["hospitals"]()
    asked = (EXAMPLES / "studies" / "five_hospitals.toml").read_text(encoding="utf-8")
    settings = StudySettings(**tomllib.loads(asked))
    sites = LocalSites([StudySite(name, table) for name, table in tables.items()])
    for name, figure in figures(investigate(sites, settings, settings.columns)).items():
        yield f"hospitals-{name}", figure


def main() -> None:
    """Draw all of them."""
    drawn = {"label-spread": label_spread(), "drift": drift(), **dict(hospitals())}
    for name, figure in drawn.items():
        path = PROJECT / "docs" / "images" / f"{name}.png"
        figure.savefig(path, dpi=150, transparent=False, facecolor="white")


if __name__ == "__main__":
    main()
