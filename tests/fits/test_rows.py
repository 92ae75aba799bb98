"""Weights and groups of rows, against refits without the rows left out."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave._array import to_numpy
from kernelweave.fits.alpha import LooPath
from kernelweave.fits.design import RowDesign
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.fits.ridge import fit_kernel, undone_shrinkage
from kernelweave.fits.targets import class_target

N, ALPHA = 24, 0.3


@pytest.fixture
def kernel(rng):
    X = rng.normal(size=(N, 5))
    squares = np.sum((X[:, None] - X[None]) ** 2, axis=2)
    return X @ X.T + np.exp(-squares / 4)


@pytest.fixture
def outputs(rng):
    return rng.normal(size=(N, 3))


#: Sizes of groups: of up to a third of the rows, of more, of more and fewer, of all
#: rows but one.
SIZES = {
    "groups": (4, 3, 3, 4, 3, 1, 6),
    "halves": (12, 12),
    "large": (15, 4, 2, 1, 1, 1),
    "rest": (23, 1),
}


def design_of(rng, sizes=None, weighted=False):
    weights = rng.uniform(0.3, 3.0, N) if weighted else None
    groups = None
    if sizes is not None:
        groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return RowDesign(N, weights, groups)


@pytest.fixture(params=[None, *SIZES])
def sizes(request):
    return SIZES.get(request.param)


@pytest.fixture(params=[False, True], ids=["", "weights"])
def design(request, rng, sizes):
    return design_of(rng, sizes, request.param)


def centred(kernel, outputs, design):
    """``G~`` and H."""
    mean = np.eye(N) - np.outer(np.ones(N), design.each) / design.total
    root = np.sqrt(design.each)
    return root[:, None] * (mean @ kernel @ mean.T) * root, mean @ outputs


def ridge(kernel, outputs, weights):
    """Coefficients and intercept of ``min sum_i w_i (y_i - f_i)^2 + alpha |f|^2``."""
    ones = np.ones((len(weights), 1))
    regularized = kernel + ALPHA * np.diag(1 / weights)
    system = np.block([[regularized, ones], [ones.T, np.zeros((1, 1))]])
    solved = np.linalg.solve(system, np.r_[outputs, np.zeros((1, outputs.shape[1]))])
    return solved[:-1], solved[-1]


def refits(kernel, outputs, design):
    """Predictions for each group without it, and the mean of the other outputs."""
    predicted, means = np.empty((2, *outputs.shape))
    for rows in design.members:
        rest = np.setdiff1d(np.arange(N), rows)
        own = kernel[np.ix_(rest, rest)], outputs[rest], design.each[rest]
        coef, intercept = ridge(*own)
        predicted[rows] = kernel[np.ix_(rows, rest)] @ coef + intercept
        means[rows] = np.average(outputs[rest], axis=0, weights=design.each[rest])
    return predicted, means


def average_moves(gram, missed, design):
    """By how much predictions for all other groups move without each, (n, k).

    To first order ``A_TT^-1 A_TS e_S`` for group T, weighted by ``1'A_TT``; ``missed``
    is -e. Without a kernel A is alpha times that of a kernel that is zero.
    """
    total = np.sum(design.each)
    A = np.diag(design.each) - np.outer(design.each, design.each) / total
    if gram is not None:
        plain = design.unscale(design.unscale(gram).T) + ALPHA * np.diag(
            1 / design.each
        )
        A = np.linalg.inv(plain) - np.outer(design.each, design.each) / (total * ALPHA)
    moves = np.empty_like(missed)
    for own in design.members:
        others = [rows for rows in design.members if rows is not own]
        sums = sum(np.sum(A[np.ix_(rows, own)], axis=0) for rows in others)
        size = sum(np.sum(A[np.ix_(rows, rows)]) for rows in others)
        moves[own] = sums @ -missed[own] / size
    return moves


def test_fits_leave_out_rows_and_groups_as_refits_do(kernel, outputs, design):
    gram, target = centred(kernel, outputs, design)
    coef, _ = ridge(kernel, outputs, design.each)
    predicted, means = refits(kernel, outputs, design)
    path = LooPath(gram.copy(), target, design)
    fit = fit_kernel(gram.copy(), target, ALPHA, design)
    np.testing.assert_allclose(fit.coef, coef, atol=1e-11)
    np.testing.assert_allclose(path.coef(ALPHA), coef, atol=1e-11)
    np.testing.assert_allclose(fit.loo_residual, outputs - predicted, atol=1e-11)
    np.testing.assert_allclose(
        path.fit(ALPHA).loo_residual, outputs - predicted, atol=1e-11
    )
    held_out = fit.held_out(target, design)
    moves = average_moves(gram, predicted - outputs, design)
    moves -= average_moves(None, means - outputs, design)
    g = len(design.members)
    expected = (predicted - means - moves) * undone_shrinkage(g)
    np.testing.assert_allclose(held_out, expected, atol=1e-10)
    again = path.fit(ALPHA).held_out(target, design)
    np.testing.assert_allclose(held_out, again, atol=1e-10)
    error = np.average((outputs - predicted) ** 2, axis=0, weights=design.each)
    np.testing.assert_allclose(path.press([ALPHA]), np.mean(error), rtol=1e-10)
    assert design.mean_square(fit.loo_residual) == pytest.approx(np.mean(error))


@pytest.mark.parametrize("sizes", [SIZES["halves"], SIZES["large"]])
def test_large_groups_miss_what_inverses_say(kernel, outputs, sizes, rng):
    """``D e_S = (A~_SS)^-1 B~_S``, for one alpha per output, too."""
    design = design_of(rng, sizes, weighted=True)
    gram, target = centred(kernel, outputs, design)
    path = LooPath(gram.copy(), target, design)
    alphas = np.array([[1e-3, 0.3, 40.0], [2.0, 1.0, 1e3]])
    errors = np.empty((2, 3))
    for i, row in enumerate(alphas):
        expected = np.empty((N, 3))
        for j, alpha in enumerate(row):
            A = path.vectors @ np.diag(1.0 / (path.eigenvalues + alpha))
            A = A @ path.vectors.T
            B = A @ design.scale(target[:, [j]])
            for rows in design.members:
                block = A[np.ix_(rows, rows)]
                expected[rows, j] = np.linalg.solve(block, B[rows])[:, 0]
        fit = path.fit(row)
        np.testing.assert_allclose(design.scale(fit.loo_residual), expected, atol=1e-10)
        errors[i] = np.sum(expected**2, axis=0) / design.total
    np.testing.assert_allclose(path.errors(alphas), errors, rtol=1e-10)


def test_large_groups_in_single_precision(kernel, outputs, rng):
    design = design_of(rng, SIZES["large"], weighted=True)
    gram, target = centred(kernel, outputs, design)
    expected = fit_kernel(gram.copy(), target, ALPHA, design)
    single, rough = gram.astype(np.float32), target.astype(np.float32)
    path = LooPath(single.copy(), rough, design)
    for fit in (fit_kernel(single, rough, ALPHA, design), path.fit(ALPHA)):
        assert fit.loo_residual.dtype == np.float32
        # measured: 3e-7 to 4e-6
        np.testing.assert_allclose(
            fit.loo_residual, expected.loo_residual, rtol=5e-5, atol=5e-5
        )
        np.testing.assert_allclose(fit.precision, expected.precision, rtol=1e-3)


@pytest.mark.parametrize("sizes", [SIZES["large"], SIZES["rest"]])
def test_large_groups_in_every_array_library(kernel, outputs, sizes, xp_backend, rng):
    design = design_of(rng, sizes, weighted=True)
    gram, target = centred(kernel, outputs, design)
    expected = fit_kernel(gram.copy(), target, ALPHA, design)
    moved = xp_backend.asarray(target)
    path = LooPath(xp_backend.asarray(gram.copy()), moved, design)
    found = fit_kernel(xp_backend.asarray(gram.copy()), moved, ALPHA, design)
    for fit in (found, path.fit(ALPHA)):
        residual = to_numpy(fit.loo_residual)
        np.testing.assert_allclose(residual, expected.loo_residual, atol=1e-10)
        np.testing.assert_allclose(fit.precision, expected.precision, rtol=1e-9)
    error = design.mean_square(expected.loo_residual)
    np.testing.assert_allclose(path.press([ALPHA]), error, rtol=1e-10)


def test_no_system_is_solved_for_a_large_group(kernel, outputs, monkeypatch, rng):
    """One group of most rows once took twenty times as long as none."""
    design = design_of(rng, SIZES["large"])
    solved, solve = [], RowDesign.solve_left_out

    def recorded(design, groups, *rest, **options):
        solved.extend(len(rows) for rows in groups)
        return solve(design, groups, *rest, **options)

    monkeypatch.setattr(RowDesign, "solve_left_out", recorded)
    gram, target = centred(kernel, outputs, design)
    path = LooPath(gram.copy(), target, design)
    path.best_alpha()
    assert set(solved) == {2, 4}  # rows on their own take no system, either
    fit_kernel(gram, target, ALPHA, design)
    assert max(solved) == 4


def test_groups_of_one_row_change_nothing(kernel, outputs):
    gram, target = centred(kernel, outputs, RowDesign(N))
    alone = RowDesign(N, groups=np.arange(N)[::-1].copy())
    left = fit_kernel(gram.copy(), target, ALPHA, alone)
    plain = fit_kernel(gram.copy(), target, ALPHA)
    np.testing.assert_allclose(left.loo_residual, plain.loo_residual, atol=1e-12)


def classes_of(rng, k=3):
    codes = np.r_[np.arange(k), np.arange(k), rng.integers(0, k, N - 2 * k)]
    return codes, rng.normal(size=(N, k)) + class_target(codes, k)


def test_whole_weights_are_repeated_rows_left_out_together(rng):
    codes, projected = classes_of(rng)
    weights = rng.integers(1, 4, N)
    copies = np.repeat(np.arange(N), weights)
    target = class_target(codes, 3, weights.astype(float))
    one = ClassGaussians.fit(
        projected, target, codes, design=RowDesign(N, weights.astype(float))
    )
    # the same through the groups: each row and its copies
    many = ClassGaussians.fit(
        projected[copies],
        target[copies],
        codes[copies],
        design=RowDesign(len(copies), groups=copies),
    )
    np.testing.assert_allclose(one.means, many.means, atol=1e-12)
    np.testing.assert_allclose(one.log_prior, many.log_prior, atol=1e-12)
    assert one.slope == pytest.approx(many.slope)
    assert one.variance == pytest.approx(many.variance)
    assert one.loo_score == pytest.approx(many.loo_score)


def test_a_class_in_one_group_only_is_an_error(rng):
    codes, projected = classes_of(rng)
    projected += 10 * class_target(codes, 3)  # perfectly separated
    target, groups = class_target(codes, 3), np.arange(N)
    groups[codes == 2] = N
    groups = np.unique(groups, return_inverse=True)[1]
    plain = ClassGaussians.fit(projected, target, codes)
    grouped = ClassGaussians.fit(
        projected, target, codes, design=RowDesign(N, groups=groups)
    )
    assert plain.loo_score == 1.0
    assert grouped.loo_score == pytest.approx(np.mean(codes != 2))
