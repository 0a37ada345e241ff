"""The command line: one file per command, in the order of ``fedcanon --help``."""

from fedcanon.cli import run, runs, compare, report, watch, export, evaluate  # noqa: I001
from fedcanon.cli import check, data, catalogue, paper
from fedcanon.cli.app import main

__all__ = [
    "catalogue",
    "check",
    "compare",
    "data",
    "evaluate",
    "export",
    "main",
    "paper",
    "report",
    "run",
    "runs",
    "watch",
]
