"""The pages of the papers show every picture, and use the verdicts of the program."""

from __future__ import annotations

import pathlib
import re

import pytest

from reproduce import PAPERS, load_paper
from reproduce.results import BETTER, NOT_REPRODUCED, REPRODUCED, WORSE

DOCS = pathlib.Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("key", PAPERS)
def test_every_figure_that_is_drawn_is_on_its_page(key):
    text = (DOCS / "papers" / f"{key}.md").read_text(encoding="utf-8")
    for experiment in load_paper(key).experiments:
        assert f"## {experiment.title}" in text
        if experiment.draw is not None:
            picture = f"_static/papers/{key}_{experiment.key}.png"
            assert f"../{picture}" in text
            assert (DOCS / picture).is_file()


@pytest.mark.parametrize("key", PAPERS)
def test_verdicts_are_those_of_the_program(key):
    text = (DOCS / "papers" / f"{key}.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| \| verdict \| (.*) \|$", text, re.MULTILINE)
    cells = {cell.strip() for line in lines for cell in line.split("|")}
    assert cells <= {REPRODUCED, BETTER, WORSE, NOT_REPRODUCED, "-"}
    for experiment in load_paper(key).experiments:
        for claim in experiment.claims:
            assert f"| {claim.text} | " in text


@pytest.mark.parametrize("key", PAPERS)
def test_every_printed_number_is_on_its_page(key):
    text = (DOCS / "papers" / f"{key}.md").read_text(encoding="utf-8")
    for experiment in load_paper(key).experiments:
        digits = {measure.name: measure.digits for measure in experiment.measures}
        for (row, _), numbers in experiment.published.items():
            lines = re.findall(rf"^\| {re.escape(row)} \| paper \|.*$", text, re.M)
            for measure, number in numbers.items():
                shown = f" {number.value:.{digits[measure]}f} "
                assert any(shown in line for line in lines), (row, measure, shown)
