"""The Flower app of a client."""

from __future__ import annotations

from collections.abc import Callable

import torch
from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp

from fedcanon.deployment import Participant
from fedcanon.deployment.flower.wire import presence_to_records, to_message, to_records


def answering_app(make_participant: Callable[[Context], Participant]) -> ClientApp:
    """Return a ClientApp that answers messages with the participant of its node.

    It does not use the state that Flower keeps for a client, which can be lost without notice.
    """
    app = ClientApp()

    @app.train()
    @app.evaluate()
    def answer(message: FlowerMessage, context: Context) -> FlowerMessage:
        torch.set_num_threads(1)  # as in all engines, for the same bits on every machine
        reply = make_participant(context).answer(to_message(message.content))
        return FlowerMessage(to_records(reply), reply_to=message)

    @app.query()
    def introduce(message: FlowerMessage, context: Context) -> FlowerMessage:
        participant = make_participant(context)
        records = presence_to_records(participant.client, participant.presence)
        return FlowerMessage(records, reply_to=message)

    return app
