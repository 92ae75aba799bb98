"""From the kernel specification of a view to kernels, and on to Gram matrices."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernelweave._array import Array, is_array, namespace
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels.base import Kernel, base_matrix
from kernelweave.kernels.frame import Frame, Framed
from kernelweave.kernels.functions import (
    RBF,
    CallableKernel,
    Chi2,
    Cosine,
    Laplacian,
    Linear,
    Pipe,
    Polynomial,
    Standardizer,
    apply_step,
)
from kernelweave.views.columns import View

__all__ = ["AUTO_WIDTHS", "KERNELS", "gram_stack", "resolve_kernels", "warn_twins"]

#: Widths of the Gaussian kernels of "auto", in units of the median squared distance.
AUTO_WIDTHS = (0.5, 2.0)

KERNELS: dict[str, type[Kernel]] = {
    "linear": Linear,
    "rbf": RBF,
    "polynomial": Polynomial,
    "laplacian": Laplacian,
    "chi2": Chi2,
    "cosine": Cosine,
}


def resolve_kernels(
    spec: Any, X: Array, view_name: str, bits: int | None = None
) -> list[Kernel]:
    """Kernels of one view, with all parameters fixed from the training rows.

    Parameters
    ----------
    spec : str, Kernel, callable, or list of these
        "auto" stands for a linear and several Gaussian kernels, on the columns as given
        and on standardised columns (only once if all columns have equal variance). A
        name such as "rbf" stands for the kernel with default parameters on the columns
        as given. A callable takes (X, Z) and returns the Gram matrix. Lists may be
        nested.
    X : array of shape (n, d)
        Training rows of the view, floating.
    view_name : str
        Name of the view in error messages.
    bits : {32, 64}, default=None
        Precision of the rows to which the kernels will be applied; that of X by
        default.

    Returns
    -------
    kernels : list of Kernel
        Resolved copies, never the user's own objects.
    """
    bits = namespace(X).finfo(X.dtype).bits if bits is None else bits
    with _naming(view_name):
        return _resolve(spec, _Rows(X, bits))


class _Rows:
    """Training rows, with a cache of what several kernels need to know about them."""

    def __init__(self, X: Array, bits: int, standardized: bool = False) -> None:
        self.X, self.bits, self.standardized = X, bits, standardized
        self.memo: dict[str, float] = {}
        self._frames: dict[str, Frame] = {}
        self._framed: dict[str, _Rows] = {}

    def resolve(self, kernel: Kernel) -> Kernel:
        """The kernel on these columns, or on columns with a better origin and unit."""
        kind = kernel.forgets
        if kind is None or self.standardized:
            return kernel.resolve(self.X, self.memo)
        if kind not in self._frames:
            self._frames[kind] = Frame(kind == "affine").fit(self.X, bits=self.bits)
        frame = self._frames[kind]
        # Distances choose their own origin.
        moved = kind == "affine" and kernel.base == "dot"
        if not moved and frame.unit_ == 1.0:
            return kernel.resolve(self.X, self.memo)
        if kind not in self._framed:
            self._framed[kind] = _Rows(frame.transform(self.X), self.bits)
        rows = self._framed[kind]
        return Framed(frame, kernel.resolve(rows.X, rows.memo))


def _resolve(spec: Any, rows: _Rows) -> list[Kernel]:
    if isinstance(spec, Pipe) and not isinstance(spec, Framed):
        fitted, features = spec.fit_transformer(rows.X)
        inner = _Rows(features, rows.bits, isinstance(fitted, Standardizer))
        return [Pipe(fitted, kernel) for kernel in _resolve(spec.kernel, inner)]
    if isinstance(spec, Kernel):
        return [rows.resolve(spec)]
    if isinstance(spec, str):
        return _auto(rows) if spec == "auto" else _resolve(_named(spec), rows)
    if isinstance(spec, list | tuple):
        if not spec:
            raise ValueError("the list of kernels is empty.")
        return [kernel for item in spec for kernel in _resolve(item, rows)]
    if isinstance(spec, type):
        raise TypeError(
            f"kernel is the class {spec.__name__}; pass an instance such as "
            f"{spec.__name__}()."
        )
    if callable(spec):
        return [CallableKernel(spec)]
    raise TypeError(
        "kernel must be a name, a kernel object such as RBF(gamma=0.1), a callable "
        f"(X, Z) -> Gram, or a list of these; found {type(spec).__name__} {spec!r:.80}."
    )


def _auto(rows: _Rows) -> list[Kernel]:
    """The kernels of "auto": the right scaling depends on the data, so offer both."""
    kernels = [Linear(), *(RBF(factor=1 / width) for width in AUTO_WIDTHS)]
    scalings = [Standardizer(per_column=False)]
    if not Standardizer().fit(rows.X).is_even:
        scalings.append(Standardizer())
    return [k for scaling in scalings for k in _resolve(Pipe(scaling, kernels), rows)]


def _named(name: str) -> Kernel:
    if name in KERNELS:
        return KERNELS[name]()
    names = ["auto", *KERNELS]
    close = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if name == "precomputed":
        hint = " For precomputed kernels, set views='precomputed' as a whole."
    known = ", ".join(map(repr, names))
    raise ValueError(f"unknown kernel {name!r}; the known names are {known}.{hint}")


def gram_stack(
    kernels: Sequence[Kernel], X: Array, Z: Array | None = None, *, view_name: str = ""
) -> Iterator[Array]:
    """Gram matrices, not yet centred, of the resolved kernels of a view, one at a time.

    If centring makes a kernel independent of the origin of its columns, the origin that
    loses the fewest digits is used; call the kernel itself for its defining matrix.

    Kernels with the same transformers and base share the base matrix, which is freed
    after its last use. If kernels with the same base are adjacent, at most one base
    matrix and one Gram matrix are in memory at a time.

    Parameters
    ----------
    kernels : sequence of Kernel
        From :func:`resolve_kernels`.
    X : array of shape (n, d)
        Rows of the view.
    Z : array of shape (m, d), default=None
        Reference rows (the training rows at prediction); X itself if None.
    view_name : str, default=""
        Name of the view in error messages.

    Yields
    ------
    K : array of shape (n, m)
        Owned by the caller, who may overwrite it and should release it before asking
        for the next one.
    """
    paths = [tuple(id(step) for step in kernel.steps) for kernel in kernels]
    keys = [(path, k.base) for path, k in zip(paths, kernels, strict=True)]
    features: dict[Any, tuple[Array, Array | None]] = {}
    bases: dict[Any, Array] = {}
    for index, (kernel, path, key) in enumerate(zip(kernels, paths, keys, strict=True)):
        # Non-finite values are reported by the callers, who can name the rows.
        with _naming(view_name), np.errstate(over="ignore", invalid="ignore"):
            if path not in features:
                features[path] = _features(kernel, X, Z)
            if kernel.base is None:
                K = kernel.core.gram(*features[path])
            else:
                if key not in bases:
                    bases[key] = base_matrix(kernel.base, *features[path])
                K = kernel.from_base(bases[key])
        if path not in paths[index + 1 :]:
            del features[path]
        if key in bases and key not in keys[index + 1 :]:
            del bases[key]
        elif K is bases.get(key):
            K = namespace(K).asarray(K, copy=True)
        yield K
        del K  # otherwise it would stay alive while the next one is computed


def _features(kernel: Kernel, X: Array, Z: Array | None) -> tuple[Array, Array | None]:
    for step in kernel.steps:
        X = apply_step(step, X)
        Z = None if Z is None else apply_step(step, Z)
    return X, Z


@contextmanager
def _naming(view_name: str) -> Iterator[None]:
    """Prefix error messages with the name of the view."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not view_name:
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"View {view_name!r}: {error}") from error


