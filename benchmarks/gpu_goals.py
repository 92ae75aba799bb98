"""What one GPU is to do: ``benchmarks/gpu.py GOAL [--limit SECONDS] [--out FILE]``.

Every goal is a whole fit of an estimator to a NumPy array with ``device="cuda"``, so
that nothing a user waits for is left out. Each runs by itself and writes one JSON
object, if it exceeds its time limit too.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gpu_backends import Backend, device_record
from harness import OutOfTimeError, clocked, limit, save
from problems import overlapping, ten_gaussians

from kernelweave import KernelFDA, MultipleKernelFDA, MultipleKernelSVC
from kernelweave.kernels import RBF

D = 20
#: Rows and columns of the parts of an image of 28 x 28 pixels.
PARTS = {
    "image": (slice(0, 28), slice(0, 28)),
    "top left": (slice(0, 16), slice(0, 16)),
    "top right": (slice(0, 16), slice(12, 28)),
    "bottom left": (slice(12, 28), slice(0, 16)),
    "bottom right": (slice(12, 28), slice(12, 28)),
    "middle": (slice(6, 22), slice(6, 22)),
}
#: Folder of ``mnist.npz``: X (60000, 784) and y for training, T and z for testing.
DATA = "KERNELWEAVE_DATA"


class Goal(NamedTuple):
    """A fit, and the seconds it may take."""

    run: Callable[..., dict[str, Any]]
    n: int
    dtype: str
    allowed: float | None
    settings: dict[str, Any]
    repeats: int = 1


LEARNED = {"norm": 1, "alpha": "learn", "cv": None}


def fit(backend: Backend, device: str, goal: Goal, n: int) -> dict[str, Any]:
    """``MultipleKernelFDA`` on ten Gaussian kernels of ten classes."""
    X, codes = overlapping(n)
    views = [("all", ten_gaussians(X), slice(0, D))]
    model = MultipleKernelFDA(views, device=device, **goal.settings)
    return timed(backend, model, X.astype(goal.dtype), codes, goal.repeats)


def default(backend: Backend, device: str, goal: Goal, n: int) -> dict[str, Any]:
    """Norm and alpha chosen, in units of the time of ``norm=1, alpha="learn"``."""
    once = fit(backend, device, goal._replace(settings=LEARNED), n)
    found = fit(backend, device, goal, n)
    found["times_learned"] = found["seconds"] / once["seconds"]
    found["learned_seconds"] = once["seconds"]
    return found


def svc(backend: Backend, device: str, goal: Goal, n: int) -> dict[str, Any]:
    """``MultipleKernelSVC`` on ten Gaussian kernels of two classes."""
    X, codes = overlapping(n, 2)
    views = [("all", ten_gaussians(X), slice(0, D))]
    model = MultipleKernelSVC(views, device=device, **goal.settings)
    return timed(backend, model, X.astype(goal.dtype), codes, goal.repeats)


def mnist(backend: Backend, device: str, goal: Goal, n: int) -> dict[str, Any]:
    """Digits by the image, its quadrants and its middle: 14 kernels, six views."""
    data = np.load(Path(os.environ[DATA]) / "mnist.npz")
    X, new = (np.asarray(data[name] / 255.0, goal.dtype) for name in ("X", "T"))
    X, labels, truth = X[:n], data["y"][:n].astype(int), data["z"].astype(int)
    views = digit_views(X)
    kind = goal.settings.get("estimator", MultipleKernelFDA)
    if "only" in goal.settings:
        views = [("image", views[0][1][2], views[0][2])]
    given = {k: v for k, v in goal.settings.items() if k not in ("estimator", "only")}
    model = kind(views, device=device, **given)
    found = timed(backend, model, X, labels, goal.repeats, keep=True)
    model = found.pop("model")
    predicted, _, found["predict_seconds"] = clocked(lambda: model.predict(new))
    found["test_error_percent"] = 100.0 * float(np.mean(predicted != truth))
    found["view_weights"] = model.view_weights_
    return found


def digit_views(X: np.ndarray) -> list[tuple[str, list[RBF], list[int]]]:
    """Four widths on the image; two on each quadrant and on the centre."""
    place, views = np.arange(784).reshape(28, 28), []
    for name, where in PARTS.items():
        columns = place[where].reshape(-1)
        typical = 2.0 * float(np.sum(np.var(X[:, columns], axis=0)))
        factors = (0.5, 2.0, 4.0, 8.0) if name == "image" else (2.0, 6.0)
        kernels = [RBF(gamma=factor / typical) for factor in factors]
        views.append((name, kernels, columns.tolist()))
    return views


def support_vectors(
    backend: Backend, device: str, goal: Goal, n: int
) -> dict[str, Any]:
    """scikit-learn's SVC on the same digits, on the processor of the same machine."""
    from sklearn.svm import SVC

    data = np.load(Path(os.environ[DATA]) / "mnist.npz")
    X, new = data["X"][:n] / 255.0, data["T"] / 255.0
    model = SVC(C=10.0, cache_size=4000)
    _, _, seconds = clocked(lambda: model.fit(X, data["y"][:n]))
    wrong = float(np.mean(model.predict(new) != data["z"]))
    return {"seconds": seconds, "test_error_percent": 100.0 * wrong}


