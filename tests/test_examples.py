"""Every example in the documentation runs, and imports what is public."""

import re
import runpy
from pathlib import Path

import pytest

from fedcanon import build, load_config

PROJECT = Path(__file__).parents[1]
EXAMPLES = PROJECT / "examples"
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("**/*.md"))]


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("[!_]*.py")), ids=lambda path: path.name)
def test_example_runs_and_prints(path, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # for what it writes
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_example_configuration_trains_a_round(path):
    federation = build(load_config(path))
    federation.step()
    assert federation.model.isfinite().all()


@pytest.mark.parametrize(
    "path", [*sorted(EXAMPLES.glob("[!_]*.py")), *PAGES], ids=lambda path: path.name
)
def test_programs_import_from_the_package_or_one_level_below(path):
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^ *(?:from|import) fedcanon\.\w+\.[\w.]+", text, re.MULTILINE) == []
