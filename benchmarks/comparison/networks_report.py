"""Tables, targets and the picture of the networks."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev

from matplotlib.figure import Figure

from comparison.journal import Outcome
from comparison.networks import AUTO, LAST, METHODS, MODELS, PARTITIONS, TRIALS, Found, K, Size
from comparison.tables import Target, panels, table, targets_table, write

OWN = "FedCanon+"
LEVEL = 0.005
"""Accuracies that differ by less are level."""
GOAL = 0.95
AHEAD_IN = 7
COLOURS = {
    OWN: "#3b5bdb",
    AUTO: "#74c0fc",
    "FedCanon+, not accelerated": "#0c8599",
    "FedCanon+, undamped": "#c2255c",
    "FedAvg": "#2b8a3e",
    "FedAvg-M": "#f08c00",
    "FedAvg, server momentum": "#5f3dc4",
    "SCAFFOLD": "#868e96",
    "SCAFFOLD, damped": "#212529",
}


def report(found: Found, size: Size, path: Path) -> str:
    """Write all results and return the table of targets."""
    labels = [label for label in (*METHODS, AUTO) if all(label in own for own in found.values())]
    header = ("model, partition", *labels)
    accuracies = [
        (name, *(f"{accuracy(own[k]):.1%} ± {spread(own[k]):.1%}" for k in labels))
        for name, own in found.items()
    ]
    rounds = [(name, *(_rounds(own, k) for k in labels)) for name, own in found.items()]
    chosen = [(name, *(own[k]["best"] for k in labels)) for name, own in found.items()]
    summary = targets_table(targets(found))
    parts = [
        introduction(size),
        summary,
        f"Test accuracy after {size.rounds} rounds, mean and deviation over {size.seeds} seeds:\n",
        table(header, accuracies),
        f"Rounds until the mean accuracy is {GOAL:.0%} of the best one of its row:\n",
        table(header, rounds),
        "The trial that was best on the first seed:\n",
        table(header, chosen),
    ]
    write(path, found, "\n".join(parts), picture(found))
    return summary


def introduction(size: Size) -> str:
    samples = "all" if size.samples is None else f"{size.samples:,}"
    return f"""\
{size.data}, {samples} training samples over 10 clients weighted by their samples, K = {K} local
steps of batch {size.batch_size}, {size.rounds} rounds, no penalty. Every method has {len(TRIALS)}
trials on the first seed: β is ½, 1, 2 or 4 times the automatic one, or falls from twice that to 5 %
along a cosine, for FedAvg-M four times as much; α = βK. Other settings are fixed. The trial with
the best test accuracy is run on all seeds, of which the first is the one it was chosen on. A run's
accuracy is the mean of its last {LAST} measurements, {size.every} rounds apart. A run that diverges
counts as 0, which lets some methods fall far behind whose best trial of the first seed diverged on
another; in the picture they have no curve. FedCanon, FedCanon+ and "SCAFFOLD, damped" have the
automatic gain, FedCanon+ is accelerated; "{AUTO}" has no trial and chooses nothing.
"""


def accuracy(outcome: Outcome) -> float:
    return mean(run["accuracy"] for run in outcome["runs"])


def spread(outcome: Outcome) -> float:
    return stdev(run["accuracy"] for run in outcome["runs"])


def mean_curve(outcome: Outcome) -> tuple[list[int], list[float]]:
    """Return rounds and mean accuracy over the seeds; nothing if one of them diverged."""
    if any(run["diverged"] for run in outcome["runs"]):
        return [], []
    curves = zip(*(run["curve"] for run in outcome["runs"]), strict=False)
    return outcome["runs"][0]["rounds"], [mean(several) for several in curves]


def _rounds(own: dict[str, Outcome], label: str) -> str:
    goal = GOAL * max(map(accuracy, own.values()))
    reached = [t for t, value in zip(*mean_curve(own[label]), strict=False) if value >= goal]
    return str(reached[0]) if reached else "–"


def targets(found: Found) -> list[Target]:
    """Return what should hold, with the numbers."""
    rivals = [label for label in METHODS if not label.startswith(OWN)]
    gaps = {}
    for name, own in found.items():
        best = max((label for label in rivals if label in own), key=lambda k: accuracy(own[k]))
        gaps[name] = (accuracy(own[OWN]) - accuracy(own[best]), best)
    ahead = [name for name, (gap, _) in gaps.items() if gap >= -LEVEL]
    listed = "; ".join(f"{name} {100 * gap:+.1f} ({best})" for name, (gap, best) in gaps.items())
    autos = [run for own in found.values() for run in own[AUTO]["runs"]]
    diverged = sum(run["diverged"] for run in autos)
    returns = sum(run["returns"] > 0 for run in autos)
    return [
        Target(
            f"{OWN} level with every other method (within 0.5 points) or ahead of it in at least "
            f"{AHEAD_IN} of {len(MODELS) * len(PARTITIONS)} cells",
            len(ahead) >= AHEAD_IN,
            f"{len(ahead)} of {len(gaps)}; points to the best other: {listed}",
        ),
        Target(
            f"no divergence of {AUTO}",
            diverged + returns == 0,
            f"{diverged} of {len(autos)} runs diverged, {returns} went back to smaller steps",
        ),
    ]


def picture(found: Found) -> Figure:
    """The mean test accuracy against rounds, a panel for each cell."""
    figure, every = panels(list(found), 3, 4, 2.8)
    for axes, own in zip(every, found.values(), strict=True):
        for label, colour in COLOURS.items():
            if label in own:
                width = 2.4 if label == OWN else 1.3
                axes.plot(*mean_curve(own[label]), color=colour, label=label, linewidth=width)
        top = max(accuracy(outcome) for outcome in own.values())
        axes.set_ylim(0.45 * top, 1.03 * top)
    figure.supylabel("test accuracy, mean over the seeds", fontsize=9)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=9)
    return figure
