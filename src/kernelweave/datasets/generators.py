"""Generated data sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Bunch, check_random_state

from kernelweave.datasets._sources import views_bunch
from kernelweave.exceptions import require_count


def make_waveform(
    n_samples: int = 300,
    *,
    noise_features: int = 19,
    random_state: Any = None,
    as_frame: bool | str = "auto",
) -> Bunch:
    """Draw mixtures of two of three waves, one pair of waves per class.

    With ``h_1(j) = max(6 - |j - 7|, 0)``, ``h_2(j) = h_1(j - 8)``,
    ``h_3(j) = h_1(j - 4)`` for j = 1 .. 21, u uniform in [0, 1] and standard normal
    noise e::

        x_j = u h_a(j) + (1 - u) h_b(j) + e_j,   (a, b) = (1, 2), (1, 3), (2, 3)

    (Breiman et al. 1984).

    Parameters
    ----------
    n_samples : int, default=300
        Number of rows; the classes are as equal in size as possible.
    noise_features : int, default=19
        Number of additional columns of pure noise; 19 in the UCI data set.
    random_state : int, RandomState instance or None, default=None
        Seed; pass an int to draw the same rows each time.
    as_frame : bool or "auto", default="auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.

    Returns
    -------
    bunch : Bunch
        ``data`` (n_samples, 21 + noise_features), ``target`` (n_samples,),
        ``target_names``, ``feature_names``, ``views`` (one of all columns) and
        ``DESCR``.

    Examples
    --------
    >>> from kernelweave.datasets import make_waveform
    >>> make_waveform(30, random_state=0).data.shape
    (30, 40)
    """
    require_count(3, n_samples=n_samples)
    require_count(0, noise_features=noise_features)
    rng = check_random_state(random_state)
    j = np.arange(1, 22)
    waves = np.array([np.maximum(6 - np.abs(j - centre), 0) for centre in (7, 15, 11)])
    first, second = np.array([[0, 1], [0, 2], [1, 2]]).T
    target = rng.permutation(np.arange(n_samples) % 3)
    u = rng.uniform(size=(n_samples, 1))
    values = rng.standard_normal((n_samples, 21 + noise_features))
    values[:, :21] += u * waves[first[target]] + (1 - u) * waves[second[target]]
    names = [f"x{i:02d}" for i in range(1, values.shape[1] + 1)]
    about = (
        f"Made by kernelweave.datasets.make_waveform: {n_samples} noisy mixtures of "
        f"two of three waves\n(Breiman et al. 1984), {values.shape[1]} columns. The "
        "Bayes error is about 14 per cent.\n"
    )
    return views_bunch({"all": (values, names)}, target, list("012"), about, as_frame)


def make_gaussian_views(
    n_samples: int = 200,
    n_views: int = 5,
    *,
    spread: float = 1.0,
    random_state: Any = None,
    as_frame: bool | str = "auto",
) -> Bunch:
    """Draw two classes that overlap heavily in each of many small views.

    In each view, a row of class c is normal in two dimensions. The coordinates of the
    mean are uniform between 1 and 2, the covariance is ``spread (I / 2 + B B' / 4)``
    for a 2 x 2 matrix B with standard normal entries, and both are drawn independently
    for each class and view (Yan et al. 2009, Section IV A; the paper does not specify
    the covariances, and these give the overlap that it describes).

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows. Classes alternate, so the first 2k rows contain k of each class.
    n_views : int, default=5
        Number of views, named "view0", "view1" and so on.
    spread : float, default=1.0
        Expected variance of a coordinate within its class.
    random_state : int, RandomState instance or None, default=None
        Seed; pass an int to draw the same rows each time.
    as_frame : bool or "auto", default="auto"
        Whether ``data`` is a pandas DataFrame; "auto": if pandas is installed.

    Returns
    -------
    bunch : Bunch
        ``data`` (n_samples, 2 n_views), ``target`` (n_samples,), ``target_names``,
        ``feature_names``, ``views`` for the parameter of that name, and ``DESCR``.

    Examples
    --------
    >>> from kernelweave.datasets import make_gaussian_views
    >>> make_gaussian_views(100, n_views=3, random_state=0).data.shape
    (100, 6)
    """
    require_count(2, n_samples=n_samples)
    require_count(1, n_views=n_views)
    if not spread > 0:
        raise ValueError(f"spread must be > 0; got {spread!r}")
    rng = check_random_state(random_state)
    target = np.arange(n_samples) % 2
    blocks = {}
    for v in range(n_views):
        means = rng.uniform(1.0, 2.0, size=(2, 2))
        B = rng.standard_normal((2, 2, 2))  # one matrix per class
        covariances = spread * (np.eye(2) / 2 + B @ B.transpose(0, 2, 1) / 4)
        factors = np.linalg.cholesky(covariances)
        noise = rng.standard_normal((n_samples, 2))
        values = means[target] + np.einsum("nij,nj->ni", factors[target], noise)
        blocks[f"view{v}"] = (values, [f"view{v}_0", f"view{v}_1"])
    about = (
        f"Made by kernelweave.datasets.make_gaussian_views: {n_samples} rows of two "
        f"classes in {n_views}\nviews of two columns; in each view both classes are "
        "Gaussians that overlap heavily (Yan\net al. 2009, Section IV A).\n"
    )
    return views_bunch(blocks, target, ["class0", "class1"], about, as_frame)


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
    if not 0 <= n_informative <= n_views:
        raise ValueError(
            f"n_informative must be between 0 and n_views={n_views}; "
            f"got {n_informative!r}"
        )
    if not 2 <= n_classes <= n_samples:
        raise ValueError(
            f"n_classes must be between 2 and n_samples={n_samples}; got {n_classes!r}"
        )
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
        f"classes in {n_views}\nviews of {n_features} columns. In {n_informative} "
        "view(s), each class has its own centre, at\na distance of about "
        f"{separation:g} standard deviations from the overall mean; the other\nviews "
        "are noise.\n"
    )
    return views_bunch(
        blocks,
        target,
        [f"class{c}" for c in range(n_classes)],
        about,
        as_frame,
        informative=[f"view{v}" for v in range(n_informative)],
    )
