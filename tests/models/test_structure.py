"""How the package is built: few layers, no attributes set from outside, clear names."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris

import kernelweave
import reproduce
from estimators import SETTINGS, documented, every_estimator, targets_for
from kernelweave.models.shared.base import KernelModel

SOURCE = Path(kernelweave.__file__).parent
PAPERS = Path(reproduce.__file__).parent
VIEWS = [("sepal", "rbf", [0, 1]), ("petal", "linear", [2, 3])]
#: Names under which code holds an estimator other than ``self``.
BORROWED = {"model", "estimator"}
#: Functions that make another estimator of one.
COPIES = {"copy", "copy.copy", "deepcopy", "copy.deepcopy", "clone"}
#: Parameters with which a fit sets attributes that no listed setting sets.
MORE = {
    "SubspaceKernel": {"method": "alignment", "n_components": 1},
    "ProbabilisticKDA": {"cv": 2},
    "MixtureKDA": {"cv": 2},
}


@every_estimator
def test_fits_set_every_documented_attribute(estimator):
    """Each in at least one setting: none is documented but never there."""
    kind = type(estimator)
    X, y = load_iris(return_X_y=True, as_frame=True)
    X, codes = X[::5].set_axis(["a", "b", "c", "d"], axis=1), y[::5].to_numpy()
    settings = [clone(model) for model in SETTINGS.values() if type(model) is kind]
    if kind.__name__ in MORE:
        settings.append(kind(**MORE[kind.__name__]))
    missing = {name for name, _ in documented(estimator)}
    assert missing >= {"n_iter_", "n_features_in_", "feature_names_in_"}
    for model in settings:
        if missing:
            model.set_params(views=VIEWS).fit(X, targets_for(model, codes))
            missing -= {name for name in missing if hasattr(model, name)}
            assert model.n_iter_ >= 1
    assert not missing


def subclasses(kind):
    """All subclasses, at any depth."""
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


def test_an_estimator_and_its_bases_are_at_most_four_classes_of_ours():
    own = {k for k in subclasses(KernelModel) if k.__module__.startswith("kernelweave")}
    assert len(own) > 10
    for kind in own:
        ours = [c for c in kind.__mro__ if c.__module__.startswith("kernelweave")]
        assert len(ours) <= 4, ours


def copies_of_estimators(tree):
    """Names that are assigned a copy of something borrowed, or a copy of such a copy.

    Annotated assignments are left out: a copy is never declared.
    """
    found, before = set(BORROWED), set()
    while found != before:
        before = set(found)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    found |= copied(target, node.value, before)
    return found


def copied(target, value, borrowed):
    """The names in ``target`` that become copies if ``value`` is assigned to it."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=True)
        return set().union(*(copied(t, v, borrowed) for t, v in pairs))
    if not (isinstance(target, ast.Name) and isinstance(value, ast.Call)):
        return set()
    makes_copy = ast.unparse(value.func) in COPIES
    own = makes_copy and ast.unparse(value.args[0]).split(".")[-1] in borrowed
    return {target.id} if own else set()


def written_from_outside(tree):
    """Assignments to an attribute of an estimator other than ``self``, by line."""
    borrowed = copies_of_estimators(tree)
    for node in ast.walk(tree):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        for target in ast.walk(ast.Tuple([t for t in targets if t is not None])):
            if isinstance(target, ast.Attribute):
                owner = ast.unparse(target.value).split(".")[-1]
                if owner in borrowed:
                    yield node.lineno
        called = isinstance(node, ast.Call) and ast.unparse(node.func)
        if called == "setattr" and ast.unparse(node.args[0]) in borrowed:
            yield node.lineno


def test_no_module_writes_to_an_estimator():
    seen = "model.x = 1\nmodel.x, b = 1, 2\nmodel.x += 1\nsetattr(model, 'x', 1)"
    assert sorted(written_from_outside(ast.parse(seen))) == [1, 2, 3, 4]
    seen = "b, c = copy(model), 1\nd = clone(b)\nb.x = 1\nc.x = 1\nd.x = 1"
    assert sorted(written_from_outside(ast.parse(seen))) == [3, 5]
    found = {
        str(path.relative_to(SOURCE)): lines
        for path in (SOURCE / "models").rglob("*.py")
        if (lines := list(written_from_outside(ast.parse(path.read_text()))))
    }
    assert not found


