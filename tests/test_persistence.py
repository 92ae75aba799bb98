"""Saved models predict the same bits, and no file runs code or breaks the reader."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import joblib
import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.callback import ScoringMonitor
from sklearn.cluster import FeatureAgglomeration
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import KNNImputer
from sklearn.metrics import fbeta_score, make_scorer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import kernelweave
from estimators import EXPLICIT, ONE_EACH, SETTINGS, output, some
from kernelweave import KernelFDA, MixtureKDA, MultipleKernelFDA, persistence
from kernelweave._writing import written_whole
from kernelweave.exceptions import ModelFileError
from kernelweave.inspection._rows import rows_kept_by, rows_kept_in_words
from kernelweave.kernels import Pipe
from kernelweave.persistence import (
    EMPTY_NODE,
    FORMAT,
    HEADER,
    MODEL,
    SCHEMA,
    is_ours,
    read_header,
)
from kernelweave.views.caches import parts_of

pytest.importorskip("skops")

VIEWS = [("a", "auto", [0, 1]), ("b", ["linear", Pipe(StandardScaler(), "rbf")], [2])]


def rows(n=24):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, (X[:, 0] + X[:, 2] > 0).astype(int)


#: Settings that keep further objects beside those of every estimator.
MORE = ("MultipleKernelFDA", "MixtureKDA-stacking", "KernelAlignment-features")


@pytest.mark.parametrize("estimator", some([*ONE_EACH, *EXPLICIT, *MORE]))
def test_the_same_bits_after_loading(estimator, tmp_path):
    X, y = rows()
    targets = y.astype(float) if "Ridge" in type(estimator).__name__ else y
    model = estimator.set_params(views=VIEWS).fit(X, targets)
    kernelweave.save(model, tmp_path / "model.kw")
    same = kernelweave.load(tmp_path / "model.kw")
    np.testing.assert_array_equal(output(same, X), output(model, X))
    assert str(same.get_params()) == str(model.get_params())


def test_every_kind_of_model_is_saved_above():
    public = {
        found
        for found in (getattr(kernelweave, name) for name in kernelweave.__all__)
        if isinstance(found, type) and issubclass(found, BaseEstimator)
    }
    assert public <= {type(SETTINGS[name]) for name in ONE_EACH}


@pytest.mark.parametrize("estimator", some([*ONE_EACH, *EXPLICIT]))
def test_sparse_rows(estimator, tmp_path):
    X, y = rows()
    X = csr_array(np.where(np.abs(X) > 0.5, X, 0.0))
    targets = y.astype(float) if "Ridge" in type(estimator).__name__ else y
    model = estimator.set_params(views=[("a", "rbf", [0, 1]), ("b", "linear", [2])])
    kernelweave.save(model.fit(X, targets), tmp_path / "model.kw")
    same = kernelweave.load(tmp_path / "model.kw")
    np.testing.assert_array_equal(output(same, X), output(model, X))


def test_frames_and_pipelines(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = rows()
    frame = pandas.DataFrame(X, columns=["one", "two", "three"])
    views = [("a", "auto", ["one", "two"]), ("b", "auto", ["three"])]
    model = KernelFDA(views).fit(frame, np.where(y, "ill", "well"))
    kernelweave.save(model, tmp_path / "model.kw")
    same = kernelweave.load(tmp_path / "model.kw")
    assert list(same.predict(frame)) == list(model.predict(frame))
    pipeline = make_pipeline(StandardScaler(), KernelFDA()).fit(X, y)
    kernelweave.save(pipeline, str(tmp_path / "pipeline.kw"))
    same = kernelweave.load(str(tmp_path / "pipeline.kw"))
    np.testing.assert_array_equal(same.predict_proba(X), pipeline.predict_proba(X))


@pytest.mark.parametrize(
    "columns",
    [
        lambda X: X.columns[:2],
        lambda X: range(2),
        lambda X: X.columns.to_series() < "c",
        lambda X: make_column_selector("a|b", dtype_include=np.number),
    ],
    ids=["index", "range", "mask", "selector"],
)
def test_columns_and_folds_of_any_kind(columns, tmp_path):
    pandas = pytest.importorskip("pandas")
    values, y = rows()
    X = pandas.DataFrame(values[:, :3], columns=["a", "b", "c"])
    views = [("left", "rbf", columns(X)), ("right", "linear", "c")]
    model = KernelFDA(views, alpha=0.1, cv=StratifiedKFold(2)).fit(X, y)
    kernelweave.save(model, tmp_path / "model.kw")
    same = kernelweave.load(tmp_path / "model.kw")
    np.testing.assert_array_equal(output(same, X), output(model, X))
    again = clone(same).fit(X, y)
    np.testing.assert_array_equal(output(again, X), output(model, X))


@pytest.mark.parametrize("wrap", [lambda model: model, make_pipeline])
def test_callbacks_are_not_saved(wrap, tmp_path):
    X, y = rows()
    model, monitor = wrap(KernelFDA(cv=None)), ScoringMonitor(scoring="accuracy")
    model.set_callbacks(monitor).fit(X, y)
    kernelweave.save(model, tmp_path / "model.kw")
    same = kernelweave.load(tmp_path / "model.kw")
    np.testing.assert_array_equal(output(same, X), output(model, X))
    assert model._skl_callbacks == [monitor]


def test_names_of_columns_that_are_no_texts(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = rows()
    frame = pandas.DataFrame(X, columns=pandas.date_range("2020-01-01", periods=3))
    model = KernelFDA(cv=None).fit(frame, y)
    kernelweave.save(model, tmp_path / "model.kw")
    same = kernelweave.load(tmp_path / "model.kw")
    np.testing.assert_array_equal(output(same, frame), output(model, frame))


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_models_of_tables_need_no_library_of_tables(name, tmp_path, monkeypatch):
    tables = pytest.importorskip(name)
    X, y = rows()
    frame = tables.DataFrame({"x": X[:, 0], "word": np.where(X[:, 1] > 0, "a", "b")})
    model = KernelFDA(alpha=0.1, cv=None).fit(frame, y)
    kernelweave.save(model, tmp_path / "model.kw")
    monkeypatch.setitem(sys.modules, name, None)
    same = kernelweave.load(tmp_path / "model.kw")
    monkeypatch.undo()
    np.testing.assert_array_equal(same.predict(frame), model.predict(frame))


def test_a_file_says_the_same_of_many_columns_once(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = rows()
    frame = pandas.DataFrame({f"c{j}": X[:, 0] * (j + 1) for j in range(100)})
    frame = frame.assign(gap=np.where(y, np.nan, X[:, 1]), word=np.where(y, "a", "b"))
    model = KernelFDA(alpha=0.1, cv=None).fit(frame, y)
    kernelweave.save(model, tmp_path / "model.kw")
    with zipfile.ZipFile(tmp_path / "model.kw") as file:
        parts = zipfile.ZipFile(io.BytesIO(file.read(MODEL)))
    text = parts.read("schema.json").decode()
    assert text.count('"ColumnUse"') < 100  # ways to use a column, for each kernel
    same = kernelweave.load(tmp_path / "model.kw")
    assert same.column_summary_ == model.column_summary_
    (view,) = model._views
    assert same._views == [view]


def test_searches_and_calibrated_classifiers(tmp_path):
    X, y = rows()
    search = GridSearchCV(
        KernelFDA(VIEWS, cv=None), {"alpha": [0.1, 1.0]}, cv=2, scoring="roc_auc"
    )
    for model in (search, CalibratedClassifierCV(KernelFDA(VIEWS, cv=None), cv=2)):
        kernelweave.save(model.fit(X, y), tmp_path / "model.kw")
        same = kernelweave.load(tmp_path / "model.kw")
        np.testing.assert_array_equal(same.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    "change",
    [
        {"views": [("a", Pipe(SelectKBest(k=1), "rbf"), [0, 1, 2])]},
        {"scoring": make_scorer(fbeta_score, beta=2)},
        {"priors": "Series"},
    ],
    ids=["selector", "scorer", "series"],
)
def test_parameters_from_elsewhere(change, tmp_path):
    X, y = rows()
    if "priors" in change:
        change = {"priors": pytest.importorskip("pandas").Series([0.25, 0.75])}
    model = KernelFDA(VIEWS, cv=None).set_params(**change).fit(X, y)
    kernelweave.save(model, tmp_path / "model.kw")
    same = kernelweave.load(tmp_path / "model.kw")
    np.testing.assert_array_equal(output(same, X), output(model, X))
    np.testing.assert_array_equal(output(clone(same).fit(X, y), X), output(model, X))


def test_requests_for_metadata(tmp_path):
    X, y = rows()
    with config_context(enable_metadata_routing=True):
        model = KernelFDA(VIEWS, cv=None).set_fit_request(
            sample_weight=True, groups=True
        )
        kernelweave.save(model.fit(X, y), tmp_path / "model.kw")
        same = kernelweave.load(tmp_path / "model.kw")
        found = same.get_metadata_routing().fit.requests
        assert found == {"sample_weight": True, "groups": True}
    np.testing.assert_array_equal(output(same, X), output(model, X))


def test_the_header_tells_what_the_file_is(saved):
    path, _ = saved
    header = read_header(path)
    assert header["format"] == FORMAT and header["class"] == "KernelFDA"
    assert header["versions"]["kernelweave"] == kernelweave.__version__


@pytest.fixture
def saved(tmp_path):
    X, y = rows()
    model = KernelFDA(VIEWS[:1], alpha=0.1, cv=None).fit(X, y)
    path = tmp_path / "model.kw"
    kernelweave.save(model, path)
    return path, model


# What is refused ----------------------------------------------------------------------


def my_kernel(X, Y):
    return X @ Y.T


def test_code_from_elsewhere_needs_trust(tmp_path):
    X, y = rows()
    path = tmp_path / "model.kw"
    model = KernelFDA([("a", my_kernel, [0, 1])]).fit(X, y)
    kernelweave.save(model, path)
    name = f"{__name__}.my_kernel"
    with pytest.raises(ModelFileError, match=r"uses .*my_kernel.*trusted="):
        kernelweave.load(path)
    same = kernelweave.load(path, trusted=iter([name]))
    np.testing.assert_array_equal(output(same, X), output(model, X))
    with pytest.raises(TypeError, match="list of names"):
        kernelweave.load(path, trusted=name)


def test_headers_have_any_length(tmp_path):
    """The columns of a methylation array take over 50 MB."""
    kernelweave.save(KernelFDA(), tmp_path / "model.kw", notes={"long": "x" * 2**24})
    assert isinstance(kernelweave.load(tmp_path / "model.kw"), KernelFDA)


def test_what_cannot_be_saved_says_so(tmp_path):
    X, y = rows()
    with pytest.raises(TypeError, match="expects an estimator, got ndarray"):
        kernelweave.save(X, tmp_path / "model.kw")
    with pytest.raises(TypeError, match="notes must be a dict, got 'of 2024'"):
        kernelweave.save(KernelFDA(), tmp_path / "model.kw", notes="of 2024")
    torch = pytest.importorskip("torch")
    model = KernelFDA(cv=None).fit(torch.asarray(X), torch.asarray(y))
    with pytest.raises(ValueError, match="after a fit to NumPy arrays"):
        kernelweave.save(model, tmp_path / "model.kw")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("kernelweave.models.kernel_fda.KernelFDA", True),
        ("kernelweave.models.mixture.projection.posterior_weights", False),
        ("kernelweave.models.shared.base.np", False),  # imported there, not defined
        ("kernelweave.models.kernel_fda.partial", False),
        ("kernelweave.cli.folder.write_mark", False),
        ("kernelweave.models.no_such_module.Class", False),
        ("kernelweaver.models.Class", False),
        ("sklearn.model_selection._split.train_test_split", False),
        ("sklearn.feature_selection._univariate_selection.f_classif", True),
        ("sklearn.metrics.pairwise.pairwise_distances", False),
        ("os.system", False),
    ],
)
def test_what_is_trusted(name, ours):
    assert is_ours(name) is ours


def archive_of(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def members_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def with_format(number):
    def changed(content):
        members = members_of(content)
        header = json.loads(members[HEADER]) | {"format": number}
        return archive_of(members | {HEADER: json.dumps(header)})

    return changed


def compressed(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in members_of(content).items():
            archive.writestr(name, part)
    return file.getvalue()


def with_model(change):
    """The same header, but for the checksum, and another model."""

    def changed(content):
        members = members_of(content)
        model = change(members[MODEL])
        header = json.loads(members[HEADER])
        header["sha256"] = hashlib.sha256(model).hexdigest()
        return archive_of({HEADER: json.dumps(header), MODEL: model})

    return changed


def huge_array(model):
    members = members_of(model)
    name = next(n for n in members if n.endswith(".npy"))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    )
    return archive_of(members | {name: header.getvalue()})


def huge_sparse_array(model):
    """32 MiB of zeros in 32 KiB."""
    file = io.BytesIO()
    save_npz(file, csr_array((np.zeros(2**22), np.zeros(2**22, int), [0, 2**22])))
    members = members_of(model)
    name = next(n for n in members if n.endswith(".npy"))
    return archive_of(members | {name: file.getvalue()})


def system_call(model):
    schema = json.loads(members_of(model)["schema.json"])
    schema |= {
        "__loader__": "ConstructorFromReduceNode",
        "__module__": "os",
        "__class__": "system",
        "content": {
            "__loader__": "TupleNode",
            "__module__": "builtins",
            "__class__": "tuple",
            "content": [],
        },
    }
    return archive_of({"schema.json": json.dumps(schema)})


REFUSED = {
    "empty": (lambda c: b"", "damaged"),
    "truncated": (lambda c: c[: len(c) // 2], "damaged"),
    "text": (lambda c: b"patient,label\n1,2\n", "damaged"),
    "another archive": (lambda c: archive_of({"a": b"b"}), "something else"),
    "newer format": (with_format(FORMAT + 1), "format is 2, .*: update kernelweave"),
    "older format": (with_format(FORMAT - 1), "format is 0, .*: fit the model again"),
    "compressed": (compressed, "compressed"),
    "changed": (
        lambda c: archive_of(members_of(c) | {MODEL: b"PK"}),
        "checksum is wrong",
    ),
    "deep header": (
        lambda c: archive_of(members_of(c) | {HEADER: b"[" * 100_000}),
        "damaged",
    ),
    "huge array": (with_model(huge_array), "larger than its data"),
    "huge sparse array": (with_model(huge_sparse_array), "much larger than its data"),
    "system call": (with_model(system_call), "uses .*system"),
    "no model": (with_model(lambda m: b"nothing"), "damaged"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_files_are_refused(case, saved):
    path, _ = saved
    change, message = REFUSED[case]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ModelFileError, match=message) as caught:
        kernelweave.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_damaged_files_are_refused_or_load_the_same(saved):
    path, model = saved
    X, _ = rows()
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), size=rng.integers(1, 4)):
            damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            same = kernelweave.load(path)
        except ModelFileError:
            continue
        np.testing.assert_array_equal(output(same, X), output(model, X))


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cannot read .*none\.kw"):
        kernelweave.load(tmp_path / "none.kw")
    with pytest.raises(IsADirectoryError, match="cannot read"):
        kernelweave.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="nothing was written"):
        kernelweave.save(KernelFDA(), tmp_path / "no" / "model.kw")


def test_a_failed_save_leaves_the_old_file(saved):
    path, _ = saved
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt), written_whole(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_unfitted_models_keep_their_parameters(tmp_path):
    classes = {True: 2.0, np.False_: 1.0, "b": 3.0}
    model = MultipleKernelFDA(norm=2, class_weight=classes)
    kernelweave.save(model, tmp_path / "model.kw")
    same = kernelweave.load(tmp_path / "model.kw")
    assert same.norm == 2
    assert same.class_weight == model.class_weight == classes


@pytest.mark.parametrize("unit", ["D", "ns"])
@pytest.mark.parametrize("form", [list, np.ndarray.tolist])
def test_class_weights_of_dates_serve_refits_of_a_loaded_model(unit, form, tmp_path):
    X, y = load_iris(return_X_y=True)
    days = np.array(["2020-01-31", "2020-02-29", "2021-03-01"], f"M8[{unit}]")
    given = dict(zip(form(days), [2.0, 1.0, 0.5], strict=True))
    model = KernelFDA(cv=None, class_weight=given).fit(X, days[y])
    kernelweave.save(model, tmp_path / "model.kw")
    same = kernelweave.load(tmp_path / "model.kw")
    again = clone(same).fit(X, days[y])
    for fitted in (same, again):
        assert np.array_equal(fitted.decision_function(X), model.decision_function(X))


# Caches and other files that a model may name -----------------------------------------


def caching(memory):
    """Every estimator of scikit-learn that keeps a cache, at several depths."""
    union = FeatureUnion(
        [("kept", StandardScaler()), ("tied", FeatureAgglomeration(2, memory=memory))]
    )
    inside = Pipeline([("both", union), ("pca", PCA(2))], memory=memory)
    table = ColumnTransformer([("part", inside, [0, 1, 2])])
    return Pipe(Pipeline([("table", table), ("all", PCA(2))], memory=memory), "linear")


@pytest.mark.parametrize("form", [str, joblib.Memory])
def test_a_saved_model_has_no_caches(form, tmp_path):
    X, y = rows()
    view = ("memory", [caching(form(tmp_path / "cache")), "rbf"], [0, 1, 2])
    model = MultipleKernelFDA([view], cv=None).fit(X, y)
    kernelweave.save(model, tmp_path / "model.kw")
    names = [name for name in model.get_params() if name.endswith("__memory")]
    assert len(names) == 3
    # the user's own is left as it is ...
    assert all(isinstance(model.get_params()[name], form) for name in names)
    content = (tmp_path / "model.kw").read_bytes()
    assert str(tmp_path / "cache").encode() not in content
    # ... and the loaded one has none, not even in its fitted parts
    same = kernelweave.load(tmp_path / "model.kw", trusted=["numpy.mean"])
    assert [same.get_params()[name] for name in names] == [None] * 3
    assert all(vars(part).get("memory") is None for part in with_attributes(same))
    np.testing.assert_array_equal(same.predict_proba(X), model.predict_proba(X))


def with_attributes(model):
    return [part for part in parts_of(model) if hasattr(part, "__dict__")]


#: Refits a model that it has loaded; prints all files that it opens from then on.
REFIT = """
import sys
import numpy as np
import kernelweave
from kernelweave.evaluation import evaluate
X = np.random.default_rng(0).normal(size=(24, 3))
y = (X[:, 0] + X[:, 2] > 0).astype(int)
# where modules are, and how much memory there is
PYTHON = (sys.prefix, sys.base_prefix, *kernelweave.__path__, "/proc/", "/sys/")
model = kernelweave.load(sys.argv[1], trusted=["numpy.mean"])
evaluate(kernelweave.KernelFDA(model.views, cv=2), X, y, cv=2)  # imports all it needs
if sys.argv[2:]:
    model.views[0][1].transformer.set_params(memory=sys.argv[2])
