"""Fits and predictions on Dask: the same bits whichever worker computes them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
pd = pytest.importorskip("pandas")

from kernelweave import MultipleKernelFDA, MultipleKernelRidge  # noqa: E402
from kernelweave.exceptions import MemoryRefusedError  # noqa: E402
from kernelweave.kernels import RBF  # noqa: E402
from kernelweave.models.streaming.dask import NumberedRows, dask_moments  # noqa: E402
from kernelweave.models.streaming.explicit import read_features  # noqa: E402

# Dask and related packages warn about each other's upcoming changes.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

VIEWS = [("left", ["linear", RBF()], [0, 1, 2]), ("right", RBF(), [3, 4, 5])]
NAMED = [("left", ["linear", RBF()], list("abc")), ("right", RBF(), list("def"))]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=600)
    X = rng.normal(size=(600, 6))
    X[:, 0] += 2 * (y == 1)
    X[:, 4] -= 2 * (y == 2)
    return X, y


@pytest.fixture(scope="module")
def model():
    return MultipleKernelFDA(VIEWS, n_features=10, norm=1, alpha="learn", cv=None)


@pytest.fixture(scope="module")
def chunked(table):
    X, y = table
    return da.from_array(X, chunks=(90, 6)), da.from_array(y, chunks=(90,))


@pytest.fixture(scope="module")
def reference(model, chunked):
    """Fitted by the threads of this process."""
    return clone(model).fit(*chunked)


def test_fit_and_lazy_predictions(reference, chunked, table):
    X, y = table
    dX, dy = chunked
    assert reference.features_.why == "rows come in portions"
    assert reference.certificate_.converged
    for method in ("predict", "transform", "predict_proba", "decision_function"):
        lazy = getattr(reference, method)(dX)
        now = getattr(reference, method)(X)
        assert isinstance(lazy, da.Array) and lazy.shape == now.shape
        assert lazy.dtype == now.dtype and lazy.chunks[0] == dX.chunks[0]
        assert_allclose(lazy.compute(), now, atol=1e-9)
    assert reference.score(dX, dy) == pytest.approx(reference.score(X, y))


def test_lazy_predictions_name_the_partition(reference, table):
    hole = table[0].copy()
    hole[200, 4] = np.nan
    lazy = reference.predict(da.from_array(hole, chunks=(90, 6)))
    with pytest.raises(ValueError, match=r"partition 2: .*view 'right', row 20,"):
        lazy.compute()


def test_targets_in_memory_and_other_chunks(reference, model, chunked, table):
    dX, dy = chunked
    for targets in (table[1], dy.rechunk(100)):
        same = clone(model).fit(dX, targets)
        assert np.array_equal(same.feature_coef_, reference.feature_coef_)
    columns = clone(model).fit(dX.rechunk((90, 2)), dy)
    assert np.array_equal(columns.feature_coef_, reference.feature_coef_)


def test_data_frames(model, table):
    dd = pytest.importorskip("dask.dataframe")
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(label=y)
    rows = dd.from_pandas(frame, npartitions=4)
    fitted = clone(model).set_params(views=NAMED).fit(rows, "label")
    assert fitted.feature_names_in_.tolist() == list("abcdef")
    features = rows.drop(columns="label")
    same = clone(fitted).fit(features, rows["label"])
    assert np.array_equal(same.feature_coef_, fitted.feature_coef_)
    lazy = fitted.predict(features)
    assert np.array_equal(lazy.compute(), fitted.predict(frame.drop(columns="label")))
    with pytest.raises(ValueError, match="'colour' is not the name of a column"):
        fitted.fit(rows, "colour")
    with pytest.raises(ValueError, match="or name the column of y"):
        fitted.fit(features, y)


def test_files_of_parquet_keep_their_partitions(model, table, tmp_path):
    """Dask joins those of which few columns are read, such as y alone."""
    dd = pytest.importorskip("dask.dataframe")
    pytest.importorskip("pyarrow")
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(label=y)
    dd.from_pandas(frame, npartitions=4).to_parquet(tmp_path)
    rows = dd.read_parquet(tmp_path)
    unfitted = clone(model).set_params(views=NAMED)
    whole = clone(unfitted).fit(dd.from_pandas(frame, npartitions=3), "label")
    features = rows.drop(columns="label")
    for given in ((rows, "label"), (features, rows["label"])):
        fitted = clone(unfitted).fit(*given)
        assert np.array_equal(fitted.feature_coef_, whole.feature_coef_)
        assert np.array_equal(fitted.predict(features).compute(), whole.predict(frame))


def test_columns_are_found_by_name_and_may_be_shared(model, table):
    dd = pytest.importorskip("dask.dataframe")
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(label=y)
    views = [("left", "linear", list("abc")), ("right", RBF(), list("cde"))]
    rows = dd.from_pandas(frame, npartitions=4)
    fitted = clone(model).set_params(views=views).fit(rows, "label")
    other = frame[list("edcba")].assign(new=pd.Period("2001", "D"), label="text")
    lazy = fitted.predict(dd.from_pandas(other, npartitions=3))
    assert np.array_equal(lazy.compute(), fitted.predict(frame))
    with pytest.raises(ValueError, match=r"lacks .* 'c' \(views 'left', 'right'\)"):
        fitted.predict(dd.from_pandas(other.drop(columns="c"), npartitions=3))


def test_ridge(chunked, table):
    X, _ = table
    model = MultipleKernelRidge(VIEWS, n_features=10, alpha="cv", cv=None)
    y = X[:, 0] + 1e5
    model.fit(chunked[0], y)
    assert model.score(X, y) > 0.9  # measured: 1
    assert_allclose(model.predict(chunked[0]).compute(), model.predict(X), atol=1e-6)


def test_weights_of_classes_but_not_of_rows(model, chunked, table):
    X, y = table
    weighted = clone(model).set_params(class_weight={0: 3.0, 1: 0.5, 2: 2.0})
    found = weighted.fit(*chunked)
    shares = np.bincount(y) * [3.0, 0.5, 2.0]
    assert_allclose(np.exp(found.gaussians_.log_prior), shares / np.sum(shares))
    expected = clone(model).set_params(features="nystroem")
    expected.fit(X, y, sample_weight=np.array([3.0, 0.5, 2.0])[y])
    assert_allclose(found.transform(X), expected.transform(X), atol=1e-9)
    with pytest.raises(ValueError, match="sample_weight needs all rows at once"):
        clone(model).fit(*chunked, sample_weight=np.ones(600))


def test_bad_partitions(model, chunked, table):
    model = clone(model).set_params(n_features=4)
    X, y = table
    dX, dy = chunked
    long = np.tile(X, (10, 1))  # so that not every row is drawn to fix the features
    long[2000, 4] = np.nan
    with pytest.raises(ValueError, match=r"partition 2: .*view 'right', row 200,"):
        clone(model).fit(da.from_array(long, chunks=(900, 6)), np.tile(y, 10))
    hole = X.copy()
    hole[:, 4] = np.nan
    with pytest.raises(ValueError, match="drawn to fix the features"):
        clone(model).fit(da.from_array(hole, chunks=(90, 6)), dy)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clone(model).fit(dX, y[:-1])
    with pytest.raises(ValueError, match="rows in portions"):
        MultipleKernelFDA("precomputed", cv=None).fit(dX, dy)
    with pytest.raises(ValueError, match="1 class"):
        clone(model).fit(dX, np.zeros(600, int))


# Partitions ---------------------------------------------------------------------------

FAST = {"n_features": 10, "norm": 1, "cv": None}


@pytest.fixture
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def in_chunks(model, X, y):
    """600 rows are 19 chunks in 3 blocks, and 100 of them fix the features."""
    given = X, y, None, None
    return read_features(model, "so", *given, least_sample=100, chunk_size=32)


def fitted_in_chunks(model, X, y):
    rows = in_chunks(model, X, y)
    model._learn(rows, None)
    return model


def divided(X, y):
    """The same rows in partitions of several kinds, some of unknown length."""
    frame = pd.DataFrame(X, columns=list("abcdef"))
    dd = pytest.importorskip("dask.dataframe")
    rows = da.from_array(X, chunks=(90, 6))
    labels = da.from_array(y, chunks=90)
    everywhere = da.ones(len(X), chunks=90, dtype=bool)
    return [
        (da.from_array(X, chunks=(len(X), 6)), y),
        (da.from_array(X, chunks=((1, 0, 99, len(X) - 100), 6)), y),
        (rows[everywhere], labels[everywhere]),
        (dd.from_pandas(frame.assign(y=y), npartitions=4), "y"),
    ]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": "cv", "class_weight": {0: 3.0}},
        {"features": "random", "n_features": 100},  # more features than rows
    ],
    ids=str,
)
def test_partitions_do_not_matter(options, table, synchronous):
    kind = "rows" if "features" in options else "moments"
    X, y = (part[: 150 if kind == "rows" else 600] for part in table)
    options = {"features": "nystroem", **FAST, **options}
    expected = fitted_in_chunks(MultipleKernelFDA(VIEWS, **options), X, y)
    assert expected.features_.representation == kind
    for rows, targets in divided(X, y):
        found = fitted_in_chunks(MultipleKernelFDA(VIEWS, **options), rows, targets)
        assert np.array_equal(found.kernel_weights_, expected.kernel_weights_)
        assert np.array_equal(found.feature_coef_, expected.feature_coef_)
        assert np.array_equal(found.predict_proba(X), expected.predict_proba(X))
        assert found.features_.representation == kind


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_partitions_of_outputs_do_not_matter(table, synchronous):
    X, _ = table
    y = X[:, 0] + X[:, 4] ** 2 + 1e3
    models = [
        fitted_in_chunks(MultipleKernelRidge(VIEWS, **FAST), *rows)
        for rows in divided(X, y)
    ]
    for other in models[1:]:
        assert np.array_equal(other.feature_coef_, models[0].feature_coef_)
    whole = MultipleKernelRidge(VIEWS, features="nystroem", **FAST)
    fitted_in_chunks(whole, X, y)
    # Outputs are summed around the mean of all rows, not of the rows drawn.
    assert_allclose(models[0].predict(X), whole.predict(X), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{"alpha": "learn"}, {"alpha": 0.1, "class_weight": {0: 3.0}}], ids=str
)
def test_probabilities_do_not_depend_on_the_container(options, table, synchronous):
    """Up to 4,096 rows, of which none is left out approximately."""
    X, y = (part[:300] for part in table)
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    views = [("left", "linear", [0, 1, 2]), ("right", "linear", [3, 4, 5])]
    model = MultipleKernelFDA(views, features="exact", norm=1, cv=None, **options)
    dense = clone(model).fit(X, y)
    assert dense.features_.representation == "kernels"
    for rows in (sparse.csr_array(X), da.from_array(X, chunks=(70, 6))):
        other = fitted_in_chunks(clone(model), rows, y)
        assert other.features_.representation == "moments"
        assert_allclose(other.transform(X), dense.transform(X), atol=1e-9)
        assert_allclose(other.predict_proba(X), dense.predict_proba(X), atol=1e-9)
        assert other.loo_score_ == pytest.approx(dense.loo_score_)


def test_sums_of_blocks_are_those_of_the_tree(table, synchronous):
    rows, y = (da.from_array(part, chunks=250) for part in table)
    read = in_chunks(MultipleKernelFDA(VIEWS, **FAST), rows, y)
    given = read.recipe, read.intake, NumberedRows(rows, y)
    for most in (1, 2):
        found = dask_moments(*given, most_blocks=most).total()
        assert np.array_equal(found, read.moments.total())


def test_partitions_of_different_lengths_are_refused(table, synchronous):
    X, y = table
    rows, labels = (da.from_array(part, chunks=200) for part in (X[:, :3], y))
    some = da.from_array(np.arange(600) != 7, chunks=200)
    views = [("a", "linear", [0, 1, 2])]
    with pytest.raises(ValueError, match="partition 0 of X has 200 rows, but 199"):
        MultipleKernelFDA(views, **FAST).fit(rows, labels[some])


@contextlib.contextmanager
def workers(number, **settings):
    """A client with this many workers; with ``processes`` each has a nanny."""
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=number,
        threads_per_worker=1,
        dashboard_address=":0",
        silence_logs=50,
        **settings,
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def client():
    """Two worker processes with their nannies; restarted workers get new processes.

    Where the system can, they are copies of a process that has imported what they need.
    """
    method = "spawn" if os.name == "nt" else "forkserver"
    with dask.config.set({"distributed.worker.multiprocessing-method": method}):
        if method == "forkserver":
            context = pytest.importorskip("distributed.utils").get_mp_context()
            context.set_forkserver_preload(["distributed", dask_moments.__module__])
        with workers(2, processes=True, memory_limit="1GB") as client:
            yield client


def test_workers_give_the_same_bits(client, reference, model, chunked):
    one = clone(model).fit(*chunked)
    assert np.array_equal(one.feature_coef_, reference.feature_coef_)
    assert np.array_equal(one.kernel_weights_, reference.kernel_weights_)
    lazy = one.predict(chunked[0])
    assert np.array_equal(lazy.compute(), reference.predict(chunked[0].compute()))


@pytest.mark.parametrize("n_workers", [1, 4])
def test_the_number_of_workers_does_not_matter(n_workers, reference, model, chunked):
    with workers(n_workers, processes=False) as client:
        assert len(client.scheduler_info(n_workers=-1)["workers"]) == n_workers
        found = clone(model).fit(*chunked)
    assert np.array_equal(found.feature_coef_, reference.feature_coef_)
    assert found.certificate_.value == reference.certificate_.value


@pytest.mark.parametrize("last_first", [False, True])
def test_the_order_of_arrival_does_not_matter(
    client, last_first, reference, model, chunked
):
    dX, dy = chunked
    n_blocks = dX.numblocks[0]

    def delayed(block, block_info=None):
        number = block_info[0]["chunk-location"][0] if block_info else 0
        time.sleep(0.1 * (n_blocks - number if last_first else number))
        return block

    found = clone(model).fit(dX.map_blocks(delayed, dtype=dX.dtype), dy)
    assert np.array_equal(found.feature_coef_, reference.feature_coef_)


def slowly(block):
    time.sleep(0.3)
    return block


def test_a_killed_worker_changes_nothing(client, reference, model, chunked):
    dX, dy = chunked
    pids = list(client.run(os.getpid).values())
    end = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows they are the same
    killer = threading.Timer(1.0, os.kill, (pids[0], end))
    killer.start()
    found = clone(model).fit(dX.map_blocks(slowly, dtype=dX.dtype), dy)
    killer.join()
    assert np.array_equal(found.feature_coef_, reference.feature_coef_)
    client.wait_for_workers(2, timeout=60)
    assert set(client.run(os.getpid).values()) != set(pids)


def test_workers_with_too_little_memory_are_not_tried(client, chunked):
    model = MultipleKernelFDA(VIEWS, features="random", n_features=2500, alpha="cv")
    with pytest.raises(MemoryRefusedError, match="smallest has a memory limit"):
        model.fit(*chunked)


def greedy(block, block_info=None):
    """Rows that take more memory to make than a worker has, in the last partition."""
    if block_info and block_info[0]["chunk-location"][0] == 6:
        hoard = []
        for _ in range(200):
            hoard.append(np.ones(2_000_000))  # 16 MB
            time.sleep(0.02)
    return block


def test_workers_over_their_memory_limit_are_named(client, model, chunked, monkeypatch):
    dX, dy = chunked
    hungry = dX.map_blocks(greedy, dtype=dX.dtype)
    # a second attempt would fail like the first
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(RuntimeError, match="exceeding their memory limit"):
        clone(model).fit(hungry, dy)
    again = clone(model).fit(dX, dy)
    assert again.certificate_.converged


def test_a_client_that_was_closed_is_named(model, chunked, monkeypatch):
    """In the moment in which work is sent, when the error is of another kind."""
    closed = pytest.importorskip("distributed.client").ClosedClientError

    def compute(*tasks):
        raise closed("Client is closed.")

    monkeypatch.setattr("dask.compute", compute)
    with pytest.raises(
        ConnectionError, match=r"fit again. Dask says: Client is closed"
    ):
        model.fit(*chunked)


def test_a_scheduler_that_goes_away_is_named(model, chunked):
    dX, dy = chunked
    fitted = clone(model).fit(dX, dy)
    before = fitted.predict_proba(dX).compute()
    with workers(1, processes=False) as client:
        gone = threading.Timer(0.4, client.cluster.close, (1.0,))
        gone.start()
        with pytest.raises(ConnectionError, match=r"scheduler went away.*fit again"):
            fitted.fit(dX.map_blocks(slowly, dtype=dX.dtype), dy)
        gone.join()
    assert np.array_equal(fitted.predict_proba(dX).compute(), before)
