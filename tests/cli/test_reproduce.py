"""``kernelweave reproduce`` runs, goes on, writes, and refuses in one line."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path

import pytest

from kernelweave.cli import reproduce
from kernelweave.cli.main import main

PAPERS = Path(__file__).parents[1] / "papers"


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """The command knows one paper, which is made up; it runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(PAPERS))
    sys.modules.pop("fake", None)
    module = importlib.import_module("fake")
    monkeypatch.setattr(reproduce, "load_paper", lambda key: module.PAPER)
    return module


def test_prints_and_writes(fake, capsys):
    assert main(["reproduce", "fake"]) == 0
    out, err = capsys.readouterr()
    for text in (
        "Nobody (1900): Nothing.",
        "Table 1: numbers",
        "not reproduced",
        "The paper: shifted is larger",
        "moon is left out: the data set 'moon' is not here; fly there",
        "warning of warns in 8 split(s): the gap is #",
        "Of 3 cells 1 reproduced, 1 better, 1 not reproduced",
    ):
        assert text in out
    assert "table1: 8 of 8 splits" in err
    folder = Path("kernelweave-reproduce/fake")
    names = {path.name for path in folder.iterdir()}
    assert {"report.md", "table1.csv", "table1_splits.csv", "figure3.csv"} <= names
    mark = json.loads((folder / "reproduce.json").read_text(encoding="utf-8"))
    assert mark["command"] == "kernelweave reproduce fake"
    assert "report.md" in mark["files"]


def test_second_run_uses_the_first(fake, capsys):
    assert main(["reproduce", "fake", "--figure", "3", "--splits", "2"]) == 0
    first = capsys.readouterr().out
    assert main(["reproduce", "fake", "--figure", "3", "--splits", "2"]) == 0
    out, err = capsys.readouterr()
    assert out == first
    assert "figure3: 2 of 2 splits were there already" in err


@pytest.mark.parametrize(
    ("options", "splits"),
    [([], 3), (["--quick"], 1), (["--quick", "--splits", "2"], 2)],
)
def test_number_of_splits(fake, options, splits):
    assert main(["reproduce", "fake", "--figure", "3", *options]) == 0
    cache = Path("kernelweave-reproduce/fake/cache/figure3-v1")
    assert len(list(cache.rglob("*.json"))) == splits


def test_quick_takes_the_quick_form(fake, capsys, monkeypatch):
    small = dataclasses.replace(fake.FIGURE, title="Small", variant="-small")
    experiment = dataclasses.replace(fake.FIGURE, quick_form=small)
    paper = dataclasses.replace(fake.PAPER, experiments=(experiment,))
    monkeypatch.setattr(reproduce, "load_paper", lambda key: paper)
    for options, title in (([], "Figure 3"), (["--quick"], "Small")):
        assert main(["reproduce", "fake", *options]) == 0
        assert title in capsys.readouterr().out
    cache = Path("kernelweave-reproduce/fake/cache")
    assert {f.name for f in cache.iterdir()} == {"figure3-v1", "figure3-v1-small"}


def test_what_is_there_is_told(fake, capsys):
    assert main(["reproduce", "fake", "--figure", "3", "--splits", "2"]) == 0
    capsys.readouterr()
    assert main(["reproduce", "fake", "--cached"]) == 0
    out = capsys.readouterr().out
    assert "half is left out: no split of it has been run yet" in out
    report = Path("kernelweave-reproduce/fake/report.md").read_text(encoding="utf-8")
    assert "Made by `kernelweave reproduce fake --cached`" in report
    assert "Mean over 2 splits and its standard error; the paper has 3." in report


def test_command_is_told(fake):
    options = ["--table", "1", "--splits", "2", "--quick", "--out", "there"]
    assert main(["reproduce", "fake", *options]) == 0
    mark = json.loads(Path("there/fake/reproduce.json").read_text(encoding="utf-8"))
    assert mark["command"] == "kernelweave reproduce fake --table 1 --splits 2 --quick"


def test_page_is_filled(fake):
    Path("page.md").write_text("# Fake\n\n<!-- results -->\nold\n", encoding="utf-8")
    assert main(["reproduce", "fake", "--markdown", "page.md"]) == 0
    text = Path("page.md").read_text(encoding="utf-8")
    assert text.startswith(
        "# Fake\n\n<!-- results -->\n\nMade by `kernelweave reproduce"
    )
    assert "old" not in text


def test_interruption_says_how_to_go_on(fake, capsys, monkeypatch):
    def stop(split):
        raise KeyboardInterrupt

    columns = {**fake.FIGURE.columns, "stop": stop}
    broken = dataclasses.replace(fake.FIGURE, columns=columns)
    paper = dataclasses.replace(fake.PAPER, experiments=(broken,))
    monkeypatch.setattr(reproduce, "load_paper", lambda key: paper)
    with pytest.raises(SystemExit) as caught:
        main(["reproduce", "fake"])
    assert caught.value.code == 130
    assert "the same command goes on from here" in capsys.readouterr().err
    monkeypatch.setattr(reproduce, "load_paper", lambda key: fake.PAPER)
    assert main(["reproduce", "fake", "--figure", "3"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["fake", "--table", "9"], "fake has no table9; there are table1, figure3"),
        (["fake", "--part", "all"], "fake has no all"),
        (["fake", "--markdown", "none.md"], "none.md"),
        (["fake", "--out", "taken"], "holds files that kernelweave did not write"),
    ],
)
def test_refusals(fake, capsys, options, message):
    Path("taken/fake").mkdir(parents=True)
    Path("taken/fake/mine.txt").write_text("mine", encoding="utf-8")
    assert main(["reproduce", *options]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("kernelweave: error: ")
    assert message in error


@pytest.mark.parametrize("splits", ["0", "-3", "many"])
def test_splits_must_be_positive(capsys, splits):
    with pytest.raises(SystemExit):
        main(["reproduce", "ye2007", "--splits", splits])
    assert f"'{splits}' is not a number above 0" in capsys.readouterr().err


def test_unknown_paper(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "nobody1900"]) == 2
    assert "the paper must be one of" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
