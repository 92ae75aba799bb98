"""Compare what models answer in this tree with what they answered in an earlier commit.

    .venv/bin/python tests/same_numbers.py COMMIT [--only NAME] [--tolerance 1e-9]

Every setting in ``tests/estimators.py`` is fitted to every kind of rows that it takes:
plain, weighted, grouped, without some views, sparse, in batches, of single precision,
of torch, as a frame, of two and three classes, behind transformers, with texts. Each
tree runs its own list, under its own names of parameters, in a process of its own;
answers are matched by the name of the setting and of the rows. What differs by more
than the tolerance, relative to the largest entry, is printed, and so is what only one
of the trees has. The exit status is 1 if anything differs.

For steps of a change that should not move numbers. What only rounding moves can be told
by ``tests/rounding.py``.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
N, NEW = 60, 20
#: Attributes that are compared if a model has them.
ATTRIBUTES = (
    "kernel_weights_",
    "class_weights_",
    "view_shares_",
    "alpha_",
    "norm_",
    "noise_",
    "amplitude_",
    "dual_coef_",
    "feature_coef_",
    "intercept_",
    "loo_error_",
    "loo_errors_",
    "loo_score_",
    "loo_log_density_",
    "cv_score_",
    "cv_standard_error_",
    "scores_",
)
METHODS = ("decision_function", "predict_proba", "transform", "predict")


# ------------------------------------------------------------------ in one of the trees


def kinds_of_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names, and training rows, new rows, class codes and arguments of the fit."""
    rng = np.random.default_rng(0)
    codes = rng.permutation(np.arange(N + NEW) % 3)
    X = rng.normal(size=(N + NEW, 6))
    X[:, 0] += codes
    X[:, 4] += 0.7 * (codes == 1)
    weights = rng.uniform(0.5, 2.0, N)
    groups = rng.permutation(np.arange(N) // 3)
    plain = {"X": X[:N], "new": X[N:], "codes": codes[:N], "fit": {}}
    yield "plain", plain
    yield "two classes", plain | {"codes": codes[:N] % 2}
    yield "weighted", plain | {"fit": {"sample_weight": weights}}
    yield "grouped", plain | {"fit": {"groups": groups}}
    both = {"sample_weight": weights, "groups": groups}
    yield "weighted, grouped", plain | {"fit": both}
    single = {key: plain[key].astype(np.float32) for key in ("X", "new")}
    yield "single precision", plain | single
    gaps = X.copy()
    gaps[::7, 3:] = np.nan
    gaps[1::14, :3] = np.nan  # no row lacks both
    lacking = {"X": gaps[:N], "new": gaps[N:]}
    for treatment in ("zero", "available"):
        change = {"missing": treatment}
        yield f"missing, {treatment}", plain | lacking | {"change": change}
    try:
        import pandas as pd

        table = pd.DataFrame(X, columns=list("abcdef")).assign(
            f=np.where(X[:, 5] > 0, "up", "down")
        )
        auto = [("left", "auto", ["a", "b", "c"]), ("right", "auto", ["d", "e", "f"])]
        frame = {"X": table[:N], "new": table[N:], "change": {"views": auto}}
        yield "frame", plain | frame
    except ImportError:
        pass
    from scipy import sparse

    thin = sparse.csr_array(np.where(np.abs(X) > 0.7, X, 0.0))
    linear = [("left", "linear", [0, 1, 2]), ("right", "linear", [3, 4, 5])]
    yield (
        "sparse",
        plain | {"X": thin[:N], "new": thin[N:], "change": {"views": linear}},
    )
    yield "batches", plain | {"batches": 3, "change": {"views": linear}}
    try:
        import dask.array as da

        lazy = da.from_array(X[:N], chunks=(20, 6))
        yield "dask", plain | {"X": lazy, "change": {"views": linear}, "lazy": True}
    except ImportError:
        pass
    try:
        import torch

        tensors = {key: torch.asarray(plain[key]) for key in ("X", "new")}
        yield "torch", plain | tensors
    except ImportError:
        pass
    wide = X @ X.T
    kernels = np.stack([wide, np.exp(-0.1 * np.abs(wide))], axis=-1)
    kernels[:, :, 1] = np.exp(
        -0.1 * (np.diag(wide)[:, None] + np.diag(wide)[None] - 2 * wide)
    )
    given = {"X": kernels[:N, :N], "new": kernels[N:, :N]}
    yield "precomputed", plain | given | {"change": {"views": "precomputed"}}


def shared_words(X: Any, Z: Any) -> np.ndarray:
    """A kernel on texts: the number of words that two of them share."""
    words = [[set(str(text).split()) for text in np.asarray(rows)] for rows in (X, Z)]
    return np.array([[float(len(a & b)) for b in words[1]] for a in words[0]])


def kinds_with_transformers() -> Iterator[tuple[str, dict[str, Any]]]:
    """As :func:`kinds_of_rows`, with views that transformers and functions read."""
    from scipy import sparse
    from sklearn.compose import make_column_transformer
    from sklearn.decomposition import PCA, TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.feature_selection import SelectKBest
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

    from kernelweave.kernels import RBF, Chi2, Linear, Pipe, Standardizer

    rng = np.random.default_rng(1)
    codes = rng.permutation(np.arange(N + NEW) % 3)
    X = rng.normal(size=(N + NEW, 6))
    X[:, 0] += codes
    plain = {"X": X[:N], "new": X[N:], "codes": codes[:N], "fit": {}}
    reduced = Pipe(PCA(2), "auto")
    scaled = Pipe(StandardScaler(), [Linear(), RBF(), shared_signs])
    twice = Pipe(StandardScaler(), Pipe(SelectKBest(k=2), [Linear(), "rbf"]))
    piped = [("a", [reduced, "linear"], [0, 1, 2]), ("b", [scaled, twice], [3, 4, 5])]
    yield "pipes", plain | {"change": {"views": piped}}
    single = {key: plain[key].astype(np.float32) for key in ("X", "new")}
    yield "pipes, single precision", plain | single | {"change": {"views": piped}}
    gaps = X.copy()
    gaps[::7, 3:] = np.nan
    gaps[1::14, :3] = np.nan  # no row lacks both
    for treatment in ("zero", "available"):
        change = {"views": piped, "missing": treatment}
        lacking = {"X": gaps[:N], "new": gaps[N:], "change": change}
        yield f"pipes, missing, {treatment}", plain | lacking
    holes = np.where(rng.random(X.shape) < 0.05, np.nan, X)
    imputed = [("a", Pipe(SimpleImputer(), ["auto", "linear"]), slice(0, 6))]
    filled = {"X": holes[:N], "new": holes[N:], "change": {"views": imputed}}
    yield "pipes, imputed", plain | filled
    thin = sparse.csr_array(np.where(np.abs(X) > 0.7, np.abs(X), 0.0))
    thick = [
        ("a", Pipe(MaxAbsScaler(), ["rbf", "chi2"]), [0, 1, 2]),
        ("b", [Pipe(Standardizer(), [RBF(), Linear()]), Chi2()], [3, 4, 5]),
        ("c", ["auto", Pipe(TruncatedSVD(2, random_state=0), "auto")], slice(0, 6)),
    ]
    change = {"views": thick}
    yield "pipes, sparse", plain | {"X": thin[:N], "new": thin[N:], "change": change}
    try:
        import pandas as pd
    except ImportError:
        return
    names = np.array(["red", "green", "blue", "round", "square", "heavy", "light"])
    texts = [
        " ".join(rng.choice(names, size=4)) + " red" * int(code == 1) for code in codes
    ]
    table = pd.DataFrame(
        {
            "size": X[:, 0],
            "age": np.where(rng.random(N + NEW) < 0.1, np.nan, X[:, 1]),
            "ward": rng.choice(["east", "west"], N + NEW),
            "day": pd.date_range("2020-01-01", periods=N + NEW),
            "text": texts,
        }
    )
    mixed = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["size", "age"]),
        (OneHotEncoder(handle_unknown="ignore"), ["ward"]),
    )
    read = [
        ("text", Pipe(TfidfVectorizer(), ["linear", "rbf"]), ["text"]),
        ("mixed", Pipe(mixed, ["linear", "auto"]), ["size", "age", "ward"]),
        ("auto", "auto", ["size", "age", "ward", "day"]),
    ]
    frame = {"X": table[:N], "new": table[N:]}
    yield "table", plain | frame | {"change": {"views": read}}
    words = [*read, ("words", shared_words, ["text"])]
    yield "table, function", plain | frame | {"change": {"views": words}}
    half = table.copy()
    half.loc[::6, "text"] = None
    half.loc[2::9, ["size", "age", "ward", "day"]] = None
    lacking = {"X": half[:N], "new": half[N:]}
    for treatment in ("zero", "available"):
        change = {"views": words, "missing": treatment}
        yield f"table, missing, {treatment}", plain | lacking | {"change": change}
    parts = {"batches": 3, "change": {"views": read}}
    yield "table, batches", plain | frame | parts


