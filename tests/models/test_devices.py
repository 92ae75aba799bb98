"""Where and how kernels are held changes no result: on the fly, on another device."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from sklearn.base import clone

from estimators import EXPLICIT, ONE_EACH, SETTINGS, is_certified, output, some, takes
from kernelweave import KernelFDA, MultipleKernelFDA, MultipleKernelSVC
from kernelweave import _array as memory
from kernelweave._array import is_array, is_numpy, to_numpy
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.kernels import RBF, Linear, Pipe, Standardizer
from kernelweave.kernels.banks.lazy import TILE

VIEWS = [
    ("left", [Linear(), RBF()], [0, 1]),
    ("right", Pipe(Standardizer(), [RBF(), RBF(factor=3.0)]), [2, 3, 4]),
]
N = 36
ON_THE_FLY = some(
    (
        *ONE_EACH,
        "MultipleKernelFDA",
        "MultipleKernelFDA-l1-learn",
        "MultipleKernelSVC-learn",
        "KernelAlignment-features",
    ),
    takes("features"),
)


def draw(n):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 5))
    X[:, 0] += y
    X[:, 3] += 2 * (y == 1)
    return X, y


@pytest.fixture
def table():
    return draw(N)


def same_model(found, wanted, new, tol=1e-8, theirs=None):
    def weights(model):
        return to_numpy(model.kernel_weights_)

    assert_allclose(weights(found), weights(wanted), atol=tol)
    expected = output(wanted, new if theirs is None else theirs)
    assert_allclose(output(found, new), expected, atol=tol * np.abs(expected).max())
    if is_certified(wanted):
        ours, other = found.certificate_, wanted.certificate_
        assert ours.value == pytest.approx(other.value, rel=tol)
        assert ours.lower_bound == pytest.approx(
            other.lower_bound, rel=1e-5, nan_ok=True
        )
        assert ours.converged == other.converged
    for name in ("cv_score_", "loo_error_", "alpha_"):
        if hasattr(wanted, name):
            assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-6)


IN_TILES = ("MultipleKernelFDA-l1-learn", "MultipleKernelSVC")


@pytest.mark.parametrize(
    "name, n",
    [(case.id, N) for case in ON_THE_FLY]
    + [(name, TILE["host"] + 5) for name in IN_TILES],
)
def test_kernels_made_on_the_fly_give_the_same_model(name, n):
    (X, y), new = draw(n), np.random.default_rng(1).normal(size=(7, 5))
    wanted = clone(SETTINGS[name]).set_params(views=VIEWS)
    targets = X[:, 0] + y if "Ridge" in name else y
    found = clone(wanted).set_params(features="on_the_fly").fit(X, targets)
    wanted.fit(X, targets)
    same_model(found, wanted, new)
    if hasattr(found, "features_"):
        assert found.features_.representation == "on the fly"
        assert found.features_.why.endswith("as features='on_the_fly' asks")


@pytest.mark.parametrize("device", [None, "cpu"])
def test_row_weights_groups_and_folds(device, table):
    if device is not None:
        pytest.importorskip("torch")
    X, y = table
    rng = np.random.default_rng(2)
    weights, groups = rng.uniform(0.5, 2.0, size=N), np.arange(N) // 2
    weights[5] = 0.0
    model = MultipleKernelFDA(VIEWS, norm=2, alpha=0.1, cv=3)
    given = {"sample_weight": weights, "groups": groups}
    wanted = clone(model).fit(X, y, **given)
    found = clone(model).set_params(features="on_the_fly", device=device)
    same_model(found.fit(X, y, **given), wanted, X)
    assert found.cv_standard_error_ == pytest.approx(wanted.cv_standard_error_)


def test_a_bank_that_does_not_fit_is_made_on_the_fly(table, monkeypatch):
    """Four kernels: 8 matrices if kept, 1.25 if alpha is given, 4 if it is chosen."""
    X, y = table
    model = MultipleKernelFDA(VIEWS, norm=1, alpha=0.1, cv=None)
    wanted, matrix = clone(model).fit(X, y), N * N * 8
    monkeypatch.setattr(memory, "_host_bytes", lambda: int(1.25 * matrix))
    found = clone(model).fit(X, y)
    assert found.features_.representation == "on the fly"
    assert "do not fit into memory together" in found.features_.why
    same_model(found, wanted, X)
    for estimator in (
        model.set_params(alpha="loo", features="exact"),
        KernelFDA(VIEWS),
        MultipleKernelSVC(VIEWS),
    ):
        with pytest.raises(MemoryRefusedError, match="dense bank of 4 kernels"):
            clone(estimator).fit(X, y)
    monkeypatch.setattr(memory, "_host_bytes", lambda: matrix)
    with pytest.raises(MemoryRefusedError, match="kernels made on the fly needs"):
        KernelFDA(VIEWS, alpha=0.1, features="on_the_fly").fit(X, y)


def test_what_needs_matrices_says_so(table):
    X, y = table
    lacking = X.copy()
    lacking[3, :2] = np.nan
    model = KernelFDA(VIEWS, features="on_the_fly", missing="zero")
    with pytest.raises(ValueError, match=r"missing='zero' .* features='on_the_fly'"):
        model.fit(lacking, y)
    kernels = KernelFDA("precomputed", features="on_the_fly")
    with pytest.raises(ValueError, match=r"features='on_the_fly'.*'precomputed'"):
        kernels.fit(X @ X.T, y)
    with pytest.raises(ValueError, match="'features' parameter of KernelFDA"):
        KernelFDA(features="nystroem").fit(X, y)


@pytest.mark.parametrize("estimator", some(ONE_EACH))
def test_a_device_takes_rows_and_gives_numpy_back(estimator, table):
    pytest.importorskip("torch")
    pd = pytest.importorskip("pandas")
    X, y = table
    new = np.random.default_rng(1).normal(size=(7, 5))
    names = list("abcde")
    views = [(view, kernel, [names[c] for c in own]) for view, kernel, own in VIEWS]
    frame = pd.DataFrame(X, columns=names)
    there = clone(estimator).set_params(views=views, device="cpu").fit(frame, y)
    here = clone(estimator).set_params(views=VIEWS).fit(X, y)
    rows = pd.DataFrame(new, columns=names)
    same_model(there, here, rows, theirs=new)
    arrays = {name: value for name, value in vars(there).items() if is_array(value)}
    assert all(is_numpy(value) for value in arrays.values()), arrays.keys()
    if hasattr(there, "dual_coef_"):
        assert_allclose(there.dual_coef_, here.dual_coef_, atol=1e-6)
    method = there.predict if hasattr(there, "predict") else there.transform
    assert is_numpy(method(rows))
    maps = getattr(there.kernel_map_, "maps", [there.kernel_map_])
    assert all(type(one.source.like).__module__ == "torch" for one in maps)


@pytest.mark.parametrize("estimator", some(ONE_EACH))
def test_a_device_changes_no_types_of_what_a_model_holds(estimator, table):
    """The classes are labels in NumPy, wherever the rows are."""
    torch = pytest.importorskip("torch")
    X, y = torch.asarray(table[0]), table[1]
    here = clone(estimator).set_params(views=VIEWS)
    there = clone(here).set_params(device="cpu").fit(X, y)
    same_model(there, here.fit(X, y), X)
    method = "predict" if hasattr(there, "predict") else "transform"
    found = to_numpy(getattr(there, method)(X))
    assert_allclose(found, to_numpy(getattr(here, method)(X)), atol=1e-6)
    types = {name: type(value) for name, value in vars(here).items()}
    assert types == {name: type(value) for name, value in vars(there).items()} | {
        "device": type(None)
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("estimator", some(EXPLICIT))
def test_a_device_takes_rows_to_explicit_features(estimator, dtype, table):
    """Products of numbers in single and in double precision, which torch refuses."""
    pytest.importorskip("torch")
    X, y = table
    X = X.astype(dtype)
    here = clone(estimator).set_params(views=VIEWS)
    there, here = clone(here).set_params(device="cpu").fit(X, y), here.fit(X, y)
    tol = {"float32": 1e-4, "float64": 1e-8}[dtype]  # measured: 5e-7 and 2e-15 apart
    assert_allclose(there.kernel_weights_, here.kernel_weights_, atol=tol)
    expected = output(here, X)
    assert_allclose(output(there, X), expected, atol=tol * np.abs(expected).max())
    assert there.loo_error_ == pytest.approx(here.loo_error_, rel=tol)


@pytest.mark.parametrize("estimator", some(ONE_EACH, missing="zero"))
def test_a_device_takes_tables_of_numbers_to_auto(estimator, table):
    """What is no number is named, and only that."""
    pytest.importorskip("torch")
    pd = pytest.importorskip("pandas")
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame.loc[:3, ["a", "b"]] = np.nan  # these rows lack a view
    views = [("left", "auto", ["a", "b"]), ("right", "auto", ["c", "d", "e"])]
    here = clone(estimator).set_params(views=views)
    there = clone(here).set_params(device="cpu").fit(frame, y)
    same_model(there, here.fit(frame, y), frame[::2], tol=1e-6)
    assert there.column_summary_ == here.column_summary_
    frame["d"] = np.where(y == 1, "yes", "no")
    frame.loc[5, "e"] = np.nan
    with pytest.raises(ValueError, match="the columns 'd', 'e' are read as they are"):
        clone(there).fit(frame, y)


@pytest.mark.parametrize(
    "name", ["KernelFDA", "MultipleKernelSVC", "MixtureKDA", *EXPLICIT]
)
def test_a_device_takes_sparse_rows_in_fit_and_later(name, table):
    pytest.importorskip("torch")
    X, y = table
    rows = csr_array(np.where(X > 0, X, 0.0))
    wanted = clone(SETTINGS[name]).set_params(views=VIEWS).fit(rows.toarray(), y)
    found = clone(wanted).set_params(device="cpu").fit(rows, y)
    same_model(found, wanted, rows, theirs=rows.toarray())


@pytest.mark.parametrize("name", ["KernelFDA", "MultipleKernelSVC", "MixtureKDA"])
def test_precomputed_kernels_and_missing_views_on_a_device(name, table):
    pytest.importorskip("torch")
    X, y = table
    model = clone(SETTINGS[name]).set_params(views="precomputed")
    stack = np.stack([X[:, :2] @ X[:, :2].T, X[:, 2:] @ X[:, 2:].T], axis=2)
    wanted = clone(model).fit(stack, y)
    same_model(clone(model).set_params(device="cpu").fit(stack, y), wanted, stack[:5])
    lacking = X.copy()
    lacking[:4, :2] = np.nan
    model.set_params(views=VIEWS, missing="available")
    wanted = clone(model).fit(lacking, y)
    found = clone(model).set_params(device="cpu").fit(lacking, y)
    same_model(found, wanted, lacking[:9])
