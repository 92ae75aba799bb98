"""From the kernel specification of a view to kernels, and on to Gram matrices."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.utils import get_tags

from kernelweave._array import (
    Array,
    at_home,
    detached,
    largest_of,
    namespace,
    to_numpy,
)
from kernelweave._text import did_you_mean, prefixed
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels.base import Kernel, base_matrix, guarded, key_of
from kernelweave.kernels.encoding import (
    NUMBER,
    ONE_HOT,
    ColumnEncoder,
    ColumnPlan,
    plan_columns,
    plan_numbers,
)
from kernelweave.kernels.functions import (
    RBF,
    CallableKernel,
    Chi2,
    Cosine,
    Frame,
    Framed,
    Laplacian,
    Linear,
    Pipe,
    Polynomial,
    Standardizer,
    ViewRows,
    apply_steps,
    dense_rows,
    first_step,
    needs_targets,
)
from kernelweave.views.columns import View, each_kernel, host_like
from kernelweave.views.encoded import EncodedRows
from kernelweave.views.raw_columns import Columns, is_plain

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
    spec: Any,
    X: Array,
    view_name: str,
    bits: int | None = None,
    y: Any = None,
    plan: ColumnPlan | None = None,
    movable: bool = True,
    made: ViewRows | None = None,
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
    X : array, sparse array or Columns of shape (n, d)
        Training rows of the view: floating, or as they are in a table.
    view_name : str
        Name of the view in error messages.
    bits : {32, 64}, default=None
        Precision of the rows to which the kernels will be applied; that of X by
        default.
    y : ndarray of shape (n,) or (n, t), optional
        Targets of the rows, for transformers that need them.
    plan : ColumnPlan, optional
        What "auto" does with columns that are not just numbers.
    movable : bool, default=True
        Whether origin and unit of the columns may be changed for kernels that forget
        both once centred and scaled.
    made : ViewRows, optional
        Of X; receives what the transformers that are fitted make of it.

    Returns
    -------
    kernels : list of Kernel
        Resolved copies, never the user's own objects.
    """
    with prefixed(f"View {view_name!r}: "):
        made = ViewRows(X) if made is None else made
        return _resolve(spec, _Rows(X, bits, made, y=y, plan=plan, movable=movable))


@dataclass
class _Rows:
    """Training rows, with a cache of what several kernels need to know about them."""

    given: Any
    bits: int | None
    #: The rows of the view, and the transformers from these to the rows given.
    made: ViewRows
    path: tuple[Any, ...] = ()
    #: The scaling by which the rows were made from those ``before``.
    scaling: Standardizer | None = None
    before: Any = None
    y: Any = None
    plan: ColumnPlan | None = None
    movable: bool = True
    memo: dict[str, float] = field(default_factory=dict)
    _framed: dict[str, tuple[Frame, _Rows]] = field(default_factory=dict)

    @cached_property
    def X(self) -> Array:
        """The rows as numbers."""
        return self.given.numbers if isinstance(self.given, Columns) else self.given

    def resolve(self, kernel: Kernel) -> Kernel:
        """The kernel on these columns, or on columns with a better origin and unit."""
        scaling, kind = self.scaling, kernel.forgets
        if scaling is not None and issparse(self.X) and not kernel.ignores_origin:
            return kernel.resolve(scaling.transform(dense_rows(self.before)))
        if kind is None or scaling is not None or not self.movable:
            return kernel.resolve(self.X, self.memo)
        if kind not in self._framed:
            frame = Frame(kind == "affine").fit(self.X, bits=self.bits)
            rows = _Rows(frame.transform(self.X), self.bits, self.made)
            self._framed[kind] = frame, rows
        frame, rows = self._framed[kind]
        # Distances choose their own origin.
        moved = kind == "affine" and kernel.base == "dot"
        if not moved and frame.unit_ == 1.0:
            return kernel.resolve(self.X, self.memo)
        self.after(frame, rows.X)
        return Framed(frame, kernel.resolve(rows.X, rows.memo))

    def after(self, fitted: Any, features: Any) -> tuple[Any, ...]:
        """The path of what a transformer made of these rows, which is kept."""
        start: tuple[Any, ...] = self.path
        if not start and isinstance(self.given, Columns):
            start = ("numbers" if isinstance(fitted, Standardizer) else "cells",)
        path = (*(start or ("rows",)), id(fitted))
        self.made.results[path] = features
        return path


