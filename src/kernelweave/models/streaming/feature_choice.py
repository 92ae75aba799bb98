"""Kernels between all rows, or explicit features: which, and why."""

from __future__ import annotations

from typing import Any

from scipy.sparse import issparse

from kernelweave.models.shared.device import on_host
from kernelweave.models.shared.parameters import Rule, one_of, whole
from kernelweave.views.spec import is_precomputed
from kernelweave.views.streams import is_arrow, is_dask, is_iterator

__all__ = [
    "FEATURES",
    "check_columns",
    "check_features",
    "may_fall_back",
    "refused",
    "why_features",
]

#: Number of rows beyond which "auto" computes no n x n kernels on a CPU.
AUTO_ROWS = 10_000
#: Values that explicit features support; others need n x n kernels.
NEEDED = {
    "objective": "fisher",
    "scatter": "total",
    "formulation": "exact",
    "missing": "error",
}
#: Values that the parameters of explicit features may take.
FEATURES = {
    "features": one_of("auto", "exact", "nystroem", "random"),
    "n_features": whole(1),
    "device": Rule(
        "None or a name such as 'cuda'", lambda v: v is None or isinstance(v, str)
    ),
}


def refused(model: Any) -> list[tuple[str, str, Any]]:
    """Parameters that rule out explicit features: name, value needed, value found."""
    rows = [
        (name, value, getattr(model, name, value)) for name, value in NEEDED.items()
    ]
    return [(name, value, found) for name, value, found in rows if found != value]


def check_features(model: Any, why: str) -> None:
    """Refuse what rules out explicit features, which are needed because ``why``."""
    for name, value, found in refused(model):
        raise ValueError(
            f"explicit features exist for {name}={value!r} only; got {found!r} "
            f"(they are used because {why})"
        )
    if model.solver == "sdp":
        raise ValueError("solver='sdp' needs n x n kernels; got explicit features")


def check_columns(model: Any) -> None:
    """Refuse parameters that need columns if only kernels are given."""
    if not is_precomputed(model.views):
        return
    for name, values in {"features": ("random", "nystroem"), "alpha": ("cv",)}.items():
        if getattr(model, name) in values:
            raise ValueError(
                f"{name}={getattr(model, name)!r} needs columns to compute features "
                "from; views='precomputed' provides only kernels"
            )


def why_features(model: Any, X: Any) -> str | None:
    """Why explicit features are used for X; None if kernels are used."""
    if is_iterator(X) or is_arrow(X) or is_dask(X):
        if is_precomputed(model.views):
            raise ValueError(
                "views='precomputed' takes kernels between all rows at once, not "
                f"rows in portions; got {type(X).__name__}"
            )
        return "rows come in portions"
    if is_precomputed(model.views):
        return None
    if model.features in ("nystroem", "random"):
        return f"features={model.features!r} was asked for"
    if issparse(X):  # refused unless features were asked for
        return "rows are sparse" if model.features == "exact" else None
    if model.alpha == "cv":
        return "alpha='cv' works on moments of folds"
    if model.device is not None:
        return f"device={model.device!r} takes rows in portions"
    shape = getattr(X, "shape", ())
    n = shape[0] if shape else 0
    if n > AUTO_ROWS and on_host(X) and may_fall_back(model):
        return f"{n:,} rows are more than {AUTO_ROWS:,}"
    return None


def may_fall_back(model: Any) -> bool:
    """Whether features may replace kernels: no parameter demands kernels."""
    free = model.features == "auto" and not is_precomputed(model.views)
    return free and not refused(model) and model.solver != "sdp"
