"""Read one table with pandas, whatever its format, separator and encoding."""

from __future__ import annotations

import csv
import difflib
import io
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from kernelweave._files import (
    EXPANSION,
    check_expansion,
    require_file,
    require_text,
    unpacked,
)
from kernelweave._text import counted, some
from kernelweave.exceptions import library
from kernelweave.views.ids import is_gap

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
#: Byte-order marks, and the encodings that they announce.
MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
#: Endings of files that are not text, apart from compressed ones.
PARQUET, EXCEL, MUDATA = (".parquet", ".pq"), (".xlsx", ".xlsm"), (".h5mu",)
#: A Parquet file of any size may hold this much.
PARQUET_BYTES = 2**25
#: At most this many columns may lack a name: the first, say, or empty ones at the end.
UNNAMED = 100
#: Number of lines from which the separator is inferred.
SNIFFED = 20


def pandas_or_why() -> Any:
    """The library, or an error of one line that says how to install it."""
    extra = "pip install 'kernelweave[tables]'"
    return library("pandas", f"the command line reads tables with pandas: {extra}")


def read_frame(path: str, as_text: Sequence[str] = ()) -> Any:
    """Read a table: CSV and its relatives, Parquet or Excel.

    Parameters
    ----------
    path : str
        The file. Text may be separated by commas, semicolons, tabs or bars, have
        decimal commas, and be encoded in UTF-8, UTF-16 or Windows-1252; it may be
        compressed with gzip.
    as_text : sequence of str
        Columns of ids, whose values stay as they are written: 007 is not 7.

    Returns
    -------
    frame : pandas.DataFrame
        One row per sample. Cells that hold nothing, NA or the like are missing.
    """
    file = Path(path)
    if not file.exists():
        raise ValueError(f"there is no file {path!r}")
    if file.is_dir():
        raise ValueError(f"{path!r} is a folder; name a file with a table")
    require_file(path)
    pandas = pandas_or_why()
    kind = file.suffix.lower()
    if kind in PARQUET or kind in EXCEL:
        frame = _read_binary(pandas, file, kind in EXCEL, as_text)
    elif kind in MUDATA:
        raise ValueError(f"{path} holds several tables; give it alone, without NAME=")
    else:
        frame = _read_text(pandas, file, as_text)
    names = enumerate(str(name).strip() for name in frame.columns)
    frame.columns = [name or f"Unnamed: {j}" for j, name in names]  # as pandas does
    _check_rows_and_names(path, len(frame), list(frame.columns))
    for name in frame.columns.intersection(as_text):  # numbers in Parquet files
        frame[name] = [None if is_gap(v) else str(as_written(v)) for v in frame[name]]
    return frame


def _check_rows_and_names(path: str | Path, n_rows: int, names: list[str]) -> None:
    if not n_rows or not names:
        raise ValueError(
            f"{path} has no rows; it needs a header and one row per sample"
        )
    twice = [name for name, k in Counter(names).items() if k > 1 and name]
    if twice:
        raise ValueError(f"{path} has several columns called {twice[0]!r}; rename them")


def read_mudata(path: str) -> dict[str, Any]:
    """The tables of a MuData file: one per modality, and the annotation of samples.

    Parameters
    ----------
    path : str
        The file, whose name ends in ``.h5mu``.

    Returns
    -------
    tables : dict of str to pandas.DataFrame
        With the names of the samples as their index. The annotation is called "obs".
    """
    if not Path(path).exists():
        raise ValueError(f"there is no file {path!r}")
    require_file(path)
    mudata = library(
        "mudata",
        f"{path} is a MuData file, which mudata reads: pip install "
        "'kernelweave[mudata]'",
    )
    try:
        with warnings.catch_warnings():  # about column names, which we check
            warnings.simplefilter("ignore")
            found = mudata.read(path)
    except Exception as error:  # anything that HDF5 finds wrong
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not a MuData file: {reason:.200}") from error
    tables = {str(name): part.to_df() for name, part in found.mod.items()}
    annotation = _annotation(found)
    if annotation.shape[1]:
        tables["obs"] = annotation
    return tables


