"""Functions that are compiled when they are first called."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[_Function], _Function]:
    """``numba.njit`` at the first call, with compiled code kept on disk where there is a place."""

    def compile(function: _Function) -> _Function:
        @cache
        def kernel() -> Any:
            import numba  # takes a third of a second, which clients without a prox do not need

            try:
                return numba.njit(cache=True, nogil=True, **options)(function)
            except RuntimeError:  # no folder that may be written
                return numba.njit(nogil=True, **options)(function)

        @wraps(function)
        def call(*arguments: Any) -> Any:
            return kernel()(*arguments)

        return cast(_Function, call)

    return compile
