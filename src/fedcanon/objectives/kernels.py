"""Local steps of small networks, compiled: several of them are one call from Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedcanon.compiling import compiled

Vector = np.ndarray[tuple[int], np.dtype[Any]]
Matrix = np.ndarray[tuple[int, int], np.dtype[Any]]
Cube = np.ndarray[tuple[int, int, int], np.dtype[Any]]


@compiled(error_model="numpy")
def descend(
    x: Matrix,
    shift: Matrix,
    inputs: Matrix,
    targets: Vector,
    rows: Cube,
    sizes: Vector,
    widths: Vector,
    has_bias: Vector,
    relu: Vector,
    step: float,
) -> None:
    """Steps of several clients: x_i ← x_i − step·(mean cross-entropy gradient at x_i + shift_i).

    Args:
        x: The parameters of client i are row i: of each layer the weights, then the biases.
        shift: A vector for each client that is added to its gradients; without rows there is none.
        inputs: A row of features for each sample.
        targets: The class of each sample.
        rows: The samples of client i in a step are the first at [step, i], ``sizes[i]`` of them.
        sizes: How many samples a step of client i has.
        widths: The number of features, then the number of outputs of each layer.
        has_bias: Which layers have a bias.
        relu: After which layers there is a ReLU.
        step: The step size.
    """
    zero, one, layers = x.dtype.type(0), x.dtype.type(1), widths.size - 1
    batch = np.empty((rows.shape[2], widths[0]), x.dtype)
    outputs = np.empty(widths.sum() * rows.shape[2], x.dtype)  # of one layer after the other
    gradient = np.empty((widths[:-1] * widths[1:]).max(), x.dtype)  # of one layer at a time
    slopes = np.empty(widths.max() * rows.shape[2], x.dtype)
    for client in range(x.shape[0]):
        parameters, m = x[client], sizes[client]
        share, features = one / x.dtype.type(m), batch[:m]
        for t in range(rows.shape[0]):
            chosen = rows[t, client, :m]
            for j in range(m):
                if not 0 <= targets[chosen[j]] < widths[layers]:
                    raise IndexError("a target is no class of the model")
                source, copy = inputs[chosen[j]], features[j]
                for i in range(widths[0]):
                    copy[i] = source[i]
            end, last = 0, 0  # of the parameters and the outputs of a layer
            for layer in range(layers):
                fan_in, fan_out = widths[layer], widths[layer + 1]
                weight = parameters[end : end + fan_out * fan_in].reshape(fan_out, fan_in)
                h = outputs[last : last + fan_out * m].reshape(fan_out, m)
                if layer == 0:
                    np.dot(weight, features.T, h)
                else:
                    np.dot(weight, outputs[last - fan_in * m : last].reshape(fan_in, m), h)
                end, last = end + fan_out * fan_in, last + fan_out * m
                for k in range(fan_out):
                    bias = parameters[end + k] if has_bias[layer] else zero
                    for j in range(m):
                        score = h[k, j] + bias
                        h[k, j] = zero if relu[layer] and score < zero else score
                end += fan_out if has_bias[layer] else 0
            # Going back, the outputs of a layer are replaced by the slopes of the loss there.
            d = outputs[last - widths[layers] * m : last].reshape(widths[layers], m)
            for j in range(m):
                largest, total = d[0, j], zero
                for k in range(1, d.shape[0]):
                    largest = max(largest, d[k, j])
                for k in range(d.shape[0]):
                    d[k, j] = math.exp(d[k, j] - largest)
                    total += d[k, j]
                for k in range(d.shape[0]):
                    d[k, j] *= share / total
                d[targets[chosen[j]], j] -= share
            for layer in range(layers - 1, -1, -1):
                fan_in, fan_out = widths[layer], widths[layer + 1]
                d = outputs[last - fan_out * m : last].reshape(fan_out, m)
                last -= fan_out * m
                if has_bias[layer]:
                    end -= fan_out
                    for k in range(fan_out):
                        total = zero
                        for j in range(m):
                            total += d[k, j]
                        drift = shift[client, end + k] if shift.shape[0] > 0 else zero
                        parameters[end + k] -= step * (total + drift)
                size = fan_out * fan_in
                end -= size
                own, found = parameters[end : end + size], gradient[:size]
                if layer == 0:
                    np.dot(d, features, found.reshape(fan_out, fan_in))
                else:
                    h = outputs[last - fan_in * m : last].reshape(fan_in, m)
                    np.dot(d, h.T, found.reshape(fan_out, fan_in))
                    below = slopes[: fan_in * m].reshape(fan_in, m)
                    np.dot(own.reshape(fan_out, fan_in).T, d, below)
                    for k in range(fan_in):
                        for j in range(m):
                            stops = relu[layer - 1] and not h[k, j] > zero
                            h[k, j] = zero if stops else below[k, j]
                if shift.shape[0] > 0:
                    shifted = shift[client, end : end + size]
                    for i in range(size):
                        own[i] -= step * (found[i] + shifted[i])
                else:
                    for i in range(size):
                        own[i] -= step * found[i]
