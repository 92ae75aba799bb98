"""A million rows: one pass, its memory, Dask, and alternatives.

``benchmarks/scale.py [--quick]`` measures, writes ``results/scale.json`` and rewrites
the benchmarks page. Every task runs in its own process, so that its memory can be
measured; rows are on disk and are read through a memory map.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import (
    RESULTS,
    Section,
    answer,
    clocked,
    in_own_process,
    measured,
    save,
    threads,
)

from report import as_text, write_docs

COLUMNS, VIEWS, CLASSES, WIDTH = 20, 10, 5, 100
CHUNK = 8192
TEST_ROWS = 20_000


def draw(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose class depends on waves in four of ten pairs of columns."""
    rng = np.random.default_rng(7)
    directions = rng.normal(size=(CLASSES, 4, 2))
    rng = np.random.default_rng([7, seed])
    X = rng.normal(size=(n, COLUMNS))
    scores = np.zeros((n, CLASSES))
    for v in range(4):
        scores += np.sin(1.5 * X[:, 2 * v : 2 * v + 2] @ directions[:, v].T)
    scores += 0.5 * rng.gumbel(size=scores.shape)
    return X, np.argmax(scores, axis=1)


def view_list() -> list[Any]:
    """Ten Gaussian views of two columns each."""
    from kernelweave.kernels import RBF

    return [(f"v{i}", RBF(), [2 * i, 2 * i + 1]) for i in range(VIEWS)]


def make_model(**settings: Any) -> Any:
    """The estimator that is measured."""
    from kernelweave import MultipleKernelFDA

    chosen = {"features": "random", "n_features": WIDTH, "alpha": "learn"}
    return MultipleKernelFDA(view_list(), norm=1, **(chosen | settings))


# Tasks: (folder, n) -> measurements ---------------------------------------------------