def _resolve(spec: Any, rows: _Rows) -> list[Kernel]:
    if isinstance(spec, Pipe) and not isinstance(spec, Framed):
        before = rows.X if isinstance(spec.transformer, Standardizer) else rows.given
        fitted, features = spec.fit_transformer(before, rows.y)
        inner = _Rows(
            features,
            rows.bits,
            rows.made,
            rows.after(fitted, features),
            scaling=fitted if isinstance(fitted, Standardizer) else None,
            before=before,
            y=rows.y,
            movable=rows.movable,
        )
        return [Pipe(fitted, kernel) for kernel in _resolve(spec.kernel, inner)]
    if isinstance(spec, Kernel):
        return [rows.resolve(spec)]
    if isinstance(spec, str):
        return _auto(rows) if spec == "auto" else _resolve(_named(spec), rows)
    if isinstance(spec, list | tuple):
        if not spec:
            raise ValueError("the list of kernels is empty. Name one, such as 'rbf'.")
        return [kernel for item in spec for kernel in _resolve(item, rows)]
    if isinstance(spec, type):
        raise TypeError(
            f"kernel is the class {spec.__name__}; pass an instance such as "
            f"{spec.__name__}()."
        )
    if callable(spec):
        return [CallableKernel(spec)]
    found = f"{type(spec).__name__} {' '.join(repr(spec).split()):.80}"
    hint = ""
    if len(getattr(spec, "shape", ())) == 2:
        hint = " For a matrix, use Similarity(K, ids) or views='precomputed'."
    raise TypeError(
        "kernel must be a name, a kernel object such as RBF(gamma=0.1), a callable "
        f"(X, Z) -> Gram, or a list of these; found {found}.{hint}"
    )


def _auto(rows: _Rows) -> list[Kernel]:
    """The kernels of "auto": the right scaling depends on the data, so offer both."""
    if isinstance(rows.given, Columns) and rows.plan and not rows.plan.is_plain:
        return _auto_mixed(rows, rows.plan)
    kernels = [Linear(), *(RBF(factor=1 / width) for width in AUTO_WIDTHS)]
    scalings = [Standardizer(per_column=False)]
    if not Standardizer().fit(rows.X).is_even:
        scalings.append(Standardizer())
    return [k for scaling in scalings for k in _resolve(Pipe(scaling, kernels), rows)]


def _auto_mixed(rows: _Rows, plan: ColumnPlan) -> list[Kernel]:
    """Kernels on the numbers, on the one-hot columns, and on both together."""
    numbers, words = plan.places(NUMBER), plan.places(ONE_HOT)
    specs = []
    if numbers:
        specs.append(Pipe(ColumnEncoder(plan, "numbers"), "auto"))
    if words:
        specs.append(Pipe(ColumnEncoder(plan, "one-hot"), [Linear(), RBF()]))
    if numbers and words:
        widths = [RBF(factor=1 / width) for width in AUTO_WIDTHS]
        specs.append(Pipe(ColumnEncoder(plan, "all columns"), widths))
    return [kernel for spec in specs for kernel in _resolve(spec, rows)]


def _named(name: str) -> Kernel:
    if name in KERNELS:
        return KERNELS[name]()
    names = ["auto", *KERNELS]
    close = [n for n in names if len(name) > 2 and n.startswith(name.lower())]
    hint = did_you_mean(close[0] if close else name.lower(), names)
    if name == "precomputed":
        hint = " For precomputed kernels, set views='precomputed' as a whole."
    known = ", ".join(map(repr, names))
    raise ValueError(f"unknown kernel {name!r}; the known names are {known}.{hint}")


def check_names(view: View) -> None:
    """Refuse names of kernels that do not exist, before any column is read."""
    with prefixed(f"View {view.name!r}: "):
        for _, kernel in each_kernel(view.kernel):
            if isinstance(kernel, str) and kernel != "auto":
                _named(kernel)