def hook(event, arguments):
    if event in ("open", "os.mkdir", "os.listdir", "os.scandir"):
        if not str(arguments[0]).startswith(PYTHON):
            print(event, arguments[0])
sys.addaudithook(hook)
model.predict(X)
model.fit(X, y)
evaluate(model, X, y, cv=2)
"""


def test_a_refit_of_a_loaded_model_opens_no_file(tmp_path):
    X, y = rows()
    model = KernelFDA([("v", caching(str(tmp_path / "cache")), [0, 1, 2])], cv=2)
    kernelweave.save(model.fit(X, y), tmp_path / "model.kw")
    shutil.rmtree(tmp_path / "cache")

    def opened(*arguments):
        command = [sys.executable, "-c", REFIT, str(tmp_path / "model.kw"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout

    assert opened() == ""
    assert not (tmp_path / "cache").exists()
    assert "cache" in opened(str(tmp_path / "cache"))  # the hook sees what there is


class Marker:
    """A pickle that makes a folder when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def forged(path, change):
    """Change the schema of the model in a file, with the right checksum."""
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read(HEADER))
        content = io.BytesIO(archive.read(MODEL))
    changed = io.BytesIO()
    with zipfile.ZipFile(content) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == SCHEMA:
                data = json.dumps(json.loads(data, object_hook=change))
            new.writestr(name, data)
    model = changed.getvalue()
    header |= {"bytes": len(model), "sha256": hashlib.sha256(model).hexdigest()}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(HEADER, json.dumps(header))
        archive.writestr(MODEL, model)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_forged_cache_is_not_read(hidden, tmp_path, monkeypatch):
    """Its pickles, which the same person may have sent, would run code."""
    monkeypatch.chdir(tmp_path)
    X, y = rows()
    pipeline = Pipeline([("s", StandardScaler()), ("p", PCA(2))], memory="cache")
    views = [("v", Pipe(pipeline, "linear"), [0, 1, 2])]
    model = KernelFDA(views, cv=None).fit(X, y)
    poisoned = list(Path("cache").rglob("output.pkl"))
    for path in poisoned:
        path.write_bytes(pickle.dumps(Marker(tmp_path / "ran")))
    with contextlib.suppress(TypeError, ValueError):  # None came out of the pickle
        clone(model).fit(X, y)
    assert Path("ran").exists()  # so the pickles are poisoned
    Path("ran").rmdir()
    kernelweave.save(model, "model.kw")

    def change(part):
        if part.get("__loader__") == "ObjectNode" and part["__class__"] == "Pipeline":
            content = part["content"]["content"]
            content["memory"] |= {"content": json.dumps("cache")}
            if hidden:  # one level deeper, in another kind of dictionary
                part["content"] = {
                    "__loader__": "DefaultDictNode",
                    "__class__": "defaultdict",
                    "__module__": "collections",
                    "content": {"main": part["content"], "default_factory": EMPTY_NODE},
                }
        return part

    forged("model.kw", change)
    clone(kernelweave.load("model.kw")).fit(X, y)
    assert not Path("ran").exists()


