"""Conversion of messages and replies to Flower's records: arrays for vectors, JSON for the rest."""

from __future__ import annotations

import json
import math
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
from fedcanon.objectives.warm_up import TRIED

LIMIT = 2**40
"""Numbers of clients, rounds, samples, … that are not below this are refused."""

MAX_TEXT = 2000
"""Longer texts in a reply are refused (number of characters)."""

_REPLY: TypeAdapter[Reply] = TypeAdapter(Reply)


def to_records(message: Message | Reply) -> RecordDict:
    """Convert a message or a reply to Flower's records."""
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
    """Convert Flower's records to a message; the server, which sent them, is trusted."""
    header = json.loads(_text(records))
    content = _content(header.pop("content"), records, Lossless())
    return Message(**header, content=content)


def to_reply(records: RecordDict, compressor: Compressor, sizes: Container[int]) -> Reply:
    """Convert Flower's records to a reply, and check everything: clients are not trusted.

    Args:
        records: What has come from a client.
        compressor: What decodes the compressed vectors.
        sizes: The lengths that vectors may have.

    Raises:
        FedcanonError: The records are not those of a reply.
    """
    try:
        reply = _REPLY.validate_json(_text(records), strict=True)
        _check_numbers(reply.generation, reply.round, reply.prox_calls)
        if max(len(reply.update), len(reply.base or ""), len(reply.reason)) > MAX_TEXT:
            raise ValueError("a text is too long.")
        return replace(reply, content=_content(reply.content, records, compressor, sizes))
    except Exception as error:  # a client can send anything
        raise FedcanonError(f"malformed: {type(error).__name__}: {error}") from error


def _check_numbers(*numbers: int) -> None:
    if not all(0 <= number < LIMIT for number in numbers):
        raise ValueError("a number is too small or too large.")


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
        # Copies, since PyTorch must not share memory that is read-only.
        parts = {k: torch.from_numpy(v.numpy().copy()) for k, v in arrays[name].items()}
        codec = Lossless() if kind == "lossless" else compressor
        vector = codec.decode(parts, size)
        if vector.shape != (size,):
            raise ValueError(f"'{name}' does not have {size} entries.")
        content[name] = (LosslessVector if kind == "lossless" else Encoded)(parts, vector)
    return content


def presence_to_records(client: int, presence: Presence) -> RecordDict:
    """Convert the number of a client and its presence to Flower's records."""
    numbers = {**vars(presence), "told": list(presence.told)}
    return RecordDict({"presence": ConfigRecord({"client": client, **numbers})})


def to_presence(records: RecordDict) -> tuple[int, Presence]:
    """Convert Flower's records to the number of a client and its presence, and check them.

    Raises:
        FedcanonError: The records are not those of a presence.
    """
    try:
        found = records.config_records["presence"]
        client, samples, held_out = (int(str(found[k])) for k in ("client", "samples", "held_out"))
        _check_numbers(client, samples - 1, held_out)
        told = tuple(map(float, found["told"]))  # type: ignore[arg-type]  # a list, or a TypeError
        if len(told) > len(TRIED) or not all(0 <= number < math.inf for number in told):
            raise ValueError("the numbers for step sizes must be finite and not negative.")
    except (KeyError, TypeError, ValueError) as error:
        raise FedcanonError(f"malformed: {type(error).__name__}: {error}") from error
    return client, Presence(samples, held_out, told)
