"""Every penalty by its name in a configuration."""

from collections.abc import Mapping
from typing import Any

from fedcanon.penalties.base import Penalty
from fedcanon.penalties.combine import Zero
from fedcanon.penalties.constraints import (
    Box,
    Cardinality,
    L1Ball,
    L2Ball,
    LInfBall,
    NonNegative,
    Simplex,
)
from fedcanon.penalties.folded import L0, MCP, SCAD, LogSum
from fedcanon.penalties.group import GroupLasso, GroupMCP, GroupSCAD, SparseGroupLasso
from fedcanon.penalties.matrix import Nuclear, SingularValueMCP
from fedcanon.penalties.norms import LInf
from fedcanon.penalties.radial import L2
from fedcanon.penalties.separable import L1, ElasticNet, Huber, Ridge, WeightedL1
from fedcanon.penalties.sequence import TotalVariation

PENALTIES: dict[str, type[Penalty]] = {
    "zero": Zero,
    "l1": L1,
    "weighted_l1": WeightedL1,
    "elastic_net": ElasticNet,
    "ridge": Ridge,
    "huber": Huber,
    "mcp": MCP,
    "scad": SCAD,
    "log_sum": LogSum,
    "l0": L0,
    "l2": L2,
    "group_lasso": GroupLasso,
    "sparse_group_lasso": SparseGroupLasso,
    "group_mcp": GroupMCP,
    "group_scad": GroupSCAD,
    "linf": LInf,
    "nuclear": Nuclear,
    "singular_value_mcp": SingularValueMCP,
    "total_variation": TotalVariation,
    "non_negative": NonNegative,
    "box": Box,
    "simplex": Simplex,
    "l1_ball": L1Ball,
    "l2_ball": L2Ball,
    "linf_ball": LInfBall,
    "cardinality": Cardinality,
}
"""The penalties by the name they have in a configuration."""

COMMON_NAMES = {"lasso": "l1", "enet": "elastic_net", "tv": "total_variation"}
"""What some penalties are called elsewhere, and here."""


def with_our_names(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ``[penalty]`` table in which penalties have their names of the registry.

    Args:
        table: The table; its layers or terms are tables too.
    """

    def renamed(key: str, value: Any) -> Any:
        if key == "name":
            return COMMON_NAMES.get(value, value) if isinstance(value, str) else value
        if key in ("layers", "terms") and isinstance(value, list | tuple):
            return [with_our_names(part) if isinstance(part, Mapping) else part for part in value]
        return value

    return {key: renamed(key, value) for key, value in table.items()}
