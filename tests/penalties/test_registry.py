"""Penalties as a configuration names them."""

import math
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from fedcanon.errors import FedcanonError
from fedcanon.layout import Layout
from fedcanon.penalties import (
    L0,
    L1,
    L2,
    MCP,
    PENALTIES,
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
    Nuclear,
    Penalty,
    Ridge,
    Simplex,
    SingularValueMCP,
    SparseGroupLasso,
    TotalVariation,
    WeightedL1,
    on_weights,
)
from fedcanon.runs.named import make_penalty

NEEDED = {"weighted_l1": {"kappa": 1.0, "weights": [1, 2]}, "cardinality": {"count": 3}}


@pytest.mark.parametrize("name", PENALTIES)
def test_every_penalty_can_be_built_from_a_configuration(name: str) -> None:
    cls = PENALTIES[name]
    assert is_dataclass(cls)
    required = {
        f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING
    }
    assert required == set(NEEDED.get(name, {}))
    penalty = TypeAdapter(cls).validate_python(NEEDED.get(name, {}))
    assert type(penalty) is cls
    assert penalty == cls(**{key: _frozen(v) for key, v in NEEDED.get(name, {}).items()})
    assert hash(penalty) == hash(penalty)


def _frozen(value: object) -> object:
    return tuple(float(v) for v in value) if isinstance(value, list) else value


@pytest.mark.parametrize("name", PENALTIES)
def test_every_penalty_says_what_it_is(name: str) -> None:
    first, *rest = (PENALTIES[name].__doc__ or "").splitlines()
    assert re.fullmatch(r"[A-Zℓ].{5,70}\.", first)
    assert any("prox" in line for line in rest)


def test_groups_come_from_lists() -> None:
    lasso = TypeAdapter(GroupLasso)
    assert lasso.validate_python({"groups": [[0, 1], [2]]}).groups == ((0, 1), (2,))
    assert lasso.validate_python({"groups": 4}).groups == 4
    with pytest.raises(ValidationError):
        lasso.validate_python({"groups": "rows"})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: L1(-1.0), "kappa at least 0"),
        (lambda: L1(math.nan), "kappa"),
        (lambda: L1(math.inf), "finite kappa"),
        (lambda: L1(1e300), r"a kappa of at most 1e\+30, not 1e\+300"),
        (lambda: MCP(1e300), r"at most 1e\+30"),
        (lambda: L1Ball(1e300), r"at most 1e\+30"),
        (lambda: WeightedL1(1.0, (1e300,)), r"at most 1e\+30"),
        (lambda: WeightedL1(1.0, ("a", "b")), "weights that are numbers"),  # type: ignore[arg-type]
        (lambda: WeightedL1(1.0, (math.nan,)), "weights"),
        (lambda: WeightedL1(1.0, (1.0, -1.0)), "weights"),
        (lambda: WeightedL1(-1.0, (1.0,)), "kappa"),
        (lambda: ElasticNet(-1.0, 0.0), "kappa1"),
        (lambda: ElasticNet(0.0, -1.0), "kappa2"),
        (lambda: Ridge(-1.0), "kappa"),
        (lambda: Huber(1.0, 0.0), "delta above 0"),
        (lambda: Huber(-1.0), "kappa"),
        (lambda: MCP(0.0), "kappa above 0"),
        (lambda: MCP(1.0, 0.0), "gamma"),
        (lambda: MCP(form="weird"), "weird"),  # type: ignore[arg-type]
        (lambda: SCAD(1.0, 2.0), "A above 2"),
        (lambda: LogSum(0.0), "kappa"),
        (lambda: LogSum(1.0, 0.0), "eps"),
        (lambda: L0(-1.0), "kappa"),
        (lambda: L2(-1.0), "kappa"),
        (lambda: LInf(-1.0), "kappa"),
        (lambda: GroupLasso(-1.0), "kappa"),
        (lambda: GroupLasso(groups=0), "groups above 0"),
        (lambda: GroupLasso(groups=()), "must not be empty"),
        (lambda: GroupLasso(groups=((0,), ())), "must not be empty"),
        (lambda: GroupLasso(groups=((0, 1), (1, 2))), "overlap"),
        (lambda: GroupLasso(groups=((-1, 1),)), "start at 0"),
        (lambda: GroupLasso(weights=(-1.0,)), "weights"),
        (lambda: SparseGroupLasso(-1.0), "kappa1"),
        (lambda: SparseGroupLasso(1.0, -1.0), "kappa2"),
        (lambda: GroupMCP(1.0, -1.0), "gamma"),
        (lambda: GroupMCP(groups=((0, 0),)), "overlap"),
        (lambda: GroupSCAD(1.0, 1.0), "A above 2"),
        (lambda: Nuclear(-1.0), "kappa"),
        (lambda: SingularValueMCP(1.0, 0.0), "gamma"),
        (lambda: TotalVariation(-1.0), "kappa"),
        (lambda: Box(1.0, 0.0), "lower ≤ upper"),
        (lambda: Box(math.nan, 0.0), "lower ≤ upper"),
        (lambda: Simplex(0.0), "radius"),
        (lambda: L1Ball(0.0), "radius"),
        (lambda: L2Ball(-1.0), "radius"),
        (lambda: LInfBall(0.0), "radius"),
        (lambda: Cardinality(0), "count"),
    ],
)
def test_bad_parameters_are_refused(build: Callable[[], Penalty], message: str) -> None:
    with pytest.raises(FedcanonError, match=message):
        build()


