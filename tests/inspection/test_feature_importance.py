"""Coefficients and gradients agree with differences of the decision, and with noise."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone, is_regressor
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.utils import resample

from estimators import ONE_EACH, OWN_WAYS, fits_with, is_fixed_sum, kinds, some
from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
)
from kernelweave.exceptions import KernelWarning
from kernelweave.inspection import (
    FeatureImportanceDisplay,
    contributions,
    feature_importance,
    view_ablation,
)
from kernelweave.kernels import RBF, Kernel, Pipe, Polynomial

pytestmark = pytest.mark.one_seed

X, Y = load_wine(return_X_y=True)
TRAIN, NEW = slice(0, None, 4), slice(1, None, 9)
#: Kernels of a view: names of all kinds, alone and after linear transformers.
KERNELS = {
    "linear": "linear",
    "auto": "auto",
    "rbf": RBF(factor=0.5),
    "polynomial": Pipe(StandardScaler(), Polynomial(degree=2)),
    "laplacian": Pipe(StandardScaler(), "laplacian"),
    "chi2": "chi2",
    "cosine": "cosine",
    "whitened": Pipe(PCA(3, whiten=True), ["linear", "rbf"]),
    "min-max": Pipe(MinMaxScaler(), "rbf"),
    "two steps": Pipe(RobustScaler(), Pipe(PCA(2), "rbf")),
}
DISCRIMINANT = MultipleKernelFDA(norm=2, alpha=0.1, cv=None)
NYSTROEM = clone(DISCRIMINANT).set_params(
    features="nystroem", n_features=20, random_state=0
)
#: Slopes of kernels are those of any model; explicit features have their own, except
#: for polynomial and cosine kernels, which have exact ones.
CASES = [(DISCRIMINANT, kernel) for kernel in KERNELS]
CASES += [(NYSTROEM, name) for name in KERNELS if name not in ("polynomial", "cosine")]
for _i, _case in enumerate(some((*ONE_EACH, *OWN_WAYS), is_fixed_sum)):
    CASES.append((_case.values[0], ("linear", "auto", "whitened")[_i % 3]))
#: Central differences with steps of 1e-5 deviations err by 1e-10 in the numerator, and
#: cosines of raw columns, all close to one, by a hundred times as much.
RTOL = 1e-6


def views(kernel):
    return [("first", kernel, slice(0, 4)), ("second", "rbf", slice(4, 13))]


def gradients(model, rows, v, columns):
    """Central differences (m, d, q) of the parts of a view."""
    found = []
    for j in columns:
        step = np.zeros(rows.shape[1])
        step[j] = 1e-5 * X[:, j].std()
        up, down = (contributions(model, rows + s * step).parts for s in (1, -1))
        found.append((up - down)[:, v] / (2 * step[j]))
    return np.stack(found, axis=1).reshape(len(rows), len(columns), -1)


def column(rows, key):
    return np.array([row[key] for row in rows])


@pytest.mark.parametrize(("model", "kernel"), CASES)
def test_differences(model, kernel):
    model = clone(model).set_params(views=views(KERNELS[kernel]))
    target = X[:, 12] if is_regressor(model) else Y
    model.fit(X[TRAIN], target[TRAIN])
    rows = feature_importance(model, "first", X=X[NEW])
    slopes = gradients(model, X[NEW], 0, range(4))
    deviation = np.tile(X[NEW][:, :4].std(axis=0), slopes.shape[2])
    mean = slopes.mean(axis=0).T.ravel()
    root = np.sqrt(np.mean(slopes**2, axis=0)).T.ravel()
    for key, wanted in (
        ("coefficient", mean),
        ("standardised", mean * deviation),
        ("importance", root * deviation),
        ("deviation", deviation),
    ):
        found = column(rows, key)
        assert_allclose(found, wanted, rtol=0, atol=RTOL * np.abs(wanted).max())
    assert all(row["linear"] == (kernel == "linear") for row in rows)
    assert [row["feature"] for row in rows] == [0, 1, 2, 3] * slopes.shape[2]


def test_linear_kernels_give_the_coefficients_of_ridge_regression():
    """The same penalty: alpha relative to the mean eigenvalue of the kernel."""
    Z, target = X[:, :12], X[:, 12]
    model = MultipleKernelRidge(
        [("all", "linear", slice(None))], norm=1, alpha=0.1, cv=None
    )
    rows = feature_importance(model.fit(Z, target), "all")
    centred = Z - Z.mean(axis=0)
    penalty = 0.1 * np.sum(centred**2) / len(Z)
    wanted = Ridge(alpha=penalty, solver="svd").fit(Z, target).coef_
    assert_allclose(column(rows, "coefficient"), wanted, rtol=1e-8)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_rows_that_lack_the_view(weighted):
    """With zeros filled in, the gradient is that of the rows that have the view."""
    train, new = X[TRAIN].copy(), X[NEW].copy()
    train[::5, :4], new[::3, :4] = np.nan, np.nan
    model = MultipleKernelFDA(views("rbf"), norm=2, alpha=0.1, missing="zero", cv=None)
    weights = np.linspace(0.1, 5.0, len(train)) if weighted else None
    model.fit(train, Y[TRAIN], sample_weight=weights)
    rows = feature_importance(model, "first", X=new)
    whole = new[~np.isnan(new).any(axis=1)]
    slopes = gradients(model, whole, 0, range(4)).mean(axis=0).T.ravel()
    found = column(rows, "coefficient")
    assert_allclose(found, slopes, rtol=0, atol=RTOL * np.abs(slopes).max())
    assert len(feature_importance(model, "first")) == len(rows)


def test_other_array_libraries(other_backend):
    """Raw and standardised columns of "auto", and a transformer of scikit-learn."""
    kernels = ["auto", Pipe(RobustScaler(), "rbf")]
    plain = KernelFDA(views(kernels), alpha=0.1, cv=None).fit(X[TRAIN], Y[TRAIN])
    rows = other_backend.asarray(X)
    other = KernelFDA(views(kernels), alpha=0.1, cv=None).fit(rows[TRAIN, :], Y[TRAIN])
    for given in (None, NEW):
        found, wanted = (
            column(
                feature_importance(
                    model, "first", X=None if given is None else table[given, :]
                ),
                "coefficient",
            )
            for model, table in ((other, rows), (plain, X))
        )
        assert_allclose(found, wanted, rtol=1e-6)


def test_names_and_pipelines():
    pd = pytest.importorskip("pandas")
    names = load_wine().feature_names
    table = pd.DataFrame(X, columns=names)
    model = KernelFDA(
        [("first", "auto", names[3:6]), ("rest", "rbf", names[6:])], cv=None
    )
    rows = feature_importance(model.fit(table, Y), "first")
    assert [row["feature"] for row in rows] == names[3:6] * 3
    assert [row["output"] for row in rows] == [c for c in range(3) for _ in range(3)]
    scaler = StandardScaler().set_output(transform="pandas")
    search = GridSearchCV(make_pipeline(scaler, model), {"kernelfda__alpha": [0.1]})
    search.fit(table, Y)
    deviations = column(feature_importance(search, "first", X=table), "deviation")
    assert_allclose(deviations, 1)


def test_resamples_of_noise():
    """Signs of noise agree in 79 % of the refits; a signal agrees in all of them.

    Over 10 draws of 5 columns the mean agreement has a standard error of about 0.03.
    """
    agreements, covered = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        Z = rng.standard_normal((60, 6))
        target = rng.standard_normal(60) + 2 * Z[:, -1]
        model = MultipleKernelRidge(
            [("all", "linear", slice(None))], norm=1, alpha=0.1, cv=None
        ).fit(Z, target)
        rows = feature_importance(
            model, "all", X=Z, y=target, n_resamples=10, random_state=seed
        )
        *noise, signal = rows
        assert signal["sign_agreement"] == 1
        assert signal["low"] > 0
        agreements += [row["sign_agreement"] for row in noise]
        covered += [row["low"] <= 0 <= row["high"] for row in noise]
    # measured: 0.77
    assert 0.69 < np.mean(agreements) < 0.89
    assert np.mean(covered) > 0.75  # measured: 0.96; nominally 0.9


def test_resamples_of_groups_are_not_to_be_trusted(rng):
    X, groups = rng.normal(size=(20, 3)), np.arange(20) // 2
    model = MultipleKernelRidge([("v", "linear", [0, 1, 2])], alpha=0.1, cv=None)
    model.fit(X, X[:, 0], groups=groups)
    with pytest.warns(KernelWarning, match="fitted with groups: the intervals treat"):
        feature_importance(model, "v", X=X, y=X[:, 0], n_resamples=2, random_state=0)


@pytest.mark.parametrize("kind", kinds(is_fixed_sum, fits_with("sample_weight")))
def test_refits_without_weights_are_announced(rng, kind):
    X, y, each = rng.normal(size=(20, 4)), np.arange(20) % 2, np.arange(1.0, 21.0)
    views = [("v", "linear", [0, 1]), ("w", "linear", [2, 3])]
    model = kind(views).fit(X, y, sample_weight=each)
    judges = {
        "view_ablation": lambda model: view_ablation(model, X, y, cv=2),
        "feature_importance": lambda model: feature_importance(
            model, "v", X=X, y=y, n_resamples=2, random_state=0
        ),
    }
    for name, judge in judges.items():
        for fitted in model, pickle.loads(pickle.dumps(model)):
            with pytest.raises(KernelWarning, match=f"{name} refits without the sampl"):
                judge(fitted)
        judge(clone(model).fit(X, y, each).fit(X, y))
    if hasattr(model, "partial_fit"):
        model.set_params(features="nystroem").partial_fit(X[:10], y[:10], solve=False)
        assert not model._has_row_weights  # forgotten with the earlier fit
        model.partial_fit(X[10:15], y[10:15], sample_weight=each[10:15], solve=False)
        assert model.partial_fit(X[15:], y[15:])._has_row_weights


def test_the_interval_is_that_of_the_jackknife():
    """Each refit is judged by its own rows; few of them say little about the spread."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((40, 2))
    y = 2 * Z[:, 0] + rng.standard_normal(40)
    model = MultipleKernelRidge(
        [("all", "linear", slice(None))], norm=1, alpha=0.1, cv=None
    ).fit(Z, y)
    found = feature_importance(model, "all", X=Z, y=y, n_resamples=3, random_state=0)
    state, draws = np.random.RandomState(0), []
    for _ in range(3):
        own = resample(Z, y, replace=False, n_samples=25, random_state=state)
        refit = clone(model).fit(*own)
        draws.append(column(feature_importance(refit, "all"), "standardised"))
    error = np.sqrt(25 / 15) * np.std(draws, axis=0, ddof=1)
    half = 2.9199855804 * error  # 95 % quantile of t_2
    assert_allclose(column(found, "high"), column(found, "standardised") + half)
    assert_allclose(column(found, "low"), column(found, "standardised") - half)


