"""A PyTorch model of your own, data of your own: a network whose unused neurons vanish."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedcanon import FedCanonPlus, Federation, FlatModule, ModuleObjective, Problem, fit
from fedcanon.penalties import GroupLasso, PerLayer

torch.manual_seed(0)

# Your data: one tensor of inputs, one of targets. Every client holds two of the ten digits.
images, labels = load_digits(return_X_y=True)
inputs, targets = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
rows_of_clients = [torch.nonzero(targets % 5 == client).flatten() for client in range(5)]

# Your model: its parameters become views into one flat vector.
module = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
flat = FlatModule(module)
loss = nn.CrossEntropyLoss()
clients = [ModuleObjective(flat, loss, inputs, targets, rows) for rows in rows_of_clients]


def test(x: Tensor) -> dict[str, float]:
    """The measures of a model; here on all data, to keep the example short."""
    flat.load(x)
    with torch.no_grad():
        return {"accuracy": float((module(inputs).argmax(1) == targets).double().mean())}


# The penalty sets whole rows of the first layer to zero: a neuron each.
penalty = PerLayer(flat.layout, (("0.weight", GroupLasso(kappa=3e-3)),))
problem = Problem(clients, flat.vector.clone(), test=test)
algorithm = FedCanonPlus(alpha=1.0, beta=0.1, local_steps=10)
result = fit(Federation(problem, algorithm, penalty, batch_size=32), rounds=80, evaluate_every=20)

# The result is a vector; loading it makes it the module's parameters again.
flat.load(result.vector)
idle = int((module[0].weight == 0).all(dim=1).sum())
print(f"accuracy {result.last.test['accuracy']:.3f}, {idle} of 100 neurons have no input left")
