"""Means, standard errors and verdicts."""

from __future__ import annotations

import numpy as np
import pytest

from reproduce import Measure, Published
from reproduce.results import (
    BETTER,
    NOT_REPRODUCED,
    REPRODUCED,
    WORSE,
    Estimate,
    judge,
)
from reproduce.run import run_experiment


@pytest.mark.parametrize(
    ("better", "mean", "verdict"),
    [
        ("higher", 90.9, REPRODUCED),
        ("higher", 89.1, REPRODUCED),
        ("higher", 91.2, BETTER),
        ("higher", 88.8, WORSE),
        ("lower", 91.2, WORSE),
        ("lower", 88.8, BETTER),
        ("", 91.2, NOT_REPRODUCED),
        ("", 88.8, NOT_REPRODUCED),
    ],
)
def test_two_standard_errors(better, mean, verdict):
    measure = Measure("accuracy", digits=2, better=better)
    assert judge(measure, Published(90.0), mean, error=0.5) == verdict


def test_tolerance_replaces_the_error():
    measure = Measure("margin", digits=3)
    published = Published(0.300, tolerance=0.005)
    assert judge(measure, published, 0.3051, error=1.0) == REPRODUCED
    assert judge(measure, published, 0.306, error=1.0) == BETTER


def test_one_split_gets_a_verdict_by_tolerance_only():
    measure = Measure("accuracy", digits=2)
    nothing = float("nan")
    assert judge(measure, Published(90.0), 50.0, error=nothing) == ""
    close = Published(90.0, tolerance=1.0)
    assert judge(measure, close, 89.5, error=nothing) == REPRODUCED


def test_cells_of_an_experiment(fake, tmp_path):
    results = run_experiment(fake.TABLE, 4, tmp_path)
    cells = {cell.column: cell for cell in results.cells()}
    verdicts = {name: cell.verdict for name, cell in cells.items()}
    assert verdicts == {
        "same": REPRODUCED,
        "shifted": BETTER,
        "lost": WORSE,
        "warns": "",
    }
    values = results.values("half", "same", "score")
    assert cells["same"].ours.mean == pytest.approx(values.mean())
    assert cells["same"].ours.error == pytest.approx(values.std(ddof=1) / 2)
    assert results.difference("half", "shifted", "same", "score") == pytest.approx(
        (10.0, 0.0)
    )


def test_error_of_the_paper_counts(fake, tmp_path):
    """Means over 4 and 8 splits: 1/4 and 1/8 of the variance of a single split."""
    results = run_experiment(fake.TABLE, 4, tmp_path)
    error = results.error("half", "same", "score")
    both = error * np.sqrt(1 + 4 / 8)
    mean = results.mean("half", "same", "score")
    for factor, verdict in ((1.95, REPRODUCED), (2.05, WORSE)):
        published = {"score": Published(mean + factor * both + 0.005)}
        fake.TABLE.published["half", "same"] = published
        cell = next(c for c in results.cells() if c.column == "same")
        assert cell.verdict == verdict


def test_one_split_has_no_error(fake, tmp_path):
    results = run_experiment(fake.TABLE, 1, tmp_path)
    assert np.isnan(results.error("half", "same", "score"))
    assert np.isnan(results.difference("half", "same", "lost", "score")[1])


def test_a_better_number_is_not_reproduced():
    assert BETTER == "not reproduced (better)" and WORSE == "not reproduced (worse)"


def test_two_equal_splits_have_no_error():
    assert np.isnan(Estimate.of(np.full(2, 90.0))[1])
    assert Estimate.of(np.full(30, 90.0)) == (90.0, 0.0)
    assert Estimate.of(np.array([90.0, 92.0]))[1] == pytest.approx(1.0)


def test_claims(fake, tmp_path):
    results = run_experiment(fake.TABLE, 4, tmp_path)
    assert results.claims() == [
        ("shifted is larger", REPRODUCED, "+10.00"),
        ("the moon is cheese", "not run", "no results for 'moon'"),
    ]
