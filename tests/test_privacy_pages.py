"""The pages on privacy and hostile clients: their commands print what the pages say."""

import json
import re
from pathlib import Path

import pytest

from fedcanon.runs.config import read_toml
from tests.shown import numbers, printed_as_shown, words

PROJECT = Path(__file__).parents[1]
PAGES = PROJECT / "docs" / "how-to"
HOSTILE = """
rounds = 40
batch_size = "full"
model.name = "linear"
data.partition = "dirichlet:0.5"
penalty = {name = "l1", kappa = 0.001}
"""


def blocks(page, language):
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_check_prints_the_promise_that_the_page_shows(fedcanon, tmp_path):
    path = tmp_path / "private.toml"
    path.write_text(blocks("privacy.md", "toml")[0], encoding="utf-8")
    assert read_toml(path)["privacy"]["epsilon"] == 8.0
    code, out, err = fedcanon("check", str(path))
    assert code == 0, err
    assert printed_as_shown(blocks("privacy.md", "text")[0], out)


@pytest.mark.slow
def test_attack_prints_the_table_that_the_page_shows(fedcanon, tmp_path):
    path = tmp_path / "hostile.toml"
    path.write_text(HOSTILE, encoding="utf-8")
    code, out, err = fedcanon("attack", str(path), "--clients", "2")
    assert code == 0, err
    shown = blocks("hostile-clients.md", "text")[0]
    assert words(out) == words(shown)
    assert numbers(out) == pytest.approx(numbers(shown), abs=0.02)


def test_limits_on_the_pages_are_those_that_were_measured():
    path = PROJECT / "benchmarks" / "results" / "trust-limits.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    factors = []
    for gaps in found["clients"]:  # of clips that are half a power of ten apart
        best = gaps.index(min(gaps))
        factors.append(gaps[best + 2] / gaps[best])
    privacy, hostile = (
        (PAGES / page).read_text(encoding="utf-8") for page in ("privacy.md", "hostile-clients.md")
    )
    assert f"a factor of {min(factors):.0f} to {max(factors):.0f} in the gap" in privacy
    one, two, three, ten = found["records"]
    assert three < min(one, two, ten)
    small, _, large = found["hostile"]
    assert f"{large:.0f} times as far away as it was large, and {small:.1f} times" in hostile
    honest = found["honest"]["dirichlet:0.1"]
    assert sum(split["dropped"] > 0 for split in honest) == 2
    assert len(honest) == 6
    assert f"{max(split['share'] for split in honest):.0%}".replace("%", " %") in hostile
