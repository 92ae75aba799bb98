"""The rows and the model at the end of a Pipeline or search."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.utils.validation import check_is_fitted

from kernelweave._array import to_numpy
from kernelweave._text import counted, some
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.design import RowDesign
from kernelweave.fits.targets import StandardOutputs
from kernelweave.models.shared.base import KernelModel
from kernelweave.models.shared.inputs import (
    check_priors,
    class_weights,
    of_own_type,
    read_groups,
)
from kernelweave.views.columns import is_dict
from kernelweave.views.precomputed import stack_kernels
from kernelweave.views.raw_columns import Columns


@contextmanager
def without_repeated_warnings() -> Iterator[None]:
    """Silence warnings about rows in fits to parts of them: the fit to all gave them.

    Otherwise each fold would report as new any value that only a held-out row has.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelWarning)
        yield


def design_for(
    model: KernelModel,
    groups: Any,
    n: int,
    owner: str,
    does: str,
    weights: np.ndarray | None = None,
) -> RowDesign:
    """The groups (and weights) of n rows; a warning if only ``fit`` was given groups.

    ``owner`` and what it ``does`` with groups are for messages.
    """
    if groups is None and model._has_groups:
        warnings.warn(
            f"{owner} was not given the groups that the {type(model).__name__} was "
            "fitted with, so it takes all rows for independent, and chance may look "
            "like a finding. Pass groups",
            KernelWarning,
            stacklevel=3,
        )
    return RowDesign(n, weights, read_groups(groups, n, owner, does))


def warn_of_weights(model: KernelModel, owner: str) -> None:
    """Warn that refits ignore the ``sample_weight`` that ``fit`` was given."""
    if model._has_row_weights:
        warnings.warn(
            f"{owner} refits without the sample_weight that the "
            f"{type(model).__name__} was fitted with: what it finds holds for rows "
            "that count alike",
            KernelWarning,
            stacklevel=4,
        )


def refittable(estimator: Any) -> Any:
    """The estimator that a search has chosen, or the estimator itself."""
    while hasattr(estimator, "best_estimator_"):
        estimator = estimator.best_estimator_
    return estimator


def last_step(estimator: Any) -> Any:
    """The last step of a Pipeline or of what a search has chosen, however nested."""
    estimator = refittable(estimator)
    if hasattr(estimator, "steps"):
        return last_step(estimator.steps[-1][1])
    return estimator


def taken_by(method: Any, of_rows: dict[str, Any]) -> dict[str, np.ndarray]:
    """The per-row arguments that a method's ``fit`` takes: all, if ``**kwargs``.

    Those of a Pipeline are for its last step.
    """
    if hasattr(method, "steps"):
        name, last = method.steps[-1]
        return {f"{name}__{key}": v for key, v in taken_by(last, of_rows).items()}
    known = inspect.signature(method.fit).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in known.values())
    given = {name: v for name, v in of_rows.items() if v is not None}
    return {name: v for name, v in given.items() if takes_all or name in known}


def fitted_model(estimator: Any) -> Any:
    """The fitted estimator of this package inside a Pipeline or search."""
    estimator = last_step(estimator)
    check_is_fitted(estimator)
    if not isinstance(estimator, KernelModel):
        lacks = "has no kernel weights"
        if hasattr(estimator, "kernel_weights_"):
            lacks = f"is not derived from {KernelModel.__module__}.KernelModel"
        raise TypeError(
            "expected a fitted estimator of kernelweave, or a Pipeline or search that "
            f"ends in one; got {type(estimator).__name__}, which {lacks}"
        )
    return estimator


