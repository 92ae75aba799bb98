"""Targets that every inspection and evaluation reads in the same way."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_equal

from estimators import in_turn
from kernelweave import MultipleKernelFDA
from kernelweave.evaluation import evaluate
from kernelweave.inspection import (
    ProjectionDisplay,
    view_ablation,
    view_permutation_importance,
    view_pvalues,
    weight_intervals,
)
from kernelweave.report import write_report

pd = pytest.importorskip("pandas")

#: Whatever takes a fitted model, rows and targets; each returns what to compare.
CALLS = {
    "evaluate": lambda *given: evaluate(*given, cv=2, baselines=False).table,
    "ablation": lambda *given: view_ablation(*given, cv=2, random_state=0),
    "intervals": lambda *given: weight_intervals(*given, n_resamples=3, random_state=0),
    "p-values": lambda *given: view_pvalues(*given, n_decoys=3, random_state=0),
    "permutation": lambda *given: view_permutation_importance(*given, random_state=0),
    "projection": lambda *given: ProjectionDisplay.from_estimator(*given).labels,
}
COLUMNS = {
    "NumPy": lambda y: np.array(y, dtype=np.dtypes.StringDType(na_object=None)),
    "pandas": lambda y: pd.Series(y, dtype="string"),
    "categories": lambda y: pd.Series(y, dtype="category"),
    "numbers": lambda y: pd.Series(
        [None if v is None else "ab".index(v) for v in y], dtype="Int64"
    ),
}


@pytest.fixture
def rows(rng):
    """Rows of two views, and two classes."""
    y = ["a", "b"] * 12
    return rng.normal(size=(24, 4)) + (np.array(y) == "b")[:, None], y


def model_of(X, y):
    views = [("left", "linear", [0, 1]), ("right", "linear", [2, 3])]
    return MultipleKernelFDA(views, norm=1, alpha=0.1, cv=None).fit(X, y)


@pytest.mark.one_seed
@in_turn(call=list(CALLS) * 2, column=list(COLUMNS))
def test_labels_in_any_column(call, column, rows):
    X, y = rows
    plain = np.array(COLUMNS[column](y).tolist())
    expected = CALLS[call](model_of(X, plain), X, plain)
    assert_equal(
        CALLS[call](model_of(X, COLUMNS[column](y)), X, COLUMNS[column](y)), expected
    )


@pytest.mark.one_seed
@in_turn(call=[*CALLS, "report"] * 4, column=list(COLUMNS))
def test_rows_without_a_label_are_named(call, column, rows, tmp_path):
    X, y = rows
    model = model_of(X, COLUMNS[column](y))
    y[5] = None

    def write(*given):
        write_report(*given, tmp_path / "page.html")

    with pytest.raises(ValueError, match=r"y contains NaN.* in row 5\. Drop such rows"):
        CALLS.get(call, write)(model, X, COLUMNS[column](y))
    assert not list(tmp_path.iterdir())
