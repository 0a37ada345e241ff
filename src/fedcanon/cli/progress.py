"""Progress bars of runs and other work that takes long."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedcanon.cli.app import console, plain
from fedcanon.paper.trials import Watch
from fedcanon.runs import Federation, Record
from fedcanon.runs.observers import Observer


class ProgressBar(Observer):
    """Shows the rounds done, the time left and the last measures."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def begin(self, federation: Federation, rounds: int) -> None:
        done = federation.rounds_done
        self._task = self._progress.add_task("", total=rounds, completed=done, measures="")

    def record(self, record: Record) -> None:
        accuracy, spent = record.test.get("accuracy"), record.diagnostics.get("epsilon")
        measures = [
            "" if math.isnan(record.loss) else f"loss {record.loss:.4f}",
            "" if accuracy is None else f"accuracy {accuracy:.3f}",
            f"zeros {record.sparsity:.1%}",
            "" if spent is None else f"ε {spent:.2f}",
        ]
        self._progress.update(self._task, measures=" · ".join(filter(None, measures)))

    def event(self, message: str) -> None:
        console.print(f"[yellow]{plain(message)}[/]", soft_wrap=True)

    def round(self, t: int) -> None:
        self._progress.update(self._task, completed=t)


@contextmanager
def progress_bar(label: str = "") -> Iterator[ProgressBar]:
    """Show a progress bar during a run, if the output is a terminal; ``label`` names the run."""
    columns = (
        TextColumn(plain(f"{label} round".strip())),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[measures]}"),
    )
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        yield ProgressBar(progress)


class Bars(Watch):
    """Shows progress bars, if the output is a terminal."""

    def training(self, label: str) -> AbstractContextManager[Observer]:
        return progress_bar(label)

    @contextmanager
    def steps(self, label: str, total: int) -> Iterator[Callable[[], None]]:
        columns = (TextColumn(plain(label)), MofNCompleteColumn(), BarColumn())
        hidden = not console.is_terminal
        with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
            task = progress.add_task("", total=total)
            yield lambda: progress.advance(task)
