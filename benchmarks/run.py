"""Measure and compare: ``benchmarks/run.py [section ...] [--quick] [--write-docs]``.

Sections: fit_times, sdp, cutting_plane, fit_vs_single, peers, margins, memory, growth,
mixture, missing, subspace. Each writes its results to
``benchmarks/results/<section>.json``, and ``--write-docs`` builds docs/benchmarks.md
from them; "missing" needs the data folder in KERNELWEAVE_DATA.
``benchmarks/gpu.py`` is a separate program, for a machine with a GPU.
"""

from __future__ import annotations

import argparse
import importlib
from functools import partial

from harness import RESULTS, measured, one_thread, save

from report import as_text, write_docs

SECTIONS = (
    "fit_times",
    "sdp",
    "cutting_plane",
    "fit_vs_single",
    "peers",
    "margins",
    "memory",
    "growth",
    "mixture",
    "missing",
    "subspace",
)


def main() -> int:
    """Run the sections named on the command line, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", metavar="section", help=str(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="small sizes, not saved")
    parser.add_argument("--write-docs", action="store_true", help="docs/benchmarks.md")
    options = parser.parse_args()
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"unknown: {sorted(unknown)}; the sections are {SECTIONS}")
    # With --write-docs alone, the page is built from the results that exist.
    chosen = options.sections or (() if options.write_docs else SECTIONS)
    one_thread()
    missed = 0
    for name in chosen:
        section = importlib.import_module(name)
        result = measured(partial(section.run, options.quick))
        print(as_text(result), flush=True)
        missed += sum(not check["passed"] for check in result["checks"])
        if not options.quick:
            save(RESULTS / f"{name}.json", result)
    if options.write_docs:
        print(f"wrote {write_docs()}")
    if missed:
        print(f"requirements missed: {missed}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