SEARCHED = GridSearchCV(
    Pipeline([("s", StandardScaler()), ("p", PCA(2))]),
    {"memory": ["cache"]},
    scoring=make_scorer(fbeta_score, beta=1),
)


@pytest.mark.parametrize(
    ("transformer", "named"),
    [
        (SEARCHED, "'memory'"),
        (clone(SEARCHED).set_params(param_grid=[{"p": [PCA()], "x__input": [1]}]), "x"),
        (CountVectorizer(input="filename"), "input='filename'"),
        (make_pipeline(HashingVectorizer(input="file")), "input='file'"),
    ],
)
def test_parameters_that_open_files_are_refused(
    transformer, named, tmp_path, monkeypatch
):
    model = KernelFDA([("v", Pipe(transformer, "linear"), [0])])
    with pytest.raises(ValueError, match=f"cannot save this KernelFDA: .*{named}"):
        kernelweave.save(model, tmp_path / "model.kw")
    assert not (tmp_path / "model.kw").exists()
    monkeypatch.setattr(persistence, "why_not_storable", lambda model: None)
    kernelweave.save(model, tmp_path / "model.kw")
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match=f"cannot load .*{named}"):
        kernelweave.load(tmp_path / "model.kw")


def test_searches_over_whole_steps_are_saved(tmp_path):
    grid = {"p": [PCA(1), PCA(2), Pipeline([("q", PCA(1))])], "p__copy": [True]}
    model = clone(SEARCHED).set_params(param_grid=grid)
    kernelweave.save(model, tmp_path / "model.kw")
    assert len(kernelweave.load(tmp_path / "model.kw").param_grid["p"]) == 3


