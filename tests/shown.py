"""What pages show beside what is printed: words must be the same, numbers may be near."""

import re

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def words(text):
    return " ".join(NUMBER.sub("#", text).split())


def numbers(text):
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def printed_as_shown(shown, printed):
    """Whether a text was printed; a line "…" in it stands for any lines, and spaces at ends go."""
    parts = re.split(r"^…$", shown.strip(), flags=re.MULTILINE)
    text = "\n".join(line.rstrip() for line in printed.splitlines())
    return re.search(".*".join(re.escape(part.strip("\n")) for part in parts), text, re.DOTALL)
