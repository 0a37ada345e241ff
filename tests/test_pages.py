"""The pages can be read where they lie: nothing is filled in by a build, and no link is dead."""

import inspect
import re
import runpy
from pathlib import Path

import pytest

from fedcanon.penalties import PENALTIES

PROJECT = Path(__file__).parents[1]
PAGES = [*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").glob("**/*.md"))]
COPIES = runpy.run_path(str(PROJECT / "docs" / "copies.py"))

LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_copies_of_programs_and_results_are_what_their_files_hold(page):
    text = page.read_text(encoding="utf-8")
    assert "--8<--" not in text
    assert COPIES["with_copies"](text) == text, "'make pages' writes the copies anew"
    for path in re.findall(r"<!-- copy of (\S+) -->", text):  # also one that it cannot find
        assert (PROJECT / path).read_text(encoding="utf-8").strip() in text


@each_page
def test_links_lead_to_files_of_the_repository(page):
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    paths = [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]
    assert [path for path in paths if not (page.parent / path).exists()] == []


@each_page
def test_no_block_is_only_for_the_builder(page):
    """Such blocks (!!! and ???) are shown as code by everything but the builder."""
    assert re.findall(r"^(?:!!!|\?\?\?).*", page.read_text(encoding="utf-8"), re.MULTILINE) == []


def test_a_stale_copy_is_found():
    page = '```toml title="examples/own_network.toml"\nold\n```\n'
    fresh = COPIES["with_copies"](page)
    assert (PROJECT / "examples" / "own_network.toml").read_text().strip() in fresh
    table = "<!-- copy of benchmarks/results/engine.md -->\n\nold\n\n<!-- end of copy -->\n"
    assert (PROJECT / "benchmarks/results/engine.md").read_text().strip() in COPIES["with_copies"](
        table
    )


def test_a_copy_of_a_file_that_is_not_there_is_an_error():
    with pytest.raises(FileNotFoundError):
        COPIES["with_copies"]("<!-- copy of absent.md -->\n\n\n<!-- end of copy -->\n")
    other = '```toml title="job.toml"\nrounds = 3\n```\n'
    assert COPIES["with_copies"](other) == other


def test_pictures_of_benchmarks_are_the_last_ones():
    for picture, copy in COPIES["PICTURES"].items():
        assert copy.read_bytes() == picture.read_bytes(), "'make pages' copies them anew"


def test_the_page_of_penalties_lists_all_of_them():
    page = (PROJECT / "docs/penalties/index.md").read_text(encoding="utf-8")
    rows = [
        f"| `{name}` | {(inspect.getdoc(kind) or '').partition(chr(10))[0].rstrip('.')} |"
        for name, kind in PENALTIES.items()
    ]
    assert re.findall(r"^\| `\w+` .*", page, re.MULTILINE) == rows