LAZY = {"features": "on_the_fly"}
CHOSEN = {"norm": 1, "alpha": "loo", "cv": None}
GOALS = {
    "fit-20k": Goal(fit, 20_000, "float64", 2.0, LEARNED, 3),
    "fit-20k-lazy": Goal(fit, 20_000, "float64", None, LEARNED | LAZY, 3),
    "fit-40k-float32": Goal(fit, 40_000, "float32", 9.0, LEARNED, 2),
    "fit-40k-float32-lazy": Goal(fit, 40_000, "float32", None, LEARNED | LAZY, 2),
    "fit-50k": Goal(fit, 50_000, "float64", None, LEARNED),
    "fit-100k": Goal(fit, 100_000, "float64", 100.0, LEARNED),
    "fit-150k-float32": Goal(fit, 150_000, "float32", 240.0, LEARNED),
    "default-20k": Goal(default, 20_000, "float64", None, {"cv": None}),
    "default-20k-folds": Goal(default, 20_000, "float64", None, {"cv": 5}),
    "svc-20k": Goal(svc, 20_000, "float64", 6.0, {}, 2),
    "svc-50k": Goal(svc, 50_000, "float64", None, LAZY),
    "mnist": Goal(mnist, 60_000, "float64", 30.0, CHOSEN),
    "mnist-learned": Goal(mnist, 60_000, "float64", 30.0, LEARNED),
    "mnist-fixed": Goal(mnist, 60_000, "float64", 30.0, CHOSEN | {"alpha": 0.01}),
    "mnist-equal": Goal(
        mnist, 60_000, "float64", None, {"estimator": KernelFDA, "cv": None}
    ),
    "mnist-one": Goal(
        mnist, 60_000, "float64", None, {"estimator": KernelFDA, "cv": None, "only": 1}
    ),
    "mnist-svm": Goal(support_vectors, 60_000, "float64", None, {}),
}
#: Times the seconds of ``norm=1, alpha="learn"`` that the default may take.
TIMES = {"default-20k": 3.0, "default-20k-folds": 5.0}


def timed(
    backend: Backend,
    model: Any,
    X: np.ndarray,
    labels: np.ndarray,
    repeats: int,
    keep: bool = False,
) -> dict[str, Any]:
    """Elapsed seconds of each fit, after one to few rows that loads the libraries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:500], labels[:500])
    seconds, _ = backend.clocked(lambda: model.fit(X, labels), repeats)
    found = {
        "seconds": float(np.median(seconds)),
        "repeats": seconds,
        "peak_gb": backend.peak() / 1e9,
        "factorisations": int(model.n_iter_),
        "alpha": getattr(model, "alpha_", None),
        "weights": np.asarray(model.kernel_weights_).tolist(),
    }
    if hasattr(model, "certificate_"):
        found["gap"] = model.certificate_.gap
        found["converged"] = model.certificate_.converged
    if hasattr(model, "features_"):
        found["representation"] = model.features_.representation
    if hasattr(model, "cv_score_"):
        found["cv_score"] = model.cv_score_
    return found | ({"model": model} if keep else {})


def run_goal(
    name: str, backend: Backend, device: str, scale: float, most: float, out: Path
) -> int:
    """Run one goal within ``most`` seconds, and write what was found to ``out``."""
    goal = GOALS[name]
    n = max(600, int(goal.n * scale))
    record: dict[str, Any] = {"goal": name, "n": n, "dtype": goal.dtype}
    record["allowed_seconds"] = goal.allowed
    record["allowed_times_learned"] = TIMES.get(name)
    try:
        with limit(most, elapsed=True):
            record |= goal.run(backend, device, goal, n)
    except OutOfTimeError:
        record["stopped_after_seconds"] = most
    except Exception as error:  # a goal that is missed is a result too
        record["error"] = f"{type(error).__name__}: {error}"
    if "seconds" in record and scale == 1.0:
        met = goal.allowed is None or record["seconds"] <= goal.allowed
        times = record.get("times_learned", 0.0)
        record["met"] = met and times <= TIMES.get(name, float("inf"))
    record |= device_record([backend])
    save(out, record)
    print(json.dumps(record, indent=1))
    return 0 if record.get("met", True) and "error" not in record else 1