UNITS = [(1, 1e-220), (1e180, 1), (1e-180, 1e110)]


@pytest.mark.parametrize("of_rows, of_targets", UNITS)
def test_units_of_columns_and_targets(of_rows, of_targets):
    """Standardised coefficients, importances and intervals are in units of y."""
    rng = np.random.default_rng(0)
    Z, found = rng.standard_normal((40, 4)), []
    y = Z[:, 0] + rng.standard_normal(40)
    parts = [("linear", "linear", [0, 1]), ("rbf", "rbf", [2, 3])]
    for a, b in ((1.0, 1.0), (of_rows, of_targets)):
        model = MultipleKernelRidge(parts, norm=2, alpha=0.1, cv=None).fit(a * Z, b * y)
        own = {"X": a * Z, "y": b * y, "n_resamples": 3, "random_state": 0}
        rows = [r for view, *_ in parts for r in feature_importance(model, view, **own)]
        keys = ("standardised", "importance", "low", "high")
        found.append([[row[key] / b for key in keys] for row in rows])
    assert_allclose(found[1], found[0], rtol=1e-6)


def test_resamples_are_reproducible_and_stratified():
    model = KernelFDA(views("auto"), alpha=0.1, cv=None).fit(X[TRAIN], Y[TRAIN])
    first, again = (
        feature_importance(
            model, "first", X=X[TRAIN], y=Y[TRAIN], n_resamples=3, random_state=0
        )
        for _ in range(2)
    )
    assert first == again
    assert {"sign_agreement", "low", "high"} <= first[0].keys()
    rare = Y[TRAIN].copy()
    rare[:8] = np.arange(7, 15)
    model.fit(X[TRAIN], rare)
    with pytest.raises(ValueError, match=r"class \d+ has too few rows"):
        feature_importance(
            model, "first", X=X[TRAIN], y=rare, n_resamples=20, random_state=0
        )


