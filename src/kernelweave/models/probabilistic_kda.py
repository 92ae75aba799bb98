"""Kernel discriminant analysis with the variances of its projections."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np

from kernelweave._array import Array, at_home, from_numpy, is_array, namespace, to_numpy
from kernelweave._text import counted, numbered
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.fits.predictive import PredictivePath, choose_noise, excess_remark
from kernelweave.fits.ridge import steepness_of
from kernelweave.fits.targets import class_target
from kernelweave.models.shared.base import (
    KernelDiscriminant,
    Missing,
    Progress,
    Psd,
    fit_method,
    of_rows,
)
from kernelweave.models.shared.inputs import (
    check_parameters,
    check_priors,
    one_of,
    positive,
    read_labelled_rows,
)
from kernelweave.models.shared.refits import Refits
from kernelweave.views.missing import ObservedViews


@dataclass(repr=False, eq=False)
class ProbabilisticKDA(KernelDiscriminant):
    """Probabilistic kernel discriminant analysis (PKDA) with uniform kernel weights.

    For each class c the coordinate ``y_c`` (Zhao et al. 2009, Eq. 1) of a row x is
    Gaussian given the training rows (Eqs. 12-14). With G the mean of all kernels,
    each centred and scaled to trace n::

        mean      g(x)' (G + lambda_c I)^-1 y_c
        variance  a_c [ lambda_c (1 + 1/n) + g(x, x) - g(x)' (G + lambda_c I)^-1 g(x) ]

    The variance is that of the Gaussian process: the one in the paper confines x to the
    span of the training rows and is too small elsewhere. With one noise level for all
    classes the distances between means are exactly those of :class:`KernelFDA` with
    that alpha (the paper's Theorem 1 covers only the limit of no noise). A single
    eigendecomposition serves all noise levels, all classes and every row left out.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels; see :class:`KernelFDA`.
    noise : float, "loo" or "ml", default="loo"
        Noise level lambda, relative to the mean eigenvalue of the kernel (if no row
        lacks a view: the alpha of :class:`KernelFDA`). For each class, "loo" takes the
        one with the smallest leave-one-out squared error among 21 levels between 1e-3
        and 1e2 (times the mean weight of rows, copies counted as one), "ml" the one
        with the largest marginal likelihood of rows without their copies.
    amplitude : {"profile", "unit"}, default="profile"
        Scale ``a_c`` of the prior: the best one at each noise level, or 1 as in Eq. 5.
        It affects variances and the choice ``noise="ml"``, but not the means at a given
        noise level.
    class_weight : None, "balanced" or dict, default=None
        Factor for the weights of each class's rows: "balanced" gives every class the
        same total weight, and so the same prior; classes not in the dict have factor 1.
    priors : array-like of shape (k,), default=None
        Probabilities of the classes among new rows, in the order of the sorted labels;
        None takes their shares among the weighted training rows.
    cv : int, splitter, iterable of splits or None, default=5
        Folds for ``cv_score_`` and the temperature of the probabilities: the noise is
        chosen again without the rows of each fold, for three to seven times the cost of
        the fit alone. There are fewer if every class has fewer rows. The folds of an
        int depend on what the rows hold, not on their order. None skips them: the
        temperature then comes from rows left out one by one, at noise levels that were
        chosen with them.
    psd : {"error", "clip", "trust"}, default="error"
        What to do with a kernel that is not positive semidefinite.
    missing : {"zero", "available", "error"}, default="zero"
        What to do with a row that lacks a view (its entries there are all NaN): fill
        its entries in that view's kernels with zeros, so that the view adds nothing,
        or with the mean over the available kernels, or refuse it. If it is
        not refused, its variance grows by the prior variance of the kernels it lacks.
        See :doc:`/user_guide/missing_views`.
    device : str, default=None
        Where kernels are computed if X is in host memory: "cuda" sends rows to a GPU
        through torch (CuPy if torch is not installed), "cupy" through CuPy. Results
        are returned to where X is.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        Class labels.
    noise_, amplitude_ : array of shape (k,)
        Noise level and amplitude of each class.
    kernel_weights_ : array of shape (p,)
        Weight of each kernel: uniform, but 0 for constant kernels.
    kernel_names_ : list of str
        Name of each kernel.
    view_weights_ : dict
        Sum of the weights of each view's kernels.
    view_shares_ : dict
        ``view_weights_`` scaled to sum to one: each view's part of the trace of the
        combined kernel, whatever the norm.
    dual_coef_ : array of shape (n, k)
        Coefficients of the training rows.
    cv_score_, cv_standard_error_ : float
        Accuracy on folds in which everything, noise levels and widths of kernels
        included, was learned without the held-out rows, and its standard error: what to
        expect on new rows. Absent for ``cv=None``.
    loo_mean_, loo_variance_ : array of shape (n, k)
        Prediction of row i by the model fitted without it.
    loo_log_density_ : float
        Leave-one-out log density of the class coordinates, per row.
    loo_error_, loo_score_ : float
        Leave-one-out squared error on the class coordinates, and accuracy, as in
        :class:`KernelFDA`.
    gaussians_ : ClassGaussians
        Class means, variance and prior in the space of the coordinates.
    n_iter_ : int
        Number of factorisations.
    column_summary_ : list of dict
        What each view does with each of its columns; see :doc:`/user_guide/tables`.
    n_features_in_ : int
        Number of features (of training rows if precomputed).
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, if X has string column names.

    See Also
    --------
    KernelFDA : The same projection with one regularisation and no variances.
    MixtureKDA : One such model per kernel, with learned weights.

    References
    ----------
    Zhao, Yu, Ye, Liu. Nonlinear multiple kernel learning via mixture of probabilistic
    kernel discriminant analysis. 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import ProbabilisticKDA
    >>> X, y = load_wine(return_X_y=True)
    >>> model = ProbabilisticKDA([("all", "rbf", slice(None))]).fit(X[::2], y[::2])
    >>> near = model.predict_distribution(X[1:2])[1]
    >>> far = model.predict_distribution(10 * X[1:2])[1]
    >>> bool((far > near).all())
    True
    """

    _fixed_sum = False  # rows have variances of their own
    views: Any = None
    _: KW_ONLY
    noise: float | Literal["loo", "ml"] = "loo"
    amplitude: Literal["profile", "unit"] = "profile"
    class_weight: Any = None
    priors: Any = None
    cv: Any = 5
    psd: Psd = "error"
    missing: Missing = "zero"
    device: str | None = None
    verbose: int = 0

    @fit_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows and labels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d), or precomputed kernels of shape \
(n, n) or (n, n, p)
            Training rows.
        y : array-like of shape (n,)
            Class labels: numbers, strings or booleans.
        sample_weight : array-like of shape (n,), default=None
            Weights w of the rows: row i has the noise ``noise / w_i``, as the mean of
            w_i rows does, and counts for w_i rows in class shares and scores.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        check_parameters(
            self, noise=positive("loo", "ml"), amplitude=one_of("profile", "unit")
        )
        rows, classes, codes, design = read_labelled_rows(self, X, y, sample_weight)
        priors = check_priors(self.priors, classes)
        progress = Progress(self, X, y, sample_weight)
        bank = rows.kernels(progress.kernel)
        kernel_map = rows.kernel_map
        weights = np.full(bank.n_kernels, 1.0 / bank.n_kernels)
        target = class_target(codes, len(classes), design.weights)
        observed = kernel_map.source.observed
        unknown = _unknown(kernel_map, observed, kernel_map.spread(weights))
        path = PredictivePath(
            bank.combine(weights), from_numpy(target, bank.like), unknown, design
        )
        noise = self.noise
        if not isinstance(noise, str):  # zeros filled in lower the mean eigenvalue
            noise = float(noise) / path.mean_eigenvalue
        expert = choose_noise(path, noise, self.amplitude)
        gaussians = ClassGaussians.fit(
            expert.held_out, path.target, codes, expert.variance, design, priors
        )
        refits = Refits(self, X, sample_weight, classes, codes, design, progress)
        folds = refits.score()
        error = design.mean_square(path.target - expert.mean)
        score = design.each @ np.sum(expert.log_density, axis=1) / design.total
        steepness = steepness_of(expert.coef, expert.held_out)
        remark = excess_remark(self.noise, float(np.mean(expert.excess)))
        self._set_weights(rows, weights, classes)
        self._path, self.n_iter_ = path, 1
        self.noise_ = from_numpy(expert.noise, rows.like)
        self.amplitude_ = from_numpy(expert.amplitude, rows.like)
        self.dual_coef_ = from_numpy(expert.coef, rows.like)
        self.loo_mean_ = from_numpy(expert.mean, rows.like)
        self.loo_variance_ = from_numpy(expert.variance, rows.like)
        self.loo_error_, self.loo_log_density_ = error, float(score)
        self._set_scores(folds, gaussians)
        self._note_rounding(steepness)
        if remark is not None:
            self._note(remark)
        progress.end()
        return self

    def _coordinates(self, X: Any, method: str) -> tuple[Array, Array, np.ndarray]:
        rows = self._observed_rows(X, method)
        return *self._distribution(rows), rows.observed

    def _spread_of(self, X: Any) -> Array:
        return self.predict_distribution(X)[1]

    @of_rows
    def predict_distribution(self, X: Any, diagonal: Any = None) -> tuple[Array, Array]:
        """Mean and variance of the class coordinates of rows.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.
        diagonal : array-like of shape (m,) or (m, p), default=None
            ``k(x, x)`` of each precomputed kernel. Kernels with a constant diagonal do
            not need it; for others the part of x outside the span of the training rows
            is unknown, and taken to be the median of that of the training rows.

        Returns
        -------
        mean, variance : arrays of shape (m, k)
            The variance includes the noise.
        """
        rows = self._observed_rows(X, "predict_distribution")
        return self._distribution(rows, diagonal)

    def _distribution(
        self, rows: ObservedViews, diagonal: Any = None
    ) -> tuple[Array, Array]:
        weights = to_numpy(self.kernel_weights_)
        known = None
        if diagonal is not None:
            known = self._check_diagonal(diagonal, rows.observed)
        noise = to_numpy(self.noise_)
        means, variances = [], []
        for part, piece in self.kernel_map_.pieces(rows):
            own = None if known is None else known[part, :]
            with numbered(part.start):
                cross, norms = self.kernel_map_.cross_and_lengths(piece, weights, own)
            means.append(cross @ self.dual_coef_)
            found, values = self._path.variance_factor, self._path.eigenvalues
            there, lengths = at_home(cross, values), at_home(norms, values)
            variance = at_home(found(there, lengths, noise), cross)
            unknown = _unknown(self.kernel_map_, piece.observed, weights)
            variances.append(variance + from_numpy(unknown, variance)[:, None])
        xp = namespace(*means)
        return xp.concat(means), xp.concat(variances) * self.amplitude_[None, :]

    def _check_diagonal(self, diagonal: Any, observed: np.ndarray) -> Array:
        """``k(x, x)`` (m, p), finite for kernels of ``observed`` (m, v) views."""
        values = to_numpy(diagonal) if is_array(diagonal) else np.asarray(diagonal)
        p = len(self.kernel_names_)
        seen = np.ones((len(observed), p), dtype=bool)
        if self._gaps:
            seen = observed[:, self.kernel_map_.view_of]
        if values.ndim == 1 and p == 1:
            values = values[:, None]
        if values.shape != seen.shape or not np.all(np.isfinite(values[seen])):
            raise ValueError(
                f"diagonal must hold finite k(x, x) of {counted(p, 'kernel')} for "
                f"{counted(len(seen), 'row')}; found shape {values.shape}"
            )
        return from_numpy(values, self._like)


def _unknown(
    kernel_map: Any, observed: np.ndarray | None, weights: np.ndarray
) -> np.ndarray:
    """Prior variance (m,), divided by the amplitude, of the kernels that rows lack.

    It is a single zero if they lack none. A kernel has mean square one over the rows
    that have it. Entries filled in serve the mean; in the variance they would count as
    knowledge of the row.
    """
    if observed is None or np.all(observed):
        return np.zeros(1)
    return kernel_map.lacking(observed, weights)
