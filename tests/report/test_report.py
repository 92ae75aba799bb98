"""The report: complete, well formed, escaped, and whole or not at all."""

from __future__ import annotations

import html
import importlib.util
import pathlib
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import log_loss

pytest.importorskip("jinja2")
pytest.importorskip("pandas")

from kernelweave import KernelFDA
from kernelweave._text import CONTROLS
from kernelweave.evaluation import baselines, evaluate
from kernelweave.exceptions import KernelWarning
from kernelweave.report import charts, contents, decisions, predictions, write_report
from kernelweave.report import views as views_module
from kernelweave.report.charts import Bar
from kernelweave.report.section import Case

_spec = importlib.util.spec_from_file_location(
    "report_pages", pathlib.Path(__file__).with_name("pages.py")
)
pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pages)

#: The module, whose name in the package is that of its function.
judging = importlib.import_module("kernelweave.evaluation.evaluate")

pytestmark = pytest.mark.usefixtures("quick_stack")

VOID = {"meta", "link", "br"}
#: What a page of a kind must say, beyond what all pages say.
SAYS = {
    "two classes": [
        "45 rows in 2 views to distinguish 2 classes: ",
        "The weight went to b\"' (84 %)",
        "accuracy on held-out rows",
        "along the axis of the discriminant, one band per class",
        "The positive class is b. Area under the curve: 0.",
        "Calibration",
        "95 % interval",
        "use n_decoys=19 or more",
        "not clearly better than predictions without any view",
        "the most certain one that is wrong",
        "; the truth is b. ",
        "log odds of b",
        "No row lacks a view",
        "lower bound",
        "chosen by the fit norm 1; alpha 0.1 ",
        "45 by 4; target: 2 classes (text)",
        "shuffles; 0 for the model",
    ],
    "three classes": [
        "ROC curve",
        "along the first two axes",
        "All kernels have the same weight",
        "Each class against all others. Area under the curve: ",
        "log density of row and class c",
        "no optimum to certify",
    ],
    "regression": [
        "to predict a number.",
        "R² on held-out rows",
        "Predicted and",
        "this model predicts numbers",
        "Keep all 2 views",
    ],
    "several targets": [
        "to predict 2 numbers.",
        "The first of 2 targets",
        "in standard deviations of that output",
        ", target 0",
        "Predicted 0.271, -0.2844; the truth is 0.2454, -0.2874.",
    ],
    "no probabilities": [
        "without probabilities",
        "has no projection",
        "the first one that is wrong",
    ],
    "precomputed": ["feature_importance needs kernels of columns"],
    "missing views": [
        "lacks it",
        "No p-values: view_pvalues",
        "if the column is",
        "Rows that lack all remaining views are predicted without any view.",
    ],
    "one view": ["single view, which has all the weight"],
    "mixed table": ["one-hot", "if the column is shuffled"],
}
#: How many curves, sets of marks and legends a page of a kind draws.
DRAWN = {"two classes": (2, 5, 1), "three classes": (6, 15, 3), "regression": (0, 1, 0)}


