"""The clients' measures of a model: how they are asked for, checked and averaged."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from torch import Tensor

from fedcanon.algorithms import State
from fedcanon.deployment.collection import Vault
from fedcanon.deployment.protocol import Message, packed
from fedcanon.deployment.validity import Fault, fault, is_finite, is_number
from fedcanon.engines import Evaluation
from fedcanon.engines.client import BUFFERS
from fedcanon.engines.summation import Tree
from fedcanon.objectives.problem import MEASURES

_TEST = "test/"
"""The prefix of measures on the samples that a client holds out."""

_ACCURACY = f"{_TEST}accuracy"

_RANGES = {
    "loss": (-math.inf, math.inf),
    "held_out": (0.0, 2.0**40),
    **{f"{_TEST}{name}": limits for name, limits in MEASURES.items()},
}
"""The least and the largest value of each number that a client may tell."""

MOST_HELD_OUT = 10
"""A client's held-out samples count at most so many times the median of all clients'."""


@dataclass
class Measuring:
    """A model that clients measure, and their answers so far.

    Args:
        z: The model.
        gradient: Whether ∇f(z) is wanted.
        gradients: The clients' gradients.
        found: The other measures, by client.
    """

    z: Tensor
    gradient: bool
    gradients: Vault
    found: dict[int, State] = field(default_factory=dict)

    def question(self, sent: State, buffers: Tensor) -> State:
        """Return what a message of a round has beside its own content: the model to be measured.

        What stands in the broadcast already is left out.
        """
        question: State = {"gradient": self.gradient}
        if sent.get("z") is not self.z:
            question["z"] = self.z
        if sent[BUFFERS] is not buffers:
            question[BUFFERS] = buffers
        return packed(question)

    def messages(self, clients: Iterable[int], run: str, buffers: Tensor) -> Iterator[Message]:
        """Return messages that ask clients only for measures."""
        content = packed({"z": self.z, BUFFERS: buffers, "gradient": self.gradient})
        for client in clients:
            yield Message(uuid.uuid4().hex, client, "evaluate", run, 0, 0, content)

    def accept(self, client: int, answer: State) -> Fault | None:
        """Add a client's measures, or return what is wrong with them."""
        refused = measures_fault(answer, self.z if self.gradient else None)
        if refused is None:
            if self.gradient:
                self.gradients.put(client, {"gradient": answer["gradient"]})
            self.found[client] = {k: float(v) for k, v in answer.items() if k != "gradient"}
        return refused

    def evaluation(self, members: Mapping[int, float], test: dict[str, float]) -> Evaluation:
        """Return the means over the clients that have answered.

        ∇f(z) needs all of them. Measures of the server's ``test`` come before those of clients.
        """
        weights = {client: members[client] for client in sorted(self.found) if client in members}
        taken, total = math.fsum(weights.values()), Tree()
        whole = self.gradient and weights.keys() == members.keys()
        if whole:
            for client, weight in weights.items():
                own = self.gradients.get(client)["gradient"]
                total.push({"gradient": weight / taken * own})
        losses = {client: self.found[client]["loss"] for client in weights}
        return Evaluation(
            loss=sum(weights[client] / taken * loss for client, loss in losses.items()),
            losses=list(losses.values()),
            gradient=total.total()["gradient"] if whole else None,
            test=test or pooled_measures(self.found),
        )


def measures_fault(answer: State, z: Tensor | None) -> Fault | None:
    """Return what is wrong with a client's measures of a model, or None.

    ``z`` is the model if its gradient was asked for, and None otherwise.
    """
    numbers = {name: value for name, value in answer.items() if name != "gradient"}
    if not {"loss", "held_out"} <= numbers.keys() <= _RANGES.keys():
        return Fault.MALFORMED
    if not all(map(is_number, numbers.values())):
        return Fault.MALFORMED
    if not all(map(is_finite, numbers.values())):
        return Fault.NOT_FINITE
    if any(not _RANGES[name][0] <= value <= _RANGES[name][1] for name, value in numbers.items()):
        return Fault.OUT_OF_RANGE
    if z is None:
        return None
    gradient = answer.get("gradient")
    return Fault.MALFORMED if gradient is None else fault({"gradient": gradient}, {"gradient": z})


def pooled_measures(found: Mapping[int, State]) -> dict[str, float]:
    """Average the clients' measures over all held-out samples.

    The result also names the client with the worst accuracy, and that accuracy. A client's claim
    to have held out more than ten times the median does not count beyond that.
    """
    counts = {client: a["held_out"] for client, a in found.items() if a["held_out"] > 0}
    if not counts:
        return {}
    most = MOST_HELD_OUT * median(counts.values())
    counts = {client: min(count, most) for client, count in counts.items()}
    mean: dict[str, float] = {}
    for name in sorted({k for client in counts for k in found[client] if k.startswith(_TEST)}):
        told = [client for client in counts if name in found[client]]
        total = sum(counts[client] for client in told)
        mean[name.removeprefix(_TEST)] = sum(counts[c] / total * found[c][name] for c in told)
    accuracies = {c: found[c][_ACCURACY] for c in counts if _ACCURACY in found[c]}
    if not accuracies:
        return mean
    worst = min(accuracies, key=lambda client: accuracies[client])
    return {**mean, "worst_accuracy": accuracies[worst], "worst_client": float(worst)}
