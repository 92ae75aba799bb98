"""Kernels between all rows, or explicit features: which, and why."""

from __future__ import annotations

from typing import Any

from scipy.sparse import issparse

from kernelweave.models.shared.base import (
    KernelModel,
    check_choice,
    check_number,
    is_int,
)
from kernelweave.models.shared.device import on_host
from kernelweave.views.spec import is_precomputed
from kernelweave.views.streams import is_arrow, is_dask, is_iterator

__all__ = ["FeatureChoice", "refused"]

#: Rows beyond which "auto" computes no kernels between all of them on a processor.
AUTO_ROWS = 10_000
#: What explicit features are made for; other values need n x n kernels.
NEEDED = {
    "objective": "fisher",
    "scatter": "total",
    "formulation": "exact",
    "missing": "error",
}


def refused(model: Any) -> list[tuple[str, str, Any]]:
    """Parameters that explicit features cannot serve: name, value needed, found."""
    rows = [
        (name, value, getattr(model, name, value)) for name, value in NEEDED.items()
    ]
    return [(name, value, found) for name, value, found in rows if found != value]


class FeatureChoice(KernelModel):
    """What ``features`` and ``device`` may be, and what "auto" takes."""

    features: str
    n_features: int
    device: str | None
    alpha: Any
    _why = "of the input"

    def _check_features(self) -> None:
        """Refuse what explicit features cannot do."""
        for name, value, found in refused(self):
            raise ValueError(
                f"explicit features exist for {name}={value!r} only; got {found!r} "
                f"(they are used because {self._why})"
            )
        if getattr(self, "solver", "auto") == "sdp":
            raise ValueError("solver='sdp' needs n x n kernels; got explicit features")

    def _check_feature_parameters(self) -> None:
        check_choice(self, "features", ("auto", "exact", "nystroem", "random"))
        check_number(self, "n_features", (), lambda v: is_int(v, 1), "an int >= 1")
        if self.device is not None and not isinstance(self.device, str):
            raise ValueError(
                f"The 'device' parameter of {type(self).__name__} must be None or a "
                f"name such as 'cuda'; got {self.device!r}"
            )
        if is_precomputed(self.views):
            for name, value in (
                ("features", "random"),
                ("features", "nystroem"),
                ("alpha", "cv"),
            ):
                if getattr(self, name) == value:
                    raise ValueError(
                        f"{name}={value!r} needs columns to compute features from; "
                        "views='precomputed' has kernels only"
                    )

    def _why_features(self, X: Any) -> str | None:
        """Why explicit features have to be used for X, None if kernels are better."""
        if is_iterator(X) or is_arrow(X) or is_dask(X):
            if is_precomputed(self.views):
                raise ValueError(
                    "views='precomputed' takes kernels between all rows at once, not "
                    f"rows in portions; got {type(X).__name__}"
                )
            return "rows come in portions"
        if is_precomputed(self.views):
            return None
        if self.features in ("nystroem", "random"):
            return f"features={self.features!r} was asked for"
        if issparse(X):  # refused unless features were asked for
            return "rows are sparse" if self.features == "exact" else None
        if self.alpha == "cv":
            return "alpha='cv' works on moments of folds"
        if self.device is not None:
            return f"device={self.device!r} takes rows in portions"
        shape = getattr(X, "shape", ())
        n = shape[0] if shape else 0
        if n > AUTO_ROWS and on_host(X) and self._may_fall_back():
            return f"{n:,} rows are more than {AUTO_ROWS:,}"
        return None

    def _may_fall_back(self) -> bool:
        """Whether features may stand in for kernels that were not asked for as such."""
        if self.features != "auto" or is_precomputed(self.views):
            return False
        try:
            self._check_features()
        except ValueError:
            return False
        return True
