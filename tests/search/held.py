"""A model for sweeps whose runs, once one of them is finished, stand still in their middle.

With ``HOLD`` in the environment, a worker then waits before it keeps its second checkpoint until
the sweep is broken off, however long that takes.
"""

import os
import sys
from pathlib import Path

from torch import nn

from fedcanon.search import workers

MARK = "held"


def _stand_still(event, arguments):
    if event == "os.rename" and "round-000000020" in str(arguments[1]):
        run = Path(arguments[1]).parents[1]
        if any(run.parent.glob("trial-*/result.json")):
            (run / MARK).touch()
            workers._asked_to_stop.wait()


if "HOLD" in os.environ:
    sys.addaudithook(_stand_still)


def linear(shape, classes):
    return nn.Linear(*shape, classes)
