"""The pages on privacy and hostile clients: their commands print what the pages say."""

import re
from pathlib import Path

import pytest

from fedcanon.runs.config import read_toml
from tests.test_tutorial import printed_as_shown

PAGES = Path(__file__).parents[1] / "docs" / "how-to"
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
    assert printed_as_shown(blocks("hostile-clients.md", "text")[0], out)
