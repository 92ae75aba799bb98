"""Which view spoke for which class: the exact parts of each decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from kernelweave._array import to_numpy
from kernelweave.exceptions import library
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.inspection._rows import model_and_rows, row_labels, views_of


@dataclass(frozen=True)
class Readout:
    """From projections z to decision values: ``d(x) = z(x) matrix + offset``.

    Attributes
    ----------
    matrix : ndarray of shape (r, q), or (m, r, q) if rows have variances of their own
        The linear part.
    offset : ndarray of shape (q,) or (m, q)
        The constant part.
    outputs : ndarray of shape (q,) or None
        The class or the number of the target of each column; None if there is only one.
    unit : str
        What d measures.
    """

    matrix: np.ndarray
    offset: np.ndarray
    outputs: np.ndarray | None
    unit: str


def contributions(model: Any, X: Any, *, as_frame: bool = False) -> Any:
    r"""Split each decision value into exact parts, one per view.

    The decision value of a row is a constant plus a sum over kernels, so it is a sum
    over views as well, without any approximation:

    .. math::

        d_c(x) = b_c + \sum_v f_{vc}(x), \qquad
        f_{vc}(x) = \sum_{i \in v} w_i \, G_i(x) \, a_c

    where :math:`G_i(x)` holds the centred kernel values between x and the training
    rows, and :math:`a_c` their coefficients. What is split is

    - ``decision_function`` of :class:`~kernelweave.MultipleKernelSVC`,
      :class:`~kernelweave.TransductiveKernelSVC` and
      :class:`~kernelweave.SubspaceKernelSVC`, in units of the margin;
    - ``predict`` of :class:`~kernelweave.MultipleKernelRidge`;
    - ``decision_function`` of the discriminants, the log odds of two classes or the log
      joint density of each class. Class Gaussians with a common variance
      :math:`\sigma^2` differ only by terms that are linear in the projection
      :math:`z = \sum_v z_v`:

      .. math::

          d_c(x) = \sum_v \frac{\langle z_v(x), m_c \rangle}{\sigma^2}
              - \frac{|m_c|^2}{2 \sigma^2} + \log \pi_c

      The term :math:`|z|^2`, which all classes share, is left out of every class score,
      so differences between classes, and hence probabilities, are exact.

    Kernels are centred, so the parts of each view have mean zero over the training rows
    (if none of them lacks the view): the intercept is the decision value of an average
    row, and a part says how far the view moves the row away from it. If views share no
    columns, the parts are the Shapley values of the views with the training rows as
    background: without interactions between views there is nothing to approximate.
    With ``interactions=True``, what products of views add is a part of its own,
    "between views".

    A part says how the model reached its decision, which is not evidence that the
    decision is right: a model fitted to noise has parts as well. Parts of training rows
    look more certain than those of new rows.

    Parameters
    ----------
    model : estimator
        Fitted classifier or regressor of this package, or a Pipeline or search that
        ends in one; X then passes through the earlier steps first.
    X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
        Rows.
    as_frame : bool, default=False
        Whether to return a pandas DataFrame.

    Returns
    -------
    result : Bunch or DataFrame
        A Bunch has ``parts`` (m, v), or (m, v, q) with more than two classes or several
        targets; ``intercept`` (m,) or (m, q); ``views``, the v names; ``outputs``, the
        q classes or target numbers, None without a last axis; and ``unit``, what the
        parts measure. ``parts.sum(axis=1) + intercept`` is the decision value.

        The DataFrame has the row index of X, one column per view and one named
        "intercept", so that its rows sum to the decision values; with a last axis,
        ``frame[output]`` is such a table.

    Notes
    -----
    Three cases deserve care:

    - *Missing views.* With ``missing="zero"`` a view that a row lacks has part 0. With
      ``missing="available"`` the kernels of that view are filled in from others, and
      its part is what the filled-in values contribute. For a row that lacks every view,
      the intercept is the logarithm of the class shares.
    - :class:`~kernelweave.ProbabilisticKDA` divides by the predictive variance of the
      row, which depends on all views. The sum is exact given that variance, and so the
      intercept differs between rows.
    - :class:`~kernelweave.MixtureKDA` weights its experts, with
      ``projection="posterior"`` differently for each row. The sum is exact given these
      weights, which ``sample_weights`` returns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.datasets import load_breast_cancer_views
    >>> from kernelweave.inspection import contributions
    >>> cancer = load_breast_cancer_views(as_frame=False)
    >>> model = MultipleKernelFDA(cancer.views, norm=2, alpha=0.1)
    >>> model = model.fit(cancer.data[::3], cancer.target[::3])
    >>> new = cancer.data[1::3]
    >>> found = contributions(model, new)
    >>> found.views, found.parts.shape, found.unit
    (['mean', 'error', 'worst'], (190, 3), 'log odds of 1')
    >>> total = found.parts.sum(axis=1) + found.intercept
    >>> bool(np.allclose(total, model.decision_function(new)))
    True
    """
    labels = row_labels(X) if as_frame else None
    model, X = model_and_rows(model, X)
    _require_decision(model)
    terms = to_numpy(model._project_each(X, "contributions")).astype(np.float64)
    views, view_of = views_of(model)
    projected = np.stack(  # (m, v, r)
        [terms[:, view_of == v].sum(axis=1) for v in range(len(views))], axis=1
    )
    readout = readout_of(model, X)
    parts = projected @ readout.matrix  # (m, v, q)
    intercept = _intercepts(model, readout, terms)
    if readout.outputs is None:
        parts, intercept = parts[:, :, 0], intercept[:, 0]
    found = Bunch(
        parts=parts,
        intercept=intercept,
        views=views,
        outputs=readout.outputs,
        unit=readout.unit,
    )
    return found if labels is None else _frame(found, labels)


def readout_of(model: Any, X: Any = None) -> Readout:
    """The affine function from projections to decision values of a fitted model.

    ``X`` is needed where rows have variances of their own.
    """
    if hasattr(model, "gaussians_"):
        return _of_gaussians(model, X)
    offset = to_numpy(model.intercept_).astype(np.float64).reshape(-1)  # (q,)
    matrix, classes = np.eye(len(offset)), getattr(model, "classes_", None)
    if classes is None:
        several = len(offset) > 1
        targets = np.arange(len(offset)) if several else None
        return Readout(matrix, offset, targets, "prediction")
    if len(classes) == 2:
        unit = f"decision value for {classes[1]} in margins"
        return Readout(matrix, offset, None, unit)
    return Readout(matrix, offset, classes, "decision value in margins")


def _of_gaussians(model: Any, X: Any) -> Readout:
    """The readout of class Gaussians, which is affine: values at r + 1 points fix it.

    Asking the Gaussians, rather than repeating their formula here, keeps one
    implementation of the class scores.
    """
    gaussians: ClassGaussians = model.gaussians_
    classes, r = model.classes_, int(np.shape(gaussians.means)[1])
    points = np.concatenate([np.zeros((1, r)), np.eye(r)])  # the origin, unit vectors
    if hasattr(model, "predict_distribution"):
        variance = to_numpy(model.predict_distribution(X)[1]).astype(np.float64)
        values = np.stack(  # (m, r + 1, k)
            [
                gaussians.log_joint(np.tile(z, (len(variance), 1)), variance)
                for z in points
            ],
            axis=1,
        )
    else:
        values = gaussians.log_joint(points)  # (r + 1, k)
    unit, outputs = "log density of row and class", classes
    if len(classes) == 2:
        values = values[..., 1:] - values[..., :1]
        unit, outputs = f"log odds of {classes[1]}", None
    offset = values[..., 0, :]
    return Readout(values[..., 1:, :] - offset[..., None, :], offset, outputs, unit)


def _intercepts(model: Any, readout: Readout, terms: np.ndarray) -> np.ndarray:
    """The constant part (m, q) of each row; ``terms`` (m, p, r) are its projections."""
    offset = np.broadcast_to(readout.offset, (len(terms), readout.offset.shape[-1]))
    if model.missing == "error" or not hasattr(model, "gaussians_"):
        return offset.copy()
    # A row without any view projects to exactly zero; only the class shares are known.
    shares = np.asarray(model.gaussians_.log_prior, dtype=np.float64)
    if readout.outputs is None:
        shares = shares[1:] - shares[:1]
    known = np.any(terms != 0, axis=(1, 2))[:, None]
    return np.where(known, offset, shares[None, :])


def _require_decision(model: Any) -> None:
    """Refuse transformers, which decide nothing."""
    if hasattr(model, "gaussians_") or hasattr(model, "intercept_"):
        return
    raise TypeError(
        f"{type(model).__name__} learns kernel weights but predicts nothing, so there "
        "is no decision to split; explain the estimator that follows it, or use a "
        "classifier or regressor of this package such as MultipleKernelFDA"
    )


def _frame(found: Bunch, index: list[Any]) -> Any:
    """A DataFrame whose rows, or the rows of ``frame[output]``, sum to the decision."""
    pd = library(
        "pandas",
        "as_frame=True needs pandas, which is not installed; install it with "
        "pip install 'kernelweave[tables]', or use as_frame=False",
    )
    columns = [*found.views, "intercept"]
    whole = np.concatenate([found.parts, found.intercept[:, None]], axis=1)
    if found.outputs is None:
        names = pd.Index(columns, name="view")
        return pd.DataFrame(whole, index=index, columns=names)
    return pd.concat(
        {
            output: pd.DataFrame(whole[:, :, c], index=index, columns=columns)
            for c, output in enumerate(found.outputs.tolist())
        },
        axis=1,
        names=["output", "view"],
    )
