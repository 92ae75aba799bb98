"""The code in README.md and the user guide runs and prints what the pages show.

The Python blocks of a page run in order in one namespace, as a reader would type them,
and so do shell blocks that start with ``kernelweave`` on pages in ``WITH_COMMANDS``.
A text block right after a Python block shows what that block prints, or the error it
ends with; after a shell block it shows some of the lines. Numbers are compared loosely,
words exactly. Blocks that start with ``# not run`` are skipped.
"""

from __future__ import annotations

import ast
import contextlib
import io
import math
import pathlib
import re
import shlex
import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning

import kernelweave
from kernelweave import datasets, inspection
from kernelweave.cli import output
from kernelweave.exceptions import KernelWarning

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "user_guide").glob("*.md"))]
#: Pages whose commands run, on files that the page makes.
WITH_COMMANDS = ("command_line",)
#: A block of code, and the text block after it if there is one.
BLOCK = re.compile(
    r"^```(?P<kind>python|sh)\n(?P<code>.*?)^```\n(?:\n*^```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan)(?![\w])")


def blocks(page):
    """Line, code and expected output (or None) of each block to run on a page."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        command = match["code"].startswith("kernelweave ")
        if match["kind"] == "sh" and not (command and page.stem in WITH_COMMANDS):
            continue
        if not match["code"].startswith("# not run"):
            line = text.count("\n", 0, match.start("code")) + 1
            yield line, match["code"], match["output"]


def run(code, where, namespace):
    """What the code prints, including any error that ends it, and that error."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(code, where, "exec"), namespace)
        except (TypeError, ValueError, MemoryError) as error:
            print(f"{type(error).__name__}: {error}")
            return printed.getvalue(), error
    return printed.getvalue(), None


def run_command(code):
    """What a command of this package prints to standard output."""
    from kernelweave.cli.main import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        assert main(shlex.split(code.replace("\\\n", " "))[1:]) == 0
    return printed.getvalue()


def assert_lines(found, wanted, where):
    """The wanted lines are among those found, in this order; "..." is any of them."""
    lines = iter(found.splitlines())
    for line in wanted.splitlines():
        if line != "...":
            words = NUMBER.sub("#", line).split()
            same = (one for one in lines if NUMBER.sub("#", one).split() == words)
            match = next(same, None)
            assert match is not None, f"{where} does not print {line!r}:\n{found}"
            assert_same_output(match, line, where)


def assert_same_output(found, wanted, where):
    """Words agree exactly, numbers to 5 percent or 0.001; white space is ignored."""
    words = [" ".join(NUMBER.sub("#", text).split()) for text in (found, wanted)]
    assert words[0] == words[1], f"{where} prints:\n{found}"
    pairs = zip(NUMBER.findall(found), NUMBER.findall(wanted), strict=True)
    for a, b in pairs:
        same = a == b or math.isclose(float(a), float(b), rel_tol=0.05, abs_tol=1e-3)
        assert same, f"{where} prints {a} where the page has {b}:\n{found}"


@pytest.mark.usefixtures("quick_stack")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_a_page(page, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "_write_pictures", lambda *arguments: True)
    namespace = {"__name__": "__main__"}
    for line, code, wanted in blocks(page):
        where = f"{page.name}, line {line}"
        if code.startswith("kernelweave "):
            assert_lines(run_command(code), wanted or "", where)
            continue
        # Pages show warnings of this package on purpose; all others stay errors.
        with warnings.catch_warnings():
            for kind in (KernelWarning, ConvergenceWarning):
                warnings.simplefilter("ignore", kind)
            try:
                found, error = run(code, where, namespace)
            except ImportError as missing:
                pytest.skip(f"{where} needs {missing.name}")
        if error is not None and (wanted is None or str(error) not in found):
            raise error
        if wanted is not None:
            assert_same_output(found, wanted, where)


#: Pages whose code makes the picture below it, and the gallery example with both.
PICTURED = {
    "README.md": "plot_01_few_of_many_views",
    "docs/index.md": "plot_01_few_of_many_views",
    "docs/user_guide/getting_started.md": "plot_02_quickstart",
}


@pytest.mark.parametrize("page", PICTURED)
def test_pictures_match_the_code_above_them(page):
    """What stands above the first picture is in the example that makes it."""
    example = (ROOT / "examples" / f"{PICTURED[page]}.py").read_text(encoding="utf-8")
    text, picture, _ = (ROOT / page).read_text(encoding="utf-8").partition("sphx_glr_")
    if picture:
        assert f"sphx_glr_{PICTURED[page]}_001" in (ROOT / page).read_text("utf-8")
    shown = (m for m in BLOCK.finditer(text) if m[0].startswith("```python"))
    code = [next(shown)["code"]] if page == "README.md" else [m["code"] for m in shown]
    lines = {line.strip() for block in code for line in block.splitlines()}
    # Pages also save the picture, and print the shares that it shows.
    others = ("display.figure_", "for view, share", 'print(f"{view:6}', "print(model.")
    missing = [
        line
        for line in sorted(lines)
        if line not in example and not line.startswith(others)
    ]
    assert not missing


