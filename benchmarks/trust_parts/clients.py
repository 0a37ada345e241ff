"""Privacy of clients: what noise costs FedCanon+, with and without forgetting, and FedAvg."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from comparison.convex_problems import breast_cancer
from comparison.journal import Journal, Outcome
from comparison.tables import panels, table, write
from matplotlib.figure import Figure
from rich.progress import Progress

from fedcanon import DivergenceError, FedCanonPlus, Federation
from fedcanon.algorithms import FedMiD
from fedcanon.compression import Clip
from fedcanon.engines.client import BUFFERS
from fedcanon.engines.noisy_mean import NoisyMean
from fedcanon.privacy import ClientPrivacy
from trust_parts.problems import CLIENTS, Divided, divide, lasso

K = 10
FEDAVG = "DP-FedAvg, prox on the server"
AVERAGED = "λ = 0.02, averaged model"
FORMS: dict[str, float | None] = {"λ = 0": 0.0, "λ = 0.02": 0.02, "λ = 1": 1.0, FEDAVG: None}
"""The forgetting of FedCanon+ by the name of the form; None is FedAvg."""
COLOURS = {
    "λ = 0": "#74c0fc",
    "λ = 0.02": "#3b5bdb",
    "λ = 1": "#5f3dc4",
    AVERAGED: "#c2255c",
    FEDAVG: "#f08c00",
}
HOPELESS = 1e3
"""The gap of a run that diverged."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    noises: tuple[float, ...]
    clips: tuple[float, ...]
    levels: tuple[float, ...]
    """Further clips, for forms that clip whole gradients and not their increments."""
    steps: tuple[float, ...]
    """α in multiples of 1/L."""
    fresh: int
    """Runs by which the chosen settings are measured."""
    participants: tuple[int | None, ...]


FULL = Size(
    rounds=300,
    noises=(0.01, 0.1, 1.0, 10.0),
    clips=(0.003, 0.01, 0.03, 0.1),
    levels=(0.3, 1.0),
    steps=(4.0, 1.0, 0.25),
    fresh=3,
    participants=(None, 3),
)
SMOKE = Size(10, (0.1, 10.0), (0.01, 0.1), (), (1.0,), 1, (None,))


@dataclass(frozen=True)
class Setting:
    """One private run."""

    form: str
    noise: float
    clip: float
    step: float
    participants: int | None


Found = dict[str, dict[str, list[Outcome]]]
"""Gaps and settings by participation, form and noise; "start" is the gap at 0."""