def shared_signs(X: Any, Z: Any) -> np.ndarray:
    """A kernel on numbers: of the signs of their entries."""
    return np.sign(X) @ np.sign(Z).T


def answers(only: str) -> dict[tuple[str, str], Any]:
    """What each setting answers for each kind of rows, or why it does not."""
    from sklearn.base import clone

    from estimators import SETTINGS, targets_for
    from kernelweave._array import to_numpy
    from kernelweave.kernels import RBF, Linear

    views = [("a", [RBF(gamma=0.2), Linear()], [0, 1, 2]), ("b", "rbf", [3, 4, 5])]
    told: dict[tuple[str, str], Any] = {}
    for rows_name, rows in chain(kinds_of_rows(), kinds_with_transformers()):
        for name, setting in SETTINGS.items():
            if only not in f"{name} {rows_name}":
                continue
            model = clone(setting).set_params(views=views)
            changes = rows.get("change", {})
            if changes.keys() - model.get_params().keys():
                continue
            model.set_params(**changes)
            y = targets_for(model, rows["codes"])
            try:
                if "batches" in rows:
                    if not hasattr(model, "partial_fit"):
                        continue
                    cuts = np.array_split(np.arange(N), rows["batches"])
                    parts = [(rows["X"][c[0] : c[-1] + 1], y[c]) for c in cuts]
                    model.fit(iter(parts))
                else:
                    if rows.get("lazy"):
                        import dask.array as da

                        y = da.from_array(np.asarray(y), chunks=20)
                    model.fit(rows["X"], y, **rows["fit"])
            except Exception as error:  # a refusal is an answer, too
                told[name, rows_name] = f"{type(error).__name__}: {error}"
                continue
            values = {}
            for attribute in ATTRIBUTES:
                if hasattr(model, attribute):
                    values[attribute] = getattr(model, attribute)
            if hasattr(model, "certificate_"):
                for part in ("value", "lower_bound"):
                    values[f"certificate {part}"] = getattr(model.certificate_, part)
            for method in METHODS:
                if hasattr(model, method):
                    values[method] = getattr(model, method)(rows["new"])
            if isinstance(values.get("view_shares_"), dict):
                values["view_shares_"] = list(values["view_shares_"].values())
            told[name, rows_name] = {
                key: to_numpy(value) if hasattr(value, "shape") else np.asarray(value)
                for key, value in values.items()
            }
    return told


