"""Penalties of the layers of a model."""

import pytest
import torch

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.penalties import (
    L0,
    L1,
    MCP,
    GroupLasso,
    Nuclear,
    Penalty,
    PerLayer,
    WeightedL1,
    Zero,
    on_weights,
)

from .cases import LAYOUT


def vector() -> torch.Tensor:
    return torch.randn(LAYOUT.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_first_matching_rule_wins_and_the_rest_is_free() -> None:
    x = vector()
    penalty = PerLayer(LAYOUT, (("1.*", MCP(0.9, 2.0)), ("*.weight", GroupLasso(0.5))))
    p = LAYOUT.views(penalty.prox(x, 0.7))
    views = LAYOUT.views(x)
    assert torch.equal(p["0.weight"], GroupLasso(0.5).prox(views["0.weight"], 0.7))
    assert torch.equal(p["0.bias"], views["0.bias"])
    assert torch.equal(p["1.weight"], MCP(0.9, 2.0).prox(views["1.weight"], 0.7))
    assert torch.equal(p["1.bias"], MCP(0.9, 2.0).prox(views["1.bias"], 0.7))
    assert penalty.rho == pytest.approx(0.45)
    expected = GroupLasso(0.5).value(views["0.weight"]) + MCP(0.9, 2.0).value(x[9:])
    assert penalty.value(x) == pytest.approx(expected)
    # three groups weigh √2 each, and eight entries carry the MCP
    assert penalty.subgradient_bound((17,)) == pytest.approx(0.25 * 6 + 8 * 0.81)


def test_sparsity_is_measured_where_the_penalty_is() -> None:
    x = torch.ones(LAYOUT.size)
    x[:3] = 0
    x[6:9] = 0  # a bias, which carries no penalty
    penalty = PerLayer(LAYOUT, (("*.weight", L1()),))
    assert [part.shape for part in penalty.penalised(x)] == [(3, 2), (2, 3)]
    assert penalty.zeros(x) == (3, 12)
    assert Zero().zeros(x) == (6, 17)


def test_the_views_share_the_memory_of_the_vector() -> None:
    x = vector()
    assert PerLayer(LAYOUT, (("*.weight", L1(99.0)),)).prox_(x, 1.0) is x
    assert not x[:6].any()
    assert not x[9:15].any()
    assert bool((x[[6, 7, 8, 15, 16]] != 0).all())


def test_theory_covers_a_model_if_it_covers_every_layer() -> None:
    assert PerLayer(LAYOUT, (("*", L1()),)).in_theory
    assert not PerLayer(LAYOUT, (("0.*", L0()), ("*", L1()))).in_theory


def test_a_pattern_without_a_layer_is_refused_with_the_names() -> None:
    with pytest.raises(FedcanonError, match=r'"conv\*".*0\.weight, 0\.bias, 1\.weight, 1\.bias'):
        PerLayer(LAYOUT, (("*.weight", L1()), ("conv*", L1())))


def test_a_vector_of_another_length_is_refused() -> None:
    with pytest.raises(FedcanonError, match="length 17"):
        PerLayer(LAYOUT, (("*", L1()),)).prox(torch.ones(16), 1.0)


def test_weights_are_penalised_and_biases_are_not() -> None:
    x = vector()
    p = LAYOUT.views(on_weights(Nuclear(99.0), LAYOUT).prox(x, 1.0))
    assert not p["0.weight"].any()
    assert not p["1.weight"].any()
    assert torch.equal(p["0.bias"], LAYOUT.views(x)["0.bias"])
    zeros, penalised = on_weights(Zero(), LAYOUT).zeros(torch.zeros(LAYOUT.size))
    assert zeros == penalised > 0


@pytest.mark.parametrize("penalty", [L1(), MCP(), WeightedL1(1.0, (1.0, 2.0, 3.0))])
def test_entrywise_penalties_of_a_whole_model_need_no_placement(penalty: Penalty) -> None:
    assert on_weights(penalty, Layout.of([("w", (2,)), ("b", (1,))])) is penalty
    assert on_weights(penalty, Layout.of([("w", (1, 3))])) is penalty


def test_a_model_of_vectors_is_penalised_everywhere_slot_by_slot() -> None:
    layout = Layout.of([("w[0]", (4,)), ("b", (2,))])
    penalty = on_weights(GroupLasso(1.0, groups=2), layout)
    assert isinstance(penalty, PerLayer)
    assert [slot.name for slot, _ in penalty.placed] == ["w[0]", "b"]
    x = torch.arange(1.0, 7.0)
    assert torch.equal(penalty.prox(x, 1.0), GroupLasso(1.0, groups=2).prox(x, 1.0))


def test_a_placement_is_not_placed_again() -> None:
    placed = PerLayer(LAYOUT, (("*.bias", L1()),))
    assert on_weights(placed, LAYOUT) is placed
