"""Every estimator of the package, in all settings worth testing.

One list serves all test files::

    @every_estimator  # one setting per estimator
    @pytest.mark.parametrize("estimator", some(ONE_EACH, has("predict_proba")))
    @pytest.mark.parametrize("estimator", some(["KernelFDA", "KernelFDA-fixed"]))
    @pytest.mark.parametrize("estimator", some(SETTINGS, of(KernelAlignment)))
    @pytest.mark.parametrize("kind", kinds(fits_with("groups")))  # classes
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from inspect import getdoc, signature

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    ProbabilisticKDA,
    SubspaceKernel,
    SubspaceKernelSVC,
    TransductiveKernelSVC,
)
from kernelweave._array import to_numpy

#: Parameters of a learner that has little to choose.
PLAIN = {"norm": 1, "alpha": 0.1, "cv": None}
NYSTROEM = {"features": "nystroem", "n_features": 8, "random_state": 0}

#: Names, which start with that of the class, and estimators. Tests set the views.
SETTINGS: dict[str, BaseEstimator] = {
    "KernelFDA": KernelFDA(),
    "KernelFDA-fixed": KernelFDA(alpha=0.1),
    "MultipleKernelFDA": MultipleKernelFDA(cv=2),
    "MultipleKernelFDA-l1": MultipleKernelFDA(norm=1, alpha=0.1),
    "MultipleKernelFDA-l1-learn": MultipleKernelFDA(norm=1, alpha="learn"),
    "MultipleKernelFDA-l2-learn": MultipleKernelFDA(norm=2, alpha="learn"),
    "MultipleKernelFDA-closed": MultipleKernelFDA(
        norm=2, alpha=0.1, solver="closed_form"
    ),
    "MultipleKernelFDA-cutting": MultipleKernelFDA(
        norm=1, alpha=0.1, solver="cutting_plane"
    ),
    "MultipleKernelFDA-l4/3": MultipleKernelFDA(norm=4 / 3),
    "MultipleKernelFDA-exact": MultipleKernelFDA(norm=4 / 3, features="exact"),
    "MultipleKernelFDA-nystroem": MultipleKernelFDA(norm=1, alpha=0.1, **NYSTROEM),
    "MultipleKernelRidge-l1": MultipleKernelRidge(norm=1, alpha=0.1),
    "MultipleKernelRidge-l2-learn": MultipleKernelRidge(norm=2, alpha="learn"),
    "MultipleKernelRidge-nystroem": MultipleKernelRidge(norm=1, alpha=0.1, **NYSTROEM),
    "MultipleKernelSVC": MultipleKernelSVC(tol=1e-3),
    "MultipleKernelSVC-learn": MultipleKernelSVC(margin="l2", C="learn"),
    "TransductiveKernelSVC": TransductiveKernelSVC(signed=False, tol=1e-3),
    "TransductiveKernelSVC-signed": TransductiveKernelSVC(tol=1e-2),
    "KernelAlignment": KernelAlignment(),
    "KernelAlignment-features": KernelAlignment(output="features"),
    "KernelAlignment-independent": KernelAlignment(
        output="features", method="independent"
    ),
    "KernelAlignment-uncentred": KernelAlignment(centre=False),
    "KernelAlignment-signed": KernelAlignment(signed=True),
    "SubspaceKernel": SubspaceKernel(),
    "SubspaceKernel-l1": SubspaceKernel(norm=1, alpha=0.1),
    "SubspaceKernel-uncorrelated": SubspaceKernel(uncorrelated=True),
    "SubspaceKernel-indicator": SubspaceKernel(
        norm=2, alpha="learn", label_kernel="indicator"
    ),
    "SubspaceKernelSVC-fixed": SubspaceKernelSVC(alpha=0.1, tol=0.1),
    "SubspaceKernelSVC-plain": SubspaceKernelSVC(uncorrelated=False, tol=1e-3),
    "SubspaceKernelSVC-l2": SubspaceKernelSVC(norm=2),
    "SubspaceKernelSVC-loo": SubspaceKernelSVC(alpha="loo"),
    "ProbabilisticKDA": ProbabilisticKDA(),
    "MixtureKDA": MixtureKDA(tol=1e-9),
    "MixtureKDA-posterior": MixtureKDA(projection="posterior"),
    "MixtureKDA-stacking": MixtureKDA(weights="stacking", projection="posterior"),
}

#: Settings whose fits include the folds of ``cv_score_``.
WITH_FOLDS = ("KernelFDA-fixed", "MultipleKernelFDA", "MultipleKernelRidge-l1")
for _name, _model in SETTINGS.items():
    if "cv" in _model.get_params() and _name not in WITH_FOLDS:
        _model.set_params(cv=None)

#: A cheap setting of every estimator, for properties that do not depend on settings.
ONE_EACH = (
    "KernelFDA",
    "MultipleKernelFDA-l1",
    "MultipleKernelRidge-l2-learn",
    "MultipleKernelSVC",
    "TransductiveKernelSVC",
    "KernelAlignment",
    "SubspaceKernel-l1",
    "SubspaceKernelSVC-fixed",
    "ProbabilisticKDA",
    "MixtureKDA",
)
#: Parameters of classes whose defaults take long: 0.5 s for 40 rows, not 0.01.
QUICK = {"TransductiveKernelSVC": {"signed": False}}
#: Settings whose predictions are computed in a way of their own.
OWN_WAYS = (
    "SubspaceKernelSVC-plain",
    "MixtureKDA-posterior",
)
#: Settings with explicit features in place of kernels.
EXPLICIT = ("MultipleKernelFDA-nystroem", "MultipleKernelRidge-nystroem")

SLOW = {"solver": "cutting_plane", "max_iter": 1, "tol": 1e-13}
#: Parameters that stop a fit short of its optimum, where iterations can be limited.
NOT_CONVERGED = {
    "MultipleKernelFDA-l1": SLOW,
    "MultipleKernelRidge-l1": SLOW,
    "MultipleKernelSVC": SLOW,
    "TransductiveKernelSVC": SLOW,
    "SubspaceKernel-l1": SLOW,
    "SubspaceKernelSVC-fixed": SLOW,
    "MixtureKDA": {"solver": "em", "max_iter": 1, "tol": 1e-13},
}

Condition = Callable[[BaseEstimator], bool]


def some(names: Iterable[str] = ONE_EACH, *conditions: Condition, **changes) -> list:
    """The named settings that meet all conditions, as parameters of a test.

    ``changes`` are applied to estimators that have the parameter.
    """
    found = []
    for name in names:
        model = SETTINGS[name]
        if all(condition(model) for condition in conditions):
            own = {key: changes[key] for key in changes if takes(key)(model)}
            found.append(pytest.param(clone(model).set_params(**own), id=name))
    return found


def cheap(name: str, views: object) -> BaseEstimator:
    """The named setting with little to search for, for scikit-learn's own checks.

    They do not depend on how close a fit is to its optimum.
    """
    model = clone(SETTINGS[name]).set_params(views=views)
    if isinstance(model, KernelFDA):
        model.set_params(alpha=0.1)
    elif isinstance(model, SubspaceKernelSVC):
        model.set_params(alpha=0.1, tol=0.3)
    elif takes("C")(model):
        model.set_params(C=1.0, tol=0.1)
    elif isinstance(model, MixtureKDA):
        model.set_params(noise=0.1, tol=0.1)
    return model


def in_turn(*, indirect: Sequence[str] = (), **values) -> pytest.MarkDecorator:
    """Parameters that take each of their values, but not in every combination.

    The longest list is run through once, and the others as often as that takes.
    """
    listed = [
        [each if isinstance(each, tuple) else pytest.param(each) for each in choices]
        for choices in values.values()
    ]
    cases = []
    for i in range(max(map(len, listed))):
        chosen = [choices[i % len(choices)] for choices in listed]
        plain = [each.values[0] for each in chosen]
        ids = [
            each.id or _name_of(value)
            for each, value in zip(chosen, plain, strict=True)
        ]
        cases.append(pytest.param(*plain, id="-".join(ids)))
    return pytest.mark.parametrize(tuple(values), cases, indirect=list(indirect))


def _name_of(value: object) -> str:
    """A name that is the same in every process, so without an address in memory."""
    text = str(getattr(value, "__name__", value))
    return type(value).__name__ if " at 0x" in text else text


def kinds(*conditions: Condition, **settings) -> list:
    """The classes that meet all conditions, as parameters of a test.

    Parameters that are neither in ``settings`` nor in QUICK have their defaults, but
    there are no folds of ``cv_score_``.
    """
    found = []
    for name in ONE_EACH:
        each = type(SETTINGS[name])
        if all(condition(each()) for condition in conditions):
            chosen = {"cv": None, **QUICK.get(each.__name__, {}), **settings}
            own = {key: chosen[key] for key in chosen if takes(key)(each())}
            found.append(pytest.param(partial(each, **own), id=each.__name__))
    return found


def targets_for(
    model: BaseEstimator,
    codes: np.ndarray,
    names: Sequence[str] = ("red", "green", "blue"),
) -> np.ndarray:
    """The form of y that an estimator takes."""
    if isinstance(model, MultipleKernelRidge):
        return np.stack([codes + 0.1 * np.arange(len(codes)), -1.0 * codes], axis=1)
    if isinstance(model, TransductiveKernelSVC):
        return np.where(np.arange(len(codes)) % 5 == 4, -1, codes)
    return np.array(names)[codes]


def documented(model: BaseEstimator) -> Iterator[tuple[str, str]]:
    """Names and types of the fitted attributes in the docstring of an estimator."""
    text = getdoc(type(model)).partition("\nAttributes\n---")[2]
    text = text.partition("\n\nSee Also\n---")[0]
    for names, kind in re.findall(r"^(\w+_(?:, \w+_)*) : (.*)$", text, re.MULTILINE):
        yield from ((name, kind) for name in names.split(", "))


# Conditions ---------------------------------------------------------------------------


def has(*methods: str) -> Condition:
    """Whether the estimator has these methods."""
    return lambda model: all(hasattr(model, name) for name in methods)


def lacks(method: str) -> Condition:
    """Whether the estimator lacks this method."""
    return lambda model: not hasattr(model, method)


def takes(*parameters: str) -> Condition:
    """Whether the estimator has these parameters."""
    return lambda model: set(parameters) <= model.get_params().keys()


def fits_with(*arguments: str) -> Condition:
    """Whether ``fit`` has these arguments; "groups" needs rows left out together."""
    return lambda model: set(arguments) <= signature(model.fit).parameters.keys()


def of(*kinds: type) -> Condition:
    """Whether the estimator is of one of these classes."""
    return lambda model: isinstance(model, kinds)


def unless(*kinds: type) -> Condition:
    """Whether the estimator is of none of these classes."""
    return lambda model: not isinstance(model, kinds)


def is_certified(model: BaseEstimator) -> bool:
    """Whether a fit has a certificate: not if the weights need no optimisation."""
    return takes("tol")(model) and getattr(model, "method", "") != "independent"


def poses_problem(model: BaseEstimator) -> bool:
    """Whether inspection can solve the convex problem of the weights again."""
    return model._weight_criterion is not None


def is_fixed_sum(model: BaseEstimator) -> bool:
    """Whether decisions are the same sum over kernels in every row."""
    return has("predict")(model) and model._fixed_sum


every_estimator = pytest.mark.parametrize("estimator", some())


# Output of any estimator --------------------------------------------------------------


def ask(model: BaseEstimator, rows: object) -> object:
    """The most informative output that a fitted model has for these rows."""
    names = ("decision_function", "transform", "predict")
    return next(getattr(model, name) for name in names if hasattr(model, name))(rows)


def output(model: BaseEstimator, rows: object) -> np.ndarray:
    """The result of :func:`ask` as a NumPy array."""
    return to_numpy(ask(model, rows))
