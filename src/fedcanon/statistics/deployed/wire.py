"""Requests to sites and their answers as JSON, which is checked on both sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from inspect import Parameter, signature
from typing import Any, get_type_hints

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import from_json, to_json

from fedcanon.errors import FedcanonError
from fedcanon.statistics.model import NAMES, Model
from fedcanon.statistics.quality import no_measures
from fedcanon.tables.site import Answer, SiteTable
from fedcanon.text import printable

LONGEST = 500_000_000
"""Longer texts are refused (number of characters)."""

NAMED: Mapping[str, Collection[str]] = {
    "counts": {"rows", "present"},
    "levels": {"rare"},
    "others": {"counts"},
    "below": {"counts"},
    "moments": {"rows", "sums", "squares"},
    "class_counts": {"counts"},
    "expansions": {"weights", "expansions"},
    "information": {"rows", "information", "scores", "pearson"},
    "qualities": no_measures().keys(),
    "own_fit": {"fitted"},
}
"""What answers to requests must contain."""


class _Request(BaseModel):
    """A request: its name, over how many sites answers are added up, and its arguments."""

    model_config = ConfigDict(extra="forbid", strict=True)

    what: str
    sites: int = Field(ge=1)
    arguments: dict[str, Any]


class _Reply(BaseModel):
    """An answer, or why there is none."""

    model_config = ConfigDict(extra="forbid", strict=True)

    answer: dict[str, Any] = Field(default_factory=dict)
    refusal: str = Field("", max_length=2000)


def to_request(what: str, sites: int, arguments: Mapping[str, Any]) -> str:
    """Return a request as text."""
    return to_json({"what": what, "sites": sites, "arguments": dict(arguments)}).decode()


def answered(site: SiteTable, text: str) -> str:
    """Let a site answer a request that has come from a server, and return the reply as text."""
    try:
        request = _Request.model_validate_json(_short(text))
        function = site.requests.get(request.what)
        if function is None:
            raise FedcanonError(f"there is no request '{printable(request.what)[:40]}'.")
        arguments = _checked(function, request.arguments)
        model = arguments.get("model")
        if isinstance(model, Model) and model.family not in NAMES:
            raise FedcanonError("a site imports no code that a server names.")
        answer = site.answer(request.what, request.sites, arguments)
    except ValidationError as error:
        return _refusal(f"the site {site.name} cannot read the request: {_first(error)}")
    except FedcanonError as error:
        return _refusal(str(error))
    except Exception as error:  # a stranger can ask anything
        return _refusal(f"the site {site.name} cannot answer: {type(error).__name__}")
    return to_json({"answer": {name: _plain(value) for name, value in answer.items()}}).decode()


def _refusal(reason: str) -> str:
    return to_json({"refusal": reason[:2000]}).decode()


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _checked(function: Callable[..., Answer], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments as the types that a request takes.

    Raises:
        ValidationError: They are something else.
    """
    hints = get_type_hints(function)
    fields: dict[str, Any] = {
        name: (hints[name], ... if given.default is Parameter.empty else given.default)
        for name, given in signature(function).parameters.items()
    }
    strict = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=False)
    kind = create_model("Arguments", __config__=strict, **fields)
    found = kind.model_validate_json(to_json(arguments))
    return {name: getattr(found, name) for name in fields}


def to_answer(
    what: str, arguments: Mapping[str, Any], site: str, text: str
) -> Answer | FedcanonError:
    """Return the answer of a site, or why there is none; sites are not trusted.

    Args:
        what: The request.
        arguments: Its arguments.
        site: The name of the site.
        text: What it has replied.
    """
    try:
        reply = _Reply.model_validate(from_json(_short(text)))
        if reply.refusal:
            return FedcanonError(printable(reply.refusal))
        answer = {name: _number(value) for name, value in reply.answer.items()}
        wanted = set(arguments["columns"] if what == "kinds" else NAMED[what])
        if what == "own_fit" and answer.get("fitted"):
            wanted |= {"estimates", "errors"}
        if missing := wanted - answer.keys():
            raise ValueError(f"'{min(missing)}' is missing")
        for name, value in answer.items():
            length = _length(what, name, arguments)
            if length is not None and np.shape(value)[:1] != length:
                raise ValueError(f"'{printable(name)[:40]}' has another length than asked")
        return answer
    except ValidationError as error:
        return _malformed(site, _first(error))
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        return _malformed(site, printable(str(error))[:200])


def _length(what: str, name: str, arguments: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the length that an entry of an answer must have, () for a number; None is any."""
    if what in ("kinds", "levels") and name != "rare":
        return ()
    asked = {"expansions": "rows", "qualities": "rows", "below": "columns", "others": "columns"}
    if what == "own_fit":
        return () if name == "fitted" else (len(arguments["support"]),)
    return (len(arguments[asked[what]]),) if what in asked else None


def _malformed(site: str, why: str) -> FedcanonError:
    return FedcanonError(f"the answer of the site {site} cannot be used: {why}.")


def _short(text: str) -> str:
    if len(text) > LONGEST:
        raise ValueError(f"it has {len(text):,} characters")
    return text


def _number(value: Any) -> Any:
    """Return a finite number, or an array of them."""
    if isinstance(value, bool | int | float):
        if not math.isfinite(value):
            raise ValueError("a number is not finite")
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "if":
        raise ValueError("it has something else than numbers")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError("a number is not finite")
    return array


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))[:60]
    return f"{printable(place)}: {first['msg'][:100]}"
