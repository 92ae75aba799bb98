"""What a fit is given, checked: parameters, targets, training rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing, assert_all_finite
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_array,
    check_consistent_length,
    column_or_1d,
)

from kernelweave._array import Array, detached, is_array, to_numpy
from kernelweave.fits.subspace import label_factor, target_factor
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.kernels.interactions import with_products
from kernelweave.kernels.maps.kernel_map import (
    FeatureSource,
    KernelMap,
    PrecomputedSource,
    Source,
)
from kernelweave.kernels.maps.missing import CompletedKernelMap, imputes
from kernelweave.kernels.spec import warn_twins
from kernelweave.views.columns import View, is_precomputed, parse_views, resolve_columns
from kernelweave.views.missing import (
    ObservedViews,
    check_every_view,
    check_some_view,
    precomputed_with_missing,
    split_with_missing,
)
from kernelweave.views.precomputed import validate_precomputed
from kernelweave.views.validate import split_views, validate_features

T = TypeVar("T")


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
        real = isinstance(value, int | float | np.number)
        return real and not isinstance(value, bool | np.bool_) and bool(test(value))

    return Rule(" or ".join([text, *map(repr, words)]), allows)


def positive(*words: str) -> Rule:
    """A finite number above zero, or one of these words."""
    return number("a finite number > 0", lambda v: np.isfinite(v) and v > 0, *words)


def whole(lowest: int, optional: bool = False) -> Rule:
    """An integer of at least ``lowest``, or None if ``optional``."""
    text = f"an int >= {lowest}"
    rule = number(text, lambda v: isinstance(v, Integral) and int(v) >= lowest)
    if not optional:
        return rule
    return Rule(f"None or {text}", lambda v: v is None or rule.allows(v))


boolean = Rule("a bool", lambda v: isinstance(v, bool | np.bool_))

#: Parameters that mean the same in every estimator that has them.
COMMON = {
    "norm": number("a number >= 1", lambda v: v >= 1),
    "n_components": whole(1, optional=True),
    "uncorrelated": boolean,
    "signed": boolean,
    "weight_bound": number("a number >= 1", lambda v: np.isfinite(v) and v >= 1),
    "tol": number("a number > 0", lambda v: v > 0),
    "max_iter": whole(1, optional=True),
    "interactions": boolean,
    "psd": one_of("error", "clip", "trust"),
    "missing": one_of("error", "available", "zero"),
    "verbose": whole(0),
}


def check_parameters(estimator: Any, **own: Rule) -> None:
    """Refuse the first parameter whose value breaks its own or the common rule."""
    for name, rule in {**COMMON, **own}.items():
        if hasattr(estimator, name) and not rule.allows(getattr(estimator, name)):
            raise ValueError(
                f"The {name!r} parameter of {type(estimator).__name__} must be "
                f"{rule.text}; got {getattr(estimator, name)!r}"
            )


def read_options(kind: type[T], model: Any) -> T:
    """The dataclass ``kind`` filled with the model's parameters, or its defaults."""
    found = {f.name: getattr(model, f.name, f.default) for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**found)


def require_targets(y: Any, owner: str) -> Any:
    """Targets in host memory; ``owner`` names the estimator that needs them."""
    if y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None")
    return to_numpy(y) if is_array(y) else y


def check_labels(X: Any, y: Any, owner: str) -> np.ndarray:
    """The labels (n,) of the rows of X."""
    y = column_or_1d(require_targets(y, owner), warn=True)
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    check_consistent_length(X, y)
    return y


def encode_labels(labels: np.ndarray, owner: str) -> tuple[np.ndarray, np.ndarray]:
    """The classes (k,), at least two of them, and the codes (n,) of labels (n,)."""
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"{owner} needs at least 2 classes in y; the {len(labels)} sample(s) "
            f"contain 1 class: {classes.tolist()[0]!r}"
        )
    return classes, codes.reshape(-1)


def read_classes(X: Any, y: Any, owner: str) -> tuple[np.ndarray, np.ndarray]:
    """The classes (k,), and the codes (n,) of the rows of X."""
    return encode_labels(check_labels(X, y, owner), owner)


