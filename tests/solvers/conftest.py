"""Small problems for the solvers: real data, with all their degeneracies."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from kernelweave.criteria.fisher import Fisher
from kernelweave.criteria.margin import Margin
from kernelweave.fits.targets import class_target
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.weights import LpBall, Simplex, Uniform

#: sigma of exp(-d^2 / sigma^2) in both papers.
WIDTHS = np.logspace(-1, 2, 10)
#: lambda of the papers: alpha = n lambda for kernels of trace n.
LAMBDAS = (1e-8, 1e-4, 1e-2, 1.0, "learn")


def weight_set(norm: float):
    """The weight set for a norm; infinity is the mean kernel."""
    if norm == 1:
        return Simplex()
    return Uniform() if np.isinf(norm) else LpBall(norm)


def alpha_of(penalty: float | str, n: int) -> float | str:
    """The regularisation for a lambda of the papers."""
    return penalty if isinstance(penalty, str) else n * penalty


def standardize(X: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and standard deviation 1 (0 if constant)."""
    deviation = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)


def gaussian_stack(X: np.ndarray, widths: np.ndarray = WIDTHS) -> np.ndarray:
    """Centred Gaussian kernels of trace n, (p, n, n)."""
    squares = np.sum(X**2, axis=1)
    squared = np.maximum(squares[:, None] + squares[None, :] - 2 * X @ X.T, 0.0)
    np.fill_diagonal(squared, 0.0)
    return center_and_scale(np.exp(-squared / widths[:, None, None] ** 2))


def class_problem(X, y, penalty, widths=WIDTHS, stack=None) -> Fisher:
    """A Fisher criterion on Gaussian kernels, with H of Eq. 25."""
    _, codes = np.unique(y, return_inverse=True)
    stack = gaussian_stack(X, widths) if stack is None else stack
    target = class_target(codes, int(codes.max()) + 1)
    return Fisher(DenseBank(stack), target, alpha_of(penalty, len(y)))


def with_duplicates(X, y, rows=10):
    """The data with its first rows repeated."""
    return np.concatenate([X, X[:rows]]), np.concatenate([y, y[:rows]])


def degenerate_stack(X: np.ndarray) -> np.ndarray:
    """The ten Gaussians, one of them twice, a kernel of zeros and the identity."""
    stack, n = gaussian_stack(X), len(X)
    more = [stack[5], np.zeros((n, n)), center_and_scale(np.eye(n)[None])[0]]
    return np.concatenate([stack, more])


def many_kernels(X: np.ndarray, p: int, rng: np.random.Generator) -> np.ndarray:
    """Gaussians of random width on random pairs of features, (p, n, n)."""
    out = []
    for _ in range(p):
        columns = rng.choice(X.shape[1], size=2, replace=False)
        width = 10 ** rng.uniform(-1, 1)
        out.append(gaussian_stack(X[:, columns], np.array([width]))[0])
    return np.array(out)


LOADERS: dict[str, Callable] = {
    "wine": load_wine,
    "breast_cancer": load_breast_cancer,
    "iris": load_iris,
    "digits": load_digits,
}


def load(name: str, rows: int = 150):
    """About ``rows`` evenly spaced rows of a scikit-learn data set, standardised."""
    X, y = LOADERS[name](return_X_y=True)
    step = max(1, len(y) // rows)
    return standardize(X[::step]), y[::step]


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The functions above, for use in tests."""
    return SimpleNamespace(
        alpha_of=alpha_of,
        class_problem=class_problem,
        degenerate_stack=degenerate_stack,
        gaussian_stack=gaussian_stack,
        load=load,
        many_kernels=many_kernels,
        standardize=standardize,
        weight_set=weight_set,
        with_duplicates=with_duplicates,
    )


@pytest.fixture(scope="session")
def wine_stack():
    """The problem behind the reference values: all of wine, (10, 178, 178) and y."""
    X, y = load_wine(return_X_y=True)
    return gaussian_stack(standardize(X)), y


@pytest.fixture(scope="session")
def small_problem():
    """``small_problem(penalty, k)``: thirty rows of wine, k columns of the target."""
    X, y = load_wine(return_X_y=True)
    X = standardize(X)
    stacks = {step: gaussian_stack(X[::step]) for step in (6, 9)}

    def build(penalty: float | str, k: int = 3, p: int = 10, step: int = 6) -> Fisher:
        bank = DenseBank(stacks[step][-p:])
        target = class_target(y[::step], 3)[:, :k]
        return Fisher(bank, target, alpha_of(penalty, bank.n_samples))

    return build


#: The margins of Lanckriet et al. (2002) and its journal version by name.
MARGINS = {
    "hard": {"margin": "hard"},
    "l1": {"margin": "l1", "C": 0.1},
    "l2": {"margin": "l2", "C": 1.0},
    "learn": {"margin": "l2", "C": "learn"},
}


@pytest.fixture(scope="session")
def margins(margin_data) -> SimpleNamespace:
    """Margin problems with known values, and their ingredients."""

    def kernels(X: np.ndarray, p: int = 3) -> np.ndarray:
        if p == 3:
            return margin_data.three(X)
        return margin_data.gaussians(X, np.logspace(-1, 2, p))

    def reference(n: int, seed: int, p: int, kind: str) -> tuple[Margin, float]:
        """A criterion with 60% of the rows labelled, and the unit of its known value.

        The values belong to kernels of trace p n. A learned 1/C is measured against
        kernels of trace n, which multiplies the value by p.
        """
        X, y = margin_data.rows(n, seed)
        signs = np.where(np.arange(n) < int(0.6 * n), y, 0.0)[:, None]
        unit = p if kind == "learn" else 1
        bank = DenseBank(kernels(X, p) * (p / unit))
        return Margin(bank, signs, **MARGINS[kind]), float(unit)

    return SimpleNamespace(
        data=margin_data.rows, kernels=kernels, kinds=MARGINS, reference=reference
    )
