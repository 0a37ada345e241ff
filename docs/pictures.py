"""Pictures of penalties and runs, drawn once and written for the light and the dark palette."""

from __future__ import annotations

import io
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fedcanon.penalties import L1, Penalty

BLUE, ORANGE, GREY = "#4c6ef5", "#e8590c", "#868e96"
INK = {"light": "#212529", "dark": "#e9ecef"}
STEP = 0.5
"""The a of prox_{ah} in every picture."""

mpl.rcParams.update(
    {
        "axes.edgecolor": INK["light"],
        "axes.labelcolor": INK["light"],
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 10,
        "font.size": 9,
        "legend.frameon": False,
        "savefig.transparent": True,
        "svg.hashsalt": "fedcanon",
        "text.color": INK["light"],
        "xtick.color": INK["light"],
        "ytick.color": INK["light"],
    }
)


def svg(figure: Figure) -> dict[str, str]:
    """The figure as SVG text for each palette; only the colour of the ink differs."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return {name: buffer.getvalue().replace(INK["light"], ink) for name, ink in INK.items()}


def _canvas(width: float, panels: int, height: float = 2.7) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _at_each(points: np.ndarray, penalty: Penalty) -> tuple[list[float], list[float]]:
    """h and prox at each point, a penalty of one number."""
    tensors = [torch.tensor([point]) for point in points]
    return [penalty.value(x) for x in tensors], [float(penalty.prox(x, STEP)) for x in tensors]


def _broken(values: list[float]) -> np.ndarray:
    """The values with a gap where they jump."""
    shown = np.where(np.isinf(values), np.nan, values)
    jumps = np.abs(np.diff(shown, append=shown[-1])) > 0.1
    return np.where(jumps, np.nan, shown)


def curves(penalty: Penalty) -> Figure:
    """h(x) and prox(y) of one coordinate, beside those of ℓ1 where that is another penalty."""
    figure, (left, right) = _canvas(6.6, 2)
    points = np.linspace(-4, 4, 801)
    values, proxes = _at_each(points, penalty)
    constraint = not np.isfinite(values).all()
    if not constraint and any(values) and not isinstance(penalty, L1):
        reference_values, reference_proxes = _at_each(points, L1(1.0))
        left.plot(points, reference_values, color=GREY, linewidth=1, label="ℓ1")
        right.plot(points, reference_proxes, color=GREY, linewidth=1, label="ℓ1")
    right.plot(points, points, color=GREY, linewidth=1, linestyle=":", label="y")
    left.plot(points, _broken(values), color=BLUE, linewidth=2)
    right.plot(points, _broken(proxes), color=BLUE, linewidth=2)
    left.set_xlim(-4.2, 4.2)
    if constraint:
        inside = points[np.isfinite(values)]
        left.axvspan(inside.min(), inside.max(), color=BLUE, alpha=0.15, linewidth=0)
        left.set_title("h(x): 0 in the set, ∞ outside")
        left.set_ylim(-0.2, 4)
    else:
        left.set_title("h(x)")
        left.set_ylim(-0.2, max(1, min(max(values), 5)) * 1.05)
        if np.isnan(_broken(values)).any():
            left.plot(0, penalty.value(torch.zeros(1)), "o", color=BLUE, markersize=5)
    right.set_title(f"prox(y) for a = {STEP}")
    left.set_xlabel("x")
    right.set_xlabel("y")
    right.set_ylim(-4.2, 4.2)
    right.legend(loc="upper left")
    return figure


def plane(penalty: Penalty) -> Figure:
    """Level sets of h (or its set) in the plane, and the prox as arrows from y to prox(y)."""
    figure, (left, right) = _canvas(6.6, 2, 3.2)
    axis = torch.linspace(-2, 2, 81)
    values = np.array([[penalty.value(torch.stack([x, y])) for x in axis] for y in axis])
    for axes in (left, right):
        if np.isinf(values).any():
            _draw_set(axes, penalty, axis)
        axes.set_aspect("equal")
        axes.set_xlim(-2.1, 2.1)
        axes.set_ylim(-2.1, 2.1)
        axes.axhline(0, color=GREY, linewidth=0.6, zorder=0)
        axes.axvline(0, color=GREY, linewidth=0.6, zorder=0)
        axes.set_xlabel("first entry")
        axes.set_ylabel("second entry")
    if np.isinf(values).any():
        left.set_title("h = 0 in the set, ∞ outside")
    else:
        lines = left.contour(axis, axis, values, levels=5, colors=BLUE, linewidths=1.4)
        left.clabel(lines, fontsize=7, fmt="%g")
        left.set_title("level sets of h")
    ends = np.linspace(-1.8, 1.8, 7)
    starts = torch.tensor([[x, y] for x in ends for y in ends], dtype=torch.float32)
    moved = torch.stack([penalty.prox(start, STEP) for start in starts])
    for start, end in zip(starts.tolist(), moved.tolist(), strict=True):
        arrow = {"arrowstyle": "-|>", "color": ORANGE, "linewidth": 1, "shrinkA": 0, "shrinkB": 0}
        if np.hypot(end[0] - start[0], end[1] - start[1]) > 0.05:
            right.annotate("", end, start, arrowprops=arrow)
        else:
            right.plot(*start, ".", color=ORANGE, markersize=4)
    right.set_title("from y to prox(y)" + ("" if np.isinf(values).any() else f", a = {STEP}"))
    return figure


def _draw_set(axes: Axes, penalty: Penalty, axis: Tensor) -> None:
    """Shade a set that has an interior; dot the projections of a grid where it has none."""
    grid = torch.cartesian_prod(axis, axis)
    points = torch.stack([penalty.prox(point, STEP) for point in grid])
    distances = (grid - points).norm(dim=1).view(len(axis), -1).T.numpy()
    if (distances == 0).mean() > 0.05:
        axes.contourf(axis, axis, distances, levels=[-1, 0.005], colors=BLUE, alpha=0.3)
    else:
        axes.plot(*points[::4].unique(dim=0).T.numpy(), ".", color=BLUE, markersize=4)


def rows(penalty: Penalty) -> Figure:
    """A matrix whose rows are groups, before and after the prox; exact zeros are left blank."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.tensor([0.15, 0.9, 0.3, 2.0, 0.5, 1.3]).unsqueeze(1)
    y = sizes * torch.randn(6, 8, generator=generator)
    x = penalty.prox(y, STEP)
    figure, panels = _canvas(6.6, 2, 2.1)
    titles = ("|y|: every row is a group", "|prox(y)|: blank where zero")
    for axes, matrix, title in zip(panels, (y, x), titles, strict=True):
        _shade(axes, (matrix.abs() / y.abs().max()).numpy())
        axes.set_xticks(np.arange(-0.5, matrix.shape[1]), labels=[])
        axes.set_yticks(np.arange(-0.5, matrix.shape[0]), labels=[])
        axes.set_title(title)
    zeros, groups = int((x == 0).sum()), int((x == 0).all(1).sum())
    panels[1].set_xlabel(f"{zeros} of {x.numel()} entries and {groups} of {len(x)} rows are zero")
    return figure


