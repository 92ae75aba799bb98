"""Write the models by which later versions are tested: run once for each release.

``PYTHONPATH=tests python tests/releases/write.py`` fits a few models, and writes each
of them with its decision values to a folder named after the version, which is then
committed. A folder is never written again: what a release has saved, all later ones
must load.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
from sklearn.base import clone

import kernelweave
from estimators import SETTINGS, output

HERE = Path(__file__).parent
#: One of each family; a file is about 7 kB.
NAMES = (
    "KernelFDA",
    "MultipleKernelFDA-l1",
    "MultipleKernelRidge-l2-learn",
    "MultipleKernelSVC",
    "ProbabilisticKDA",
)
VIEWS = [("a", "linear", [0]), ("b", "rbf", [1])]


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Rows (12, 2) and classes (12,), without random numbers."""
    i = np.arange(12)
    return np.column_stack([np.sin(i) + 2 * (i % 2), np.cos(3.0 * i)]), i % 2


def main() -> None:
    folder = HERE / kernelweave.__version__
    folder.mkdir()
    X, y = rows()
    values, models = {}, {}
    for name in NAMES:
        models[name] = clone(SETTINGS[name]).set_params(views=VIEWS)
        models[name].fit(X, y.astype(float) if "Ridge" in name else y)
    summed = kernelweave.MultipleKernelFDA(VIEWS, n_features=2, cv=None, random_state=0)
    models["portions"] = summed.partial_fit(X[:8], y[:8])
    for name, model in models.items():
        values[name] = output(model, X).tolist()
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "model.kw"
            kernelweave.save(model, path)
            content = gzip.compress(path.read_bytes(), mtime=0)
        (folder / f"{name}.kw.gz").write_bytes(content)
    text = json.dumps({"X": X.tolist(), "values": values}, indent=1)
    (folder / "values.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
