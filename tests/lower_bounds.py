"""Print the lowest versions that pyproject.toml allows, one requirement per line.

"make test-minimum" installs exactly these: a bound that nobody tests is a guess.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

#: Name with extras, and the lower bound: "numpy>=2.0", "mypy~=2.4", "torch==2.13.0".
BOUND = re.compile(r"([A-Za-z0-9._-]+(?:\[[a-z,]+\])?)\s*(?:>=|~=|==)\s*([0-9.]+)")
#: The extra that names all others but those that need a further service or system.
EXTRA, GROUP = "all", "test"


def lower_bounds(project: dict[str, object]) -> list[str]:
    """Requirements ``name==version`` of the package, its extras and its tests."""
    metadata = project["project"]
    extras = metadata["optional-dependencies"]
    chosen = re.search(r"\[(.*)\]", extras[EXTRA][0])[1].split(",")
    named = [*metadata["dependencies"], *project["dependency-groups"][GROUP]]
    named += [requirement for extra in chosen for requirement in extras[extra]]
    found: dict[str, str] = {}
    for requirement in named:
        if requirement.startswith(f"{metadata['name']}["):
            continue  # an extra that includes another one, which is chosen itself
        match = BOUND.match(requirement)
        if match is None:
            raise ValueError(f"{requirement!r} has no lower bound")
        found[match[1]] = match[2]
    return [f"{name}=={version}" for name, version in sorted(found.items())]


if __name__ == "__main__":
    content = Path("pyproject.toml").read_text(encoding="utf-8")
    left_out = set(sys.argv[1:])
    for line in lower_bounds(tomllib.loads(content)):
        if line.partition("==")[0] not in left_out:
            print(line)
