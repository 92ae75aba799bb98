"""The common form in which the package returns data sets."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from sklearn.utils import Bunch

__all__ = ["views_bunch"]


def views_bunch(
    blocks: dict[str, tuple[np.ndarray, list[str]]],
    target: np.ndarray,
    target_names: list[str],
    description: str,
    as_frame: bool | str,
    **more: Any,
) -> Bunch:
    """Join the views column by column.

    Parameters
    ----------
    blocks : dict
        For each view, its array (n, d_view) and its column names.
    target : ndarray of shape (n,)
        Class codes.
    target_names : list of str
        Names of the classes.
    description : str
        The text of ``DESCR``.
    as_frame : bool or "auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.
    **more : object
        Additional entries of the bunch.

    Returns
    -------
    bunch : Bunch
        With ``data``, ``target``, ``target_names``, ``feature_names``, ``views`` and
        ``DESCR``.
    """
    names = [name for _, columns in blocks.values() for name in columns]
    data: Any = np.hstack([values for values, _ in blocks.values()])
    if _wants_frame(as_frame):
        import pandas as pd

        data = pd.DataFrame(data, columns=names)
    views, start = [], 0
    for view, (values, _) in blocks.items():
        views.append((view, "auto", slice(start, start + values.shape[1])))
        start += values.shape[1]
    return Bunch(
        data=data,
        target=target,
        target_names=np.asarray(target_names),
        feature_names=names,
        views=views,
        DESCR=description,
        **more,
    )


def _wants_frame(as_frame: bool | str) -> bool:
    if isinstance(as_frame, str):
        if as_frame != "auto":
            raise ValueError(
                f"as_frame must be True, False or 'auto'; got {as_frame!r}"
            )
        return importlib.util.find_spec("pandas") is not None
    return bool(as_frame)
