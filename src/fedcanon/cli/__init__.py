"""The command line: one file per command, in the order of ``fedcanon --help``."""

from fedcanon.cli import run, runs, compare, sweep, path, report, watch  # noqa: I001
from fedcanon.cli import export, evaluate, deploy, check, data, catalogue, paper
from fedcanon.cli.app import main

__all__ = [
    "catalogue",
    "check",
    "compare",
    "data",
    "deploy",
    "evaluate",
    "export",
    "main",
    "paper",
    "path",
    "report",
    "run",
    "runs",
    "sweep",
    "watch",
]
