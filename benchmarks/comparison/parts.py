"""What programs of several parts share: their options, the journal of a part, and how far it is."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from comparison.journal import Journal
from fedcanon.threads import one_thread

FOLDER = Path(__file__).parents[1]


def options_of(name: str, about: str, parts: Iterable[str]) -> argparse.ArgumentParser:
    """The options of a program: the part, where runs are kept, where results go, and a short look.

    Args:
        name: The name of the program, which is also that of the folder with its runs.
        about: Its docstring, of which the first line is shown.
        parts: The names of its parts.
    """
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("part", choices=tuple(parts))
    parser.add_argument("--work", type=Path, default=FOLDER.parent / "runs" / name)
    parser.add_argument("--results", type=Path, default=FOLDER / "results")
    parser.add_argument("--smoke", action="store_true", help="the least of it")
    return parser


@contextmanager
def working(options: argparse.Namespace) -> Iterator[tuple[Journal, Progress]]:
    """The journal of a part and a display of how far it is, with one thread for each process."""
    columns = (MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with one_thread(), Progress(*columns) as progress:
        yield Journal(options.work / f"{options.part}.jsonl"), progress
