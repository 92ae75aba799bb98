"""Which interpretation of Chen et al. (2008) comes closest to its results?

    KERNELWEAVE_DATA=folder python docs/_scripts/chen2008_readings.py [--splits 3]

Errors of discriminant analysis, the classifier behind uHSIC, with the width with the
smallest leave-one-out error, for several scalings of the columns and choices of 300
rows per class, on splits other than those of the tables. Prints the table in
docs/papers/chen2008.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.preprocessing import minmax_scale, normalize, scale

from kernelweave.models import KernelFDA

sys.path.insert(0, str(Path(__file__).parents[2]))
from reproduce import chen2008
from reproduce.experiment import first_rows, table_rows
from reproduce.run import split_generator

SETS = {
    "Satimage": "satimage",
    "Segment": "segment",
    "Waveform": "waveform",
    "Wine": "wine",
    "USPS": "usps",
}


unit_columns = partial(normalize, axis=0)
centred = partial(scale, with_std=False)

#: Scaling function, and whether rows are drawn at random.
READINGS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], bool]] = {
    "centred, unit length; at random": (lambda X: unit_columns(centred(X)), True),
    "unit length; at random": (unit_columns, True),
    "unit variance; at random": (scale, True),
    "unscaled, rows of unit length; at random": (normalize, True),
    "unit variance, rows of unit length; at random": (
        lambda X: normalize(scale(X)),
        True,
    ),
    "[0, 1]; at random": (minmax_scale, True),
    "[0, 1] over the root of the number of columns; at random": (
        chen2008.normalised,
        True,
    ),
    "[0, 1] over the root of the number of columns; the first 300": (
        chen2008.normalised,
        False,
    ),
}


def error(name: str, reading: str, number: int) -> float:
    """Error in percent on the held-out half."""
    scaled, at_random = READINGS[reading]
    X, y = table_rows(name)
    rng = split_generator("readings", number)
    order = rng.permutation(len(y)) if at_random else slice(None)
    X, y = first_rows(X[order], y[order], chen2008.PER_CLASS)
    split = chen2008.halves((scaled(X), y, chen2008.WIDTHS), rng)
    model = KernelFDA(split.views((split.sigma,))).fit(split.train, split.y_train)
    return 100.0 * (1.0 - model.score(split.test, split.y_test))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    run = Parallel(n_jobs=options.jobs)
    print("| columns; rows of each class | " + " | ".join(SETS) + " |")
    print("|" + " --- |" * (len(SETS) + 1))
    table = chen2008.PAPER.select("table2")[0].published
    printed = [f"{table[row, 'uHSIC']['error'].value:.1f}" for row in SETS]
    print("| **paper** | " + " | ".join(printed) + " |")
    for reading in READINGS:
        cells = []
        for name in SETS.values():
            found = run(delayed(error)(name, reading, i) for i in range(options.splits))
            cells.append(f"{np.mean(found):.1f}")
        print(f"| {reading} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
