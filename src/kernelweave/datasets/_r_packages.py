"""Data of installed R packages, read without R (with the Python package rdata).

Bioconductor keeps several assays of the same patients in one object of its class
MultiAssayExperiment. The slots that matter here:

========================  ==========================================================
``ExperimentList``        the assays: each a matrix (features, samples), or an object
                          that wraps one
``sampleMap``             one row per sample: its assay, its name there ("colname") and
                          its patient ("primary")
``colData``               one row per patient: clinical columns
========================  ==========================================================

rdata reads such a file but does not convert it as a whole: the wrappers hold R
functions and promises. So only the slots above are followed, and only matrices and
columns converted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelweave.exceptions import library

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
class MultiAssay:
    """Several assays of the same patients.

    Attributes
    ----------
    patients : list of str
        Names of the n patients.
    assays : dict
        For each assay, the names of its d features, and their values (n, d): a row of
        NaN for a patient without a sample.
    clinical : dict
        Columns (n,) of strings; "" where the entry is missing.
    """

    patients: list[str]
    assays: dict[str, tuple[list[str], np.ndarray]]
    clinical: dict[str, np.ndarray]


def find_in_r(package: str, inside: str) -> Path | None:
    """Path of a file of an R package, if that is installed."""
    given = os.pathsep.join(os.environ.get(name, "") for name in LIBRARY_VARIABLES)
    for folder in [*given.split(os.pathsep), *LIBRARIES]:
        path = Path(folder) / package / inside
        if folder and path.is_file():
            return path
    return None


def read_multi_assay(path: Path) -> MultiAssay:
    """Read the only object of an ``.RData`` file, a MultiAssayExperiment."""
    rdata = library(
        "rdata",
        f"{path.name} was found, but rdata is needed to read it: "
        "pip install 'kernelweave[r]'",
    )
    (thing,) = _pairs(rdata.parser.parse_file(path).object).values()
    return multi_assay(thing)


def multi_assay(thing: Any) -> MultiAssay:
    """Convert a MultiAssayExperiment that rdata has parsed."""
    from rdata.conversion import convert

    slots = _slots(thing)
    of_patients = _slots(slots["colData"])
    patients = [str(name) for name in convert(of_patients["rownames"])]
    clinical = {
        str(name): _strings(column)
        for name, column in convert(of_patients["listData"]).items()
    }
    samples = convert(_slots(slots["sampleMap"])["listData"])
    columns = [np.asarray(samples[k]) for k in ("assay", "primary", "colname")]
    owner = {(a, sample): patient for a, patient, sample in zip(*columns, strict=True)}
    row = {patient: i for i, patient in enumerate(patients)}
    assays = {}
    for name, one in _items(_slots(slots["ExperimentList"])["listData"]).items():
        matrix = convert(_matrix(one))  # (d, samples), with names
        features, own = (matrix.coords[axis].values for axis in matrix.dims)
        rows = [row[owner[name, sample]] for sample in own]
        if len(set(rows)) < len(rows):
            twice = next(patients[i] for i in rows if rows.count(i) > 1)
            raise ValueError(f"assay {name!r} has several samples of patient {twice!r}")
        values = np.full((len(patients), len(features)), np.nan)
        values[rows] = np.asarray(matrix, dtype=float).T
        assays[name] = [str(feature) for feature in features], values
    return MultiAssay(patients, assays, clinical)


def _strings(column: Any) -> np.ndarray:
    import pandas as pd

    return np.array(["" if pd.isna(entry) else str(entry) for entry in column])


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
