"""The exceptions of fedcanon, and sentences that several of them share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedcanonError(Exception):
    """An error that the user can fix: its message says what is wrong and what to do.

    The command line prints it without a traceback; in Python it is an ordinary exception.
    """


class DivergenceError(FedcanonError):
    """A model or an update is not finite: the steps are too large, or data have missing values."""


class RunStoppedError(FedcanonError):
    """A run was stopped by a signal, after a complete round and a checkpoint."""


class EngineSignalError(Exception):
    """A signal from an engine to its federation, which handles it; users never see it."""


class StartOverError(EngineSignalError):
    """The states of server and clients do not belong together any more.

    The server must restart from its current model with ``server_init``; the clients do the same.
    """


class RegroupError(EngineSignalError):
    """Clients have left while a round waited for them: it must be repeated without them."""


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error means that there is not enough memory.

    PyTorch raises a general RuntimeError for that on CPUs, which only its text identifies.
    """
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def first_line(error: BaseException) -> str:
    """Shorten the message of a library's error to its first line, without a full stop."""
    text = str(error).strip() or type(error).__name__
    return text.partition("\n")[0].strip().rstrip(".:")


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> str:
    """Return the message for a name that does not exist, with the most similar valid name."""
    return f"there is no {kind} called '{name}': {suggestion(name, valid)}"


def suggestion(word: str, valid: Iterable[str]) -> str:
    """Return the question whether the most similar of some words was meant, or all of them."""
    names = sorted(valid)
    nearest = difflib.get_close_matches(word, names, n=1)
    return f"did you mean '{nearest[0]}'?" if nearest else f"use one of {', '.join(names)}."
