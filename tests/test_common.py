"""scikit-learn's own checks, on every estimator with columns and with kernels."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from sklearn.impute import SimpleImputer
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    ProbabilisticKDA,
    SubspaceKernel,
    SubspaceKernelSVC,
    TransductiveKernelSVC,
)
from kernelweave.kernels import Pipe

TRUNCATED = (
    "the check fits a Gram matrix truncated to integers, which is indefinite; "
    "psd='clip' takes it"
)
SINGLE_NAN = "the check strews NaN over a kernel; a row lacks a kernel as a whole"

VECTOR = [
    SubspaceKernel(),
    SubspaceKernel(norm=1, alpha=0.1, uncorrelated=True),
    SubspaceKernelSVC(),
    SubspaceKernelSVC(uncorrelated=False),
    KernelFDA(),
    MultipleKernelFDA(),
    MultipleKernelFDA(norm=1, alpha=0.1),
    MultipleKernelFDA(objective="loo"),
    MultipleKernelFDA(norm=2, alpha="learn"),
    MultipleKernelRidge(),
    MultipleKernelFDA(features="nystroem", n_features=10, norm=1),
    MultipleKernelRidge(features="nystroem", n_features=10, alpha="cv"),
    MultipleKernelSVC(),
    MultipleKernelSVC(margin="l2", C="learn", weights="per_class"),
    TransductiveKernelSVC([("all", ["linear", "rbf"], slice(None))]),
    TransductiveKernelSVC(signed=False),
    KernelAlignment(),
    KernelAlignment(output="features", method="independent"),
    ProbabilisticKDA(),
    MixtureKDA(),
    MixtureKDA(weights="stacking", projection="posterior"),
]
PRECOMPUTED = [
    SubspaceKernel("precomputed", norm=1, alpha=0.1),
    SubspaceKernelSVC("precomputed", alpha=0.1),
    MultipleKernelSVC("precomputed"),
    KernelAlignment("precomputed"),
    KernelFDA("precomputed"),
    MultipleKernelFDA("precomputed", norm=1, alpha=0.1),
    MultipleKernelRidge("precomputed", norm=1, alpha="learn"),
    MultipleKernelFDA("precomputed", norm=2, alpha="learn", psd="clip"),
    ProbabilisticKDA("precomputed"),
    MixtureKDA("precomputed"),
]
# A check sets single entries to NaN where NaN is allowed: an imputer's business.
IMPUTED = [("all", Pipe(SimpleImputer(), "auto"), slice(None))]
MISSING = [
    KernelFDA(IMPUTED, missing="zero"),
    KernelFDA(IMPUTED, missing="available"),
    MultipleKernelFDA(IMPUTED, norm=1, alpha=0.1, missing="zero"),
    MultipleKernelFDA(IMPUTED, norm=2, alpha="learn", missing="available"),
    MultipleKernelRidge(IMPUTED, norm=1, alpha="learn", missing="zero"),
    MultipleKernelRidge(IMPUTED, norm=2, alpha=0.1, missing="available"),
    MultipleKernelSVC(IMPUTED, missing="zero"),
    MultipleKernelSVC(IMPUTED, missing="available"),
    TransductiveKernelSVC(IMPUTED, signed=False, missing="zero"),
    TransductiveKernelSVC(IMPUTED, signed=False, missing="available"),
    KernelAlignment(IMPUTED, missing="zero"),
    KernelAlignment(IMPUTED, output="features", missing="available"),
    KernelFDA("precomputed", missing="available"),
    MultipleKernelRidge("precomputed", norm=1, alpha="learn", missing="zero"),
    ProbabilisticKDA(IMPUTED, missing="zero"),
    ProbabilisticKDA(IMPUTED, missing="available"),
    ProbabilisticKDA("precomputed", missing="zero"),
    SubspaceKernel(IMPUTED, norm=1, alpha=0.1, missing="zero"),
    SubspaceKernel(IMPUTED, norm=1, alpha=0.1, missing="available"),
    SubspaceKernelSVC(IMPUTED, alpha=0.1, missing="zero"),
    SubspaceKernelSVC(IMPUTED, alpha=0.1, missing="available"),
    MixtureKDA(IMPUTED, missing="zero"),
    MixtureKDA(IMPUTED, missing="available"),
    MixtureKDA("precomputed", missing="zero"),
]


UNLABELLED = "the check has a class -1, which marks rows without a label here"


def expected_failures(estimator):
    """What may fail, and must: an entry that passes is an error, too."""
    failures = {}
    if isinstance(estimator, TransductiveKernelSVC):
        failures["check_classifiers_classes"] = UNLABELLED
    if estimator.views == "precomputed":
        if estimator.psd == "error":
            failures["check_estimators_dtypes"] = TRUNCATED
        if estimator.missing != "error":
            failures["check_estimators_pickle"] = SINGLE_NAN
    return failures


# Some checks hand over nothing but one constant column or one class of many; what the
# estimators say about it are warnings by design.
@pytest.mark.filterwarnings("default::kernelweave.exceptions.KernelWarning")
@pytest.mark.filterwarnings("ignore:Skipping check:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [*VECTOR, *PRECOMPUTED, *MISSING],
    expected_failed_checks=expected_failures,
    xfail_strict=True,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


#: scikit-learn skips the array API checks unless SciPy was told about other array
#: libraries before the first import of either, so they run in a process of their own.
ARRAY_API_CHECKS = """
import sys
from unittest import SkipTest
from sklearn.utils.estimator_checks import estimator_checks_generator
from kernelweave import *

passed, failed = 0, 0
for model in (
    KernelAlignment(),
    KernelFDA(),
    MixtureKDA(),
    MultipleKernelFDA(norm=1, alpha=0.1),
    MultipleKernelRidge(norm=2, alpha="learn"),
    MultipleKernelSVC(),
    ProbabilisticKDA(),
    SubspaceKernel(norm=1, alpha=0.1),
    SubspaceKernelSVC(),
    TransductiveKernelSVC(signed=False),
):
    for estimator, check in estimator_checks_generator(model):
        if "array_api" not in repr(check) or sys.argv[1] not in repr(check):
            continue
        try:
            check(estimator)
            passed += 1
        except SkipTest:
            pass
        except Exception as error:
            failed += 1
            print(f"{model!r} {check!r}: {error!r:.1000}")
print(f"passed {passed}, failed {failed}")
"""


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_scikit_learn_array_api_checks(library):
    pytest.importorskip(library)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ARRAY_API_CHECKS, library],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.endswith("failed 0\n"), done.stdout
    assert "passed 0" not in done.stdout