def test_a_constant_has_a_name_of_its_own():
    """Except for PAPER, under which every module of a paper is found."""
    places, defined = defaultdict(list), r"^([A-Z][A-Z0-9_, ]+)(?::[^=\n]+)? = "
    for path in [*SOURCE.rglob("*.py"), *PAPERS.rglob("*.py")]:
        for names in re.findall(defined, path.read_text(encoding="utf-8"), re.M):
            for name in names.split(", "):
                places[name].append(path.as_posix())
    assert len(places) > 500
    del places["PAPER"]
    assert not {name: where for name, where in places.items() if len(where) > 1}


def functions_of(call):
    """File and name of the functions of the package that ``call`` runs, in order."""
    codes = []

    def note(frame, event, argument):
        if event == "call":
            codes.append(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    places = ((Path(code.co_filename), code.co_name) for code in codes)
    return [
        (path.relative_to(SOURCE).as_posix(), name)
        for path, name in places
        if path.is_relative_to(SOURCE)
    ]


@every_estimator
def test_everything_is_computed_before_a_fit_sets_attributes(estimator):
    X, y = load_iris(return_X_y=True)
    model = clone(estimator).set_params(views=VIEWS)
    check_order(functions_of(lambda: model.fit(X[::5], y[::5])))


def test_rows_left_out_of_a_transduction_are_labelled_before_attributes_are_set():
    X, y = load_iris(return_X_y=True)
    model = kernelweave.TransductiveKernelSVC(VIEWS, signed=False)
    kept = np.arange(75) % 5 > 0
    check_order(functions_of(lambda: model.fit(X[::2], y[::2] - 1, kept)))
    new = model.predict(X[::2][~kept])
    unlabelled = y[::2][~kept] == 0
    assert_array_equal(model.transduction_[~kept][unlabelled], new[unlabelled])


def check_order(run):
    """Nothing is computed after the first attribute is set."""
    names = [name for _, name in run]
    after = run[names.index("_set_weights") :]
    computing = (
        "kernels/banks",
        "kernels/functions",
        "fits",
        "criteria",
        "inner",
        "solvers",
    )
    found = {one for one in after if one[0].startswith(computing)}
    remarks = {("fits/gaussians.py", "remark")}
    remarks |= {("solvers/solve.py", name) for name in ("with_remarks", "caution")}
    assert found <= remarks


def test_one_fit_is_read_in_few_files():
    X, y = load_iris(return_X_y=True)
    run = functions_of(lambda: kernelweave.MultipleKernelFDA(cv=2).fit(X[::5], y[::5]))
    files = {file for file, _ in run} - {"_array.py"}
    # measured, no margin: every further file is one more to read
    assert len([name for name in files if name.startswith("models")]) <= 6
    assert len(files) <= 35


def calls_listed(before, after):
    """Functions and files of a list in CONTRIBUTING.md, between two of its lines."""
    text = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    part = text[text.index(before) : text.index(after)]
    named = re.findall(r"^- `(\w+)` \(`([\w/.]+)`\)", part, re.M)
    return [(file, name) for name, file in named]


@pytest.mark.parametrize(
    ("before", "after", "n_calls"),
    [
        ("### One fit", "And `predict(X)`", 13),
        ("And `predict(X)`", "One estimator per", 5),
    ],
)
def test_the_map_for_contributors_is_the_way_of_the_data(before, after, n_calls):
    """Each call that the map lists is made, for the first time in this order."""
    X, y = load_iris(return_X_y=True)
    model = kernelweave.MultipleKernelFDA(VIEWS, cv=2)
    run = functions_of(lambda: model.fit(X[::5], y[::5]))
    if before == "And `predict(X)`":
        run = functions_of(lambda: model.predict(X[:3]))
    listed = calls_listed(before, after)
    assert len(listed) == n_calls
    places = [run.index(call) for call in listed]
    assert places == sorted(places)


def test_learning_knows_no_estimator():
    """It gets a sample and options; nor is any call of it hidden in a partial."""
    for path in (SOURCE / "learn").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                assert not BORROWED & {one.arg for one in node.args.args}, path.name
            if isinstance(node, ast.ImportFrom):
                assert not str(node.module).startswith("kernelweave.models"), path.name
                assert "partial" not in {one.name for one in node.names}, path.name
