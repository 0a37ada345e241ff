"""The client of the deployments under test; a node started with ``attack`` sends forgeries."""

from dataclasses import replace
from pathlib import Path

import torch
from app.data import load
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcanon.deployment.flower.apps import client_app
from fedcanon.deployment.flower.wire import to_message, to_records
from fedcanon.deployment.protocol import Reply, packed

honest = client_app(Path(__file__).parent, load)
app = ClientApp()


@app.query()
@app.evaluate()
def answer(letter, context):
    return honest(letter, context)


@app.train()
def train(letter, context):
    if "attack" not in context.node_config:
        return honest(letter, context)
    return Message(forged(to_message(letter.content)), reply_to=letter)


def forged(message):
    """In turns: nonsense, a wrong shape, NaN, the answer to an earlier round."""
    z = message.content["z"].vector
    kind = message.round % 4
    if kind == 0:
        return RecordDict({"header": ConfigRecord({"json": "{]"})})
    vector = [z[:-1], torch.full_like(z, torch.nan), torch.ones_like(z)][kind - 1]
    name = "u" if message.keeps else "m"
    content = {name: vector, "buffers": torch.empty(0)}
    reply = Reply(
        message.id,
        message.client,
        "update",
        message.generation,
        message.round,
        content=packed(content),
        update="forged",
        base=message.ack,
    )
    return to_records(replace(reply, round=message.round - 1) if kind == 3 else reply)