def test_every_picture_of_the_gallery_exists():
    """Pages name files that sphinx-gallery makes of the examples."""
    pages = [ROOT / "docs" / "index.md", *PAGES]
    named = {
        name
        for page in pages
        for name in re.findall(
            r"auto_examples/(?:images/sphx_glr_)?(plot_\w+?)(?:_\d{3}\.png|\.rst|>)",
            page.read_text(encoding="utf-8"),
        )
    }
    examples = {path.stem for path in (ROOT / "examples").glob("plot_*.py")}
    assert named <= examples
    # Two digits each, without gaps: the order of the names is the reading order.
    assert sorted(name[5:7] for name in examples) == [
        f"{i:02d}" for i in range(1, len(examples) + 1)
    ]


@pytest.mark.parametrize(
    ("query", "page"),
    {
        "cite": "reviewers",
        "categorical": "tables",
        "imbalanced": "imbalanced",
        "unbalanced": "imbalanced",
        "save": "saving",
        "mixOmics": "comparison",
        "TabPFN": "comparison",
        "missing data": "missing_views",
        "gaps": "missing_views",
        "GPU": "array_api",
        "patient": "groups",
        "reviewer": "reviewers",
        "himalaya": "coming_from",
        "million rows": "scale",
    }.items(),
)
def test_a_search_finds_the_page(query, page):
    """Its words are in a heading or the question on top; the guide lists the page."""
    folder = ROOT / "docs" / "user_guide"
    text = (folder / f"{page}.md").read_text(encoding="utf-8")
    opening = "\n".join(text.split("\n\n")[:2])
    headings = "\n".join(re.findall(r"^##? .*", text, re.MULTILINE))
    assert query.lower() in f"{opening}\n{headings}".lower().replace("\n", " ")
    assert f"({page}.md)" in (folder / "index.md").read_text(encoding="utf-8")


def listed_names():
    """The entries of the reference, in their order."""
    reference = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    return re.findall(r"^   (\w+)$", reference, re.MULTILINE)


#: For those who read the papers, not for those who use the estimators.
OF_THE_PAPERS = ("kernelweave.fits", "kernelweave.solvers.local")


def imported(code):
    """The names that code imports from this package."""
    return {
        alias.name
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("kernelweave")
        if not node.module.startswith(OF_THE_PAPERS)
        for alias in node.names
    }


def test_what_pages_import_is_in_the_reference():
    """Or CONTRIBUTING explains it; whatever the package itself exports is listed."""
    code = [code for page in PAGES for _, code, _ in blocks(page)]
    code = [text for text in code if not text.startswith("kernelweave ")]
    code += [path.read_text("utf-8") for path in (ROOT / "examples").glob("plot_*.py")]
    used = set().union(*map(imported, code))
    recipes = (ROOT / "docs" / "_recipes").glob("*.py")
    explained = set().union(*(imported(path.read_text("utf-8")) for path in recipes))
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    bases = re.findall(r"^\| a .*?`[\w.]+\.(\w+)`", contributing, re.MULTILINE)
    exported = {*kernelweave.__all__, *datasets.__all__, *inspection.__all__}
    assert not exported - set(listed_names()) - {"__version__"}
    assert not used - set(listed_names()) - explained - set(bases)


def test_what_recipes_take_from_the_protocols_is_described():
    """As an entry of the reference, or on the page of the class that uses it."""
    pages = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    described = set(re.findall(r'"kernelweave\.protocols\.(\w+)"', pages))
    for path in (ROOT / "docs" / "_recipes").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        used = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            if node.module == "kernelweave.protocols"
            for alias in node.names
        }
        assert used <= described | set(listed_names()), path.name


def test_the_reference_is_short_and_names_nothing_twice():
    names = listed_names()
    assert len(names) == len(set(names)) <= 65


def test_every_page_has_code():
    """A page whose blocks are not found would pass unnoticed."""
    without = [page.stem for page in PAGES if not list(blocks(page))]
    assert set(without) <= {
        "index",
        "glossary",
        "defaults",
        "agreement",
    }
    assert sum(len(list(blocks(page))) for page in PAGES) >= 25


def test_output_that_differs_is_seen():
    assert_same_output("gap 3.1e-08, norm 1.33\n", "gap 2.0e-09, norm  1.33", "here")
    for found in ("gap 0.5, norm 1.33", "gap 1e-8, norm inf", "gap: 1e-8, norm 1.33"):
        with pytest.raises(AssertionError):
            assert_same_output(found, "gap 1e-8, norm 1.33", "here")