@pytest.mark.parametrize(
    "weights",
    [[0, 1, 2], range(3), np.arange(3), np.arange(3.0, dtype=np.float32), torch.arange(3.0)],
    ids=repr,
)
def test_weights_come_as_sequences_arrays_and_tensors(weights: Sequence[float]) -> None:
    penalty = WeightedL1(0.5, weights)
    assert penalty == WeightedL1(0.5, (0.0, 1.0, 2.0))
    assert hash(penalty) == hash(WeightedL1(0.5, (0.0, 1.0, 2.0)))
    assert penalty.prox(torch.ones(3), 1.0).tolist() == [1.0, 0.5, 0.0]
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    assert WeightedL1(0.5, read_only) == penalty  # type: ignore[arg-type]
    assert WeightedL1(0.5, torch.arange(3.0, requires_grad=True)) == penalty  # type: ignore[arg-type]


def test_weights_and_groups_come_from_toml() -> None:
    text = """
    weights = {name = "weighted_l1", kappa = 0.5, weights = [0, 1, 2.5], on = "all"}
    listed = {name = "group_lasso", axis = 1, groups = [[0, 1], [2]], weights = [1, 2]}
    named = {name = "group_lasso", axis = 1, groups = {size = [0, 1], age = [2]}, weights = [1, 2]}
    """
    layout = Layout.of([("weight", (1, 3)), ("bias", (1,))])
    tables = tomllib.loads(text)
    assert make_penalty(tables["weights"], layout) == WeightedL1(0.5, (0.0, 1.0, 2.5))
    expected = on_weights(GroupLasso(1e-3, 1, ((0, 1), (2,)), (1.0, 2.0)), layout)
    assert make_penalty(tables["listed"], layout) == expected
    assert make_penalty(tables["named"], layout) == expected


def test_a_threshold_above_all_numbers_makes_zeros_and_no_warning() -> None:
    for penalty in (L1(1e30), WeightedL1(1e30, (1.0, 1.0)), GroupLasso(1e29, groups=2)):
        assert penalty.prox(torch.tensor([1e38, 1.0]), 1e20).tolist() == [0.0, 0.0]


def test_heuristics_are_outside_the_theory() -> None:
    outside = {
        name
        for name, cls in PENALTIES.items()
        if not TypeAdapter(cls).validate_python(NEEDED.get(name, {})).in_theory
    }
    assert outside == {"l0", "cardinality"}