class Sigmoid(Kernel):
    """``k(x, z) = tanh(x'z / 5 - 1)``, which is indefinite, with its gradient."""

    psd = False

    def gram(self, X, Z=None):
        Z = X if Z is None else Z
        return np.tanh(X @ Z.T / 5.0 - 1.0)

    def gradient(self, X, Z, coef):
        slope = (1.0 - self.gram(X, Z) ** 2) / 5.0
        return np.einsum("ij,jl,jc->ilc", slope, Z, coef)


def with_sigmoid(model, psd):
    """The model, fitted with a kernel of one's own on the first view."""
    kernel = Pipe(StandardScaler(), Sigmoid())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the kernel is not positive semidefinite
        model = clone(model).set_params(views=views(kernel), psd=psd)
        return model.fit(X[TRAIN], Y[TRAIN])


@pytest.mark.parametrize(
    ("model", "psd"),
    [(DISCRIMINANT, "clip"), (NYSTROEM, "trust")],
    ids=["exact", "nystroem"],
)
def test_a_kernel_of_ones_own_that_states_its_gradient(model, psd):
    """Also where its negative eigenvalues were clipped, which changes the function."""
    model = with_sigmoid(model, psd)
    if psd == "clip":
        assert model.kernel_map_.centerings[0].projector is not None
    found = column(feature_importance(model, "first", X=X[NEW]), "coefficient")
    wanted = gradients(model, X[NEW], 0, range(4)).mean(axis=0).T.ravel()
    assert_allclose(found, wanted, rtol=0, atol=RTOL * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("gradient", "words"),
    [
        (lambda X, Z, coef: Z.T @ coef, r"'Sigmoid\(\)' has the shape \(4, 3\) inst"),
        (
            lambda X, Z, coef: np.full((len(X), 4, 3), np.nan),
            r"'Sigmoid\(\)' is NaN or infinite in column 0 of row 0; where",
        ),
    ],
    ids=["shape", "NaN"],
)
def test_a_wrong_gradient_is_named(gradient, words, monkeypatch):
    model = with_sigmoid(DISCRIMINANT, "clip")
    monkeypatch.setattr(Sigmoid, "gradient", lambda self, *given: gradient(*given))
    with pytest.raises(ValueError, match=words):
        feature_importance(model, "first", X=X[NEW])


