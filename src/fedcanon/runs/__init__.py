"""Runs: configuration, training rounds, measures, and the folders in which they are stored."""

from fedcanon.runs.federation import Federation
from fedcanon.runs.fit import fit
from fedcanon.runs.measures import Record
from fedcanon.runs.observers import Observer
from fedcanon.runs.result import Result

__all__ = ["Federation", "Observer", "Record", "Result", "fit"]
