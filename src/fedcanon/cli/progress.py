"""How far a command is: a bar in a terminal, elsewhere a line on standard error every so often."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedcanon.cli.app import console, plain
from fedcanon.paper.trials import Watch
from fedcanon.report.wording import duration
from fedcanon.runs import Federation, Record
from fedcanon.runs.observers import Observer

EVERY = 10.0
"""Seconds between two lines where no bar can be shown."""

Tell = Callable[[int, str], None]
"""Called with how much is done, and with words on what was reached."""

_errors = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """Write a line on standard error."""
    _Lines.spoken = time.monotonic()
    _errors.print(plain(text), style="dim", soft_wrap=True)


@contextmanager
def stage(doing: str) -> Iterator[None]:
    """Say what is being done, if it takes long: by a spinner in a terminal, elsewhere by lines.

    Args:
        doing: What is done, such as "loading data and model …".
    """
    if console.is_terminal:
        with console.status(plain(doing)):
            yield
        return
    begin, over = time.monotonic(), threading.Event()

    def remind() -> None:
        while not over.wait(EVERY):
            say(f"{doing} ({duration(time.monotonic() - begin)} so far)")

    thread = threading.Thread(target=remind, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def meter(label: str, total: int, done: int = 0) -> Iterator[Tell]:
    """Show how much of something is done, and how long the rest will take.

    Args:
        label: What is counted, such as "round".
        total: How many there are.
        done: How many of them were done before.
    """
    if not console.is_terminal:
        yield _Lines(label, total, done).tell
        return
    columns = (
        TextColumn(plain(label)),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total, completed=done, words="")
        yield lambda now, words: progress.update(task, completed=now, words=plain(words))


class _Lines:
    """Says how much is done, unless a line was written a moment ago by this or another of them."""

    spoken = time.monotonic()
    """When the last line was written, or the command began."""

    def __init__(self, label: str, total: int, done: int) -> None:
        self._label, self._total = label, total
        self._begin, self._since = done, time.monotonic()

    def tell(self, done: int, words: str) -> None:
        now = time.monotonic()
        if now - _Lines.spoken < EVERY:
            return
        parts = [f"{self._label} {done:,} of {self._total:,}"]
        if done > self._begin:
            left = (self._total - done) * (now - self._since) / (done - self._begin)
            parts.append(f"about {duration(left)} left")
        say(" · ".join([*parts, words] if words else parts))


class ProgressBar(Observer):
    """Shows the rounds done, the time left and the last measures."""

    def __init__(self, label: str, shown: ExitStack) -> None:
        self._label, self._words, self._shown = f"{label} round".strip(), "", shown

    def begin(self, federation: Federation, rounds: int) -> None:
        done = federation.rounds_done
        self._tell = self._shown.enter_context(meter(self._label, rounds, done))

    def record(self, record: Record) -> None:
        accuracy, spent = record.test.get("accuracy"), record.diagnostics.get("epsilon")
        measures = [
            "" if math.isnan(record.loss) else f"loss {record.loss:.4f}",
            "" if accuracy is None else f"accuracy {accuracy:.3f}",
            f"zeros {record.sparsity:.1%}",
            "" if spent is None else f"ε {spent:.2f}",
        ]
        self._words = " · ".join(filter(None, measures))

    def event(self, message: str) -> None:
        console.print(f"[yellow]{plain(message)}[/]", soft_wrap=True)

    def round(self, t: int) -> None:
        self._tell(t, self._words)


@contextmanager
def progress_bar(label: str = "") -> Iterator[ProgressBar]:
    """Show how far a run is; ``label`` names the run, if there are several."""
    with ExitStack() as shown:
        yield ProgressBar(label, shown)


class Bars(Watch):
    """Shows how far the reproduction of the paper is."""

    def training(self, label: str) -> AbstractContextManager[Observer]:
        return progress_bar(label)

    @contextmanager
    def steps(self, label: str, total: int) -> Iterator[Callable[[], None]]:
        done = count(1)
        with meter(label, total) as tell:
            yield lambda: tell(next(done), "")
