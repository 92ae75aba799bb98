"""Lanckriet et al. (2002): kernels, margins, separability, and the claims."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from kernelweave import Simplex, solve
from kernelweave.criteria import Margin
from kernelweave.kernels import DenseBank
from reproduce import Split, lanckriet2002, load_paper
from reproduce.results import Results
from reproduce.run import split_generator

EXPERIMENT = load_paper("lanckriet2002").select("table1")[0]


@pytest.fixture
def split(rng):
    X = rng.standard_normal((60, 6))
    y = np.where(X[:, 0] * X[:, 1] + 0.5 * X[:, 2] > 0, 1.0, -1.0)
    kernels = lanckriet2002.three_kernels(X, 0.5)
    return lanckriet2002.label((kernels, y), rng)


def test_kernels(rng):
    X = rng.standard_normal((5, 3))
    X[4] = 0.0
    poly, gauss, linear = lanckriet2002.three_kernels(X, 0.5)
    size = 1 + np.sum(X**2, axis=1)
    np.testing.assert_allclose(poly, (1 + X @ X.T) ** 2 / np.outer(size, size))
    assert gauss[0, 1] == pytest.approx(np.exp(-np.sum((X[0] - X[1]) ** 2)))
    np.testing.assert_allclose(np.diag(linear), [1, 1, 1, 1, 0])


def test_partition_labels_sixty_percent(split):
    assert split.labelled.sum() == 36


def test_single_kernel_is_a_support_vector_machine(split):
    found = lanckriet2002.MARGINS["K2"](split)
    kernel, train = split.kernels[1], split.labelled
    machine = SVC(kernel="precomputed", C=1e10, tol=1e-8)
    machine.fit(kernel[np.ix_(train, train)], split.signs[train])
    alpha, rows = machine.dual_coef_[0], np.flatnonzero(train)[machine.support_]
    length = np.sqrt(alpha @ kernel[np.ix_(rows, rows)] @ alpha)
    assert found["margin"] == pytest.approx(2 / length, rel=1e-6)
    predicted = machine.predict(kernel[np.ix_(~train, train)])
    assert found["errors"] == np.sum(predicted != split.signs[~train])


def test_more_freedom_gives_a_larger_margin(split):
    found = {name: column(split) for name, column in lanckriet2002.MARGINS.items()}
    star, positive = found["K*"], found["K*, weights >= 0"]
    # each set of kernels holds the next; measured: 1.6e-5 short of it at most
    assert star["margin"] >= (1 - 1e-3) * positive["margin"]
    assert positive["margin"] >= (1 - 1e-3) * np.sqrt(3) * found["K2"]["margin"]
    assert sum(star["weights"]) == pytest.approx(1)


def test_rows_that_are_not_separated_have_no_margin(rng):
    X = rng.standard_normal((60, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)  # no line separates them
    split = lanckriet2002.label((lanckriet2002.three_kernels(X, 0.5), y), rng)
    assert lanckriet2002.MARGINS["K3"](split) == {"separated": 0.0}


@pytest.mark.parametrize("degree", [1, 2])
def test_separability(rng, degree):
    X = rng.standard_normal((80, 3))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)
    found = lanckriet2002.separable(Split(X, y, X, y), degree)
    assert found == {"separable": 100.0 if degree == 2 else 0.0}


#: Mean margins and errors of the first 30 splits, from interior-point or active-set
#: solvers other than ours. Where 30 take long, those of the first 5, from our solver
#: after its means of 30 had agreed with the independent ones, in brackets, to 0.3 %.
MEANS = [
    ("breast_cancer_wisconsin", 0.5, "K1", 5, 0.00847, 13.8),  # (0.0093, 19.2)
    ("breast_cancer_wisconsin", 0.5, "K2", 30, 0.137, 31.7),
    ("breast_cancer_wisconsin", 0.5, "K*", 5, 0.2984, 11.6),  # (0.301, 12.8)
    ("breast_cancer_wisconsin", 0.5, "K*, weights >= 0", 30, 0.269, 16.5),
    ("sonar", 0.1, "K1", 30, 0.0354, 15.4),
    ("sonar", 0.1, "K2", 30, 0.198, 19.5),
    ("sonar", 0.1, "K3", 30, 0.0070, 23.0),
    ("sonar", 0.1, "K*", 30, 0.353, 15.6),
    ("sonar", 0.1, "K*, weights >= 0", 30, 0.342, 19.6),
    ("heart", 0.5, "K2", 30, 0.158, 47.9),
    ("heart", 0.5, "K*", 5, 0.2863, 36.8),  # (0.286, 37.2)
    ("heart", 0.5, "K*, weights >= 0", 30, 0.274, 47.9),
]


@pytest.mark.parametrize(("name", "sigma", "column", "n", "margin", "errors"), MEANS)
def test_means_of_many_splits(data_dir, name, sigma, column, n, margin, errors):
    data = lanckriet2002.kernels_of(name, sigma)
    found = [
        lanckriet2002.MARGINS[column](
            lanckriet2002.label(data, np.random.default_rng(1000 + i))
        )
        for i in range(n)
    ]
    means = {key: np.mean([row[key] for row in found]) for key in ("margin", "errors")}
    assert max(row["gap"] for row in found) <= lanckriet2002.GAP
    # measured on sonar: up to 1.2 %
    assert means["margin"] == pytest.approx(margin, rel=0.05)
    assert means["errors"] == pytest.approx(errors, rel=0.05)


def test_breast_cancer_to_all_digits():
    """The first split: Eq. 12 of Lanckriet et al. (2002) with weights >= 0."""
    data = lanckriet2002.kernels_of("breast_cancer_wisconsin", 0.5)
    split = lanckriet2002.label(data, np.random.default_rng(1000))
    bank = DenseBank(3 * split.kernels)
    signs = np.where(split.labelled, split.signs, 0.0)[:, None]
    solution = solve(Margin(bank, signs, "hard"), Simplex(), tol=1e-7)
    assert solution.converged
    assert solution.value == pytest.approx(57.271611, rel=1e-7)
    np.testing.assert_allclose(solution.weights, [0.1945, 0.8055, 0], atol=5e-5)


def made_up(star_errors, spread=0.0):
    """Three splits of each row, in which K1 and K2 separate and K3 does not."""

    def cell(margin, errors, i):
        weights = [0.6, 0.9, -0.5]
        errors = errors + spread * (i - 1)
        return {
            "separated": 100.0,
            "margin": margin,
            "errors": errors,
            "weights": weights,
        }

    def columns(i):
        return {
            "K1": cell(0.03, 15.0, i),
            "K2": cell(0.20, 20.0, 0),
            "K3": {"separated": 0.0},
            "K*": cell(0.35, star_errors, i),
            "K*, weights >= 0": cell(0.34, 20.0, 0),
        }

    splits = {row: {i: columns(i) for i in range(3)} for row in EXPERIMENT.rows}
    return Results(EXPERIMENT, splits)


def test_claims_can_fail():
    verdicts = [verdict for _, verdict, _ in made_up(14.0).claims()]
    assert verdicts == ["reproduced"] * 5
    verdicts = [verdict for _, verdict, _ in made_up(21.0).claims()]
    assert verdicts == ["reproduced"] * 2 + ["not reproduced"] * 3


def test_cells_without_a_margin_in_every_split_are_left_out():
    results = made_up(14.0)
    results.splits["Sonar"][0]["K1"] = {"separated": 0.0}
    shown = {(c.row, c.column, c.measure.name) for c in results.cells()}
    assert ("Sonar", "K1", "separated") in shown
    assert ("Sonar", "K1", "margin") not in shown
    assert ("Heart", "K1", "margin") in shown


@pytest.mark.parametrize("row", ["Sonar", "Heart"])
def test_margins_of_the_table(row, request):
    if row == "Heart":  # Sonar comes with the package
        request.getfixturevalue("data_dir")
    split = EXPERIMENT.split(EXPERIMENT.rows[row](), split_generator("table1", 0))
    for column in ("K2", "K*"):
        printed = EXPERIMENT.published[row, column]["margin"].value
        found = EXPERIMENT.columns[column](split)["margin"]
        # measured on sonar, of which one split stands for the printed mean: 1.1 %
        assert found == pytest.approx(printed, rel=0.05)
