"""All sites together: requests to them, and sums of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedcanon.errors import FedcanonError
from fedcanon.tables.site import Answer, SiteTable

LEVELS = "levels"
"""The request to which sites answer with different names: those of their levels."""


class Sites(Protocol):
    """The sites, wherever they are."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all sites."""
        ...

    def ask(
        self, what: str, sites: int, arguments: Mapping[str, Any]
    ) -> dict[str, Answer | FedcanonError]:
        """Ask every site; ``sites`` tells them over how many the answers are added up.

        Returns:
            The answers, or why there is none, by the names of the sites.
        """
        ...


@dataclass(frozen=True)
class LocalSites:
    """Sites whose tables are in this process."""

    tables: Sequence[SiteTable]

    @property
    def names(self) -> list[str]:
        return [table.name for table in self.tables]

    def ask(
        self, what: str, sites: int, arguments: Mapping[str, Any]
    ) -> dict[str, Answer | FedcanonError]:
        return {table.name: _answer(table, what, sites, arguments) for table in self.tables}


def _answer(
    table: SiteTable, what: str, sites: int, arguments: Mapping[str, Any]
) -> Answer | FedcanonError:
    try:
        return table.answer(what, sites, arguments)
    except FedcanonError as error:
        return error


def each(sites: Sites, what: str, **arguments: Any) -> dict[str, Answer | FedcanonError]:
    """Ask every site for an answer of its own."""
    return sites.ask(what, 1, arguments)


def total(sites: Sites, what: str, **arguments: Any) -> Answer:
    """Ask every site, and return the sum of the answers, name by name.

    Raises:
        FedcanonError: A site refuses.
    """
    found = required(sites.ask(what, len(sites.names), arguments))
    added: Answer = {}
    for site, answer in found.items():
        if added.keys() - answer.keys() and what != LEVELS:
            raise FedcanonError(f"the site {site} has told of other things than were asked.")
        for name, value in answer.items():
            if name in added and np.shape(added[name]) != np.shape(value):
                raise FedcanonError(f"the site {site} has told of other things than were asked.")
            added[name] = added[name] + value if name in added else value
    return added


def required(told: Mapping[str, Answer | FedcanonError]) -> dict[str, Answer]:
    """Return answers of which none may be missing.

    Raises:
        FedcanonError: A site has not answered.
    """
    answers: dict[str, Answer] = {}
    for name, answer in told.items():
        if isinstance(answer, FedcanonError):
            raise answer
        answers[name] = answer
    return answers
