"""Our own files: written whole or not at all, and checked when they are read."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, BinaryIO, TypeVar

from filelock import FileLock, Timeout
from pydantic import Field, TypeAdapter, ValidationError
from safetensors import SafetensorError

from fedcanon.errors import FedcanonError

T = TypeVar("T")

Count = Annotated[int, Field(ge=0, lt=2**63)]
"""A whole number that every library can hold, in the type of something that is read."""

_UNFINISHED = "unfinished-"

_INSTANT = 1.0
"""Seconds to wait for a lock: whoever looks whether a folder is in use holds it for an instant."""


def write_whole(path: Path, content: str | Callable[[Path], object]) -> None:
    """Write a file so that it is there whole or not at all, even if the machine loses power.

    An existing file is replaced.

    Args:
        path: The file.
        content: Its text, or a function that writes a file at the path it is given.

    Raises:
        OSError: The file cannot be written; nothing is left of it.
    """
    with unfinished(path) as temporary:
        if isinstance(content, str):
            temporary.write_text(content, encoding="utf-8")
        else:
            content(temporary)
        make_durable(temporary)
        temporary.replace(path)
    make_durable(path.parent)


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; what is still there at the end is removed.

    Its suffix is that of ``path``, because some libraries choose a format by it.

    Raises:
        OSError: Also where safetensors or PyTorch could not write and raised something else.
    """
    temporary = path.with_name(f"{_UNFINISHED}{os.getpid()}-{path.name}")
    try:
        yield temporary
    except (SafetensorError, RuntimeError) as error:
        raise _system_error(error) or error from None
    finally:
        with suppress(OSError):  # the folder may be gone, or not to be changed any more
            temporary.unlink(missing_ok=True)


def _system_error(error: Exception) -> OSError | None:
    """The error of the system behind one of safetensors or PyTorch, which only its text tells."""
    if number := re.search(r"os error (\d+)", str(error)):
        return OSError(int(number[1]), os.strerror(int(number[1])))
    if "inline_container" in str(error):
        return OSError(errno.EIO, "the file could not be written whole")
    return None


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files that killed processes have left in a folder."""
    for left in folder.glob(f"{_UNFINISHED}*"):
        left.unlink(missing_ok=True)


def is_unfinished(path: Path) -> bool:
    """Tell whether a path is one that ``unfinished`` gives."""
    return path.name.startswith(_UNFINISHED)


def make_durable(path: Path) -> None:
    """Make the system write a file, or the entries of a folder, to the disk now."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to fill; it gets the name ``path`` at the end, if nothing fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(mkdtemp(prefix=f".{_UNFINISHED}", dir=path.parent))
    try:
        yield temporary
        temporary.chmod(0o755)  # as mkdir would have made it, not for the owner alone
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def lock_of(folder: Path) -> FileLock:
    """The lock that a process at work in a folder holds."""
    if not folder.is_dir():  # taking the lock would make it
        raise FedcanonError(f"the folder {folder} is gone: put it back, or begin anew.")
    return FileLock(folder / ".lock")


@contextmanager
def locked(folder: Path, refusal: str) -> Iterator[None]:
    """Keep other processes out of a folder; if one is at work there, raise ``refusal``."""
    lock = lock_of(folder)
    with explained(f"cannot write to {folder}"):
        try:
            lock.acquire(timeout=_INSTANT)
        except Timeout:
            raise FedcanonError(refusal) from None
    try:
        yield
    finally:
        lock.release()


def private_file(path: Path) -> BinaryIO:
    """Create a file that only its owner may read, from its first moment on.

    Raises:
        FileExistsError: There is such a file already.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def private_folder(path: Path) -> None:
    """Make a folder that only its owner may enter, if there is none yet, and those above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def explained(failure: str) -> Iterator[None]:
    """Turn an error of the system into a sentence: ``failure``, a colon and the reason."""
    try:
        yield
    except OSError as error:
        raise FedcanonError(f"{failure}: {error.strerror or error}.") from None


def read_json(path: Path, kind: TypeAdapter[T]) -> T | None:
    """Read a JSON file.

    Args:
        path: The file.
        kind: What it must hold.

    Returns:
        Its content; None if there is no such file.

    Raises:
        FedcanonError: The file cannot be read, or holds something else.
    """
    content = _read(path)
    return None if content is None else _checked(path, kind, content)


def read_json_lines(path: Path, kind: TypeAdapter[T]) -> list[T]:
    """Read a file with a JSON value in every line; a last line that was cut off is left out.

    Arguments and errors are those of ``read_json``. A file that does not exist has no lines.
    """
    return [_checked(path, kind, line, f"line {n}: ") for n, line in _lines(path)]


def salvaged_json_lines(path: Path, kind: TypeAdapter[T]) -> tuple[list[T], int]:
    """Read such a file as far as possible: its undamaged lines, and how many are damaged.

    A last line that was cut off counts as neither.
    """
    found, damaged = list[T](), 0
    for _, line in _lines(path):
        try:
            found.append(kind.validate_json(line, strict=True))
        except ValidationError:
            damaged += 1
    return found, damaged


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    return enumerate((_read(path) or b"").split(b"\n")[:-1], start=1)


def _read(path: Path) -> bytes | None:
    with explained(f"cannot read {path}"):
        return path.read_bytes() if path.exists() else None


def _checked(path: Path, kind: TypeAdapter[T], content: bytes, where: str = "") -> T:
    try:
        return kind.validate_json(content, strict=True)
    except ValidationError as error:
        mistake = error.errors(include_url=False)[0]
        key = "".join(f"{part}: " for part in mistake["loc"])
        raise FedcanonError(
            f"{path} is damaged ({where}{key}{mistake['msg']}): put back a copy, or delete it."
        ) from None