# What of the training data a file holds -----------------------------------------------


def n_in_file(path, X):
    content = path.read_bytes()
    return sum(row.tobytes() in content for row in X)


STREAMS = {"linear": ("linear", 0), "random": ("rbf", 0), "nystroem": ("rbf", 8)}


@pytest.mark.parametrize("features", list(STREAMS))
def test_a_model_of_portions_goes_on_or_holds_no_rows(features, tmp_path):
    X, y = rows(90)
    kernel, n_landmarks = STREAMS[features]
    how = features if kernel == "rbf" else "auto"
    settings = {"norm": 1, "alpha": 0.1, "cv": None, "features": how, "n_features": 8}
    model = MultipleKernelFDA([("v", kernel, [0, 1, 2])], **settings)
    model.partial_fit(X[:60], y[:60])
    path = tmp_path / "model.kw"
    kernelweave.save(model, path)
    assert n_in_file(path, X) == 60
    kept = {"kernels": 0, "landmarks": n_landmarks, "partial_fit": 60}
    assert rows_kept_by(kernelweave.load(path)) == kept
    again = kernelweave.load(path).partial_fit(X[60:], y[60:])
    kernelweave.save(model, path, resumable=False)
    assert n_in_file(path, X) == n_landmarks
    final = kernelweave.load(path)
    assert rows_kept_by(final) == kept | {"partial_fit": 0}
    np.testing.assert_array_equal(final.predict_proba(X), model.predict_proba(X))
    before = vars(final).copy()
    for portion in ((X[60:], y[60:]), ()):
        with pytest.raises(ValueError, match="was saved with resumable=False, without"):
            final.partial_fit(*portion)
    assert vars(final) == before
    # neither the model that was saved nor a new fit is the worse for it
    model.partial_fit(X[60:], y[60:])
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    fresh = clone(final).partial_fit(X[:60], y[:60]).partial_fit(X[60:], y[60:])
    np.testing.assert_array_equal(fresh.predict_proba(X), model.predict_proba(X))
    final.fit(X, y).partial_fit(X, y)


