"""Sums of penalties."""

import math

import pytest
import torch

from fedcanon.errors import FedcanonError
from fedcanon.penalties import (
    L0,
    L1,
    MCP,
    SCAD,
    Box,
    ElasticNet,
    GroupLasso,
    L1Ball,
    L2Ball,
    LInf,
    NonNegative,
    Nuclear,
    Penalty,
    PerLayer,
    Ridge,
    Simplex,
    SparseGroupLasso,
    Sum,
    TotalVariation,
    WeightedL1,
)

from .cases import LAYOUT

y = 2 * torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ((L1(0.7), Ridge(0.3)), ElasticNet(0.7, 0.3)),
        ((Ridge(0.3), Ridge(0.2)), Ridge(0.5)),
        ((GroupLasso(0.4), L1(0.3)), SparseGroupLasso(0.3, 0.4)),
        ((L1(0.4), Box(0.0, math.inf)), Sum((NonNegative(), L1(0.4)))),
    ],
)
def test_sums_with_a_name_of_their_own(parts: tuple[Penalty, ...], whole: Penalty) -> None:
    for terms in (parts, parts[::-1]):
        torch.testing.assert_close(Sum(terms).prox(y, 0.8), whole.prox(y, 0.8), rtol=1e-14, atol=0)
        assert Sum(terms).value(y.abs()) == pytest.approx(whole.value(y.abs()))


def test_a_ridge_makes_up_for_weak_convexity() -> None:
    assert Sum((MCP(0.6, 2.0), Ridge(0.1))).rho == pytest.approx(0.2)
    convex = Sum((SCAD(0.5), Ridge(0.5)))
    assert convex.rho == 0
    # Far beyond 1/ρ of the SCAD alone, and the inner step stays below it.
    p = convex.prox(y, 1e3)
    assert bool(p.isfinite().all())
    with pytest.raises(FedcanonError, match="1/ρ"):
        SCAD(0.5).prox(y, 1e3)


def test_the_bound_of_a_sum_is_that_of_the_triangle_inequality() -> None:
    both = Sum((L1(0.3), TotalVariation(0.5)))
    expected = (math.sqrt(0.09 * 10) + math.sqrt(0.25 * 34)) ** 2
    assert both.subgradient_bound((10,)) == pytest.approx(expected)
    assert Sum((L1(0.3), Ridge(0.1))).subgradient_bound((10,)) == math.inf


@pytest.mark.parametrize(
    "terms",
    [
        (L1(), MCP()),
        (L0(), NonNegative()),
        (Box(), NonNegative()),
        (Nuclear(), L1()),
        (LInf(), L1()),
        (Simplex(), L1Ball()),
        (GroupLasso(), MCP()),
        (GroupLasso(), Box()),
        (GroupLasso(), TotalVariation()),
        (GroupLasso(), L2Ball()),
        (TotalVariation(), WeightedL1(1.0, (1.0, 2.0))),
        (TotalVariation(), TotalVariation()),
    ],
)
def test_sums_without_a_known_prox_are_refused(terms: tuple[Penalty, Penalty]) -> None:
    first, second = (type(term).__name__ for term in terms)
    for order in (terms, terms[::-1]):
        with pytest.raises(
            FedcanonError, match=rf"({first} \+ {second}|{second} \+ {first}) is not"
        ):
            Sum(order)


def test_theory_covers_a_sum_if_it_covers_every_term() -> None:
    assert Sum((L1(), Ridge())).in_theory
    assert not Sum((L0(), Ridge())).in_theory


def test_a_ridge_leaves_the_penalised_layers_as_they_are() -> None:
    layers = PerLayer(LAYOUT, (("*.weight", L1()),))
    x = torch.ones(LAYOUT.size)
    assert [part.shape for part in Sum((Ridge(), layers)).penalised(x)] == [(3, 2), (2, 3)]
