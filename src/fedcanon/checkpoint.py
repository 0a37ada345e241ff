"""Checkpoints: files with everything that a run needs to continue with the same bits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, model_validator
from safetensors import SafetensorError
from safetensors import safe_open as open_safetensors
from safetensors.numpy import save_file
from torch import Tensor

from fedcanon.errors import FedcanonError, first_line
from fedcanon.files import make_durable, remove_unfinished, unfinished

Tree = dict[str, Any]
"""A state: nested dictionaries of tensors, parts, and JSON values; keys do not contain "/"."""


@dataclass(frozen=True)
class Part:
    """A part of a state that has its own file, which later checkpoints can share.

    The file is written only for the first checkpoint that contains this name, so a part with
    another content needs another name. ``read`` returns the content.
    """

    name: str
    read: Callable[[], Tree]


class Checkpoints:
    """The last ``keep`` checkpoints of a run in a folder, and the parts that they contain.

    A checkpoint is written to a temporary file, made durable and then renamed, so that there is
    never an incomplete one. Its name contains the round and a hash of its content: a file that is
    damaged later is recognised and skipped.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self._folder, self._keep = folder, keep

    def save(self, t: int, state: Tree) -> None:
        """Write the state after ``t`` rounds, and delete the oldest checkpoint."""
        self._folder.mkdir(parents=True, exist_ok=True)
        parts = {part.name: part for part in _parts(state)}
        for name in parts.keys() - {_name(path) for path in self._folder.glob("part-*-*")}:
            self._write(f"part-{name}", parts[name].read())
        if parts:
            make_durable(self._folder)
        newest = self._write(f"round-{t:09}", state)
        make_durable(self._folder)
        self._tidy(newest)

    def remove(self) -> None:
        """Delete all checkpoints, and their folder if there is nothing else in it."""
        for path in [*self._newest_first(), *self._folder.glob("part-*-*.safetensors")]:
            path.unlink()
        remove_unfinished(self._folder)
        with suppress(OSError):  # other files are not ours
            self._folder.rmdir()

    @property
    def is_empty(self) -> bool:
        """Whether the folder has no checkpoints, not even damaged ones."""
        return not self._newest_first()

    def _write(self, name: str, state: Tree) -> Path:
        with unfinished(self._folder / f"{name}.safetensors") as temporary:
            write_tree(temporary, state)
            make_durable(temporary)
            return temporary.rename(self._folder / f"{name}-{_digest(temporary)}.safetensors")

    def _tidy(self, newest: Path) -> None:
        """Delete old checkpoints, parts that are not needed, and files of killed processes.

        Checkpoints that seem newer than ``newest`` are damaged, or come from rounds that were
        discarded when the run was restored from an older checkpoint.
        """
        round_number = newest.name.rpartition("-")[0]
        for path in self._newest_first():
            if path != newest and path.name.rpartition("-")[0] >= round_number:
                path.unlink()
        newest_first = self._newest_first()
        for old in newest_first[self._keep :]:
            old.unlink()
        if parts := list(self._folder.glob("part-*-*")):
            needed = {name for path in newest_first[: self._keep] for name in _part_names(path)}
            for part in parts:
                if _name(part) not in needed:
                    part.unlink()
        remove_unfinished(self._folder)

    def load(self, device: torch.device) -> Tree | None:
        """Return the newest state that is not damaged, or None if there is none.

        Raises:
            FedcanonError: Only parts of states are damaged or missing, so that a copy of these few
                files would help.
        """
        files = {_name(path): path for path in self._folder.glob("part-*-*.safetensors")}
        is_whole, lacking = cache(_is_whole), ""
        for path in filter(_is_whole, self._newest_first()):
            names = _part_names(path)
            bad = next((n for n in names if n not in files or not is_whole(files[n])), None)
            if bad is None:
                return read_tree(path, device, files)
            where = files.get(bad, self._folder / f"part-{bad}")
            lacking = lacking or f"{where} is {'damaged' if bad in files else 'missing'}"
        if lacking:
            raise FedcanonError(
                f"{lacking}, and all checkpoints need parts that are damaged or missing: put back "
                f"a copy of {self._folder}, or delete that folder to begin again."
            )
        return None

    def _newest_first(self) -> list[Path]:
        return sorted(self._folder.glob("round-*-*.safetensors"), reverse=True)


