"""The linear systems of the path to a saddle point."""

from __future__ import annotations

import numpy as np

from kernelweave.inner.saddle import FactoredColumn


def test_rows_without_a_label_have_no_part_in_a_step(rng):
    n, used = 8, np.arange(8) < 5
    root = rng.normal(size=(n, n))
    K, diagonal = root @ root.T, np.where(used, rng.uniform(0.1, 1.0, n), 1.0)
    right = np.where(used, rng.normal(size=n), 0.0)
    column = FactoredColumn(K, diagonal, used, rng.normal(size=(2, n)))
    found = column.backward(column.forward(right), np.zeros(3))
    matrix = K[:5, :5] + np.diag(diagonal[:5])
    np.testing.assert_allclose(found[:5], np.linalg.solve(matrix, right[:5]), rtol=1e-9)
    np.testing.assert_array_equal(found[5:], 0.0)