def _shade(axes: Axes, strength: np.ndarray) -> None:
    """A table of cells, transparent at 0 and blue at 1: readable on any background."""
    cells = np.empty((*strength.shape, 4))
    cells[:] = colors.to_rgba(BLUE)
    cells[..., 3] = np.where(strength > 0, 0.08 + 0.92 * strength, 0)
    axes.imshow(cells, aspect="auto")
    axes.grid(color=GREY, linewidth=0.4)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def singular_values(penalty: Penalty) -> Figure:
    """The singular values of a matrix before and after the prox."""
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(12, 3, generator=generator), torch.randn(3, 10, generator=generator)
    y = 0.25 * left @ right + 0.06 * torch.randn(12, 10, generator=generator)
    figure, (axes,) = _canvas(6.6, 1, 2.5)
    before = torch.linalg.svdvals(y).numpy()
    after = torch.linalg.svdvals(penalty.prox(y, STEP)).numpy()
    place = np.arange(1, len(before) + 1)
    axes.bar(place - 0.2, before, 0.4, color=GREY, label="y")
    axes.bar(place + 0.2, after, 0.4, color=BLUE, label="prox(y)")
    rank = int((after > 1e-5).sum())
    axes.set_title(f"singular values of a noisy 12 × 10 matrix; prox(y) has rank {rank}")
    axes.set_xticks(place)
    axes.legend()
    return figure


def sequence(penalty: Penalty) -> Figure:
    """A noisy step function before and after the prox."""
    generator = torch.Generator().manual_seed(3)
    steps = torch.tensor([0.5, 1.5, 0.8, 2.0]).repeat_interleave(20)
    y = steps + 0.2 * torch.randn(80, generator=generator)
    figure, (axes,) = _canvas(6.6, 1, 2.5)
    axes.plot(y.numpy(), ".", color=GREY, markersize=4, label="y")
    x = penalty.prox(y, STEP)
    axes.plot(x.numpy(), color=BLUE, linewidth=2, label="prox(y)")
    axes.set_title(f"a noisy sequence; prox(y) has {int((x.diff() != 0).sum())} jumps")
    axes.set_xlabel("position")
    axes.legend()
    return figure


def label_spread(counts: np.ndarray) -> Figure:
    """How many samples of each class every client holds."""
    figure, (axes,) = _canvas(6.6, 1, 3.2)
    _shade(axes, counts / counts.max())
    axes.grid(False)
    for (client, label), count in np.ndenumerate(counts):
        if count:
            axes.text(label, client, str(count), ha="center", va="center", fontsize=8)
    axes.set_xticks(range(counts.shape[1]))
    totals = enumerate(counts.sum(1))
    axes.set_yticks(range(len(counts)), labels=[f"client {i}: {total}" for i, total in totals])
    axes.set_xlabel("digit")
    axes.set_title("training samples of each digit on each client")
    return figure


def drift(histories: dict[str, Sequence[float]]) -> Figure:
    """‖G‖ against rounds, one line per method."""
    figure, (axes,) = _canvas(6.6, 1, 2.9)
    for (name, norms), colour in zip(histories.items(), (ORANGE, BLUE), strict=True):
        axes.semilogy(norms, color=colour, linewidth=2)
        axes.annotate(
            name,
            (len(norms) - 1, norms[-1]),
            (4, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            annotation_clip=False,
        )
    axes.set_title("stationarity ‖G‖; ten unlike clients, ℓ1, K = 10")
    axes.set_xlabel("round")
    axes.margins(x=0.01)
    return figure
