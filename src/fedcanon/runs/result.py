"""What comes out of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor, nn

from fedcanon.runs.measures import Record, frame

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Result:
    """A trained model, and the measures along the way.

    ``vector`` is the model as one flat vector, ``buffers`` its normalisation statistics; ``model``
    is the module with both. ``stopped`` says why training ended, ``folder`` where the run is kept.
    """

    vector: Tensor
    buffers: Tensor
    records: Sequence[Record]
    stopped: str
    make_model: Callable[[], nn.Module]
    title: str = ""
    folder: Path | None = None

    @cached_property
    def model(self) -> nn.Module:
        """The trained network, in evaluation mode."""
        return self.make_model()

    @property
    def last(self) -> Record:
        """The measures of the final model."""
        return self.records[-1]

    @property
    def history(self) -> pd.DataFrame:
        """The measures as a table, a row each."""
        return frame(self.records)

    def plot(self) -> Figure:
        """Objective, accuracy, sparsity and stationarity against rounds."""
        from fedcanon.runs.plots import plot_histories

        return plot_histories({"": self.records}, self.title)
