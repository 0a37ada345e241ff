"""Every penalty by its name in a configuration."""

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
