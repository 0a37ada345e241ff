"""Fixtures for all trackers."""

import pytest

from fedcanon.runs.training import train


@pytest.fixture
def untracked_run(tmp_path):
    """A finished run of three rounds that nothing tracked."""
    train(folder=tmp_path / "run", rounds=3, model="linear", algorithm={"beta": 0.1})
    return tmp_path / "run"
