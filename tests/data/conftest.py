"""Data folders of the tests' own."""

import pytest

from fedcanon.data import registry


@pytest.fixture
def data(tmp_path, monkeypatch):
    """An empty data folder, and a cache of its own."""
    monkeypatch.setenv("FEDCANON_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDCANON_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "HUB", {})  # where files are absent, do not download
    return tmp_path / "data"