def model_and_rows(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The fitted model inside a Pipeline or search, and X after the steps before it."""
    model = fitted_model(estimator)
    while (estimator := refittable(estimator)) is not model:
        if len(estimator.steps) > 1 and X is not None:
            X = estimator[:-1].transform(X)
        estimator = estimator.steps[-1][1]
    return model, X


def require_predictions(model: Any, caller: str) -> None:
    """Refuse a model that only transforms."""
    if not hasattr(model, "predict"):
        raise TypeError(
            f"{caller} needs a model that predicts; {type(model).__name__} only "
            "transforms. Pass the classifier that follows it instead"
        )


def row_labels(X: Any) -> list[Any]:
    """Index of a pandas DataFrame, else 0, 1, ..."""
    X = next(iter(X.values())) if is_dict(X) else X
    index = getattr(X, "index", None)
    if index is not None and not callable(index):
        return list(index)
    return list(range(X.shape[0] if hasattr(X, "shape") else len(X)))


def has_products(model: Any, view: str) -> bool:
    """Whether this view of a fitted model holds the products of the others."""
    return any(own.name == view and own.joint for own in model._views)


def views_of(model: Any) -> tuple[list[str], np.ndarray]:
    """Names (v,) of the views, and the view number (p,) of each kernel."""
    names = list(dict.fromkeys(model.kernel_map_.view_names))
    places = [names.index(name) for name in model.kernel_map_.view_names]
    return names, np.array(places)


def shares_of(model: Any) -> dict[str, float]:
    """The share of each view, the largest first."""
    return dict(sorted(model.view_shares_.items(), key=lambda item: -item[1]))


def weight_in_words(model: Any) -> str:
    """Which views have the weight, in a sentence."""
    shares = shares_of(model)
    large = [f"{v} ({100 * s:.0f} %)" for v, s in shares.items() if s >= 0.01]
    if not large:
        return "Every view has less than 1 % of the weight."
    small = len(shares) - len(large)
    rest = f"; {counted(small, 'view')} got less than 1 %" if small else ""
    return f"The weight went to {some(large)}{rest}."


def rows_kept_by(model: Any) -> dict[str, int]:
    """How many rows a fitted model holds, by what needs them.

    Those of "kernels" are all training rows, "landmarks" some of them, both after their
    transformers. Those of "partial_fit" are needed for further portions alone.
    """
    parts = model.kernel_map_.parts
    exact = [part.source for part in parts if hasattr(part.source, "features")]
    maps = [made for part in parts if part.source is None for made in part.recipe.maps]
    portions = model._portions
    return {
        "kernels": max((source.n_samples for source in exact), default=0),
        "landmarks": sum(len(getattr(made, "landmarks", ())) for made in maps),
        "partial_fit": 0 if portions is None else portions.n_kept,
    }


def rows_kept_in_words(model: Any) -> str:
    """Whether and why a model holds training rows, in sentences."""
    kept, parts = rows_kept_by(model), model.kernel_map_.parts
    reasons = []
    if kept["kernels"]:
        every = counted(kept["kernels"], "training row")
        held = [rows for part in parts for rows in getattr(part.source, "features", ())]
        form = "as numbers, after their transformers"
        if any(isinstance(rows, Columns) for rows in held):
            form = "with the cells of the table that a kernel function reads"
        reasons.append(f"{every} {form}, with which new rows are compared")
    if kept["landmarks"]:
        reasons.append(f"{counted(kept['landmarks'], 'training row')} as landmarks")
    if kept["partial_fit"]:
        rows = counted(kept["partial_fit"], "row")
        reasons.append(
            f"{rows} with which partial_fit goes on (save(..., resumable=False) leaves "
            "them out)"
        )
    text = "no training rows, only what was computed from them"
    text = f"It holds {' and '.join(reasons) or text}."
    # these belong to others, who may keep what they like
    steps = [p for part in parts if part.source is None for p in part.recipe.steps]
    foreign = {
        type(step).__name__ for own in steps for step in own if _is_foreign(step)
    }
    if foreign:
        text += f" What {some(sorted(foreign))} may keep of the rows is not counted."
    return text


def _is_foreign(step: Any) -> bool:
    return not type(step).__module__.startswith("kernelweave.")


def chosen_by(model: Any) -> dict[str, np.ndarray]:
    """Norm and regularisation of a fit, as far as the model has them."""
    found = {name: getattr(model, f"{name}_", None) for name in ("norm", "alpha", "C")}
    return {k: np.ravel(to_numpy(v)) for k, v in found.items() if v is not None}


def chosen_in_words(model: Any) -> list[str]:
    """The same, as "norm 2" and "alpha 0.1"."""
    chosen = chosen_by(model).items()
    return [f"{name} {some(f'{v:.4g}' for v in numbers)}" for name, numbers in chosen]


def targets_of(y: Any, owner: str) -> np.ndarray:
    """Targets (n,) or (n, t) in host memory; a single column becomes (n,)."""
    values = of_own_type(y, owner)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def standard_outputs(
    y: np.ndarray, owner: str, why: str, weights: np.ndarray | None = None
) -> StandardOutputs:
    """Outputs (n,) or (n, t) of a regression; it is an error if none varies.

    The message begins with ``owner`` and says ``why`` they must.
    """
    outputs = StandardOutputs.of(y.reshape(len(y), -1).astype(float), weights)
    if not outputs.varies.any():
        raise ValueError(
            f"{owner}: y is constant ({outputs.mean[0]:.3g} in every row), so {why}; "
            "pass outputs that vary"
        )
    return outputs


def as_stack(X: Any, model: Any) -> Any:
    """A dict of precomputed kernels (m, n) as a stack (m, n, p); else X itself."""
    if not (is_dict(X) and model._precomputed):
        return X
    return stack_kernels(X, model.kernel_names_, model, model._gaps)[0]


def observed_views(model: Any, X: Any = None) -> np.ndarray | None:
    """Which rows of X have which view, (n, v), if any lacks one; X=None: training rows.

    Training rows of weight 0 are excluded.
    """
    seen: np.ndarray | None = model.kernel_map_.seen
    if X is not None and model._gaps:
        seen = model._observed_rows(X, "inspection").observed
    return None if seen is None or np.all(seen) else seen


def rows_by_class(model: Any, y: np.ndarray, weights: Any = None) -> np.ndarray:
    """How much each row (n,) counts with the class weights or priors of a classifier.

    Parameters
    ----------
    model : estimator
        Its priors, if given, are the shares of the classes.
    y : ndarray of shape (n,)
        Labels.
    weights : ndarray of shape (n,), optional
        Other weights of the rows.
    """
    classes, codes = np.unique(y, return_inverse=True)
    priors = check_priors(model.priors, classes)
    each = np.ones(len(y)) if weights is None else weights
    factors = class_weights(model.class_weight, classes, codes, each)
    if priors is not None:
        factors = priors * np.sum(each) / np.bincount(codes, each)
    return np.asarray(each * factors[codes])


def by_class_of(model: Any, measure: str) -> str:
    """The name of a measure in which rows count as in :func:`rows_by_class`."""
    if model.priors is not None:
        return f"prior-weighted {measure}"
    if model.class_weight is None:
        return measure
    balanced = isinstance(model.class_weight, str)
    return f"{'balanced' if balanced else 'class-weighted'} {measure}"


def without_views(classify: bool) -> Any:
    """The model that predicts the class proportions, or the mean."""
    return DummyClassifier() if classify else DummyRegressor()


def probabilities(model: Any, X: Any, classes: np.ndarray) -> np.ndarray:
    """Probabilities (m, k) of all classes; 0 for those that the model does not know."""
    found = to_numpy(model.predict_proba(X))
    full = np.zeros((len(found), len(classes)))
    full[:, np.searchsorted(classes, to_numpy(model.classes_))] = found
    return full


def loss_name(model: Any, n_outputs: int = 1) -> str:
    """The loss by which a model is judged on held-out rows.

    Several outputs may be in units that have nothing to do with each other.
    """
    if not is_classifier(model):
        return "squared error" + " of standardised outputs" * (n_outputs > 1)
    return "log loss" if hasattr(model, "predict_proba") else "error rate"


def log_losses(proba: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The log loss (m,) of each row, for probabilities (m, k) and classes (m,)."""
    safe = np.clip(proba, np.finfo(float).eps, None)
    safe /= np.sum(safe, axis=1, keepdims=True)
    return -np.log(safe[np.arange(len(codes)), codes])