def test_rows_are_left_out_at_any_depth(tmp_path):
    X, y = rows()
    inside = MultipleKernelFDA([("v", "linear", [0, 1, 2])], norm=1, alpha=0.1, cv=None)
    inside.partial_fit(X, y)
    model = Pipeline([("model", inside)])
    path = tmp_path / "model.kw"
    kernelweave.save(model, path)
    assert n_in_file(path, X) == len(X)
    kernelweave.save(model, path, resumable=False)
    assert n_in_file(path, X) == 0
    assert (kernelweave.load(path).predict(X) == model.predict(X)).all()
    with pytest.raises(TypeError, match="resumable must be a bool, got 'no'"):
        kernelweave.save(model, path, resumable="no")


V = [("v", "linear", [0, 1, 2])]
PIPED = [("v", Pipe(KNNImputer(), Pipe(StandardScaler(), "rbf")), [0, 1, 2])]
#: A model; the rows that it holds; what is said of them.
CONTENTS = {
    "kernels": (
        KernelFDA(V, cv=None),
        24,
        "It holds 24 training rows as numbers, after their transformers, with which "
        "new rows are compared.",
    ),
    "experts": (MixtureKDA(V), 24, "It holds 24 training rows as numbers, after their"),
    "on the fly": (
        MultipleKernelFDA(V, cv=None, features="on_the_fly"),
        24,
        "It holds 24 training rows as numbers, after their",
    ),
    "precomputed": (
        KernelFDA("precomputed", cv=None),
        0,
        "It holds no training rows, only what was computed from them.",
    ),
    "moments": (
        MultipleKernelFDA(V, cv=None, features="random"),
        0,
        "It holds no training rows, only what was computed from them.",
    ),
    "rows": (
        MultipleKernelFDA(
            [("v", "rbf", [0, 1, 2])], cv=None, features="random", n_features=40
        ),
        0,
        "It holds no training rows, only what was computed from them.",
    ),
    "landmarks": (
        MultipleKernelFDA(
            [("v", "rbf", [0, 1, 2])], cv=None, features="nystroem", n_features=5
        ),
        5,
        "It holds 5 training rows as landmarks.",
    ),
    "transformers": (
        MultipleKernelFDA(PIPED, cv=None, features="random", n_features=5),
        24,
        "from them. What KNNImputer, StandardScaler may keep of the rows is not "
        "counted.",
    ),
}


@pytest.mark.parametrize("kind", list(CONTENTS))
def test_what_a_file_holds_of_the_rows(kind, tmp_path):
    X, y = rows()
    model, n_rows, words = CONTENTS[kind]
    given = (X @ X.T)[:, :, None] if kind == "precomputed" else X
    model = clone(model).fit(given, y)
    kernelweave.save(model, tmp_path / "model.kw")
    same = kernelweave.load(tmp_path / "model.kw")
    kept, held = rows_kept_by(same), X
    if kept["kernels"]:  # around their mean, where a linear kernel loses no digits
        assert n_in_file(tmp_path / "model.kw", X) == 0
        (held,) = model.kernel_map_.parts[0].source.features
    assert n_in_file(tmp_path / "model.kw", held) == n_rows
    assert kept["partial_fit"] == 0
    assert kind == "transformers" or sum(kept.values()) == n_rows
    assert words in rows_kept_in_words(same)
