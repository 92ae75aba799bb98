"""Read files that may be damaged or crafted to exhaust memory, or refuse them.

Tables are written as CSV, with no cell that a spreadsheet would run.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

#: A compressed file holds at most this many times its own size, or SMALL bytes.
EXPANSION, SMALL = 50, 2**23
#: The beginning of a cell that a spreadsheet may run as a formula: a sign, also a wide
#: one and after blanks, or a character that ends a cell or row.
FORMULA = re.compile(r"[\t\r\n]|[\s\ufeff]*[=+@\uff0b\uff0d\uff1d\uff20-]")
#: What is not a file, and cannot be read like one: a pipe may never begin, and a device
#: never end.
SPECIAL = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
#: Streams that the caller has opened, as "cat t.csv | ..." and "... <(cat t.csv)" do.
OPENED = re.compile(r"/dev/(stdin|fd/(\d+))|/proc/self/fd/(\d+)")
#: How files begin that are no text, what they are, and what to do.
SIGNATURES = (
    (rb"PK\x03\x04", "a ZIP archive, not a table", "unpack it first"),
    (rb"PAR1.*PAR1\Z", "a Parquet file", "rename it so that it ends in .parquet"),
    (rb"%PDF-", "a PDF document, not a table", "save the table as CSV"),
    (rb"\x89HDF\r\n\x1a\n", "an HDF5 file", "save the table as CSV"),
    (rb"\xd0\xcf\x11\xe0", "a file of old Office programs", "save it as CSV or .xlsx"),
    (rb"\x1f\x8b", "compressed twice with gzip", "unpack it first"),
    (rb"BZh\d1AY&SY", "compressed with bzip2", "unpack it, or use gzip"),
    (rb"\xfd7zXZ\x00", "compressed with xz", "unpack it, or use gzip"),
    (rb"\x28\xb5\x2f\xfd", "compressed with Zstandard", "unpack it, or use gzip"),
)
#: How web pages begin, and their titles, which are sought in the first bytes.
FIRST = 2**13
WEB_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*+(?:<\?xml[^>]*+>\s*+|<!--(?>.*?-->)\s*+)*+"
    rb"<(?:!doctype html|html)\b",
    re.IGNORECASE | re.DOTALL,
)
TITLE = re.compile(rb"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)


def special_kind(path: str | PathLike[str]) -> str | None:
    """What ``path`` leads to if that is neither a file, a folder nor an open stream."""
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except OSError:  # whoever opens it says why
        return None
    opened = OPENED.fullmatch(os.fspath(path))
    if opened and (kind != stat.S_IFCHR or os.isatty(int(opened[2] or opened[3] or 0))):
        return None
    return SPECIAL.get(kind)


def require_file(path: str | PathLike[str]) -> None:
    """Refuse pipes and devices, from which reading might never return."""
    kind = special_kind(path)
    if kind is not None:
        raise ValueError(
            f"{str(path)!r} is {kind}, not a file; copy what it holds to a file, and "
            "name that"
        )


def require_text(path: Path, content: bytes) -> None:
    """Refuse a file that is no text, whatever its name, and say what it is.

    Parameters
    ----------
    path : Path
        The file.
    content : bytes
        What it holds, unpacked.
    """
    if WEB_PAGE.match(content):
        title = TITLE.search(content[:FIRST])
        text = title[1] if title else content[:FIRST]
        words = " ".join(text.decode("utf-8-sig", errors="replace").split())
        which = "its title is" if title else "it begins with"
        raise ValueError(
            f"{path} is a web page (HTML), not a table: {which} {words[:80]!r}; did "
            "the download fail? Open it in a browser to see what is wrong"
        )
    for beginning, what, advice in SIGNATURES:
        if not re.match(beginning, content, re.DOTALL):
            continue
        if content[:2] == b"PK" and b"xl/workbook" in content:
            what, advice = "an Excel file", "rename it so that it ends in .xlsx"
        raise ValueError(f"{path} is {what}; {advice}")


def room_for(size: int) -> int:
    """How much a compressed file of this size may hold, in bytes."""
    return max(SMALL, EXPANSION * size)


def unpacked(path: Path) -> bytes:
    """The contents of a file, which may be compressed with gzip."""
    require_file(path)
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
    content = unpacked(path)
    require_text(path, content)
    try:
        return content.decode("utf-8", errors=errors)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8: {error}") from error


def check_expansion(path: Path) -> None:
    """Refuse a ZIP archive that would fill the memory; ZipFile reads no more."""
    require_file(path)
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        total = sum(member.file_size for member in archive.infolist())
    if total > room_for(path.stat().st_size):
        raise ValueError(_too_much(path))


def check_arrays(archive: zipfile.ZipFile) -> None:
    """Refuse arrays that claim to be larger than their data, as they would fill memory.

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


def to_csv(rows: Sequence[Mapping[str, Any]], path: str | PathLike[str]) -> None:
    """Write rows such as those of ``weights_table`` to a CSV file.

    Parameters
    ----------
    rows : sequence of dict
        Rows with the same keys; the keys become the header.
    path : str or path
        The file; it is replaced if it exists.

    Notes
    -----
    A text that a spreadsheet would run as a formula, since it begins with ``=``, ``+``,
    ``-`` or ``@``, perhaps after blanks or as a wide letter, or with a tab or the end
    of a line, gets an apostrophe before it; numbers stay as they are.
    """
    Path(path).write_bytes(csv_text(rows).encode())


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The text that :func:`to_csv` writes."""
    if not rows:
        raise ValueError("there are no rows to write")
    rows = [{_harmless(k): _harmless(v) for k, v in row.items()} for row in rows]
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _harmless(value: Any) -> Any:
    """A cell that no spreadsheet runs: an apostrophe before what would be a formula."""
    if not isinstance(value, str) or not FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
