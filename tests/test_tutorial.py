"""The pages on statistics over sites: their commands and programs print what the pages say."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from fedcanon.tables import LocalSites
from tests.shown import printed_as_shown

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "docs"

BLOCK = re.compile(r"^```(bash|python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def run(fedcanon, asked, capsys, monkeypatch, tmp_path):
    """Run what a block of a page says, in a folder with the tables of the five hospitals."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(PROJECT / "examples")
    example = "examples/five_hospitals.py"
    runpy.run_path(example, run_name="__main__")
    tables = capsys.readouterr().out

    def run(language, text):
        asked[text] = 0
        if language == "python":
            exec(compile(text, "page", "exec"), {})
            return capsys.readouterr().out
        if f"python {example}" in text:
            return tables
        command = shlex.split(text.replace("\\\n", " "), comments=True)
        if command[:2] != ["fedcanon", "glm"]:
            return None  # of a deployment
        assert command[2] == "hospitals/*.csv"
        files = sorted(str(path) for path in Path("hospitals").glob("*.csv"))
        code, out, err = fedcanon("glm", *files, *command[3:])
        assert code == 0, err
        return out

    return run


@pytest.fixture
def asked(monkeypatch):
    """How often the sites were asked by each block of a page."""
    counts, ask = {}, LocalSites.ask

    def counted(sites, *request):
        if len(sites.tables) > 1:  # otherwise a site asks itself, for its own fit
            counts[list(counts)[-1]] += 1
        return ask(sites, *request)

    monkeypatch.setattr(LocalSites, "ask", counted)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "blocks"), [("five-hospitals.md", 6), ("how-to/site-guards.md", 1)]
)
def test_commands_and_programs_of_a_page_print_what_it_shows(page, blocks, run, asked):
    compared, output = 0, None
    content = (DOCS / page).read_text(encoding="utf-8")
    for language, text in BLOCK.findall(content):
        if language != "text":
            output = run(language, text)
        elif output is not None:
            assert printed_as_shown(text, output), output
            compared, output = compared + 1, None
    assert compared == blocks
    if told := re.search(r"asked each site (\d+) times.* it is (\d+) times", content):
        counts = [count for text, count in asked.items() if text.startswith("fedcanon glm")]
        assert counts[:2] == [int(count) for count in told.groups()]
    assert (told is not None) == (page == "five-hospitals.md")
