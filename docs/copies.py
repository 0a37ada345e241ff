"""Copies programs, tables of results and pictures of benchmarks into the pages that show them.

A page can then be read where it lies, without being built. ``make pages`` writes the copies anew;
a test fails while one of them is stale. In a page, a copy is one of these:

- a fenced block of code with the path of a file as title: ``title="examples/quickstart.py"``
- what lies between ``<!-- copy of PATH -->`` and ``<!-- end of copy -->``
"""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("**/*.md"))]

COPIES = (
    r'(?P<begin>```\w+ title="(?P<path>[^"]+)"\n).*?(?P<end>^```$)',
    r"(?P<begin><!-- copy of (?P<path>\S+) -->\n\n).*?(?P<end>^\n<!-- end of copy -->$)",
)

PICTURES = {
    PROJECT / "benchmarks" / "results" / name: PROJECT / "docs" / "images" / name
    for name in (
        "rounds-convex.png",
        "rounds-networks.png",
        "trust-clients.png",
        "trust-generalisation.png",
        "which.png",
    )
}
"""Pictures that benchmarks have drawn, and where pages find them."""


def with_copies(text: str) -> str:
    """The text of a page in which every copy is what its file holds now."""

    def copied(match: re.Match[str]) -> str:
        path = PROJECT / match["path"]
        titled = match["begin"].startswith("```")
        if titled and not path.is_file():  # a title that names no file of ours, such as "job.toml"
            return match[0]
        return f"{match['begin']}{path.read_text(encoding='utf-8').strip()}\n{match['end']}"

    for pattern in COPIES:
        text = re.sub(f"^{pattern}", copied, text, flags=re.DOTALL | re.MULTILINE)
    return text


def main() -> None:
    """Write all copies anew."""
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        if (after := with_copies(before)) != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(PROJECT))
    for picture, copy in PICTURES.items():
        copy.write_bytes(picture.read_bytes())


if __name__ == "__main__":
    main()