def check_outputs(X: Any, y: Any, owner: str) -> np.ndarray:
    """The outputs of the rows of X as (n, n_outputs) in float64."""
    y = check_array(
        require_targets(y, owner), ensure_2d=False, dtype=np.float64, input_name="y"
    )
    check_consistent_length(X, y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    return y.reshape(len(y), -1)


def require_rows(outputs: np.ndarray, owner: str) -> None:
    """Refuse a single row, which has no variance to explain."""
    if len(outputs) < 2:
        raise ValueError(f"{owner} needs at least 2 rows; found 1 sample")


def check_targets(model: Any, X: Any, y: Any) -> np.ndarray:
    """Labels (n,) for a classifier, outputs (n, n_outputs) for a regressor."""
    check = check_labels if is_classifier(model) else check_outputs
    return check(X, y, type(model).__name__)


def require_enough(model: Any, targets: np.ndarray) -> None:
    """Refuse targets from which nothing can be learned."""
    check = encode_labels if is_classifier(model) else require_rows
    check(targets, type(model).__name__)


def check_numbers_or_labels(X: Any, y: Any, owner: str) -> tuple[np.ndarray, str]:
    """Labels or numbers as an array, and scikit-learn's type of target."""
    y = np.asarray(require_targets(y, owner))
    check_consistent_length(X, y)
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    return y, type_of_target(y, input_name="y")


def as_outputs(y: np.ndarray, kind: str, owner: str) -> np.ndarray:
    """Checked targets that are not classes, as (n, n_outputs) in float64."""
    if y.dtype.kind not in "fiub":
        raise ValueError(
            f"Unknown label type: {kind!r}. {owner} takes class labels or numbers"
        )
    return check_array(y.reshape(len(y), -1), dtype=np.float64, input_name="y")


def read_label_factor(
    X: Any, y: Any, kernel: Any, owner: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """The factor L (n, r) for the rows of X, and the classes (k,) if y holds classes.

    ``kernel`` is the ``label_kernel`` of :class:`~kernelweave.SubspaceKernel`;
    ``owner`` names the estimator in messages.
    """
    y, kind = check_numbers_or_labels(X, y, owner)
    named = isinstance(kernel, str)
    if kind in ("binary", "multiclass") and not (named and kernel == "linear"):
        classes, codes = encode_labels(y, owner)
        values = classes[:, None]
        given = kernel(values, values) if callable(kernel) else kernel
        return label_factor(codes, len(classes), given), classes
    if callable(kernel):  # of the distinct rows of outputs
        values, codes = np.unique(y.reshape(len(y), -1), axis=0, return_inverse=True)
        if len(values) < 2:
            raise ValueError(
                f"{owner} needs at least 2 distinct rows of outputs in y; all {len(y)} "
                f"are {values.tolist()[0]!r}"
            )
        given = kernel(values, values)
        return label_factor(codes.reshape(-1), len(values), given), None
    if not named or kernel == "indicator":
        raise ValueError(
            f"label_kernel={kernel!r} needs class labels, but y is {kind}; use "
            "'linear' or a callable for numbers"
        )
    outputs = as_outputs(y, kind, owner)
    require_rows(outputs, owner)
    return target_factor(outputs), None


@dataclass(frozen=True)
class RowMap:
    """How rows are read and mapped to the kernels of a fit."""

    kernel_map: Any  # KernelMap, FeatureKernelMap or ViewMaps
    like: Array  # no rows, in the namespace, device and dtype of the training rows
    views: list[View]  # empty for precomputed kernels
    positions: list[list[int]]  # the columns of each view
    #: ``n_features_in_`` and ``feature_names_in_``, if the validation of X has not set
    #: them already.
    noted: dict[str, Any] = field(default_factory=dict)

    def kernels(self, progress: Callable[[int], object]) -> DenseBank:
        """Compute all kernels between the training rows."""
        bank = self.kernel_map.fit(progress)
        warn_twins(self.views, self.positions)
        return bank


def read_row_weights(
    X: Any, y: Any, sample_weight: Any, class_weight: Any, owner: str
) -> np.ndarray | None:
    """Weights of the rows (n,) from those given and those of the classes; None: all 1.

    Raises
    ------
    ValueError
        If a weight is negative or not a number, or a class has no weight.
    """
    if sample_weight is None and class_weight is None:
        return None
    weights = np.ones(_num_samples(X))
    if sample_weight is not None:
        given = to_numpy(sample_weight) if is_array(sample_weight) else sample_weight
        weights = _check_sample_weight(given, weights, dtype=np.float64, copy=True)
    if np.any(weights < 0):
        row = int(np.argmax(weights < 0))
        raise ValueError(
            f"{owner} needs sample weights >= 0; found {weights[row]:.3g} in row {row}"
        )
    if class_weight is not None:
        labels = np.asarray(require_targets(y, owner))
        weights = weights * compute_sample_weight(class_weight, labels)
        for label in np.unique(labels):
            if not np.any(weights[labels == label] > 0):
                raise ValueError(
                    f"{owner}: every row of class {label!r} has weight zero; leave the "
                    "class out, or give it a weight"
                )
    if not np.any(weights > 0):
        raise ValueError(f"{owner}: every sample weight is zero")
    return weights


def read_groups(groups: Any, n: int, owner: str) -> np.ndarray | None:
    """Codes (n,) of the groups; None if every row is a group of its own."""
    if groups is None:
        return None
    groups = column_or_1d(to_numpy(groups) if is_array(groups) else groups)
    if len(groups) != n:
        raise ValueError(
            f"{owner}: groups has {len(groups)} entries, but there are {n} rows"
        )
    values, codes = np.unique(groups, return_inverse=True)
    if len(values) < 2:
        raise ValueError(
            f"{owner} leaves out one group at a time, which needs at least 2 groups; "
            f"all rows are in group {values[0]!r}"
        )
    return None if len(values) == n else codes


def read_row_design(
    model: Any, X: Any, y: Any, sample_weight: Any, groups: Any
) -> tuple[Any, Any, np.ndarray | None, np.ndarray | None]:
    """The rows that count, their targets, weights (n,) and codes of groups (n,)."""
    owner = type(model).__name__
    class_weight = getattr(model, "class_weight", None)
    if groups is not None:
        groups = read_groups(groups, _num_samples(X), owner)
    weights = read_row_weights(X, y, sample_weight, class_weight, owner)
    if weights is None:
        return X, y, None, groups
    if model.missing != "error":
        raise ValueError(
            f"{owner} has no weights of rows with missing views yet; got "
            f"missing={model.missing!r} and sample_weight or class_weight"
        )
    if not np.all(weights > 0):
        if is_precomputed(model.views):
            raise ValueError(
                f"{owner}: row {int(np.argmin(weights))} has weight zero; leave such "
                "rows out of precomputed kernels, as rows and as columns"
            )
        keep = np.flatnonzero(weights > 0)
        X, y, weights = _safe_indexing(X, keep), _safe_indexing(y, keep), weights[keep]
        groups = None if groups is None else read_groups(groups[keep], len(keep), owner)
    return X, y, weights, groups


def read_rows(model: Any, X: Any, row_weights: np.ndarray | None = None) -> RowMap:
    """Validate X on behalf of ``model``, and fix the kernel parameters.

    No kernel is computed yet.
    """
    data, names, views, positions = read_views(model, X)
    observed = None if model.missing == "error" else data.observed
    if views:
        source: Source = FeatureSource(views, data.blocks, observed)
    else:
        source = PrecomputedSource(data.blocks, names, observed)
    like = detached(source.like[:0, ...])  # a view would keep all of X in memory
    kernel_map = KernelMap(source, model.psd, row_weights)
    if model.missing != "error":
        signed = bool(getattr(model, "signed", False))
        kernel_map = CompletedKernelMap(source, model.psd, model.missing, signed)
    return RowMap(kernel_map, like, views, positions)


def wants_products(model: Any) -> bool:
    """Whether the model has a kernel between views in any case."""
    value = getattr(model, "interactions", False)
    return not isinstance(value, str) and bool(value)


def read_views(
    model: Any, X: Any
) -> tuple[ObservedViews, list[str], list[View], list[list[int]]]:
    """Validate X on behalf of ``model``, and find out which rows lack a view.

    Returns the blocks of the views, or a stack of precomputed kernels, their names, the
    views and their columns; there are no views if kernels are precomputed.
    """
    views, positions = [], []
    products = wants_products(model)
    if is_precomputed(model.views):
        if products:
            raise ValueError(
                "interactions=True needs columns to compute products of kernels from; "
                "views='precomputed' provides only kernels. Add products of centred "
                "kernels to the stack instead"
            )
        data, names = read_kernels(model, X, reset=True)
    else:
        views = parse_views(model.views, reserved=model._get_param_names())
        X = validate_features(model, X, reset=True)
        positions = resolve_columns(X, views)
        if products:
            views, positions = with_products(views, positions)
        data = split_blocks(model, X, views, positions)
        names = [view.name for view in views]
    if model.missing != "error":
        check_every_view(data.observed, names, [view.joint for view in views])
        check_some_view(data.observed, "training")
    return data, names, views, positions


def read_kernels(
    model: Any, X: Any, trained: np.ndarray | None = None, **expected: Any
) -> tuple[ObservedViews, list[str]]:
    """Precomputed kernels (m, n, p), which rows have each of them, and their names.

    ``trained`` (n, p) tells which training rows had which kernel; ``expected`` goes to
    :func:`validate_precomputed`.
    """
    if model.missing != "error":
        return precomputed_with_missing(model, X, trained=trained, **expected)
    stack, names = validate_precomputed(model, X, **expected)
    return ObservedViews(stack, np.ones(stack.shape[::2], dtype=bool)), names


def split_blocks(
    model: Any, X: Any, views: list[View], positions: list[list[int]], dtype: Any = None
) -> ObservedViews:
    """One block per view; isolated NaN are allowed where the kernel imputes."""
    if model.missing == "error":
        blocks = split_views(X, views, positions, dtype=dtype)
        shape = (blocks[0].shape[0], len(blocks))
        return ObservedViews(blocks, np.ones(shape, dtype=bool))
    partial = [imputes(view.kernel) for view in views]
    return split_with_missing(X, views, positions, partial=partial, dtype=dtype)