def _name(path: Path) -> str:
    """Return the name of the part in a file."""
    return path.stem.removeprefix("part-").rpartition("-")[0]


def _is_whole(path: Path) -> bool:
    return path.stem.endswith(f"-{_digest(path)}")


def _parts(node: Any) -> Iterator[Part]:
    if isinstance(node, Part):
        yield node
    elif isinstance(node, dict):
        for branch in node.values():
            yield from _parts(branch)


class _Node(BaseModel):
    """A node of a tree as the metadata of a file describe it: one of four kinds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tensor: str | None = None
    part: str | None = None
    table: dict[str, _Node] | None = None
    value: Any = None

    @model_validator(mode="after")
    def _has_one_kind(self) -> _Node:
        if len(self.model_fields_set) != 1:
            raise ValueError("a node must have exactly one kind")
        return self


_Memory = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]
"""What tells a tensor from another: its address, shape, strides and type."""

_DAMAGE = (OSError, SafetensorError, ValueError, LookupError, TypeError, RecursionError)
"""What is raised for a file that is no checkpoint."""


def _structure(file: Any) -> _Node:
    """Return the structure of the state in an open file."""
    # pydantic's own parser might read numbers with other last bits.
    return _Node.model_validate(json.loads(file.metadata()["state"]))


def _part_names(path: Path) -> list[str]:
    """Return the names of the parts of a checkpoint; none if it is damaged."""

    def names(node: _Node) -> Iterator[str]:
        if node.part is not None:
            yield node.part
        for branch in (node.table or {}).values():
            yield from names(branch)

    try:
        with open_safetensors(path, framework="pt") as file:
            return list(names(_structure(file)))
    except _DAMAGE:
        return []


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def write_tree(path: Path, state: Tree) -> None:
    """Write a state to a safetensors file.

    A tensor that occurs several times is stored once. The structure and everything that is not a
    tensor are JSON in the metadata of the file.
    """
    arrays: dict[str, np.ndarray] = {}
    structure = _described(state, "", arrays, {})
    save_file(arrays, path, metadata={"state": json.dumps(structure)})


# This function and _restored are not inside those that call them: an inner function that calls
# itself is a cycle, and would keep all arrays until the garbage collector comes.
def _described(
    node: Any, place: str, arrays: dict[str, np.ndarray], seen: dict[_Memory, str]
) -> Any:
    """The structure of a state; its tensors are added to ``arrays``, each once."""
    if isinstance(node, Tensor):
        memory = node.data_ptr() if node.numel() else id(node)
        key = (memory, tuple(node.shape), node.stride(), node.dtype)
        if key not in seen:
            seen[key] = place
            arrays[place] = node.detach().cpu().contiguous().numpy()
        return {"tensor": seen[key]}
    if isinstance(node, Part):
        return {"part": node.name}
    if isinstance(node, dict):
        inner = {str(k): _described(v, f"{place}/{k}", arrays, seen) for k, v in node.items()}
        return {"table": inner}
    return {"value": node}


def read_tree(path: Path, device: torch.device, parts: Mapping[str, Path] | None = None) -> Tree:
    """Read a state that ``write_tree`` has written; all keys have become strings.

    Args:
        path: The file.
        device: Where its tensors go.
        parts: The files of the parts that the state may contain, by their names.

    Raises:
        FedcanonError: The file is not a checkpoint.
    """
    try:
        with open_safetensors(path, framework="pt", device=str(device)) as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            state = _restored(_structure(file), arrays, parts or {}, device)
        if not isinstance(state, dict):
            raise ValueError("its state is no table")
    except _DAMAGE as error:
        reason = first_line(error)
        raise FedcanonError(f"{path} is not a checkpoint of fedcanon: {reason}.") from None
    return state


def _restored(
    node: _Node, arrays: Mapping[str, Tensor], files: Mapping[str, Path], device: torch.device
) -> Any:
    """What a node describes."""
    if node.tensor is not None:
        return arrays[node.tensor]
    if node.part is not None:
        return Part(node.part, partial(read_tree, files[node.part], device))
    if node.table is not None:
        return {key: _restored(own, arrays, files, device) for key, own in node.table.items()}
    return node.value