# ------------------------------------------------------------------ in both of them


def told_by(tree: pathlib.Path, only: str, folder: str) -> dict[tuple[str, str], Any]:
    """The answers of a tree, from a process of its own."""
    path = pathlib.Path(folder) / "answers.pickle"
    paths = os.pathsep.join([str(tree / "src"), str(tree / "tests")])
    command = [sys.executable, __file__, "--answer", str(path), "--only", only]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": paths})
    return pickle.loads(path.read_bytes())  # written a moment ago, by this file


def differences(old: Any, new: Any, tolerance: float) -> list[str]:
    """What is not the same in two answers."""
    if isinstance(old, str) or isinstance(new, str):
        if isinstance(old, str) and isinstance(new, str):
            return []  # messages may be reworded
        return [f"was {str(old)[:200]}, is {str(new)[:200]}"]
    told = []
    for key in sorted(old.keys() | new.keys()):
        if key not in old or key not in new:
            told.append(f"{key}: only {'before' if key in old else 'now'}")
            continue
        a, b = old[key], new[key]
        if a.shape != b.shape:
            told.append(f"{key}: shape {a.shape} is {b.shape}")
        elif a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":
            if not np.array_equal(a, b):
                told.append(f"{key}: {np.sum(a != b)} of {a.size} entries differ")
        else:
            single = np.float32 in (a.dtype, b.dtype)
            size = np.max(np.abs(a[np.isfinite(a)]), initial=0.0) or 1.0
            apart = np.max(np.abs(np.nan_to_num(a) - np.nan_to_num(b)), initial=0.0)
            if not np.array_equal(np.isnan(a), np.isnan(b)):
                told.append(f"{key}: NaN in other places")
            elif apart > size * (max(tolerance, 1e-5) if single else tolerance):
                told.append(f"{key}: {apart / size:.1e}")
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", nargs="?", default="HEAD")
    parser.add_argument("--only", default="", help="part of the name of what is run")
    parser.add_argument("--tolerance", type=float, default=1e-9)
    parser.add_argument("--answer", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options.answer.write_bytes(pickle.dumps(answers(options.only)))
        return 0
    git = ["git", "-C", str(ROOT)]
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        archive = subprocess.run(
            [*git, "archive", options.commit, "src", "tests"],
            check=True,
            capture_output=True,
        )
        tree.mkdir()
        subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
        old = told_by(tree, options.only, folder)
        new = told_by(ROOT, options.only, folder)
    for gone in sorted(old.keys() - new.keys()):
        print(f"only in {options.commit}: {' | '.join(gone)}")
    for added in sorted(new.keys() - old.keys()):
        print(f"only now: {' | '.join(added)}")
    count = 0
    for key in sorted(old.keys() & new.keys()):
        told = differences(old[key], new[key], options.tolerance)
        count += bool(told)
        if told:
            print(f"{' | '.join(key)}: {'; '.join(told)}")
    compared = len(old.keys() & new.keys())
    refused = sum(isinstance(answer, str) for answer in new.values())
    print(f"{compared} compared, {refused} of them refused; {count} differ")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
