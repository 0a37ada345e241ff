"""Long errors of libraries in one line."""

from __future__ import annotations


def one_line(error: BaseException) -> str:
    """The first line of what an error says, without a full stop."""
    text = str(error).strip() or type(error).__name__
    return text.partition("\n")[0].strip().rstrip(".:")
