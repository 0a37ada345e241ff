"""Files that are made to fill the memory are refused in a sentence."""

import bz2
import gzip
import io
import lzma
import re
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import pytest

from fedcanon import FedcanonError
from fedcanon.data.own.images import from_images
from fedcanon.data.own.tables import from_table
from fedcanon.data.sources import SOURCES, files
from fedcanon.units import MIB
from tests.data.written import write_tree
from tests.forked import run_script

ABSURD = "unpacks to more than 200 times its size"
ZEROS = bytes(8 * MIB)


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    """Four MiB are always allowed, so that a test need not write a large bomb."""
    monkeypatch.setattr(files, "ALWAYS_ALLOWED", 4 * MIB)


def zipped(content, name="a.csv", **options):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def tarred(content, name="data_batch_1.bin"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def refused(name, folder):
    with pytest.raises(FedcanonError) as error:
        SOURCES[name].decode(folder, SOURCES[name].files(folder))
    return str(error.value)


PACKERS = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zip": zipped,
}


@pytest.mark.parametrize("ending", PACKERS)
def test_tables(tmp_path, ending):
    path = tmp_path / f"table.csv{ending}"
    path.write_bytes(PACKERS[ending](ZEROS))
    with pytest.raises(FedcanonError, match=ABSURD):
        from_table(path, "y")
    rows = "".join(f"{k},{k % 2}\n" for k in range(20))
    path.write_bytes(PACKERS[ending](f"x,y\n{rows}".encode()))
    assert from_table(path, "y").classes == 2


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_single_files(tmp_path, ending):
    for name in ("a9a", "a9a.t"):
        (tmp_path / f"{name}{ending}").write_bytes(PACKERS[ending](ZEROS))
    assert ABSURD in refused("a9a", tmp_path)


def test_archives(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(tarred(ZEROS)))
    assert ABSURD in refused("cifar10", tmp_path)


def test_what_follows_an_archive(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(tarred(b"x") + ZEROS))
    assert "cifar-10-binary.tar.gz" in refused("cifar10", tmp_path)


def test_many_members_count_together(tmp_path):
    files = {f"CINIC-10/train/bird/{k}.png": bytes(MIB) for k in range(8)}
    write_tree(files, tmp_path / "CINIC-10.zip")
    packed = (tmp_path / "CINIC-10.zip").read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    assert len(buffer.getvalue()) < len(packed)
    (tmp_path / "CINIC-10.zip").write_bytes(buffer.getvalue())
    assert ABSURD in refused("cinic10", tmp_path)


def with_flag(content, flag, method):
    """The first member's general flags and compression method, in both of its headers."""
    changed = bytearray(content)
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = changed.index(signature) + place
        struct.pack_into("<HH", changed, start, flag, method)
    return bytes(changed)


@pytest.mark.parametrize(("flag", "method"), [(1, 8), (0, 99), (0, 14), (0x800, 8)])
def test_odd_members_of_a_zip_file(tmp_path, flag, method):
    name = "CINIC-10/train/bird/\u00e9.png"
    packed = zipped(b"x" * 100, name)
    changed = with_flag(packed, flag, method)
    (tmp_path / "CINIC-10.zip").write_bytes(changed)
    assert "CINIC-10.zip" in refused("cinic10", tmp_path)


def npz(header):
    body = header.encode().ljust(117) + b"\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(body)) + body + bytes(100)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("x", "y", "writer", "writer_ids"):
            archive.writestr(f"{name}.npy", array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000000, 28, 28)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 28, 28)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (9223372036854775807, 28, 28)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|V99999999999', 'fortran_order': False, 'shape': (1,)}",
        "__import__('os').system('false')",
        "(" * 100,
    ],
)
def test_absurd_headers_of_arrays(tmp_path, header):
    for name in ("femnist_train.npz", "femnist_test.npz"):
        (tmp_path / name).write_bytes(npz(header))
    assert "femnist_train.npz is damaged" in refused("femnist", tmp_path)


def test_compressed_arrays(tmp_path):
    for name in ("femnist_train.npz", "femnist_test.npz"):
        np.savez_compressed(tmp_path / name, x=np.zeros((10_000, 28, 28), np.uint8))
    assert ABSURD in refused("femnist", tmp_path)


def png(width, height):
    def chunk(kind, content):
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8_500, 20_000, 2**31 - 1])
def test_pictures(tmp_path, side):
    content = png(side, side)
    write_tree({"train/bird/a.png": content, "train/cat/b.png": content}, tmp_path / "own")
    with pytest.raises(FedcanonError, match=re.escape("a.png")):
        from_images(tmp_path / "own")
    write_tree({"CINIC-10/train/bird/a.png": content}, tmp_path / "cinic" / "CINIC-10.zip")
    assert "a.png" in refused("cinic10", tmp_path / "cinic")


@pytest.mark.parametrize(
    "line", ["1 2147483648:1", "1 1:inf", "1 1:nan", "-1 1:-inf", "1 99999999999999999999:1"]
)
def test_numbers_that_no_sample_has(tmp_path, line):
    (tmp_path / "a9a").write_text(f"-1 2:1\n{line}\n")
    (tmp_path / "a9a.t").write_text("1 1:1\n")
    assert "a9a is damaged" in refused("a9a", tmp_path)


LARGE = """
import gzip, resource, sys
from pathlib import Path
from fedcanon.data.sources import SOURCES
from fedcanon.errors import FedcanonError
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
folder = Path(sys.argv[1])
try:
    SOURCES["a9a"].decode(folder, SOURCES["a9a"].files(folder))
except FedcanonError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_bomb_of_six_megabytes_in_earnest(tmp_path):
    member = gzip.compress(bytes(64 * MIB), compresslevel=9)  # a file of many unpacks to them all
    for name in ("a9a.gz", "a9a.t.gz"):
        (tmp_path / name).write_bytes(6 * 16 * member)
    assert (tmp_path / "a9a.gz").stat().st_size < 7 * MIB
    (tmp_path / "large.py").write_text(LARGE)
    code, out, err = run_script(tmp_path / "large.py", tmp_path)
    assert code == 0, err
    assert ABSURD in out
