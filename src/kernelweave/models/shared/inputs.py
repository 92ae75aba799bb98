"""Checks of what a fit is given: parameters, targets, training rows."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from numbers import Integral, Number, Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import is_classifier
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _num_samples, column_or_1d

from kernelweave._array import (
    Array,
    detached,
    device,
    is_array,
    is_numpy,
    namespace,
    same_home,
    to_numpy,
)
from kernelweave._text import counted, did_you_mean, some, with_names
from kernelweave.fits.design import RowDesign
from kernelweave.fits.subspace import label_factor, target_factor
from kernelweave.kernels.centering import Standard
from kernelweave.kernels.encoding import fill_gaps, warn_unseen
from kernelweave.kernels.interactions import with_products
from kernelweave.kernels.maps.kernel_map import (
    WORK_MATRICES,
    FeatureSource,
    KernelMap,
    NothingVariesError,
    PrecomputedSource,
    Source,
    Storage,
    moved_rows,
)
from kernelweave.kernels.maps.missing import CompletedKernelMap
from kernelweave.kernels.spec import (
    check_names,
    imputes,
    readers,
    settle,
)
from kernelweave.learn.sample import RowMap
from kernelweave.views.columns import (
    View,
    column_names,
    host_like,
    is_arrow,
    is_dask,
    is_dict,
    is_precomputed,
    parse_views,
    refuse_lacking,
    resolve_columns,
    split_views,
    validate_features,
    validate_new,
    with_own_ids,
)
from kernelweave.views.ids import check_row_order, is_gap
from kernelweave.views.missing import (
    ObservedViews,
    check_every_view,
    check_numbers,
    check_some_view,
    read_kernels,
    rows_lacking,
    take_rows,
)
from kernelweave.views.ordering import ranks_of_rows
from kernelweave.views.raw_columns import LARGEST_FLOAT, Columns, read_columns
from kernelweave.views.streams import select_rows
from kernelweave.weights.signed_sum import LARGEST_BOUND

if TYPE_CHECKING:  # estimators are built from what is here
    from kernelweave.models.shared.base import KernelModel

AnyModel = TypeVar("AnyModel", bound="KernelModel")


@dataclass(frozen=True)
class Rule:
    """Allowed values, in words and as a test."""

    text: str
    allows: Callable[[Any], bool]


def one_of(*words: str) -> Rule:
    """One of these words."""
    text = f"one of {', '.join(map(repr, words))}"
    return Rule(text, lambda v: isinstance(v, str) and v in words)


def number(text: str, test: Callable[[Any], bool], *words: str) -> Rule:
    """A number that passes a test, or one of these words."""

    def allows(value: Any) -> bool:
        if isinstance(value, str):
            return value in words
        if isinstance(value, np.generic):  # in float32, every limit here is infinite
            value = value.item()
        real = isinstance(value, int | float | np.floating)
        real = real and not isinstance(value, bool)
        held = real and (value == np.inf or abs(value) <= LARGEST_FLOAT)
        return bool(held and test(value))

    *others, last = [text, *map(repr, words)]
    return Rule(f"{', '.join(others)} or {last}" if others else last, allows)


def positive(*words: str) -> Rule:
    """A finite number above zero, or one of these words."""
    return number("a finite number > 0", lambda v: 0 < v < np.inf, *words)


def integer(lowest: int, optional: bool = False) -> Rule:
    """An integer of at least ``lowest``, or None if ``optional``."""
    text = f"an int >= {lowest}"
    rule = number(text, lambda v: isinstance(v, Integral) and int(v) >= lowest)
    if not optional:
        return rule
    return Rule(f"None or {text}", lambda v: v is None or rule.allows(v))


#: The least and the largest sum of row weights with a square in full precision.
LEAST_WEIGHT, MOST_WEIGHT = float(np.finfo(np.float64).tiny) ** 0.5, LARGEST_FLOAT**0.5

#: Whole numbers fewer than this, or with more rows for each, are accepted as classes.
MANY_VALUES, ROWS_PER_CLASS = 30, 10
#: Share of enumerated classes that may be absent before the first, as from a fold.
LOST_CLASSES = 0.05
#: Given priors may differ from 1 by this in their sum: they are often rounded.
SUM_OF_PRIORS = 1e-6
#: Matrices for a factorisation in place: the matrix itself, and the blocks it takes.
IN_PLACE = 1.25


def _gives_splits(value: Any) -> bool:
    """Whether a value is a splitter, or may be an iterable of splits."""
    if isinstance(value, str | bytes | dict):
        return False
    return hasattr(value, "split") or isinstance(value, Iterable)


boolean = Rule("a bool", lambda v: isinstance(v, bool | np.bool_))

#: Parameters that mean the same in every estimator that has them.
COMMON = {
    "norm": number("a number >= 1", lambda v: v >= 1),
    "n_components": integer(1, optional=True),
    "uncorrelated": boolean,
    "signed": boolean,
    "weight_bound": number(
        f"a number from 1 to {LARGEST_BOUND:.0e}", lambda v: 1 <= v <= LARGEST_BOUND
    ),
    "tol": positive(),
    "max_iter": integer(1, optional=True),
    "interactions": boolean,
    "centre": boolean,
    "scale": Rule("'trace' or None", lambda v: v is None or one_of("trace").allows(v)),
    "psd": one_of("error", "clip", "trust"),
    "features": one_of("auto", "on_the_fly"),
    "n_features": integer(1),
    "missing": one_of("error", "available", "zero"),
    "class_weight": Rule(
        "None, 'balanced' or a dict from classes to weights",
        lambda v: v is None or isinstance(v, dict) or one_of("balanced").allows(v),
    ),
    "cv": Rule(
        "None, an int >= 2, a scikit-learn splitter or an iterable of splits (train, "
        "test)",
        lambda v: v is None or _gives_splits(v) or integer(2).allows(v),
    ),
    "scoring": Rule(
        "None, a name from sklearn.metrics.get_scorer_names() or a callable "
        "scorer(estimator, X, y)",
        lambda v: v is None or callable(v) or one_of(*get_scorer_names()).allows(v),
    ),
    "device": Rule(
        "None or a name such as 'cuda'", lambda v: v is None or isinstance(v, str)
    ),
    "random_state": Rule(
        "None, an int from 0 to 2**32 - 1, or a numpy.random.RandomState",
        lambda v: (
            v is None
            or isinstance(v, np.random.RandomState)
            or (integer(0).allows(v) and int(v) < 2**32)
        ),
    ),
    "verbose": integer(0),
}


def check_parameters(estimator: KernelModel, **own: Rule) -> None:
    """Refuse the first parameter whose value breaks its own or the common rule."""
    for name, rule in {**COMMON, **own}.items():
        if hasattr(estimator, name) and not rule.allows(getattr(estimator, name)):
            raise ValueError(
                f"The {name!r} parameter of {type(estimator).__name__} must be "
                f"{rule.text}; got {getattr(estimator, name)!r:.200}"
            )
    if estimator.scoring is not None:
        check_scoring(estimator)


def check_scoring(model: KernelModel) -> None:
    """Raise for a measure of classes for a regression, and the reverse."""
    function = getattr(get_scorer(model.scoring), "_score_func", None)
    package, _, module = str(getattr(function, "__module__", "")).rpartition(".")
    if not package.startswith("sklearn.metrics"):
        return  # a measure of the user's own
    owner, continuous = type(model).__name__, module == "_regression"
    if is_classifier(model) and continuous:
        raise ValueError(
            f"scoring={model.scoring!r} measures predictions of numbers, but {owner} "
            "predicts classes; use, for example, 'balanced_accuracy', 'neg_log_loss' "
            "or 'average_precision'"
        )
    if not is_classifier(model) and not continuous:
        raise ValueError(
            f"scoring={model.scoring!r} measures predictions of classes, but {owner} "
            "predicts numbers; use, for example, 'r2' or 'neg_mean_absolute_error'"
        )


def refuse_unscaled(model: KernelModel, name: str, value: str | bool, why: str) -> None:
    """Refuse a value of a parameter that needs kernels scaled to the same trace."""
    if getattr(model, name) == value and model.scale is None:
        raise ValueError(
            f"{name}={value!r} {why}, so it needs scale='trace'; got scale=None. Use "
            f"another value of {name}, or leave scale at its default"
        )


def with_parameters(model: AnyModel, **values: Any) -> AnyModel:
    """A copy, not fitted, with other values of some parameters.

    A subclass may have fixed some of them, which are attributes all the same, of its
    instances or of the class.
    """
    found = type(model)(**model.get_params(deep=False))
    names = {*vars(found), *getattr(model, "__dataclass_fields__", ())}
    own = {name: getattr(model, name) for name in names}
    vars(found).update(own | values)
    return found


#: Why a learned identity needs kernels of trace n.
IDENTITY = "weighs kernels against an identity of trace n"


def read_targets(X: Any, y: Any, owner: str) -> np.ndarray:
    """Targets (n,) or (n, t) of the rows of X; ``owner`` names the estimator."""
    if y is None:
        raise ValueError(
            f"{owner} requires y to be passed, but the target y is None. Pass one "
            "target per row of X"
        )
    refuse_name(X, y, owner)
    check_same_rows(X, y, owner, "y")
    values = of_own_type(y, owner)
    check_length(X, values, owner)
    return values


def check_same_rows(X: Any, values: Any, owner: str, name: str) -> None:
    """Compare the pandas indexes of the rows and of what belongs to them, if any."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(
            f"{owner}: {name} is a masked array, whose mask would be lost. Drop the "
            f"masked rows from X and {name}, and pass {name}.data"
        )
    frame = first_kernel(X)
    if all(hasattr(a, "iloc") and not is_dask(a) for a in (frame, values)):
        check_row_order(frame, values, owner, name)


