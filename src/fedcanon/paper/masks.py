"""Proximal operators as they are often written: boolean masks in tensor code.

Each makes several passes over memory and several temporaries. They give the same numbers as the
penalties' own operators and are here to be timed beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcanon.penalties import L1, MCP, SCAD


@dataclass(frozen=True)
class MaskedL1(L1):
    """ℓ1 with a prox of masks."""

    def _prox_(self, x: Tensor, step: float) -> None:
        t = step * self.kappa
        above, below = x > t, x < -t
        x[~(above | below)] = 0
        x[above] -= t
        x[below] += t


@dataclass(frozen=True)
class MaskedMCP(MCP):
    """MCP with a prox of masks."""

    def _prox_(self, x: Tensor, step: float) -> None:
        t, slope = self._constants(step)
        m = x.abs()
        middle = (m > t) & (m <= self.gamma * self.level)
        x[m <= t] = 0
        x[middle] = x[middle].sign() * (m[middle] - t) * slope


@dataclass(frozen=True)
class MaskedSCAD(SCAD):
    """SCAD with a prox of masks."""

    def _prox_(self, x: Tensor, step: float) -> None:
        t, slope, offset = self._constants(step)
        m = x.abs()
        near = m <= self.level + t
        middle = ~near & (m <= self.A * self.level)
        x[near] = x[near].sign() * (m[near] - t).clamp(min=0)
        x[middle] = x[middle].sign() * (slope * m[middle] - offset)
