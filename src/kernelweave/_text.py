"""Words of messages, and texts of users shown so that they change nothing else."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

#: Characters that move a cursor, ring, or turn the direction of the text around them:
#: controls but tab and newline, marks of direction, and halves of characters.
CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    r"\ud800-\udfff]"
)


def escaped(text: str) -> str:
    r"""The text with controls written out as in Python, such as ``\x1b``.

    Newlines and tabs stay, which arrange what a program prints.
    """
    return CONTROLS.sub(_written_out, text)


def in_line(text: str) -> str:
    """The text for a place within a line: newlines and tabs are written out, too."""
    return escaped(text).replace("\n", r"\n").replace("\t", r"\t")


def _written_out(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode("ascii")


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Begin the message of any TypeError or ValueError with ``prefix``."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not prefix:
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{prefix}{error}") from error


def numbered(start: int) -> AbstractContextManager[None]:
    """Prefix error messages with the first row of the portion, unless it is row 0."""
    text = f"In the portion that starts at row {start:,} (row numbers below count from "
    return prefixed(f"{text}there): " if start else "")


def renumbered(left_out: int) -> AbstractContextManager[None]:
    """Prefix error messages with the number of rows that were left out, if any were."""
    text = f"After leaving out {counted(left_out, 'row')} of sample_weight 0 (row "
    text += "numbers below count the others): "
    return prefixed(text if left_out > 0 else "")


def some(words: Iterable[str], most: int = 5) -> str:
    """The first few words, and how many more there are."""
    words = list(words)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question after the closest of the known names, if one is close; else ""."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def listed(words: Iterable[str]) -> str:
    """All the words: a, b and c."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def counted(n: int, thing: str) -> str:
    """A number and what it counts: 1 view, 2 views."""
    return f"{n} {thing}" + ("" if n == 1 else "s")


def with_names(thing: str, words: Iterable[str], most: int = 5) -> str:
    """A noun and the first few names: view 'a', views 'a', 'b'."""
    words = list(words)
    return f"{thing}{'s' * (len(words) > 1)} {some(words, most)}"
