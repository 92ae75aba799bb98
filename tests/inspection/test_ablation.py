"""Losses are those of cross-validation by hand; orders and refusals."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    PredefinedSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from estimators import ONE_EACH, PLAIN, fits_with, has, kinds, some, takes
from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
)
from kernelweave.datasets import fetch_views
from kernelweave.evaluation import evaluate
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.design import RowDesign
from kernelweave.inspection import (
    AblationDisplay,
    view_ablation,
    view_pvalues,
    weight_intervals,
)
from kernelweave.inspection._rows import observed_views
from kernelweave.inspection._trials import Trial, Trials
from kernelweave.inspection.ablation import _gain, _smallest_as_good

VIEWS = [
    ("good", "linear", ["a", "b"]),
    ("fair", "linear", ["c", "d"]),
    ("junk", "linear", ["e", "f"]),
]
NAMES = ["good", "fair", "junk"]
#: With three views, seven sets of them are fitted; with two, three.
TWO = VIEWS[::2]
#: Settings of which no part is chosen by a search.


def make_data(rng, n=60, signal=1.5):
    y = np.array(["no", "yes"])[rng.permutation(np.arange(n) % 2)]
    X = rng.normal(size=(n, 6))
    X[:, 0] += signal * (y == "yes")
    X[:, 2] += 0.5 * signal * (y == "yes")
    return pd.DataFrame(X, columns=list("abcdef")), y


@pytest.mark.one_seed
def test_losses_are_those_of_cross_validation(rng):
    X, y = make_data(rng)
    model = MultipleKernelFDA(TWO, **PLAIN).fit(X, y)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    result = view_ablation(model, X, y, cv=3, random_state=0)
    scores, losses = [], []
    for train, test in folds.split(X, y):
        own = MultipleKernelFDA(TWO[1:], **PLAIN).fit(X.iloc[train], y[train])
        scores.append(own.score(X.iloc[test], y[test]))
        losses.append(log_loss(y[test], own.predict_proba(X.iloc[test])))
    column = view_ablation(model, X, y[:, None], cv=3, random_state=0)
    assert column.views == result.views
    row = result.views[0]
    assert row["view"] == "good" and result.loss_name == "log loss"
    assert row["score_without"] == pytest.approx(np.mean(scores))
    assert row["loss_without"] == pytest.approx(np.mean(losses))
    error = np.std(losses, ddof=1) / np.sqrt(3)
    assert row["loss_without_se"] == pytest.approx(error)
    assert row["loss_rise"] == pytest.approx(np.mean(losses) - result.order[0]["loss"])


@pytest.mark.measured
def test_order(rng):
    X, y = make_data(rng, n=120, signal=2.5)
    model = MultipleKernelFDA(VIEWS, **PLAIN).fit(X, y)
    result = view_ablation(model, X, y, cv=3, random_state=0)
    order = result.order
    assert [step["dropped"] for step in order] == [None, "junk", "fair"]
    for step, left in zip(order, (NAMES, NAMES[:2], NAMES[:1]), strict=True):
        assert step["views"] == left
        assert step["cost"] == len(left)
        assert step["gap"] <= 1e-6
        assert 0 <= step["agreement"] <= 1
    assert "good" in result.recommended and "junk" not in result.recommended
    assert "'junk'" in result.recommendation
    dear = {"good": 1000.0, "fair": 1.0, "junk": 1.0}
    order = view_ablation(model, X, y, cv=2, cost=dear, random_state=0).order
    assert order[-1]["views"] == ["fair"] or order[-1]["views"] == ["junk"]


@pytest.mark.measured
def test_pure_noise_is_not_recommended(rng):
    X, y = make_data(rng, signal=0.0)
    model = MultipleKernelFDA(VIEWS, norm=1, alpha=1.0, cv=None).fit(X, y)
    result = view_ablation(model, X, y, cv=3, random_state=0)
    assert result.recommended == []
    assert "With 3 folds, a gain below 0." in result.recommendation
    assert "nothing is worth measuring" in result.recommendation
    assert result.baseline_loss == pytest.approx(np.log(2))
    # Choosing the best set flatters nobody: accuracies stay near one half.
    # measured: 0.48 to 0.53
    assert all(abs(step["score"] - 0.5) < 0.2 for step in result.order)


@pytest.mark.one_seed
@pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
def test_a_view_whose_loss_is_missed_on_the_same_rows_is_kept(scoring):
    """One of five sites is hard for any view, so that folds differ more than sets."""
    rng = np.random.default_rng(12)
    n = 110
    code, site = np.arange(n) % 2, np.arange(n) // 2 % 5
    X = rng.normal(size=(n, 6))
    informative = (code - 0.5) * (site > 0)
    X[:, 0] += 4 * informative
    X[:, 2] += 3 * informative
    names = ["rna", "mirna", "noise"]
    views = [(v, "linear", [2 * i, 2 * i + 1]) for i, v in enumerate(names)]
    y = np.array(["a", "b"])[code]
    model = MultipleKernelFDA(views, **PLAIN | {"alpha": 0.1}).fit(X, y)
    found = view_ablation(model, X, y, cv=PredefinedSplit(site), scoring=scoring)
    best, alone = found.order[1:]
    assert found.recommended == best["views"] == ["rna", "mirna"]
    assert alone["loss_behind"] > 3 * alone["loss_behind_se"]  # measured: 3.6
    assert alone["loss_behind"] == pytest.approx(alone["loss"] - best["loss"])
    assert alone["loss"] < best["loss"] + best["loss_se"]  # compared before
    assert best["loss_behind"] == best["loss_behind_se"] == 0.0
    assert "the same rows" in found.recommendation


def test_paired_errors_are_those_of_rows_and_groups(rng):
    X, y = make_data(rng, n=20)
    X, y = X.loc[np.repeat(np.arange(20), 3)], np.repeat(y, 3)
    model = MultipleKernelFDA(TWO, **PLAIN).fit(X, y)
    groups = np.arange(60) // 3
    for units, own in ((60, None), (20, groups)):
        trials = Trials(model, X, y, 3, None, None, 0, own)
        sets = frozenset(["good"]), frozenset(["junk"])
        trials.run(sets)
        good, junk = map(trials.result, sets)
        rise, error = trials.rise(junk, good)
        assert rise == pytest.approx(np.mean(junk.loss - good.loss))
        rows = np.concatenate([test for _, test in trials.folds])
        members = np.arange(60) if own is None else own
        sums = np.bincount(members[rows], junk.losses - good.losses)
        spread = np.std(sums, ddof=1) * np.sqrt(units) / 60
        assert error == pytest.approx(spread, rel=0.1)  # folds differ in size
        assert trials.fall(junk, good)[0] == pytest.approx(
            np.mean(good.score - junk.score)
        )


class Judged(Trials):
    """Two folds of twenty rows."""

    def __init__(self):
        self.scoring, self.is_rate = None, False
        self.classes = np.array([0, 1])
        self.folds = [(np.arange(0), np.arange(i, i + 20)) for i in (0, 20)]
        self.design = RowDesign(40)


def trial(losses, right):
    loss, score = (np.mean(v.reshape(2, 20), axis=1) for v in (losses, right))
    return Trial(score, loss, loss, np.full(2, np.nan), right, losses)


@pytest.mark.one_seed
def test_fewer_right_rows_keep_a_view_whose_loss_is_not_missed():
    """The loss of the smaller set is as good, but it is right in fewer rows."""
    losses, right = np.linspace(0.1, 1.0, 40), np.ones(40)
    fewer = np.where(np.arange(40) < 8, 0.0, 1.0)
    everything, one_less = trial(losses, right), trial(losses, fewer)
    assert _smallest_as_good([everything, one_less], Judged(), 0.0) == 0
    assert _smallest_as_good([everything, everything], Judged(), 0.0) == 1
    two_errors = np.where(np.arange(40) < 2, 0.0, 1.0)  # 1.4 standard errors
    two_less = trial(losses, two_errors)
    assert _smallest_as_good([everything, two_less], Judged(), 0.0) == 1


@pytest.mark.one_seed
def test_a_small_rise_of_the_loss_in_every_row_keeps_a_view():
    """Folds differ by 0.45, the sets by 0.05 +- 0.002."""
    losses, rises = np.linspace(0.1, 1.0, 40), 0.05 + 0.01 * np.tile([-1, 1], 20)
    more = trial(losses + rises, np.ones(40))
    assert _smallest_as_good([trial(losses, np.ones(40)), more], Judged(), 0.0) == 0
    assert _smallest_as_good([trial(losses, np.ones(40)), more], Judged(), 0.06) == 1


@pytest.mark.one_seed
def test_a_negligible_rise_on_the_same_rows_keeps_no_view():
    """Models that are nearly the same differ by 0.0014 +- 0.001, of a loss of 0.67."""
    cancer = fetch_views("breast_cancer", as_frame=False)
    noise = np.random.default_rng(0).standard_normal((len(cancer.data), 10))
    X, y = np.hstack([cancer.data, noise])[::4], cancer.target[::4]
    places = enumerate(("mean", "error", "worst", "noise"))
    views = [(v, "linear", slice(10 * i, 10 * i + 10)) for i, v in places]
    model = MultipleKernelFDA(views, norm=1, cv=None).fit(X, y)
    found = view_ablation(model, X, y, random_state=0)
    chosen = found.order[-1]
    assert found.recommended == chosen["views"] == ["worst"]
    assert chosen["loss_behind"] > chosen["loss_behind_se"]
    assert chosen["loss_behind"] < 0.01 * found.baseline_loss


@pytest.mark.one_seed
def test_views_of_noise_beside_an_informative_one_are_left_out():
    """Of 60 draws with 60 rows, 1 kept one; 5 with the error rate of an SVC."""
    kept = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = make_data(rng, n=60, signal=2.0)
        X[["c", "d"]] = rng.normal(size=(60, 2))
        model = MultipleKernelFDA(VIEWS, **PLAIN | {"alpha": 0.1}).fit(X, y)
        kept += view_ablation(model, X, y, random_state=0).recommended
    assert set(kept) == {"good"}


@pytest.mark.one_seed
def test_error_rates_of_noise_are_not_recommended():
    """With few rows, an error rate of noise is often a quarter below that of no view.

    Of 20 draws, 1 recommends a view; without regard to the number of rows 8 do, and
    this is one of them.
    """
    X, y = make_data(np.random.default_rng(1), n=20, signal=0.0)
    model = MultipleKernelSVC(VIEWS, norm=1, C=1.0, tol=1e-2).fit(X, y)
    assert not view_ablation(model, X, y, cv=3, random_state=1).recommended
    X, y = make_data(np.random.default_rng(0), n=20, signal=4.0)
    model = MultipleKernelSVC(TWO, norm=1, C=1.0, tol=1e-2).fit(X, y)
    assert view_ablation(model, X, y, cv=3, random_state=0).recommended == ["good"]


@pytest.mark.measured
def test_regression_and_outputs(rng):
    X, _ = make_data(rng)
    y = X[["a", "c"]].to_numpy() + 0.1 * rng.normal(size=(60, 2))
    model = MultipleKernelRidge(VIEWS, **PLAIN).fit(X, y)
    result = view_ablation(model, X, y, cv=KFold(3))
    assert result.loss_name == "squared error of standardised outputs"
    assert result.recommended == ["good", "fair"]
    in_other_units = view_ablation(model, X, y * [1.0, 1e-9], cv=KFold(3))
    assert in_other_units.recommended == result.recommended
    assert in_other_units.baseline_loss == pytest.approx(result.baseline_loss)
    junk = result.views[2]
    assert junk["loss_alone"] > 0.8 * result.baseline_loss  # measured: 1.07 of it
    assert junk["score_without"] > 0.9  # measured: 0.99


@pytest.mark.one_seed
def test_r2_is_that_of_all_rows_left_out(rng):
    """Before, each fold had its own, which a single row has not: it was NaN."""
    X, _ = make_data(rng, n=6)
    y = np.column_stack([X["a"] + rng.normal(size=6), np.full(6, 0.1)])
    model = MultipleKernelRidge(TWO, **PLAIN).fit(X, y)
    result = view_ablation(model, X, y, cv=LeaveOneOut())
    rows, means = X[["e", "f"]], np.full(6, np.nan)
    rest = MultipleKernelRidge(TWO[1:], **PLAIN)
    predicted = cross_val_predict(rest, rows, y, cv=LeaveOneOut())[:, 0]
    for i in range(6):
        means[i] = np.mean(np.delete(y[:, 0], i))
    wrong, spread = (np.sum((y[:, 0] - guess) ** 2) for guess in (predicted, means))
    assert result.views[0]["score_without"] == pytest.approx(1 - wrong / spread)


@pytest.mark.one_seed
def test_the_unit_of_the_outputs_changes_nothing(rng):
    X, _ = make_data(rng)
    y = X["a"].to_numpy() + rng.normal(size=60)
    model = MultipleKernelRidge(TWO, **PLAIN).fit(X, y)
    plain = view_ablation(model, X, y, cv=KFold(2))
    for unit in (1e-250, 1e-60, 1e100):
        large = view_ablation(model, X, y * unit, cv=KFold(2))
        assert large.recommended == plain.recommended
        assert large.loss_name.startswith("squared error")
        for own, other in zip(plain.order, large.order, strict=True):
            assert own["views"] == other["views"]
            assert_allclose(other["score"], own["score"], rtol=1e-6)
            for key in ("loss_se", "loss_rise_se"):
                error = other[key] / large.baseline_loss * plain.baseline_loss
                assert_allclose(error, own[key], rtol=1e-6)


@pytest.mark.one_seed
def test_other_models_and_scorings(rng):
    X, y = make_data(rng, signal=3.0)
    machine = MultipleKernelSVC(TWO, C=1.0, norm=1, tol=1e-2).fit(X, y)
    rate = view_ablation(machine, X, y, cv=2, random_state=0)
    assert rate.loss_name == "error rate"
    for step in rate.order:
        assert step["score"] == pytest.approx(1 - step["loss"])
    uniform = KernelFDA(TWO, alpha=0.1, cv=None).fit(X, y)
    result = view_ablation(
        uniform, X, y, cv=2, scoring="balanced_accuracy", random_state=0
    )
    assert result.order[0]["gap"] is None
    assert "held-out score" in result.recommendation
    pipe = make_pipeline(StandardScaler(), MultipleKernelFDA(norm=1, cv=None))
    views = [("good", "linear", slice(0, 2)), ("junk", "linear", slice(4, 6))]
    pipe.set_params(multiplekernelfda__views=views)
    search = GridSearchCV(pipe, {"multiplekernelfda__alpha": [0.1]}, cv=2).fit(X, y)
    result = view_ablation(search, X, y, cv=2, random_state=0)
    assert [row["view"] for row in result.views] == ["good", "junk"]


@pytest.mark.one_seed
def test_precomputed_kernels_agree_with_columns(rng):
    X, y = make_data(rng)
    values = X.to_numpy()
    blocks = [values[:, i : i + 2] for i in (0, 4)]
    K = np.stack([block @ block.T for block in blocks], axis=2)
    by_columns = view_ablation(
        MultipleKernelFDA(TWO, tol=1e-9, **PLAIN).fit(X, y),
        X,
        y,
        cv=2,
        random_state=0,
    )
    model = MultipleKernelFDA("precomputed", tol=1e-9, **PLAIN).fit(K, y)
    by_kernels = view_ablation(model, K, y, cv=2, random_state=0)
    for a, b in zip(by_columns.views, by_kernels.views, strict=True):
        assert a["loss_alone"] == pytest.approx(b["loss_alone"], rel=1e-4)
        assert a["loss_without"] == pytest.approx(b["loss_without"], rel=1e-4)


@pytest.mark.measured
def test_rows_without_any_view_of_a_set(rng):
    X, y = make_data(rng, n=80, signal=3.0)
    X.loc[::4, ["a", "b"]] = np.nan
    model = MultipleKernelFDA(TWO, missing="zero", **PLAIN).fit(X, y)
    result = view_ablation(model, X, y, cv=4, random_state=0)
    good = result.views[0]
    # One row in four is predicted without any view, the others by the view alone.
    assert good["score_alone"] < 0.95  # measured: 0.84 to 0.86
    assert good["loss_alone"] > np.log(2) / 4  # measured: 0.3 to 0.36
    with pytest.raises(ValueError, match="scoring must be None if rows lack views"):
        view_ablation(model, X, y, scoring="accuracy")


@pytest.mark.one_seed
def test_gaps_are_those_of_the_rows_not_of_the_fit(rng):
    """Rows in another order were taken for rows that lack other views."""
    X, y = make_data(rng, n=60, signal=3.0)
    X.loc[:14, ["a", "b"]] = np.nan
    order = rng.permutation(60)
    values = X.to_numpy()
    K = np.stack([values[:, i : i + 2] @ values[:, i : i + 2].T for i in (0, 4)], -1)
    fold = np.arange(60) % 3
    for views, rows, other in (
        (TWO, X, X.iloc[order]),
        ("precomputed", K, K[np.ix_(order, order)]),
    ):
        model = MultipleKernelFDA(views, missing="zero", **PLAIN).fit(rows, y)
        found = view_ablation(model, rows, y, cv=PredefinedSplit(fold))
        moved = view_ablation(model, other, y[order], cv=PredefinedSplit(fold[order]))
        for own, same in zip(found.views, moved.views, strict=True):
            assert same["loss_alone"] == pytest.approx(own["loss_alone"], rel=1e-4)
            assert same["loss_without"] == pytest.approx(own["loss_without"], rel=1e-4)


@pytest.mark.one_seed
def test_a_fold_in_which_no_row_has_a_view(rng):
    X, y = make_data(rng, n=30)
    X.loc[20:, ["e", "f"]] = np.nan
    model = KernelFDA(VIEWS, alpha=0.1, missing="zero", cv=None).fit(X, y)
    folds = PredefinedSplit(np.arange(30) // 10)
    junk = view_ablation(model, X, y, cv=folds).views[2]
    assert np.isfinite(junk["loss_alone"])


@pytest.mark.one_seed
def test_folds_are_those_of_estimators(rng):
    """A class may have fewer rows than there are folds; too many rows are refused."""
    X, y = make_data(rng, n=12)
    y = np.where(np.arange(12) < 3, "few", "many")
    model = KernelFDA(VIEWS, alpha=0.1, cv=None).fit(X, y)
    trials = Trials(model, X, y, 5, None, None, 0)
    assert [len(test) for _, test in trials.folds] == [3, 3, 2, 2, 2]
    pairs = Trials(model, X[:6], y[:6], 5, None, None, 0)
    assert len(pairs.folds) == 3
    with pytest.raises(ValueError, match=r"split 0 names row 12, .* there are 12 rows"):
        Trials(model, X, y, PredefinedSplit(np.arange(20) // 10), None, None, 0)
    with pytest.raises(ValueError, match="cv must be an int >= 2; got 1"):
        Trials(model, X, y, 1, None, None, 0)


@pytest.mark.one_seed
@pytest.mark.parametrize("model", some(ONE_EACH, has("predict_proba")))
def test_views_of_several_kernels_that_rows_lack(rng, model):
    X, y = make_data(rng, n=30)
    X.loc[:4, ["a", "b"]] = np.nan
    X.loc[25:, ["e", "f"]] = np.nan
    views = [(name, ["linear", "rbf"], columns) for name, _, columns in TWO]
    model.set_params(views=views, missing="available").fit(X, y)
    assert observed_views(model).sum(axis=0).tolist() == [25, 25]
    result = view_ablation(model, X, y, cv=2, random_state=0)
    assert [view["view"] for view in result.views] == ["good", "junk"]
    assert np.isfinite([view["loss_without"] for view in result.views]).all()


@pytest.mark.measured
@pytest.mark.parametrize(
    "model",
    [
        *some(
            ONE_EACH, takes("class_weight"), views=TWO, class_weight="balanced", C=1.0
        ),
        *some(["KernelFDA-fixed"], views=TWO, priors=[0.5, 0.5], cv=None),
    ],
)
def test_rows_count_as_the_model_weights_their_classes(rng, model):
    """Before, a model that names a rare class was worse than none on most rows."""
    X, y = make_data(rng, n=80, signal=3.0)
    rows = np.r_[np.flatnonzero(y == "yes")[:6], np.flatnonzero(y == "no")]
    X, y = X.iloc[rows], y[rows]
    found = view_ablation(model.fit(X, y), X, y, random_state=0)
    assert "good" in found.recommended
    assert found.loss_name.split()[0] in ("balanced", "prior-weighted")
    log_loss = found.loss_name.endswith(" log loss")
    wanted = np.log(2) if log_loss else 0.5
    # measured: 0.001 to 0.0035 apart
    assert found.baseline_loss == pytest.approx(wanted, abs=0.012)


@pytest.mark.one_seed
def test_noise_in_a_balanced_model_is_not_recommended():
    """Of 100 draws with three views and five folds, 3 recommend a view."""
    X, y = make_data(np.random.default_rng(1), n=60, signal=0.0)
    rows = np.r_[np.flatnonzero(y == "yes")[:10], np.flatnonzero(y == "no")]
    X, y = X.iloc[rows], y[rows]
    model = MultipleKernelSVC(TWO, norm=1, C=1.0, class_weight="balanced", tol=1e-2)
    found = view_ablation(model.fit(X, y), X, y, cv=3, random_state=0)
    assert found.recommended == []
    assert "the held-out balanced error rate is" in found.recommendation
    assert found.baseline_loss == pytest.approx(0.5, abs=0.02)  # measured: 0.498


@pytest.mark.one_seed
@pytest.mark.parametrize(
    "counted", [{"class_weight": "balanced"}, {"priors": [0.5] * 2}]
)
def test_no_view_knows_how_the_model_weights_classes(counted):
    """Half of 30 draws of noise were better than proportions in the wrong folds."""
    X, y = make_data(np.random.default_rng(2), n=40, signal=0.0)
    y = np.where(np.arange(40) < 8, "rare", "usual")
    model = MultipleKernelFDA(TWO, norm=1, alpha="loo", cv=None, **counted).fit(X, y)
    found = view_ablation(model, X, y, random_state=0)
    assert found.baseline_loss == pytest.approx(np.log(2))
    assert found.recommended == []


@pytest.mark.one_seed
def test_noise_beside_a_class_that_is_not_judged_is_not_recommended():
    """It paid to know that it never occurs: 27 of 30 draws recommended a view."""
    X, y = make_data(np.random.default_rng(0), n=41, signal=0.0)
    y = np.array(["ill", "well"])[np.arange(41) % 2].astype(object)
    y[0] = "odd"
    model = MultipleKernelFDA(TWO, class_weight="balanced", **PLAIN).fit(X, y)
    folds = PredefinedSplit(np.r_[-1, np.repeat([0, 1], 20)])
    found = view_ablation(model, X, y, cv=folds)
    assert found.recommended == []
    assert found.baseline_loss == pytest.approx(np.log(2))


@pytest.mark.one_seed
def test_noise_beside_a_frequent_class_that_is_not_judged_is_not_recommended():
    """Compared with guesses of that class, 10 of 10 draws recommended a view."""
    X, y = make_data(np.random.default_rng(0), n=80, signal=0.0)
    y = np.array(["ill", "well"])[np.arange(80) % 2].astype(object)
    y[:40] = "odd"
    model = MultipleKernelSVC(TWO, norm=1, C=1.0, tol=1e-2).fit(X, y)
    folds = PredefinedSplit(np.repeat([-1, 0, 1], [40, 20, 20]))
    found = view_ablation(model, X, y, cv=folds)
    assert found.recommended == []
    assert found.baseline_loss == 0.5


def test_a_single_class_that_is_judged_is_named(rng):
    """Whatever the model, the error rate was 0 +- 0, and a view was recommended."""
    X, y = make_data(rng, n=24)
    y = np.where(np.arange(24) < 8, "ill", "well")
    model = MultipleKernelSVC(TWO, norm=1, C=1.0, tol=1e-2).fit(X, y)
    with pytest.raises(ValueError, match="only rows of the class 'well' are held out"):
        view_ablation(model, X, y, cv=PredefinedSplit(np.repeat([-1, 0, 1], [8, 8, 8])))
    with pytest.raises(ValueError, match="only rows of the class 'well' are held out"):
        view_ablation(model, X, y, cv=2, groups=np.maximum(np.arange(24), 7))


def test_folds_have_a_row_of_each_class_if_there_is_a_score(rng):
    X, y = rng.normal(size=(20, 2)), np.arange(20) < 3
    views = [("a", "linear", [0]), ("b", "linear", [1])]
    model = KernelFDA(views, priors=[1 - 1e-6, 1e-6], cv=None)  # calls no row rare
    model.fit(X, y)
    found = view_ablation(model, X, y, scoring="balanced_accuracy", random_state=0)
    assert [step["score"] for step in found.order] == [0.5, 0.5]


@pytest.mark.one_seed
@pytest.mark.parametrize("scoring", [None, "accuracy"])
def test_a_constant_view_predicts_like_none(rng, scoring):
    X, y = make_data(rng)
    X[["e", "f"]] = 1.0
    with pytest.warns(KernelWarning, match="constant"):
        model = MultipleKernelFDA(TWO, **PLAIN).fit(X, y)
        found = view_ablation(model, X, y, cv=2, scoring=scoring, random_state=0)
    alone = found.views[1]["loss_alone"]
    assert alone == pytest.approx(np.log(2))
    assert scoring or alone == pytest.approx(found.baseline_loss)


@pytest.mark.one_seed
def test_refusals(rng):
    X, y = make_data(rng)
    model = MultipleKernelFDA(VIEWS, **PLAIN).fit(X, y)
    for cost, match in (
        ({"good": 1}, "no entry for the view 'fair'"),
        ({"good": 1, "fair": 0, "junk": 1}, "'fair' must be a finite number > 0"),
        ({"bad": 1}, "names the view 'bad'; the views are"),
    ):
        with pytest.raises(ValueError, match=match):
            view_ablation(model, X, y, cost=cost)
    with pytest.raises(ValueError, match=r"view_ablation: .*X has 60 row.*y has 9"):
        view_ablation(model, X, y[:9], cv=2)
    with pytest.raises(ValueError, match="has only one, 'all'"):
        view_ablation(MultipleKernelFDA(**PLAIN).fit(X, y), X, y)
    with pytest.raises(TypeError, match="KernelAlignment only transforms"):
        view_ablation(KernelAlignment(VIEWS).fit(X, y), X, y)
    ridge = MultipleKernelRidge(VIEWS, **PLAIN).fit(X, np.ones(60))
    with pytest.raises(ValueError, match=r"y is constant \(1 in every row\)"):
        view_ablation(ridge, X, np.ones(60))


@pytest.mark.one_seed
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_a_score_that_a_fold_cannot_have_is_refused(rng):
    """Before, the order of the views was that of comparisons with NaN."""
    X, y = make_data(rng)
    model = MultipleKernelFDA(VIEWS, **PLAIN).fit(X, y)
    with pytest.raises(ValueError, match="'roc_auc' is undefined on a fold of 1 row"):
        view_ablation(model, X, y, cv=LeaveOneOut(), scoring="roc_auc")


@pytest.mark.measured
def test_display(rng):
    X, y = make_data(rng)
    model = MultipleKernelFDA(VIEWS, **PLAIN).fit(X, y)
    display = AblationDisplay.from_estimator(model, X, y, cv=3, random_state=0)
    assert display.result.recommended  # with this draw; the plot marks it
    left, right = display.axes_
    assert sorted(t.get_text() for t in left.get_yticklabels()) == sorted(NAMES)
    assert right.get_yticklabels()[0].get_text() == "all views"
    assert left.get_xlabel() == right.get_xlabel() == "held-out log loss"
    drawn = display.order_.lines[0].get_xdata()
    expected = [step["loss"] for step in display.result.order]
    np.testing.assert_allclose(drawn, expected)
    assert right.get_title(loc="left") == "Dropped one after the other"
    display.result.recommended = []
    again = display.plot(axes=display.axes_)
    assert again.figure_ is left.figure
    assert right.get_title(loc="left").endswith("(no set is clearly useful)")


def test_a_large_gain_is_clear_even_with_three_folds():
    baseline = np.array([4.0, 5.7, 7.4])
    for gain, hopeless in ((0.2, True), (0.4, False)):
        best = baseline * (1.0 - gain) + [0.9 * gain, 0.0, -0.9 * gain]
        gain, needed = _gain(best[None, :], baseline)
        assert (gain < needed) == hopeless


def groups_of_noise(rng, n_groups=12, size=4):
    """Rows of a group have one label and nearly the same values; no view is of use."""
    groups = np.repeat(np.arange(n_groups), size)
    y = np.array(["no", "yes"])[rng.permutation(np.arange(n_groups) % 2)][groups]
    X = rng.normal(size=(n_groups, 6))[groups] + 0.1 * rng.normal(size=(len(y), 6))
    return pd.DataFrame(X, columns=list("abcdef")), y, groups


@pytest.mark.one_seed
def test_groups_are_held_out_together_and_reach_the_model(rng):
    X, y, groups = groups_of_noise(rng)
    model = MultipleKernelFDA(VIEWS[:2], norm=1, cv=None)
    losses = []
    folds = StratifiedGroupKFold(3, shuffle=True, random_state=0)
    for train, test in folds.split(X, y, groups):
        model.fit(X.iloc[train], y[train], groups=groups[train])
        losses.append(log_loss(y[test], model.predict_proba(X.iloc[test])))
    settings = {"groups": groups, "cv": 3, "random_state": 0}
    found = view_ablation(model.fit(X, y), X, y, **settings)
    assert_allclose(found.order[0]["loss"], np.mean(losses))
    pipe = make_pipeline("passthrough", model).fit(X, y)
    with sklearn.config_context(enable_metadata_routing=True):
        piped = view_ablation(pipe, X, y, **settings)
    assert piped.order == found.order


@pytest.mark.measured
@pytest.mark.parametrize("kind", [MultipleKernelFDA, MultipleKernelSVC])
def test_nothing_is_recommended_on_noise_in_groups(rng, kind):
    """Of 20 draws, 6 and 11 recommend a view without groups, 0 and 1 with them."""
    X, y, groups = groups_of_noise(rng)
    settings = {"norm": 1, "cv": None} if kind is MultipleKernelFDA else {"C": 1.0}
    model = kind(VIEWS[:2], **settings).fit(X, y)
    assert view_ablation(model, X, y, cv=3, random_state=0).recommended
    result = view_ablation(model, X, y, groups=groups, cv=3, random_state=0)
    assert result.recommended == []


@pytest.mark.one_seed
def test_folds_that_divide_groups(rng):
    X, y, groups = groups_of_noise(rng)
    model = MultipleKernelFDA(VIEWS, norm=1, alpha=1.0, cv=None).fit(X, y)
    with pytest.raises(ValueError, match="fold 0 of cv, counted from 0"):
        view_ablation(model, X, y, groups=groups, cv=LeaveOneOut())
    with pytest.raises(ValueError, match=r"holds out groups, .*but there is 1"):
        view_ablation(model, X, y, groups=np.zeros(len(y)))
    # rows that no fold holds out do not help to predict their group
    fold = np.where(np.arange(len(y)) % 4 == 0, -1, groups // 6)
    apart = [
        (np.flatnonzero(groups // 6 != i), np.flatnonzero(fold == i)) for i in (0, 1)
    ]
    found = view_ablation(model, X, y, groups=groups, cv=PredefinedSplit(fold))
    assert found.order == view_ablation(model, X, y, groups=groups, cv=apart).order


@pytest.mark.one_seed
@pytest.mark.usefixtures("quick_stack")
@pytest.mark.parametrize("kind", kinds(fits_with("groups"), alpha=1.0, norm=1))
def test_forgotten_groups_are_missed(rng, kind):
    X, y, groups = groups_of_noise(rng)
    y = (y == "yes").astype(int)
    model = kind(VIEWS[:2]).fit(X, y, groups=groups)
    judges = {view_ablation: {"cv": 2}}
    if kind.func is MultipleKernelFDA:
        judges |= {
            view_pvalues: {"n_decoys": 1},
            weight_intervals: {"n_resamples": 2},
            evaluate: {"cv": 2},
        }
    for judge, settings in judges.items():
        for fitted in model, pickle.loads(pickle.dumps(model)):
            # the first warning is an error here, which ends what would take long
            with pytest.raises(KernelWarning, match=f"{judge.__name__} was not given"):
                judge(fitted, X, y, **settings)
        judge(model, X, y, groups=groups, **settings)
    view_ablation(clone(model).fit(X, y, groups=groups).fit(X, y), X, y, cv=2)


@pytest.mark.one_seed
@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"priors": [0.4, 0.4, 0.2]}, {"priors": None}),
        ({"class_weight": {0: 1, 2: 3}}, {"class_weight": {0: 1, 1: 1, 2: 3}}),
    ],
)
def test_weights_of_a_class_that_a_fold_lacks(rng, given, same):
    """The others keep theirs; the refit was refused."""
    X = pd.DataFrame(rng.normal(size=(31, 6)), columns=list("abcdef"))
    y = np.append(np.arange(30) % 2, 2)
    found = []
    for weighting in given, same:
        model = MultipleKernelFDA(VIEWS[:2], norm=1, alpha=1.0, cv=None, **weighting)
        result = view_ablation(model.fit(X, y), X, y, cv=3, random_state=0)
        found.append([row["loss_rise"] for row in result.views])
    assert_allclose(*found, rtol=1e-5)


@pytest.mark.one_seed
@pytest.mark.parametrize("grouped", [False, True])
def test_classes_that_a_fold_cannot_learn_are_not_judged(rng, grouped):
    """Each of their rows cost 36 nats, the most that a log loss can be."""
    X, y, groups = groups_of_noise(rng)
    lost = np.flatnonzero(groups == 3) if grouped else np.array([0])
    y = y.astype(object)
    y[lost] = "rare"
    model = MultipleKernelFDA(VIEWS[:2], norm=1, cv=None).fit(X, y)
    folds = [
        (np.flatnonzero(groups % 3 != i), np.flatnonzero(groups % 3 == i))
        for i in range(3)
    ]
    of_rows = {"groups": groups} if grouped else {}
    found = view_ablation(model, X, y, cv=folds, **of_rows)
    assert "rare" in found.remarks[0] and f"{len(lost)} row" in found.remarks[0]
    kept = [(train, np.setdiff1d(test, lost)) for train, test in folds]
    same = view_ablation(model, X, y, cv=kept, **of_rows)
    assert same.order == found.order and same.remarks == []
