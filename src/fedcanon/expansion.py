"""A function's value, gradient and Hessian at a point, as one vector."""

from __future__ import annotations

import torch
from torch import Tensor


def expansion_length(d: int) -> int:
    """Return the length of the vector for a function of ``d`` variables: 1 + d + d(d + 1)/2."""
    return (d + 1) * (d + 2) // 2


def pack_expansion(value: float, gradient: Tensor, hessian: Tensor) -> Tensor:
    """Return the value, the gradient and the upper triangle of the Hessian, row by row."""
    upper = hessian[_upper_triangle(hessian)]
    return torch.cat([gradient.new_tensor([value]), gradient, upper])


def unpack_expansion(packed: Tensor, d: int) -> tuple[float, Tensor, Tensor]:
    """Return the value, the gradient and the symmetric Hessian of a function of ``d`` variables."""
    hessian = packed.new_zeros(d, d)
    hessian[_upper_triangle(hessian)] = packed[1 + d :]
    return float(packed[0]), packed[1 : 1 + d], hessian + hessian.triu(1).mT


def _upper_triangle(matrix: Tensor) -> Tensor:
    return torch.ones_like(matrix, dtype=torch.bool).triu_()
