"""Random convex problems at the edges of floating point, each made from one integer.

Every problem is solved, and its certificate compared with values recomputed in extended
precision. ``make fuzz`` draws new numbers; one that fails is repeated with::

    python tests/stress_certificates.py 123456
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import random
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelweave import (
    Alignment,
    CappedSimplex,
    Fisher,
    KernelAlignment,
    LpBall,
    Margin,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    SignedSum,
    Simplex,
    SubspaceKernel,
    SubspaceKernelSVC,
    TransductiveKernelSVC,
    solve,
)
from kernelweave._array import to_numpy
from kernelweave._tolerances import SMALL_GAP
from kernelweave.criteria import BlockFisher, WithinFisher
from kernelweave.criteria.margin import SubspaceMargin
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.design import RowDesign
from kernelweave.fits.targets import class_target
from kernelweave.inner.correlation import maximize_correlation
from kernelweave.inner.svm import balanced, best_intercepts
from kernelweave.kernels import RBF, DenseBank, Laplacian, Linear, Polynomial
from kernelweave.kernels.banks.features import FeatureBank
from kernelweave.kernels.maps.kernel_map import FeatureSource, KernelMap
from kernelweave.solvers.solve import Certificate
from kernelweave.views.columns import View
from kernelweave.weights import GroupBall, Uniform

#: The module, whose name in the package is that of the function.
solving: Any = importlib.import_module("kernelweave.solvers.solve")
Long = np.longdouble
#: Seconds after which a case counts as hanging; the slowest takes a few.
PATIENCE = 60
#: Entries n x n x p of the largest bank of kernels, so that most cases are quick.
ENTRIES = 200_000


# Kernels ------------------------------------------------------------------------------


def log_integer(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number between the limits, of any order of magnitude."""
    return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))