def _annotation(found: Any) -> Any:
    """The annotation of the samples; copies from several modalities become one.

    The column "stage" of the modality "rna" is called "rna:stage" in the whole. Columns
    whose values differ, such as read counts, keep these names.
    """
    frame = found.obs.copy()
    copies: dict[str, list[str]] = {}
    for name in map(str, frame.columns):
        modality, _, bare = name.partition(":")
        own = bare if bare and modality in found.mod else name
        copies.setdefault(own, []).append(name)
    for bare, names in copies.items():
        known = frame[names].astype(object)
        if (known.nunique(axis=1) <= 1).all() and names != [bare]:
            frame = frame.drop(columns=names)
            frame[bare] = known.bfill(axis=1).iloc[:, 0].infer_objects()
    return frame


def _read_binary(pandas: Any, path: Path, excel: bool, as_text: Sequence[str]) -> Any:
    name, library, extra = (
        ("Excel", "openpyxl", "excel") if excel else ("Parquet", "pyarrow", "arrow")
    )
    try:
        if not excel:
            _check_cells(path)
            frame = pandas.read_parquet(path)
            # pandas makes a column the index again if it was one when written
            return frame.reset_index() if frame.index.name in as_text else frame
        check_expansion(path)
        sheets = pandas.read_excel(
            path,
            sheet_name=None,
            dtype=dict.fromkeys(as_text, "str"),
            engine="openpyxl",
        )
    except ImportError as error:
        raise ImportError(
            f"{path} is an {name} file, which {library} reads: pip install "
            f"'kernelweave[{extra}]'".replace("an Parquet", "a Parquet")
        ) from error
    except Exception as error:  # these libraries share no class of errors
        with path.open("rb") as file:
            beginning = file.read(2**16)
        if not beginning.startswith(b"PK" if excel else b"PAR1"):
            require_text(path, beginning)
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not a readable {name} file: {reason:.200}") from (
            error
        )
    filled = {name: sheet for name, sheet in sheets.items() if sheet.size}
    if len(filled) > 1:
        names = some(map(repr, filled))
        raise ValueError(
            f"{path} has {len(filled)} sheets that are not empty ({names}); save each "
            "of them as a file of its own"
        )
    return next(iter(filled.values()), pandas.DataFrame())


def _check_cells(path: Path) -> None:
    """Refuse a small file that holds one number or text billions of times."""
    from pyarrow.parquet import ParquetFile

    size = path.stat().st_size
    room = max(PARQUET_BYTES, EXPANSION * size)
    with ParquetFile(path) as file:
        found = file.metadata
        held = 8 * found.num_rows * found.num_columns
        if held <= room and size < PARQUET_BYTES:
            held = 0
            for batch in file.iter_batches(batch_size=256):
                held += batch.nbytes
                if held > room:
                    break
    if held > room:
        raise ValueError(
            f"{found.num_rows:,} rows and {found.num_columns} columns in {size:,} "
            "bytes, perhaps meant to fill the memory; convert the file to CSV if you "
            "trust its source"
        )


def _read_text(pandas: Any, path: Path, as_text: Sequence[str]) -> Any:
    text = _decode(path)
    separator = _separator(text)
    if f" {separator}" in text or " \n" in text:
        # pandas skips blanks before a cell, but reads "NA " or "1.5 " as text
        end = rf"(?<! ) ++(?={re.escape(separator)}|$)"
        text = re.sub(end, "", text, flags=re.MULTILINE)
    header = _check_shape(path, text, separator)
    decimal = _decimal_mark(path, text, separator)
    try:
        frame = pandas.read_csv(
            io.StringIO(text),
            sep=separator,
            decimal=decimal,
            dtype={name: "str" for name in header if name.strip() in as_text},
            skipinitialspace=True,
            low_memory=False,
        )
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError) as error:
        raise ValueError(f"{path} is not a table: {error}") from error
    return frame.copy()  # in one piece, rather than one for each column


def _decode(path: Path) -> str:
    """The text of a file, in the encoding that its bytes suggest."""
    raw = unpacked(path)
    require_text(path, raw)
    announced = [encoding for mark, encoding in MARKS.items() if raw.startswith(mark)]
    if not announced and b"\0" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise ValueError(
            f"{path} is not text: line {line} holds a zero byte; if it is a Parquet or "
            "Excel file, give it the usual ending"
        )
    for encoding in announced or ["utf-8", "cp1252"]:
        try:
            return raw.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            line, byte = raw[: error.start].count(b"\n") + 1, raw[error.start]
    raise ValueError(
        f"{path}, line {line} holds the byte 0x{byte:02x}, which is neither UTF-8 nor "
        "UTF-16 nor Windows-1252; save the file as UTF-8"
    )


