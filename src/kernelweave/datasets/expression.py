"""Gene expression data in which every view is a set of related genes."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.utils import Bunch

from kernelweave.datasets._sources import (
    encode_labels,
    find_file,
    registered,
    views_bunch,
)

PROBES = "hgu95av2_probe_symbol.csv.gz"
GENE_SETS = {
    "hallmark": ("hallmark_v7.0_symbols.gmt.gz", "HALLMARK_"),
    "kegg": ("kegg2011_symbols.gmt.gz", ""),
    "kegg_msigdb": ("kegg_c2cp_v7.5.1_symbols.gmt.gz", "KEGG_"),
}


@dataclass(frozen=True)
class Chip:
    """An archive with X, y and features, and a description.

    Attributes
    ----------
    file : str
        Name of the archive, without ``.npz``.
    about : str
        What was measured.
    probes : bool
        Whether features are probes of the HG-U95Av2 chip rather than gene symbols.
    target : str
        The entry with the classes.
    cells : str
        If given, only rows with this value of the entry ``y`` are kept.
    kinds : sequence of str
        If given, only rows of these classes are kept.
    """

    file: str
    about: str
    probes: bool = True
    target: str = "y"
    cells: str = ""
    kinds: Sequence[str] = ()


CHIPS = {name: Chip(**entry) for name, entry in registered("chips").items()}


def fetch_expression(
    name: str,
    *,
    gene_sets: str | None = "hallmark",
    smallest: int = 5,
    as_frame: bool | str = "auto",
) -> Bunch:
    """A microarray data set in which every gene set is a view.

    Files are read from the folder given by the environment variable
    ``KERNELWEAVE_DATA``: ``.npz`` archives with ``X``, ``y`` and ``features``, gene
    sets in GMT format, and a table that maps probes to gene symbols. A gene in several
    sets has a column in each of these views.

    Parameters
    ----------
    name : {"prostate", "all_lineage", "all_fusion", "leukemia", "p53", "tox"}
        Which microarray data set.
    gene_sets : {"hallmark", "kegg", "kegg_msigdb"} or None, default="hallmark"
        Which gene sets; None puts all columns into one view, the only choice for "tox",
        whose genes have no names.
    smallest : int, default=5
        Gene sets with fewer columns than this on the chip are omitted.
    as_frame : bool or "auto", default="auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.

    Returns
    -------
    bunch : Bunch
        ``data`` (n, d), ``target`` (n,), ``target_names``, ``feature_names``,
        ``views`` (one per gene set) and ``DESCR``.

    Raises
    ------
    MissingDataError
        If a file is missing; the message says how to get it.
    """
    if name not in CHIPS:
        raise ValueError(f"name must be one of {', '.join(CHIPS)}; got {name!r}")
    if gene_sets is not None and gene_sets not in GENE_SETS:
        raise ValueError(
            f"gene_sets must be one of {', '.join(GENE_SETS)}, or None; got "
            f"{gene_sets!r}"
        )
    chip, about = CHIPS[name], CHIPS[name].about
    if gene_sets is None:
        values, labels, features = _read_chip(chip)
        blocks = {"genes": (values, features.tolist())}
    else:
        sets = _read_gene_sets(*GENE_SETS[gene_sets])
        values, labels, features = _read_chip(chip)
        genes = _symbols(features) if chip.probes else features
        about += f" Views: gene sets of {gene_sets!r}."
        blocks = {}
        for view, members in sets.items():
            columns = np.flatnonzero(np.isin(genes, members))
            if len(columns) >= smallest:
                names = [f"{view}_{feature}" for feature in features[columns]]
                blocks[view] = (values[:, columns], names)
    if not blocks:
        raise ValueError(
            f"no gene set of {gene_sets!r} has at least {smallest} genes on the chip "
            f"of {name!r}"
        )
    codes, classes = encode_labels(labels)
    return views_bunch(blocks, codes, classes, f"{about}\n", as_frame)


def _read_chip(chip: Chip) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with np.load(find_file(f"{chip.file}.npz"), allow_pickle=False) as archive:
        values = archive["X"].astype(float)
        labels = archive[chip.target].astype(str)
        numbers = [f"gene_{j:05d}" for j in range(values.shape[1])]
        features = np.asarray(archive.get("features", numbers)).astype(str)
        keep = np.ones(len(labels), dtype=bool)
        if chip.cells:
            keep &= archive["y"].astype(str) == chip.cells
    if chip.kinds:
        keep &= np.isin(labels, chip.kinds)
    return values[keep], labels[keep], features


def _symbols(probes: np.ndarray) -> np.ndarray:
    with gzip.open(find_file(PROBES), "rt", newline="", encoding="utf-8") as file:
        symbol = {row[0]: row[1] for row in csv.reader(file)}
    return np.array([symbol.get(probe, "") for probe in probes])


def _read_gene_sets(file_name: str, prefix: str) -> dict[str, list[str]]:
    """The lines of a GMT file: a name, a description, and the genes."""
    sets = {}
    with gzip.open(find_file(file_name), "rt", encoding="utf-8") as file:
        for line in file:
            name, _, *genes = line.rstrip("\n").split("\t")
            # double underscores are reserved for nested parameters
            view = name.removeprefix(prefix).lower().replace("__", "_")
            sets[view] = genes
    return sets
