"""Writes ``user_guide/error_messages.md`` from the table of bad input of the tests.

Run it after changing a message or the table::

    python docs/_scripts/error_messages.py
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "user_guide" / "error_messages.md"
sys.path.insert(0, str(ROOT / "tests"))

from bad_input_cases import CASES, Case  # noqa: E402

INTRODUCTION = """# Error messages

*Which message does this input get?*

{n} kinds of bad input, and the message for each. Every message says what was found,
where (view, kernel, row, column or parameter), and what to do; other estimators give
the same messages with their own names. The tests go through this table with every
estimator, and `docs/_scripts/error_messages.py` writes this page from it. In the
examples, X has 12 rows and 6 columns, in the views `left` and `right` or, in a table
with column names, `clinical` and `genes`. What to do about warnings, and about input
that is handled without an error, is explained in [](when_things_go_wrong.md).

```python
from kernelweave import MultipleKernelFDA

try:
    MultipleKernelFDA(alpha=-1).fit([[1.0], [2.0]], ["ill", "well"])
except ValueError as error:
    print(str(error).partition(";")[2].strip())
```

```text
got -1
```
"""


def row(case: Case) -> str:
    """What is wrong, and what the first estimator concerned says."""
    kind, message = case.refusal(case.models[0])
    text = " ".join(f"{kind.__name__}: {message}".split()).replace("`", "'")
    return f"| {case.wrong} | `{text}` |".replace(" || ", " or ")


def text() -> str:
    """The page."""
    parts = [INTRODUCTION.format(n=len(CASES))]
    for group, cases in groupby(CASES, key=lambda case: case.group):
        parts += [f"## {group}\n", "| what is wrong | message |", "| --- | --- |"]
        parts += [*map(row, cases), ""]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
