"""The table of penalties that every test of the contract goes through."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fedcanon.layout import Layout
from fedcanon.penalties import (
    L0,
    L1,
    L2,
    MCP,
    SCAD,
    Box,
    Cardinality,
    ElasticNet,
    GroupLasso,
    GroupMCP,
    GroupSCAD,
    Huber,
    L1Ball,
    L2Ball,
    LInf,
    LInfBall,
    LogSum,
    NonNegative,
    Nuclear,
    Penalty,
    PerLayer,
    Ridge,
    Separable,
    Simplex,
    SingularValueMCP,
    SparseGroupLasso,
    Sum,
    TotalVariation,
    WeightedL1,
    Zero,
)


@dataclass(frozen=True)
class Case:
    penalty: Penalty
    shape: tuple[int, ...] = (6,)
    even: bool = True
    constraint: bool = False
    phi: Callable[[np.ndarray], np.ndarray] | None = None
    """The penalty of one coordinate, written here a second time, straight from its definition."""
    kinks: tuple[float, ...] = ()
    """Where phi changes its formula."""
    fits_empty: bool = True
    """Whether a tensor without entries has a prox: not if the parameters ask for entries."""

    @property
    def steps(self) -> tuple[float, ...]:
        rho = self.penalty.rho
        return tuple(f / rho for f in (0.1, 0.5, 0.95)) if rho else (0.1, 1.0, 3.0)

    def tensor(
        self, seed: int, dtype: torch.dtype = torch.float64, scale: float = 2
    ) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return scale * torch.randn(self.shape, generator=generator, dtype=dtype)

    def empty(self) -> torch.Tensor:
        return torch.empty(0, *self.shape[1:], dtype=torch.float64)

    def objective(self, x: torch.Tensor, y: torch.Tensor, step: float) -> float:
        return self.penalty.value(x) + float((x - y).square().sum()) / (2 * step)


def inside(lower: float, upper: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.where((x >= lower - 1e-12) & (x <= upper + 1e-12), 0.0, np.inf)


def mcp(w: float, level: float, gamma: float) -> Callable[[np.ndarray], np.ndarray]:
    def phi(x: np.ndarray) -> np.ndarray:
        m = np.abs(x)
        return w * np.where(
            m <= gamma * level, level * m - m**2 / (2 * gamma), gamma * level**2 / 2
        )

    return phi


def scad(w: float, level: float, A: float) -> Callable[[np.ndarray], np.ndarray]:
    def phi(x: np.ndarray) -> np.ndarray:
        m = np.abs(x)
        middle = (2 * A * level * m - m**2 - level**2) / (2 * (A - 1))
        pieces = [level * m, middle]
        return w * np.select([m <= level, m <= A * level], pieces, (A + 1) * level**2 / 2)

    return phi


def huber(kappa: float, delta: float) -> Callable[[np.ndarray], np.ndarray]:
    def phi(x: np.ndarray) -> np.ndarray:
        m = np.abs(x)
        return kappa * np.where(m <= delta, m**2 / (2 * delta), m - delta / 2)

    return phi


SCALAR = {
    "l1": Case(L1(0.7), phi=lambda x: 0.7 * np.abs(x)),
    "l1-2d": Case(L1(0.2), (2, 3), phi=lambda x: 0.2 * np.abs(x)),
    "l1-zero": Case(L1(0.0), phi=lambda x: 0 * x),
    "weighted-l1-equal": Case(
        WeightedL1(0.7, (2.0,) * 6), phi=lambda x: 1.4 * np.abs(x), fits_empty=False
    ),
    "elastic-net": Case(ElasticNet(0.7, 0.3), phi=lambda x: 0.7 * np.abs(x) + 0.15 * x**2),
    "elastic-net-strong": Case(ElasticNet(0.1, 4.0), phi=lambda x: 0.1 * np.abs(x) + 2 * x**2),
    "ridge": Case(Ridge(0.7), phi=lambda x: 0.35 * x**2),
    "ridge-strong": Case(Ridge(5.0), (3, 2), phi=lambda x: 2.5 * x**2),
    "huber": Case(Huber(0.7, 0.5), phi=huber(0.7, 0.5), kinks=(0.5,)),
    "huber-wide": Case(Huber(0.3, 2.0), (2, 3), phi=huber(0.3, 2.0), kinks=(2.0,)),
    "mcp-lambda": Case(MCP(0.7, 2.0, "lambda"), phi=mcp(1, 0.7, 2), kinks=(1.4,)),
    "mcp-scaled": Case(MCP(0.7, 2.0), phi=mcp(0.7, 1, 2), kinks=(2.0,)),
    "mcp-scaled-2d": Case(MCP(0.2), (2, 3), phi=mcp(0.2, 1, 3), kinks=(3.0,)),
    "scad-lambda": Case(SCAD(0.7, 3.7, "lambda"), phi=scad(1, 0.7, 3.7), kinks=(0.7, 2.59)),
    "scad-scaled": Case(SCAD(0.7), phi=scad(0.7, 1, 3.7), kinks=(1.0, 3.7)),
    "scad-steep": Case(SCAD(0.3, 2.1), (2, 3), phi=scad(0.3, 1, 2.1), kinks=(1.0, 2.1)),
    "log-sum": Case(LogSum(0.7, 1.0), phi=lambda x: 0.7 * np.log1p(np.abs(x))),
    "log-sum-sharp": Case(LogSum(0.1, 0.2), phi=lambda x: 0.1 * np.log1p(np.abs(x) / 0.2)),
    "l0": Case(L0(0.7), phi=lambda x: 0.7 * (x != 0)),
    "l0-small": Case(L0(0.05), (2, 3), phi=lambda x: 0.05 * (x != 0)),
    "non-negative": Case(
        NonNegative(), even=False, constraint=True, phi=inside(0, np.inf), kinks=(0.0,)
    ),
    "box": Case(
        Box(-0.5, 1.0), even=False, constraint=True, phi=inside(-0.5, 1), kinks=(-0.5, 1.0)
    ),
    "box-without-zero": Case(
        Box(0.5, 1.5), (2, 3), even=False, constraint=True, phi=inside(0.5, 1.5), kinks=(0.5, 1.5)
    ),
    "linf-ball": Case(LInfBall(0.8), constraint=True, phi=inside(-0.8, 0.8), kinks=(0.8,)),
}

LAYOUT = Layout.of([("0.weight", (3, 2)), ("0.bias", (3,)), ("1.weight", (2, 3)), ("1.bias", (2,))])

STRUCTURED = {
    "zero": Case(Zero()),
    "weighted-l1": Case(WeightedL1(0.7, (0.0, 0.5, 1.0, 1.0, 2.0, 3.0)), (2, 3), fits_empty=False),
    "l2": Case(L2(0.7)),
    "l2-strong": Case(L2(3.0), (2, 2)),
    "group-lasso-rows": Case(GroupLasso(0.5), (3, 4)),
    "group-lasso-columns": Case(GroupLasso(0.5, axis=1), (3, 4)),
    "group-lasso-channels": Case(GroupLasso(0.3, axis=-3), (2, 3, 2, 2)),
    "group-lasso-blocks": Case(GroupLasso(0.5, groups=3), (9,)),
    "group-lasso-listed": Case(GroupLasso(0.5, groups=((4, 0), (1, 5, 2))), (7,), fits_empty=False),
    "group-lasso-listed-columns": Case(GroupLasso(0.5, axis=1, groups=((3, 0), (1,))), (3, 4)),
    "group-lasso-weights": Case(GroupLasso(0.5, weights=(0.0, 1.0, 3.0)), (3, 2), fits_empty=False),
    "group-lasso-listed-weights": Case(
        GroupLasso(0.5, groups=((4, 0), (1, 2)), weights=(0.0, 1.0)), (6,), fits_empty=False
    ),
    "sparse-group-lasso-rows": Case(SparseGroupLasso(0.3, 0.4), (3, 4)),
    "sparse-group-lasso-listed": Case(
        SparseGroupLasso(0.3, 0.4, groups=((4, 0), (1, 2))), (6,), fits_empty=False
    ),
    "sparse-group-lasso-listed-channels": Case(
        SparseGroupLasso(0.3, 0.4, axis=1, groups=((2, 0),)), (2, 3, 2)
    ),
    "sparse-group-lasso-weights": Case(
        SparseGroupLasso(0.2, 0.3, axis=1, weights=(1.0, 0.5)), (3, 2)
    ),
    "group-mcp": Case(GroupMCP(0.7, 2.0), (3, 4)),
    "group-mcp-lambda": Case(GroupMCP(1.5, 2.0, "lambda", axis=1), (4, 3)),
    "group-mcp-blocks": Case(GroupMCP(0.7, 4.0, groups=2), (6,)),
    "group-mcp-blocks-columns": Case(GroupMCP(0.7, 4.0, axis=1, groups=2), (3, 4)),
    "group-scad": Case(GroupSCAD(0.7), (3, 4)),
    "group-scad-lambda": Case(
        GroupSCAD(0.9, 3.0, "lambda", groups=((0, 3), (1, 2, 4))), (6,), fits_empty=False
    ),
    "linf": Case(LInf(0.7)),
    "linf-strong": Case(LInf(4.0), (2, 3)),
    "nuclear": Case(Nuclear(0.7), (4, 3)),
    "nuclear-convolution": Case(Nuclear(0.7), (3, 2, 2)),
    "nuclear-vector": Case(Nuclear(0.4, shape=(2, 3)), (6,), fits_empty=False),
    "singular-value-mcp": Case(SingularValueMCP(0.7, 2.0), (4, 3)),
    "singular-value-mcp-lambda": Case(SingularValueMCP(1.5, 3.0, "lambda"), (3, 4)),
    "total-variation": Case(TotalVariation(0.7), (12,)),
    "total-variation-lines": Case(TotalVariation(0.3), (2, 5)),
    "total-variation-single": Case(TotalVariation(0.3), (1,)),
    "simplex": Case(Simplex(), even=False, constraint=True, fits_empty=False),
    "simplex-wide": Case(Simplex(7.0), (2, 3), even=False, constraint=True, fits_empty=False),
    "l1-ball": Case(L1Ball(1.5), constraint=True),
    "l1-ball-wide": Case(L1Ball(8.0), (2, 3), constraint=True),
    "l2-ball": Case(L2Ball(1.5), constraint=True),
    "l2-ball-wide": Case(L2Ball(5.0), (2, 3), constraint=True),
    "cardinality": Case(Cardinality(2), constraint=True),
    "cardinality-all": Case(Cardinality(9), (2, 3), constraint=True),
    "per-layer": Case(
        PerLayer(LAYOUT, (("1.*", MCP(0.7)), ("*.weight", GroupLasso(0.5)))),
        (LAYOUT.size,),
        fits_empty=False,
    ),
    "sum-nothing": Case(Sum(())),
    "sum-mcp-ridge": Case(Sum((Ridge(0.1), MCP(0.7, 2.0)))),
    "sum-scad-convexified": Case(Sum((SCAD(0.7), Ridge(0.2), Ridge(0.3)))),
    "sum-nuclear-ridge": Case(Sum((Nuclear(0.5), Ridge(0.5))), (3, 3)),
    "sum-l1-nonnegative": Case(Sum((NonNegative(), L1(0.5))), even=False, constraint=True),
    "sum-mcp-box-ridge": Case(
        Sum((MCP(0.7, 2.0), Box(0.5, 1.5), Ridge(0.1))), even=False, constraint=True
    ),
    "sum-weighted-linf-ball": Case(
        Sum((WeightedL1(0.5, (0.0, 1.0, 2.0)), LInfBall(1.0))),
        (3,),
        constraint=True,
        fits_empty=False,
    ),
    "sum-fused-lasso": Case(Sum((L1(0.4), TotalVariation(0.5))), (10,)),
    "sum-fused-mcp": Case(Sum((MCP(0.6, 2.0), TotalVariation(0.5))), (8,)),
    "sum-fused-box": Case(
        Sum((TotalVariation(0.5), L1(0.3), Box(-0.5, 1.0))), (8,), even=False, constraint=True
    ),
    "sum-sparse-group": Case(Sum((GroupLasso(0.4), L1(0.3))), (3, 4)),
    "sum-sparse-group-mcp": Case(Sum((L1(0.2), GroupMCP(0.7, 2.0))), (3, 4)),
    "sum-sparse-group-scad": Case(
        Sum((WeightedL1(0.2, (1.0, 2.0) * 3), GroupSCAD(0.7))), (2, 3), fits_empty=False
    ),
    "sum-l1-l2-ball": Case(Sum((L1(0.3), L2Ball(1.2))), constraint=True),
    "sum-nonnegative-l1-l2": Case(
        Sum((L2(0.4), NonNegative(), L1(0.3))), even=False, constraint=True
    ),
}

ALL = SCALAR | STRUCTURED


def table(cases: dict[str, Case]) -> pytest.MarkDecorator:
    """Run a test once for each case."""
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def only(keep: Callable[[Case], bool], cases: dict[str, Case] = ALL) -> pytest.MarkDecorator:
    """Run a test once for each case that ``keep`` chooses."""
    return table({name: case for name, case in cases.items() if keep(case)})


def separable(case: Case) -> bool:
    return isinstance(case.penalty, Separable)


def weakly_convex(case: Case) -> bool:
    return case.penalty.in_theory
