"""Single tables: bundled, from scikit-learn or from a source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.datasets import load_wine as _load_wine
from sklearn.utils import Bunch

from kernelweave.datasets._sources import (
    LABEL,
    Source,
    encode_labels,
    find_cells,
    views_bunch,
)

__all__ = ["fetch_table", "load_breast_cancer_views", "load_digits_views", "load_wine"]

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
    names = [str(name) for name in raw.feature_names]
    blocks = {
        view: (raw.data[:, start : start + 10], names[start : start + 10])
        for view, start in (("mean", 0), ("error", 10), ("worst", 20))
    }
    classes = [str(name) for name in raw.target_names]
    return views_bunch(blocks, raw.target, classes, BREAST_CANCER, as_frame)


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
    classes = [str(name) for name in raw.target_names]
    return views_bunch(blocks, raw.target, classes, DIGITS, as_frame, images=images)


def _fourier(images: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Magnitudes (n, 34); the other frequencies are redundant by symmetry."""
    magnitude = np.abs(np.fft.rfft2(images))  # (n, 8, 5)
    distinct = [(i, j) for i in range(8) for j in range(5) if i <= 4 or 0 < j < 4]
    rows, columns = (list(index) for index in zip(*distinct, strict=True))
    return magnitude[:, rows, columns], [f"fourier_{i}_{j}" for i, j in distinct]


def _grid_names(what: str, side: int) -> list[str]:
    return [f"{what}_{i}_{j}" for i in range(side) for j in range(side)]


ALL = "all"


@dataclass(frozen=True)
class Table:
    """A source, and a description of the table."""

    source: Source
    about: str


TABLES = {
    "sonar": Table(
        Source("sonar", 208, 60, (3510.8897, 60400.9867, 93518.3511), (("", 40),)),
        "Sonar echoes in 60 frequency bands: a metal cylinder (M) or a rock (R). UCI, "
        "CC BY 4.0.",
    ),
    "heart": Table(
        Source("heart", 270, 13, (161586.5, 97780079.1, 849002), (("", 53),)),
        "Heart disease absent or present, 13 findings per patient. Statlog, UCI.",
    ),
    "breast_cancer_wisconsin": Table(
        Source("breast_cancer_wisconsin", 683, 9, (19353, 828611, 89235), (("", 15),)),
        "Breast tumours, benign or malignant, nine properties of cells graded 1 to 10; "
        "the 16 of 699 rows with a missing grade are omitted. UCI, CC BY 4.0.",
    ),
    "ionosphere": Table(
        Source(
            "ionosphere", 351, 34, (2956.01597, 41649.8789, 41600.6329), (("", 59),)
        ),
        "Radar returns from the ionosphere, good or bad; the second column is zero. "
        "UCI, CC BY 4.0.",
    ),
    "usps": Table(
        Source("usps", 9298, 256, (-1155322.88, 165341235, -147135270), (("", 41082),)),
        "Handwritten digits from envelopes (Hull 1994), 16 x 16 grey values between -1 "
        "and 1; the first 7291 rows are the official training set.",
    ),
    "satimage": Table(
        Source("satimage", 6435, 36, (19337086, 5.930507e10, 359193360), (("", 182),)),
        "Landsat images: 3 x 3 pixels in four bands, six kinds of ground. Statlog, "
        "UCI, CC BY 4.0.",
    ),
    "segment": Table(
        Source("segment", 2310, 19, (1081148.7, 617585815, 6935880.89), (("", 36),)),
        "Regions of seven outdoor images, 19 properties each. Statlog, UCI, CC BY 4.0.",
    ),
    "waveform": Table(
        Source("waveform", 5000, 40, (179897.64, 6670451.71, 1986629.5), (("", 60),)),
        "Mixtures of three waves (Breiman et al. 1984) in 21 columns, and 19 columns "
        "of noise. UCI; make_waveform draws more rows.",
    ),
    "brain_tumor1": Table(
        Source("brain_tumor1", 90, 5920, (387847148, 1.78636118e15, 1.11016429e12)),
        "Gene expression of five kinds of brain tumours (Pomeroy et al. 2002).",
    ),
    "brain_tumor2": Table(
        Source("brain_tumor2", 50, 10367, (36818138.8, 3.05312245e13, 1.92142138e11)),
        "Gene expression of four kinds of gliomas (Nutt et al. 2003).",
    ),
}


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
    table = TABLES[name]
    cells = find_cells(table.source, download_if_missing)
    codes, classes = encode_labels(cells.texts[LABEL])
    blocks = {ALL: (cells.values, cells.names)}
    return views_bunch(blocks, codes, classes, table.about + "\n", as_frame)


def load_wine(*, as_frame: bool | str = "auto") -> Bunch:
    """Chemical analyses of three kinds of wine: one view of 13 columns, 178 rows.

    Parameters
    ----------
    as_frame : bool or "auto", default="auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.

    Returns
    -------
    bunch : Bunch
        ``data`` (178, 13), ``target`` (178,), ``target_names``, ``feature_names``,
        ``views`` (one of all columns) and ``DESCR``; the data are scikit-learn's.

    Examples
    --------
    >>> from kernelweave.datasets import load_wine
    >>> load_wine().data.shape
    (178, 13)
    """
    raw = _load_wine()
    blocks = {ALL: (np.asarray(raw.data), [str(name) for name in raw.feature_names])}
    classes = [str(name) for name in raw.target_names]
    about = "Chemical analyses of wine from three cultivars (UCI), from scikit-learn.\n"
    return views_bunch(blocks, raw.target, classes, about, as_frame)
