"""Text that comes from files and other machines, made harmless for terminals and logs."""

from __future__ import annotations


def printable(text: object, *, lines: bool = False) -> str:
    """Return a text with codes in place of characters that no reader sees.

    Written as they are, they could colour, clear or forge what a terminal or a log shows.

    Args:
        text: The text, or anything else that has one.
        lines: Whether the ends of lines stay as they are.
    """
    return "".join(
        c if c.isprintable() or (lines and c == "\n") else repr(c)[1:-1] for c in str(text)
    )
