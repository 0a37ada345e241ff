"""The bare loop: python -m peers.bare FILE MODEL CLIENTS THREADS."""

from __future__ import annotations

import sys

import torch
from peers.common import load, turns
from peers.loop import descend

from fedcanon.objectives.models import MODELS


def main(path: str, name: str, clients: str, threads: str) -> None:
    torch.set_num_threads(int(threads))
    data = [tuple(map(torch.from_numpy, own)) for own in load(path, int(clients))]
    inputs, labels = data[0]
    model = MODELS[name]().build(tuple(inputs.shape[1:]), int(labels.max()) + 1)
    parameters = list(model.parameters())
    server = [parameter.detach().clone() for parameter in parameters]
    for _ in turns():
        total = [torch.zeros_like(own) for own in server]
        for own in data:
            with torch.no_grad():
                torch._foreach_copy_(parameters, server)
            descend(model, own)
            with torch.no_grad():
                torch._foreach_add_(total, parameters)
        server = torch._foreach_div(total, len(data))


main(*sys.argv[1:])
