"""A mixture of probabilistic discriminants, one a kernel, with learned weights."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from kernelweave._array import Array, detached, device, from_numpy, namespace
from kernelweave._memory import require_memory
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.fits.targets import class_target
from kernelweave.models.mixture.experts import ExpertPanel, ViewMaps, sources_of
from kernelweave.models.mixture.observed import ObservedRowsMixin
from kernelweave.models.mixture.printed_em import printed_em
from kernelweave.models.mixture.projection import MixtureProjector
from kernelweave.models.mixture.weights import (
    Outcome,
    check_mixture_parameters,
    learn_mixture_weights,
    summarise,
)
from kernelweave.models.shared.discriminant import KernelDiscriminant
from kernelweave.models.shared.progress import Progress
from kernelweave.models.shared.transaction import fit_method
from kernelweave.solvers.em import truncated_responsibilities
from kernelweave.views.missing import (
    ObservedViews,
    check_every_view,
    check_some_view,
)

__all__ = ["MixtureKDA"]


class MixtureKDA(ObservedRowsMixin, KernelDiscriminant):
    """Mixture of probabilistic kernel discriminants, one expert a kernel (MPKDA).

    For each class c, expert l predicts the coordinate ``y_ic`` (Zhao et al. 2009, Eq.
    1) of each row from all other rows, with density ``p_ilc`` in closed form, and the
    weights maximise (Eq. 16 with these densities)::

        sum_i log sum_l pi_lc p_ilc  +  kappa sum_l log pi_lc,   sum_l pi_lc = 1

    which is concave: the optimum comes with a certificate. New rows project to
    ``z_c(x) = sum_l pi_lc m_lc(x)`` (Eq. 23). The printed algorithm has the density of
    a row inside the fit to it and no maximum; see ``density``.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels; see :class:`KernelFDA`. Each kernel is one
        expert.
    weights : {"per_class", "shared", "uniform", "stacking"}, default="per_class"
        One mixture for each class; one for all; equal weights; or the weights for which
        the leave-one-out mean has the smallest squared error, for each class.
    concentration : float >= 0, default=0.1
        Strength of the Dirichlet prior towards equal weights: ``kappa = concentration
        n / p``. 0 is maximum likelihood, with few kernels. For likelihoods only.
    projection : {"prior", "posterior"}, default="prior"
        "posterior" weighs the experts anew for each row, by its similarity to the rows
        each is responsible for (Eqs. 24-26).
    posterior : {"kde", "normalised", "printed"}, default="kde"
        The form of posterior weights: a density estimate of each expert's rows; the
        printed weights over their sum; or as printed, where they sum to less than 1.
    noise : float, "loo", "ml" or "em", default="loo"
        Noise level of each expert and class, relative to the mean eigenvalue of its
        kernel: fixed, or of 21 levels between 1e-3 and 1e2 the one with the largest
        leave-one-out density or marginal likelihood; "em" chooses noise and weights in
        turn, each for what the other makes of the rows.
    amplitude : {"profile", "unit"}, default="profile"
        Prior scale: the best one at each noise level, or 1 as in Eq. 5.
    likelihood : {"gaussian", "student", "tprocess"}, default="gaussian"
        Density of a row given the others.
    dof : float > 2, default=4.0
        Degrees of freedom of the last two.
    density : {"loo", "insample"}, default="loo"
        "insample" runs the algorithm as printed (Eqs. 13-20), for study: it warns. A
        number is then the noise to start from, 1 by default; there is no prior and no
        amplitude.
    missing : {"error", "available", "zero"}, default="error"
        What to do with a row that lacks a view, all entries of which are NaN.
        "available" trains each expert on its rows and, for each row, divides the
        weights by the sum of those it has. "zero" fills centred kernels with zeros.
    solver : {"auto", "newton", "em"}, default="auto"
        How the concave problem is solved. "auto" is Newton's method.
    tol : float, default=1e-6
        Gap to reach, in nats a row.
    max_iter : int, default=None
        Iterations allowed; None leaves it to the solver.
    psd : {"error", "clip", "trust"}, default="error"
        What to do with a kernel that is not positive semidefinite.
    verbose : int, default=0
        Print progress: 1 for iterations, 2 for kernels too.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        Class labels.
    class_weights_ : array of shape (p, k)
        Weight of each kernel for each class; columns sum to one.
    kernel_weights_ : array of shape (p,)
        Their mean over the classes.
    kernel_names_ : list of str
        Name of each kernel.
    view_weights_ : dict
        Sum of the weights of each view's kernels.
    certificate_ : Certificate
        Value, lower bound and gap of the weights, in nats a row, summed over classes.
        Where rows lack views the problem is not concave: a stationarity takes the place
        of the bound. None is needed for uniform weights.
    responsibilities_ : array of shape (n, p, k)
        Share of each expert in each training row; 0 where it lacks the row.
    noise_, amplitude_ : array of shape (p, k)
        Noise level and amplitude of each expert and class.
    loo_mean_, loo_variance_ : array of shape (n, p, k)
        What each expert fitted without row i says of it; NaN where it lacks the row.
    observed_ : array of bool of shape (n, p)
        Which training rows have which kernel.
    loo_projection_ : array of shape (n, k)
        Combined leave-one-out means, around the intercept of all rows.
    loo_error_, loo_score_ : float
        Their squared error on the class coordinates, and the accuracy of rows left out,
        as in :class:`KernelFDA`.
    gaussians_ : ClassGaussians
        Class means, variance and prior in the projected space.
    n_iter_ : int
        Iterations over all classes.
    n_features_in_ : int
        Number of features (of training rows if precomputed).
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, if X has string column names.

    See Also
    --------
    ProbabilisticKDA : One expert on the mean of all kernels.
    MultipleKernelFDA : One discriminant on a learned sum of kernels.

    References
    ----------
    Zhao, Yu, Ye, Liu. Nonlinear multiple kernel learning via mixture of probabilistic
    kernel discriminant analysis. 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import MixtureKDA
    >>> X, y = load_wine(return_X_y=True)
    >>> X[::5, :6] = float("nan")  # these rows lack the first view
    >>> views = [("acids", "auto", slice(0, 6)), ("rest", "auto", slice(6, 13))]
    >>> model = MixtureKDA(views, missing="available").fit(X, y)
    >>> model.predict(X[:5]).tolist()
    [0, 0, 0, 0, 0]
    """

    kernel_map_: ViewMaps  # type: ignore[assignment]

    def __init__(
        self,
        views: Any = None,
        *,
        weights: str = "per_class",
        concentration: float = 0.1,
        projection: str = "prior",
        posterior: str = "kde",
        noise: float | str = "loo",
        amplitude: str = "profile",
        likelihood: str = "gaussian",
        dof: float = 4.0,
        density: str = "loo",
        missing: str = "error",
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int | None = None,
        psd: str = "error",
        verbose: int = 0,
    ) -> None:
        self.views = views
        self.weights = weights
        self.concentration = concentration
        self.projection = projection
        self.posterior = posterior
        self.noise = noise
        self.amplitude = amplitude
        self.likelihood = likelihood
        self.dof = dof
        self.density = density
        self.missing = missing
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.psd = psd
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_mixture_parameters(self)

    @fit_method
    def fit(self, X: Any, y: Any) -> MixtureKDA:
        """Learn from rows and labels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d), or precomputed kernels of shape \
