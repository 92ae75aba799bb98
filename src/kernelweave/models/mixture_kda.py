"""A mixture of probabilistic discriminants, one per kernel, with learned weights."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import isfinite
from typing import Any, Literal, Self

import numpy as np

from kernelweave._array import Array, at_home, from_numpy, namespace, to_numpy
from kernelweave.fits.design import RowDesign
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.fits.predictive import (
    Expert,
    PredictivePath,
    choose_noise,
    excess_remark,
)
from kernelweave.fits.ridge import steepness_of
from kernelweave.kernels.maps.kernel_map import moved_rows
from kernelweave.kernels.spec import warn_twins
from kernelweave.learn.folds import FoldScore
from kernelweave.learn.sample import RowMap
from kernelweave.models.mixture.experts import ExpertPanel, ViewMaps
from kernelweave.models.mixture.projection import MixtureProjector
from kernelweave.models.mixture.weights import Mixture, learn_mixture
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
    number,
    on_device,
    one_of,
    positive,
    read_weighted_views,
)
from kernelweave.models.shared.refits import Refits
from kernelweave.views.missing import ObservedViews, check_some_view

#: Values that the parameters may take.
MIXTURE_RULES = {
    "weights": one_of("per_class", "shared", "uniform", "stacking"),
    "concentration": number("a finite number >= 0", lambda v: isfinite(v) and v >= 0),
    "projection": one_of("prior", "posterior"),
    "noise": positive("loo", "ml", "em"),
    "solver": one_of("auto", "newton", "em"),
}


@dataclass(frozen=True)
class MixtureSample:
    """The training rows of a mixture.

    Attributes
    ----------
    data : ObservedViews
        The n rows of positive weight, and which views they have.
    rows : RowMap
        How rows are mapped to the kernels: ``kernel_map`` is of :class:`ViewMaps`.
    classes : ndarray of shape (k,)
        Labels.
    codes : ndarray of int of shape (n,)
        The classes 0 .. k - 1 of the rows.
    design : RowDesign
        The weights of the rows.
    priors : ndarray of shape (k,) or None
        Probabilities of the classes among new rows, if given.
    """

    data: ObservedViews
    rows: RowMap
    classes: np.ndarray
    codes: np.ndarray
    design: RowDesign
    priors: np.ndarray | None


@dataclass(frozen=True)
class MixtureHead:
    """What turns projections into classes, from rows left out of the experts.

    Attributes
    ----------
    held_out : ndarray of shape (n, k)
        Combined leave-one-out means about the intercept of all rows.
    error : float
        Squared error of the combined leave-one-out means.
    gaussians : ClassGaussians
        Class means, variance and priors of ``held_out``.
    steepness : float
        That of the steepest view, see :func:`steepness_of`.
    """

    held_out: np.ndarray
    error: float
    gaussians: ClassGaussians
    steepness: float


def judge(
    sample: MixtureSample, mixture: Mixture, projector: MixtureProjector, local: bool
) -> MixtureHead:
    """Judge the mixture by rows left out, with posterior weights if ``local``."""
    panel, design = mixture.panel, sample.design
    share = projector.shares(sample.data, local, own=True)
    held_out, mean = (
        np.sum(share * np.nan_to_num(of_experts), axis=1)  # (n, k)
        for of_experts in (panel.held_out, panel.mean)
    )
    spread = projector.spread(sample.data.observed)
    gaussians = ClassGaussians.fit(
        held_out, panel.target, sample.codes, spread, design, sample.priors
    )
    steepness = [
        steepness_of(to_numpy(coef) * weights, held_out)
        for coef, weights in zip(panel.coef, mixture.weights, strict=True)
        if coef is not None
    ]
    error = design.mean_square(panel.target - mean)
    return MixtureHead(held_out, error, gaussians, max(steepness))


@dataclass(repr=False, eq=False)
class MixtureKDA(KernelDiscriminant):
    """Mixture of probabilistic kernel discriminants, one expert per kernel (MPKDA).

    For each class c, expert l predicts the coordinate ``y_ic`` (Zhao et al. 2009, Eq.
    1) of each row from all other rows, with density ``p_ilc`` in closed form, and the
    weights maximise (Eq. 17 with these densities)::

        sum_i log sum_l pi_lc p_ilc  +  kappa sum_l log pi_lc,   sum_l pi_lc = 1

    which is concave: the optimum comes with a certificate. New rows project to
    ``z_c(x) = sum_l pi_lc m_lc(x)`` (Eq. 23). The published algorithm takes the density
    of a row from a fit that includes that row, so its likelihood has no maximum.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels; see :class:`KernelFDA`. Each kernel is one
        expert.
    weights : {"per_class", "shared", "uniform", "stacking"}, default="per_class"
        One mixture per class; one for all classes; equal weights; or, per class, the
        weights that minimise the squared error of the leave-one-out mean.
    concentration : float >= 0, default=0.1
        Strength of the Dirichlet prior towards equal weights: ``kappa = concentration
        n / p``. 0: maximum likelihood (sparse). Used only where the weights maximise a
        likelihood.
    projection : {"prior", "posterior"}, default="prior"
        "posterior" weights the experts separately for each row, by the density at that
        row of the training rows each expert is responsible for (Eqs. 24-26).
    noise : float, "loo", "ml" or "em", default="loo"
        Noise level of each expert and class, relative to the mean eigenvalue of its
        kernel: fixed, or the one with the smallest leave-one-out squared error ("loo")
        or the largest marginal likelihood of rows without their copies ("ml"), among 21
        levels between 1e-3 and 1e2 times the mean weight of rows, copies counted as
        one; "em" chooses noise and weights alternately, by the density, which is
        largest without noise where rows have copies.
    class_weight : None, "balanced" or dict, default=None
        Factor for the weights of each class's rows: "balanced" gives every class the
        same total weight, and so the same prior; classes not in the dict have factor 1.
    priors : array-like of shape (k,), default=None
        Probabilities of the classes among new rows, in the order of the sorted labels;
        None takes their shares among the weighted training rows.
    cv : int, splitter, iterable of splits or None, default=5
        Folds for ``cv_score_`` and the temperature of the probabilities: noise levels
        and weights are learned again without the rows of each fold, for four to six
        times the cost of the fit alone. There are fewer if every class has fewer rows.
        The folds of an int depend on what the rows hold, not on their order. None skips
        them: the temperature then comes from rows left out one by one, at the levels
        and weights that were learned with them.
    missing : {"available", "zero", "error"}, default="available"
        What to do with a row that lacks a view (its entries there are all NaN): train
        each expert on the rows that have its view, and renormalise the weights over the
        experts that a row has ("available"); fill centred kernels with zeros ("zero");
        or refuse it. See :doc:`/user_guide/mixture`.
    solver : {"auto", "newton", "em"}, default="auto"
        How the concave problem is solved; "auto" is Newton's method. Where rows lack
        views (``missing="available"``) it is not concave, and EM solves it.
    tol : float, default=1e-6
        Gap to reach, in nats per row; relative for ``weights="stacking"``; stationarity
        where rows lack views.
    max_iter : int, default=None
        Maximum number of iterations; None leaves it to the solver.
    psd : {"error", "clip", "trust"}, default="error"
        What to do with a kernel that is not positive semidefinite.
    device : str, default=None
        Where kernels are computed if X is in host memory: "cuda" sends rows to a GPU
        through torch (CuPy if torch is not installed), "cupy" through CuPy. Results
        are returned to where X is.
    verbose : int, default=0
        Print progress: 1 for iterations, 2 for kernels too.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        Class labels.
    class_weights_ : array of shape (p, k)
        Weight of each kernel for each class; columns sum to one.
    kernel_weights_ : array of shape (p,)
        Mean of ``class_weights_`` over the classes.
    kernel_names_ : list of str
        Name of each kernel.
    view_weights_ : dict
        Sum of the weights of each view's kernels.
    view_shares_ : dict
        Equal to ``view_weights_``: the weights of a mixture sum to one.
    certificate_ : Certificate
        Value, lower bound and gap of the weights, in nats per row, summed over classes;
        with ``weights="stacking"`` of the squared error per row, the gap relative to
        it. If rows lack views the likelihood is not concave, and a measure of
        stationarity replaces the bound. Absent for uniform weights.
    responsibilities_ : array of shape (n, p, k)
        Responsibility of each expert for each training row; 0 if it lacks the row.
    noise_, amplitude_ : array of shape (p, k)
        Noise level and amplitude (prior scale) of each expert and class.
    loo_mean_, loo_variance_ : array of shape (n, p, k)
        Prediction of each row by each expert fitted without it; NaN if the expert lacks
        the row.
    observed_ : array of bool of shape (n, p)
        Which kernels each training row has.
    cv_score_, cv_standard_error_ : float
        Accuracy on folds in which everything, weights and widths of kernels included,
        was learned without the held-out rows, and its standard error: what to expect on
        new rows. Absent for ``cv=None``.
    loo_projection_ : array of shape (n, k)
        Combined leave-one-out means, about the common intercept of all rows.
    loo_error_, loo_score_ : float
        Squared error of the combined leave-one-out means on the class coordinates, and
        leave-one-out accuracy, as in :class:`KernelFDA`.
    gaussians_ : ClassGaussians
        Class means, variance and prior in the projected space.
    n_iter_ : int
        Iterations over all classes.
    column_summary_ : list of dict
        What each view does with each of its columns; see :doc:`/user_guide/tables`.
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

    _fixed_sum = False  # rows may have weights of their own
    _kept = "missing", "projection"

    #: Tables of densities with at least this many entries are solved on the device.
    _large_table = 10**6

    views: Any = None
    _: KW_ONLY
    weights: Literal["per_class", "shared", "uniform", "stacking"] = "per_class"
    concentration: float = 0.1
    projection: Literal["prior", "posterior"] = "prior"
    noise: float | Literal["loo", "ml", "em"] = "loo"
    class_weight: Any = None
    priors: Any = None
    cv: Any = 5
    missing: Missing = "available"
    solver: Literal["auto", "newton", "em"] = "auto"
    tol: float = 1e-6
    max_iter: int | None = None
    psd: Psd = "error"
    device: str | None = None
    verbose: int = 0

    @fit_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows and labels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d), or precomputed kernels of shape \
