"""A run whose network has neurons without inputs."""

import pytest

from fedcanon.runs.training import train


@pytest.fixture(scope="session")
def sparse_run(tmp_path_factory):
    """Digits, the MLP and the group lasso."""
    folder = tmp_path_factory.mktemp("runs") / "group-lasso"
    train(
        rounds=40,
        data={"partition": "iid"},
        clients={"count": 4},
        penalty={"name": "group_lasso", "kappa": 2e-3},
        evaluate={"every": 40, "gradient": False},
        folder=folder,
    )
    return folder