def warn_twins(views: list[View], positions: list[list[int]]) -> None:
    """Issue one warning about all views that share both columns and a kernel.

    Parameters
    ----------
    views : list of View
        The names and kernels of the views.
    positions : list of list of int
        Columns of each view; views may share some.
    """
    owners: dict[Hashable, dict[str, None]] = {}
    for view, columns in zip(views, positions, strict=True):
        for kernel in _single(view.kernel):
            # Built-in kernels ignore the order of the columns; others may not.
            any_order = kernel == "auto" or type(kernel) in KERNELS.values()
            place = tuple(sorted(columns) if any_order else columns)
            owners.setdefault((place, _key(kernel)), {})[view.name] = None
    groups = dict.fromkeys(tuple(names) for names in owners.values() if len(names) > 1)
    if groups:
        which = "; ".join(" and ".join(map(repr, names)) for names in groups)
        warnings.warn(
            f"the views {which} have a kernel with equal parameters on the same "
            "columns: their weights cannot be told apart. Keep one of them, or "
            "interpret only the sum of their weights",
            KernelWarning,
            stacklevel=2,
        )


def _single(spec: Any) -> Iterator[Any]:
    """The kernels of a view one by one, with kernel objects in place of names."""
    if isinstance(spec, list | tuple):
        for item in spec:
            yield from _single(item)
    elif isinstance(spec, Pipe):
        for kernel in _single(spec.kernel):
            yield Pipe(spec.transformer, kernel)
    else:
        yield KERNELS[spec]() if isinstance(spec, str) and spec in KERNELS else spec


def _key(value: Any) -> Hashable:
    """A hashable key, equal for kernels, transformers or parameters that are equal."""
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    if hasattr(value, "get_params") and not isinstance(value, type):
        params = value.get_params(deep=False)
        return type(value), tuple((name, _key(params[name])) for name in sorted(params))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return id(value)
    return id(value) if is_array(value) else value
