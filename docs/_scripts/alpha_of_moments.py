"""Which alpha suits explicit features best? Accuracy on new rows.

    python docs/_scripts/alpha_of_moments.py [--draws 5]

Draws from the problem of benchmarks/scale.py, with 20,000 training rows and as many new
ones, and 60 Nystroem features per view. Prints the table in docs/user_guide/scale.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from reproduce.results import Estimate

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from scale import draw, make_model

ROWS, WIDTH = 20_000, 60
ALPHAS: tuple[Any, ...] = ("learn", "loo", "cv", 0.01, 1.0, 100.0)
NORMS = (1, 2)


def accuracy(alpha: Any, norm: float, number: int) -> float:
    """Accuracy on new rows, in percent."""
    X, y = draw(2 * ROWS, seed=number)
    model = make_model(
        features="nystroem", n_features=WIDTH, alpha=alpha, random_state=number
    )
    model.set_params(norm=norm).fit(X[:ROWS], y[:ROWS])
    return 100.0 * model.score(X[ROWS:], y[ROWS:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=5)
    draws = range(parser.parse_args().draws)
    print("| norm | " + " | ".join(f"`alpha={alpha!r}`" for alpha in ALPHAS) + " |")
    print("| --: |" + " --: |" * len(ALPHAS))
    for norm in NORMS:
        cells = []
        for alpha in ALPHAS:
            found = np.array([accuracy(alpha, norm, i) for i in draws])
            cells.append(f"{Estimate.of(found):.1f}")
        print(f"| {norm} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
