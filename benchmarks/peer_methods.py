"""The methods of :mod:`peers`, each as ``prepare(split) -> task``.

``prepare`` converts the kernels to the form the method takes and is not timed. The
task trains, and returns a function from test kernels (p, m, n) to class codes (m,).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from problems import Split
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from kernelweave import (
    Fisher,
    KernelAlignment,
    LpBall,
    MultipleKernelFDA,
    MultipleKernelSVC,
    Simplex,
    solve,
)
from kernelweave.fits.ridge import fit_kernel
from kernelweave.fits.targets import binary_target, reduced_class_target
from kernelweave.kernels import DenseBank

Fitted = Callable[[np.ndarray], np.ndarray]
Task = Callable[[], Fitted]

FOLDS = 5
LAMBDAS = np.logspace(-8, 0, 9)
C_GRID = np.logspace(-2, 4, 7)


@dataclass(frozen=True)
class Method:
    """How to prepare a method, its description, and how many kernels it can take."""

    prepare: Callable[[Split], Task]
    text: str
    most_kernels: int = 10_000


def estimator(unfitted: Any) -> Callable[[Split], Task]:
    """An estimator of kernelweave on a stack (n, n, p)."""

    def prepare(split: Split) -> Task:
        stack = np.ascontiguousarray(np.moveaxis(split.train, 0, -1))

        def task() -> Fitted:
            model = clone(unfitted).fit(stack, split.y_train)
            return lambda test: model.predict(np.moveaxis(test, 0, -1))

        return task

    return prepare


def fisher(**parameters: Any) -> MultipleKernelFDA:
    """Discriminant analysis without the folds behind ``cv_score_``."""
    return MultipleKernelFDA("precomputed", cv=None, **parameters)


def aligned(psd: Literal["error", "trust"]) -> Any:
    """Weights by alignment, then scikit-learn's SVC."""
    weights = KernelAlignment("precomputed", psd=psd)
    return make_pipeline(weights, SVC(C=10.0, kernel="precomputed"))


#: The support vector machine of kernelweave.
SVM = MultipleKernelSVC("precomputed", C=10.0)


def bare_solver(norm: float) -> Callable[[Split], Task]:
    """The solver of kernelweave on a bank, without the checks of an estimator."""

    def prepare(split: Split) -> Task:
        target = _target(split.y_train)

        def task() -> Fitted:
            bank = DenseBank.from_kernels(split.train)
            weight_set = Simplex() if norm == 1 else LpBall(norm)
            solution = solve(Fisher(bank, target, "learn"), weight_set, tol=1e-6)
            alpha, weights = float(solution.weights[0]), solution.weights[1:]
            fit = fit_kernel(bank.combine(weights), target, max(alpha, 1e-8))
            return lambda test: _project(split, test, weights, fit.coef)

        return task

    return prepare


def _target(codes: np.ndarray) -> np.ndarray:
    """The target for two classes, (n, 1), or for k classes, (n, k - 1)."""
    k = int(codes.max()) + 1
    return binary_target(codes) if k == 2 else reduced_class_target(codes, k)[0]


def _project(
    split: Split, test: np.ndarray, weights: np.ndarray, coef: np.ndarray
) -> np.ndarray:
    """Class codes (m,) of the nearest class means in discriminant space."""
    centred = coef - coef.mean(axis=0)
    train_rows, test_rows = 0.0, 0.0
    for w, K, new in zip(weights, split.train, test, strict=True):
        if w > 0:
            scale = w * len(K) / (np.trace(K) - len(K) * K.mean())
            train_rows = train_rows + scale * (K @ centred)
            test_rows = test_rows + scale * (new @ centred)
    return _nearest(train_rows, split.y_train, test_rows)


