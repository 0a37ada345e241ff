"""Messages and replies as Flower's records: one array for each part of a vector, one header."""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import fields, replace
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import TypeAdapter

from fedcanon.algorithms import State
from fedcanon.compression import Compressor, Encoded, Lossless
from fedcanon.deployment.protocol import LosslessVector, Message, Presence, Reply
from fedcanon.errors import FedcanonError

MOST = 2**40
"""More than any number of clients, rounds, restarts or samples."""


LONGEST = 2000
"""Letters in a text that a client sends."""

_REPLY: TypeAdapter[Reply] = TypeAdapter(Reply)


def to_records(message: Message | Reply) -> RecordDict:
    """A message or a reply as it travels."""
    arrays, entries = dict[str, Array](), dict[str, Any]()
    for name, entry in message.content.items():
        if not isinstance(entry, Encoded):
            entries[name] = entry
            continue
        size = entry.vector.numel()
        entries[name] = {"lossless" if isinstance(entry, LosslessVector) else "compressed": size}
        for part, tensor in entry.parts.items():
            arrays[f"{name}:{part}"] = Array(tensor.detach().cpu().contiguous().numpy())
    header = {f.name: getattr(message, f.name) for f in fields(message) if f.name != "content"}
    text = json.dumps({**header, "content": entries})
    return RecordDict({"arrays": ArrayRecord(arrays), "header": ConfigRecord({"json": text})})


def to_message(records: RecordDict) -> Message:
    """A message from what has come; the sender is trusted."""
    header = json.loads(_text(records))
    content = _content(header.pop("content"), records, Lossless())
    return Message(**header, content=content)


def to_reply(records: RecordDict, compressor: Compressor, sizes: Container[int]) -> Reply:
    """A reply from what has come; the sender is not trusted: vectors have one of these sizes."""
    try:
        reply = _REPLY.validate_json(_text(records), strict=True)
        if not (0 <= reply.generation < MOST and 0 <= reply.round < MOST and reply.prox_calls >= 0):
            raise ValueError("a number is too small or too large.")
        if max(len(reply.update), len(reply.base or ""), len(reply.reason)) > LONGEST:
            raise ValueError("a text is too long.")
        return replace(reply, content=_content(reply.content, records, compressor, sizes))
    except Exception as error:  # whatever may be wrong with what a stranger sends
        raise FedcanonError(f"malformed: {type(error).__name__}: {error}") from error


def _text(records: RecordDict) -> str:
    return str(records.config_records["header"]["json"])


def _content(
    entries: dict[str, Any],
    records: RecordDict,
    compressor: Compressor,
    sizes: Container[int] | None = None,
) -> State:
    arrays: dict[str, dict[str, Array]] = {}
    for place, array in records.array_records["arrays"].items():
        name, _, part = place.partition(":")
        arrays.setdefault(name, {})[part] = array
    content: State = {}
    for name, entry in entries.items():
        if not isinstance(entry, dict):
            content[name] = entry
            continue
        [(kind, size)] = entry.items()
        if sizes is not None and size not in sizes:
            raise ValueError(f"'{name}' has {size} entries.")
        # Copies, since PyTorch must not share memory that may not be written to.
        parts = {k: torch.from_numpy(v.numpy().copy()) for k, v in arrays[name].items()}
        codec = Lossless() if kind == "lossless" else compressor
        vector = codec.decode(parts, size)
        if vector.shape != (size,):
            raise ValueError(f"'{name}' does not have the {size} entries that it should.")
        content[name] = (LosslessVector if kind == "lossless" else Encoded)(parts, vector)
    return content


def presence_to_records(client: int, presence: Presence) -> RecordDict:
    """Who is there, and with how many samples."""
    return RecordDict({"presence": ConfigRecord({"client": client, **vars(presence)})})


def to_presence(records: RecordDict) -> tuple[int, Presence]:
    """Who is there; the sender is not trusted."""
    try:
        told = records.config_records["presence"]
        client, samples, held_out = (int(str(told[k])) for k in ("client", "samples", "held_out"))
        if not (0 <= client < MOST and 1 <= samples < MOST and 0 <= held_out < MOST):
            raise ValueError("a number is too small or too large.")
    except (KeyError, ValueError) as error:
        raise FedcanonError(f"malformed: {type(error).__name__}: {error}") from error
    return client, Presence(samples, held_out)
