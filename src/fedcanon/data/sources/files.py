"""Files as they were downloaded: plain, compressed or packed into an archive."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedcanon.data.sources.source import AbsentError
from fedcanon.errors import FedcanonError
from fedcanon.units import MIB

COMPRESSIONS = ("", ".gz", ".xz")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".zip")

ALWAYS_ALLOWED = 256 * MIB
"""Bytes to which any file may unpack."""
GREATEST_RATIO = 200
"""A file may also unpack to so many times its size; more is an attempt to fill the memory."""

_DAMAGE = (
    EOFError,
    OverflowError,
    RuntimeError,  # a member of a zip file is encrypted, or compressed in an unknown way
    ValueError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class Entry:
    """A file on disk or inside an archive, with its content; messages call it ``where``."""

    name: str
    where: str
    content: bytes


def damaged(where: object, reason: object) -> FedcanonError:
    """The error for a file that is not what it should be.

    Args:
        where: The file, as the user is to read it.
        reason: What is wrong with it, beginning in lower case.
    """
    return FedcanonError(f"{where} is damaged ({reason}): delete it and download it again.")


@contextmanager
def reading(where: object) -> Iterator[None]:
    """Turn the errors of reading a file into messages that name it; ``where`` is its name."""
    try:
        yield
    except _DAMAGE as problem:
        raise damaged(where, str(problem) or "it ends too early") from problem
    except OSError as problem:
        raise FedcanonError(f"{where} cannot be read: {problem}.") from problem


class Unpacking:
    """Reads what is packed into one file, as long as it is not absurdly much.

    Args:
        where: The file, as the user is to read it.
        packed: Its size in bytes.
    """

    def __init__(self, where: object, packed: int) -> None:
        self._where, self._left = where, max(ALWAYS_ALLOWED, GREATEST_RATIO * packed)

    def count(self, size: int) -> None:
        """Raise a ``FedcanonError`` if with ``size`` more bytes it is too much."""
        self._left -= size
        if self._left < 0:
            raise damaged(self._where, f"it unpacks to more than {GREATEST_RATIO} times its size")

    def read(self, stream: IO[bytes] | io.BufferedIOBase) -> bytes:
        """The rest of a stream."""
        chunks = []
        while chunk := stream.read(MIB):
            self.count(len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)


def under(folder: Path) -> list[Path]:
    """Every file in the folder and below, always in the same order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def is_archive(path: Path) -> bool:
    """Whether the name is that of an archive we can open."""
    return path.name.endswith(ARCHIVES)


def find(folder: Path, names: Iterable[str]) -> list[Path]:
    """The file of each name, plain or compressed, in the folder or below.

    Args:
        folder: Where to look.
        names: The names, without the ending of a compressed file.

    Raises:
        AbsentError: One of them is not there.
    """
    by_name = {path.name: path for path in reversed(under(folder))}

    def one(name: str) -> Path:
        for compression in COMPRESSIONS:
            if name + compression in by_name:
                return by_name[name + compression]
        raise AbsentError(name)

    return [one(name) for name in names]


def find_matching(folder: Path, pattern: re.Pattern[str], example: str) -> list[Path]:
    """The files whose path inside the folder matches a pattern, or else the archives there.

    Args:
        folder: Where to look.
        pattern: What a path must match as a whole.
        example: What the message says is missing if there is neither.

    Raises:
        AbsentError: There is neither.
    """
    files = under(folder)
    plain = [path for path in files if pattern.fullmatch(path.relative_to(folder).as_posix())]
    found = plain or [path for path in files if is_archive(path)]
    if not found:
        raise AbsentError(example)
    return found


def matching(
    folder: Path, files: Iterable[Path], pattern: re.Pattern[str]
) -> list[tuple[re.Match[str], Entry]]:
    """The files and members of archives whose path matches a pattern, sorted by path.

    Of several with the same path the last one counts.

    Args:
        folder: The folder of the files; the path of a file is the one inside it.
        files: Files, and archives whose members are looked at.
        pattern: What a path must match as a whole; each entry comes with its match.
    """
    found = {
        entry.name: (match, entry)
        for path in files
        for entry in entries(folder, path)
        if (match := pattern.fullmatch(entry.name))
    }
    return [found[name] for name in sorted(found)]


def read(path: Path) -> bytes:
    """The content of a file, decompressed."""
    with reading(path), _open(path) as stream:
        return Unpacking(path, path.stat().st_size).read(stream)


def entries(folder: Path, path: Path) -> Iterator[Entry]:
    """The file itself, by its name in the folder, or the members of an archive."""
    if path.name.endswith(".zip"):
        return _zip_members(path)
    if is_archive(path):
        return _tar_members(path)
    name = path.relative_to(folder).as_posix().removesuffix(".gz").removesuffix(".xz")
    return iter([Entry(name, str(path), read(path))])


def _open(path: Path) -> io.BufferedIOBase:
    if path.suffix in (".gz", ".tgz"):
        return gzip.open(path)
    if path.suffix == ".bz2":
        return bz2.open(path)
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


def _zip_members(path: Path) -> Iterator[Entry]:
    with reading(path), zipfile.ZipFile(path) as archive:
        unpacking = Unpacking(path, path.stat().st_size)
        for member in archive.infolist():
            if not member.is_dir():
                with archive.open(member) as stream:
                    content = unpacking.read(stream)
                yield Entry(member.filename, f"{member.filename} in {path}", content)


def _tar_members(path: Path) -> Iterator[Entry]:
    """The members of a tar file.

    It must end in zeros, because ``tarfile`` takes a damaged header for the end.
    """
    with reading(path), _open(path) as stream:
        unpacking = Unpacking(path, path.stat().st_size)
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                if content := archive.extractfile(member):
                    yield Entry(member.name, f"{member.name} in {path}", unpacking.read(content))
        if set(unpacking.read(stream)) != {0}:
            raise damaged(path, "it ends too early")
