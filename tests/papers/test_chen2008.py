"""Chen et al. (2008): scaling, methods, the alternation, and the claims."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.models import SubspaceKernelSVC
from kernelweave.papers import _chen2008_claims as says
from kernelweave.papers import chen2008, load_paper
from kernelweave.papers._chen2008_alternation import ROUNDS, alternation, kernels
from kernelweave.papers.results import Results


@pytest.fixture
def data(rng):
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 4)) + 4 * np.eye(3, 4)[y]
    return X, y, chen2008.WIDTHS


@pytest.fixture
def split(data, rng):
    return chen2008.halves(data, rng)


def test_scaling(rng):
    X = rng.standard_normal((7, 4)) + 3
    X[:, 3] = 1.0
    columns = chen2008.normalised(X, genes=False)
    np.testing.assert_allclose(np.linalg.norm(columns, axis=0), [1, 1, 1, 0])
    np.testing.assert_allclose(columns.sum(axis=0), 0, atol=1e-12)
    rows = chen2008.normalised(X, genes=True)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)


def test_halves_choose_a_width(split):
    assert len(split.y_train) == len(split.y_test) == 45
    assert split.sigma in chen2008.WIDTHS[1:]  # the narrowest knows nothing


def test_at_most_a_hundred_rows_of_a_class(rng):
    y = np.repeat([0, 1], [150, 40])
    X = rng.standard_normal((190, 2))
    split = chen2008.halves((X, y, chen2008.WIDTHS), rng)
    both = np.concatenate([split.y_train, split.y_test])
    assert np.bincount(both).tolist() == [100, 40]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("column", chen2008.TABLE_2_COLUMNS)
def test_one_kernel(split, column):
    assert chen2008.TABLE_2_COLUMNS[column](split)["error"] < 25


@pytest.mark.parametrize("column", ["HSIC_ker3", "HSIC_mkl", "SVM_mkl", "SVM_mean"])
def test_four_kernels(split, column):
    assert chen2008.TABLE_3_COLUMNS[column](split)["error"] < 30


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("method", chen2008.METHODS)
def test_dimensions_and_times(split, method):
    one = chen2008.with_dimension((split, 1), method)["error"]
    two = chen2008.with_dimension((split, 2), method)["error"]
    assert two < min(one + 10, 20)
    found = chen2008.fast(split, method)
    assert found["seconds"] > 0 and found["times HSIC"] > 0


@pytest.mark.parametrize("uncorrelated", [False, True])
def test_bounds_enclose_the_saddle_point(split, uncorrelated):
    found = alternation(split, split.sigma, 10.0, uncorrelated)
    assert len(found.upper) == len(found.lower) == len(found.error) == ROUNDS
    assert min(found.upper) >= 1 - 1e-4
    assert max(found.lower) <= 1 + 1e-4
    model = SubspaceKernelSVC(split.views(), C=10.0, uncorrelated=uncorrelated)
    certificate = model.fit(split.train, split.y_train).certificate_
    assert certificate.value == pytest.approx(found.saddle, rel=1e-3)


def test_centred_kernels(split):
    train, test = kernels(split, split.sigma)
    assert np.trace(train) == pytest.approx(len(train))
    np.testing.assert_allclose(train.sum(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(test.sum(axis=1), 0, atol=1e-9)


def made_up(key, cell, sign):
    """Two splits; columns get worse in their order by ``sign`` points each."""
    experiment = load_paper("chen2008").select(part=key)[0]

    def columns(i):
        return {c: cell(j * sign + 0.01 * i) for j, c in enumerate(experiment.columns)}

    splits = {row: {i: columns(i) for i in range(2)} for row in experiment.rows}
    return Results(experiment, splits)


@pytest.mark.parametrize("sign", [1, -1])
def test_claims_about_tables_can_fail(sign):
    results = made_up("table2", lambda x: {"error": 20 + x}, sign)
    verdicts = {verdict for _, verdict, _ in results.claims()}
    assert verdicts == {"reproduced" if sign < 0 else "not reproduced"}
    results = made_up("table3", lambda x: {"error": 20 + x}, sign)
    verdicts = [verdict == "reproduced" for _, verdict, _ in results.claims()]
    assert verdicts == ([1, 1, 0] if sign < 0 else [0, 0, 1])
    results = made_up("table4", lambda x: {"seconds": 1.0, "times HSIC": 5 + x}, sign)
    assert results.claims()[0][1] == "not reproduced"


@pytest.mark.parametrize("closed", [True, False])
def test_claims_and_pictures_of_rounds(closed):
    steps = np.zeros(10) if closed else np.arange(10.0) % 2 * 5
    cell = {
        "gap": 0.0 if closed else 3.0,
        "error 1": 8.0,
        "error 4": 7.0 if closed else 9.0,
        "upper": (1 + steps).tolist(),
        "lower": (1 - steps).tolist(),
        "errors": (7 + steps).tolist(),
    }
    pytest.importorskip("matplotlib")
    for key in ("figure2", "figure3"):
        results = made_up(key, lambda x: cell, 0)
        verdicts = {verdict for _, verdict, _ in results.claims()}
        assert verdicts == {"reproduced" if closed else "not reproduced"}
        assert len(results.experiment.draw(results).axes) == 8


def test_claims_about_dimensions():
    experiment = load_paper("chen2008").select(figure=1)[0]
    splits = {}
    for name, sizes in says.DIMENSIONS.items():
        for size in sizes:
            error = 10.0 + abs(size - (says.CLASSES[name] - 1))
            cell = {column: {"error": error} for column in experiment.columns}
            splits[says.dimension_row(name, size)] = {0: cell}
    results = Results(experiment, splits)
    assert [verdict for _, verdict, _ in results.claims()] == ["reproduced"] * 2
    pytest.importorskip("matplotlib")
    assert len(experiment.draw(results).axes) == 2


def test_rows(data_dir):
    X, y, widths = chen2008.rows_of("brain_tumor2")
    assert (X.shape, len(np.unique(y))) == ((50, 10367), 4)
    assert widths == chen2008.GENE_WIDTHS