class Checker(HTMLParser):
    """Tags that are closed in order, ids, and everything that refers to elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.bad, self.tags = [], [], [], [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs[k] for k in ("href", "src") if k in attrs]
        self.bad += [k for k in attrs if k.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.bad.append(f"</{tag}>")


def without_stack(model, names):
    """The baselines but for the stack, which takes longest."""
    return {
        name: baseline
        for name, baseline in baselines.baselines_of(model, names).items()
        if name != "stacking of views"
    }


@pytest.mark.parametrize("kind", pages.KINDS)
def test_page(kind, monkeypatch):
    if kind not in ("two classes", "regression"):  # one row among others, on any page
        monkeypatch.setattr(judging, "baselines_of", without_stack)
    text = pages.text_of(kind)
    assert text.startswith("<!DOCTYPE html>")
    page = Checker()
    page.feed(text)
    assert page.open == [] and page.bad == []
    assert "script" not in page.tags and len(set(page.ids)) == len(page.ids)
    assert all(link == "data:," or link[1:] in page.ids for link in page.links)
    assert not re.search(r"https?:|url\(|@import|\bnan\b|\binf\b|>None<", text)
    bare = re.sub("</?bdi>", "", text)
    seen = " ".join(html.unescape(re.sub("<[^>]+>", " ", bare)).split())
    for words in ("Certificate", "How to cite", "versions", *SAYS[kind]):
        assert words in seen, words
    shapes = ("line", "mark", "legend")
    drawn = tuple(text.count(f'class="{shape}') for shape in shapes)
    assert drawn == DRAWN.get(kind, drawn)
    # each interval is said and drawn
    said = re.findall(r"<title>[^<]*: [^<]* \([^<]+ to [^<]+\)</title>", text)
    assert 0 < len(said) == text.count('class="whisker"')


def test_names_change_nothing_around_them(tmp_path):
    """No control acts on the page; names from right to left keep to their place."""
    pandas = pytest.importorskip("pandas")
    strange, shown = (
        "\u202egnorw\u2066\x07\x9b",
        r"\u202egnorw\u2066\x07\x9b",
    )
    hebrew = "שלום"
    X = np.random.default_rng(0).normal(size=(30, 2))
    y = np.where(X[:, 0] > 0, f"ill {strange}", hebrew)
    frame = pandas.DataFrame(
        X, columns=[strange, "b"], index=[f"{hebrew} {strange}"] * 30
    )
    views = [(f"left {strange}", "linear", [strange]), (hebrew, "linear", ["b"])]
    model = KernelFDA(views, alpha=0.1, cv=None).fit(frame, y)
    write_report(
        model, frame, y, tmp_path / "page.html", title=f"{strange}\ud800", **pages.FAST
    )
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not CONTROLS.search(text)
    for name in (
        f"ill {shown}",
        f"left {shown}",
        f"<h1>{shown}\\ud800</h1>",
        f'<td class="words">{shown}</td>',
    ):
        assert name in text
    style = re.search(r"([^{}]+){ unicode-bidi: isolate; }", text)[1].split("*/")[1]
    isolated = {part.strip() for part in style.split(",")}
    assert {"h1", "h3", "p", "li", "th", "td", "bdi", ".chart text"} == isolated
    assert f"<h3>Row <bdi>{hebrew} {shown}</bdi>: " in text
    assert f"Predicted <bdi>{hebrew}</bdi>; the truth is <bdi>" in text
    assert f'<th scope="row">{hebrew}</th>' in text


@pytest.mark.parametrize("kind", ["three classes", "no probabilities", "regression"])
def test_columns_are_shuffled_in_the_loss_that_is_named(kind):
    model, X, y = pages.data(kind)
    model.fit(X[::2], y[::2])
    X, y = X[1::2], y[1::2]
    loss = {
        "three classes": lambda: log_loss(y, model.predict_proba(X)),
        "no probabilities": lambda: np.mean(model.predict(X) != y),
        "regression": lambda: np.mean((model.predict(X) - y) ** 2),
    }[kind]()
    assert np.isclose(decisions._minus_loss(model, X, y, np.ones(1)), -loss)


@pytest.mark.parametrize(
    ("lead", "loss", "predicts"),
    [(0.3, None, True), (0.1, None, False), (-0.3, None, False), (0.1, 0.3, True)],
)
def test_weights_are_read_only_if_the_model_predicts(lead, loss, predicts):
    """Two standard errors ahead of no view, in score or in log loss."""
    own = {"method": "this model", "log_loss": loss, "log_loss_se": 0.1}
    none = {"method": "no view", "lead": lead, "lead_se": 0.1, "log_loss": 0.69}
    result = SimpleNamespace(table=[own, none])
    assert views_module._predicts(result) == predicts


def test_p_values_of_few_copies_are_no_verdict():
    """With n copies no p-value is below 1 / (n + 1), whatever the view tells."""
    model, X, y = pages.data("two classes")
    X[:, 0] += 3 * (y == "b")
    model.fit(X, y)
    result = evaluate(model, X, y, cv=2, baselines=False)
    how = {"cv": 2, "groups": None, "sample_weight": None, "report": lambda text: None}
    for n_decoys in (18, 19):
        case = Case(model, X, y, 2, n_decoys, how | {"random_state": 0})
        vars(case)["result"] = result
        said = " ".join(views_module.shares(case)["cautions"])
        assert ("use n_decoys=19 or more" in said) == (n_decoys < 19)
        assert "Do not interpret the weights" not in said
    said = [row["reason"] for row in decisions.rows(case)["records"]]
    assert said == ["the most certain one that is correct", "the least certain one"]


def test_p_values_and_ablation_do_not_contradict_each_other():
    """One sentence says which views they see differently, and why."""
    rows = [
        {"view": "clinical", "p": 0.025},
        {"view": "mirna", "p": 0.575},
        {"view": "rna", "p": 0.025},
    ]
    own = {"rows": rows}
    said = views_module.two_questions(own, {"recommended": ["mirna", "rna"]})
    assert "'clinical' (p = 0.025) may be left out, since the views that are" in said
    assert "'mirna' (p = 0.575) may be worth keeping, since" in said
    assert "different questions" in said and "'rna'" not in said
    noise = views_module.two_questions(own, {"recommended": []})
    assert "'clinical' (p = 0.025), 'rna' (p = 0.025) may be related" in noise
    assert views_module.two_questions(own, {"recommended": ["clinical", "rna"]}) == ""
    for without in ({"why": "odd"}, {"recommended": None}):
        assert views_module.two_questions(own, without) == ""
    untested = {"rows": [{"view": "rna", "p": None}]}
    assert views_module.two_questions(untested, {"recommended": []}) == ""


def test_a_failure_leaves_the_old_page(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")
    model, X, y = pages.data("one view")
    model.fit(X, y)
    monkeypatch.setattr("os.replace", lambda *paths: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(model, X, y, path, **pages.FAST)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_report(model, X, y, tmp_path / "none" / "x.html")


def test_groups_and_a_model_that_takes_none():
    model, X, y = pages.data("no probabilities")
    how = {"cv": 2, "groups": np.arange(45) // 3, "sample_weight": None}
    how |= {"random_state": 0, "report": lambda text: None, "baselines": False}
    case = Case(model.fit(X, y), X, y, 2, 2, how)
    assert not decisions.rows(case)["why"]
    notes = " ".join(views_module.without_each(case)["notes"])
    assert "12.7 standard errors may be chance" in notes  # t with 1 degree of freedom
    assert "Groups are held out together" in notes
    shares = views_module.shares(case)
    assert shares["grouped"] and shares["tested"]


def test_sections_are_about_the_model_that_is_judged(monkeypatch):
    """Its folds calibrate the probabilities, so they are part of the model."""
    model, X, y = pages.data("two classes")
    model.set_params(cv=3).fit(X, y)
    how = {"cv": 2, "groups": None, "sample_weight": None, "random_state": 0}
    case = Case(model, X, y, 2, 2, how | {"baselines": False})
    test = np.flatnonzero(case.held.fold == 1)
    held = case.held.probability[test]
    np.testing.assert_allclose(case.held.part.predict_proba(X[test]), held)
    ablated = []
    monkeypatch.setattr(
        views_module, "view_ablation", lambda m, *a, **k: ablated.append(m)
    )
    assert views_module.without_each(case)["why"]
    assert ablated[0].get_params()["cv"] == 3


def test_rows_of_a_held_out_group_explain_nothing():
    """Not even those in no fold, which are those of a class with a single group."""
    model, X, y = pages.data("three classes")
    groups = np.arange(45) // 3
    y[(y == "c") & (groups > 0)] = "b"
    how = {"cv": 2, "groups": groups, "sample_weight": None, "random_state": 0}
    case = Case(model, X, y, 2, 2, how | {"baselines": False})
    assert case.held.fold[2] == 0
    assert not set(groups[case.held.train]) & set(groups[case.held.fold == 1])


def test_rows_of_one_class_have_no_curves():
    """The other class is that of a single group, which no fold holds out."""
    model, X, y = pages.data("two classes")
    groups = np.where(y == "b", np.arange(45), 99)
    held = evaluate(model, X, y, groups=groups, cv=2, baselines=False).held_out
    last = predictions.pictures(held, model)[-1]
    assert last["why"] == "All held-out rows are of the class b."


def test_units_of_several_outputs_change_no_column():
    model, X, y = pages.data("several targets")
    how = {"cv": 2, "groups": None, "sample_weight": None, "random_state": 0}
    how |= {"report": lambda text: None, "baselines": False}
    found = []
    for unit in (1.0, 2.0**-30):
        case = Case(model.fit(X, y * [1.0, unit]), X, y * [1.0, unit], 2, 2, how)
        shuffled = np.round(decisions._shuffled(case)[0], 8).tolist()
        reasons = {
            row["reason"]: row["name"] for row in decisions.rows(case)["records"]
        }
        found.append((decisions.columns(case), shuffled, reasons))
    assert found[0] == found[1]


def test_shares_tell_every_reason_once(monkeypatch):
    """Whatever the views are called."""
    _, X, y = pages.data("two classes")
    views = [("why", "linear", [0]), ("of", "linear", [1])]
    model = KernelFDA(views, cv=None).fit(np.asarray(X), y)
    case = Case(model, X, y, 2, 2, {"random_state": 0, "groups": None, "report": print})
    vars(case)["result"] = SimpleNamespace(table=[{"method": "this model"}])

    def refuse(message):
        def refused(*args, **settings):
            raise ValueError(message)

        return refused

    rows = [{"view": view, "low": 0.1, "high": 0.9} for view in ("why", "of")]
    monkeypatch.setattr(views_module, "weight_intervals", lambda *a, **k: rows)
    monkeypatch.setattr(views_module, "view_pvalues", refuse("view_pvalues is odd"))
    found = views_module.shares(case)
    assert found["reasons"] == ["No p-values: view_pvalues is odd."]
    assert found["bounded"] and not found["tested"]
    for message, count in (("weight_intervals is odd", 1), ("too few rows", 2)):
        monkeypatch.setattr(views_module, "weight_intervals", refuse(message))
        assert len(views_module.shares(case)["reasons"]) == count


@pytest.mark.parametrize("last", ["what is lost", "columns"])
def test_an_error_of_the_listener_ends_the_report(monkeypatch, last):
    """Not even in parts that tell their own errors on the page is it caught."""

    def listen(text):
        if text.startswith(last):
            raise KeyError("cancelled")

    for name in ("scores", "shares", "without_each", "pictures"):
        monkeypatch.setattr(contents, name, lambda *args: {})
    case = Case(*pages.data("one view"), 2, 2, {"report": listen})
    vars(case)["result"] = SimpleNamespace(held_out=None)
    with pytest.raises(KeyError, match="cancelled"):
        contents.collect(case)


def test_bars_keep_in_the_picture():
    drawn = charts.bars([Bar("a", -3.0, (-4.0, 9.0)), Bar("b", float("nan"))], "t", "x")
    assert "nan" not in drawn
    places = [float(v) for v in re.findall(r' x="(-?[\d.]+)"', drawn)]
    assert min(places) >= 0 and max(places) <= charts.WIDTH
    drawn = charts.bars([Bar.around("a", 1.0, 0.02)], "t", "x", percent=True)
    assert "(98 % to 100 %)" in drawn and "120 %" not in drawn


@pytest.mark.parametrize("value", [-1.12e-05, 1.12e-05, -123456.0, 2.5e6])
def test_numbers_are_not_cut_off(value):
    ends = charts.round_ticks(*sorted((0.0, value)))
    drawn = charts.bars([Bar("a", value), Bar("b", value / 3)], "t", "")
    drawn += charts.plot([("a", np.array(ends), np.array(ends))], "t", ("", ""), ends)
    pattern = r'x="([\d.-]+)" y="[\d.]+" text-anchor="(\w+)"[^>]*>([^<]*)<'
    shares = {"start": 0, "middle": 0.5, "end": 1}
    for place, anchor, text in re.findall(pattern, drawn):
        width = 9 * len(text)  # of wide letters
        start = float(place) - width * shares[anchor]
        assert start >= 0 and start + width <= charts.WIDTH, text


def test_equal_weights_beside_a_constant_view():
    model, X, y = pages.data("three classes")
    X[:, 2:] = 1.0
    with pytest.warns(KernelWarning, match="constant"):
        model.fit(X, y)
    assert not views_module.weights_differ(model)


def test_papers_of_the_estimator_are_cited():
    model = pages.data("no probabilities")[0]
    assert contents._references(model)[0].startswith("Lanckriet")
