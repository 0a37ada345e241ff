"""Shortens the error messages of libraries."""

from __future__ import annotations


def one_line(error: BaseException) -> str:
    """The first line of an error message, without a full stop."""
    text = str(error).strip() or type(error).__name__
    return text.partition("\n")[0].strip().rstrip(".:")
