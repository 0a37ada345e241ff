"""pfl-research: python -m peers.pfl FILE THREADS."""

from __future__ import annotations

import asyncio
import sys

import torch
from peers.common import BATCH, CLIENTS, RATE, STEPS, load, turns
from peers.loop import mlp
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

FOREVER = 10**9


class Classifier(nn.Module):
    """The MLP with the two methods that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.layers(inputs), labels)

    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, float]:
        return {}


class Turns(TrainingProcessCallback):
    """Ends a round, and stops when there are no more."""

    def __init__(self) -> None:
        self.turns = turns()

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        next(self.turns)
        return Metrics()

    def after_central_iteration(self, *_: object, **__: object) -> tuple[bool, Metrics]:
        return next(self.turns, "over") == "over", Metrics()


def main(path: str, threads: str) -> None:
    torch.set_num_threads(int(threads))
    asyncio.set_event_loop(asyncio.new_event_loop())  # pfl expects one to be there
    users = [
        PyTorchTensorDataset(tuple(map(torch.from_numpy, own)), user_id=str(client))
        for client, own in enumerate(load(path))
    ]
    sampler = get_user_sampler("minimize_reuse", range(CLIENTS))
    data = FederatedDataset(lambda client: users[client], sampler)
    classifier = Classifier()
    model = PyTorchModel(classifier, torch.optim.SGD, torch.optim.SGD(classifier.parameters(), 1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=FOREVER,
            evaluation_frequency=FOREVER,
            train_cohort_size=CLIENTS,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(
            local_batch_size=BATCH,
            local_num_epochs=None,
            local_num_steps=STEPS,
            local_learning_rate=RATE,
        ),
        callbacks=[Turns()],
        send_metrics_to_platform=False,
    )


main(*sys.argv[1:])