class Problem:
    """Breast cancer over ten clients, and its optimum."""

    def __init__(self) -> None:
        data = breast_cancer()
        penalty = lasso(0.01, data.X.shape[1], ridge=0.02)
        self.divided = Divided(data, divide(data, "dirichlet:0.5", 0), penalty, ridge=0.02)
        self.problem, self.penalty = self.divided.problem(), penalty
        self.L, _ = self.divided.smoothness
        self.best = self.divided.objective(self.divided.optimum())
        self.start = self.gap(self.problem.start)

    def gap(self, z: torch.Tensor) -> float:
        return self.problem.value(z) + self.penalty.value(z) - self.best

    def federation(self, setting: Setting, rounds: int, seed: int) -> Federation:
        alpha, forgetting = setting.step / self.L, FORMS[setting.form]
        how = {"participants": setting.participants, "seed": seed}
        if forgetting is not None:
            privacy = ClientPrivacy(
                setting.clip, setting.noise, 1e-5, rounds=rounds, forgetting=forgetting
            )
            algorithm = FedCanonPlus(alpha=alpha, beta=alpha / K, local_steps=K)
            return Federation(self.problem, algorithm, self.penalty, privacy=privacy, **how)
        # A model moves by α times a mean gradient, and so do its clip and its noise.
        clip = setting.clip * alpha
        nothing = {"move": torch.zeros_like(self.problem.start), BUFFERS: torch.zeros(0)}
        return Federation(
            self.problem,
            FedMiD(beta=alpha / K, local_steps=K, client_prox=False),
            self.penalty,
            compressor=Clip(clip),
            aggregation=NoisyMean(setting.noise * clip, nothing),
            **how,
        )

    def run(self, setting: Setting, rounds: int, seed: int) -> Outcome:
        """Return the mean gap over the last tenth of the rounds, and that of the averaged model."""
        federation = self.federation(setting, rounds, seed)
        last = []
        try:
            for t in range(rounds):
                federation.step()
                if t >= rounds - max(1, rounds // 10):
                    last.append(self.gap(federation.server["z"]))
        except DivergenceError:
            return {"last": HOPELESS, "averaged": HOPELESS}
        return {"last": statistics.fmean(last), "averaged": self.gap(federation.model)}


def measure(journal: Journal, size: Size, progress: Progress) -> Found:
    """Choose clip and step for each cell on one run, and measure them on fresh ones."""
    problem = Problem()
    grids = {form: list(product(clips_of(form, size), size.steps)) for form in FORMS}
    cells = list(product(size.participants, FORMS, size.noises))
    measured = sum(size.fresh * len(rows_of(form)) for _, form, _ in cells)
    tried = sum(len(grids[form]) for _, form, _ in cells)
    task = progress.add_task("", total=tried + measured)

    def outcome(setting: Setting, seed: int) -> Outcome:
        progress.advance(task)
        progress.update(task, description=f"{setting.form}, s = {setting.noise:g}")
        run = {**vars(setting), "rounds": size.rounds, "seed": seed}
        return journal.outcome(run, lambda: problem.run(setting, size.rounds, seed))

    found: Found = {"start": {"": [{"gap": problem.start}]}}
    for participants, form, noise in cells:
        tries = {
            setting: outcome(setting, 0)
            for setting in (Setting(form, noise, *point, participants) for point in grids[form])
        }
        own = found.setdefault(who(participants), {})
        for name, what in rows_of(form).items():
            best = min(tries, key=lambda setting: tries[setting][what])
            fresh = [outcome(best, seed)[what] for seed in range(1, size.fresh + 1)]
            own.setdefault(name, []).append(
                {"noise": noise, "clip": best.clip, "step": best.step, "gaps": fresh}
            )
    return found


def clips_of(form: str, size: Size) -> tuple[float, ...]:
    """Return the clips that are tried; whole gradients are longer than their increments."""
    return size.clips if FORMS[form] in (0.0, 0.02) else (*size.clips, *size.levels)


def rows_of(form: str) -> dict[str, str]:
    """Return the rows of the table that a form gives, and the measure of each."""
    averaged = {AVERAGED: "averaged"} if form == "λ = 0.02" else {}
    return {form: "last", **averaged}


def who(participants: int | None) -> str:
    return "all clients" if participants is None else f"{participants} of {CLIENTS} clients"


def report(found: Found, size: Size, path: Path) -> str:
    """Write all results and return the tables."""
    start = found["start"][""][0]["gap"]
    clips, levels, steps = map(listed, (size.clips, size.levels, size.steps))
    measured = {name: own for name, own in found.items() if name != "start"}
    text = f"""\
Breast cancer, N = {CLIENTS} clients by Dir(0.5), ℓ1 0.01 and ridge 0.02, K = {K}, {size.rounds}
rounds; f + h above its minimum, the mean over the last tenth of the rounds. At z = 0 it is
{start:.2f}. Clip τ and step α are chosen for each cell by one run, from τ of {clips},
for λ = 1 and FedAvg also {levels}, and αL of {steps}; a cell is the median
of {size.fresh} other runs, and in brackets the chosen τ and αL.
"""
    summary = "\n".join(f"{name}:\n\n{_table(own)}" for name, own in measured.items())
    write(path, found, f"{text}\n{summary}", picture(measured, start))
    return summary


def listed(numbers: tuple[float, ...]) -> str:
    """The numbers with commas between them."""
    return ", ".join(f"{number:g}" for number in numbers)


def _table(own: dict[str, list[Outcome]]) -> str:
    header = ["form", *(f"s = {cell['noise']:g}" for cell in next(iter(own.values())))]
    order = [name for name in COLOURS if name in own]
    rows = [
        [
            name,
            *(
                f"{statistics.median(c['gaps']):.1e} ({c['clip']:g}, {c['step']:g})"
                for c in own[name]
            ),
        ]
        for name in order
    ]
    return table(header, rows)


def picture(measured: Found, start: float) -> Figure:
    """The gap against the noise, a panel for each participation."""
    figure, every = panels(list(measured), 2, 4.4, 3.4, "noise multiplier s")
    for axes, own in zip(every, measured.values(), strict=True):
        axes.axhline(start, color="#495057", linestyle=":", linewidth=1.2, label="model 0")
        for name, colour in COLOURS.items():
            x = [cell["noise"] for cell in own[name]]
            y = [statistics.median(cell["gaps"]) for cell in own[name]]
            axes.loglog(x, y, color=colour, marker="o", markersize=4, label=name)
    figure.supylabel("f + h above its minimum", fontsize=9)
    handles, labels = every[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=9)
    return figure
