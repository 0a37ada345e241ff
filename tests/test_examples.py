"""Every example in the documentation runs, and imports what is public."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from fedcanon import build, load_config
from tests.shown import numbers, words

PROJECT = Path(__file__).parents[1]
EXAMPLES = PROJECT / "examples"
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("**/*.md"))]


SHOWN = re.compile(
    r'^```python title="examples/(\w+\.py)"\n(?:(?!^```$).)*^```$[^`]*^```text\n(.*?)^```$',
    re.DOTALL | re.MULTILINE,
)
PRINTED = {name: text for page in PAGES for name, text in SHOWN.findall(page.read_text("utf-8"))}
"""What pages show as the output of a program, right below it."""


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("[!_]*.py")), ids=lambda path: path.name)
def test_example_prints_what_its_page_shows(path, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # for what it writes
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.strip()
    if shown := PRINTED.get(path.name):
        assert words(printed) == words(shown)
        said, found = numbers(shown), numbers(printed)
        # Rounding errors, and what a processor makes of networks in single precision, differ.
        assert np.isclose(said, found, rtol=0.1, atol=1e-12).mean() > 0.7, printed


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