def refuse_name(X: Any, y: Any, owner: str) -> None:
    """Refuse the name of a column in place of its values, unless X is read lazily."""
    if isinstance(y, str) and not (is_dask(X) or is_arrow(X)):
        known = y in (column_names(X) or [])
        fix = f"X.drop(columns={y!r}), X[{y!r}]" if known else f"X, table[{y!r}]"
        raise ValueError(
            f"{owner}: y is the text {y!r}, but must hold one target per row. Pass the "
            f"column itself, and leave it out of X: fit({fix})"
        )


def refuse_own_target(model: KernelModel, X: Any, y: Any) -> None:
    """Refuse a view of a table that holds the column of y itself, by name and values.

    Parameters
    ----------
    model : KernelModel
        Its ``views`` say which columns are used.
    X, y : object
        What was given to ``fit``.
    """
    name, names = getattr(y, "name", None), column_names(X)
    if is_dask(X) or not isinstance(name, str) or names is None or name not in names:
        return
    if not np.array_equal(np.asarray(X[name]), np.asarray(y)):
        return
    try:
        views = parse_views(model.views, reserved=model._get_param_names())
        positions = resolve_columns(X, views)
    except (TypeError, ValueError):
        return  # reported where views are read
    for view, columns in zip(views, positions, strict=True):
        if names.index(name) in columns:
            raise ValueError(
                f"View {view.name!r}: the column {name!r} of X is y itself, so "
                "there is nothing to learn. Leave it out of the view, or pass "
                f"X.drop(columns={name!r})"
            )


def check_length(X: Any, y: Any, owner: str) -> None:
    """Refuse y unless it has as many entries as X has rows."""
    rows, targets = _num_samples(first_kernel(X)), _num_samples(y)
    if rows != targets:
        raise ValueError(
            f"{owner}: X and y have inconsistent numbers of samples: X has "
            f"{counted(rows, 'row')}, y has {targets}. Pass one target per row of X"
        )


def first_kernel(X: Any) -> Any:
    """The first of a dict of kernels, which has as many rows as all; else X itself."""
    return next(iter(X.values()), X) if is_dict(X) else X


def _label_column(X: Any, y: Any, owner: str) -> np.ndarray:
    """One label per row of X, (n,), perhaps of several types: text may mark rows."""
    values = read_targets(X, y, owner)
    if values.ndim == 2 and values.shape[1] > 1:
        raise ValueError(f"{owner}: {_why_no_labels(values, hasattr(y, 'iloc'))}")
    return column_or_1d(values, warn=True)


def _why_no_labels(values: np.ndarray, is_frame: bool) -> str:
    """What is wrong with several columns (n, k) in place of labels, and what to do."""
    shape, numeric = values.shape, values.dtype.kind in "fiub"
    if numeric and np.all((values == 0) | (values == 1)) and np.all(values.sum(1) == 1):
        fix = "y.idxmax(axis=1)" if is_frame else "y.argmax(axis=1)"
        return (
            f"y has one column for each of {shape[1]} classes (one-hot), but must hold "
            f"one label per row. Pass {fix}"
        )
    return (
        f"y should be a 1d array with one label per row; it has the shape {shape}. For "
        "several outputs, fit one model for each column, as "
        "sklearn.multioutput.MultiOutputClassifier does"
    )


def check_labels(X: Any, y: Any, owner: str) -> np.ndarray:
    """The labels (n,) of the rows of X."""
    y = _label_column(X, y, owner)
    refuse_no_classes(y, owner)
    return y


def refuse_no_classes(y: np.ndarray, owner: str) -> None:
    """Refuse labels (n,) that mix text and numbers, or are quantities."""
    refuse_mixture(y, owner)
    try:
        check_classification_targets(y)
    except ValueError as error:
        raise ValueError(
            f"{owner}: {error} For quantities use MultipleKernelRidge; if they are "
            "names of classes, pass y.astype(str)"
        ) from error


