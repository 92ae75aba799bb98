"""Gene expression data in which every view is a set of related genes."""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from kernelweave._files import check_arrays, check_expansion, unpacked_text
from kernelweave.datasets._sources import (
    encode_labels,
    find_file,
    registered,
    views_bunch,
)
from kernelweave.exceptions import MissingDataError, require_count

PROBES = "hgu95av2_probe_symbol.csv.gz"
#: Where to obtain gene sets and probe names.
MSIGDB = "gsea-msigdb.org, under the terms given there"
GENE_SETS = {
    "hallmark": ("hallmark_v7.0_symbols.gmt.gz", "HALLMARK_"),
    "kegg": ("kegg2011_symbols.gmt.gz", ""),
    "kegg_msigdb": ("kegg_c2cp_v7.5.1_symbols.gmt.gz", "KEGG_"),
}
#: Fields that describe a subset of the samples of a series.
SUBSET = ("!subset_type", "!subset_sample_id", "!subset_description")


class UnknownTargetError(ValueError):
    """A series has no subsets of the wanted kind."""


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
    home : str
        Where the data are available.
    """

    file: str
    about: str
    probes: bool = True
    target: str = "y"
    cells: str = ""
    kinds: Sequence[str] = ()
    home: str = ""


CHIPS = {name: Chip(**entry) for name, entry in registered("chips").items()}


def fetch_expression(
    name: str,
    *,
    gene_sets: str | None = "hallmark",
    smallest: int = 5,
    target: str | None = None,
    as_frame: bool | str = "auto",
) -> Bunch:
    """A microarray data set in which every gene set is a view.

    Files are read from the folder given by the environment variable
    ``KERNELWEAVE_DATA``: ``.npz`` archives with ``X``, ``y`` and ``features``, curated
    series of the Gene Expression Omnibus in its SOFT format (``GDS1412.soft.gz``), gene
    sets in GMT format, and a table that maps probes to gene symbols. A gene in several
    sets has a column in each of these views.

    Parameters
    ----------
    name : {"prostate", "all_lineage", "all_fusion", "leukemia", "p53", "tox"} or str
        Which microarray data set; or the accession ``"GDS..."`` of a curated series,
        whose probes with missing values are omitted.
    gene_sets : {"hallmark", "kegg", "kegg_msigdb"}, str or None, default="hallmark"
        Which gene sets, or the path of a GMT file (one set per line: its name, a
        description, and gene symbols, separated by tabs). None puts all columns into
        one view, the only choice for "tox", whose genes have no names.
    target : str, default=None
        For an accession, the kind of its subsets that are the classes, such as
        "disease state"; None if there is only one kind.
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
    FileNotFoundError
        If a file is missing; the message says how to get it.
    """
    require_count(1, smallest=smallest)
    accession = re.fullmatch(r"GDS\d+", name) is not None
    if name not in CHIPS and not accession:
        raise ValueError(
            f"name must be one of {', '.join(CHIPS)}, or an accession such as "
            f"'GDS1412'; got {name!r}"
        )
    if target is not None and not accession:
        raise ValueError(f"target is for accessions only; {name!r} has its own")
    sets: dict[str, list[str]] = {}
    missing = []
    try:
        sets = {} if gene_sets is None else _read_gene_sets(gene_sets)
    except MissingDataError as error:  # the message names all missing files
        missing.append(str(error))
    try:
        if accession:
            values, labels, features, genes, about = _read_series(name, target)
        else:
            chip = CHIPS[name]
            values, labels, features = _read_chip(chip)
            genes, about = features, chip.about
            if chip.probes and gene_sets is not None:
                genes = _symbols(features)
    except MissingDataError as error:
        missing.append(str(error))
    if missing:
        raise MissingDataError("; ".join(missing))
    blocks = {"genes": (values, features.tolist())}
    if gene_sets is not None:
        about += f" Views: gene sets of {gene_sets!r}."
        places = {
            view: np.flatnonzero(np.isin(genes, own)) for view, own in sets.items()
        }
        blocks = {
            view: (values[:, own], [f"{view}_{name}" for name in features[own]])
            for view, own in places.items()
            if len(own) >= smallest
        }
    if not blocks:
        raise ValueError(
            f"no gene set of {gene_sets!r} has at least {smallest} genes on the chip "
            f"of {name!r}"
        )
    codes, classes = encode_labels(labels)
    return views_bunch(blocks, codes, classes, f"{about}\n", as_frame)


def _read_chip(chip: Chip) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    path = find_file(f"{chip.file}.npz", chip.home)
    try:
        check_expansion(path)
        with path.open("rb") as file:
            with zipfile.ZipFile(file) as members:
                check_arrays(members)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                values = archive["X"].astype(float)
                labels = archive[chip.target].astype(str)
                numbers = [f"gene_{j:05d}" for j in range(values.shape[1])]
                features = np.asarray(archive.get("features", numbers)).astype(str)
                rows = archive["y"].astype(str)
                for texts in (labels, features, rows):
                    texts.tolist()  # fails if they hold no valid characters
    except Exception as error:  # a damaged file fails anywhere in zipfile or NumPy
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path} is damaged, or does not contain the arrays X and {chip.target}: "
            f"{reason:.200}; copy it again"
        ) from error
    shapes = (values.shape, labels.shape, rows.shape, features.shape)
    n, d = values.shape if values.ndim == 2 else (-1, -1)
    if shapes != ((n, d), (n,), (n,), (d,)):
        raise ValueError(
            f"{path} does not hold X (n, d), {chip.target} (n,), y (n,) and features "
            f"(d,): found {', '.join(map(str, shapes))}"
        )
    # without names, everything is kept
    keep = np.isin(rows, chip.cells or rows) & np.isin(labels, chip.kinds or labels)
    return values[keep], labels[keep], features


def _symbols(probes: np.ndarray) -> np.ndarray:
    path = find_file(PROBES, MSIGDB)
    lines = unpacked_text(path).splitlines(keepends=True)
    try:
        symbol = dict(row[:2] for row in csv.reader(lines) if row)
    except (csv.Error, ValueError) as error:
        raise ValueError(
            f"{path} is not a table of probes and symbols: {error}"
        ) from error
    return np.array([symbol.get(probe, "") for probe in probes])


def _read_gene_sets(name: str) -> dict[str, list[str]]:
    """The lines of a GMT file: a name, a description, and the genes."""
    if ".gmt" in name:
        path, prefix = Path(name), ""
        if not path.is_file():
            raise MissingDataError(f"the file of gene sets {name!r} was not found")
    elif name in GENE_SETS:
        file_name, prefix = GENE_SETS[name]
        path = find_file(file_name, MSIGDB)
    else:
        raise ValueError(
            f"gene_sets must be one of {', '.join(GENE_SETS)}, the path of a .gmt "
            f"file, or None; got {name!r}"
        )
    sets = {}
    for line in unpacked_text(path, errors="replace").splitlines():
        if line.strip():
            title, *rest = line.split("\t")
            if len(rest) < 2:
                raise ValueError(
                    f"{path} is not a GMT file: the line {title[:40]!r} has no genes"
                )
            # double underscores are reserved for nested parameters
            view = title.removeprefix(prefix).lower().replace("__", "_")
            sets[view] = rest[1:]
    return sets


def _read_series(
    accession: str, target: str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, str]:
    """Values (n, d), classes (n,), probes (d,), gene symbols (d,), and the title.

    The SOFT format has lines ``!key = value``, among them the subsets of samples, each
    with a kind, and one table with a row per probe and a column per sample.
    """
    file = f"{accession}.soft.gz"
    home = f"ncbi.nlm.nih.gov/geo ({file}, the full SOFT file)"
    text = unpacked_text(find_file(file, home), errors="replace")
    title, kinds, table = _parts_of_series(text)
    if table is None or not kinds:
        raise ValueError(
            f"{file} has no table of expression values, or no subsets of samples that "
            "could be classes: is it the full SOFT file?"
        )
    if target is None and len(kinds) == 1:
        target = next(iter(kinds))
    if target not in kinds:
        raise UnknownTargetError(
            f"target must be one of {', '.join(map(repr, kinds)):.300} for "
            f"{accession}; got {target!r}"
        )
    header, *rows = [line.split("\t") for line in table] or [[]]
    if len(header) < 2:
        raise ValueError(f"{file} has a table without columns")
    classes = kinds[target]
    columns = [j for j, sample in enumerate(header) if sample in classes]
    complete = [
        row
        for row in rows
        if len(row) == len(header) and all(row[j] not in ("", "null") for j in columns)
    ]
    if not columns or not complete:
        raise ValueError(
            f"{file} has no values of the samples in {target!r}; is it the full SOFT "
            "file?"
        )
    try:
        values = np.array([[float(row[j]) for j in columns] for row in complete]).T
    except ValueError as error:
        raise ValueError(
            f"{file} has a cell that is not a number: {error!s:.80}"
        ) from error
    labels = np.array([classes[header[j]] for j in columns])
    probes, genes = (np.array([row[j] for row in complete]) for j in (0, 1))
    return values, labels, probes, genes, f"{title or accession} ({accession})."


def _parts_of_series(
    text: str,
) -> tuple[str, dict[str, dict[str, str]], list[str] | None]:
    """The title; for each kind of subset, its samples with descriptions; the table."""
    head, begin, rest = text.partition("\n!dataset_table_begin")
    table = rest.partition("\n!dataset_table_end")[0].splitlines()[1:]
    title = ""
    kinds: dict[str, dict[str, str]] = {}
    for part in head.split("\n^"):
        own = dict(line.split(" = ", 1) for line in part.splitlines() if " = " in line)
        title = own.get("!dataset_title", title)
        if own.keys() >= set(SUBSET):
            kind, ids, description = (own[key] for key in SUBSET)
            samples = dict.fromkeys(ids.split(","), description)
            kinds.setdefault(kind, {}).update(samples)
    return title, kinds, table if begin else None