def gram_stack(
    kernels: Sequence[Kernel],
    X: Any,
    references: Sequence[Any] | None = None,
    *,
    view_name: str = "",
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
    X : array, sparse array or Columns of shape (n, d)
        Rows of the view.
    references : sequence of arrays of shape (m, e), default=None
        What each kernel compares X with (the training rows at prediction), after its
        transformers; X itself if None.
    view_name : str, default=""
        Name of the view in error messages.

    Yields
    ------
    K : array of shape (n, m)
        Owned by the caller, who may overwrite it and should release it before asking
        for the next one.
    """
    rows = ViewRows(X)
    bases: dict[Hashable, Array] = {}
    keys = [(rows.path(kernel), kernel.core.base) for kernel in kernels]
    for index, (kernel, key) in enumerate(zip(kernels, keys, strict=True)):
        base, later = key[1], keys[index + 1 :]
        with guarded(view_name):
            new = rows.seen_by(kernel)
            reference = None if references is None else references[index]
            if base is None:
                K = kernel.core.gram(new, reference)
            else:
                if key not in bases:
                    bases[key] = base_matrix(base, new, reference)
                K = kernel.core.from_base(bases[key])
        del new
        rows.forget([path for path, _ in later])
        if key not in later:
            bases.pop(key, None)
        elif K is bases.get(key):
            K = namespace(K).asarray(K, copy=True)
        yield K
        del K  # otherwise it would stay alive while the next one is computed


def detached_block(block: Any) -> Any:
    """The rows of a view in memory of their own, so that nobody else can change them.

    See :func:`kernelweave._array.detached`.
    """
    if isinstance(block, Columns | EncodedRows):
        return block.copy()
    return detached(block)


def as_stored(X: Any, Z: Any) -> Any:
    """Rows X (n, d), sparse if the rows Z (m, d) are, and dense otherwise."""
    if issparse(X) == issparse(Z) or isinstance(Z, Columns):
        return X
    return csr_array(to_numpy(X)) if issparse(Z) else at_home(X.toarray(), Z)


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
        for before, kernel in each_kernel(view.kernel):
            named = isinstance(kernel, str)
            if named and kernel in KERNELS:
                kernel = KERNELS[kernel]()
            # Built-in kernels ignore the order of the columns; others may not.
            built_in = named or type(kernel) in KERNELS.values()
            place = tuple(columns if before or not built_in else sorted(columns))
            owners.setdefault((place, key_of((before, kernel))), {})[view.name] = None
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


def settle(view: View, block: Any) -> tuple[View, Any]:
    """A view with its plan for "auto", and its rows as numbers if they are just that.

    Parameters
    ----------
    view : View
        The view.
    block : array, sparse array or Columns of shape (n, d)
        The training rows that have it.
    """
    found = readers(view.kernel)
    if not isinstance(block, Columns) or "auto" not in found:
        return view, block
    plan = view.plan
    with prefixed(f"View {view.name!r}: "):
        # Numbers alone are judged together: a sixth of the time with 2,000 columns.
        if plan is None and is_plain(block.table) and np.isfinite(block.numbers).all():
            plan = plan_numbers(block.numbers, block.labels, view.name)
        elif plan is None:
            plan = plan_columns(block, view.name)
    if plan.is_plain and found <= {"auto", "numbers"}:
        if plan.medians is None:
            plan = replace(plan, medians=np.median(block.numbers, axis=0))
        return replace(view, raw=False, plan=plan), block.numbers
    return replace(view, plan=plan), block


def remarks_of(views: list[View]) -> list[str]:
    """What "auto" does with each view's columns, and which transformers see targets."""
    plans = [(view.name, view.plan) for view in views if view.plan is not None]
    found = [remark for name, plan in plans for remark in plan.remarks(name)]
    for view in views:
        if sees_targets(view.kernel):
            found.append(
                f"view {view.name!r}: its transformer has seen the targets of all "
                "training rows, so leave-one-out results are too good, and there is a "
                "cv_score_ only if folds fit it again; judge the model by "
                "cross_val_score"
            )
    return found


def sees_targets(spec: Any) -> bool:
    """Whether a kernel of a view begins with transformers that need targets."""
    return any(
        needs_targets(step) for before, _ in each_kernel(spec) for step in before
    )


def readers(spec: Any) -> set[str]:
    """Who reads the columns of a view first.

    Returns
    -------
    found : set of str
        "auto", "transformer" (of a :class:`Pipe`, other than a :class:`Standardizer`),
        "callable", and "numbers" for kernels that take numbers only.
    """
    return {_reader(before, kernel) for before, kernel in each_kernel(spec)}


def _reader(before: tuple[Any, ...], kernel: Any) -> str:
    if before:
        return "numbers" if isinstance(before[0], Standardizer) else "transformer"
    if isinstance(kernel, str) and kernel == "auto":
        return "auto"
    reads = kernel.takes_columns if isinstance(kernel, Kernel) else callable(kernel)
    return "callable" if reads else "numbers"


def imputes(spec: Any) -> bool:
    """Whether every kernel of a view begins with a transformer that accepts NaN.

    Individual entries of a row may then be NaN: the transformer handles them.
    """
    return all(_accepts_nan(before) for before, _ in each_kernel(spec))


def _accepts_nan(before: tuple[Any, ...]) -> bool:
    if not before or isinstance(before[0], type):
        return False
    first = first_step(before[0])  # the tags of a Pipeline do not mention NaN
    return hasattr(first, "fit") and get_tags(first).input_tags.allow_nan


#: How many times the typical size of its column an entry may be, per precision in bits.
DWARFS = {32: 2.0**42, 64: 2.0**341}


def check_outliers(view: View, block: Array, numbers: np.ndarray | None = None) -> None:
    """Refuse a training column in which one entry is so large that all others are lost.

    No change of unit helps: next to the square of 1e300, the squares of all other
    entries vanish. Blocks of ordinary size are accepted without a look at each column.

    Parameters
    ----------
    view : View
        The view of these columns.
    block : array of shape (n, d)
        The training rows.
    numbers : ndarray of shape (n,), optional
        Indices of these rows in X; 0, 1, ... by default.
    """
    if isinstance(block, Columns) and view.plan is None:
        return
    limit = DWARFS[namespace(host_like(block)).finfo(block.dtype).bits]
    values = block.measured if isinstance(block, Columns) else block
    entries = block.data if issparse(block) else values
    if not (entries.shape[0] and largest_of(entries) > limit):
        return  # NaN passes as well: it is checked elsewhere
    if issparse(block):
        block = values = dense_rows(block)
    sizes = np.abs(to_numpy(values).astype(np.float64))
    for j, column in enumerate(sizes.T):
        i = int(column.argmax())
        if column[i] > limit and column[i] / limit > np.median(column[column > 0]):
            raise ValueError(
                f"{_entry(view, block, i, j, numbers)}, more than {limit:.0e} times "
                "the typical value of this column: next to its square, those of the "
                "other rows vanish. Correct the entry, drop the row, or take "
                "logarithms."
            )


def name_largest(
    view: View,
    label: str,
    steps: tuple[Any, ...],
    block: Array,
    numbers: np.ndarray | None = None,
) -> str:
    """A message that names the largest entry seen by a kernel with non-finite values.

    Parameters
    ----------
    view : View
        The view of these columns.
    label : str
        The name of the kernel.
    steps : tuple of transformers
        The transformers that are applied before the kernel.
    block : array, sparse array, Columns or EncodedRows of shape (m, d)
        The rows; NaN where a row lacks the view.
    numbers : ndarray of shape (m,), optional
        Indices of these rows in X; 0, 1, ... by default.
    """
    encoded = bool(steps) and isinstance(steps[0], ColumnEncoder)
    if isinstance(block, EncodedRows) or (isinstance(block, Columns) and not encoded):
        return (
            f"View {view.name!r}: values of the kernel {label} are beyond the range of "
            f"{block.dtype}. Rescale what its transformer returns."
        )
    if issparse(block):  # make only one row dense
        top = np.argmax(abs(block).max(axis=1).toarray(), keepdims=True).ravel()
        block = block.tocsr()[top].toarray()
        numbers = top if numbers is None else numbers[top]
    # After other transformers, columns are no longer those of the view.
    scalings = takewhile(lambda step: isinstance(step, Standardizer), steps[encoded:])
    with np.errstate(over="ignore", invalid="ignore"):
        seen = apply_steps((*steps[:encoded], *scalings), block)
    if encoded:  # numbers come first, then marks of gaps and categories
        places = steps[0].plan.places(NUMBER)
        values, seen = block.measured[:, places], seen[:, : len(places)]
        dtype = block.dtype
    else:
        places, values = range(block.shape[1]), to_numpy(block)
        dtype = values.dtype
    # A row that lacks the view is NaN in the input; an overflow only after the steps.
    sizes = np.where(np.isnan(values), -1.0, np.abs(to_numpy(seen)))
    sizes = np.where(np.isnan(sizes), np.inf, sizes)
    i, j = (int(index) for index in np.unravel_index(sizes.argmax(), sizes.shape))
    entry = _entry(view, block, i, places[j], numbers)
    return (
        f"{entry}, so values of the kernel {label} are beyond the range of {dtype}. "
        "Correct the entry or drop the row; if the number is right, rescale the "
        "column, or standardise it with Pipe(StandardScaler(), ...)."
    )


def _entry(view: View, block: Array, i: int, j: int, numbers: np.ndarray | None) -> str:
    """View, row, column and value of an entry of a block."""
    row, column = i if numbers is None else int(numbers[i]), _column(view, block, j)
    value = float((block.measured if isinstance(block, Columns) else block)[i, j])
    return f"View {view.name!r}: row {row}, column {column} holds {value:.3g}"


def _column(view: View, block: Array, j: int) -> str:
    """Name of column j of a view, or its position."""
    if isinstance(block, Columns):
        return repr(block.labels[j])
    columns = view.columns
    if isinstance(columns, str):
        return repr(columns)
    listed = isinstance(columns, list | tuple) and len(columns) == block.shape[1]
    if listed and all(type(c) in (str, int) for c in columns):
        return repr(columns[j])
    if isinstance(columns, slice) and all(
        c is None or (type(c) is int and c >= 0) for c in (columns.start, columns.step)
    ):
        return repr((columns.start or 0) + j * (columns.step or 1))
    return f"{j} of the view"
