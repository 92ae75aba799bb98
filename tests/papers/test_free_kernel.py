"""Free kernels: the cone solver against closed-form solutions."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.criteria import Margin
from kernelweave.kernels import DenseBank
from reproduce.reference.free_kernel import free_alignment, free_margin

pytest.importorskip("cvxpy")

LABELS = [np.repeat([1.0, -1.0], 4), np.array([1.0, -1, -1, 1, -1, -1, -1, -1, 1])]
every_label = pytest.mark.parametrize("y", LABELS, ids=["4 and 4", "3 and 6"])
MARGINS = [("hard", 1.0), ("l2", 0.5), ("l2", 20.0), ("l1", 0.02), ("l1", 5.0)]
every_margin = pytest.mark.parametrize("margin, C", MARGINS)


@every_label
def test_the_best_aligned_kernel_is_the_target(y):
    """Lanckriet et al. (2002), Eq. 5."""
    result = free_alignment(y)
    assert result.optimum == 1.0
    assert result.value == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(result.kernel, np.outer(y, y) / len(y), atol=1e-4)


@every_label
@every_margin
@pytest.mark.parametrize("trace", [None, 3.0])
def test_the_value_is_the_closed_form(y, margin, C, trace):
    """Lanckriet et al. (2002), Eq. 8."""
    result = free_margin(y, trace, margin, C)
    assert result.value == pytest.approx(result.optimum, rel=1e-5)
    assert np.trace(result.kernel) == pytest.approx(trace or len(y), rel=1e-6)
    assert np.linalg.eigvalsh(result.kernel)[0] >= -1e-9


@every_label
@every_margin
def test_a_support_vector_machine_on_the_kernel_agrees(y, margin, C):
    result = free_margin(y, None, margin, C)
    criterion = Margin(DenseBank(result.kernel[None]), y[:, None], margin, C)
    value = criterion.evaluate(np.ones(1), hessian=False).value
    assert value == pytest.approx(result.optimum, rel=1e-4)


@every_margin
def test_no_other_kernel_of_this_trace_is_better(rng, margin, C):
    y = LABELS[1]
    Z = rng.standard_normal((9, 12))
    kernel = Z @ Z.T * 9 / np.sum(Z**2)
    criterion = Margin(DenseBank(kernel[None]), y[:, None], margin, C)
    value = criterion.evaluate(np.ones(1), hessian=False).value
    assert value >= free_margin(y, None, margin, C).optimum


BAD = {
    "labels": (free_margin, (np.array([1, 2]),), r"\+1 or -1; row 1 has 2"),
    "one class": (free_margin, (np.ones(3),), "both classes"),
    "margin": (free_margin, (np.array([1, -1]), 2.0, "l3"), "'hard', 'l1' or 'l2'"),
    "trace": (free_margin, (np.array([1, -1]), 0.0), "trace must be a finite number"),
    "C": (free_margin, (np.array([1, -1]), 2.0, "l1", -1.0), "C must be a finite"),
    "size": (free_alignment, (np.ones(200),), "at most 100 rows"),
}


@pytest.mark.parametrize("function, arguments, message", BAD.values(), ids=BAD)
def test_bad_input_is_named(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