(n, n) or (n, n, p)
            Training rows. A row lacks a view if all its entries there (or its row and
            column of a precomputed kernel) are NaN; see ``missing``.
        y : array-like of shape (n,)
            Class labels: numbers, strings or booleans.
        sample_weight : array-like of shape (n,), default=None
            Weights r of the rows: row i has the noise ``noise / r_i`` in every expert,
            as the mean of r_i rows does, and counts as r_i rows in the likelihood of
            the weights, class shares and scores. It is left out with all of its weight.
            Rows of weight 0 are left out, and attributes have no entries for them.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        sample = self._read(X, y, sample_weight)
        progress = Progress(self, X, y, sample_weight)
        mixture = self._learn_mixture(sample, progress)
        projector = MixtureProjector(mixture, self.missing == "available")
        head = judge(sample, mixture, projector, self.projection == "posterior")
        classes, codes, design = sample.classes, sample.codes, sample.design
        refits = Refits(self, X, sample_weight, classes, codes, design, progress)
        folds = refits.score()
        self._publish(sample, mixture, projector, head, folds)
        progress.end()
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any = None) -> MixtureSample:
        """Check the parameters, and read the rows."""
        check_parameters(self, **MIXTURE_RULES)
        if self.noise == "em" and self.weights not in ("per_class", "shared"):
            raise ValueError(
                "noise='em' needs weights learned by likelihood ('per_class' or "
                f"'shared'); got weights={self.weights!r}"
            )
        read, labels, design = read_weighted_views(self, X, y, sample_weight)
        classes, codes = np.unique(labels, return_inverse=True)
        priors = check_priors(self.priors, classes)
        warn_twins(read.views, read.positions)
        read, home = on_device(self, read)
        views, data = read.views, read.data
        maps = ViewMaps(views, data, read.names, self.psd, design, classes[codes])
        rows = RowMap(maps, home, maps.views, read.positions)
        return MixtureSample(data, rows, classes, codes, design, priors)

    def _learn_mixture(self, sample: MixtureSample, progress: Progress) -> Mixture:
        """Fit the experts, then their weights: Eq. 17 over leave-one-out densities."""
        experts: dict[int, Expert] = {}
        noise = "loo" if self.noise == "em" else self.noise

        def choose(e: int, path: PredictivePath) -> Expert:
            expert = choose_noise(path, noise)
            if self.noise == "em":  # where the search for better levels starts
                experts[e] = expert
            return expert

        maps, zero = sample.rows.kernel_map, self.missing == "zero"
        panel = ExpertPanel(maps, sample.codes, sample.classes, zero, choose, progress)
        return learn_mixture(self, panel, experts, progress.iteration)

    def _publish(
        self,
        sample: MixtureSample,
        mixture: Mixture,
        projector: MixtureProjector,
        head: MixtureHead,
        folds: FoldScore | None,
    ) -> None:
        """Set the fitted attributes."""
        panel, like, certificate = mixture.panel, sample.rows.like, mixture.certificate
        excess = np.mean(np.sum(mixture.weights * panel.excess, axis=0))
        remark = excess_remark(self.noise, float(excess))
        self._set_weights(sample.rows, np.mean(mixture.weights, axis=1), sample.classes)
        self._projector = projector
        self.class_weights_ = from_numpy(mixture.weights, like)
        self.responsibilities_ = from_numpy(mixture.responsibilities, like)
        self.noise_ = from_numpy(panel.noise, like)
        self.amplitude_ = from_numpy(panel.amplitude, like)
        self.loo_mean_ = from_numpy(panel.mean, like)
        self.loo_variance_ = from_numpy(panel.variance, like)
        self.observed_ = from_numpy(panel.observed, like, namespace(like).bool)
        self.n_iter_ = mixture.n_iter
        self.loo_projection_ = from_numpy(head.held_out, like)
        self.loo_error_ = head.error
        self._set_scores(folds, head.gaussians)
        self._note_rounding(head.steepness)
        if remark is not None:
            self._note(remark)
        self._set_certificate(certificate)

    def _rows(self, X: Any, method: str) -> ObservedViews:
        data = self._observed_rows(X, method)
        if self._at_fit["missing"] == "available":
            check_some_view(data.observed, "new row")
        return moved_rows(data, self.kernel_map_.like)

    @property
    def _n_features_out(self) -> int:
        return int(self.class_weights_.shape[1])

    def _coordinates(
        self, X: Any, method: str
    ) -> tuple[Array, Array | None, np.ndarray]:
        data = self._rows(X, method)
        projected, spread = self._project(data), self._projector.spread(data.observed)
        spread = None if spread is None else from_numpy(spread, projected)
        return projected, spread, data.observed

    def _spread_of(self, X: Any) -> np.ndarray | None:
        data = self._observed_rows(X, "contributions")
        return self._projector.spread(data.observed)

    def _predict_target(self, X: Any, method: str) -> Array:
        return self._project(self._rows(X, method))

    def _project(self, data: ObservedViews, each: bool = False) -> Array:
        local = self._at_fit["projection"] == "posterior"
        return at_home(self._projector.project(data, local, each), self._like)

    def _project_each(self, X: Any, method: str) -> Array:
        return self._project(self._rows(X, method), each=True)

    @of_rows
    def kernel(self, X: Any, Z: Any = None) -> Array:
        """The learned kernel ``z(x)' z(z)``, linear in the projections.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.
        Z : like X, with r rows, default=None
            Reference rows; X itself if None.

        Returns
        -------
        K : array of shape (m, r)
            The kernel that the paper calls K_NEW.
        """
        return self._inner_products(X, Z)

    @of_rows
    def sample_weights(
        self, X: Any, *, projection: str | None = None, per_class: bool = False
    ) -> Array:
        """Weight of each kernel for each row.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.
        projection : {"prior", "posterior"}, default=None
            Which weights to return, by default those that the model uses. Prior weights
            differ between rows only if the rows lack different views.
        per_class : bool, default=False
            Whether to return the weights of each class instead of their mean.

        Returns
        -------
        weights : array of shape (m, p), or (m, p, k) if ``per_class``
            The weights, which sum to one over the kernels.
        """
        if projection not in (None, "prior", "posterior"):
            raise ValueError(
                f"projection must be 'prior', 'posterior' or None; got {projection!r}"
            )
        rows = self._rows(X, "sample_weights")
        local = (projection or self._at_fit["projection"]) == "posterior"
        share = self._projector.shares(rows, local)
        return from_numpy(share if per_class else np.mean(share, axis=2), self._like)
