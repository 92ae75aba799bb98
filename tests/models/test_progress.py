"""What a fit reports while it runs: callbacks, progress bars, printed lines."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.callback import ScoringMonitor
from sklearn.exceptions import ConvergenceWarning

from estimators import (
    EXPLICIT,
    ONE_EACH,
    is_certified,
    kinds,
    output,
    some,
    takes,
    unless,
)
from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    ProbabilisticKDA,
    SubspaceKernel,
    SubspaceKernelSVC,
)

#: What is reported does not depend on what is learned.
pytestmark = pytest.mark.one_seed

every_learner = pytest.mark.parametrize(
    "estimator",
    some(
        (*ONE_EACH, "MultipleKernelFDA-l4/3"),
        is_certified,
        unless(KernelAlignment),  # finds its weights in one step
    ),
)


class Recorder:
    """Remember every task; ask once to stop, after some iterations or folds."""

    def __init__(self, stop_after=None, task="iteration"):
        self.stop_after, self.task = stop_after, task
        self.began, self.ended, self.metadata = [], [], []
        self.n_setups = self.n_teardowns = 0

    def setup(self, estimator, context):
        self.n_setups += 1

    def teardown(self, estimator, context):
        self.n_teardowns += 1

    def on_fit_task_begin(self, estimator, context):
        self.began.append(context.task_name)

    def on_fit_task_end(self, estimator, context, *, metadata=None):
        self.ended.append(context.task_name)
        self.metadata.append(metadata)
        return self.task == context.task_name and (
            self.ended.count(self.task) == self.stop_after
        )


@every_learner
def test_callback_sees_every_task(estimator, make_problem):
    problem = make_problem(3)
    recorder = Recorder()
    model = clone(estimator).set_params(views=problem.views).set_callbacks(recorder)
    model.fit(problem.X, problem.y)
    assert recorder.n_setups == recorder.n_teardowns == 1
    assert recorder.ended.count("kernel") == 5
    assert recorder.ended.count("iteration") >= 2
    assert sorted(recorder.began) == sorted(recorder.ended)
    values = [m["value"] for m in recorder.metadata if m and "value" in m]
    assert len(values) == recorder.ended.count("iteration")
    assert np.all(np.isfinite(values)) and values[-1] <= values[0]
    plain = clone(model).fit(problem.X, problem.y)
    assert np.array_equal(plain.kernel_weights_, model.kernel_weights_)


@every_learner
def test_callback_can_stop_a_fit(estimator, make_problem):
    problem = make_problem(3)
    recorder = Recorder(stop_after=1)
    model = clone(estimator).set_params(views=problem.views).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match="stopped by the callback"):
        model.fit(problem.X, problem.y)
    assert recorder.n_teardowns == 1
    searches = 3 if isinstance(model, MixtureKDA) else 1  # one per class
    assert recorder.ended.count("iteration") == searches
    certificate = model.certificate_
    assert not certificate.converged and "optimal" not in certificate.status
    assert certificate.gap > model.tol
    if searches == 1:  # otherwise it reports the gap of the first
        assert f"gap {certificate.gap:.1e}" in certificate.status
    assert np.all(np.isfinite(output(model, problem.new)))


def test_to_stop_ends_the_search_for_a_subspace_too(make_problem):
    problem, recorder = make_problem(3), Recorder(stop_after=1)
    model = SubspaceKernelSVC(problem.views, n_components=1).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match="stopped by the callback"):
        model.fit(problem.X, problem.y)
    assert recorder.ended.count("iteration") == 2  # one for each search
    recorder = Recorder(stop_after=2)
    model.set_params(norm=np.inf).set_callbacks(recorder)  # no other weights
    with pytest.warns(ConvergenceWarning, match="subspace stopped by the callback"):
        model.fit(problem.X, problem.y)
    assert recorder.ended.count("iteration") == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "alignment"}, "after 1 iterations; a callback stopped the fit$"),
        (
            {"weights": "plain", "norm": 1},
            "a search whose outcome is stopped by the callback",
        ),
    ],
    ids=["alignment", "plain"],
)
def test_to_stop_a_subspace_kernel_is_noted(settings, words, make_problem):
    problem, recorder = make_problem(3), Recorder(stop_after=1)
    model = SubspaceKernel(problem.views, **settings).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match=words):
        model.fit(problem.X, problem.y)


FIRST_NORM = "a callback stopped the fit; norms tried: inf"
NO_SCORE = "there is no cv_score_: a callback stopped the fit "
EARLY, LATE = "before the folds", "after fold 2 of 3"


@pytest.mark.parametrize(
    ("kind", "settings", "stop", "counts", "remarks"),
    [
        (MultipleKernelFDA, {}, (1, "kernel"), (1, 0), [FIRST_NORM, EARLY]),
        (MultipleKernelRidge, {}, (1, "iteration"), (1, 0), [FIRST_NORM, EARLY]),
        (MultipleKernelRidge, {"norm": 1}, (1, "iteration"), (1, 0), [EARLY]),
        (MultipleKernelRidge, {"norm": 1}, (2, "fold"), (None, 2), [LATE]),
        (KernelFDA, {}, (2, "fold"), (0, 2), [LATE]),
        (KernelFDA, {}, (3, "fold"), (0, 3), []),
        (ProbabilisticKDA, {}, (1, "kernel"), (0, 0), [EARLY]),
        (ProbabilisticKDA, {}, (2, "fold"), (0, 2), [LATE]),
        (MixtureKDA, {}, (1, "iteration"), (3, 0), [EARLY]),
        (MixtureKDA, {}, (2, "fold"), (None, 2), [LATE]),
    ],
)
def test_to_stop_is_to_stop(kind, settings, stop, counts, remarks, make_problem):
    """Neither norms nor folds follow, and no earlier score stays."""
    problem = make_problem(3)
    model = kind(problem.views, cv=3, **settings).fit(problem.X, problem.y)
    assert np.isfinite(model.cv_score_)
    recorder = Recorder(*stop)
    model.set_callbacks(recorder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(problem.X, problem.y)
    n_iterations, n_folds = counts
    assert n_iterations in (None, recorder.ended.count("iteration"))
    assert recorder.ended.count("fold") == n_folds
    assert hasattr(model, "cv_score_") == (n_folds == 3)
    assert hasattr(model, "cv_standard_error_") == (n_folds == 3)
    said = " / ".join(model.kernel_map_.remarks)
    if hasattr(model, "certificate_"):
        said = " / ".join(model.certificate_.remarks)
    assert (NO_SCORE in said) == (n_folds < 3)
    assert all(text in said for text in remarks)
    assert np.all(np.isfinite(output(model, problem.new)))


@pytest.mark.parametrize(
    "kind", kinds(takes("cv"), lambda model: not takes("norm")(model), cv=3, verbose=2)
)
def test_a_fold_is_one_task(kind, make_problem, capsys):
    """Of what happens inside it nothing is reported."""
    problem, recorder = make_problem(2), Recorder()
    model = kind(problem.views).set_callbacks(recorder)
    model.fit(problem.X, problem.y)
    assert recorder.n_setups == recorder.n_teardowns == 1
    assert recorder.ended.count("kernel") == 5
    assert recorder.ended[-4:-1] == ["fold"] * 3
    lines = capsys.readouterr().out.splitlines()
    assert sum("kernel" in line for line in lines) == 5
    for i, line in enumerate(lines[-3:], start=1):
        assert line.endswith(f"fold {i} of 3 for cv_score_")


def test_uniform_weights_have_tasks_too(make_problem):
    problem = make_problem(2)
    recorder = Recorder()
    KernelFDA(problem.views, cv=None).set_callbacks(recorder).fit(problem.X, problem.y)
    assert recorder.ended.count("kernel") == 5
    assert recorder.n_teardowns == 1


def test_exception_in_a_callback_leaves_no_fitted_model(make_problem):
    class Failing(Recorder):
        def on_fit_task_end(self, estimator, context, *, metadata=None):
            raise RuntimeError("out of ink")

    problem = make_problem(2)
    callback = Failing()
    model = MultipleKernelFDA(problem.views, cv=None).set_callbacks(callback)
    with pytest.raises(RuntimeError, match="out of ink"):
        model.fit(problem.X, problem.y)
    assert callback.n_teardowns == 1


@every_learner
def test_progress_bar(estimator, make_problem, capsys):
    pytest.importorskip("rich")
    from sklearn.callback import ProgressBar

    problem = make_problem(2)
    model = clone(estimator).set_params(views=problem.views)
    model.set_callbacks(ProgressBar()).fit(problem.X, problem.y)
    assert type(model).__name__ in capsys.readouterr().out


def mean_output(model, X, y, sample_weight=None):
    """A measure of any model."""
    return {"mean": float(np.mean(output(model, X)))}


@pytest.mark.parametrize("estimator", some((*ONE_EACH, *EXPLICIT)))
def test_a_monitor_scores_the_fitted_model(estimator, make_problem):
    problem = make_problem(3)
    monitor = ScoringMonitor(scoring=mean_output)
    model = clone(estimator).set_params(views=problem.views).set_callbacks(monitor)
    model.fit(problem.X, problem.y, sample_weight=np.arange(1.0, 1 + len(problem.y)))
    found = [row["mean"] for row in monitor.get_logs().data]
    assert found == [mean_output(model, problem.X, problem.y)["mean"]]


def test_a_monitor_knows_the_weights_of_rows(make_problem):
    problem = make_problem(3)
    weight = np.arange(len(problem.y)) % 4.0
    monitor = ScoringMonitor(scoring="accuracy")
    model = KernelFDA(problem.views, cv=None).set_callbacks(monitor)
    model.fit(problem.X, problem.y, sample_weight=weight)
    (row,) = monitor.get_logs().data
    assert row["accuracy"] == model.score(problem.X, problem.y, weight)


def test_a_monitor_has_no_rows_that_come_in_portions(make_problem):
    problem = make_problem(3)
    monitor = ScoringMonitor(scoring="accuracy")
    model = MultipleKernelFDA(problem.views).set_callbacks(monitor)
    model.fit(iter([(problem.X, problem.y)]))
    assert "accuracy" not in monitor.get_logs().data[0]
    model.partial_fit(problem.X, problem.y)
    (row,) = monitor.get_logs().data
    assert row["accuracy"] == model.score(problem.X, problem.y)


@every_learner
def test_verbose(estimator, make_problem, capsys):
    problem = make_problem(2)
    model = clone(estimator).set_params(views=problem.views)
    model.fit(problem.X, problem.y)
    assert capsys.readouterr().out == ""
    model.set_params(verbose=1).fit(problem.X, problem.y)
    once = capsys.readouterr().out.splitlines()
    line = (
        rf"\[{type(model).__name__} +\d+\.\d\d s\] iteration \d+: value [-\d.e]+(, .*)?"
    )
    assert once and all(re.fullmatch(line, text) for text in once)
    model.set_params(verbose=2).fit(problem.X, problem.y)
    twice = capsys.readouterr().out.splitlines()
    assert sum("kernel" in text for text in twice) == 5
    assert len(twice) == len(once) + 5


def test_a_search_without_a_bound_prints_none(make_problem, capsys):
    problem = make_problem(2)
    problem.X[::4, :3] = np.nan  # rows lack the first view
    model = MixtureKDA(problem.views, missing="available", verbose=1, cv=None)
    model.fit(problem.X, problem.y)
    out = capsys.readouterr().out
    assert "iteration" in out and "nan" not in out
