"""Views drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Bunch, check_random_state

from kernelweave.datasets._sources import views_bunch
from kernelweave.exceptions import require_count


def make_views(
    n_samples: int = 200,
    n_views: int = 5,
    n_informative: int = 2,
    n_classes: int = 3,
    *,
    n_features: int = 5,
    separation: float = 2.0,
    random_state: Any = None,
    as_frame: bool | str = "auto",
) -> Bunch:
    """Draw rows in several views, only the first of which depend on the class.

    In each informative view v and each other view u, a row x of class c is::

        x_v = separation * centre_vc + noise,   x_u = noise

    with centres drawn uniformly from the unit sphere and standard normal noise.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows.
    n_views : int, default=5
        Number of views, named "view0", "view1" and so on.
    n_informative : int, default=2
        Number of views that separate the classes; they come first.
    n_classes : int, default=3
        Number of classes, which are as equal in size as possible.
    n_features : int, default=5
        Number of columns per view.
    separation : float, default=2.0
        Distance of the class centres from the overall mean, in standard deviations of
        the noise.
    random_state : int, RandomState instance or None, default=None
        Seed; pass an int to draw the same rows each time.
    as_frame : bool or "auto", default="auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.

    Returns
    -------
    bunch : Bunch
        ``data`` (n_samples, n_views * n_features), ``target`` (n_samples,),
        ``target_names``, ``feature_names``, ``views`` for the parameter of that name,
        ``informative`` (names of the informative views) and ``DESCR``.

    Examples
    --------
    >>> from kernelweave.datasets import make_views
    >>> bunch = make_views(n_samples=60, n_views=3, n_informative=1, random_state=0)
    >>> bunch.data.shape, bunch.informative
    ((60, 15), ['view0'])
    """
    require_count(1, n_views=n_views, n_features=n_features)
    require_count(0, n_informative=n_informative, n_classes=n_classes)
    require_count(2, n_samples=n_samples)
    if n_informative > n_views:
        raise ValueError(
            f"n_informative must be between 0 and n_views={n_views}; "
            f"got {n_informative!r}"
        )
    if not 2 <= n_classes <= n_samples:
        raise ValueError(
            f"n_classes must be between 2 and n_samples={n_samples}; got {n_classes!r}"
        )
    if not np.isfinite(separation):
        raise ValueError(f"separation must be a finite number; got {separation!r}")
    rng = check_random_state(random_state)
    target = rng.permutation(np.arange(n_samples) % n_classes)
    blocks = {}
    for v in range(n_views):
        values = rng.standard_normal((n_samples, n_features))
        if v < n_informative:
            centres = rng.standard_normal((n_classes, n_features))
            centres /= np.linalg.norm(centres, axis=1, keepdims=True)
            values += separation * centres[target]
        blocks[f"view{v}"] = (values, [f"view{v}_{j}" for j in range(n_features)])
    about = (
        f"Made by kernelweave.datasets.make_views: {n_samples} rows of {n_classes} "
        f"classes in {n_views}\nviews of {n_features} columns. Informative views: "
        f"{n_informative}. There, each class has its own centre,\nat a distance of "
        f"about {separation:g} standard deviations from the overall mean; the other\n"
        "views are noise.\n"
    )
    return views_bunch(
        blocks,
        target,
        [f"class{c}" for c in range(n_classes)],
        about,
        as_frame,
        informative=[f"view{v}" for v in range(n_informative)],
    )
