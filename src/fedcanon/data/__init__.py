"""Datasets and their spread over clients."""

from fedcanon.data.dataset import Dataset, Split
from fedcanon.data.hub import from_dataset, from_hub
from fedcanon.data.own import from_arrays, from_images, from_table
from fedcanon.data.partition import MINIMUM, Partition, make_partition, partition
from fedcanon.data.registry import DATASETS
from fedcanon.data.synthetic import synthetic

__all__ = [
    "DATASETS",
    "MINIMUM",
    "Dataset",
    "Partition",
    "Split",
    "from_arrays",
    "from_dataset",
    "from_hub",
    "from_images",
    "from_table",
    "make_partition",
    "partition",
    "synthetic",
]