def bare(folder: Path, n: int) -> dict[str, Any]:
    """The bare pass in NumPy: features, Z'Z and Z'Y only."""
    X, y = load(folder, n)
    rng = np.random.default_rng(0)
    W = rng.normal(size=(VIEWS, 2, WIDTH // 2))
    D = VIEWS * WIDTH
    gram, cross = np.zeros((D, D)), np.zeros((D, CLASSES))
    one_hot, Z = np.eye(CLASSES), np.empty((CHUNK, D))
    for start in range(0, n, CHUNK):
        rows = np.asarray(X[start : start + CHUNK])
        part = Z[: len(rows)]
        for i in range(VIEWS):
            phase = rows[:, 2 * i : 2 * i + 2] @ W[i]
            at = WIDTH * i
            np.cos(phase, out=part[:, at : at + WIDTH // 2])
            np.sin(phase, out=part[:, at + WIDTH // 2 : at + WIDTH])
        gram += part.T @ part
        cross += part.T @ one_hot[y[start : start + CHUNK]]
    return {"checksum": float(gram.sum() + cross.sum())}


def fit(folder: Path, n: int, **settings: Any) -> dict[str, Any]:
    """The whole fit: features, pass, weights, certificate, Gaussians."""
    X, y = load(folder, n)
    model = make_model(**settings).fit(X, y)
    return judged(model, folder) | {
        "gap": model.certificate_.gap,
        "factorisations": model.n_iter_,
        "kernel_error": model.features_.worst_error,
    }


def fit_nystroem(folder: Path, n: int) -> dict[str, Any]:
    """The whole fit with Nystroem features, which "auto" would choose."""
    return fit(folder, n, features="nystroem")


def fit_cv(folder: Path, n: int) -> dict[str, Any]:
    """The whole fit with Nystroem features and alpha='cv' (five folds)."""
    return fit(folder, n, features="nystroem", alpha="cv")


def fit_dask(folder: Path, n: int) -> dict[str, Any]:
    """The whole fit on two Dask workers; CPU time of all three processes."""
    import dask.array as da
    from distributed import Client, LocalCluster

    y = load(folder, n)[1]
    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        size = 5 * CHUNK
        chunks = tuple(min(size, n - start) for start in range(0, n, size))
        X = da.map_blocks(
            read_block,
            da.from_array(np.arange(0, n, size), chunks=1),
            str(folder / "X.npy"),
            chunks[0],
            n,
            new_axis=1,
            chunks=(chunks, (COLUMNS,)),
            dtype=float,
        )
        before = sum(client.run(time.process_time).values())
        classes = da.from_array(np.asarray(y), chunks=(chunks,))
        model, _, wall = clocked(lambda: make_model().fit(X, classes))
        workers = sum(client.run(time.process_time).values()) - before
        return judged(model, folder) | {"workers_cpu": workers, "fit_wall": wall}


def read_block(start: np.ndarray, path: str, size: int, n: int) -> np.ndarray:
    """Rows of one partition, read by the worker that processes it."""
    first = int(start[0])
    return np.asarray(np.load(path, mmap_mode="r")[first : min(first + size, n)])


def fit_dual(folder: Path, n: int) -> dict[str, Any]:
    """n x n kernels, no approximation."""
    X, y = load(folder, n)
    return judged(make_model(features="exact").fit(np.asarray(X), y), folder)


def nystroem_sgd(folder: Path, n: int) -> dict[str, Any]:
    """scikit-learn: Nystroem per view, concatenated, one epoch of SGDClassifier."""
    from sklearn.linear_model import SGDClassifier

    X, y = load(folder, n)
    features = sklearn_features(np.asarray(X[:2000]))
    model = SGDClassifier(average=True, random_state=0)
    for start in range(0, n, CHUNK):
        part = slice(start, start + CHUNK)
        model.partial_fit(features.transform(X[part]), y[part], classes=range(CLASSES))
    return judged(_Piped(features, model), folder)


def nystroem_ridge(folder: Path, n: int) -> dict[str, Any]:
    """scikit-learn: the same features and RidgeClassifierCV on all rows at once."""
    from sklearn.linear_model import RidgeClassifierCV

    X, y = load(folder, n)
    features = sklearn_features(np.asarray(X[:2000]))
    model = RidgeClassifierCV(np.logspace(-4, 2, 7)).fit(features.transform(X), y)
    return judged(_Piped(features, model), folder)


def boosting(folder: Path, n: int) -> dict[str, Any]:
    """scikit-learn: HistGradientBoostingClassifier with its defaults."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, y = load(folder, n)
    model = HistGradientBoostingClassifier(random_state=0)
    return judged(model.fit(np.asarray(X), y), folder)


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    task.__name__: task
    for task in (
        bare,
        fit,
        fit_nystroem,
        fit_cv,
        fit_dask,
        fit_dual,
        nystroem_sgd,
        nystroem_ridge,
        boosting,
    )
}


class _Piped:
    def __init__(self, features: Any, model: Any) -> None:
        self.features, self.model = features, model

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict(self.features.transform(X))


def sklearn_features(sample: np.ndarray) -> Any:
    """Nystroem features of each pair of columns, side by side."""
    from sklearn.compose import ColumnTransformer
    from sklearn.kernel_approximation import Nystroem

    parts = [
        (f"v{i}", Nystroem(gamma=0.36, n_components=WIDTH), [2 * i, 2 * i + 1])
        for i in range(VIEWS)
    ]
    return ColumnTransformer(parts).fit(sample)


def judged(model: Any, folder: Path) -> dict[str, Any]:
    """Accuracy on rows that no task has seen."""
    X, y = np.load(folder / "X_test.npy"), np.load(folder / "y_test.npy")
    return {"accuracy": 100.0 * float(np.mean(model.predict(X) == y))}


def load(folder: Path, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The first n rows: X as a memory map, y in memory."""
    X = np.load(folder / "X.npy", mmap_mode="r")
    return X[:n], np.load(folder / "y.npy")[:n]


# The program --------------------------------------------------------------------------


def child(name: str, folder: str, n: int) -> None:
    """Run one task and print its time and memory."""
    import sklearn.ensemble

    import kernelweave  # noqa: F401  loading is not measured

    assert sklearn
    found, cpu, wall = clocked(lambda: TASKS[name](Path(folder), n))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    answer(found | {"wall": wall, "cpu": cpu, "peak_mb": peak})


def run(quick: bool = False) -> Section:
    """All tasks, as a section of the benchmarks page."""
    large, small, dual = (50_000, 5_000, 1_000) if quick else (10**6, 10**5, 5_000)
    section = Section(
        "A million rows",
        f"{COLUMNS} columns, {VIEWS} Gaussian views of two columns, {WIDTH} random "
        f"features each (D = {VIEWS * WIDTH:,}), {CLASSES} classes, norm=1, "
        "alpha='learn' unless a task says otherwise; two threads. Each task runs in "
        "its own process and reads rows through a memory map; every fit includes "
        "features, weights, certificate and class Gaussians. Peak: resident memory "
        f"of the whole process. Accuracy is measured on {TEST_ROWS:,} further rows.",
        ["task", "rows", "CPU s", "wall s", "peak MB", "accuracy %"],
    )
    plan = [
        (name, large) for name in ("bare", "fit", "fit_nystroem", "fit_cv", "fit_dask")
    ]
    plan += [("nystroem_sgd", large), ("boosting", large), ("nystroem_ridge", small)]
    plan += [("fit", small), ("fit_nystroem", dual), ("fit_dual", dual)]
    found: dict[tuple[str, int], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for suffix, n, seed in (("", large, 0), ("_test", TEST_ROWS, 1)):
            X, y = draw(n, seed)
            np.save(folder / f"X{suffix}.npy", X)
            np.save(folder / f"y{suffix}.npy", y)
            del X, y
        for task, n in plan:
            try:
                result = in_own_process(__file__, task, folder, n, **threads(2))
            except RuntimeError as error:  # one failed task must not cost the others
                section.remarks.append(str(error))
                continue
            found[task, n] = result
            print(f"{task}, n = {n:,}: {result}", flush=True)
            title = (TASKS[task].__doc__ or task).splitlines()[0].rstrip(".")
            cpu = result["cpu"] + result.get("workers_cpu", 0.0)
            accuracy = f"{result['accuracy']:.1f}" if "accuracy" in result else ""
            section.rows.append(
                [title, n, cpu, result["wall"], round(result["peak_mb"]), accuracy]
            )
    section.remarks.append(
        f"RidgeClassifierCV stores the features of all rows and their decomposition, "
        f"several times {8e-9 * large * VIEWS * WIDTH:.1f} GB for {large:,} rows, so "
        f"it was given only {small:,}."
    )
    _check(section, found, large, small, dual)
    return section


def _check(section: Section, found: Any, large: int, small: int, dual: int) -> None:
    """Compare the measurements with the requirements."""

    def ratio(what: str, a: Any, b: Any, required: str, test: Any) -> None:
        if a in found and b in found:
            top = found[a].get("workers_cpu", 0.0) + found[a]["cpu"]
            value = top / found[b]["cpu"]
            section.check(what, f"{value:.2f}x", required, test(value))

    fitted = ("fit", large)
    ratio(
        f"fit on {large:,} rows against the bare NumPy pass, CPU",
        fitted,
        ("bare", large),
        "at most 1.5x",
        lambda v: v <= 1.5,
    )
    ratio(
        f"{large:,} rows against {small:,}, CPU",
        fitted,
        ("fit", small),
        "8x to 12x",
        lambda v: 8 <= v <= 12,
    )
    ratio(
        "Dask with two workers against one process, CPU of all processes",
        ("fit_dask", large),
        fitted,
        "at most 1.3x",
        lambda v: v <= 1.3,
    )
    if fitted in found:
        peak = found[fitted]["peak_mb"]
        section.check(
            "peak memory of the fit", f"{peak:.0f} MB", "1000 MB", peak <= 1000
        )
    pair = ("fit_nystroem", dual), ("fit_dual", dual)
    if all(key in found for key in pair):
        off = found[pair[1]]["accuracy"] - found[pair[0]]["accuracy"]
        section.check(
            f"loss of accuracy against the exact dual, n = {dual:,}",
            f"{off:.2f} points",
            "at most 1 point",
            off <= 1.0,
        )


def main() -> int:
    """Run everything, print it, and save it unless it was a quick run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, not saved")
    parser.add_argument("--child", nargs=3, metavar=("TASK", "FOLDER", "N"))
    options = parser.parse_args()
    if options.child:
        name, folder, n = options.child
        child(name, folder, int(n))
        return 0
    result = measured(partial(run, options.quick))
    print(as_text(result))
    if not options.quick:
        save(RESULTS / "scale.json", result)
        write_docs()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
