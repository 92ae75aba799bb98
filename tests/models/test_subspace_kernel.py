"""SubspaceKernel: features, kernels, weights and label kernels."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from estimators import SETTINGS, in_turn, of, some
from kernelweave import MultipleKernelFDA, SubspaceKernel
from kernelweave._array import device, namespace, to_numpy
from kernelweave.criteria import Fisher
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.subspace import RegularizedKernel, label_factor
from kernelweave.kernels import RBF, DenseBank, Linear, center_and_scale

MODELS = some(SETTINGS, of(SubspaceKernel))
every_model = pytest.mark.parametrize("model", MODELS)


@pytest.fixture
def problem(make_problem):
    return make_problem(4, n=48, separation=3.0)


@pytest.mark.parametrize("alpha", [0.2, "loo"])
def test_no_sum_of_kernels_has_a_better_plain_subspace(alpha, problem, rng):
    X, y = problem.X, problem.y
    model = SubspaceKernel(problem.views, norm=1, alpha=alpha, weights="plain")
    model.set_params(n_components=2).fit(X, y)
    assert sorted(model.kernel_weights_)[-2:] == [0.0, 1.0]
    found = -model.certificate_.value
    assert found == pytest.approx(float(np.sum(model.dependence_)))
    bank = DenseBank(center_and_scale(np.moveaxis(problem.K, -1, 0).copy()))
    factor = label_factor(y, 4)
    for weights in rng.dirichlet(np.full(bank.n_kernels, 0.5), size=20):
        kernel = RegularizedKernel(bank.combine(weights), model.alpha_)
        assert np.sum(kernel.subspace(factor, 2).dependence) <= found * (1 + 1e-9)


def test_plain_weights_need_plain_features_and_a_norm_of_one(problem):
    for name, value in (("norm", 2), ("uncorrelated", True), ("method", "alignment")):
        model = SubspaceKernel(norm=1, weights="plain").set_params(**{name: value})
        with pytest.raises(ValueError, match=f"it needs {name}=.*, got {value!r}"):
            model.fit(problem.X, problem.y)


@every_model
def test_features_of_columns_and_kernels_are_the_same(model, problem):
    X, y = problem.X, problem.y
    columns = clone(model).set_params(views=problem.views).fit(X, y)
    kernels = clone(model).set_params(views="precomputed").fit(problem.K, y)
    expected = columns.transform(problem.new)
    assert expected.shape == (25, 3)
    scale = np.max(np.abs(expected))
    assert_allclose(kernels.transform(problem.new_K), expected, atol=1e-5 * scale)
    assert_allclose(columns.transform(X), columns.embedding_, atol=1e-8 * scale)
    assert_allclose(columns.kernel_, columns.kernel(X, X), atol=1e-7 * scale**2)
    inner = expected @ columns.embedding_.T
    assert_allclose(columns.kernel(problem.new, X), inner, atol=1e-9 * scale**2)
    assert columns.n_components_ == 3 == len(columns.get_feature_names_out())
    assert columns.certificate_.converged
    assert set(columns.view_weights_) == {"first", "second", "third"}


@pytest.mark.parametrize("uncorrelated", [False, True])
def test_model_is_the_criterion(problem, uncorrelated):
    model = SubspaceKernel(
        "precomputed", norm=1, alpha=0.3, uncorrelated=uncorrelated, tol=1e-9
    ).fit(problem.K, problem.y)
    bank = DenseBank(center_and_scale(np.moveaxis(problem.K, -1, 0)))
    L = label_factor(problem.y, 4)
    gram = bank.combine(model.kernel_weights_)
    subspace = RegularizedKernel(gram, 0.3).subspace(L, None, uncorrelated)
    scale = 48 if uncorrelated else 1  # features of Eq. 19 have unit norm, not variance
    expected = scale * subspace.features @ subspace.features.T
    assert_allclose(model.kernel_, expected, atol=1e-8 * np.max(np.abs(expected)))
    assert np.sum(model.dependence_) == pytest.approx(np.sum(subspace.dependence))
    value = Fisher(bank, L, 0.3).evaluate(model.kernel_weights_).value
    assert model.certificate_.value == pytest.approx(value, rel=1e-8)
    if uncorrelated:
        # Eq. 27: what the subspace explains and what is left add up to tr(H) = k - 1
        assert value + np.sum(model.dependence_) == pytest.approx(3, rel=1e-8)


@pytest.mark.parametrize("size", [1, None])
def test_problem_of_plain_subspaces_selects_one_kernel(problem, size, rng):
    """Eq. 8 is convex in the weights, so none that sum to one beat a single kernel."""
    bank = DenseBank(center_and_scale(np.moveaxis(problem.K, -1, 0)))
    L, p = label_factor(problem.y, 4), problem.K.shape[-1]

    def dependence(weights):
        kernel = RegularizedKernel(bank.combine(weights), 0.3)
        return np.sum(kernel.subspace(L, size, False).dependence)

    single = [dependence(weights) for weights in np.eye(p)]
    model = SubspaceKernel("precomputed", norm=1, alpha=0.3, n_components=size)
    model.fit(problem.K[..., np.argmax(single)], problem.y)
    assert np.sum(model.dependence_) == pytest.approx(max(single))
    mixed = rng.dirichlet(np.full(p, 0.5), size=30)
    values = np.array([dependence(weights) for weights in mixed])
    assert np.all(values <= mixed @ single * (1 + 1e-9))  # convex
    assert np.sum(model.fit(problem.K, problem.y).dependence_) < max(single)


def test_uncorrelated_features_are(problem):
    model = SubspaceKernel(problem.views, alpha=1.0, norm=1, uncorrelated=True)
    Z = model.fit(problem.X, problem.y).embedding_
    covariance = Z.T @ Z / len(Z)
    assert_allclose(covariance - np.diag(np.diag(covariance)), 0, atol=1e-10)
    assert np.all(np.diag(covariance) <= 1 + 1e-9)
    assert_allclose(Z.sum(axis=0), 0, atol=1e-8)


def test_uncorrelated_subspace_is_that_of_discriminant_analysis(problem):
    options = {"norm": 1, "alpha": 0.2}
    fda = MultipleKernelFDA(problem.views, **options).fit(problem.X, problem.y)
    model = SubspaceKernel(problem.views, uncorrelated=True, **options)
    model.fit(problem.X, problem.y)
    assert_allclose(model.kernel_weights_, fda.kernel_weights_, atol=1e-9)
    A, B = model.transform(problem.new), fda.transform(problem.new)
    residual = B - A @ np.linalg.lstsq(A, B, rcond=None)[0]
    # measured over 21 seeds: at most 1e-14
    assert np.max(np.abs(residual)) < 1e-10 * np.max(np.abs(B))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_number_of_components(problem, size):
    whole = SubspaceKernel(problem.views, alpha=0.2, norm=1).fit(problem.X, problem.y)
    model = clone(whole).set_params(n_components=size).fit(problem.X, problem.y)
    kept = min(size, 3)
    assert model.n_components_ == kept
    scale = np.max(np.abs(whole.embedding_))
    assert_allclose(model.embedding_, whole.embedding_[:, :kept], atol=1e-9 * scale)


def test_weights_need_not_know_the_number_of_components(problem):
    solvers = ("newton", "cutting_plane", "sdp")
    pytest.importorskip("cvxpy")
    rows = slice(0, 28)
    fits = [
        SubspaceKernel(
            "precomputed", norm=1, alpha=0.5, solver=solver, tol=1e-6, uncorrelated=True
        ).fit(problem.K[rows, rows], problem.y[rows])
        for solver in solvers
    ]
    values = [fit.certificate_.value for fit in fits]
    assert_allclose(values, values[0], rtol=2e-6)
    assert all(fit.certificate_.converged for fit in fits)


def test_hierarchy_of_labels(problem):
    """A label kernel that merges classes leads to a subspace that merges them too."""
    same = np.kron(np.eye(2), np.ones((2, 2)))
    model = SubspaceKernel(problem.views, alpha=0.1, norm=1, label_kernel=same)
    Z = model.fit(problem.X, problem.y).transform(problem.X)
    assert Z.shape == (48, 1)
    joined = problem.y >= 2
    plain = SubspaceKernel(problem.views, alpha=0.1, norm=1, label_kernel="indicator")
    expected = plain.fit(problem.X, joined).transform(problem.X)
    cosine = np.abs(Z[:, 0] @ expected[:, 0])
    cosine /= np.linalg.norm(Z) * np.linalg.norm(expected)
    assert cosine > 1 - 1e-6


def test_numbers_as_labels(regression):
    model = SubspaceKernel(regression.views, alpha=0.2, norm=1, uncorrelated=True)
    Z = model.fit(regression.X, regression.y).transform(regression.new)
    assert Z.shape == (25, 1) and not hasattr(model, "classes_")
    # measured: 0.83 to 0.98
    assert abs(np.corrcoef(Z[:, 0], regression.new_y)[0, 1]) > 0.5
    both = np.column_stack([regression.y, regression.X[:, 1]])
    assert model.fit(regression.X, both).n_components_ == 2
    counts = np.round(3 * regression.y).astype(int)
    linear = clone(model).set_params(label_kernel="linear")
    assert linear.fit(regression.X, counts).n_components_ == 1


def test_label_kernel_by_a_function(regression, problem):
    """Of numbers: similar targets count as similar. Of classes: as the matrix says."""
    near = RBF(1.0)
    model = SubspaceKernel(
        regression.views, alpha=0.2, norm=1, label_kernel=near, n_components=3
    )
    Z = model.fit(regression.X, regression.y).transform(regression.new)
    assert Z.shape == (25, 3) and not hasattr(model, "classes_")
    H = to_numpy(near(regression.y[:, None], regression.y[:, None]))
    P = np.eye(len(H)) - 1 / len(H)
    overlap = np.diag(model.embedding_.T @ P @ H @ P @ model.embedding_)
    assert_allclose(model.dependence_, overlap, rtol=1e-6)
    order = np.random.default_rng(0).permutation(len(H))
    again = clone(model).fit(regression.X[order], regression.y[order])
    scale = np.max(np.abs(Z))
    assert_allclose(again.transform(regression.new), Z, atol=1e-5 * scale)

    def ordered(a, b):
        return np.minimum(a, b.T) + 1.0

    options = {"views": problem.views, "alpha": 0.2, "norm": 1}
    called = SubspaceKernel(label_kernel=ordered, **options).fit(problem.X, problem.y)
    codes = np.arange(4.0)[:, None]
    matrix = SubspaceKernel(label_kernel=ordered(codes, codes), **options)
    matrix.fit(problem.X, problem.y)
    assert_allclose(called.embedding_, matrix.embedding_)
    assert np.array_equal(called.classes_, np.arange(4))


def test_two_balanced_classes_as_a_matrix_have_one_sign(make_problem):
    """The overlaps with both classes are equally large: the first decides."""
    problem = make_problem(2, n=40)
    fits = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(40)
        model = SubspaceKernel(
            problem.views, alpha=0.2, norm=1, label_kernel=np.eye(2)
        ).fit(problem.X[order], problem.y[order])
        fits.append(model.transform(problem.new))
    for Z in fits[1:]:
        assert_allclose(Z, fits[0], atol=1e-6 * np.max(np.abs(Z)))


@pytest.mark.filterwarnings("ignore:.*is stationary to:UserWarning")  # or in time
def test_alignment_in_single_precision_warns(problem):
    model = SubspaceKernel(problem.views, method="alignment", norm=1)
    with pytest.warns(KernelWarning, match="rounding in float32 decides where it ends"):
        model.fit(problem.X.astype(np.float32), problem.y)


def test_alignment_is_the_larger(problem):
    options = {"alpha": 0.5, "norm": 1}
    hsic = SubspaceKernel(problem.views, **options).fit(problem.X, problem.y)
    kta = clone(hsic).set_params(method="alignment").fit(problem.X, problem.y)
    H = label_factor(problem.y, 4)
    H = H @ H.T

    def alignment(K):
        return np.sum(K * H) / np.linalg.norm(K) / np.linalg.norm(H)

    assert alignment(kta.kernel_) == pytest.approx(kta.alignment_, rel=1e-6)
    assert kta.alignment_ > alignment(hsic.kernel_)
    assert kta.n_iter_ > hsic.n_iter_
    kta.set_params(max_iter=3, alpha=0.01, norm=np.inf)
    with pytest.warns(ConvergenceWarning, match=r"stationary .* use method='hsic'"):
        kta.fit(problem.X, problem.y)


@pytest.mark.measured
def test_grid_search_in_a_pipeline(problem):
    pipe = make_pipeline(SubspaceKernel(problem.views, norm=1), SVC(kernel="linear"))
    grid = {
        "subspacekernel__alpha": [0.1, 1.0],
        "subspacekernel__uncorrelated": [False, True],
        "svc__C": [1.0],
    }
    search = GridSearchCV(pipe, grid, cv=2, error_score="raise")
    # measured: 0.92
    assert search.fit(problem.X, problem.y).score(problem.new, problem.new_y) > 0.5


@in_turn(
    model=MODELS,
    other_backend=["array_api_strict", "torch"],
    indirect=["other_backend"],
)
def test_array_api(model, problem, other_backend):
    views = [("left", RBF(gamma=0.1), [0, 1, 2]), ("right", Linear(), [3, 4, 5])]
    model = clone(model).set_params(views=views)
    expected = model.fit(problem.X, problem.y).transform(problem.new)
    there = other_backend.asarray(problem.X)
    y = other_backend.asarray(problem.y, "int64")
    found = clone(model).fit(there, y).transform(other_backend.asarray(problem.new))
    assert namespace(found) is namespace(there) and device(found) == device(there)
    atol = 1e-6 * np.max(np.abs(expected))
    assert_allclose(to_numpy(found), expected, atol=atol)
    single = clone(model).fit(other_backend.asarray(problem.X, "float32"), problem.y)
    assert single.embedding_.dtype == other_backend.xp.float32
    assert single.certificate_.converged


BAD = [
    ({"method": "other"}, "'method' parameter"),
    ({"method": "alignment", "uncorrelated": True}, "no uncorrelated form"),
    ({"uncorrelated": "yes"}, "must be a bool"),
    ({"n_components": 0}, "'n_components' parameter"),
    ({"n_components": 1.5}, "'n_components' parameter"),
    ({"label_kernel": "other"}, "'label_kernel' parameter"),
    ({"label_kernel": np.eye(3)}, r"shape \(4, 4\)"),
    ({"label_kernel": -np.eye(4)}, "not positive semidefinite"),
    ({"label_kernel": np.triu(np.ones((4, 4)))}, "not symmetric"),
    ({"label_kernel": np.full((4, 4), np.nan)}, "NaN"),
    ({"label_kernel": np.ones((4, 4))}, "treats all classes alike"),
    ({"label_kernel": None}, "'label_kernel' parameter"),
    ({"label_kernel": 3.0}, "'label_kernel' parameter"),
    ({"label_kernel": lambda a, b: np.eye(3)}, r"shape \(4, 4\)"),
    ({"alpha": 0}, "'alpha' parameter"),
    ({"norm": 0.5}, "'norm' parameter"),
    ({"solver": "other"}, "'solver' parameter"),
    ({"tol": 0}, "'tol' parameter"),
    ({"psd": "other"}, "'psd' parameter"),
]


@pytest.mark.parametrize(("params", "message"), BAD)
def test_bad_parameters(problem, params, message):
    with pytest.raises(ValueError, match=message):
        SubspaceKernel(problem.views).set_params(**params).fit(problem.X, problem.y)


@pytest.mark.parametrize(
    ("y", "params", "message"),
    [
        (None, {}, "requires y"),
        (np.zeros(48), {}, "1 class"),
        (np.arange(47), {}, "inconsistent numbers"),
        (np.linspace(0, 1.05, 48), {"label_kernel": "indicator"}, "needs class labels"),
        (np.linspace(0, 1.05, 48), {"label_kernel": np.eye(2)}, "needs class labels"),
        (np.full(48, np.nan), {}, "NaN"),
        (np.full(48, 1), {"label_kernel": RBF(1.0)}, "1 class"),
        (np.full(48, 2.5), {"label_kernel": "linear"}, "nothing to depend on"),
        (np.array(["a", "b"] * 24), {"label_kernel": "linear"}, "Unknown label type"),
    ],
)
def test_bad_labels(problem, y, params, message):
    with pytest.raises(ValueError, match=message):
        SubspaceKernel(problem.views).set_params(**params).fit(problem.X, y)
