"""Every example in the documentation runs."""

import runpy
from pathlib import Path

import pytest

from fedcanon import build, load_config
from fedcanon.algorithms import ALGORITHMS
from fedcanon.data import DATASETS
from fedcanon.penalties import PENALTIES

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def registries_stay_as_they_are():
    """Examples register methods, penalties and data of their own."""
    registries = (ALGORITHMS, PENALTIES, DATASETS)
    before = [(registry, dict(registry)) for registry in registries]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_runs_and_prints(path, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # for what it writes
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_example_configuration_trains_a_round(path):
    federation = build(load_config(path))
    federation.step()
    assert federation.model.isfinite().all()
