"""Data sets of scikit-learn, split or transformed into views."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.utils import Bunch

from kernelweave.datasets._bunch import views_bunch

__all__ = ["load_breast_cancer_views", "load_digits_views"]

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
