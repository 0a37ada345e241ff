"""The data function of the deployments under test; a file can make it slow."""

import time
from pathlib import Path

import numpy as np

from fedcanon.deployment.flower.apps import ClientData


def load(client: int, node: dict) -> ClientData:
    folder = Path(node["data"])
    if (folder / f"slow-{client}").exists():
        time.sleep(float((folder / f"slow-{client}").read_text()))
    with np.load(folder / f"client-{client}.npz") as own:
        pair = own["features"], own["labels"]
    return ClientData(pair, pair)
