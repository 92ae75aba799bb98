"""scikit-learn's own checks on every estimator, with columns and with kernels."""

from __future__ import annotations

import pytest
from sklearn.impute import SimpleImputer
from sklearn.utils.estimator_checks import check_estimator

from estimators import ONE_EACH, cheap
from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    SubspaceKernel,
    SubspaceKernelSVC,
    TransductiveKernelSVC,
)
from kernelweave.kernels import Pipe

TRUNCATED = (
    "the check fits a Gram matrix truncated to integers, which is indefinite; "
    "psd='clip' accepts it"
)
SINGLE_NAN = "the check scatters NaN over a kernel; only whole rows may be missing"

ONE = [("all", "rbf", slice(None))]
TWO = [("all", ["linear", "rbf"], slice(None))]
# Where NaN is allowed, a check sets single entries to NaN: those need an imputer.
IMPUTED = [("all", Pipe(SimpleImputer(), ["linear", "rbf"]), slice(None))]


def configurations():
    """Every estimator in a cheap setting, and once each other form of input.

    One configuration with a single kernel includes the folds of ``cv_score_``, one has
    the kernels "auto", and one with explicit features takes sparse rows. Two kernels do
    for all others.
    """
    for name in ONE_EACH:
        model = cheap(name, TWO)
        if isinstance(model, KernelFDA):
            model.set_params(views=ONE, cv=2)
        elif isinstance(model, KernelAlignment):
            model.set_params(views=None)
        elif isinstance(model, MultipleKernelRidge):
            model = cheap("MultipleKernelRidge-nystroem", TWO)
        yield name.partition("-")[0], model
    yield "KernelAlignment-precomputed", KernelAlignment("precomputed")
    yield (
        "KernelAlignment-missing",
        KernelAlignment(
            IMPUTED, missing="available", output="features", method="independent"
        ),
    )
    yield (
        "MultipleKernelRidge-gaps",
        MultipleKernelRidge(
            "precomputed", norm=1, alpha="learn", missing="zero", cv=None
        ),
    )
    yield (
        "KernelFDA-clip",
        KernelFDA("precomputed", alpha=0.1, psd="clip", cv=None),
    )


UNLABELLED = "the check has a class -1, which marks unlabelled rows here"
LEFT_OUT = (
    "a row is left out with all of its weight: copies of it would have to be a group"
)
WIDTHS = "kernel widths are medians over the rows, each once, whatever its weight"
COLUMNS = "the kernel has one column per training row, so repeated rows have more"


def failures_of_weights(estimator):
    """Checks of ``sample_weight`` that must fail, and why.

    models/test_row_weights.py and models/test_repeated_rows.py compare copies of rows,
    with given kernels and with groups: there they agree.
    """
    if estimator.views == "precomputed":  # these are not checked
        return {}
    if getattr(estimator, "features", "") == "nystroem":  # it interpolates the few rows
        return {}
    why = LEFT_OUT
    if isinstance(estimator, MultipleKernelSVC | TransductiveKernelSVC):
        why = WIDTHS
    elif isinstance(estimator, SubspaceKernel | SubspaceKernelSVC):
        why = LEFT_OUT if estimator.alpha == "loo" else WIDTHS
    elif isinstance(estimator, KernelAlignment):
        why = COLUMNS if estimator.output == "kernel" else WIDTHS
    forms = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{form}_data": why for form in forms}


def expected_failures(estimator):
    """Checks that must fail, and why: one that passes is an error as well."""
    failures = failures_of_weights(estimator)
    if isinstance(estimator, TransductiveKernelSVC):
        failures["check_classifiers_classes"] = UNLABELLED
    if estimator.views == "precomputed":
        if estimator.psd == "error":
            failures["check_estimators_dtypes"] = TRUNCATED
        if estimator.missing != "error":
            failures["check_estimators_pickle"] = SINGLE_NAN
    return failures


# Some checks pass only a constant column, or one class of many; the estimators are
# meant to warn about these.
@pytest.mark.filterwarnings("default::kernelweave.exceptions.KernelWarning")
@pytest.mark.parametrize(
    "model", [pytest.param(model, id=name) for name, model in configurations()]
)
def test_scikit_learn_checks(model):
    expected = expected_failures(model)
    results = check_estimator(model, expected_failed_checks=expected, on_skip=None)
    skipped = [r["check_name"] for r in results if r["status"] == "skipped"]
    assert all("array_api" in name for name in skipped)  # see test_own_process.py
    assert len(results) - len(skipped) > 40
    failed = [r["check_name"] for r in results if r["status"] != "passed"]
    assert set(failed) - set(skipped) == expected.keys()
    assert not any(r["status"] == "passed" for r in results if r["expected_to_fail"])
