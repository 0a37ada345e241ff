"""Conversion of messages and replies to Flower's records: arrays for vectors, JSON for the rest."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import TypeAdapter, ValidationError

from fedcanon.algorithms import State
from fedcanon.compression import Compressor, Encoded, Lossless
from fedcanon.deployment.protocol import LosslessVector, Message, Number, Presence, Reply
from fedcanon.deployment.validity import printable
from fedcanon.errors import FedcanonError
from fedcanon.objectives.warm_up import TRIED

MAX_HEADER = 100_000
"""Longer headers are refused (number of characters)."""

_SPARE = 4096
"""Bytes that a vector in a reply may have beyond 16 for each entry, for headers of its parts."""

_REPLY: TypeAdapter[Reply] = TypeAdapter(Reply)
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)
_NUMBER: TypeAdapter[int] = TypeAdapter(Number)


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
    """Convert Flower's records to a message of the server.

    Raises:
        FedcanonError: The records are not those of a message.
    """
    with _in_words():
        message = _MESSAGE.validate_json(_text(records), strict=True)
        return replace(message, content=_content(message.content, records, Lossless()))


def to_reply(records: RecordDict, compressor: Compressor, sizes: Container[int]) -> Reply:
    """Convert Flower's records to a reply, and check everything: clients are not trusted.

    Args:
        records: What has come from a client.
        compressor: What decodes the compressed vectors.
        sizes: The lengths that vectors may have.

    Raises:
        FedcanonError: The records are not those of a reply.
    """
    with _in_words():
        text = _text(records)
        if len(text) > MAX_HEADER:
            raise ValueError(f"its header has {len(text):,} characters.")
        reply = _REPLY.validate_json(text, strict=True)
        return replace(reply, content=_content(reply.content, records, compressor, sizes))


@contextmanager
def _in_words() -> Iterator[None]:
    """Turn whatever a foreign message causes into a ``FedcanonError`` of one short sentence."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))[:40]
        raise FedcanonError(f"malformed: {printable(place)}: {first['msg']:.100}.") from None
    except Exception as error:  # a stranger can send anything
        text = printable(str(error))[:200]
        raise FedcanonError(f"malformed: {type(error).__name__}: {text}") from error


def _text(records: RecordDict) -> str:
    text = records.config_records["header"]["json"]
    if not isinstance(text, str):
        raise TypeError("its header is no text.")
    return text


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
        if sizes is not None and (type(size) is not int or size not in sizes):
            raise ValueError(f"'{name:.40}' has {size!r:.40} entries.")
        encoded = arrays.pop(name)
        if sizes is not None and sum(len(a.data) for a in encoded.values()) > 16 * size + _SPARE:
            raise ValueError(f"'{name:.40}' has more bytes than {size} entries can need.")
        # Copies, since PyTorch must not share memory that is read-only.
        parts = {k: torch.from_numpy(v.numpy().copy()) for k, v in encoded.items()}
        codec = Lossless() if kind == "lossless" else compressor
        vector = codec.decode(parts, size)
        if vector.shape != (size,):
            raise ValueError(f"'{name:.40}' does not have {size} entries.")
        content[name] = (LosslessVector if kind == "lossless" else Encoded)(parts, vector)
    if arrays:
        raise ValueError(f"'{min(arrays):.40}' is not in its header.")
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
    with _in_words():
        found = records.config_records["presence"]
        client, samples, held_out = (
            _NUMBER.validate_python(found[name], strict=True)
            for name in ("client", "samples", "held_out")
        )
        told = tuple(map(float, found["told"]))  # type: ignore[arg-type]  # a list, or a TypeError
        if len(told) > len(TRIED) or not all(0 <= number < math.inf for number in told):
            raise ValueError("the numbers for step sizes must be finite and not negative.")
        if not samples:
            raise ValueError("it has no samples.")
        return client, Presence(samples, held_out, told)
