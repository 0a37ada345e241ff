"""The client of secure deployments under test: a file lets it halt before an answer leaves it.

The file says after how many rounds, and where the server writes how many are done.
"""

import json
import time
from pathlib import Path

from app.data import load
from flwr.clientapp import ClientApp

from fedcanon.deployment.flower.apps import client_app
from fedcanon.deployment.flower.wire import to_message

honest = client_app(Path(__file__).parent, load)
app = ClientApp()


@app.query()
def introduce(letter, context):
    return honest(letter, context)


@app.train()
def answer(letter, context):
    message, node = to_message(letter.content), context.node_config
    reply = honest(letter, context)
    halt = Path(node["data"]) / f"halt-{node['client']}-{message.kind}"
    if halt.exists() and is_due(halt):
        halt.rename(halt.with_name(halt.name.replace("halt", "halted")))
        time.sleep(3600)
    return reply


def is_due(halt):
    after, status = halt.read_text().split(" ", 1)
    return Path(status).exists() and json.loads(Path(status).read_text())["round"] >= int(after)
