"""Write docs/_static/report.png: the top of a report, as Chromium shows it.

    python docs/_scripts/report_picture.py

Needs Chromium and the extra "report".
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from kernelweave import MultipleKernelFDA
from kernelweave.datasets import fetch_views
from kernelweave.report import write_report

PICTURE = Path(__file__).parents[1] / "_static" / "report.png"


def main() -> None:
    """Fit the model of the page on reports, and take a screenshot of its report."""
    cancer = fetch_views("breast_cancer")
    X, y = cancer.data[::3], cancer.target_names[cancer.target[::3]]
    model = MultipleKernelFDA(cancer.views, norm=1).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(model, X, y, page, n_resamples=60, n_decoys=39)
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        if browser is None:
            raise SystemExit("There is no Chromium on this machine.")
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
        size = "--window-size=900,965"
        command = [browser, *options, size, f"--screenshot={PICTURE}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
