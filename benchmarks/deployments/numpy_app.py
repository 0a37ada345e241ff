"""A minimal app of Flower: vectors of NumPy go to all clients and back, and are averaged."""

SERVER = """
import time

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    vector = np.random.default_rng(0).random({parameters}, dtype=np.float32)
    while len(nodes := list(grid.get_node_ids())) < {clients}:
        time.sleep(1)
    for _ in range({rounds} + 2):
        content = RecordDict({{"vector": ArrayRecord([vector])}})
        answers = grid.send_and_receive([Message(content, node, "train") for node in nodes])
        vectors = [answer.content["vector"].to_numpy_ndarrays()[0] for answer in answers]
        vector = np.mean(vectors, axis=0)
"""

CLIENT = """
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    [vector] = message.content["vector"].to_numpy_ndarrays()
    changed = vector + vector.dtype.type(context.node_config["client"])
    return Message(RecordDict({"vector": ArrayRecord([changed])}), reply_to=message)
"""
