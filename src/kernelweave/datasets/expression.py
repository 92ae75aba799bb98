"""Gene expression in which every view is a set of genes that work together."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from kernelweave.datasets._bunch import views_bunch
from kernelweave.datasets._sources import encode_labels, find_file

__all__ = ["fetch_expression"]

PROBES = "hgu95av2_probe_symbol.csv.gz"
GENE_SETS = {
    "hallmark": ("hallmark_v7.0_symbols.gmt.gz", "HALLMARK_"),
    "kegg": ("kegg2011_symbols.gmt.gz", ""),
    "kegg_msigdb": ("kegg_c2cp_v7.5.1_symbols.gmt.gz", "KEGG_"),
}


@dataclass(frozen=True)
class Chip:
    """An archive with X, y and features, and what it is about.

    Attributes
    ----------
    file : str
        The archive's name, without ``.npz``.
    about : str
        What was measured.
    probes : bool
        Whether features are probes of the chip HG-U95Av2, and not symbols of genes.
    target : str
        The entry with the classes.
    cells : str
        If given, only rows whose entry ``y`` is this are kept ...
    kinds : tuple of str
        ... and of these the rows of these classes.
    """

    file: str
    about: str
    probes: bool = True
    target: str = "y"
    cells: str = ""
    kinds: tuple[str, ...] = ()


CHIPS = {
    "prostate": Chip(
        "singh_prostate_hgu95av2", "Prostate, normal or tumour (Singh et al. 2002)."
    ),
    "all_lineage": Chip(
        "all_hgu95av2", "Leukaemia of B or T cells (Chiaretti et al. 2004)."
    ),
    "all_fusion": Chip(
        "all_hgu95av2",
        "Leukaemia of B cells with the fusion BCR/ABL or without (Chiaretti et al. "
        "2004).",
        target="y_mol",
        cells="B",
        kinds=("BCR/ABL", "NEG"),
    ),
    "leukemia": Chip("leukemia_hgu95av2", "Acute leukaemia, lymphoid or myeloid."),
    "p53": Chip("p53_symbols", "Cell lines with p53 mutated or not.", probes=False),
    "tox": Chip(
        "tox_171",
        "Toxicity in four classes (TOX-171), genes without names.",
        probes=False,
    ),
}


def fetch_expression(
    name: str,
    *,
    gene_sets: str | None = "hallmark",
    smallest: int = 5,
    as_frame: bool | str = "auto",
) -> Bunch:
    """A microarray, with the columns of each set of genes as a view.

    Files come from the folder named by the environment variable ``KERNELWEAVE_DATA``:
    ``.npz`` archives with ``X``, ``y`` and ``features``, gene sets in the GMT format,
    and a table of probes with the symbols of their genes. A gene in several sets has a
    column in each of these views.

    Parameters
    ----------
    name : {"prostate", "all_lineage", "all_fusion", "leukemia", "p53", "tox"}
        Which microarray.
    gene_sets : {"hallmark", "kegg", "kegg_msigdb"} or None, default="hallmark"
        Which gene sets; None makes one view of all columns, the only choice for "tox",
        whose genes have no names.
    smallest : int, default=5
        Sets with fewer columns on the chip are left out.
    as_frame : bool or "auto", default="auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.

    Returns
    -------
    bunch : Bunch
        ``data`` (n, d), ``target`` (n,), ``target_names``, ``feature_names``,
        ``views`` (one a gene set) and ``DESCR``.

    Raises
    ------
    MissingDataError
        If a file is not there; the message says how to get it.
    """
    if name not in CHIPS:
        raise ValueError(f"name must be one of {', '.join(CHIPS)}; got {name!r}")
    if gene_sets is not None and gene_sets not in GENE_SETS:
        raise ValueError(
            f"gene_sets must be one of {', '.join(GENE_SETS)}, or None; got "
            f"{gene_sets!r}"
        )
    chip = CHIPS[name]
    if gene_sets is None:
        values, labels, features = _read_chip(chip)
        codes, classes = encode_labels(labels)
        blocks = {"genes": (values, features.tolist())}
        return views_bunch(blocks, codes, classes, f"{chip.about}\n", as_frame)
    sets = _read_gene_sets(find_file(GENE_SETS[gene_sets][0]), GENE_SETS[gene_sets][1])
    values, labels, features = _read_chip(chip)
    genes = _symbols(features) if chip.probes else features
    blocks = {}
    for view, members in sets.items():
        columns = np.flatnonzero(np.isin(genes, members))
        if len(columns) >= smallest:
            names = [f"{view}_{feature}" for feature in features[columns]]
            blocks[view] = (values[:, columns], names)
    if not blocks:
        raise ValueError(
            f"no set of {gene_sets!r} has {smallest} genes on the chip of {name!r}"
        )
    codes, classes = encode_labels(labels)
    about = f"{chip.about} Views: gene sets of {gene_sets!r}.\n"
    return views_bunch(blocks, codes, classes, about, as_frame)


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


def _read_gene_sets(path: Path, prefix: str) -> dict[str, list[str]]:
    """The lines of a GMT file: a name, a description, and the genes."""
    sets = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            name, _, *genes = line.rstrip("\n").split("\t")
            # estimators keep double underscores for parameters inside parameters
            view = name.removeprefix(prefix).lower().replace("__", "_")
            sets[view] = genes
    return sets
