"""Write the tables bundled with the package, from other packages that hold them.

    apt-get download r-cran-mlbench && dpkg-deb -x r-cran-mlbench_*.deb mlbench
    pip install rdata && pip download --no-deps river
    python docs/_scripts/bundle_tables.py --mlbench mlbench --river river-*.whl

Sonar, ionosphere, breast cancer and satimage are in Debian's r-cran-mlbench, segment is
in river. Both took them from the UCI repository; their licence and authors are named in
src/kernelweave/datasets/data/README.md. Only names of columns and classes are changed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import warnings
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

TARGET = Path(__file__).parents[2] / "src" / "kernelweave" / "datasets" / "data"
RDA = "usr/lib/R/site-library/mlbench/data"
BREAST_CANCER = [
    "clump_thickness",
    "cell_size",
    "cell_shape",
    "marginal_adhesion",
    "epithelial_size",
    "bare_nuclei",
    "bland_chromatin",
    "normal_nucleoli",
    "mitoses",
]
#: Name in mlbench, names of the columns, and shorter names of classes.
MLBENCH: dict[str, tuple[str, Sequence[str], dict[str, str]]] = {
    "sonar": ("Sonar", [f"band{j}" for j in range(1, 61)], {}),
    "ionosphere": (
        "Ionosphere",
        [f"a{j:02d}" for j in range(1, 35)],
        {"good": "g", "bad": "b"},
    ),
    "breast_cancer_wisconsin": ("BreastCancer", BREAST_CANCER, {}),
    "satimage": ("Satellite", [f"x{j}" for j in range(1, 37)], {}),
}
#: A column of nines that river leaves out: position, name and value.
PIXEL_COUNT = (2, "region-pixel-count", "9")


def number(value: object) -> str:
    """The shortest form of a number; blank if it is missing."""
    text = str(value)
    if text in ("nan", "<NA>", "None"):
        return ""
    return f"{float(text):.17g}" if float(text).is_integer() else repr(float(text))


def from_mlbench(folder: Path, name: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of an R data frame."""
    import rdata

    title, columns, short = MLBENCH[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unknown encoding")
        frame = rdata.read_rda(folder / RDA / f"{title}.rda")[title]
    frame = frame.drop(columns="Id", errors="ignore")
    rows = [
        [*map(number, row[:-1]), short.get(str(row[-1]), str(row[-1]))]
        for row in frame.itertuples(index=False, name=None)
    ]
    return [*columns, "label"], rows


def from_river(wheel: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of river's segment."""
    inner = zipfile.ZipFile(wheel).read("river/datasets/segment.csv.zip")
    with zipfile.ZipFile(io.BytesIO(inner)) as archive:
        lines = archive.read(archive.namelist()[0]).decode().splitlines()
    header, *rows = [line.split(",") for line in lines]
    place, title, value = PIXEL_COUNT
    header = [*header[:place], title, *header[place:-1], "label"]
    # the numbers had single precision: further digits are noise
    numbers = [[f"{float(cell):.7g}" for cell in row[:-1]] for row in rows]
    return header, [
        [*cells[:place], value, *cells[place:], row[-1]]
        for cells, row in zip(numbers, rows, strict=True)
    ]


def write(name: str, header: list[str], rows: Iterable[list[str]]) -> None:
    """Write the table as the package reads it, with the same bytes every time."""
    text = "\n".join(",".join(row) for row in [header, *rows]) + "\n"
    packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    (TARGET / f"{name}.csv.gz").write_bytes(packed)
    print(f"{name}: {len(packed) / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mlbench", type=Path, required=True, help="unpacked package")
    parser.add_argument("--river", type=Path, required=True, help="wheel")
    options = parser.parse_args()
    for name in MLBENCH:
        write(name, *from_mlbench(options.mlbench, name))
    write("segment", *from_river(options.river))


if __name__ == "__main__":
    main()
