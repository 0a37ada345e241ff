"""The rows of Table VI, with the numbers that the paper prints."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedcanon.paper.datasets import PUBLISHED

MODELS = {"cnn": "CNN", "resnet18": "ResNet-18"}
PARTITIONS = {"iid": "i.i.d.", "dirichlet:0.2": "Dir(0.2)", "writers:0.2": "Dir(0.2)"}


@dataclass(frozen=True)
class Row:
    """A row of the table, with the accuracies and deviations that the paper prints."""

    dataset: str
    model: str
    partition: str
    paper: dict[str, tuple[float, float]] = field(hash=False)

    @property
    def dataset_and_model(self) -> str:
        """Dataset and model as the paper writes them."""
        return f"{PUBLISHED[self.dataset].name} {MODELS[self.model]}"

    @property
    def label(self) -> str:
        """Dataset, model and partition as the paper writes them."""
        return f"{self.dataset_and_model} {PARTITIONS[self.partition]}"

    @property
    def name(self) -> str:
        """The name on the command line, such as cifar10-cnn-iid or femnist-cnn-dir0.2."""
        share = self.partition.partition(":")[2]
        return f"{self.dataset}-{self.model}-{f'dir{share}' if share else 'iid'}"


def _row(dataset: str, model: str, partition: str, *numbers: float) -> Row:
    methods = ("FedCanon", "FedDR", "FedADMM")
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return Row(dataset, model, partition, dict(zip(methods, pairs, strict=True)))


ROWS = (
    _row("femnist", "cnn", "iid", 0.7679, 0.0124, 0.7130, 0.0209, 0.7136, 0.0254),
    _row("femnist", "cnn", "writers:0.2", 0.7570, 0.0005, 0.7059, 0.0127, 0.7095, 0.0058),
    _row("cifar10", "cnn", "iid", 0.6505, 0.0066, 0.5591, 0.0065, 0.5957, 0.0087),
    _row("cifar10", "cnn", "dirichlet:0.2", 0.6333, 0.0131, 0.5015, 0.0065, 0.3557, 0.0086),
    _row("cinic10", "cnn", "iid", 0.4906, 0.0007, 0.4156, 0.0247, 0.4310, 0.0108),
    _row("cinic10", "cnn", "dirichlet:0.2", 0.3357, 0.0301, 0.3250, 0.0059, 0.1803, 0.0123),
    _row("cifar10", "resnet18", "iid", 0.7201, 0.0052, 0.6592, 0.0167, 0.6182, 0.0143),
    _row("cifar10", "resnet18", "dirichlet:0.2", 0.6966, 0.0062, 0.6519, 0.0278, 0.5644, 0.0359),
    _row("femnist", "resnet18", "iid", 0.8523, 0.0015, 0.7983, 0.0140, 0.7980, 0.0219),
    _row("femnist", "resnet18", "writers:0.2", 0.8361, 0.0010, 0.7899, 0.0033, 0.7939, 0.0023),
    _row("cinic10", "resnet18", "iid", 0.5491, 0.0026, 0.5415, 0.0086, 0.5124, 0.0127),
    _row("cinic10", "resnet18", "dirichlet:0.2", 0.4956, 0.0033, 0.4519, 0.0114, 0.4726, 0.0194),
    _row("tiny_imagenet", "resnet18", "iid", 0.3569, 0.0045, 0.2208, 0.0176, 0.2206, 0.0177),
    _row(
        "tiny_imagenet", "resnet18", "dirichlet:0.2", 0.2969, 0.0024, 0.1849, 0.0207, 0.1978, 0.0109
    ),
)
"""The rows in the order in which they are run: what takes longest comes last."""