def own_kernel(A, B):
    return A @ B.T


REFUSALS = {
    "transformer": (
        KernelFDA(cv=None),
        Pipe(QuantileTransformer(n_quantiles=9), "rbf"),
    ),
    "kernel": (KernelFDA(cv=None), own_kernel),
    "random features": (
        MultipleKernelFDA(features="random", n_features=20, norm=2, alpha=0.1, cv=None),
        "rbf",
    ),
}
WORDS = {
    "transformer": "QuantileTransformer is not linear.*permutation_importance",
    "kernel": r"no gradient is known for the kernel 'own_kernel': a subclass of .*"
    r"gradient\(X, Z, coef\); use view_permutation_importance",
    "random features": "no gradient is known for the random",
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case):
    model, kernel = REFUSALS[case]
    model = model.set_params(views=views(kernel)).fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(TypeError, match=WORDS[case]):
        feature_importance(model, "first", X=X[NEW])


@pytest.mark.parametrize("model", some(ONE_EACH, lambda each: not is_fixed_sum(each)))
def test_models_without_a_fixed_sum(model):
    why = "is not a fixed sum" if hasattr(model, "predict") else "learns kernel weights"
    model.set_params(views=views("rbf")).fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(TypeError, match=f"{type(model).__name__} {why}"):
        feature_importance(model, "first", X=X[NEW])


