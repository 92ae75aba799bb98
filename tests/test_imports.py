"""Importing is quick: optional packages wait until they are used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kernelweave

ROOT = Path(__file__).parents[1]
PACKAGE = Path(kernelweave.__file__).parent
#: Names by which hard dependencies are imported.
IMPORTED_AS = {"scikit-learn": "sklearn", "array-api-compat": "array_api_compat"}


def imported_at_once(body):
    """Packages that a module imports when it is imported itself."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]
        elif isinstance(node, ast.If):
            if ast.unparse(node.test) != "TYPE_CHECKING":
                yield from imported_at_once(node.body)
            yield from imported_at_once(node.orelse)
        elif isinstance(node, ast.Try | ast.With):
            yield from imported_at_once(node.body)


def test_modules_import_hard_dependencies_only():
    """Not pandas, matplotlib, torch, dask, jinja2, skops, cvxpy and the like."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = [text.partition(">")[0] for text in project["project"]["dependencies"]]
    allowed = {IMPORTED_AS.get(name, name) for name in names} | {"kernelweave"}
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = set(imported_at_once(tree.body)) - sys.stdlib_module_names
        assert found <= allowed, f"{path}: {found - allowed}"


def test_documented_modules_are_found_without_an_import():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    rooms = re.findall(r"currentmodule:: kernelweave\.(\w+)", text)
    assert set(rooms) <= set(kernelweave._ROOMS)
    assert all(getattr(kernelweave, room) for room in rooms)


@pytest.mark.parametrize("option", ["--version", "--help", "fit --help", "fit"])
def test_the_parser_imports_nothing_heavy(option):
    """It took more than a second to print the version."""
    code = (
        "import sys; from kernelweave.cli.entry import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'pandas'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, *option.split()],
        capture_output=True,
        text=True,
        check=True,
        cwd=PACKAGE.parent,
    )
    printed = found.stdout + found.stderr
    assert "kernelweave" in printed and "Traceback" not in printed
    assert found.stdout.endswith("heavy: []\n")


def test_the_package_itself_imports_nothing():
    """0.3 s beyond scikit-learn is the limit; the names are imported on first use."""
    code = "import sys, kernelweave; print('numpy' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=PACKAGE.parent,
    )
    assert found.stdout == "False\n"