def of_own_type(y: Any, owner: str) -> np.ndarray:
    """Targets (n,) or (n, t), none missing; objects that are numbers or text, as such.

    Frames hold these in types of their own, which NumPy has as objects at best. What
    would change stays as it is: integers beyond 64 bits, text beside numbers.
    """
    if issparse(y):
        raise TypeError(f"{owner}: y is sparse, but must be dense. Pass y.toarray()")
    if str(getattr(y, "dtype", None)) in ("Int128", "UInt128"):  # NumPy has none
        y = y.to_list()
    values = to_numpy(y) if hasattr(y, "shape") else np.asarray(y, dtype=object)
    if values.ndim == 0:
        raise ValueError(
            f"{owner}: y should be a 1d array with one target per row of X; got "
            f"{type(y).__name__} {y!r:.80}"
        )
    if values.ndim > 2 or 0 in values.shape[1:]:
        raise ValueError(
            f"{owner}: y has {values.ndim} axes, shape {values.shape}. Pass one target "
            "per row of X, an array of shape (n,), or (n, t) for t outputs"
        )
    if values.dtype.kind in ("O", "T"):
        gaps = [row for (row, *_), value in np.ndenumerate(values) if is_gap(value)]
        _refuse_gaps(gaps, "NaN or None", owner)
        items = values.reshape(-1).tolist()
        if all(map(_is_scalar, items)):
            plain = np.asarray(items)
            if plain.dtype.kind in "biufcU" and plain.tolist() == items:
                values = plain.reshape(values.shape)
    if values.dtype.kind == "c":
        raise ValueError(
            f"{owner}: Complex data not supported: y has the dtype {values.dtype}. "
            "Pass its real part, or its real and imaginary parts as two outputs of a "
            "regression"
        )
    if values.dtype.kind in "fmM":
        _refuse_infinite(values, owner)
    return values


def _is_scalar(value: Any) -> bool:
    """Whether a target is text or a number, which may be an array without axes."""
    known = isinstance(value, str | Number | np.bool_)
    return known or (is_array(value) and value.ndim == 0)


def _refuse_infinite(values: np.ndarray, owner: str) -> None:
    """Refuse targets (n,) or (n, t) that are NaN, NaT or infinite."""
    gaps = np.nonzero(~np.isfinite(values))[0].tolist()
    infinite = f"infinity or a value too large for dtype('{values.dtype}')"
    found = "NaN" if np.isnan(values).any() else infinite
    _refuse_gaps(gaps, found, owner)


def _refuse_gaps(rows: list[int], found: str, owner: str) -> None:
    """Refuse rows whose targets hold what was ``found``, if there are any."""
    if rows:
        where = with_names("row", map(str, dict.fromkeys(rows)))
        raise ValueError(
            f"{owner}: Input y contains {found} in {where}. Drop such rows from X and y"
        )


def refuse_mixture(y: np.ndarray, owner: str) -> None:
    """Refuse labels (n,) or (n, t) that mix text and numbers, or are neither."""
    first: dict[str, tuple[int, Any]] = {}
    if y.dtype == object:
        for (i, *_), value in np.ndenumerate(y):
            if not isinstance(value, str | Number | np.bool_):
                raise ValueError(
                    f"{owner}: y holds objects of the type {type(value).__name__}, "
                    f"such as {str(value)!r:.80} in row {i}. Labels must be text, "
                    "numbers, booleans or datetime64: pass y.astype(str)"
                )
            kind = "text" if isinstance(value, str) else "numbers"
            first.setdefault(kind, (i, value))
    if len(first) > 1:
        places = " and ".join(
            f"{kind} (row {i} is {value!r})" for kind, (i, value) in first.items()
        )
        raise ValueError(
            f"{owner}: y mixes {places}. Labels must be of one type: convert all of "
            "them, for example with y.astype(str)"
        )


def encode_labels(labels: np.ndarray, owner: str) -> tuple[np.ndarray, np.ndarray]:
    """The classes (k,), at least two of them, and the codes (n,) of labels (n,)."""
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        found, rows = classes.tolist(), counted(len(labels), "row")
        count = f"1 class in {rows}: {found[0]!r}" if found else f"no class in {rows}"
        raise ValueError(
            f"{owner} needs at least 2 classes in y; found {count}. Check y, or add "
            "rows of other classes"
        )
    warn_many_numbers(classes, len(labels), owner)
    return classes, codes.reshape(-1)


def warn_many_numbers(classes: np.ndarray, n: int, owner: str) -> None:
    """Warn if the classes (k,) of n rows look like values of a regression.

    Many whole numbers, with few rows each, are more likely ages, counts or scores than
    classes, unless they enumerate the classes: 0, 1, 2, ..., perhaps with gaps where a
    fold has lost some. (If most rows have a value of their own, scikit-learn warns.)
    """
    k = len(classes)
    if classes.dtype.kind not in "iuf" or k < MANY_VALUES or n >= ROWS_PER_CLASS * k:
        return
    low, high = float(classes[0]), float(classes[-1])
    enumerated = 0 <= low <= max(1.0, LOST_CLASSES * k) and high - low < 2 * k
    if k <= round(0.5 * n) and not enumerated:
        warnings.warn(
            f"{owner}: y holds {k} different whole numbers, from {low:g} to {high:g}, "
            f"in {n} rows. This looks like regression: use MultipleKernelRidge for "
            "quantities. If they are names of classes, pass y.astype(str)",
            UserWarning,
            stacklevel=2,
        )


def read_some_labels(
    model: KernelModel, X: Any, y: Any, sample_weight: Any
) -> tuple[np.ndarray, np.ndarray, np.ma.MaskedArray, np.ndarray, np.ndarray | None]:
    """The classes (k,), and the codes (n,) of the rows of X, -1 if unlabelled.

    Then come the labels (m,) of the rows that count, masked if unlabelled, and which
    rows these are and their weights, from :func:`read_row_weights`.

    Unlabelled rows have the label ``model.unlabelled`` or, among strings and objects,
    its text: NumPy turns every entry of ``["a", "b", -1]`` into a string.
    """
    owner, marker = type(model).__name__, model.unlabelled
    y = _label_column(X, y, owner)
    labelled = ~has_marker(y, marker)
    given = of_own_type(y[labelled], owner)
    if len(given):
        refuse_no_classes(given, owner)
    found = sorted(set(given.tolist()), key=str)
    if len(found) < 2:
        rows = counted(len(given), "labelled row")
        count = f"1 class in {rows}: {found[0]!r}" if found else f"no class in {rows}"
        advice = ": encode two classes as 0 and 1, not as -1 and 1"
        raise ValueError(
            f"{owner} needs labelled rows of at least 2 classes; found {count}. "
            f"{marker!r} and {str(marker)!r} mean unlabelled"
            f"{advice if marker == -1 else ''}"
        )
    codes = np.full(len(y), -1)
    classes, codes[labelled] = encode_labels(given, owner)
    weighting = sample_weight, model.class_weight, owner, labelled
    keep, weights = read_row_weights(X, classes[codes], *weighting)
    own = codes[keep]
    return classes, codes, np.ma.array(classes[own], mask=own < 0), keep, weights


def has_marker(y: np.ndarray, marker: Any) -> np.ndarray:
    """Which labels (n,) are the marker, or its text among strings and objects."""

    def is_marker(label: Any) -> bool:
        if isinstance(label, str):
            return label == str(marker)
        return isinstance(label, Number) and bool(label == marker)

    return np.array([is_marker(label) for label in y], dtype=bool)


def check_outputs(X: Any, y: Any, owner: str) -> np.ndarray:
    """The outputs of the rows of X as (n, n_outputs) in float64."""
    y = as_numbers(read_targets(X, y, owner), owner)
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    return y if y.ndim == 2 else y[:, None]  # perhaps of no rows


