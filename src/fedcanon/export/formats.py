"""Writes a trained network in formats that other programs read."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import torch
from safetensors.torch import save as to_safetensors
from torch import nn

from fedcanon.errors import FedcanonError, first_line
from fedcanon.export.format import Format
from fedcanon.export.operations import Shape
from fedcanon.export.sparse import save_sparse
from fedcanon.files import explained, write_whole
from fedcanon.runs.model_file import METADATA, tensors_of, write_tensors


def save(module: nn.Module, example_shape: Shape, path: str | Path, kind: Format) -> None:
    """Write a network to a file, which is there whole or not at all.

    Args:
        module: The network.
        example_shape: The shape of one input. Files that hold the computation (``pt2`` and
            ``onnx``) take batches of any size.
        path: The file; folders above it are made if they do not exist.
        kind: Its format.

    Raises:
        FedcanonError: The network cannot be written in this format, or the file not at this place.
    """
    with explained(f"cannot write {path}"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_whole(Path(path), partial(_WRITERS[kind], module, example_shape))


def dense_size(module: nn.Module) -> int:
    """The size in bytes of a network's safetensors file."""
    return len(to_safetensors(tensors_of(module), metadata=METADATA))


def _save_program(module: nn.Module, example_shape: Shape, path: Path) -> None:
    with _quiet():
        buffer = BytesIO()  # on a full disk, writing the file itself would end the process
        torch.export.save(_program(module, example_shape, "torch.export"), buffer)
        path.write_bytes(buffer.getbuffer())


def _save_onnx(module: nn.Module, example_shape: Shape, path: Path) -> None:
    for library in ("onnx", "onnxscript"):
        if find_spec(library) is None:
            raise FedcanonError(f'{library} is not installed: pip install "fedcanon[export]".')
    # In single precision, because ONNX Runtime has no double-precision convolution.
    program = _program(deepcopy(module).float(), example_shape, "ONNX")
    with _quiet():
        try:
            converted = torch.onnx.export(
                program,
                dynamo=True,
                input_names=["input"],
                output_names=["scores"],
                dynamic_shapes=({0: "batch"},),
                verbose=False,
            )
        except Exception as error:  # the exporter has many of its own
            raise _unfit("ONNX", error) from error
    assert converted is not None
    converted.save(path, external_data=False)


def _program(module: nn.Module, example_shape: Shape, what: str) -> torch.export.ExportedProgram:
    example = next(module.parameters()).new_zeros(2, *example_shape)
    with _quiet():
        try:
            return torch.export.export(
                module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},)
            )
        except Exception as error:  # the exporter has many of its own
            raise _unfit(what, error) from error


def _unfit(what: str, error: Exception) -> FedcanonError:
    return FedcanonError(f"{what} cannot express the network: {first_line(error)}.")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings and log messages of PyTorch's exporters."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


_WRITERS: dict[Format, Callable[[nn.Module, Shape, Path], None]] = {
    Format.SAFETENSORS: lambda module, _, path: write_tensors(tensors_of(module), path),
    Format.PYTORCH: lambda module, _, path: torch.save(tensors_of(module), path),
    Format.PROGRAM: _save_program,
    Format.ONNX: _save_onnx,
    Format.SPARSE: lambda module, _, path: save_sparse(tensors_of(module), path),
}