def sizes(rng: np.random.Generator) -> tuple[int, int]:
    """n in 2..200 and p in 1..200, not both large, and n mostly small."""
    n = log_integer(rng, 2, 200 if rng.random() < 0.1 else 40)
    p = log_integer(rng, 1, min(200, max(1, ENTRIES // n**2)))
    return n, p


def factors(rng: np.random.Generator, n: int) -> np.ndarray:
    """Rows Z (n, r) of a kernel ``ZZ'`` of any rank and condition."""
    rank = log_integer(rng, 1, n)
    decades = rng.choice([0.0, 3.0, 8.0, 16.0])
    spectrum = 10.0 ** np.linspace(0.0, -decades / 2, rank)
    rows = rng.standard_normal((n, rank)) * spectrum
    if rng.random() < 0.2:  # repeated rows
        rows = rows[rng.integers(0, n, n)]
    return rows


def raw_kernels(
    rng: np.random.Generator, n: int, p: int, constant: float = 0.2
) -> np.ndarray:
    """Kernels (p, n, n) in extended precision, none of them centred or scaled.

    ``constant`` is the probability that a large constant is added to all of them.
    """
    X, out = factors(rng, n), []
    for _ in range(p):
        kind = rng.choice(["product", "product", "gaussian", "gaussian", "twin", "eye"])
        if kind == "twin" and out:
            K = out[rng.integers(len(out))] * 10.0 ** rng.integers(-3, 4)
        elif kind == "gaussian":
            width = 10.0 ** rng.uniform(-3, 3)
            some = X[:, rng.integers(0, X.shape[1], 2)]
            apart = np.sum((some[:, None] - some[None]) ** 2, axis=2)
            K = np.exp(-apart / (width * (np.mean(apart) or 1.0))).astype(Long)
        elif kind == "eye":
            K = np.eye(n, dtype=Long)
        else:
            Z = factors(rng, n).astype(Long)
            K = Z @ Z.T
        out.append(K)
    stack = np.stack(out)
    if rng.random() < constant:
        size = np.mean(np.diagonal(stack, axis1=1, axis2=2), axis=1)
        share = 10.0 ** rng.uniform(-12, -2)
        stack = 1 + share * stack / np.where(size > 0, size, 1)[:, None, None]
    if rng.random() < 0.2:
        stack = stack * Long(10) ** int(rng.choice([-150, 150]))
    return stack


def standardised(stack: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """``D P K P' D`` of trace n, for kernels that are not constant, in float64."""
    weights = weights.astype(Long)
    share, root = weights / np.sum(weights), np.sqrt(weights)
    before = np.max(np.abs(stack), axis=(1, 2))
    stack = stack - np.einsum("j,pjk->pk", share, stack)[:, None, :]
    stack = stack - np.einsum("pjk,k->pj", stack, share)[:, :, None]
    stack = stack * np.outer(root, root)
    trace = np.trace(stack, axis1=1, axis2=2)
    alive = trace > 1e-9 * before
    if not np.any(alive):
        stack = np.eye(len(root))[None] - np.outer(root, root)[None] / np.sum(weights)
        trace, alive = np.trace(stack, axis1=1, axis2=2), np.array([True])
    stack = stack[alive] * (len(weights) / trace[alive])[:, None, None]
    return (0.5 * (stack + np.swapaxes(stack, 1, 2))).astype(np.float64)


def bank_of(
    rng: np.random.Generator, n: int, p: int, weights: np.ndarray, centred: bool = True
) -> Any:
    """A bank of about p kernels over n rows: matrices, features, or made on the fly."""
    kind = rng.choice(["dense", "dense", "features", "lazy"])
    if kind == "features":
        parts = [factors(rng, n)[:, : max(1, 400 // p)] for _ in range(p)]
        share = weights / np.sum(weights)
        root = np.sqrt(weights)[:, None]
        parts = [root * (part - share @ part) for part in parts]
        sizes = [float(np.sum(part**2)) for part in parts]
        parts = [
            part * np.sqrt(n / size)
            for part, size in zip(parts, sizes, strict=True)
            if size > 1e-12
        ] or [root * (np.eye(n) - share)]
        stack = np.concatenate(parts, axis=1)
        if rng.random() < 0.2:
            stack = stack.astype(np.float32)
        return FeatureBank(stack, [part.shape[1] for part in parts])
    if kind == "lazy":
        X = factors(rng, n) * 10.0 ** rng.choice([-150, 0, 0, 0, 150])
        choices = [RBF(), RBF(factor=30.0), RBF(factor=0.01), Laplacian(), Linear()]
        kernels = [choices[i] for i in rng.integers(0, len(choices), min(p, 20))]
        kernels += [Polynomial(3)] if rng.random() < 0.2 else []
        source = FeatureSource([View("all", kernels, slice(None))], [X])
        given = None if np.all(weights == 1.0) else weights
        return KernelMap(source, row_weights=given, storage="on_the_fly").fit()
    stack = raw_kernels(rng, n, p, constant=0.0 if centred else 0.2)
    stack = standardised(stack, weights) if centred else stack.astype(np.float64)
    if rng.random() < 0.2 and np.max(np.abs(stack)) < 1e30:
        stack = stack.astype(np.float32)
    return DenseBank(stack)


# Problems -----------------------------------------------------------------------------


def regularisation(rng: np.random.Generator, learn: bool = True) -> Any:
    """alpha or C in [1e-14, 1e8], or "learn"."""
    return "learn" if learn and rng.random() < 0.15 else 10.0 ** rng.uniform(-14, 8)


def ordinary(rng: np.random.Generator) -> float:
    """alpha or C in [1e-4, 1e4]."""
    return float(10.0 ** rng.uniform(-4, 4))


def codes_of(rng: np.random.Generator, n: int) -> tuple[np.ndarray, int]:
    """Classes of n rows, each of which occurs."""
    k = min(n, int(rng.integers(2, 5)))
    return rng.permutation(np.r_[np.arange(k), rng.integers(0, k, n - k)]), k


def row_weights(rng: np.random.Generator, n: int) -> np.ndarray:
    """Ones, or weights that differ by a few orders of magnitude."""
    return np.ones(n) if rng.random() < 0.7 else 10.0 ** rng.uniform(-2, 2, n)


def norm_set(rng: np.random.Generator) -> Any:
    """The simplex, a ball, or one point."""
    kind = rng.random()
    if kind < 0.35:
        return Simplex()
    return Uniform() if kind < 0.45 else LpBall(1.0 + 19.0 * rng.random() ** 2 + 1e-3)


def any_set(rng: np.random.Generator, m: int) -> Any:
    """A norm set, weights with a cap, or a ball of groups."""
    kind = rng.random()
    if kind < 0.2 and m > 1:
        return CappedSimplex(min(1.0, rng.uniform(1.0, 3.0) / m + 1e-12))
    if 0.2 <= kind < 0.25:
        return GroupBall(rng.integers(0, max(1, m // 3), m))
    return norm_set(rng)


def fisher(rng: np.random.Generator) -> tuple[Any, Any]:
    n, p = sizes(rng)
    weights = row_weights(rng, n)
    bank = bank_of(rng, n, p, weights)
    if rng.random() < 0.5:
        target = class_target(*codes_of(rng, n), weights)
    else:
        target = rng.standard_normal((n, int(rng.integers(1, 4))))
        target -= weights / np.sum(weights) @ target
        target *= 10.0 ** rng.choice([-100, 0, 0, 0, 100])
    design = RowDesign(n, None if np.all(weights == 1.0) else weights)
    target = np.sqrt(weights)[:, None] * target
    problem = Fisher(bank, target, regularisation(rng), design)
    return problem, any_set(rng, problem.n_weights)


def within(rng: np.random.Generator) -> tuple[Any, Any]:
    n, p = sizes(rng)
    codes, k = codes_of(rng, n)
    bank = bank_of(rng, n, p, np.ones(n))
    target = class_target(codes, k)
    problem = WithinFisher(bank, target, regularisation(rng, False), codes)
    return problem, any_set(rng, problem.n_weights)


def block(rng: np.random.Generator) -> tuple[Any, Any]:
    n, p = sizes(rng)
    bank = bank_of(rng, n, min(p, 30), np.ones(n))
    problem = BlockFisher(bank, class_target(*codes_of(rng, n)), regularisation(rng))
    return problem, norm_set(rng)


def margin(rng: np.random.Generator) -> tuple[Any, Any]:
    n, p = sizes(rng)
    weights = row_weights(rng, n)
    bank = bank_of(rng, n, p, np.ones(n), centred=rng.random() < 0.7)
    columns = int(rng.integers(1, 3))
    signs = rng.choice([-1.0, 1.0], size=(n, columns))
    signs[:2] = [[1.0], [-1.0]]
    if rng.random() < 0.2:
        signs[2:] *= rng.random((n - 2, 1)) < 0.7
    kind = str(rng.choice(["l1", "l2", "hard"], p=[0.5, 0.3, 0.2]))
    C = regularisation(rng, kind == "l2")
    if not isinstance(C, str):  # in units of the kernels
        C = float(C / (np.max(np.mean(bank.diagonals(), axis=1)) or 1.0))
    given = None if np.all(weights == 1.0) else weights
    problem = Margin(bank, signs, kind, C, given)  # type: ignore[arg-type]
    if rng.random() < 0.1 and n <= 30 and problem.n_kernels <= 8:
        return problem, SignedSum(bank)
    return problem, any_set(rng, problem.n_weights)


def subspace(rng: np.random.Generator) -> tuple[Any, Any]:
    n, p = sizes(rng)
    n, p = min(n, 60), min(p, 20)
    weights = row_weights(rng, n)
    bank = bank_of(rng, n, p, weights)
    signs = rng.choice([-1.0, 1.0], size=(n, int(rng.integers(1, 3))))
    signs[:2] = [[1.0], [-1.0]]
    design = RowDesign(n, None if np.all(weights == 1.0) else weights)
    alpha, C = regularisation(rng, False), regularisation(rng, False)
    problem = SubspaceMargin(bank, signs, alpha, C, design=design)
    return problem, any_set(rng, problem.n_weights)


def alignment(rng: np.random.Generator) -> tuple[Any, Any]:
    n, p = sizes(rng)
    bank = bank_of(rng, n, p, np.ones(n), centred=rng.random() < 0.5)
    codes, k = codes_of(rng, n)
    target = np.eye(k)[codes]
    centred, weights = bool(rng.random() < 0.7), row_weights(rng, n)
    problem = Alignment(bank, target, centred=centred, row_weights=weights)
    problem.given = target, weights
    if rng.random() < 0.1 and n <= 30 and problem.n_kernels <= 8:
        return problem, SignedSum(bank)
    return problem, any_set(rng, problem.n_weights)


def mixture(rng: np.random.Generator) -> tuple[Any, Any]:
    n, p = sizes(rng)
    spread = 10.0 ** rng.uniform(-6, 4)
    logs = spread * rng.standard_normal((n, p)) + 1e3 * rng.standard_normal((n, 1))
    if rng.random() < 0.2:
        logs[rng.random((n, p)) < 0.3] = -np.inf
        logs[np.all(np.isinf(logs), axis=1)] = 0.0
    prior = 0.0 if rng.random() < 0.5 else ordinary(rng)
    return MixtureLikelihood(logs, prior, row_weights(rng, n)), Simplex()


PROBLEMS: tuple[tuple[Callable, int], ...] = (
    (fisher, 6),
    (within, 2),
    (block, 2),
    (margin, 6),
    (subspace, 1),
    (alignment, 2),
    (mixture, 1),
)


# Values in extended precision ---------------------------------------------------------


def kernels_of(bank: Any) -> np.ndarray:
    """All kernels of a bank as its products see them, (p, n, n)."""
    if isinstance(bank, FeatureBank):
        Z = to_numpy(bank.features).astype(Long)
        return np.stack([Z[:, part] @ Z[:, part].T for part in bank.blocks])
    # Those made on the fly are not rounded to float32 once they have been centred.
    return to_numpy(bank.apply(np.eye(bank.n_samples))).astype(Long)


def solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """``M^-1 R`` by Cholesky's method; None if M is not positive definite."""
    L, n = np.tril(matrix), len(matrix)
    for j in range(n):
        L[j:, j] -= L[j:, :j] @ L[j, :j]
        if not L[j, j] > 0:
            return None
        L[j:, j] /= np.sqrt(L[j, j])
    out = right.copy()
    for j in range(n):
        out[j] = (out[j] - L[j, :j] @ out[:j]) / L[j, j]
    for j in reversed(range(n)):
        out[j] = (out[j] - L[j + 1 :, j] @ out[j + 1 :]) / L[j, j]
    return out


#: Share of alpha below which a negative eigenvalue of the kernels is of no account.
INDEFINITE = 1e-2


@dataclass
class Exact:
    """Bounds on ``J(w)`` in extended precision: ``least <= J(w) <= most``."""

    least: float = -np.inf
    most: float = np.inf


def exact_fisher(problem: Any, w: np.ndarray, stack: np.ndarray, coef: Any) -> Exact:
    alpha, own = problem.split(w)
    if not alpha > 0:
        return Exact()
    G = np.tensordot(own.astype(Long), stack, 1)
    H = to_numpy(problem.target64).astype(Long)
    eye, alpha = np.eye(len(G), dtype=Long), Long(alpha)
    B = solved(G + alpha * eye, H)
    if B is None:
        return Exact()
    s, residual, energy = problem.scale, H - G @ B, B.T @ (G @ B)
    if isinstance(problem, BlockFisher):
        above = residual.T @ residual / alpha + energy
        above = (0.5 * (above + above.T)).astype(np.float64)
        t = maximize_correlation(above).diagonal
        excess = max(float(np.linalg.eigvalsh(above - np.diag(t))[-1]), 0.0)
        most = s * (np.sum(t) + len(t) * excess)
        return Exact(most=most)
    value = np.sum(residual**2) / alpha + np.trace(energy)
    lowest = np.linalg.eigvalsh(G.astype(np.float64))[0]
    if lowest < -INDEFINITE * alpha:  # certified is the nearest kernel that is not
        G = G - lowest * eye
        B = solved(G + alpha * eye, H)
        energy = B.T @ (G @ B)
    lower = 2 * np.sum(B * H) - alpha * np.sum(B * B) - np.trace(energy)
    return Exact(s * lower, s * value)


def exact_within(problem: Any, w: np.ndarray, stack: np.ndarray, coef: Any) -> Exact:
    n, alpha = len(w) and problem.bank.n_samples, Long(problem.alpha)
    G = np.tensordot(w.astype(Long), stack, 1)
    H = to_numpy(problem.target64).astype(Long)
    codes = problem.codes
    same = codes[:, None] == codes[None]
    counts = np.sum(same, axis=1).astype(Long)
    J = (np.eye(n) - same / counts[:, None]) / np.sqrt(counts)[:, None]
    V = solved(alpha * np.eye(n) + J @ G @ J.T, J @ G @ H)
    if V is None:
        return Exact()
    U = H - J.T @ V
    R = alpha * V - J @ (G @ U)
    ratio = np.sum(U * (G @ U)) + alpha * np.sum(V * V)
    return Exact(-ratio / alpha, -(ratio - np.sum(R * R) / alpha) / alpha)


def exact_margin(problem: Any, w: np.ndarray, stack: np.ndarray, coef: Any) -> Exact:
    inner = problem.problem
    stack = stack[:, problem.rows][:, :, problem.rows]
    tau, own = inner.split(w)
    G = np.tensordot(own.astype(Long), stack, 1)
    beta = to_numpy(coef).astype(np.float64)[problem.rows]
    taus = (tau * inner.diagonal).astype(Long)
    most, least = Long(0), Long(0)
    feasible = balanced(beta, inner.signs, inner.bounds)
    for c in range(beta.shape[1]):
        rows = np.flatnonzero(inner.signs[:, c])
        y = inner.signs[rows, c]
        part = G[rows][:, rows]
        b, t, box = beta[rows, c].astype(Long), taus[rows], inner.bounds[rows]
        f = part @ b
        total = f + t * b
        ends = np.min(total[y > 0]), np.max(total[y < 0])
        rho = (ends[0] - ends[1]) / 2
        square = b @ total
        value = square / rho**2 if rho > 0 else Long(np.inf)
        price = abs(ends[0] + ends[1]) / (2 * rho) if rho > 0 else Long(0)  # of e'b
        squared = np.all(t > np.finfo(np.float64).tiny)  # whose inverse is finite
        loss = "l1" if np.all(np.isfinite(box)) else "l2" if squared else ""
        if loss:
            prices = box if loss == "l1" else 1.0 / t
            at = f.astype(np.float64)[:, None]
            b0 = best_intercepts(at, y[:, None], loss, np.asarray(prices, float))
            slack = np.maximum(1 - y * (f + b0[0]), 0)
            cost = 2 * prices @ slack if loss == "l1" else prices @ slack**2
            value, price = min(value, b @ f + cost), max(price, abs(b0[0]))
        # A negative square is that of no function: float32 made the kernel indefinite.
        most = most + (value if b @ f >= 0 else Long(np.inf))
        a = feasible[rows, c].astype(Long)
        energy = a @ (part @ a) + t @ (a * a)
        least = least + 2 * (a @ y) - energy - 2 * price * abs(np.sum(a))
    return Exact(least, most)


def exact_subspace(problem: Any, w: np.ndarray, stack: np.ndarray, coef: Any) -> Exact:
    G = np.tensordot(w.astype(Long), stack, 1)
    a, b = (each.astype(Long) for each in problem.split(coef))
    root = np.sqrt(problem.design.each.astype(Long))[:, None]
    alpha, most = Long(problem.alpha), Long(0)
    f = G @ b / alpha
    out = f / root
    b0 = best_intercepts(
        out.astype(np.float64), problem.signs, "l1", problem.design.each
    )
    slack = np.maximum(1 - problem.signs * (out + b0), 0)
    loss = Long(problem.C) * problem.design.each @ slack
    for c, y in enumerate(problem.signs.T):
        square = f[:, c] @ (f[:, c] + b[:, c]) / 2
        rho = (np.min(out[y > 0, c]) - np.max(out[y < 0, c])) / 2
        most += min(square + loss[c], square / rho**2 if rho > 0 else np.inf)
    a = balanced(a.astype(np.float64), problem.signs, problem.bounds).astype(Long)
    best = solved(G + alpha * np.eye(len(G), dtype=Long), alpha * a / root)
    if best is None:
        return Exact(most=most)
    energy = np.sum((a / root - best) ** 2) + np.sum(best * (G @ best)) / alpha
    return Exact(np.sum(a * problem.signs) - energy / 2, most)


def exact_alignment(problem: Any, w: np.ndarray, stack: np.ndarray, coef: Any) -> Exact:
    if not hasattr(problem, "given"):  # not made here
        return Exact()
    rows, (T, r) = problem.rows, (each.astype(Long) for each in problem.given)
    stack = stack[:, rows][:, :, rows]
    share, both = r / np.sum(r), np.sqrt(np.outer(r, r))
    # A kernel that is constant up to rounding counts as zero (seed 11301070).
    K = np.tensordot(np.where(problem.norms > 0, w, 0.0).astype(Long), stack, 1)
    T = T @ T.T
    if problem.centred:
        T, K = ((M - share @ M) - ((M - share @ M) @ share)[:, None] for M in (T, K))
    K, T = K * both, T * both
    size = np.sqrt(np.sum(K * K))
    if not size > 0:
        return Exact()
    value = -np.sum(K * T) / size / np.sqrt(np.sum(T * T))
    return Exact(value, value)


def exact_mixture(problem: Any, w: np.ndarray, stack: Any, coef: Any) -> Exact:
    share, w = to_numpy(problem.share).astype(Long), w.astype(Long)
    with np.errstate(divide="ignore"):
        value = -1 - share @ np.log(to_numpy(problem.ratio).astype(Long) @ w)
        if problem.prior > 0:
            value -= problem.prior * np.sum(np.log(len(w) * w)) / problem.total
    return Exact(value, value)


EXACT: tuple[tuple[type, Callable], ...] = (
    (WithinFisher, exact_within),
    (Fisher, exact_fisher),
    (Margin, exact_margin),
    (SubspaceMargin, exact_subspace),
    (Alignment, exact_alignment),
    (MixtureLikelihood, exact_mixture),
)


def exact(problem: Any) -> Callable[[np.ndarray, Any], Exact]:
    """Bounds on a criterion at weights and a dual point, in extended precision."""
    stack = None if problem.bank is None else kernels_of(problem.bank)
    rule = next(rule for kind, rule in EXACT if isinstance(problem, kind))
    return lambda weights, coef: rule(problem, np.asarray(weights), stack, coef)


# Checks -------------------------------------------------------------------------------


class Failure(AssertionError):
    """What is wrong with an answer, as a sentence."""


#: A certificate contains its rounding; the sums behind it are accurate to this share.
ROUNDING = 1e-14
#: The same for kernels in float32, which rounding has left slightly indefinite.
SINGLE = 1e-6


def judge(
    problem: Any,
    weight_set: Any,
    weights: np.ndarray,
    coef: Any,
    value: float,
    lower: float,
    rng: np.random.Generator,
) -> str:
    """Compare a certificate with extended precision; a word on what was found."""
    if np.isnan(value) or np.isnan(lower) or np.any(np.isnan(weights)):
        raise Failure(f"NaN: value {value}, lower bound {lower}, weights {weights}")
    if np.isinf(value):
        return "infinite value"
    if value == lower == 0.0:
        return "zero"
    if is_indefinite(problem, weights):
        return "indefinite in float32"
    points, bounds = [(weights, coef)], exact(problem)
    m = len(weights)
    chosen = [weight_set.maximizer(rng.standard_normal(m)), weight_set.start(m)]
    for point in chosen:
        if is_indefinite(problem, point):
            continue
        with contextlib.suppress(ValueError):
            points.append((point, problem.evaluate(point, hessian=False).coef))
    known = False
    for number, (point, dual) in enumerate(points):
        found = bounds(point, dual)
        known |= bool(np.isfinite(found.most)) and number == 0
        size = max(abs(value), abs(float(found.most)) if number == 0 else 0.0)
        # Rounding grows with the weights, which may have either sign.
        reach = max(1.0, np.sum(np.abs(point)) / np.sum(np.abs(weights)))
        allowed = reach * size * (SINGLE if is_single(problem) else ROUNDING)
        excess = float(lower - found.most) if np.isfinite(found.most) else -np.inf
        if excess > allowed:
            raise Failure(
                f"the lower bound {lower!r} exceeds {float(found.most)!r}, which "
                f"weights {number} attain, by {excess / size:.1e} of it"
            )
        short = float(found.least - value) if number == 0 else -np.inf
        if short > allowed:
            raise Failure(
                f"the value {value!r} is below {float(found.least)!r}, the least at "
                f"the weights, by {short / size:.1e} of it"
            )
    return "checked" if known else "unchecked"


def is_single(problem: Any) -> bool:
    """Whether the kernels are in float32."""
    return problem.bank is not None and problem.bank.like.dtype == np.float32


def is_indefinite(problem: Any, weights: np.ndarray) -> bool:
    """Whether float32 has made G as indefinite as half of alpha, so bounds may fail.

    The certificate of seed 481715301 tells of it by a gap of 35; that of 471809484 is
    off by 3e-4.
    """
    if not is_single(problem):
        return False
    if isinstance(problem, Fisher):
        alpha, own = problem.split(weights)
    elif isinstance(problem, SubspaceMargin):
        alpha, own = problem.alpha, weights
    else:
        return False
    combined = np.tensordot(own, kernels_of(problem.bank).astype(np.float64), axes=1)
    return bool(np.linalg.eigvalsh((combined + combined.T) / 2)[0] < -alpha / 2)


def is_hopeless(problem: Any, weight_set: Any) -> bool:
    """Whether a large gap is no fault.

    In float32, and for alignment of dependent kernels within caps or with weights of
    any sign, which such kernels make ill-posed. The bounds must hold all the same.
    """
    if isinstance(problem, Alignment):
        return not isinstance(weight_set, Simplex | LpBall | Uniform)
    return is_single(problem)


def solve_case(rng: np.random.Generator) -> str:
    """Solve one problem and judge its certificate."""
    shares = np.array([share for _, share in PROBLEMS], dtype=np.float64)
    make, _ = PROBLEMS[rng.choice(len(PROBLEMS), p=shares / np.sum(shares))]
    problem, weight_set = make(rng)
    found = solve(problem, weight_set)
    if found.n_factorizations > 100_000:
        raise Failure(f"{found.n_factorizations} factorisations")
    name = f"{type(problem).__name__} over {type(weight_set).__name__}"
    told = judge(
        problem,
        weight_set,
        found.weights,
        found.coef,
        found.value,
        found.lower_bound,
        rng,
    )
    outcome = found.status.split(":")[0].split(" at ")[0]
    if outcome == "stopped":
        outcome += " by rounding"
        if "rounding" not in found.status and found.gap > SMALL_GAP:
            if not is_hopeless(problem, weight_set):
                raise Failure(f"{name}: {found.status}")
            outcome = "stopped early"
    undecided = not np.isfinite(found.value) and outcome != "infeasible"
    if undecided and not is_hopeless(problem, weight_set):
        raise Failure(f"{name}: infinite value, but {found.status}")
    if found.gap < 0.0:
        raise Failure(f"{name}: the bounds cross, {found.status}")
    return f"{name}: {outcome}, {told}"


@contextlib.contextmanager
def recorded() -> Iterator[tuple[list, list[float]]]:
    """The arguments and results of every certificate made inside, and their errors.

    An error is the share by which a model widens its bounds, since its kernels have
    lost digits in centring: they need not be positive semidefinite, as bounds assume.
    """
    calls: list = []
    errors: list[float] = []
    certify, widened = solving.certify, Certificate.widened

    def noted(*arguments: Any) -> Any:
        found = certify(*arguments)
        calls.append((arguments, found))
        return found

    def allowed(self: Certificate, error: float) -> Certificate:
        errors.append(error)
        return widened(self, error)

    solving.certify, Certificate.widened = noted, allowed  # type: ignore[method-assign]
    try:
        yield calls, errors
    finally:
        solving.certify = certify
        Certificate.widened = widened  # type: ignore[method-assign]


def any_model(rng: np.random.Generator) -> Any:
    """An estimator with a convex problem, with random settings."""
    norm = float(rng.choice([1.0, 1.0 + 19.0 * rng.random() ** 2, np.inf]))
    alpha, C = regularisation(rng), regularisation(rng, False)
    fixed, kind = regularisation(rng, False), rng.integers(0, 8)
    if kind == 0:
        return MultipleKernelRidge(norm=norm, alpha=alpha, cv=None)
    if kind == 1:
        return MultipleKernelSVC(margin="l2", C=alpha, norm=norm)
    if kind == 2:
        return TransductiveKernelSVC(C=C, signed=False)
    if kind == 3:
        return KernelAlignment()
    if kind == 4:
        return SubspaceKernel(norm=norm, alpha=fixed)
    if kind == 5:
        return SubspaceKernelSVC(norm=norm, alpha=fixed, C=C)
    if kind == 6:
        return MixtureKDA()
    if rng.random() < 0.5:
        return MultipleKernelSVC(C=C, norm=norm)
    return MultipleKernelFDA(norm=norm, alpha=alpha, cv=None)


def model_case(rng: np.random.Generator) -> str:
    """Fit one model, judge its certificate, and ask for predictions."""
    model, n = any_model(rng), log_integer(rng, 6, 40)
    codes, options = np.arange(n) % int(rng.integers(2, 4)), {}
    missing = rng.random() < 0.2
    if rng.random() < 0.5:
        stack = raw_kernels(rng, n, log_integer(rng, 1, 8))
        X = np.moveaxis(stack, 0, 2).astype(np.float64)
        model.set_params(views="precomputed")
        if missing:
            hidden = np.flatnonzero(rng.random(n) < 0.2)
            X[hidden, :, 0] = X[:, hidden, 0] = np.nan
            if X.shape[2] == 1:
                X = np.concatenate([X, np.eye(n)[:, :, None]], axis=2)
    else:
        X = rng.standard_normal((n, 4)) * 10.0 ** rng.choice([-150, -3, 0, 3, 150], 4)
        if rng.random() < 0.2:
            X = X[rng.integers(0, n, n)]
        if "n_features" in model.get_params():
            features = ["auto", "on_the_fly", "exact", "nystroem"]
            model.set_params(features=str(rng.choice(features)))
        elif "features" in model.get_params():
            model.set_params(features=str(rng.choice(["auto", "on_the_fly"])))
        model.set_params(
            views=[("a", ["linear", "rbf"], [0, 1]), ("b", "polynomial", [2, 3])]
        )
        if missing:
            X[rng.random(n) < 0.2, :2] = np.nan
    if missing:
        model.set_params(missing=str(rng.choice(["zero", "available"])))
    if rng.random() < 0.2 and np.nanmax(np.abs(X)) < 1e30:
        X = X.astype(np.float32)
    if rng.random() < 0.3:
        options["sample_weight"] = row_weights(rng, n)
    if rng.random() < 0.2 and isinstance(
        model, MultipleKernelFDA | MultipleKernelRidge
    ):
        options["groups"] = rng.integers(0, max(2, n // 3), n)
    y: Any = codes
    if isinstance(model, MultipleKernelRidge):
        y = rng.standard_normal(n) * 10.0 ** rng.choice([-150, 0, 150])
    elif isinstance(model, TransductiveKernelSVC):
        y = np.where(rng.random(n) < 0.8, codes % 2, -1)
        y[:2] = [0, 1]
    with recorded() as (calls, errors):
        model.fit(X, y, **options)
    name = type(model).__name__
    told = "no certificate"
    if calls:
        (problem, weight_set, weights, coef, *_), (value, lower, _) = calls[-1]
        shift = abs(value) * max(errors[-1:], default=0.0)
        value, lower = value + shift, lower - shift
        told = judge(problem, weight_set, weights, coef, value, lower, rng)
    methods = ("predict_proba", "decision_function", "predict", "transform")
    asked = next(getattr(model, each) for each in methods if hasattr(model, each))
    if not np.all(np.isfinite(asked(X))):
        raise Failure(f"{name}: outputs that are not finite")
    return f"{name}: {told}"


def run(seed: int) -> str:
    """Run the case of a seed; a word on its outcome, or an error."""
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", KernelWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return model_case(rng) if seed % 5 == 4 else solve_case(rng)
        except np.linalg.LinAlgError as error:  # a ValueError, but of no use to anyone
            raise Failure(f"a matrix was not factored: {error!r}") from error
        except ValueError as error:
            origin = traceback.extract_tb(error.__traceback__)[-1].filename
            ours = "kernelweave" in origin or "sklearn" in origin
            if not ours or not re.match(r"[\w'].{20,}", str(error)):
                raise Failure(f"an error without a sentence: {error!r}") from error
            return f"refused: {re.sub('[0-9.]+(e[+-][0-9]+)?', '#', str(error))[:90]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, help="cases to repeat")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--cases", type=int, default=10**9)
    parser.add_argument("--first", type=int, help="default: a random number")
    parser.add_argument("--keep-going", action="store_true", help="after a failure")
    options = parser.parse_args()
    first = options.first
    if first is None:
        first = random.SystemRandom().randrange(1, 10**9)
    seeds: Any = options.seeds or range(first, first + options.cases)
    end = time.monotonic() + 60.0 * options.minutes
    counts: collections.Counter[str] = collections.Counter()

    def too_long(*_: Any) -> None:
        raise Failure(f"no answer within {PATIENCE} seconds")

    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, too_long)
    slowest, failed, count = (0.0, 0), 0, 0
    for seed in seeds:
        if time.monotonic() > end:
            break
        if hasattr(signal, "SIGALRM"):
            signal.alarm(PATIENCE)
        begun = time.monotonic()
        count += 1
        try:
            outcome = run(seed)
        except Exception as error:
            failed += 1
            outcome = f"FAILED: {type(error).__name__}"
            if not isinstance(error, Failure) or options.seeds:
                traceback.print_exc()
            print(f"{seed}: {type(error).__name__}: {error}", flush=True)
            if not options.keep_going:
                print(f"To repeat:\n  {sys.executable} {sys.argv[0]} {seed}")
                return 1
        finally:
            if hasattr(signal, "SIGALRM"):
                signal.alarm(0)
        if options.seeds:
            print(seed, outcome)
        slowest = max(slowest, (time.monotonic() - begun, seed))
        counts[outcome] += 1
    for outcome, number in sorted(counts.items(), key=lambda each: -each[1]):
        print(f"{number:7}  {outcome}")
    print(
        f"{count} cases from seed {first}, {failed} failed; "
        f"slowest {slowest[0]:.1f} s (seed {slowest[1]})"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