def test_more_refusals():
    K = RBF()(X[TRAIN])
    with pytest.raises(TypeError, match="precomputed kernels; fit it to the columns"):
        feature_importance(
            KernelFDA("precomputed", cv=None).fit(K, Y[TRAIN]), "kernel_0"
        )
    model = KernelFDA(views("rbf"), missing="available", cv=None).fit(
        X[TRAIN], Y[TRAIN]
    )
    with pytest.raises(ValueError, match=r"no view 'x'; the views are \['first'"):
        feature_importance(model, "x")
    with pytest.raises(ValueError, match=r"(?s)no view array.*Pass the name of one"):
        feature_importance(model, np.ones((2, 3)))
    with pytest.raises(ValueError, match="so X and y are needed"):
        feature_importance(model, "first", n_resamples=5)
    with pytest.raises(ValueError, match="must be 0 or at least 2; got 1"):
        feature_importance(model, "first", X=X, y=Y, n_resamples=1)
    gaps = X[NEW].copy()
    gaps[0, 4:] = np.nan
    with pytest.raises(TypeError, match="pass only rows that have every view"):
        feature_importance(model, "first", X=gaps)
    gaps = X[TRAIN].copy()
    gaps[::5, 4:] = np.nan
    with pytest.raises(TypeError, match="also enter the kernels of other views"):
        feature_importance(model.fit(gaps, Y[TRAIN]), "first")
    frame = pd.DataFrame(X[TRAIN].copy())
    frame.iloc[0, 1] = np.nan
    auto = KernelFDA([("first", "auto", slice(0, 4))], cv=None).fit(frame, Y[TRAIN])
    with pytest.raises(TypeError, match=r"columns with gaps.*view_permutation"):
        feature_importance(auto, "first")
    model = KernelAlignment(views("rbf"), missing="available").fit(gaps, Y[TRAIN])
    with pytest.raises(TypeError, match="does not predict"):
        feature_importance(model, "first")
    stream = clone(NYSTROEM).set_params(views=views("rbf")).fit(X, Y)
    with pytest.raises(ValueError, match="pass the rows over which to average"):
        feature_importance(stream, "first")


def test_display(cancer, cancer_model):
    X, y, _ = cancer
    display = FeatureImportanceDisplay.from_estimator(cancer_model, "worst")
    rows = feature_importance(cancer_model, "worst")
    order = sorted(rows, key=lambda row: -row["importance"])
    assert display.features_ == [row["feature"] for row in order]
    widths = [bar.get_width() for bar in display.bars_]
    assert_allclose(widths, column(order, "standardised"))
    assert "log odds of malignant" in display.ax_.get_xlabel()
    few = FeatureImportanceDisplay.from_estimator(
        cancer_model,
        "worst",
        X=X,
        y=y,
        n_resamples=2,
        random_state=0,
        max_features=3,
    )
    assert len(few.bars_) == 3
    assert "(7 more columns)" in few.ax_.get_xlabel()


def test_display_of_one_class_of_several(wine_model):
    display = FeatureImportanceDisplay.from_estimator(
        wine_model, "all", output="class_1"
    )
    assert len(display.bars_) == 13
    with pytest.raises(ValueError, match=r"output must be one of .*'class_2'\].*got"):
        FeatureImportanceDisplay.from_estimator(wine_model, "all")
    with pytest.raises(ValueError, match="max_features must be an int >= 1"):
        display.plot(max_features=0)
