"""FedJAX: python -m peers.fedjax FILE."""

from __future__ import annotations

import sys

import fedjax
import jax
from fedjax.algorithms import fed_avg
from jax import numpy as jnp
from jax.example_libraries import stax
from peers.common import BATCH, RATE, STEPS, load, turns

WIDTHS = (200, 200, 10)

jax.tree_map = jax.tree.map  # FedJAX still uses the old name; older JAX has it, but is slower


def main(path: str) -> None:
    hidden = [layer for width in WIDTHS[:-1] for layer in (stax.Dense(width), stax.Relu)]
    start, predict = stax.serial(stax.Flatten, *hidden, stax.Dense(WIDTHS[-1]))

    def loss(parameters, batch, _key):
        scores = jax.nn.log_softmax(predict(parameters, batch["x"]))
        return -jnp.take_along_axis(scores, batch["y"][:, None], 1)[:, 0]

    algorithm = fed_avg.federated_averaging(
        fedjax.grad(loss),
        fedjax.optimizers.sgd(RATE),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(BATCH, num_epochs=None, num_steps=STEPS),
    )
    key = jax.random.PRNGKey(0)
    data = [fedjax.ClientDataset({"x": x, "y": y}) for x, y in load(path)]
    state = algorithm.init(start(key, (-1, 784))[1])
    for _ in turns():
        key, *keys = jax.random.split(key, len(data) + 1)
        clients = list(zip(map(str, range(len(data))), data, keys, strict=True))
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)


main(sys.argv[1])
