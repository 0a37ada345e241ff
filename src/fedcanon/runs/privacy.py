"""Private runs: what they refuse, what they change, and how much of their budget is spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import TypeAdapter

from fedcanon.algorithms import (
    Algorithm,
    AveragedFedCanonPlus,
    FadingFedCanonPlus,
    FedCanonPlus,
    State,
)
from fedcanon.compression import Clip, Compressor, Identity, PrivateClip
from fedcanon.engines import Aggregation
from fedcanon.engines.client import BUFFERS
from fedcanon.engines.noisy_mean import NoisyMean
from fedcanon.errors import FedcanonError
from fedcanon.files import Count, read_json, write_whole
from fedcanon.objectives import DataSummary, Problem
from fedcanon.privacy import ClientPrivacy, Privacy, RecordPrivacy
from fedcanon.runs.record_checks import check_records

_FILE = "privacy.json"

_COUNTS = TypeAdapter(dict[Count, Count])


class Parts(NamedTuple):
    """The parts of a federation that privacy may change."""

    algorithm: Algorithm
    compressor: Compressor
    aggregation: Aggregation | None


def require_delta(delta: float, clients: int) -> None:
    """Raise a ``FedcanonError`` if δ is too large to hide one of so many clients."""
    if delta > 1 / (10 * clients):
        raise FedcanonError(
            f"privacy.delta = {delta:g} would permit to name one of {clients} clients: use "
            f"at most {1 / (10 * clients):g}."
        )


def private_parts(privacy: Privacy | None, problem: Problem, parts: Parts) -> Parts:
    """Return the parts of a private federation; without ``privacy`` they are as they were.

    Raises:
        FedcanonError: They cannot be private together.
    """
    if privacy is None:
        return parts
    if problem.start_buffers.numel():
        raise FedcanonError(
            "a private run cannot train a model with batch normalisation, whose statistics would "
            'leave the clients without noise: use group normalisation (model.norm = "group").'
        )
    algorithm = private_algorithm(parts.algorithm, privacy)
    if isinstance(privacy, RecordPrivacy):
        check_records(problem, parts.algorithm, privacy)
        return parts._replace(algorithm=algorithm)
    assert isinstance(privacy, ClientPrivacy)
    if not isinstance(parts.compressor, Identity | Clip):
        raise FedcanonError(
            "privacy of clients clips the updates, and no other compression goes with it: leave "
            "out compression."
        )
    if parts.aggregation is not None:
        raise FedcanonError(
            "nobody knows how much noise hides a client behind a robust rule: use privacy of "
            'records (privacy.level = "record") with it, or leave one of them out.'
        )
    return Parts(algorithm, PrivateClip(privacy.clip), _noisy_mean(privacy, problem))


def private_algorithm(algorithm: Algorithm, privacy: Privacy) -> Algorithm:
    """Return the form of an algorithm for private runs: its states fade, its model is averaged.

    Raises:
        FedcanonError: Clients cannot be protected in runs of this algorithm.
    """
    average_from = None if privacy.rounds is None else privacy.rounds // 2
    given = {field.name: getattr(algorithm, field.name) for field in fields(algorithm)}  # type: ignore[arg-type]
    if not isinstance(privacy, ClientPrivacy):
        if type(algorithm) is not FedCanonPlus:
            return algorithm
        return AveragedFedCanonPlus(**given, average_from=average_from)
    if type(algorithm) is not FedCanonPlus:
        raise FedcanonError(
            "privacy of clients is for FedCanon+, whose updates become small: use "
            'algorithm.name = "fedcanon+", or privacy.level = "record".'
        )
    return FadingFedCanonPlus(**given, average_from=average_from, forgetting=privacy.forgetting)


def public_summary(data: DataSummary, privacy: Privacy | None) -> DataSummary:
    """Return what a run may tell of its data: no labels, names and means if it is private.

    The numbers of records are public if single records are hidden, but not if clients are.
    """
    if privacy is None or not data.label_counts:
        return data
    counted = not isinstance(privacy, ClientPrivacy)
    samples = [sum(counts) for counts in data.label_counts] if counted else []
    return DataSummary(data.name, data.shape, data.classes, [], samples)


def _noisy_mean(privacy: ClientPrivacy, problem: Problem) -> NoisyMean:
    nothing = {"u": torch.zeros_like(problem.start), BUFFERS: problem.start_buffers}
    expected = privacy.sampling * len(problem.clients) if privacy.sampling < 1 else None
    return NoisyMean(privacy.noise * privacy.clip, nothing, expected)


class Spending:
    """How often each client was asked, and the ε that this has spent.

    A round counts when it begins, whether or not it ends. In a run with a folder the counts are on
    disk before anything is sent.

    Args:
        privacy: The guarantee.
    """

    def __init__(self, privacy: Privacy) -> None:
        self._privacy, self._path = privacy, Path()
        self._asked: dict[int, int] = {}

    @property
    def _most(self) -> int:
        return max(self._asked.values(), default=0)

    @property
    def epsilon(self) -> float:
        """The ε that was spent so far, of the client that was asked most often."""
        return self._privacy.spent(self._most)

    @property
    def is_used_up(self) -> bool:
        """Whether another round could exceed the budget."""
        return not self._privacy.allows(self._most + 1)

    def count(self, clients: Iterable[int]) -> None:
        """Count that these clients are going to be asked.

        Raises:
            FedcanonError: That could exceed the budget.
        """
        if self.is_used_up:
            raise FedcanonError(
                f"the privacy budget ε = {self._privacy.budget:g} is used up: another round would "
                "exceed it."
            )
        for client in clients:
            self._asked[client] = self._asked.get(client, 0) + 1
        self._write()

    def use_folder(self, folder: Path, *, begun: bool) -> None:
        """Keep the counts in a folder, which others may not read.

        Args:
            folder: The folder of the run.
            begun: Whether the run has been there before.

        Raises:
            FedcanonError: The run was begun, but the folder does not know what it has spent.
        """
        folder.chmod(0o700)  # its checkpoints contain what clients have sent
        self._path = folder / _FILE
        found = read_json(self._path, _COUNTS)
        if found is None and begun:
            raise FedcanonError(
                f"{self._path} is missing, so that nobody knows how much of its privacy budget "
                "the run has spent: restore it from a copy of the folder, or begin a new run."
            )
        self._raise_to(found or {})
        self._write()

    def state(self) -> State:
        """Return the counts, for a checkpoint."""
        return {str(client): count for client, count in self._asked.items()}

    def load(self, state: State) -> None:
        """Restore a state that ``state`` returned; no count becomes smaller."""
        self._raise_to({int(client): count for client, count in state.items()})

    def _raise_to(self, counts: Mapping[int, int]) -> None:
        for client, count in counts.items():
            self._asked[client] = max(count, self._asked.get(client, 0))

    def _write(self) -> None:
        if self._path.name:
            write_whole(self._path, _COUNTS.dump_json(self._asked).decode())
