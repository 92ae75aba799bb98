"""scikit-learn's own checks, on every estimator with columns and with kernels."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelweave import KernelFDA, MultipleKernelFDA, MultipleKernelRidge

TRUNCATED = (
    "the check fits a Gram matrix truncated to integers, which is indefinite; "
    "psd='clip' takes it"
)
NOT_SQUARE = "the check hands a table of features to an estimator that takes kernels"

VECTOR = [
    KernelFDA(),
    MultipleKernelFDA(),
    MultipleKernelFDA(norm=1, alpha=0.1),
    MultipleKernelFDA(objective="loo"),
    MultipleKernelFDA(norm=2, alpha="learn"),
    MultipleKernelRidge(),
]
PRECOMPUTED = [
    KernelFDA("precomputed"),
    MultipleKernelFDA("precomputed", norm=1, alpha=0.1),
    MultipleKernelRidge("precomputed", norm=1, alpha="learn"),
    MultipleKernelFDA("precomputed", norm=2, alpha="learn", psd="clip"),
]


def expected_failures(estimator):
    """What may fail, and must: an entry that passes is an error, too."""
    failures = {}
    if estimator.views == "precomputed":
        if estimator.psd == "error":
            failures["check_estimators_dtypes"] = TRUNCATED
        if hasattr(estimator, "predict_proba"):
            failures["check_decision_proba_consistency"] = NOT_SQUARE
    return failures


# Some checks hand over nothing but one constant column or one class of many; what the
# estimators say about it are warnings by design.
@pytest.mark.filterwarnings("default::kernelweave.exceptions.KernelWarning")
@pytest.mark.filterwarnings("ignore:Skipping check:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [*VECTOR, *PRECOMPUTED],
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
from kernelweave import KernelFDA, MultipleKernelFDA, MultipleKernelRidge

passed, failed = 0, 0
for model in (
    KernelFDA(),
    MultipleKernelFDA(norm=1, alpha=0.1),
    MultipleKernelRidge(norm=2, alpha="learn"),
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
