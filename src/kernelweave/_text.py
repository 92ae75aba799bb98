"""Text of users, such as labels and names, shown so that it changes nothing else."""

from __future__ import annotations

import re

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