def _nearest(seen: np.ndarray, codes: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Codes (m,) of the class means of ``seen`` (n, r) nearest to ``new`` (m, r)."""
    counts = np.bincount(codes)
    means = np.zeros((len(counts), seen.shape[1]))
    np.add.at(means, codes, seen)
    means /= counts[:, None]
    distances = (means**2).sum(axis=1) - 2.0 * new @ means.T
    return np.argmin(distances, axis=1)


def mklpy(make: Callable[[], Any]) -> Callable[[Split], Task]:
    """An MKLpy learner on torch tensors that share memory with our arrays."""

    def prepare(split: Split) -> Task:
        import torch

        kernels = list(torch.from_numpy(split.train))
        labels = torch.from_numpy(split.y_train)

        def task() -> Fitted:
            model = make().fit(kernels, labels)
            return lambda test: np.asarray(model.predict(list(torch.from_numpy(test))))

        return task

    return prepare


def easy_svc() -> Any:
    from MKLpy.algorithms import EasyMKL

    return EasyMKL(lam=0.1, learner=SVC(C=10.0))


def easy_komd() -> Any:
    from MKLpy.algorithms import EasyMKL

    return EasyMKL(lam=0.1)


def rmkl() -> Any:
    from MKLpy.algorithms import RMKL

    return RMKL(learner=SVC(C=10.0), max_iter=100)


def himalaya(solver: str, **solver_params: Any) -> Callable[[Split], Task]:
    """MultipleKernelRidgeCV on targets -1 and 1, one column per class."""

    def prepare(split: Split) -> Task:
        from himalaya.kernel_ridge import MultipleKernelRidgeCV

        k = int(split.y_train.max()) + 1
        labels = 2.0 * np.eye(k)[split.y_train] - 1.0
        if k == 2:
            labels = labels[:, 1]

        def task() -> Fitted:
            model = MultipleKernelRidgeCV(
                kernels="precomputed",
                solver=solver,
                solver_params={"progress_bar": False, **solver_params},
                cv=FOLDS,
                random_state=0,
            ).fit(split.train, labels)
            return lambda test: _decide(model.predict(test))

        return task

    return prepare


def _decide(scores: np.ndarray) -> np.ndarray:
    """Class codes (m,) from one score per row, or from one per row and class."""
    return (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)


def svc_mean(split: Split) -> Task:
    """SVC on the mean kernel, C by cross-validation."""

    def task() -> Fitted:
        search = GridSearchCV(SVC(kernel="precomputed"), {"C": C_GRID}, cv=FOLDS)
        search.fit(split.train.mean(axis=0), split.y_train)
        return lambda test: search.predict(test.mean(axis=0))

    return task


def rkda_double_cv(split: Split) -> Task:
    """Single-kernel RKDA: kernel and lambda by cross-validation, then one fit."""

    def task() -> Fitted:
        folds = list(StratifiedKFold(FOLDS).split(split.y_train, split.y_train))
        correct = np.zeros((len(split.train), len(LAMBDAS)))
        for i, K in enumerate(split.train):
            for rows, held_out in folds:
                classify = _rkda_path(K[np.ix_(rows, rows)], split.y_train[rows])
                predicted = classify(K[np.ix_(held_out, rows)], LAMBDAS)
                correct[i] += (predicted == split.y_train[held_out]).sum(axis=1)
        i, j = np.unravel_index(np.argmax(correct), correct.shape)
        classify = _rkda_path(split.train[i], split.y_train)
        return lambda test: classify(test[i], LAMBDAS[[j]])[0]

    return task


def _rkda_path(K: np.ndarray, y: np.ndarray) -> Callable[..., np.ndarray]:
    """A classifier for any lambdas, (rows, lambdas) -> codes (lambdas, m)."""
    n, means, grand = len(K), K.mean(axis=0), K.mean()
    G = K - means[None, :] - means[:, None] + grand
    unit = np.trace(G)
    target = _target(y)

    def classify(rows: np.ndarray, lambdas: np.ndarray) -> np.ndarray:
        codes = np.empty((len(lambdas), len(rows)), dtype=int)
        for j, ridge in enumerate(lambdas):
            matrix = G + 1.0 / n
            matrix[np.diag_indices(n)] += ridge * unit
            factor = cho_factor(matrix, overwrite_a=True, check_finite=False)
            b = cho_solve(factor, target, check_finite=False)
            b -= b.mean(axis=0)
            codes[j] = _nearest(K @ b, y, rows @ b)
        return codes

    return classify


METHODS: dict[str, Method] = {
    'kernelweave norm=1, alpha="learn"': Method(
        estimator(fisher(norm=1, alpha="learn")),
        "weights and regularisation learned in one convex problem to a relative gap of "
        "1e-6; the estimator on a stack (n, n, p), including all checks.",
    ),
    'kernelweave norm=2, alpha="learn"': Method(
        estimator(fisher(norm=2, alpha="learn")), "as above, with l2 weights."
    ),
    "kernelweave default": Method(
        estimator(fisher()),
        "weights for four norms; norm and regularisation chosen by exact "
        "leave-one-out.",
    ),
    "kernelweave norm=1, bare solver": Method(
        bare_solver(1),
        "centring, `solve` and `fit_kernel` without the estimator and its checks.",
    ),
    "kernelweave MultipleKernelSVC": Method(
        estimator(SVM),
        "one machine per class against the rest at C = 10, and one set of weights for "
        "all, to a relative gap of 1e-5; including all checks.",
    ),
    "kernelweave KernelAlignment, SVC": Method(
        estimator(aligned("error")),
        "weights by alignment, then scikit-learn's SVC at C = 10; including all "
        "checks.",
    ),
    "kernelweave KernelAlignment, SVC, psd trusted": Method(
        estimator(aligned("trust")),
        "as above, with kernels taken to be positive semidefinite, as MKLpy does.",
    ),
    "MKLpy EasyMKL": Method(
        mklpy(easy_komd),
        "one-shot weights with lam = 0.1, then MKLpy's own KOMD, as in a plain "
        "`EasyMKL()`; no tuning.",
    ),
    "MKLpy EasyMKL with SVC": Method(
        mklpy(easy_svc),
        "the same weights, with an SVC at C = 10 instead of KOMD; no tuning, and no "
        "check of the kernels, which costs kernelweave one factorisation per kernel.",
    ),
    "MKLpy RMKL": Method(
        mklpy(rmkl),
        "radius-margin ratio, 100 steps, then an SVC with C = 10; no tuning.",
    ),
    "himalaya random search": Method(
        himalaya("random_search", alphas=np.logspace(-4, 4, 9), n_iter=100),
        "`MultipleKernelRidgeCV`, 100 draws of weights, 9 alphas, 5 folds.",
    ),
    "himalaya hyper-gradient": Method(
        himalaya("hyper_gradient"), "`MultipleKernelRidgeCV`, default steps, 5 folds."
    ),
    "SVC on the mean kernel": Method(
        svc_mean, "7 values of C, 5 folds, scikit-learn's GridSearchCV."
    ),
    "RKDA, double cross-validation": Method(
        rkda_double_cv,
        "one kernel and one of 9 lambdas chosen by 5-fold cross-validation, in plain "
        "NumPy (450 Cholesky factorisations); not run at p = 200.",
        most_kernels=10,
    ),
}
