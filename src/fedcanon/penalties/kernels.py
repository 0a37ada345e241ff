"""Proximal operators as compiled passes over memory.

A separable kernel overwrites a contiguous float32 or float64 vector. Constants arrive in the
vector's own precision, so float32 stays float32 and the loops vectorise. Formulas are written with
selections instead of branches, in the order that lets a NaN through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedcanon.compiling import compiled

Vector = np.ndarray[tuple[int], np.dtype[Any]]
Matrix = np.ndarray[tuple[int, int], np.dtype[Any]]
Kernel = Callable[..., None]

jit = compiled(error_model="numpy")


@jit
def shrink(x: Vector, t: float, gain: float, scale: float) -> None:
    """(y − clip(gain·y, −t, t))·scale: ℓ1, elastic net, ridge and Huber."""
    for i in range(x.size):
        y = x[i]
        x[i] = (y - min(max(gain * y, -t), t)) * scale


@jit
def soft_each(x: Vector, t: float, weights: Vector) -> None:
    """y − clip(y, −tw, tw) with a weight w for every entry."""
    for i in range(x.size):
        y = x[i]
        level = t * weights[i]
        x[i] = y - min(max(y, -level), level)


@jit
def firm(x: Vector, t: float, slope: float) -> None:
    """0 up to t, then (m − t)·slope until that line meets the identity, then the identity: MCP."""
    zero = x.dtype.type(0)
    for i in range(x.size):
        y = x[i]
        m = abs(y)
        line = (m - t) * slope
        x[i] = math.copysign(zero if m <= t else (line if line < m else m), y)


@jit
def scad(x: Vector, t: float, slope: float, offset: float) -> None:
    """min(max(m − t, slope·m − offset), m), and 0 up to t: the three pieces of SCAD."""
    zero = x.dtype.type(0)
    for i in range(x.size):
        y = x[i]
        m = abs(y)
        shrunk = m - t
        line = slope * m - offset
        piece = line if line > shrunk else shrunk
        x[i] = math.copysign(zero if m <= t else (piece if piece < m else m), y)


@jit
def log_sum(x: Vector, t: float, eps: float, root: float) -> None:
    """0 up to t, then (m − ε + (m + ε)√(1 − q²))/2 with q = root/(m + ε)."""
    zero = x.dtype.type(0)
    one = x.dtype.type(1)
    half = x.dtype.type(0.5)
    for i in range(x.size):
        y = x[i]
        m = abs(y)
        q = root / (m + eps)
        inside = (one - q) * (one + q)
        larger = (m - eps + (m + eps) * math.sqrt(inside if inside > zero else zero)) * half
        x[i] = math.copysign(zero if m <= t else larger, y)


@jit
def hard(x: Vector, t: float) -> None:
    """0 up to t, then the identity: ℓ0."""
    zero = x.dtype.type(0)
    for i in range(x.size):
        y = x[i]
        m = abs(y)
        x[i] = math.copysign(zero if m <= t else m, y)


@jit
def clip(x: Vector, lower: float, upper: float) -> None:
    """The nearest point of [lower, upper]."""
    for i in range(x.size):
        y = x[i]
        x[i] = lower if y < lower else (upper if y > upper else y)


@compiled(fastmath={"reassoc", "contract"})
def row_norms(rows: Matrix) -> Vector:
    """The Euclidean norm of every row, summed in float64."""
    norms = np.empty(rows.shape[0])
    for i in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            y = np.float64(rows[i, j])
            total += y * y
        norms[i] = math.sqrt(total)
        if not 1e-290 < total < math.inf:  # the squares may be too large or too small for numbers
            largest = 0.0
            for j in range(rows.shape[1]):
                largest = max(largest, abs(np.float64(rows[i, j])))
            if 0.0 < largest < math.inf:
                total = 0.0
                for j in range(rows.shape[1]):
                    y = rows[i, j] / largest
                    total += y * y
                norms[i] = largest * math.sqrt(total)
    return norms


@jit
def total_variation(rows: Matrix, t: float) -> None:
    """argmin_x ½‖x − y‖² + t Σ|x_{i+1} − x_i| for each row y, exactly and in O(n).

    Dynamic programming (Johnson, 2013). Let f_k(b) be the least cost of the first k + 1 entries
    given x_k = b, without the term that leads to x_{k+1}. Its derivative is increasing and
    piecewise linear; adding the next entry clips it to [−t, t] at the points ``low[k]`` and
    ``high[k]`` and adds b − y_{k+1}. The pieces lie in a double-ended queue of knots with the
    change of slope and intercept at each. The last entry is the zero of the derivative, and going
    back x_k is x_{k+1} clipped to [low[k], high[k]]. Entries must be finite, and t positive.
    """
    n = rows.shape[1]
    if n < 2:
        return
    knot, slope, intercept = np.empty(2 * n), np.empty(2 * n), np.empty(2 * n)
    low, high = np.empty(n - 1), np.empty(n - 1)
    for row in range(rows.shape[0]):
        y = rows[row]
        head, tail = n, n - 1  # the queue is empty
        for k in range(n - 1):
            first_slope, first_intercept = 1.0, -y[k] - (t if k > 0 else 0.0)
            while head <= tail and first_slope * knot[head] + first_intercept <= -t:
                first_slope += slope[head]
                first_intercept += intercept[head]
                head += 1
            last_slope, last_intercept = 1.0, -y[k] + (t if k > 0 else 0.0)
            while head <= tail and last_slope * knot[tail] + last_intercept >= t:
                last_slope -= slope[tail]
                last_intercept -= intercept[tail]
                tail -= 1
            low[k] = (-t - first_intercept) / first_slope
            high[k] = (t - last_intercept) / last_slope
            head -= 1
            knot[head], slope[head], intercept[head] = low[k], first_slope, first_intercept + t
            tail += 1
            knot[tail], slope[tail], intercept[tail] = high[k], -last_slope, t - last_intercept
        first_slope, first_intercept = 1.0, -y[n - 1] - t
        while head <= tail and first_slope * knot[head] + first_intercept <= 0:
            first_slope += slope[head]
            first_intercept += intercept[head]
            head += 1
        y[n - 1] = -first_intercept / first_slope
        for k in range(n - 2, -1, -1):
            y[k] = min(max(y[k + 1], low[k]), high[k])


def runs_on(x: torch.Tensor) -> bool:
    """Whether kernels can work on the memory of this tensor."""
    return x.device.type == "cpu" and x.dtype in _NUMPY_TYPE and x.is_contiguous()


def apply(kernel: Kernel, x: torch.Tensor, constants: tuple[float | Vector, ...]) -> None:
    """Run ``kernel`` over the memory of ``x``; numbers are given the precision of ``x``."""
    number = _NUMPY_TYPE[x.dtype]
    with np.errstate(over="ignore"):  # a threshold above all numbers of this precision is infinite
        numbers = [c if isinstance(c, np.ndarray) else number(c) for c in constants]
    kernel(x.detach().view(-1).numpy(), *numbers)


_NUMPY_TYPE: dict[torch.dtype, type[np.floating[Any]]] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
}
