"""Runs: configuration, rounds, measures."""

from fedcanon.runs.federation import Federation
from fedcanon.runs.measures import Record
from fedcanon.runs.train import Result, train

__all__ = ["Federation", "Record", "Result", "train"]
