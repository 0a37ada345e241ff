"""The result of training."""

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
    """A trained model, and the measures during training.

    Args:
        vector: The model as one flat vector.
        buffers: Its normalisation statistics.
        records: The measures.
        stopped: Why training ended.
        make_model: Makes the PyTorch module of the model.
        title: The title of plots.
        folder: The folder of the run, if it has one.
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
        """The trained model as a PyTorch module, in evaluation mode."""
        return self.make_model()

    @property
    def last(self) -> Record:
        """The measures of the final model."""
        return self.records[-1]

    @property
    def history(self) -> pd.DataFrame:
        """The measures as a table with one row each."""
        return frame(self.records)

    def plot(self) -> Figure:
        """Plot objective, accuracy, sparsity and stationarity against rounds."""
        from fedcanon.runs.plots import plot_histories

        return plot_histories({"": self.records}, self.title)
