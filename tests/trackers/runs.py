"""A small run, interrupted after a checkpoint and resumed, with trackers."""

import pytest

from fedcanon import FedcanonError, Observer
from fedcanon.runs.folder import RunFolder
from fedcanon.runs.training import resume, train
from fedcanon.trackers import tracking
from fedcanon.trackers.base import numbers

TIMES = {"seconds", "evaluation_seconds"}
"""What differs when a round is done again."""


class Interruption(Observer):
    def __init__(self, t):
        self.t = t

    def round(self, t):
        if t == self.t:
            raise FedcanonError("interrupted")


def run_tracked(name, folder, rounds=4, observers=()):
    with tracking([name], folder) as trackers:
        return train(
            folder=folder,
            rounds=rounds,
            model="linear",
            algorithm={"beta": 0.1},
            checkpoint={"rounds": 2},
            observers=[*trackers, *observers],
        )


def interrupt_tracked(name, folder):
    """Records up to round 5, the last checkpoint at round 4."""
    with pytest.raises(FedcanonError, match="interrupted"):
        run_tracked(name, folder, rounds=8, observers=[Interruption(5)])


def resume_tracked(name, folder, rounds=None):
    with tracking([name], folder) as trackers:
        return resume(folder, rounds=rounds, observers=trackers)


def expected(folder, *, times=True):
    """What a tracker should know: every number of every record, by name and round."""
    table = {}
    for record in RunFolder(folder).records():
        for name, number in numbers(record).items():
            if times or name not in TIMES:
                table.setdefault(name, []).append((record.round, number))
    return table
