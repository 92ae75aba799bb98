"""Files that may be damaged, or made to fill the memory, are read or refused."""

from __future__ import annotations

import gzip
import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

#: A compressed file holds at most this many times its own size, or SMALL bytes.
EXPANSION, SMALL = 50, 2**23


def room_for(size: int) -> int:
    """How much a compressed file of this size may hold, in bytes."""
    return max(SMALL, EXPANSION * size)


def unpacked(path: Path) -> bytes:
    """The contents of a file, which may be compressed with gzip."""
    raw = path.read_bytes()
    if raw[:2] != b"\x1f\x8b":
        return raw
    most = room_for(len(raw))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            content = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}; copy it again") from error
    if len(content) > most:
        raise ValueError(_too_much(path))
    return content


def unpacked_text(path: Path, errors: str = "strict") -> str:
    """The text of a file in UTF-8, which may be compressed with gzip."""
    try:
        return unpacked(path).decode("utf-8", errors=errors)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8: {error}") from error


def check_expansion(path: Path) -> None:
    """Refuse a ZIP archive that would fill the memory; ZipFile reads no more."""
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        total = sum(member.file_size for member in archive.infolist())
    if total > room_for(path.stat().st_size):
        raise ValueError(_too_much(path))


def check_arrays(archive: zipfile.ZipFile) -> None:
    """Arrays that claim to be larger than what is stored would exhaust the memory.

    A sparse one is an archive of arrays, compressed, in a member of its own.
    """
    for member in archive.infolist():
        with archive.open(member) as file:
            first = file.read(6)
            file.seek(0)
            if first == b"\x93NUMPY":
                shape, dtype = _array_header(file)
                room, size = member.file_size - file.tell(), math.prod(shape)
                if min(shape, default=0) < 0 or size * dtype.itemsize > room:
                    raise ValueError("an array claims to be larger than its data")
            elif first[:2] == b"PK":
                with zipfile.ZipFile(file) as parts:
                    total = sum(part.file_size for part in parts.infolist())
                    if total > room_for(member.file_size):
                        raise ValueError("a sparse array is much larger than its data")
                    check_arrays(parts)


def _array_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    major, _ = np.lib.format.read_magic(file)
    read = getattr(np.lib.format, f"read_array_header_{major}_0")
    shape, _, dtype = read(file)
    return shape, dtype


def _too_much(path: Path) -> str:
    return (
        f"{path} has {path.stat().st_size:,} bytes and holds more than {EXPANSION} "
        "times as many; unpack it first if you trust whoever made it"
    )
