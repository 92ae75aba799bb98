"""The choice of a feature map for each kernel, and the features of all views."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from kernelweave._array import (
    Array,
    as_float,
    at_home,
    block_entries,
    centred,
    column_means,
    deviations,
    from_numpy,
    is_numpy,
    is_square_safe,
    row_chunks,
    to_numpy,
)
from kernelweave._text import prefixed, some
from kernelweave.kernels.base import Kernel, guarded
from kernelweave.kernels.centering import center_in_place, lost_in_centring
from kernelweave.kernels.checks import check_symmetric, ensure_psd
from kernelweave.kernels.features.maps import (
    FeatureMap,
    FourierFeatures,
    LinearFeatures,
    NystroemFeatures,
    exact_map,
    exact_width,
)
from kernelweave.kernels.functions import (
    RBF,
    Laplacian,
    Standardizer,
    ViewRows,
    dense_rows,
    form_for,
    seen_by,
)
from kernelweave.kernels.spec import check_outliers, name_largest, resolve_kernels
from kernelweave.views.columns import View
from kernelweave.views.encoded import EncodedRows
from kernelweave.views.raw_columns import Columns

#: A held-out kernel error above this earns a remark in the certificate.
POOR = 0.2


@dataclass(frozen=True)
class MapReport:
    """A kernel and its features.

    Attributes
    ----------
    kernel : str
        Name of the kernel.
    how : str
        "exact", "Nystroem" or "random Fourier".
    n_features : int
        Number of features.
    error : float
        ``norm(P(K - ZZ')P) / norm(PKP)`` (Frobenius norms) on rows that were not used
        to build the map; 0 for an exact map, NaN if there were too few such rows.
    """

    kernel: str
    how: str
    n_features: int
    error: float


@dataclass(frozen=True)
class FeatureReport:
    """How the kernels of a fit were represented; ``print`` shows it as a table.

    Attributes
    ----------
    representation : {"kernels", "on the fly", "rows", "moments"}
        n x n kernel matrices, kernels recomputed on every pass, features of all rows,
        or one-pass moments of features.
    why : str
        The reason, as a sentence.
    n_features : int
        Number D of features of all kernels together; 0 for kernels of any kind.
    maps : tuple of MapReport
        One per kernel; empty for kernels of any kind.
    """

    representation: str
    why: str
    n_features: int = 0
    maps: tuple[MapReport, ...] = ()

    @property
    def worst_error(self) -> float:
        """The largest held-out kernel error; NaN if one could not be measured."""
        return float(np.max([m.error for m in self.maps], initial=0.0))

    @property
    def remarks(self) -> list[str]:
        """Sentences for a certificate."""
        if not self.maps:
            return []
        lines = [f"features: {self.why}"]
        approximate = [m for m in self.maps if m.how != "exact"]
        if approximate:
            known = (
                f"is at most {self.worst_error:.2g} (features_ has one for each kernel)"
            )
            if np.isnan(self.worst_error):
                known = "is unknown, as too few rows are left besides the landmarks"
            lines.append(
                "the optimum is that of approximate kernels: the held-out kernel error "
                + known
            )
        poor = [repr(m.kernel) for m in approximate if m.error > POOR]
        if poor:
            lines.append(
                f"the features of {some(poor, most=3)} approximate the kernel poorly: "
                "a larger n_features would change the answer"
            )
        return lines

    def __str__(self) -> str:
        lines = [f"{self.representation}: {self.why}"]
        lines += [
            f"  {m.kernel:<40} {m.how:<15} {m.n_features:>6} features, "
            f"held-out error {'unknown' if np.isnan(m.error) else f'{m.error:.2g}'}"
            for m in self.maps
        ]
        return "\n".join(lines)


#: Exact features are used if they are at most this many times ``n_features``.
EXACT_FACTOR = 4


def choose_map(
    kernel: Kernel,
    sample: np.ndarray,
    method: str,
    n_features: int,
    rng: np.random.Generator,
    precision: float,
) -> FeatureMap:
    """A feature map of a resolved kernel (without the steps of a pipe).

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    sample : ndarray of shape (s, d)
        Rows after the steps of the pipe.
    method : {"exact", "nystroem", "random"}
        Linear, cosine and polynomial kernels are mapped exactly whatever the method,
        unless that takes more than four times ``n_features`` features. "random" falls
        back on Nystroem features for kernels that have no random ones.
    n_features : int
        Length of an approximate map.
    rng : numpy.random.Generator
        Draws landmarks or frequencies.
    precision : float
        Machine precision of the rows to be mapped.
    """
    width = exact_width(kernel, sample.shape[1])
    short = width is not None and width <= EXACT_FACTOR * n_features
    if method == "exact" or short:
        return exact_map(kernel, sample)
    if method == "random" and isinstance(kernel, RBF | Laplacian):
        origin = column_means(sample)
        s, d = sample.shape
        return FourierFeatures(kernel, d, n_features, rng, origin, n_rows=s)
    return NystroemFeatures(kernel, sample, n_features, rng, precision=precision)


#: Kernel parameters such as a median distance are computed on this many evenly spaced
#: rows of the sample: the median over their 130,816 pairs is accurate to 1 %.
SOME_ROWS = 512
#: With fewer held-out rows than this, the error of a map is not estimated.
FEWEST_FOR_ERROR = 8


class FeatureRecipe:
    """How to compute the features of every kernel of every view, chunk by chunk.

    Everything that depends on data (gamma, the mean and deviation of standardised
    columns, landmarks) is fixed once, from a sample of rows, so that chunks can be
    processed anywhere and in any order.

    Parameters
    ----------
    views : list of View
        The names and kernels of the views.
    sample : list of ndarrays, sparse arrays or Columns of shape (s, d_view)
        Rows of each view; sparse rows are converted to dense ones.
    method : {"exact", "nystroem", "random"}
        See :func:`~kernelweave.kernels.features.choose_map`.
    n_features : int
        Number of features of an approximate map.
    seed : int
        Seed of the landmarks and frequencies; kernel i uses the stream (seed, i).
    targets : ndarray of shape (s,) or (s, t), optional
        Targets of these rows, for transformers that need them.
    numbers : ndarray of int of shape (s,), optional
        The numbers of these rows, for messages; 0, 1, ... by default.

    Attributes
    ----------
    names, view_names : list of str
        The name of each kernel and of its view.
    maps : list of FeatureMap
        One map per kernel.
    sparse : list of bool
        Which kernels are linear on a view with sparse rows: for these kernels no dense
        copy of the rows is made.
    noise : list of float
        Variance of the features of each kernel that is rounding error of its columns.
    origins : list of ndarrays of shape (d_view,)
        The means of columns far from zero, and 0 for all others, by view.
    part_of : list of int
        The position, among the parts of the encoded rows of its view, of what each
        kernel takes: see :meth:`encoded`.
    """

    def __init__(
        self,
        views: list[View],
        sample: list[Any],
        method: str,
        n_features: int,
        seed: int = 0,
        targets: np.ndarray | None = None,
        numbers: np.ndarray | None = None,
    ) -> None:
        found: list[tuple[int, Kernel, FeatureMap]] = []
        self.origins: list[np.ndarray] = []
        for number, (view, rows) in enumerate(zip(views, sample, strict=True)):
            dense = _dense(rows)
            check_outliers(view, dense, numbers)
            limits = np.finfo(dense.dtype)
            dense = _double(dense)
            some = _double(_some(dense))
            table = isinstance(dense, Columns)
            self.origins.append(np.zeros(0) if table else far_origin(dense))
            y = targets
            if targets is not None:  # those of the same rows
                y = targets[:: -(-len(targets) // some.shape[0])]
            every = ViewRows(dense)
            for kernel in resolve_kernels(
                view.kernel,
                some,
                view.name,
                limits.bits,
                y,
                view.plan,
                made=every if some is dense else None,
            ):
                rng = np.random.default_rng([seed, len(found)])
                seen = _dense(every.seen_by(kernel))
                if isinstance(seen, Columns):
                    raise ValueError(
                        f"View {view.name!r}: explicit features need numbers, but the "
                        f"callable {kernel.label!r} reads columns as they are. Encode "
                        "them with a Pipe, or use features='auto' with rows few enough "
                        "for kernels between all of them."
                    )
                with prefixed(f"View {view.name!r}: "):
                    made = choose_map(
                        kernel.core, seen, method, n_features, rng, float(limits.eps)
                    )
                found.append((number, kernel, made))
        self.views, self.view_of = views, [v for v, _, _ in found]
        self.view_names = [views[v].name for v in self.view_of]
        self.names = [f"{views[v].name}: {kernel.label}" for v, kernel, _ in found]
        self.steps = [kernel.steps for _, kernel, _ in found]
        self.kernels = [kernel for _, kernel, _ in found]
        self.part_of = _parts(self.kernels, self.view_of, sample)
        self.noise = [kernel.noise for _, kernel, _ in found]
        self.maps = [made for _, _, made in found]
        self.sparse = [
            issparse(sample[v])
            and isinstance(made, LinearFeatures)
            and all(isinstance(step, Standardizer) for step in kernel.steps)
            for v, kernel, made in found
        ]

    def refuse_indefinite(self, sample: list[Any]) -> None:
        """Refuse kernels that are not positive semidefinite on some of the rows.

        They are centred and judged like stored kernels. No features represent negative
        eigenvalues, and clipping them takes eigenvectors over all rows.

        Parameters
        ----------
        sample : list of ndarrays, sparse arrays or Columns of shape (s, d_view)
            Rows of each view, of which up to 512 are used.
        """
        for i, kernel in enumerate(self.kernels):
            if kernel.psd:
                continue
            rows = _double(_some(_dense(sample[self.view_of[i]])))
            gram = np.array(kernel.core.gram(_dense(seen_by(kernel, rows))))
            if not is_square_safe(gram):
                continue  # its features are out of range too, and refused later
            check_symmetric(gram, self.names[i])
            gram += gram.T.copy()
            blur = lost_in_centring(gram, center_in_place(gram, kernel.noise))
            title = f"kernel {i} ({self.names[i]!r})"
            try:
                ensure_psd(gram, title, "error", blur)
            except ValueError as error:
                raise ValueError(
                    f"{title} is not positive semidefinite on {len(gram)} of the rows, "
                    "and explicit features cannot represent it; use a positive "
                    "semidefinite kernel, or psd='clip' with features='auto' and few "
                    "enough rows for kernels between all of them, or psd='trust' to "
                    "skip this check"
                ) from error

    @property
    def n_features(self) -> int:
        """Total number D of features."""
        return sum(self.widths)

    @property
    def widths(self) -> list[int]:
        """The number of features of each kernel."""
        return [made.n_features for made in self.maps]

    @property
    def blocks(self) -> list[slice]:
        """The columns of each kernel among all D features."""
        ends = np.cumsum([0, *self.widths])
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def to(self, like: Array) -> FeatureRecipe:
        """A copy that computes in the library, device and dtype of ``like``."""
        moved = copy.copy(self)
        moved.maps = [made.to(like) for made in self.maps]
        known: dict[int, Any] = {}  # kernels of a view share their steps
        moved.steps = [
            tuple(known.setdefault(id(step), _move_step(step, like)) for step in steps)
            for steps in self.steps
        ]
        return moved

    def write(
        self,
        views: list[Any],
        out: Array,
        wanted: list[int] | None = None,
        numbers: np.ndarray | None = None,
    ) -> None:
        """Write the features of some kernels side by side to ``out`` (m, D).

        Parameters
        ----------
        views : list of arrays of shape (m, d_view)
            Rows.
        out : array of shape (m, sum of the widths of the kernels wanted)
            Receives the features.
        wanted : list of int, optional
            The kernels; all of them by default.
        numbers : ndarray of shape (m,), optional
            The numbers of the rows, for messages; 0, 1, ... by default.
        """
        every: dict[int, ViewRows] = {}  # by view
        dense: dict[Any, Array] = {}  # by view and transformers
        start = 0
        for i in range(len(self.maps)) if wanted is None else wanted:
            made, v, steps = self.maps[i], self.view_of[i], self.steps[i]
            block = out[:, start : start + made.n_features]
            with np.errstate(over="ignore", invalid="ignore"):
                key = v, self.part_of[i]
                if key not in dense:
                    rows = views[v]
                    if isinstance(rows, EncodedRows):
                        rows = rows.parts[self.part_of[i]]
                    else:
                        rows = at_home(rows.toarray(), out) if issparse(rows) else rows
                        every.setdefault(v, ViewRows(rows))
                        form = form_for(self.kernels[i], rows)
                        rows = every[v].after(form, steps)
                    dense[key] = dense_rows(rows) if issparse(rows) else rows
                # In blocks, since a map takes several times the memory of its result.
                width, entries = made.n_features, block_entries(out)
                for part in row_chunks(out.shape[0], width, entries):
                    block[part, :] = made.transform(dense[key][part, :])
            if not is_square_safe(block):
                raise self._out_of_range(i, views[v], numbers)
            start += made.n_features

    def _out_of_range(
        self, i: int, rows: Any, numbers: np.ndarray | None
    ) -> ValueError:
        """The error that names the entry of a view for which kernel i overflows."""
        view = self.views[self.view_of[i]]
        label = self.names[i].removeprefix(f"{view.name}: ")
        return ValueError(name_largest(view, label, self.steps[i], rows, numbers))

    def encoded(self, views: list[Any]) -> list[Any]:
        """The rows of each view, with numbers in place of the cells of tables."""
        return [
            self._encoded(v, rows) if isinstance(rows, Columns) else rows
            for v, rows in enumerate(views)
        ]

    def _encoded(self, v: int, rows: Columns) -> EncodedRows:
        every = ViewRows(rows)
        parts: dict[int, Any] = {}
        for i, kernel in enumerate(self.kernels):
            if self.view_of[i] != v or self.part_of[i] in parts:
                continue
            with guarded(self.views[v].name):
                part = every.seen_by(kernel)
            if not is_square_safe(part.data if issparse(part) else part):
                raise self._out_of_range(i, rows, None)
            parts[self.part_of[i]] = part
        return EncodedRows(list(parts.values()))

    def means(self, sample: list[Any]) -> np.ndarray:
        """Means (D,) of the features over rows in host memory; 0 for sparse kernels."""
        means = np.zeros(self.n_features)
        rows = [_double(_dense(block)) for block in sample]
        for i in np.flatnonzero(~np.array(self.sparse)):
            out = np.empty((rows[0].shape[0], self.maps[i].n_features))
            self.write(rows, out, [int(i)])
            means[self.blocks[i]] = out.mean(axis=0)
        return means

    def sparse_features(
        self, i: int, rows: Any, numbers: np.ndarray | None = None
    ) -> Any:
        """Features (m, d) of sparse rows under a linear kernel, not centred.

        Adding a constant to a feature does not change the centred kernel, so columns
        are standardised by division alone: subtracting the mean would destroy sparsity.
        Only columns far from zero, which are not sparse, are moved, to keep digits.
        """
        scale = np.ones(rows.shape[1])
        for step in self.steps[i]:
            scale *= to_numpy(step.scale_).astype(np.float64)
        found, origin = csr_array(rows), self.origins[self.view_of[i]]
        far = np.flatnonzero(origin)
        if len(far):
            moved = csr_array(found[:, far].toarray() - origin[None, far])
            own = (np.arange(len(far)), far)
            place = csr_array((np.ones(len(far)), own), (len(far), rows.shape[1]))
            found = found.multiply((origin == 0.0)[None, :]).tocsr() + moved @ place
        found = found.multiply(1.0 / scale[None, :]).tocsr()
        if found.nnz and not is_square_safe(found.data):
            raise self._out_of_range(i, rows, numbers)
        return found

    def report(self, probe: list[Any]) -> tuple[MapReport, ...]:
        """The held-out kernel error of each map, measured on the rows ``probe``.

        Parameters
        ----------
        probe : list of ndarrays of shape (q, d_view)
            Rows of each view, in host memory.
        """
        every = [
            block
            if isinstance(block, EncodedRows)
            else ViewRows(_double(_dense(block)))
            for block in probe
        ]
        found = []
        for i, (name, made) in enumerate(zip(self.names, self.maps, strict=True)):
            error, rows = 0.0, every[self.view_of[i]]
            if not made.exact:
                if isinstance(rows, EncodedRows):
                    seen = _double(_dense(rows.parts[self.part_of[i]]))
                else:
                    seen = _dense(rows.seen_by(self.kernels[i]))
                error = kernel_error(made, seen)
            found.append(MapReport(name, made.how, made.n_features, error))
        return tuple(found)


def _parts(kernels: list[Kernel], view_of: list[int], sample: list[Any]) -> list[int]:
    """By kernel, the number of its transformers among those of its view."""
    numbers: list[dict[Any, int]] = [{} for _ in sample]
    part_of = []
    for kernel, v in zip(kernels, view_of, strict=True):
        path = ViewRows(sample[v]).path(kernel)
        part_of.append(numbers[v].setdefault(path, len(numbers[v])))
    return part_of


#: A column is far from zero if its mean is this many standard deviations away.
FAR = 10.0


def far_origin(rows: np.ndarray) -> np.ndarray:
    """Means (d,) of the columns of rows (s, d) that are far from zero, 0 for others.

    With a share z of zeros, a mean is at most ``sqrt((1 - z) / z)`` deviations from
    zero: a column is that far only if less than 1 % of its entries are zero.
    """
    means = column_means(rows)
    return np.where(np.abs(means) > FAR * deviations(rows), means, 0.0)


def kernel_error(made: FeatureMap, rows: np.ndarray) -> float:
    """``norm(P(K - ZZ')P) / norm(PKP)`` on those of the rows (q, d) not in the map."""
    rows = rows[~made.is_reference(rows)]
    if len(rows) < FEWEST_FOR_ERROR:
        return float("nan")
    gram = made.kernel.gram(rows)
    features = made.transform(rows)
    exact, off = (centred(matrix) for matrix in (gram, gram - features @ features.T))
    size = float(np.linalg.norm(exact))
    return float(np.linalg.norm(off)) / size if size > 0 else 0.0


def _move_step(step: Any, like: Array) -> Any:
    if not isinstance(step, Standardizer):
        return step  # other transformers always work on NumPy arrays
    moved = copy.copy(step)
    moved.mean_ = from_numpy(to_numpy(step.mean_), like)
    moved.scale_ = from_numpy(to_numpy(step.scale_), like)
    return moved


def _dense(rows: Any) -> Any:
    """Rows in host memory, as a dense array; columns of a table as they are."""
    if isinstance(rows, Columns):
        return rows
    return dense_rows(rows) if issparse(rows) else to_numpy(rows)


def _double(rows: Any) -> Any:
    """Rows in double precision."""
    if isinstance(rows, Columns):
        return rows.astype(np.float64)
    return np.ascontiguousarray(rows, dtype=np.float64)


def _some(rows: Any) -> Any:
    """Evenly spaced rows; all of a table, whose rare categories they might miss."""
    step = -(-rows.shape[0] // SOME_ROWS)
    return rows if isinstance(rows, Columns) or step == 1 else rows[::step]


def as_chunk(views: list[Any], like: Array) -> list[Any]:
    """Blocks of rows in the library, device and dtype of ``like``; sparse ones as is.

    NumPy arrays are returned in C order: the last bits of a product depend on the
    memory layout of its factors, which must not depend on where the rows came from.
    """
    kept = (issparse(rows) or isinstance(rows, Columns | EncodedRows) for rows in views)
    both = zip(views, kept, strict=True)
    return [rows if own else _as_rows(rows, like) for rows, own in both]


def _as_rows(rows: Array, like: Array) -> Array:
    if type(rows) is not type(like):
        return from_numpy(np.ascontiguousarray(to_numpy(rows)), like)
    rows = as_float(rows, like.dtype)
    return np.ascontiguousarray(rows) if is_numpy(rows) else rows