(n, n) or (n, n, p)
            Training rows. A row whose entries of a view (or row and column of a kernel)
            are all NaN lacks the view; see ``missing``.
        y : array-like of shape (n,)
            Class labels: numbers, strings or booleans.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        self._check_parameters()
        data, names = self._open_views(X)
        codes = self._encode(X, y)
        check_every_view(data.observed, names)
        check_some_view(data.observed, "training")
        progress = Progress(self, X, y)
        sources = sources_of(self._views, data, names)
        self._like = detached(sources[0].like[:0, ...])
        self.kernel_map_ = ViewMaps(sources, data.observed, self.psd)  # type: ignore[arg-type]
        self.kernel_names_ = list(self.kernel_map_.names)
        target = class_target(codes, len(self.classes_))
        zero = self.missing == "zero"
        panel = ExpertPanel.empty(self.kernel_map_, target, codes, zero)
        self._require_memory()
        for number, gram in self.kernel_map_.fit(progress):
            panel.add(number, gram, self)
        panel.allow(codes, self.kernel_map_)
        for remark in panel.remarks(self.kernel_map_, self.classes_):
            self.kernel_map_.remarks.append(remark)
            warnings.warn(remark, KernelWarning, stacklevel=3)
        weights, shares, outcomes = self._set_mixture(panel, progress)
        self._projector = MixtureProjector(
            self.kernel_map_,
            panel.coef,
            panel.intercept,
            weights,
            panel.allowed,
            shares,
            zero,
        )
        self._set_projection(panel, data, codes)
        if outcomes:
            self._set_certificate(summarise(outcomes, self._problem()))
        progress.end()
        return self

    def _require_memory(self) -> None:
        """The printed algorithm keeps all eigenvectors: see that they fit."""
        if self.density == "insample":
            p, n = len(self.kernel_names_), len(self.kernel_map_.observed)
            itemsize = namespace(self._like).finfo(self._like.dtype).bits // 8
            require_memory(
                p * n * n * itemsize,
                f"density='insample' with {p} kernels over {n} rows",
                "use density='loo', or fewer kernels or rows",
                like=self._like,
            )

    def _set_mixture(
        self, panel: ExpertPanel, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray, list[Outcome]]:
        """Learn weights (p, k) and responsibilities (n, p, k); publish the panel."""
        if self.density == "insample":
            weights, outcomes = printed_em(self, panel, self._like)
        else:
            weights, outcomes = learn_mixture_weights(
                self, panel, self._like, progress.iteration
            )
        self._set_weights(np.mean(weights, axis=1))
        self.n_iter_ = max(1, sum(outcome.n_iter for outcome in outcomes))
        k = weights.shape[1]
        shares = np.stack(
            [
                truncated_responsibilities(
                    panel.log_density[:, :, c],
                    panel.observed & panel.allowed[:, c],
                    weights[:, c],
                )
                for c in range(k)
            ],
            axis=2,
        )
        self.class_weights_ = from_numpy(weights, self._like)
        self.responsibilities_ = from_numpy(shares, self._like)
        self.noise_ = from_numpy(panel.noise, self._like)
        self.amplitude_ = from_numpy(panel.amplitude, self._like)
        self.loo_mean_ = from_numpy(panel.mean, self._like)
        self.loo_variance_ = from_numpy(panel.variance, self._like)
        xp = namespace(self._like)
        self.observed_ = xp.asarray(panel.observed, device=device(self._like))
        return weights, shares, outcomes

    def _set_projection(
        self, panel: ExpertPanel, data: ObservedViews, codes: np.ndarray
    ) -> None:
        """Combine the leave-one-out means, and fit the class Gaussians to them."""
        if self.projection == "posterior":
            self._projector.check_similar()
        share = self._projector.shares(data, self._form(), own=True)
        held_out = np.sum(share * np.nan_to_num(panel.held_out), axis=1)
        mean = np.sum(share * np.nan_to_num(panel.mean), axis=1)
        self.loo_error_ = float(np.mean((panel.target - mean) ** 2))
        self.loo_projection_ = from_numpy(held_out, self._like)
        self._set_gaussians(ClassGaussians.fit(held_out, panel.target, codes))

    @property
    def _n_features_out(self) -> int:
        return int(self.class_weights_.shape[1])

    def _form(self, projection: str | None = None) -> str | None:
        """The form of posterior weights, or None for prior ones."""
        chosen = self.projection if projection is None else projection
        return self.posterior if chosen == "posterior" else None

    def _problem(self) -> str:
        if self.weights == "stacking":
            return "leave-one-out squared error of the mixed mean, a class each"
        kind = "in-sample" if self.density == "insample" else "leave-one-out"
        share = "shared" if self.weights == "shared" else "per-class"
        return (
            f"mixture likelihood of {len(self.kernel_names_)} experts, {share} "
            f"weights, {kind} {self.likelihood} densities, nats a row"
        )

    def _predict_target(self, X: Any, method: str) -> Array:
        data = self._observed_rows(X, method)
        return self._projector.project(data, self._form())

    def transform(self, X: Any) -> Array:
        """Combined means of the class coordinates.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        Z : array of shape (m, k)
            One column a class.
        """
        return self._predict_target(X, "transform")

    def kernel(self, X: Any, Z: Any = None) -> Array:
        """The learned kernel ``z(x)' z(z)``, linear in the projections.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.
        Z : like X, of another number r of rows, default=None
            Reference rows; X itself if None.

        Returns
        -------
        K : array of shape (m, r)
            The kernel that the paper calls K_NEW.
        """
        left = self._predict_target(X, "kernel")
        right = left if Z is None else self._predict_target(Z, "kernel")
        return left @ right.T

    def sample_weights(
        self, X: Any, *, projection: str | None = None, per_class: bool = False
    ) -> Array:
        """Which kernel spoke for which row.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.
        projection : {"prior", "posterior"}, default=None
            Weights of this projection, by default those that the model uses. Prior
            weights differ between rows only by the views that these lack.
        per_class : bool, default=False
            Whether to return the weights of each class, instead of their mean.

        Returns
        -------
        weights : array of shape (m, p), or (m, p, k) if ``per_class``
            They sum to one over the kernels (except in the printed form).
        """
        if projection not in (None, "prior", "posterior"):
            raise ValueError(
                f"projection must be 'prior', 'posterior' or None; got {projection!r}"
            )
        data = self._observed_rows(X, "sample_weights")
        form = self._form(projection)
        if form is not None:
            self._projector.check_similar()
        share = self._projector.shares(data, form)
        return from_numpy(share if per_class else np.mean(share, axis=2), self._like)