def as_numbers(y: np.ndarray, owner: str) -> np.ndarray:
    """Targets from :func:`of_own_type` in float64; refuses text, even "1.5".

    Labels read from a file are often text: as numbers they would be ranks at best.
    """
    entries = () if y.dtype.kind in "fiub" else np.ndenumerate(y)
    for place, value in entries:
        if not isinstance(value, Number | np.bool_) or y.dtype.kind == "m":
            kind = "text" if isinstance(value, str) else type(value).__name__
            hint = "Convert them with y.astype(float) if they are quantities; for "
            raise ValueError(
                f"{owner}: y holds {kind}, such as {str(value)!r:.80} in row "
                f"{place[0]}, but this is a regression, which needs numbers. {hint}"
                "classes use MultipleKernelFDA"
            )
    try:
        with np.errstate(over="ignore"):  # of numbers in extended precision
            numbers = np.asarray(y, dtype=np.float64)
    except OverflowError as error:
        sizes = [abs(value) > LARGEST_FLOAT for value in y.reshape(-1)]
        row = sizes.index(True) // max(1, y.size // len(y))
        raise ValueError(
            f"{owner}: y holds an integer beyond the range of float64 in row {row}. "
            "Correct it, drop the row, or take logarithms"
        ) from error
    _refuse_infinite(numbers, owner)
    return numbers


def require_rows(outputs: np.ndarray, owner: str) -> None:
    """Refuse a single row, which has no variance to explain."""
    if len(outputs) < 2:
        raise ValueError(
            f"{owner} needs at least 2 rows; found 1 sample in X. Add rows"
        )


def check_targets(model: KernelModel, X: Any, y: Any) -> np.ndarray:
    """Labels (n,) for a classifier, outputs (n, n_outputs) for a regressor."""
    check = check_labels if is_classifier(model) else check_outputs
    return check(X, y, type(model).__name__)


def require_enough(model: KernelModel, targets: np.ndarray) -> None:
    """Refuse targets from which nothing can be learned."""
    check = encode_labels if is_classifier(model) else require_rows
    check(targets, type(model).__name__)


def as_outputs(y: np.ndarray, kind: str, owner: str) -> np.ndarray:
    """Checked targets that are not classes, as (n, n_outputs) in float64."""
    if y.dtype.kind not in "fiub":
        raise ValueError(
            f"Unknown label type: {kind!r}. {owner} takes class labels or numbers"
        )
    return as_numbers(y, owner).reshape(len(y), -1)


