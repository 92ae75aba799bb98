"""Predictive densities of one kernel against refitting, and the mixture likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import softmax

from kernelweave._array import to_numpy
from kernelweave.criteria.fisher import Fisher
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.fits.design import RowDesign
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.fits.predictive import SAME_EVIDENCE, PredictivePath, choose_noise
from kernelweave.fits.targets import class_target
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.solvers import solve
from kernelweave.weights import Simplex
from reproduce.reference.printed_mixture import in_sample

LEVELS = np.array([1e-3, 0.1, 0.5, 20.0])


def oracle():
    """Twelve deterministic rows: three Gaussian kernels, three classes."""
    i = np.arange(12)
    y = np.repeat([0, 1, 2], [3, 4, 5])
    X = np.stack([np.sin(1 + 1.7 * i), np.cos(0.3 + 2.3 * i), np.sin(0.5 + 0.9 * i)], 1)
    X += 0.5 * np.eye(3)[y]
    new = np.array([[0.2, 0.1, -0.3], [1.0, -0.5, 0.4]])
    kernels, crosses = [], []
    for columns, gamma in (([0], 1.0), ([1, 2], 0.5), ([0, 1, 2], 0.25)):
        kernels.append(gaussian(X[:, columns], X[:, columns], gamma))
        crosses.append(gaussian(new[:, columns], X[:, columns], gamma))
    return np.array(kernels), np.array(crosses), y


def gaussian(X, Z, gamma):
    return np.exp(-gamma * ((X[:, None] - Z[None]) ** 2).sum(axis=2))


def centred(K):
    P = np.eye(len(K)) - 1 / len(K)
    return P @ K @ P


@pytest.fixture
def problem(rng):
    """An uncentred kernel (n, n) and class coordinates (n, 3)."""
    X = rng.normal(size=(20, 4))
    codes = np.arange(20) % 3
    X[:, 0] += codes
    return gaussian(X, X, 0.2), class_target(codes, 3)


def path_of(K, target):
    return PredictivePath(centred(K), target)


def refit(K, y, i, noise):
    """Mean and variance of row i from a fit centred on the others, amplitude 1."""
    rest = np.delete(np.arange(len(K)), i)
    inner, cross = K[np.ix_(rest, rest)], K[i, rest]
    means, grand = inner.mean(axis=0), inner.mean()
    G = inner - means - means[:, None] + grand
    g = cross - means - cross.mean() + grand
    own = K[i, i] - 2 * cross.mean() + grand
    M = G + noise * np.eye(len(rest))
    mean = y[rest].mean(axis=0) + g @ np.linalg.solve(M, y[rest] - y[rest].mean(axis=0))
    variance = noise * (1 + 1 / len(rest)) + own - g @ np.linalg.solve(M, g)
    return mean, variance


@pytest.mark.parametrize("shift", [0.0, 5.0], ids=["plain", "kernel plus constant"])
def test_leave_one_out_is_refitting(problem, shift):
    K, target = problem
    table = path_of(K + shift, target).loo(LEVELS)
    for g, noise in enumerate(LEVELS):
        for i in range(len(K)):
            mean, variance = refit(K, target, i, noise)
            assert_allclose(target[i] - table.residual[g, i], mean, atol=1e-9)
            assert_allclose(1 / table.precision[g, i], variance, rtol=1e-9)


def test_leave_one_out_of_a_target_that_is_not_centred(problem):
    K, target = problem
    moved = path_of(K, target + 3.0)
    assert_allclose(moved.loo(LEVELS).residual, path_of(K, target).loo(LEVELS).residual)
    assert_allclose(moved.intercept, 3.0)


def test_centring_of_all_rows_would_leak(problem):
    """The obvious formula recovers the held-out label."""
    K, target = problem
    noise = 1e-6
    Q = np.linalg.inv(centred(K) + noise * np.eye(len(K)))
    leaking = Q @ target / np.diag(Q)[:, None]
    honest = path_of(K, target).loo(np.array([noise])).residual[0]
    # measured over 21 seeds: at most 0.002, and 0.72 or more
    assert np.sqrt(np.mean(leaking**2)) < 1e-2 < 0.1 < np.sqrt(np.mean(honest**2))
    precision = path_of(K, target).loo(np.array([0.3])).precision[0]
    Q = np.linalg.inv(centred(K) + 0.3 * np.eye(len(K)))
    assert_allclose(precision, np.diag(Q) - 1 / (0.3 * len(K)), rtol=1e-8)


@pytest.mark.parametrize("noise", [1e-3, 1.0])
def test_rows_that_are_not_centred_shift_the_projection(problem, noise):
    """Coefficients sum to zero, so only a constant vector is added."""
    K, target = problem
    coef = path_of(K, target).coef(noise)
    assert_allclose(coef.sum(axis=0), 0.0, atol=1e-8)
    plain, right = K @ coef, centred(K) @ coef
    assert_allclose(plain - right, np.tile((plain - right)[0], (20, 1)), atol=1e-8)


def log_marginal(K, y, noise):
    """Density of the component orthogonal to the intercept, in an explicit basis."""
    n = len(K)
    basis = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1]
    covariance = basis.T @ (K + noise * np.eye(n)) @ basis
    return stats.multivariate_normal(cov=covariance).logpdf(basis.T @ y)


def test_marginal_likelihood(problem):
    K, target = problem
    found = path_of(K, target).log_marginal(LEVELS, 1.0)
    wanted = [[log_marginal(K, y, noise) for y in target.T] for noise in LEVELS]
    assert_allclose(found, wanted, rtol=1e-8)
    path = path_of(K, target)
    best = path.marginal_amplitude(LEVELS)
    for g, noise in enumerate(LEVELS):
        for c, y in enumerate(target.T):
            scaled = [
                log_marginal(a * K, y, a * noise)
                for a in best[g, c] * np.array([0.9, 1.0, 1.1])
            ]
            found = path.log_marginal(LEVELS, best)[g, c]
            assert_allclose(found, scaled[1], rtol=1e-7)
            assert scaled[1] > max(scaled[0], scaled[2])


def test_density_is_a_difference_of_marginals(problem):
    K, target = problem
    n = len(K)
    table = path_of(K, target).loo(np.array([0.5]))
    found = table.log_density(np.ones((1, 3)))[0]
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        for c, y in enumerate(target.T):
            without = log_marginal(K[np.ix_(rest, rest)], y[rest], 0.5)
            wanted = log_marginal(K, y, 0.5) - without - 0.5 * np.log(n / (n - 1))
            assert_allclose(found[i, c], wanted, atol=1e-8)


def test_profiled_amplitude_maximises_the_density(problem):
    K, target = problem
    table = path_of(K, target).loo(LEVELS)
    best = table.amplitude()
    at = [table.log_density(best * f).sum(axis=1) for f in (0.9, 1.0, 1.1)]
    assert np.all(at[1] > at[0]) and np.all(at[1] > at[2])


@pytest.mark.parametrize("noise", ["loo", "ml", 0.3])
def test_scale_of_the_kernel_does_not_matter(problem, noise):
    K, target = problem
    one = choose_noise(path_of(K, target), noise)
    other = choose_noise(path_of(100 * K, target), noise)
    assert_allclose(other.log_density, one.log_density, atol=1e-8)
    assert_allclose(other.mean, one.mean, atol=1e-8)
    assert_allclose(other.noise, 100 * one.noise, rtol=1e-10)


def test_scale_of_the_target_does_not_matter(problem):
    """Hence the two columns of two classes get the same noise and weights."""
    K, target = problem
    one = choose_noise(path_of(K, target))
    other = choose_noise(path_of(K, -3 * target))
    assert_allclose(other.noise, one.noise)
    assert_allclose(other.log_density, one.log_density - np.log(3), atol=1e-8)
    fixed = choose_noise(path_of(K, target), amplitude="unit")
    assert np.all(fixed.amplitude == 1)


@pytest.mark.parametrize("noise", ["loo", "ml"])
@pytest.mark.parametrize("factor", [1e-3, 2.0, 1e4])
def test_a_common_factor_of_the_weights_is_one_of_the_noise(problem, noise, factor):
    K, target = problem
    weights = np.linspace(0.5, 1.5, len(K))
    mean = np.eye(len(K)) - np.outer(np.ones(len(K)), weights) / np.sum(weights)
    root, expert = np.sqrt(weights), {}
    gram = root[:, None] * (mean @ K @ mean.T) * root
    for f in (1.0, factor):
        design = RowDesign(len(K), f * weights)
        path = PredictivePath(f * gram, target, design=design)
        expert[f] = choose_noise(path, noise)
    assert_allclose(expert[factor].noise, factor * expert[1.0].noise)
    assert_allclose(expert[factor].mean, expert[1.0].mean, atol=1e-9)


def test_copies_are_counted_once_unless_their_targets_differ(rng):
    X, codes = rng.normal(size=(9, 2)), np.array([0, 1, 0, 1, 0, 1, 0, 1, 0])
    X[[3, 5]], X[8] = X[1], X[7]  # three of one class, and one of each
    K, target = gaussian(X, X, 0.5), class_target(codes, 2)
    path = path_of(K, target)
    assert path.n_counted == 7
    # for the likelihood, the three copies are one row of weight three
    rows, weights = [0, 1, 2, 4, 6, 7, 8], np.array([1.0, 3, 1, 1, 1, 1, 1])
    root, mean = np.sqrt(weights), np.eye(7) - np.outer(np.ones(7), weights) / 9
    gram = root[:, None] * (mean @ K[np.ix_(rows, rows)] @ mean.T) * root
    merged = PredictivePath(gram, target[rows], design=RowDesign(7, weights))
    assert merged.n_counted == 7
    assert_allclose(merged.log_marginal(LEVELS, 0.3), path.log_marginal(LEVELS, 0.3))
    assert_allclose(merged.grid(), path.grid())


@pytest.mark.parametrize("noise", ["loo", "ml"])
def test_chosen_noise_is_the_best_of_the_grid(problem, noise):
    K, target = problem
    path = path_of(K, target)
    expert = choose_noise(path, noise)
    grid = path.grid()
    if noise == "loo":
        error = np.mean(path.loo(grid).residual ** 2, axis=1)
        score = -0.5 * len(K) * np.log(error)
    else:
        score = path.log_marginal(grid, path.marginal_amplitude(grid))
    good = score >= np.max(score, axis=0) - len(K) * SAME_EVIDENCE
    best = [np.flatnonzero(column)[-1] for column in good.T]  # of equals, the largest
    assert np.array_equal(expert.noise, grid[best])
    again = choose_noise(path, expert.noise / path.mean_eigenvalue)
    assert_allclose(again.mean, expert.mean, atol=1e-12)
    for c, level in enumerate(expert.noise):
        assert_allclose(again.coef[:, c], path.coef(level)[:, c], atol=1e-10)


def test_levels_can_be_changed_later(problem):
    K, target = problem
    path = path_of(K, target)
    expert = choose_noise(path, "loo").moved(np.array([3, 20, 7]))
    wanted = choose_noise(path, path.grid()[[3, 20, 7]] / path.mean_eigenvalue)
    for name in ("noise", "amplitude", "mean", "variance", "log_density", "coef"):
        assert_allclose(getattr(expert, name), getattr(wanted, name), atol=1e-10)


@pytest.mark.parametrize("size", [1e-6, 1e-2, 3.0])
def test_errors_of_a_kernel_bound_those_of_its_densities(problem, rng, size):
    """Against kernels whose eigenvalues differ by ``size``, at weighted rows."""
    K, target = problem
    design = RowDesign(len(K), weights=rng.uniform(0.5, 3.0, size=len(K)))
    null, root = design.each**0.5 / design.total**0.5, design.each**0.5
    P = np.eye(len(K)) - np.outer(null, null)
    G = P @ (root[:, None] * K * root) @ P
    target = target - np.average(target, axis=0, weights=design.each)
    path = PredictivePath(G.copy(), target, design=design, error=size)
    for noise in ("loo", "ml", 0.01):
        known = choose_noise(path, noise)
        for _ in range(5):
            basis = np.linalg.qr(rng.normal(size=G.shape))[0]
            values, vectors = np.linalg.eigh(
                G + size * P @ (basis * rng.choice([-1, 1], len(K))) @ basis.T @ P
            )
            moved = (vectors * np.maximum(values, 0)) @ vectors.T
            other = PredictivePath(moved, target, design=design)
            level = known.noise / path.mean_eigenvalue
            table = other.loo(level * other.mean_eigenvalue)
            marginal = other.marginal_amplitude(table.noises)
            scale = marginal if noise == "ml" else table.amplitude()
            density = table.log_density(scale)
            for c in range(3):
                mean = target[:, c] - table.residual[c, :, c]
                found = np.stack([mean, density[c, :, c]])
                stated = np.stack([known.mean[:, c], known.log_density[:, c]])
                assert np.all(np.abs(found - stated) <= known.errors[:, :, c])
    assert np.all(np.isfinite(known.errors))
    # measured: 0.004 to 0.02
    assert size > 1e-6 or np.max(known.errors) < 0.1


def test_new_rows_have_the_variance_of_the_gaussian_process(problem, rng):
    K, target = problem
    n, noise = len(K), np.array([0.05, 0.5, 3.0])
    path = path_of(K[:15, :15], target[:15])
    inner, cross, own = K[:15, :15], K[15:, :15], np.diag(K)[15:]
    means, grand = inner.mean(axis=0), inner.mean()
    g = cross - means - cross.mean(axis=1, keepdims=True) + grand
    norms = own - 2 * cross.mean(axis=1) + grand
    found = path.variance_factor(g, norms, noise)
    G = centred(inner)
    for c, level in enumerate(noise):
        M = G + level * np.eye(15)
        wanted = level * (1 + 1 / 15) + norms - np.sum(g * np.linalg.solve(M, g.T).T, 1)
        assert_allclose(found[:, c], wanted, rtol=1e-8)
        # Eq. 14 is smaller, by the part of x outside the span of the training rows.
        span = np.linalg.pinv(G, rcond=1e-10)
        b = np.linalg.pinv(G + G @ G / level, rcond=1e-10)
        printed = level + np.sum(g @ b * g, axis=1)
        schur = norms - np.sum(g @ span * g, axis=1)
        assert np.all(schur > 0)
        assert_allclose(wanted - level / 15 - printed, schur, rtol=1e-6, atol=1e-9)
    assert n == 20


def test_at_training_rows_both_variances_agree(problem):
    K, target = problem
    path = path_of(K, target)
    G = centred(K)
    found = path.variance_factor(G, np.diag(G), np.full(3, 0.5))
    _, printed = in_sample(path, np.full(3, 0.5))
    assert_allclose(found - 0.5 / len(K), printed, rtol=1e-8)
    # norms below that of the projection are raised to it
    assert_allclose(path.variance_factor(G, 0 * np.diag(G), np.full(3, 0.5)), found)


def test_kernel_that_knows_nothing_does_not_tell_the_label(rng):
    """Leave-one-out means do, with the wrong sign; about one intercept they do not."""
    codes = np.arange(60) % 2
    target = class_target(codes, 2)
    K = np.eye(60) + 0.001 * centred(np.cov(rng.normal(size=(60, 90))))
    expert = choose_noise(path_of(K, target), 10.0)
    means = [np.corrcoef(z[:, 0], codes)[0, 1] for z in (expert.mean, expert.held_out)]
    # class 0 has the positive target in column 0: inverted; measured: 1
    assert means[0] > 0.95
    assert abs(means[1]) < 0.8  # measured: up to 0.43; the deviation is 0.13


def test_every_library(problem, xp_backend):
    K, target = problem
    wanted = choose_noise(path_of(K, target))
    path = PredictivePath(xp_backend.asarray(centred(K)), xp_backend.asarray(target))
    found = choose_noise(path)
    for name in ("noise", "mean", "variance", "log_density", "coef", "held_out"):
        assert_allclose(getattr(found, name), getattr(wanted, name), atol=1e-8)
    rows = xp_backend.asarray(centred(K)[:4])
    norms = xp_backend.asarray(np.ones(4))
    variance = path.variance_factor(rows, norms, found.noise)
    expected = path_of(K, target).variance_factor(
        centred(K)[:4], np.ones(4), found.noise
    )
    assert_allclose(to_numpy(variance), expected, rtol=1e-8)


def test_single_precision(problem, xp_backend):
    K, target = problem
    path = PredictivePath(
        xp_backend.asarray(centred(K), "float32"), xp_backend.asarray(target, "float32")
    )
    found = choose_noise(path, 0.5)
    assert found.log_density.dtype == np.float64
    assert_allclose(found.mean, choose_noise(path_of(K, target), 0.5).mean, atol=1e-4)


# Values of a deterministic problem ----------------------------------------------------


def test_values_of_one_kernel():
    kernels, crosses, y = oracle()
    target = class_target(y, 3)
    rows = [
        [1.5, -0.5773502692, -0.6454972244],
        [-0.5, 1.1547005384, -0.6454972244],
        [-0.5, -0.5773502692, 0.9036961141],
    ]
    assert_allclose(target[[0, 3, 7]], rows, atol=1e-10)
    loo = {
        0: ([0.1066747684, 0.0945408507, -0.1671898278], 0.9085103288),
        1: ([-0.0709776974, 0.0303025839, 0.0278756330], 0.7700380198),
        2: ([-0.2770029202, -0.3382978469, 0.5171483323], 0.8978602476),
    }
    marginals = [
        (-15.6626213198, -15.4045532866),
        (-16.1241978012, -15.9989412250),
        (-16.2124667345, -16.0949315107),
    ]
    half = np.array([0.5])
    for e, K in enumerate(kernels):
        path = path_of(K, target)
        table = path.loo(half)
        assert_allclose(target[0] - table.residual[0, 0], loo[e][0], atol=1e-9)
        assert_allclose(1 / table.precision[0, 0], loo[e][1], atol=1e-9)
        scales = 1.0, path.marginal_amplitude(half)
        found = [path.log_marginal(half, scale)[0, 0] for scale in scales]
        assert_allclose(found, marginals[e], atol=1e-9)
    path = path_of(kernels[0], target)
    mean, variance = in_sample(path, np.full(3, 0.5))
    assert_allclose(mean[0], [0.7331814028, -0.2075739999, -0.3822600429], atol=1e-9)
    assert_allclose(variance[0], 0.6831575955, atol=1e-9)
    projected = (crosses[0] - kernels[0].mean(axis=0)) @ path.coef(0.5)
    assert_allclose(
        projected[0], [-0.3441019214, 0.1429224590, 0.1387064687], atol=1e-9
    )


def test_values_of_the_best_sum_of_kernels():
    """l1 MK-FDA on the same kernels, without scaling, at alpha = 0.5."""
    kernels, _, y = oracle()
    bank = DenseBank(np.array([centred(K) for K in kernels]))
    found = solve(Fisher(bank, class_target(y, 3), 0.5), Simplex(), tol=1e-12)
    wanted = [0.0091040829, 0.3013886967, 0.6895072205]
    assert_allclose(found.weights, wanted, atol=2e-6)
    assert_allclose(found.value / 12, 1.2169745036, atol=1e-9)


@pytest.mark.parametrize("start", [0.01, 5.0])
@pytest.mark.parametrize("c", [0, 1, 2])
def test_noise_by_expectation_maximisation(start, c):
    """``[sum r^2 + sum (v - lambda)] / (n - 1)`` maximises the marginal likelihood.

    As printed (Eq. 20), without the posterior variance, it does not.
    """
    kernels, _, y = oracle()
    path = path_of(kernels[1], class_target(y, 3)[:, c : c + 1])
    n, levels = len(y), [start]
    for _ in range(400):
        noise = levels[-1]
        mean, variance = in_sample(path, np.array([noise]))
        squares = np.sum((path.target - mean) ** 2)
        levels.append(float(squares + np.sum(variance - noise)) / (n - 1))
    values = path.log_marginal(np.array(levels), 1.0)[:, 0]
    assert np.all(np.diff(values) >= -1e-12)
    grid = np.geomspace(levels[-1] / 3, levels[-1] * 3, 2001)
    best = path.log_marginal(grid, 1.0)[:, 0]
    assert values[-1] >= best.max() - 1e-9
    # the middle of the grid
    assert_allclose(levels[-1], grid[np.argmax(best)], rtol=1e-12)
    printed = float(squares) / n
    # measured: 0.22 to 0.53, where the other is 0.38 to 0.79
    assert printed < 0.99 * levels[-1]


# The mixture --------------------------------------------------------------------------


@pytest.fixture
def densities(rng):
    return rng.normal(size=(40, 6)) * 2 - np.linspace(0, 3, 6)


@pytest.mark.parametrize("prior", [0.0, 0.7])
def test_likelihood_value_and_derivatives(densities, prior, rng):
    criterion = MixtureLikelihood(densities, prior)
    w = rng.dirichlet(np.ones(6) * 3)
    state = criterion.evaluate(w)
    n = len(densities)
    wanted = -(np.log(np.exp(densities) @ w).sum() + prior * np.log(w).sum()) / n
    assert_allclose(state.value + criterion.offset, wanted, rtol=1e-12)
    uniform = criterion.evaluate(np.full(6, 1 / 6)).value
    assert_allclose(uniform, -1.0, atol=1e-12)
    step = 1e-6
    for e in range(6):
        move = step * np.eye(6)[e]
        up, down = criterion.evaluate(w + move), criterion.evaluate(w - move)
        assert_allclose(
            state.gradient[e], (up.value - down.value) / 2 / step, rtol=1e-6
        )
        slope = (up.gradient - down.gradient) / 2 / step
        assert_allclose(state.hessian[e], slope, rtol=1e-5, atol=1e-6)
    assert criterion.evaluate(w, hessian=False).hessian is None


@pytest.mark.parametrize("prior", [0.0, 0.7])
def test_any_dual_point_bounds_the_likelihood(densities, prior, rng):
    criterion = MixtureLikelihood(densities, prior)
    best = -np.inf
    for _ in range(20):
        w, u = rng.dirichlet(np.ones(6), size=2)
        dual = rng.gamma(2.0, size=40), rng.gamma(2.0, size=6)
        terms = criterion.certificate_terms(w, dual, dual)
        assert_allclose(terms.upper, criterion.evaluate(w).value)
        assert criterion.evaluate(u).value >= terms.linear - terms.scores @ u - 1e-12
        best = max(best, terms.lower_bound(np.max(terms.scores)))
    assert best <= criterion.evaluate(np.full(6, 1 / 6)).value


def test_rows_that_would_underflow():
    criterion = MixtureLikelihood(np.array([[-5000.0, -4000.0], [-3.0, -np.inf]]))
    w = np.array([0.25, 0.75])
    wanted = -(np.log(0.75) - 4000 + np.log(0.25) - 3) / 2
    assert_allclose(criterion.evaluate(w).value + criterion.offset, wanted)


def test_gaussians_with_a_spread_of_their_own(rng):
    codes = np.arange(90) % 3
    z = rng.normal(size=(90, 3)) + 2 * np.eye(3)[codes]
    plain, even = (
        ClassGaussians.fit(z, class_target(codes, 3), codes),
        ClassGaussians.fit(z, class_target(codes, 3), codes, np.full((90, 3), 4.0)),
    )
    assert even.scatter == 4.0
    assert_allclose(8 * even.variance, plain.variance)
    new = rng.normal(size=(5, 3))
    assert_allclose(
        np.diff(even.log_joint(new, np.full((5, 3), 4.0))),
        np.diff(plain.log_joint(new)),
    )
    sure = even.log_joint(new, np.full((5, 3), 1e9))
    # nothing known: the prior, whatever the temperature
    assert_allclose(softmax(sure, axis=1), 1 / 3, atol=1e-6)
