"""Problems as a whole."""

import pytest
import torch

from fedcanon import FedcanonError, Logistic, Problem
from tests.engines.networks import classifiers


def test_clients_of_one_network_can_be_sent_to_a_device():
    problem = classifiers(clients=3)
    moved = problem.to(torch.device("cpu"))
    assert moved.clients.flat is not problem.clients.flat
    assert moved.value(moved.start) == problem.value(problem.start)
    assert moved.test(moved.start) == problem.test(problem.start)


class Movable(list):
    """Clients that could be moved, but not with a test of the same network."""

    def to(self, device):
        return self


def test_others_cannot():
    clients = Movable([Logistic([[1.0], [2.0]], [0, 1])])
    for problem in (
        Problem(clients, torch.zeros(2, dtype=torch.float64)),
        Problem(classifiers(clients=3).clients, classifiers(clients=3).start),
    ):
        with pytest.raises(FedcanonError, match="share one network"):
            problem.to(torch.device("cpu"))