def read_label_factor(
    y: np.ndarray, kind: str, kernel: Any, owner: str, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The factor L (n, r) for checked targets, and the classes (k,) if y holds classes.

    ``kernel`` is the ``label_kernel`` of :class:`~kernelweave.SubspaceKernel`, ``kind``
    scikit-learn's type of target, and ``weights`` (n,) says how often each row counts;
    ``owner`` names the estimator in messages.
    """
    named = isinstance(kernel, str)
    if kind in ("binary", "multiclass") and not (named and kernel == "linear"):
        classes, codes = encode_labels(y, owner)
        values = classes[:, None]
        given = kernel(values, values) if callable(kernel) else kernel
        _refuse_other_order(given, classes, "label_kernel")
        return label_factor(codes, len(classes), given, weights), classes
    if callable(kernel):  # of the distinct rows of outputs
        values, codes = np.unique(y.reshape(len(y), -1), axis=0, return_inverse=True)
        if len(values) < 2:
            raise ValueError(
                f"{owner} needs at least 2 distinct rows of outputs in y; all {len(y)} "
                f"are {values.tolist()[0]!r}"
            )
        given, codes = kernel(values, values), codes.reshape(-1)
        return label_factor(codes, len(values), given, weights), None
    if not named or kernel == "indicator":
        raise ValueError(
            f"label_kernel={kernel!r} needs class labels, but y is {kind}; use "
            "'linear' or a callable for numbers"
        )
    outputs = as_outputs(y, kind, owner)
    require_rows(outputs, owner)
    return target_factor(outputs, weights), None


def read_numbers_or_labels(
    X: Any, y: Any, sample_weight: Any, owner: str
) -> tuple[np.ndarray, str, np.ndarray, np.ndarray | None]:
    """Checked targets of the rows that count, their type, these rows, their weights."""
    y = read_targets(X, y, owner)
    refuse_mixture(y, owner)
    with np.errstate(invalid="ignore"):  # it compares numbers with whole ones
        kind = type_of_target(y, input_name="y")
    labels = y.reshape(-1) if kind in ("binary", "multiclass") else None
    keep, weights = read_row_weights(X, labels, sample_weight, None, owner)
    return y[keep], kind, keep, weights


def check_sample_weight(
    sample_weight: Any, n: int, owner: str, all_zero: bool = False
) -> np.ndarray:
    """Weights >= 0 of n rows, (n,); ones for None. All may be zero if ``all_zero``."""
    if sample_weight is None:
        return np.ones(n)
    given = to_numpy(sample_weight) if is_array(sample_weight) else sample_weight
    where = f"{owner}: sample_weight"
    try:
        if np.asarray(given).dtype.kind == "c":
            raise TypeError("complex")
        values = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{where} must hold one number per row; got {given!r:.60} ({error}). To "
            "weight classes, set class_weight where the estimator has it"
        ) from error
    if values.ndim and values.shape != (n,):
        raise ValueError(
            f"{where}.shape == {values.shape}, expected {(n,)}. Pass one number per row"
        )
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        found = "NaN" if np.isnan(values).any() else "infinity"
        raise ValueError(
            f"{where} contains {found} in {with_names('row', map(str, bad))}. Give "
            "each row a finite number; 0 leaves it out"
        )
    if not (all_zero or np.any(values)):
        raise ValueError(
            f"{where} is zero for every row, but must contain at least one non-zero "
            "number. Give a positive weight to the rows that count"
        )
    weights = values if values.ndim else np.full(n, values)
    if np.any(weights < 0):
        i = int(np.argmax(weights < 0))
        raise ValueError(
            f"{where} of row {i} is {weights[i]:g}. Negative values in data passed to "
            "`sample_weight`: a weight is the number of times a row counts; 0 leaves "
            "the row out"
        )
    return weights


def weights_of_portion(
    labels: np.ndarray, class_weight: Any, owner: str
) -> np.ndarray | float:
    """The weight of each label (m,) of a portion, which may lack some classes."""
    if class_weight is None:
        return 1.0
    if not isinstance(class_weight, dict):
        raise ValueError(
            f"{owner}: class_weight={class_weight!r} needs the labels of all rows at "
            "once, but rows come in portions; give a dict from class to weight"
        )
    _refuse_odd_class_weight(class_weight, owner)
    classes, codes = np.unique(labels, return_inverse=True)
    return class_weights(class_weight, classes, codes, np.ones(len(codes)))[codes]


def read_row_weights(
    X: Any,
    y: np.ndarray | None,
    sample_weight: Any,
    class_weight: Any,
    owner: str,
    labelled: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Which rows count, and how much: sample weights times class weights.

    "balanced" class weights are ``N / (k N_c)``, with N the sum of the sample weights
    and ``N_c`` that of class c: as for copies of the rows.

    Parameters
    ----------
    X : array-like
        n rows.
    y : ndarray of shape (n,) or None
        Checked labels; None if the targets are not classes.
    sample_weight : array-like of shape (n,), float or None
        Non-negative numbers.
    class_weight : None, "balanced" or dict
        Positive weights of the classes; those not in the dict have weight 1.
    owner : str
        The estimator, for messages.
    labelled : ndarray of bool of shape (n,), optional
        Rows whose y is a class; all by default.

    Returns
    -------
    keep : ndarray of int of shape (m,)
        Rows of positive weight, to be selected before anything is computed from the
        others.
    weights : ndarray of shape (m,) or None
        Their weights; None if all are 1.
    """
    n = _num_samples(first_kernel(X))
    if sample_weight is None and class_weight is None:
        return np.arange(n), None
    check_same_rows(X, sample_weight, owner, "sample_weight")
    weights = check_sample_weight(sample_weight, n, owner)
    keep = np.flatnonzero(weights)
    if y is not None:
        labelled = np.ones(n, dtype=bool) if labelled is None else labelled
        own = keep[labelled[keep]]
        lost = sorted(set(y[labelled].tolist()) - set(y[own].tolist()), key=str)
        if lost:
            raise ValueError(
                f"{owner}: every row of class {lost[0]!r} has sample_weight 0; give "
                "one a positive weight, or leave the class out of X and y"
            )
        weights[own] *= _class_weights(y[own], class_weight, weights[own], owner)
    weights = weights[keep]
    with np.errstate(over="ignore"):
        check_total(float(np.sum(weights)), owner)
    return keep, None if np.all(weights == 1.0) else weights


def check_total(total: float, owner: str) -> None:
    """Refuse rows whose weights have a sum that float64 cannot square."""
    if not LEAST_WEIGHT <= total <= MOST_WEIGHT:
        how, more = "Multiply", ""
        if total > MOST_WEIGHT:
            how, more = "Divide", ", or reduce the largest"
        raise ValueError(
            f"{owner}: the weights of the rows add up to {total:.3g}, whose square "
            f"float64 cannot hold. {how} sample_weight, or class_weight, by a common "
            f"number{more}"
        )


def _class_weights(
    y: np.ndarray, class_weight: Any, weights: np.ndarray, owner: str
) -> np.ndarray:
    """The weight of the class of each row, (n,), for labels and sample weights (n,)."""
    classes, codes = np.unique(y, return_inverse=True)
    if isinstance(class_weight, dict):
        _refuse_odd_class_weight(class_weight, owner)
        given = weights_by_label(class_weight, classes)
        n_used = len(given.keys() & set(classes.tolist()))
        if n_used < min(len(given), len(classes)):  # a key may be misspelt
            known = classes.astype(str) if classes.dtype.kind in "mM" else classes
            raise ValueError(
                f"{owner}: class_weight is for {some(map(repr, class_weight))}, but y "
                f"has {some(map(repr, known.tolist()))}. Use the labels of y as keys"
            )
    return class_weights(class_weight, classes, codes, weights)[codes]


def class_weights(
    class_weight: Any, classes: np.ndarray, codes: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The weight of each of the classes (k,), as :func:`read_row_weights` says.

    The rows have class codes and weights (n,).
    """
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, dict):
        given = weights_by_label(class_weight, classes)
        return np.array([float(given.get(c, 1.0)) for c in classes.tolist()])
    sums = np.bincount(codes, weights)
    return np.asarray(np.sum(sums) / (len(sums) * sums))


def weights_by_label(given: dict[Any, Any], classes: np.ndarray) -> dict[Any, Any]:
    """A dict from classes to weights, with the labels of ``classes.tolist()`` as keys.

    Dates and durations may be given in any form.
    """
    if classes.dtype.kind not in "mM":
        return given
    found = {}
    for label, weight in given.items():
        try:
            key = np.asarray(label, dtype=classes.dtype).item()
        except (TypeError, ValueError):  # it is not the label of any row
            key = label
        found[key] = weight
    return found


def _refuse_odd_class_weight(class_weight: dict[Any, Any], owner: str) -> None:
    """Refuse weights that are not finite numbers above zero."""
    for label, weight in class_weight.items():
        if not positive().allows(weight):
            raise ValueError(
                f"{owner}: class_weight of class {label!r} is {weight!r:.60}; it must "
                "be a finite number > 0"
            )


def read_groups(
    groups: Any,
    n: int,
    owner: str,
    does: str = "leaves out one group at a time",
    keep: np.ndarray | slice = slice(None),
) -> np.ndarray | None:
    """Codes (m,) of the groups; None if every row is a group of its own.

    These are the groups of the rows ``keep`` (m,), by default of all n. ``owner`` and
    what it ``does`` with groups are for messages.
    """
    if groups is None:
        return None
    groups = to_numpy(groups) if is_array(groups) else groups
    shape = np.shape(groups)
    if shape not in ((n,), (n, 1)):
        raise ValueError(
            f"{owner}: groups has the shape {shape}, but there are {n} rows. Pass one "
            "group per row"
        )
    groups = column_or_1d(groups)
    may_lack = groups.dtype.kind in "fmMO"
    gaps = [i for i, group in enumerate(groups) if may_lack and is_gap(group)]
    if gaps:
        raise ValueError(
            f"{owner}: groups has no entry for {with_names('row', map(str, gaps))}. "
            "Give every row a group, perhaps one of its own"
        )
    groups = groups[keep]
    try:
        values, codes = np.unique(groups, return_inverse=True)
    except TypeError as error:
        raise ValueError(
            f"{owner}: groups holds values of several types ({error}). Convert all of "
            "them, for example with groups.astype(str)"
        ) from error
    if len(values) < 2:
        raise ValueError(
            f"{owner} {does}, which needs at least 2 groups, but there is 1: all rows "
            f"are in group {values.tolist()[0]!r}. Check groups, or leave them out"
        )
    return None if len(values) == len(groups) else codes


def check_priors(priors: Any, classes: np.ndarray) -> np.ndarray | None:
    """Probabilities of the classes (k,), or None."""
    if priors is None:
        return None
    needed = "one number per class, in the order of the sorted labels"
    needed = f"{needed} {classes.tolist()}"
    try:
        given = np.asarray(priors, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"priors must hold {needed}; got {priors!r:.60}") from error
    if given.shape != classes.shape:
        raise ValueError(f"priors needs {needed}; got shape {given.shape}")
    _refuse_other_order(priors, classes, "priors")
    if not (np.all(given > 0) and abs(np.sum(given) - 1.0) < SUM_OF_PRIORS):
        raise ValueError(
            f"priors must be positive and sum to 1; got {given.tolist()}, which sum to "
            f"{np.sum(given):.6g}"
        )
    return given


#: The largest sum of weights that are given, and one over the smallest: sums of kernels
#: are factored in float32 too, whose range is 1e-38 to 3e38.
LARGEST_SUM = 1e30


def read_kernel_weights(
    kernel_weights: Any, names: list[str], views: list[str]
) -> np.ndarray:
    """Weights (p,) of kernels with these names, of these views (p,).

    They are given by place, or by the name of a view or kernel; the weight of a view is
    divided equally among its kernels.
    """
    if isinstance(kernel_weights, dict):
        weights = _weights_by_name(kernel_weights, names, views)
    else:
        needed = f"one number per kernel, in the order of {some(map(repr, names))}"
        if hasattr(kernel_weights, "iloc"):  # a pandas object
            index = kernel_weights.index.tolist()
            if index not in (names, list(range(len(names)))):
                raise ValueError(
                    f"kernel_weights must hold {needed}; got the index "
                    f"{some(map(repr, index))}. Sort it, or pass "
                    "kernel_weights.to_dict() for weights by name"
                )
        try:
            values = np.asarray(
                to_numpy(kernel_weights) if is_array(kernel_weights) else kernel_weights
            )
        except ValueError as error:  # lists of different lengths
            raise ValueError(
                f"kernel_weights must hold {needed}; got {kernel_weights!r:.60}"
            ) from error
        if values.dtype.kind not in "iuf":
            raise ValueError(
                f"kernel_weights must hold {needed}; got {kernel_weights!r:.60}"
            )
        weights = values.astype(np.float64)
        if weights.shape != (len(names),):
            raise ValueError(
                f"kernel_weights needs {needed}: the shape {(len(names),)}; got "
                f"{weights.shape}"
            )
        for name, weight in zip(names, weights.tolist(), strict=True):
            _check_weight(f"kernel {name!r}", weight)
    if not np.any(weights):
        raise NothingVariesError(
            "kernel_weights are all zero, so there is no kernel to learn from; got "
            f"{kernel_weights!r:.60}. Give at least one kernel a weight > 0"
        )
    total = float(np.sum(weights))
    if not 1.0 / LARGEST_SUM <= total <= LARGEST_SUM:
        raise ValueError(
            f"kernel_weights have the sum {total:.3g}, but it must be from "
            f"{1.0 / LARGEST_SUM:.0e} to {LARGEST_SUM:.0e}, as the squares of sums of "
            "kernels must not leave the range of numbers. Divide the weights, and a "
            "number for alpha, by their sum"
        )
    return weights


def _weights_by_name(
    kernel_weights: dict[Any, Any], names: list[str], views: list[str]
) -> np.ndarray:
    weights, view_names = np.zeros(len(names)), set(views)
    entries: dict[int, Any] = {}  # the entry that each kernel has its weight from
    for key, value in kernel_weights.items():
        is_view = key in view_names
        labels = views if is_view else names
        places = [i for i, label in enumerate(labels) if label == key]
        if not places:
            hint = did_you_mean(str(key), [*view_names, *names])
            raise ValueError(
                f"kernel_weights: {key!r} is neither a view nor a kernel.{hint} The "
                f"views are {some(map(repr, dict.fromkeys(views)))}, the kernels "
                f"{some(map(repr, names))}"
            )
        if not is_view and len(places) > 1:
            raise ValueError(
                f"kernel_weights: {len(places)} kernels have the name {key!r}, so it "
                "does not say which of them is meant; pass an array with one number "
                "per kernel"
            )
        other = next((entries[i] for i in places if i in entries), None)
        if other is not None:
            raise ValueError(
                f"kernel_weights: {key!r} and {other!r} both give the weight of the "
                f"kernel {names[places[0]]!r}; leave out one of them"
            )
        kind = "view" if is_view else "kernel"
        weights[places] = _check_weight(f"{kind} {key!r}", value) / len(places)
        entries |= dict.fromkeys(places, key)
    return weights


def _check_weight(whose: str, weight: Any) -> float:
    """A weight of a kernel or view as a float; refuse what cannot be one."""
    is_number = isinstance(weight, Real) and not isinstance(weight, bool | np.bool_)
    value = float(weight) if is_number else np.nan
    if not 0.0 <= value < np.inf:
        raise ValueError(
            f"kernel_weights must be finite numbers >= 0; the {whose} has {weight!r}. "
            "Leave a kernel out with the weight 0"
        )
    return value


def _refuse_other_order(values: Any, classes: np.ndarray, name: str) -> None:
    """Refuse a pandas object with the classes as its index, but in another order."""
    if not hasattr(values, "iloc"):
        return
    labels, known = values.index.tolist(), classes.tolist()
    if labels != known and sorted(map(str, labels)) == sorted(map(str, known)):
        raise ValueError(
            f"{name} has the classes {some(map(repr, labels))} as its index, but must "
            f"be in the order of the sorted labels {some(map(repr, known))}. Sort it, "
            f"or pass {name}.to_numpy() if its index means nothing"
        )


def read_views(model: KernelModel, X: Any) -> ReadViews:
    """Validate X on behalf of ``model``, and find out which rows lack a view."""
    views: list[View] = []
    positions: list[list[int]] = []
    if is_precomputed(model.views):
        if model.interactions:
            raise ValueError(
                "interactions=True needs columns to compute products of kernels from; "
                "views='precomputed' provides only kernels. Add products of centred "
                "kernels to the stack instead"
            )
        missing = model.missing != "error"
        data, names = read_kernels(model, X, reset=True, missing=missing)
    else:
        views = parse_views(model.views, reserved=model._get_param_names())
        X = validate_features(model, X, reset=True)
        views, positions = find_views(model, X, views)
        data = split_blocks(X, views, positions, model.missing)
        names = [view.name for view in views]
    read = ReadViews(data, names, views, positions)
    read.check_observed(model)
    return read


class ReadViews(NamedTuple):
    """Validated training rows."""

    data: ObservedViews  # the blocks of the views, or a stack of precomputed kernels
    names: list[str]  # of the views, or of the kernels
    views: list[View]  # empty if kernels are precomputed
    positions: list[list[int]]  # the columns of each view

    def check_observed(self, model: KernelModel) -> None:
        """Refuse views that no row has, and rows without any view."""
        if model.missing != "error":
            seen, joint = self.data.observed, [view.joint for view in self.views]
            check_every_view(seen, self.names, joint)
            check_some_view(seen, "training row")

    def take(self, model: KernelModel, keep: np.ndarray) -> ReadViews:
        """Only the rows ``keep`` (m,); precomputed kernels cannot leave out any."""
        n_left_out = len(self.data.observed) - len(keep)
        if n_left_out == 0:
            return self
        if not self.views:
            raise ValueError(
                f"{type(model).__name__}: sample_weight 0 leaves "
                f"{counted(n_left_out, 'row')} out of the training rows; with "
                "precomputed kernels remove such rows and columns from the kernels, so "
                "that later kernels have the right columns"
            )
        blocks = [select_rows(block, keep) for block in self.data.blocks]
        data = ObservedViews(blocks, self.data.observed[keep], keep)
        read = self._replace(data=data)
        read.check_observed(model)
        return read


def check_home(X: Any, like: Array, where: str) -> None:
    """Refuse rows in a different library or on a different device from earlier ones."""
    if same_home(X, like) if is_array(X) else is_numpy(like):
        return
    found = _home(X) if is_array(X) else f"a {type(X).__name__}"
    raise ValueError(
        f"Inputs passed to {where} must use the same namespace and the same device as "
        f"those passed to fit(): it was fitted on {_home(like)}, but X is {found}; "
        "move X there, or fit again where X is"
    )


def _home(x: Array) -> str:
    library = namespace(x).__name__.removeprefix("array_api_compat.")
    return f"an array of {library} on {device(x)}"


def device_array(like: Array, device: str | None) -> Array:
    """An array of no rows on the device, from torch or, without torch, from CuPy.

    Parameters
    ----------
    like : array
        Rows in host memory, which determine the dtype.
    device : str or None
        A device of torch such as "cuda" or "cuda:1", or "cupy"; None leaves rows where
        they are.
    """
    if device is None:
        return like
    dtype, problem = str(to_numpy(like).dtype), "torch is not installed"
    try:
        if device != "cupy" and importlib.util.find_spec("torch") is not None:
            import torch

            try:
                torch.device(device)
            except RuntimeError as error:  # whose message is long and changes
                raise LookupError("torch has no device of this name") from error
            return torch.empty((0, 1), dtype=getattr(torch, dtype), device=device)
        if device.startswith("cu"):
            import cupy

            return cupy.empty((0, 1), dtype=dtype)
    except LookupError as error:
        problem = str(error)
    except Exception as error:  # each library raises its own exceptions here
        problem = f"{type(error).__name__}: {error}"
    raise ValueError(
        f"device={device!r} cannot be used: {problem}. Install torch or CuPy for this "
        "device, or leave device at None."
    )


def on_device(model: KernelModel, read: ReadViews) -> tuple[ReadViews, Array]:
    """The rows where ``model`` computes its kernels, and no rows where X is."""
    blocks = read.data.blocks
    first = host_like(blocks[0]) if read.views else blocks
    home = detached(first[:0, ...])  # a view would keep all of X in memory
    if model.device is not None and read.views:
        read = _without_plain_columns(read)
    data = moved_rows(read.data, device_array(home, model.device))
    return read._replace(data=data), home


def _without_plain_columns(read: ReadViews) -> ReadViews:
    """With arrays in place of the columns that "auto" uses as the numbers they are."""
    views, blocks = [], []
    rows_of_views = read.data.observed.T
    for view, block, rows in zip(
        read.views, read.data.blocks, rows_of_views, strict=True
    ):
        view, found = settle(view, take_rows(block, rows))
        plain = isinstance(block, Columns) and not isinstance(found, Columns)
        blocks.append(block.numbers if plain else block)
        views.append(view)
    return read._replace(data=replace(read.data, blocks=blocks), views=views)


def map_rows(
    model: KernelModel,
    read: ReadViews,
    targets: np.ndarray,
    row_weights: np.ndarray | None,
) -> RowMap:
    """Fix the kernel parameters of ``model`` with the rows that count.

    Parameters
    ----------
    model : KernelModel
        The estimator.
    read : ReadViews
        The rows that count.
    targets : ndarray of shape (m,) or (m, t)
        Their targets, for transformers that need them; masked where they are unknown.
    row_weights : ndarray of shape (m,) or None
        From :func:`read_row_weights`.
    """
    read, like = on_device(model, read)
    data, names, views, positions = read
    lacking = not np.all(data.observed)
    observed = None if model.missing == "error" else data.observed
    standard = Standard.of(model, least_squares=model._least_squares)
    if views:
        movable = standard.is_default
        source: Source = FeatureSource(
            views, data.blocks, observed, squeezed(targets), movable, data.numbers
        )
    else:
        source = PrecomputedSource(data.blocks, names, observed)
    on_the_fly = model.features == "on_the_fly"
    if lacking and not standard.is_default:
        raise ValueError(
            f"missing={model.missing!r} completes kernels that are centred and scaled "
            f"over the rows that have them; got centre={model.centre!r} and "
            f"scale={model.scale!r}, but {rows_lacking(data.observed)}. Leave these "
            "parameters at their defaults, or drop such rows"
        )
    if lacking and on_the_fly:
        raise ValueError(
            f"missing={model.missing!r} completes the matrices of kernels, while "
            f"features='on_the_fly' keeps none, but {rows_lacking(data.observed)}. Use "
            "another value of features, or drop such rows"
        )
    storage: Storage = "fastest" if _learns_once(model) else "auto"
    storage = "on_the_fly" if on_the_fly else storage
    work = _work_matrices(model)
    if model.missing == "error":
        kernel_map = KernelMap(
            source,
            model.psd,
            row_weights,
            model._least_squares,
            storage,
            work,
            standard,
        )
    else:
        kernel_map = CompletedKernelMap(
            source,
            model.psd,
            model.missing,
            equal_trace=bool(model.signed),
            row_weights=row_weights,
            scale_rows=model._least_squares,
            storage=storage,
            work_matrices=work,
            standard=standard,
        )
    return RowMap(kernel_map, like, source.views, positions)


def _learns_once(model: KernelModel) -> bool:
    """Whether weights are learned by default, without folds that need kernels again."""
    learns = "n_features" in model._get_param_names()
    return learns and model.solver == "auto" and model.cv is None


def squeezed(targets: np.ndarray) -> np.ndarray:
    """Targets as a transformer expects them: a single output is one-dimensional."""
    return targets if targets.ndim == 1 or targets.shape[1] > 1 else targets[:, 0]


def _work_matrices(model: KernelModel) -> float:
    """The n x n arrays that a fit needs in addition to kernels made on the fly.

    One is enough to factor their sum in place; an eigendecomposition takes four.
    """
    in_place = model.alpha not in (None, "loo")
    return IN_PLACE if in_place else float(WORK_MATRICES)


def read_design(
    model: KernelModel, X: Any, y: Any, sample_weight: Any, groups: Any
) -> tuple[np.ndarray, np.ndarray, RowDesign]:
    """Targets of the rows that count, which rows these are, their weights and groups.

    X may hold rows that have not been read yet.
    """
    owner, targets = type(model).__name__, check_targets(model, X, y)
    labels = targets if is_classifier(model) else None
    given = sample_weight, model.class_weight, owner
    keep, weights = read_row_weights(X, labels, *given)
    check_same_rows(X, groups, owner, "groups")
    codes = read_groups(groups, len(targets), owner, keep=keep)
    if weights is not None and model.C is None:  # rows are left out one by one
        _refuse_dominance(weights, codes, keep, owner)
    kept = None
    if len(keep) < len(targets):
        kept = np.isin(np.arange(len(targets)), keep)
    return targets[keep], keep, RowDesign(len(keep), weights, codes, kept=kept)


#: If all others weigh no more than this, relative to one row or group, only rounding
#: is left without it.
NOTHING_LEFT = 1e-12


def _refuse_dominance(
    weights: np.ndarray, codes: np.ndarray | None, keep: np.ndarray, owner: str
) -> None:
    """Refuse a row, or group, without which no weight would be left in float64."""
    units = np.arange(len(weights)) if codes is None else codes
    sums = np.bincount(units, weights)
    most = int(np.argmax(sums))
    rest = float(np.sum(np.delete(sums, most)))
    if len(sums) > 1 and rest <= NOTHING_LEFT * sums[most]:
        row = int(keep[units == most][0])
        whose = f"row {row}" if codes is None else f"the group of row {row}"
        raise ValueError(
            f"{owner}: {whose} has the weight {sums[most]:.3g}, and all other rows "
            f"together {rest:.3g}: too little to learn from when it is left out. "
            "Reduce its sample_weight"
        )


def read_weighted_views(
    model: KernelModel,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any = None,
) -> tuple[ReadViews, np.ndarray, RowDesign]:
    """The rows that count, their targets, and their weights and groups."""
    read = read_views(model, X)
    targets, keep, design = read_design(model, X, y, sample_weight, groups)
    require_enough(model, targets)
    read = read.take(model, keep)
    ranks = ranks_of_rows(read.data, targets, design.weights)
    return read, targets, replace(design, ranks=ranks)


def read_weighted_rows(
    model: KernelModel, *given: Any
) -> tuple[RowMap, np.ndarray, RowDesign]:
    """:func:`read_weighted_views` with the kernels of the rows."""
    read, targets, design = read_weighted_views(model, *given)
    return map_rows(model, read, targets, design.weights), targets, design


def read_labelled_rows(
    model: KernelModel, X: Any, y: Any, sample_weight: Any
) -> tuple[RowMap, np.ndarray, np.ndarray, RowDesign]:
    """:func:`read_weighted_rows` with classes (k,) and the codes (n,) of the rows."""
    rows, labels, design = read_weighted_rows(model, X, y, sample_weight)
    return rows, *np.unique(labels, return_inverse=True), design


def find_views(
    model: KernelModel, X: Any, views: list[View]
) -> tuple[list[View], list[list[int]]]:
    """The views, with products of them if the model has any, and their columns.

    Views that look samples up get ids of their own. Those whose kernels read columns as
    they stand in the table are marked: arrays of numbers are always read as numbers,
    and so is a view that is the product of others.
    """
    positions = resolve_columns(X, views)
    views = [with_own_ids(view) for view in views]
    if model.interactions:
        views, positions = with_products(views, positions)
    if _has_columns(X):
        views = [
            replace(view, raw=_reads_columns(X, view, columns))
            for view, columns in zip(views, positions, strict=True)
        ]
    return views, positions


def _has_columns(X: Any) -> bool:
    """Whether X is a table, or an array of objects, rather than one of numbers."""
    objects = is_numpy(X) and X.dtype.kind not in "fiubc"
    return objects or not (issparse(X) or is_array(X))


def _reads_columns(X: Any, view: View, columns: list[int]) -> bool:
    check_names(view)
    found = readers(view.kernel)
    if view.joint:
        _check_products(read_columns(X, columns))
    if found == {"numbers"}:
        return False
    if "transformer" in found or ("auto" in found and not is_array(X)):
        return True
    # Numbers arrive at a callable as an array, and arrays of them are used as they are.
    block = read_columns(X, columns)
    return not block.is_numeric and ("callable" in found or block.is_known)


def _check_products(block: Columns) -> None:
    """Refuse products of kernels on columns that are not numbers."""
    for j, label in enumerate(block.labels):
        kind = block.column(j).kind
        if kind not in ("number", "boolean"):
            raise ValueError(
                f"interactions=True multiplies kernels on numbers, but the column "
                f"{label!r} holds values of the kind {kind!r}. Encode it before the "
                "fit, or set interactions=False"
            )


def split_blocks(
    X: Any,
    views: list[View],
    positions: list[list[int]],
    missing: str,
    dtype: Any = None,
    widths: list[int] | None = None,
) -> ObservedViews:
    """One block per view; isolated NaN are allowed where the kernel imputes.

    A view without any columns in X, which had ``widths[v]`` of them in training, is
    missing in every row.
    """
    n, width = int(X.shape[0]), len(views)
    blocks: list[Any] = [None] * width
    observed = np.zeros((n, width), dtype=bool)
    present = [v for v in range(width) if positions[v]]
    plain = [v for v in present if not views[v].raw]
    raw = {v: read_columns(X, positions[v]) for v in present if views[v].raw}
    if dtype is None and not all(block.is_single for block in raw.values()):
        dtype = np.float64
    medians = _medians_of(X, views, positions, plain)
    if plain:
        found, observed[:, plain] = split_views(
            X,
            [views[v] for v in plain],
            [positions[v] for v in plain],
            missing=missing != "error",
            partial=[v in medians or imputes(views[v].kernel) for v in plain],
            dtype=dtype,
        )
        dtype = found[0].dtype
        for v, block in zip(plain, found, strict=True):
            blocks[v] = block
    dtype = np.float32 if dtype is None else dtype
    for v, block in raw.items():
        blocks[v] = block.astype(dtype)
        observed[:, v] = _check_columns(views[v], blocks[v], missing)
    for v in medians:
        if views[v].joint:  # a product is lacking where a view is
            observed[:, v] &= np.all(np.delete(observed, v, axis=1), axis=1)
    for v in medians:
        blocks[v] = fill_gaps(views[v], blocks[v], medians[v], observed[:, v])
    for v in set(range(width)) - set(present):
        shape = n, (widths or [1] * width)[v]
        if views[v].raw:
            blocks[v] = Columns(np.full(shape, None), list(range(shape[1])), dtype)
        else:
            blocks[v] = np.full(shape, np.nan, dtype)
    return ObservedViews(blocks, observed)


def _medians_of(
    X: Any,
    views: list[View],
    positions: list[list[int]],
    plain: list[int],
) -> dict[int, np.ndarray]:
    """By number, the views of plain numbers whose gaps in new rows are filled, and how.

    Products of views have the medians of their columns.
    """
    if not _has_columns(X):
        return {}
    plans = {v: views[v].plan for v in plain if views[v].plan is not None}
    found = {v: p.medians for v, p in plans.items() if p.medians is not None}
    pairs = (zip(positions[v], found[v], strict=True) for v in found)
    known = {column: median for own in pairs for column, median in own}
    for v in plain:
        if views[v].joint and set(positions[v]) <= set(known):
            found[v] = np.array([known[column] for column in positions[v]])
    return found


def read_new_rows(
    model: KernelModel,
    X: Any,
    views: list[View],
    positions: list[list[int]],
    like: Array,
    missing: str,
) -> ObservedViews:
    """One block per view of new rows, with the views and columns of training rows."""
    may_lack = missing != "error"
    X, found = validate_new(model, X, views, positions, may_lack=may_lack)
    widths = [len(columns) for columns in positions]
    return split_blocks(X, views, found, missing, like.dtype, widths)


def _check_columns(view: View, block: Columns, missing: str) -> np.ndarray:
    """Which rows (n,) have a view that is read as it is.

    Kernels on numbers accept nothing else; a transformer reads anything.
    """
    rows = ~np.all(block.gaps, axis=1)
    if missing == "error":
        refuse_lacking(view, ~rows)
    if "numbers" in readers(view.kernel):
        check_numbers(block, view, rows)
    if view.plan is not None:
        warn_unseen(view, block, rows)
    return rows
