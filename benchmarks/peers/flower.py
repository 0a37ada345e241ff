"""Flower's simulation runtime, an actor for each core: python -m peers.flower FILE."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_HOME": tempfile.mkdtemp(),
    "RAY_USAGE_STATS_ENABLED": "0",
}

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from peers.common import CLIENTS, load, turns
from peers.loop import Data, descend, mlp

FOREVER = 10**9

client_app, server_app = ClientApp(), ServerApp()


@cache
def prepared(path: str) -> tuple[torch.nn.Module, list[Data]]:
    """The model and the data, which an actor keeps from message to message."""
    torch.set_num_threads(1)
    return mlp(), [tuple(map(torch.from_numpy, own)) for own in load(path)]


@client_app.train()
def train(message: Message, context: Context) -> Message:
    model, data = prepared(message.content["config"]["path"])
    own = data[int(context.node_config["partition-id"])]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    descend(model, own)
    arrays, metrics = ArrayRecord(model.state_dict()), MetricRecord({"num-examples": len(own[1])})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    every_round = turns()
    FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS).start(
        grid,
        ArrayRecord(mlp().state_dict()),
        num_rounds=FOREVER,
        train_config=ConfigRecord({"path": sys.argv[1]}),
        evaluate_fn=lambda *_: next(every_round),  # called before the first round and after each
    )


def main() -> None:
    backend = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": os.cpu_count(), "include_dashboard": False},
    }
    run_simulation(server_app, client_app, CLIENTS, backend_config=backend)


if __name__ == "__main__":
    # Actors keep what a module holds, but not what __main__ does.
    from peers import flower

    flower.main()
