"""Draw docs/_static/mnist.png: how the weights are spread over the parts of an image.

Reads benchmarks/results/mnist.json, which ``python benchmarks/gpu.py mnist-learned
--out benchmarks/results/mnist.json`` writes on a machine with a GPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from gpu_goals import PARTS  # noqa: E402


def main() -> None:
    text = (ROOT / "benchmarks" / "results" / "mnist.json").read_text(encoding="utf-8")
    weights = json.loads(text)["view_weights"]
    total = sum(weights.values())
    shares = {name: 100 * weight / total for name, weight in weights.items()}
    pixels = np.zeros((28, 28))
    for name, (rows, columns) in PARTS.items():
        pixels[rows, columns] += shares[name] / pixels[rows, columns].size
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    drawn = left.imshow(pixels, cmap="cividis", vmin=0)
    left.set(title="Share of each pixel", xticks=[], yticks=[])
    figure.colorbar(drawn, ax=left, label="share (%)")
    names = list(PARTS)[::-1]
    right.barh(names, [shares[name] for name in names], color="#0072B2")
    right.set(title="Share of each view", xlabel="share (%)")
    figure.savefig(ROOT / "docs" / "_static" / "mnist.png", dpi=100)


if __name__ == "__main__":
    main()
