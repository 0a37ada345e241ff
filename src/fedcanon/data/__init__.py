"""Datasets and their spread over clients."""

from fedcanon.data.dataset import Dataset, Split
from fedcanon.data.partition import partition
from fedcanon.data.sources import DATASETS

__all__ = ["DATASETS", "Dataset", "Split", "partition"]
