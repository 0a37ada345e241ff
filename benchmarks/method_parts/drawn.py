"""Methods on drawn data: least squares with a common solution, and unlike logistic losses."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison.journal import Journal, Outcome
from comparison.tables import table
from rich.progress import Progress
from torch import Tensor

from fedcanon import FedCanonPlus, Federation, Problem, Quadratic, fit
from fedcanon.algorithms import FedAvg, FedExP
from fedcanon.compression import Compressor, Identity, Quantise, RandomK, TopK
from fedcanon.objectives import smoothness
from fedcanon.penalties import L1, Zero
from method_parts.names import digit, short

EXAMPLE = Path(__file__).parents[2] / "examples" / "structural_drift.py"
K = 10
STEPS = (1, 2, 5, 10, 20)
"""The numbers of local steps by which the drift is shown."""
WAYS = (0.3, 1.0, 2.0, 4.0, 8.0, 15.0)
"""βKL: how far clients go between two rounds."""
COMPRESSORS = {"no compression": Identity(), "`top_k`, 2 of 20 entries": TopK(0.1)}


class Unbiased(Compressor):
    """Divides by δ what a compressor keeps, which is then right on average but no contraction."""

    def decode(self, parts: dict[str, Tensor], size: int) -> Tensor:
        return super().decode(parts, size) / self.contraction(size)


class UnbiasedRandomK(Unbiased, RandomK):
    """With the factor d/k."""


class UnbiasedQuantise(Unbiased, Quantise):
    """Without the division by 1 + ω."""


DRIFTING = {"FedCanon": "FedCanon", "FedCanon+": "FedCanonPlus"}
UNBIASED = {"random": UnbiasedRandomK(0.1), "2 bits": UnbiasedQuantise(2)}
EXTRAPOLATED = {
    "FedExP": FedExP(beta=0.3, local_steps=K, epsilon=1e-12),
    "FedAvg": FedAvg(beta=0.3, local_steps=K),
}


def apart(method: str, rounds: Sequence[int]) -> Outcome:
    """How far a method is, after so many rounds, from the common solution of all equations."""
    rng = np.random.default_rng(1)
    solution, losses = rng.standard_normal(40), []
    for _ in range(10):
        X = rng.standard_normal((5, 40))
        losses.append(Quadratic(torch.from_numpy(X.T @ X / 40), torch.from_numpy(solution)))
    problem = Problem(losses, torch.zeros(40, dtype=torch.float64))
    federation = Federation(problem, EXTRAPOLATED[method], Zero())
    found = []
    for count in rounds:
        while federation.rounds_done < count:
            federation.step()
        found.append(float((federation.model - torch.from_numpy(solution)).norm()))
    return {"distances": found}


def compressed(way: float, compressor: str, rounds: int, participants: int | None = 3) -> Outcome:
    """‖G‖ and ‖z‖ of FedCanon+ on the clients of the example, where βKL is ``way``."""
    problem = runpy.run_path(str(EXAMPLE))["unlike_clients"]()
    L = smoothness(problem, np.random.default_rng(0))
    algorithm = FedCanonPlus(alpha=1 / L, beta=way / (K * L), local_steps=K)
    alters = (COMPRESSORS | UNBIASED)[compressor]
    federation = Federation(
        problem, algorithm, L1(0.02), participants=participants, compressor=alters
    )
    last = fit(federation, rounds, evaluate_every=rounds, gradient_step=algorithm.alpha).last
    return {"norm": last.gradient_norm, "length": float(federation.model.norm())}


def drifted(local_steps: int, rounds: int) -> Outcome:
    """‖G‖ of FedCanon and FedCanon+ at the end of the example."""
    histories = runpy.run_path(str(EXAMPLE))["compare"](rounds, local_steps)
    return {name: records[-1].gradient_norm for name, records in histories.items()}


def measure(journal: Journal, progress: Progress, *, smoke: bool) -> Any:
    """All runs; a few rounds of each for a short look."""
    task = progress.add_task("", total=None)

    def outcome(work: Callable[..., Outcome], **given: Any) -> Outcome:
        progress.update(task, advance=1, description=" ".join(map(str, given.values())))
        return journal.outcome(given, lambda: work(**given))

    times, rounds, few = ([1, 2], 2, 2) if smoke else ([100, 300], 500, 200)
    return {
        "apart": {
            name: outcome(apart, method=name, rounds=times)["distances"] for name in EXTRAPOLATED
        },
        "ways": {
            label: [
                outcome(compressed, way=way, compressor=label, rounds=rounds)["norm"]
                for way in WAYS
            ]
            for label in COMPRESSORS
        },
        "drift": [outcome(drifted, local_steps=steps, rounds=few) for steps in STEPS],
        "unbiased": {
            label: outcome(compressed, way=1.0, compressor=label, rounds=few, participants=None)[
                "length"
            ]
            for label in UNBIASED
        },
    }


def tables(found: Any) -> Iterator[tuple[str, str]]:
    """The tables of the pages on compression and on theory."""
    rows = [(label, *map(digit, norms)) for label, norms in found["ways"].items()]
    yield "local-ways", table(("βKL", *(f"{way:g}" for way in WAYS)), rows)
    rows = [(label, *_drift(found, name)) for label, name in DRIFTING.items()]
    yield "drift", table(("K", *map(str, STEPS)), rows)


def _drift(found: Any, name: str) -> list[str]:
    return [f"{one[name]:.1e}".replace("e-0", "e-") for one in found["drift"]]


def sentences(found: Any) -> Iterator[tuple[str, str]]:
    """What pages say of these runs."""
    near, far = ([short(one) for one in found["apart"][name]] for name in EXTRAPOLATED)
    yield (
        "fedexp",
        f"the distance to it is {near[0]} after 100 rounds and {near[1]} after 300; FedAvg has "
        f"{far[0]} and {far[1]}",
    )
    ten = STEPS.index(10)
    canon, plus = (_drift(found, name)[ten] for name in DRIFTING.values())
    yield (
        "../../README",
        f"‖G‖ after 200 rounds is {canon} for FedCanon and {plus} for FedCanon+",
    )
    scaled, undivided = map(digit, found["unbiased"].values())
    yield (
        "../how-to/compress-uploads",
        f"‖z‖ is {scaled} after 200 rounds; with 2-bit quantisation that is not divided by 1 + ω "
        f"it is {undivided}",
    )