def _separator(text: str) -> str:
    """The separator, as frequent in each of the first lines as in the header."""
    bare = re.sub(r'"[^"]*"', "", text[: 2**20])
    lines = [line for line in bare.split("\n", SNIFFED + 1)[:SNIFFED] if line.strip()]

    def evidence(mark: str) -> tuple[int, int]:
        found = [line.count(mark) for line in lines or [""]]
        return found.count(found[0]) * bool(found[0]), found[0]

    return max(SEPARATORS, key=evidence)


def _check_shape(path: Path, text: str, separator: str) -> list[str]:
    """The header; every row must have as many cells, which pandas would not check."""
    reader = csv.reader(  # which reads cells as pandas does
        io.StringIO(text), delimiter=separator, strict=True, skipinitialspace=True
    )
    header: list[str] = []
    n_rows = last = 0
    try:
        for row in reader:
            last = reader.line_num
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if not header:
                header = row
                continue
            n_rows += 1
            if len(row) != len(header):
                raise ValueError(
                    f"{path}, line {reader.line_num} has {counted(len(row), 'cell')}, "
                    f"but the header has {len(header)} (separated by "
                    f"{SEPARATORS[separator]})"
                )
    except csv.Error as error:
        if "unexpected end" in str(error):
            error = csv.Error("its quotation mark is never closed")
        raise ValueError(
            f"{path}, line {last + 1} is not a row of a table: {error}"
        ) from error
    names = [name.strip() for name in header]
    _check_rows_and_names(path, n_rows, names)
    if names.count("") > UNNAMED:
        raise ValueError(
            f"{path} has {names.count('')} columns without a name in the header "
            f"(separated by {SEPARATORS[separator]}); name them, or remove them"
        )
    return header


def line_of(path: str, row: int) -> int | None:
    """The line in which a row ends; None if it has none, as in a Parquet file.

    Parameters
    ----------
    path : str
        A file that :func:`read_frame` has read.
    row : int
        The number of the row, from 0, without the header.
    """
    file = Path(path)
    kind = file.suffix.lower()
    if not file.is_file() or kind in (*PARQUET, *MUDATA):
        return None
    if kind in EXCEL:
        return row + 2
    text = _decode(file)
    reader = csv.reader(
        io.StringIO(text), delimiter=_separator(text), skipinitialspace=True
    )
    filled = (cells for cells in reader if len(cells) > 1 or "".join(cells).strip())
    next(islice(filled, row + 1, None), None)
    return reader.line_num


def _decimal_mark(path: Path, text: str, separator: str) -> str:
    if separator == ",":
        return "."
    edge, found = re.escape(separator), dict.fromkeys(",.")
    for quote in ("", '"'):  # if all cells are quoted, so are numbers
        if not any(found.values()):
            for mark in found:
                number = rf"{quote}([+-]?\d+{re.escape(mark)}\d+){quote}"
                cell = rf"(?:^|{edge})\s*{number}\s*(?={edge}|$)"
                found[mark] = re.search(cell, text, re.MULTILINE)
    if found[","] and found["."]:
        where = [
            f"line {text.count(chr(10), 0, m.start(1)) + 1} holds {m[1]!r}"
            for m in found.values()
            if m is not None
        ]
        raise ValueError(
            f"{path}: {' and '.join(where)}; use the same decimal mark everywhere"
        )
    return "," if found[","] else "."


def as_written(value: Any) -> Any:
    """A label or id as in the file: gaps turn whole numbers into floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def suggest(name: str, known: Sequence[str]) -> str:
    """A hint at what may be meant by a name that does not exist."""
    by_case = [other for other in known if other.lower() == name.lower()]
    if len(known) == 1 and len(known[0].split()) > 1:
        return (
            f"its only column is {known[0]!r}: separate cells by commas, semicolons, "
            "tabs or bars, not by blanks"
        )
    close = by_case or difflib.get_close_matches(name, known, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"the columns are {some(list(map(repr, known)), 8)}"
