"""Kernel weights by alignment with the labels, for any kernel method."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np

from kernelweave._array import (
    Array,
    as_float,
    at_home,
    from_numpy,
    namespace,
    to_numpy,
)
from kernelweave._text import counted
from kernelweave.criteria.alignment import UNRELATED, Alignment
from kernelweave.fits.design import RowDesign
from kernelweave.fits.targets import StandardOutputs, signs_of_codes
from kernelweave.kernels.banks.spectral import feature_coefficients
from kernelweave.models.shared.base import (
    KernelModel,
    KernelTransformer,
    Missing,
    Progress,
    Psd,
    all_or_nothing,
    fit_method,
    of_rows,
)
from kernelweave.models.shared.inputs import (
    Rule,
    as_outputs,
    check_parameters,
    encode_labels,
    map_rows,
    one_of,
    read_numbers_or_labels,
    read_some_labels,
    read_views,
    refuse_unscaled,
)
from kernelweave.protocols import Bank, Criterion
from kernelweave.solvers.solve import Certificate, error_of_value, solve
from kernelweave.weights import SignedSum, Simplex, WeightSet

#: Why weights of any sign need kernels of equal trace: they sum to one.
SIGNED = "reaches every sum of kernels only if their traces are equal"
#: Values that the parameters may take.
ALIGNMENT_RULES = {
    "method": one_of("joint", "independent"),
    "output": one_of("kernel", "features"),
    "unlabelled": Rule(
        "None, an int or a str",
        lambda v: v is None or isinstance(v, str | int | np.integer),
    ),
}


@dataclass(repr=False, eq=False)
class KernelAlignment(KernelTransformer, KernelModel):
    """Weights that align the sum of kernels with the labels.

    Maximises, over weights of kernels that are centred and have trace n, the cosine
    between the sum of kernels and the label kernel T::

        A(w) = <K, T> / (norm(K) norm(T)),     K = sum_i w_i K_i     (Frobenius)

    (Cristianini et al. 2001; Lanckriet et al. 2002, Eq. 11; Cortes et al. 2012). This
    is a single non-negative least-squares problem in the weights: the cheapest way to
    learn them, and independent of the classifier that follows. With row weights r the
    inner product is ``<A, B> = sum_ij r_i r_j A_ij B_ij``, as for copies of the rows.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels; see :class:`MultipleKernelFDA`.
    method : {"joint", "independent"}, default="joint"
        "joint" maximises A ("alignf" of Cortes et al.); "independent" weights each
        kernel by its own alignment ("align"), which ignores redundancy.
    signed : bool, default=False
        Whether weights may be negative as long as the sum is positive semidefinite on
        the training rows.
    output : {"kernel", "features"}, default="kernel"
        What ``transform`` returns: the combined kernel (m, n) between new and training
        rows, for ``SVC(kernel="precomputed")`` and the like in a pipeline, or explicit
        features whose inner products are that kernel, for any other estimator.
    n_components : int, default=None
        The number of features to keep; None keeps all.
    tol : float, default=1e-6
        Relative gap to reach.
    weight_bound : float, default=100
        With ``signed=True``: the largest absolute weight, up to 1e10.
    centre : bool, default=True
        Whether kernels and T are centred in the alignment, as in Cortes et al.
        ``False`` is (11) as printed, where both are dominated by their means if the
        entries of the kernels are positive and the classes unbalanced.
    scale : {"trace", None}, default="trace"
        "trace" multiplies every kernel by a number that makes its trace n. None, which
        needs ``signed=False``, takes kernels as they are; with "joint", the sum of
        kernels is then the same up to a factor, with different weights.
    unlabelled : int or str, default=None
        The label that marks unlabelled rows, such as -1. The alignment, with its
        centring, is that of the labelled rows. The kernels are centred and scaled over
        all rows, on which, with ``signed=True``, their sum must be positive
        semidefinite (Eq. 11). None: every row has a label.
    psd : {"error", "clip", "trust"}, default="error"
        What to do with a kernel that is not positive semidefinite.
    missing : {"zero", "available", "error"}, default="zero"
        What to do with a row that lacks a view (its entries there are all NaN): fill
        its entries in that view's kernels with zeros, so that the view adds nothing,
        or with the mean over the available kernels, or refuse it. See
        :doc:`/user_guide/missing_views`.
    features : {"auto", "on_the_fly"}, default="auto"
        How kernels are held: "auto" keeps n x n matrices if they fit into memory;
        otherwise, and with "on_the_fly", kernels are recomputed on every pass, and the
        memory is that of one matrix. See :doc:`/user_guide/scale`.
    device : str, default=None
        Where kernels are computed if X is in host memory: "cuda" sends rows to a GPU
        through torch (CuPy if torch is not installed), "cupy" through CuPy. Results
        are returned to where X is.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    alignment_ : float
        A at the learned weights.
    kernel_alignments_ : array of shape (p,)
        The alignment of each kernel alone; zero for constant kernels.
    kernel_weights_ : array of shape (p,)
        The learned weight of each kernel; they sum to one.
    kernel_names_ : list of str
        Name of each kernel.
    view_weights_ : dict
        Sum of the weights of each view's kernels.
    view_shares_ : dict
        ``view_weights_`` scaled to sum to one: each view's part of the trace of the
        combined kernel, whatever the norm; of the absolute weights, if signed.
    certificate_ : Certificate
        Value (minus the alignment), lower bound, gap and status; only for
        ``method="joint"``.
    components_ : array of shape (n, r)
        The features are the kernel times this matrix, if ``output="features"``.
    n_iter_ : int
        Number of least-squares problems solved.
    column_summary_ : list of dict
        What each view does with each of its columns; see :doc:`/user_guide/tables`.
    n_features_in_ : int
        Number of features (of training rows if precomputed).
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, if X has string column names.

    See Also
    --------
    MultipleKernelSVC : Weights with the largest margin.

    References
    ----------
    Cortes, Mohri, Rostamizadeh. Algorithms for learning kernels based on centered
    alignment. JMLR 13, 2012.

    Lanckriet, Cristianini, Bartlett, El Ghaoui, Jordan. Learning the kernel matrix with
    semi-definite programming. ICML 2002.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import SVC
    >>> from kernelweave import KernelAlignment
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> views = [("mean", "auto", slice(0, 10)), ("worst", "auto", slice(20, 30))]
    >>> model = make_pipeline(KernelAlignment(views), SVC(kernel="precomputed"))
    >>> model.fit(X[::3], y[::3]).score(X[1::3], y[1::3]) > 0.94
    True
    """

    _least_squares = False
    _weight_set = Simplex()
    views: Any = None
    _: KW_ONLY
    method: Literal["joint", "independent"] = "joint"
    signed: bool = False
    output: Literal["kernel", "features"] = "kernel"
    n_components: int | None = None
    tol: float = 1e-6
    weight_bound: float = 100.0
    centre: bool = True
    scale: Literal["trace"] | None = "trace"
    unlabelled: Any = None
    psd: Psd = "error"
    missing: Missing = "zero"
    features: Literal["auto", "on_the_fly"] = "auto"
    device: str | None = None
    verbose: int = 0
    _kept = "missing", "output"

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the weights.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d), or precomputed kernels of shape \
(n, n) or (n, n, p)
            Training rows.
        y : array-like of shape (n,) or (n, n_outputs)
            Class labels, with ``unlabelled`` for rows that have none; or numeric
            outputs, with T their linear kernel after each is centred and scaled to
            unit variance.
        sample_weight : array-like of shape (n,), default=None
            How often each row counts. Rows of weight 0 are left out, and
            ``transform`` has no columns for them. Precomputed kernels must not contain
            any.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        self._align(X, y, sample_weight)
        return self

    @all_or_nothing
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Learn the weights and combine the kernels of the training rows.

        The same as ``fit(X, y).transform(X)``, up to rounding, in less time: kernels
        that have been computed are not computed again.

        Parameters
        ----------
        X, y : array-like
            As for :meth:`fit`.
        **fit_params : dict
            ``sample_weight``, as for :meth:`fit`.

        Returns
        -------
        Z : array of shape (n, n) or (n, r)
            As from :meth:`transform`.
        """
        kernel = self._align(X, y, **fit_params)
        return self.transform(X) if kernel is None else kernel

    @fit_method
    def _align(self, X: Any, y: Any, sample_weight: Any = None) -> Array | None:
        """Fit, and return the combined kernel of all rows of X if it is at hand."""
        check_parameters(self, **ALIGNMENT_RULES)
        if self.signed and self.method == "independent":
            raise ValueError("method='independent' has no signed form; use 'joint'")
        refuse_unscaled(self, "signed", True, SIGNED)
        read = read_views(self, X)
        target, targets, keep, row_weights = self._read_targets(X, y, sample_weight)
        rows = map_rows(self, read.take(self, keep), targets, row_weights)
        every_row = len(keep) == len(read.data.observed)
        every_row = every_row and bool(np.all(read.data.observed))
        del read  # so that the input is released once the kernels are computed
        progress = Progress(self, X, y, sample_weight)
        bank = rows.kernels(progress.kernel)
        criterion = Alignment(
            bank, target, centred=bool(self.centre), row_weights=row_weights
        )
        weights, n_iter, certificate = self._choose(criterion, row_weights, progress)
        components, left_out = None, 0.0
        if self.output == "features":
            design = RowDesign(bank.n_samples, row_weights)
            gram = design.scale(design.scale(bank.combine(weights)).T)
            trace = float(namespace(gram).linalg.trace(gram))
            components = feature_coefficients(gram, self.n_components)
            if self.n_components is None:  # columns are as long as 1 / sqrt(eigenvalue)
                lengths = to_numpy(namespace(gram).sum(components**2, axis=0))
                left_out = 1.0 - float(np.sum(1.0 / lengths)) / trace
            components = design.scale(components)
            components = as_float(at_home(components, rows.like), rows.like.dtype)
        alignment = criterion.alignment(weights)
        alignments = rows.kernel_map.spread(criterion.cosines)
        kernel, at_hand = None, self.device is None and bank.held_as == "kernels"
        if every_row and at_hand and self.output == "kernel":
            kernel = bank.combine(weights)
        self._set_weights(rows, weights)
        self.n_iter_, self.alignment_ = n_iter, alignment
        self.kernel_alignments_ = from_numpy(alignments, rows.like)
        if components is not None:
            self.components_ = components
        self._note_rounding(left_out=left_out)
        self._set_certificate(certificate)
        progress.end()
        return kernel

    def _read_targets(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[np.ndarray, Any, np.ndarray, np.ndarray | None]:
        """H of the rows that count, their targets, these rows, and their weights."""
        if self.unlabelled is None:
            found = read_numbers_or_labels(X, y, sample_weight, type(self).__name__)
            targets, kind, keep, weights = found
            return self._target(targets, kind, weights), targets, keep, weights
        classes, codes, known, keep, weights = read_some_labels(
            self, X, y, sample_weight
        )
        return _indicators(codes[keep], len(classes)), known, keep, weights

    def _target(
        self, y: np.ndarray, kind: str, row_weights: np.ndarray | None
    ) -> np.ndarray:
        """H of ``T = H H'``: +-1 (n, 1), class indicators (n, k), or scaled outputs."""
        owner = type(self).__name__
        if kind in ("binary", "multiclass"):
            classes, codes = encode_labels(y, owner)
            return _indicators(codes, len(classes))
        outputs = as_outputs(y, kind, owner)
        target = StandardOutputs.of(outputs, row_weights).target
        if not np.any(target):
            raise ValueError(
                f"y is constant, up to rounding, over {counted(len(y), 'sample')}: "
                "there is nothing to align with"
            )
        return target

    def _weight_criterion(
        self, bank: Bank, targets: np.ndarray, design: RowDesign
    ) -> Criterion:
        """The joint problem of classes, or of outputs."""
        kind = "multiclass" if targets.ndim == 1 else "continuous"
        target = self._target(targets, kind, design.weights)
        return Alignment(bank, target, row_weights=design.weights)

    def _choose(
        self, criterion: Alignment, row_weights: np.ndarray | None, progress: Progress
    ) -> tuple[np.ndarray, int, Certificate | None]:
        """Weights (p,), problems solved, and the certificate of the joint problem."""
        if self.method == "independent":
            positive = np.maximum(criterion.cosines, 0.0)
            if not np.any(positive > 0):
                positive = np.ones_like(positive)
            return positive / np.sum(positive), 1, None
        weight_set: WeightSet = self._weight_set
        if self.signed:
            bound = float(self.weight_bound)
            weight_set = SignedSum(criterion.bank, bound, row_weights)
        solution = solve(
            criterion, weight_set, tol=self.tol, callback=progress.iteration
        )
        sign = "signed" if self.signed else "non-negative"
        centred = "centred " if self.centre else ""
        weighted = "" if row_weights is None else ", weighted rows"
        problem = f"minus the {centred}alignment, {sign} weights{weighted}"
        slope = criterion.sensitivity(solution.weights) / max(
            -solution.value, UNRELATED
        )
        error = error_of_value(criterion.bank, solution.weights, slope)
        certificate = Certificate.of(solution, problem, error)
        return solution.weights, solution.n_iter, certificate

    @property
    def _n_features_out(self) -> int:
        if self._at_fit["output"] == "features":
            return int(self.components_.shape[1])
        return self.kernel_map_.source.n_samples

    @of_rows
    def transform(self, X: Any) -> np.ndarray:
        """The combined kernel between rows and training rows, or their features.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        Z : array of shape (m, n) or (m, r)
            Kernel or features, depending on ``output``.
        """
        rows = self._observed_rows(
            X, "transform"
        )  # first: it refuses an unfitted model
        if self._at_fit["output"] == "features":
            return self.kernel_map_.project(rows, self._weights, self.components_)
        return self.kernel_map_.cross(rows, self._weights)


def _indicators(codes: np.ndarray, k: int) -> np.ndarray:
    """H for class codes (n,): +-1 (n, 1) or indicators (n, k), zero where negative."""
    if k == 2:
        return signs_of_codes(codes, k)
    return np.where(codes[:, None] < 0, 0.0, np.eye(k)[codes])
