"""Tables, files and pictures say what the results say."""

from __future__ import annotations

import csv
import dataclasses
import io
import sys

import pytest

from kernelweave.papers import report
from kernelweave.papers.progress import progress_bar
from kernelweave.papers.report import (
    MARK,
    cell_rows,
    insert_markdown,
    markdown,
    summary,
    write_csv,
    write_picture,
)
from kernelweave.papers.results import Results
from kernelweave.papers.run import run_experiment


@pytest.fixture
def results(fake, tmp_path):
    return run_experiment(fake.TABLE, 4, tmp_path / "cache")


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_lines_of_a_terminal(results):
    header, lines = cell_rows(results)
    assert header == ["data set", "method", "paper", "ours", "verdict"]
    by_method = {line[1]: line for line in lines}
    assert by_method["shifted"][2] == "0.50"
    assert " ± " in by_method["shifted"][3]
    assert by_method["shifted"][4] == "better"
    assert by_method["warns"][2] == by_method["warns"][4] == "-"


def test_summary_counts(results, fake):
    assert summary([results]) == (
        "Of 3 cells 1 reproduced, 1 better, 1 not reproduced; of 2 claims 1 "
        "reproduced; 1 rows left out"
    )
    assert summary([Results(fake.FIGURE)]) == "Nothing was compared"


def test_markdown_has_paper_ours_and_verdict(results):
    text = markdown([results], "kernelweave reproduce fake")
    assert text.startswith("Made by `kernelweave reproduce fake` at ")
    assert "## Table 1: numbers" in text
    assert "| half | paper | 0.50 | 0.50 | 0.50 | - |" in text
    assert "| | verdict | reproduced | better | not reproduced | - |" in text
    assert "the paper has 8" in text
    assert "- Left out: moon: the data set 'moon' is not here" in text
    assert "- Warning of warns in 4 split(s): the gap is #" in text
    assert "| the moon is cheese | not run |" in text


def test_markdown_says_how_many_splits(results, fake):
    assert "Mean over 4 splits and its standard error; the paper has 8." in markdown(
        [results], "c"
    )
    unstated = dataclasses.replace(fake.TABLE, stated=False)
    cells = results.splits["half"]
    both = {"half": cells, "moon": {0: cells[0]}}
    text = markdown([Results(unstated, both)], "c")
    assert "Mean over 1 to 4 splits" in text
    assert "the paper does not say how many it has." in text
    assert "Splits of each row: half 4, moon 1." in text


def test_page_keeps_its_text(results, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Ours\n\nWords.\n\n{MARK}\nold\n", encoding="utf-8")
    insert_markdown(page, "new\n")
    assert page.read_text(encoding="utf-8") == f"# Ours\n\nWords.\n\n{MARK}\nnew\n"
    page.write_text("# Ours\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has no line '<!-- results -->'"):
        insert_markdown(page, "new\n")


def test_csv_holds_every_split(results, tmp_path):
    cells, splits = write_csv(tmp_path, results)
    assert [row["verdict"] for row in read(cells)] == [
        "reproduced",
        "better",
        "not reproduced",
        "",
    ]
    rows = read(splits)
    assert len(rows) == 4 * 5  # four splits, four scores and a list
    assert {row["value"] for row in rows if row["measure"] == "list"} == {"1.0 2.0"}


def test_picture(results, tmp_path, monkeypatch, fake):
    pytest.importorskip("matplotlib")
    path = write_picture(tmp_path, results)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert write_picture(tmp_path, Results(fake.FIGURE)) is None
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert write_picture(tmp_path, results) is None


def test_commit_or_version(monkeypatch):
    assert report.commit().startswith(("commit ", "version "))
    monkeypatch.setenv("PATH", "")
    assert report.commit().startswith("version ")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines_of_progress():
    stream = io.StringIO()
    with progress_bar("table1", stream) as advance:
        for done in range(3, 21):
            advance(done, 20)
    assert stream.getvalue().splitlines() == [
        "table1: 3 of 20 splits were there already",
        "table1: 20 of 20 splits",
    ]


def test_lines_of_progress_come_now_and_then(monkeypatch):
    monkeypatch.setattr("kernelweave.papers.progress.PAUSE", 0.0)
    stream = io.StringIO()
    with progress_bar("table1", stream) as advance:
        for done in range(3):
            advance(done, 20)
    assert stream.getvalue().splitlines()[1].startswith("table1: 1 of 20 splits, about")


def test_rich_bar_on_a_terminal(monkeypatch):
    pytest.importorskip("rich")
    stream = Terminal()
    with progress_bar("table1", stream) as advance:
        advance(1, 2)
        advance(2, 2)
    assert "2/2" in stream.getvalue()
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    stream = Terminal()
    with progress_bar("table1", stream) as advance:
        advance(2, 2)
    assert stream.getvalue() == "table1: 2 of 2 splits were there already\n"
