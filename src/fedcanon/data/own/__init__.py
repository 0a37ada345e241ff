"""Your own data: arrays, tables and folders of images."""

from fedcanon.data.own.arrays import from_arrays
from fedcanon.data.own.images import from_images
from fedcanon.data.own.tables import from_table

__all__ = ["from_arrays", "from_images", "from_table"]
