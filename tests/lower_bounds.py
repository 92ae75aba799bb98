"""Print what the package, its extras and its tests need, one requirement per line.

With the lowest versions that pyproject.toml allows, which "make test-minimum" installs:
a bound that nobody tests is a guess. ``--newest`` prints the names alone, for "make
test-newest". Names that follow are left out.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

#: Name with extras, and the lower bound: "numpy>=2.0", "dask[array]>=2025.1".
BOUND = re.compile(r"([A-Za-z0-9._-]+(?:\[[a-z,]+\])?)\s*(?:>=|~=|==)\s*([0-9.]+)")
EXTRA, GROUP = "all", "test"


def lower_bounds(project: dict[str, Any]) -> dict[str, str]:
    """The lowest version of each requirement."""
    metadata = project["project"]
    extras = metadata["optional-dependencies"]
    chosen = re.findall(r"[\w-]+", extras[EXTRA][0].partition("[")[2])
    named = [*metadata["dependencies"], *project["dependency-groups"][GROUP]]
    named += [requirement for extra in chosen for requirement in extras[extra]]
    found = {}
    for requirement in named:
        if requirement.startswith(f"{metadata['name']}["):
            continue  # an extra that is chosen itself
        match = BOUND.match(requirement)
        if match is None:
            raise ValueError(f"{requirement!r} has no lower bound")
        found[match[1]] = match[2]
    return dict(sorted(found.items()))


if __name__ == "__main__":
    newest, left_out = "--newest" in sys.argv, set(sys.argv[1:])
    content = Path("pyproject.toml").read_text(encoding="utf-8")
    for name, version in lower_bounds(tomllib.loads(content)).items():
        if name not in left_out:
            print(name if newest else f"{name}=={version}")
