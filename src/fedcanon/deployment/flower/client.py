"""The client's side on Flower."""

from __future__ import annotations

from collections.abc import Callable

import torch
from flwr.app import Context
from flwr.app import Message as Letter
from flwr.clientapp import ClientApp

from fedcanon.deployment import Participant
from fedcanon.deployment.flower.wire import presence_to_records, to_message, to_records


def answering_app(participant_of: Callable[[Context], Participant]) -> ClientApp:
    """A ClientApp that answers as the participant of its node does.

    Flower's own per-client state is not used: it may be lost without a word.
    """
    app = ClientApp()

    @app.train()
    @app.evaluate()
    def answer(letter: Letter, context: Context) -> Letter:
        torch.set_num_threads(1)  # as everywhere: the same bits on every machine
        reply = participant_of(context).answer(to_message(letter.content))
        return Letter(to_records(reply), reply_to=letter)

    @app.query()
    def who_is_there(letter: Letter, context: Context) -> Letter:
        participant = participant_of(context)
        return Letter(
            presence_to_records(participant.client, participant.presence), reply_to=letter
        )

    return app
