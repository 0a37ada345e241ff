"""The command line: one file per command, in the order of ``fedcanon --help``."""

from fedcanon.cli import run, runs, compare, check, data, catalogue, paper  # noqa: I001
from fedcanon.cli.app import main

__all__ = ["catalogue", "check", "compare", "data", "main", "paper", "run", "runs"]
