"""The formats of files for other programs."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """A format, by its name on the command line."""

    SAFETENSORS = "safetensors"
    PYTORCH = "pt"
    PROGRAM = "pt2"
    ONNX = "onnx"
    SPARSE = "sparse"

    @property
    def suffix(self) -> str:
        """The ending of its files' names."""
        return ".sparse.safetensors" if self is Format.SPARSE else f".{self}"
