"""Mutated files: each is refused in one sentence or read, and nothing else happens.

A :class:`Target` is a kind of file with the function that reads it. ``attempt`` changes
one file at random, reads it, and tells the outcome: "refused", "equal" or "other"
(read, with contents that are legitimate in a file without a checksum). It raises
:class:`Breach` if reading ended with an unexpected error or a message of several lines,
started a process, imported a module of the file's choice, opened a connection, wrote
outside the folder, or took more than :data:`MEMORY`.

By hand, with counts by outcome: ``python tests/stress_files.py --count 20000``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kernelweave
from kernelweave.cli import fit
from kernelweave.cli.main import INPUT_ERRORS, build_parser, in_one_line, main
from kernelweave.datasets import _sources, expression
from kernelweave.persistence import HEADER, MODEL

sys.path.append(str(Path(__file__).parents[1]))  # last: it has a conftest too
from reproduce import Experiment, Measure
from reproduce.run import list_jobs, run_experiment

#: What reading one mutated file may take, in bytes.
MEMORY = 100 * 2**20
#: A module that exists nowhere: a file that makes us look for it has run code.
TRAP = "stress_trap"
#: What no reader of a file does.
FORBIDDEN = (
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "pty.spawn",
    "socket.bind",
    "socket.connect",
    "subprocess.Popen",
)


class Breach(AssertionError):
    """A file did what no file may do."""


# The changes ----------------------------------------------------------------------

#: Texts that have broken readers before.
SNIPPETS = [
    b"[" * 3000,
    b'{"a":' * 3000,
    b"{" * 3000,
    b"9" * 5000,
    b"1e400",
    b"-1e-400",
    b"nan",
    b"null",
    b"true",
    b'""',
    b'"',
    b"'''",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b",",
    b",,,,",
    b";",
    b"\t",
    b"=1+1",
    b"../../etc/passwd",
    b"1979-05-27T07:32:00Z",
    b"," * 100_000,
    "\N{SNOWMAN}\N{ZERO WIDTH SPACE}".encode(),
    b"[views.a]\n",
    b"kernel = [[[]]]\n",
    b'kernel = {name = ["rbf"]}\n',
    b'kernel = {name = "rbf", gamma = "x"}\n',
    b"norm = true\n",
    b"alpha = [1]\n",
    b"class_weight = {a = -1}\n",
    b"!subset_",
    b"!dataset_table_begin\n",
    b"^SUBSET\n",
]


def change_bytes(rng: random.Random, content: bytes) -> bytes:
    """One to three faults of disks, transfers and editors."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        n = len(data)
        if not n:
            break
        i, j = sorted(rng.randrange(n + 1) for _ in range(2))
        kind = rng.randrange(9)
        if kind == 0:
            data[rng.randrange(n)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[i:]
        elif kind == 2:
            del data[i : i + rng.randint(1, 40)]
        elif kind == 3:
            data[i:i] = data[i : i + rng.randint(1, 200)]
        elif kind == 4:  # two blocks in the other's place
            k = rng.randint(1, 60)
            data[i : i + k], data[j : j + k] = data[j : j + k], data[i : i + k]
        elif kind == 5:
            data[i : i + 8] = rng.choice([b"\0", b"\xff"]) * 8
        elif kind == 6:
            data[i:i] = rng.choice(SNIPPETS)
        elif kind == 7:
            snippet = rng.choice(SNIPPETS)
            data[i : i + len(snippet)] = snippet
        else:
            data += bytes(rng.randrange(256) for _ in range(rng.randint(1, 50)))
    return bytes(data)


def junk(rng: random.Random) -> Any:
    """A value of a type that is not expected."""
    deep: Any = []
    for _ in range(rng.choice([1, 50, 900])):
        deep = [deep]
    return rng.choice(
        [
            *(None, True, -1, 0, 10**30, 1e308, float("nan"), "", "x" * 1000, TRAP),
            *("../../etc/passwd", [], {}, [None], {"a": {}}, deep, [1, [2, "3"]]),
        ]
    )


def nodes(tree: Any) -> list[tuple[Any, Any]]:
    """The places of a JSON document: container and key."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        pairs = (
            node.items()
            if isinstance(node, dict)
            else enumerate(node)
            if isinstance(node, list)
            else ()
        )
        for key, value in pairs:
            found.append((node, key))
            waiting.append(value)
    return found


#: Modules and names that a forged model might ask for.
WANTED = [
    ("os", "system"),
    ("builtins", "eval"),
    ("builtins", "exec"),
    ("subprocess", "Popen"),
    (TRAP, "anything"),
    (f"kernelweave.models.{TRAP}", "anything"),
    ("kernelweave.models.shared.base", "np"),
    ("kernelweave.cli.main", "main"),
    ("numpy", "ndarray"),
    ("functools", "partial"),
    ("operator", "methodcaller"),
    ("sklearn.linear_model._logistic", "LogisticRegression"),
]


def change_tree(rng: random.Random, text: bytes) -> bytes:
    """A JSON document with one to three wrong values, keys or places."""
    tree = json.loads(text)
    for _ in range(rng.randint(1, 3)):
        places = nodes(tree)
        if not places:
            break
        node, key = rng.choice(places)
        kind = rng.randrange(6)
        if kind == 0:
            node[key] = junk(rng)
        elif kind == 1:
            del node[key]
        elif kind == 2 and isinstance(node, dict):
            node[rng.choice(["__class__", "content", "", "x", TRAP])] = node.pop(key)
        elif kind == 3:  # two parts in the other's place, or one inside itself
            other, place = rng.choice(places)
            copies = [json.dumps(node[key]), json.dumps(other[place])]
            other[place] = json.loads(copies[0])
            if key in (node if isinstance(node, dict) else range(len(node))):
                node[key] = json.loads(copies[1])
        elif kind == 4:
            loaders = [n for n, k in places if k == "__loader__"]
            if loaders:
                one, two = rng.choice(loaders), rng.choice(loaders)
                one["__loader__"] = two["__loader__"]
        else:
            named = [n for n, k in places if k == "__module__"]
            if named:
                one = rng.choice(named)
                one["__module__"], one["__class__"] = rng.choice(WANTED)
    return json.dumps(tree).encode()


Member = tuple[str, bytes]


def archive(members: list[Member], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that occur twice
        for name, content in members:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = method
            if name.startswith("link"):
                entry.external_attr = 0o120777 << 16  # a symbolic link
            made.writestr(entry, content)
    return file.getvalue()


def members_of(content: bytes) -> list[Member]:
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        return [(name, opened.read(name)) for name in opened.namelist()]


def huge_array(rng: random.Random) -> bytes:
    """The header of an array of up to 8 TB, and nothing more."""
    header = io.BytesIO()
    shape = rng.choice([(10**12,), (10**9, 2), (2**62, 8), (-1,), (10**8,)])
    descr = rng.choice(["<f8", "|O", "<U1000000"])
    np.lib.format.write_array_header_1_0(
        header, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return header.getvalue() + b"\0" * rng.choice([0, 100])


def change_archive(rng: random.Random, content: bytes) -> bytes:
    """An archive with members swapped, renamed, linked, doubled, huge or changed."""
    members, method = members_of(content), zipfile.ZIP_STORED
    kind, i = rng.randrange(9), rng.randrange(len(members))
    arrays = [k for k, (name, _) in enumerate(members) if name.endswith(".npy")]
    name, part = members[i]
    if kind == 0 and len(arrays) > 1:
        i, j = rng.sample(arrays, 2)
        members[i], members[j] = (
            (members[i][0], members[j][1]),
            (members[j][0], members[i][1]),
        )
    elif kind == 1:
        members[i] = (rng.choice(["../", "/", "..\\", "a/../../"]) + name, part)
    elif kind == 2:
        members[i] = ("link", b"/etc/passwd")
    elif kind == 3:
        members.append((name, change_bytes(rng, part)))
    elif kind == 4 and arrays:
        members[rng.choice(arrays)] = (members[arrays[0]][0], huge_array(rng))
    elif kind == 5:
        method = zipfile.ZIP_DEFLATED
        members[i] = (name, part + b" " * rng.choice([0, 10**7]))
    elif kind == 6:
        del members[i]
    elif kind == 7:
        json_like = part[:1] in (b"{", b"[")
        changed = change_tree(rng, part) if json_like else change_bytes(rng, part)
        members[i] = (name, changed)
    else:  # sizes that the directory claims
        data = bytearray(archive(members))
        start = data.rfind(b"PK\x01\x02")
        data[start + 20 : start + 28] = rng.randbytes(8)
        return bytes(data)
    return archive(members, method)


def forge(rng: random.Random, content: bytes) -> bytes:
    """A model file with another model and the right checksum."""
    (_, header), (_, model) = members_of(content)
    kind = rng.randrange(4)
    if kind == 0:
        model = change_archive(rng, model)
    elif kind == 1:
        model = change_bytes(rng, model)
    else:
        inner = members_of(model)
        k = next(k for k, (name, _) in enumerate(inner) if name == "schema.json")
        inner[k] = ("schema.json", change_tree(rng, inner[k][1]))
        model = archive(inner)
    told = json.loads(header)
    told |= {"sha256": hashlib.sha256(model).hexdigest(), "bytes": len(model)}
    return archive([(HEADER, json.dumps(told).encode()), (MODEL, model)])


def change_header(rng: random.Random, content: bytes) -> bytes:
    (_, header), (_, model) = members_of(content)
    return archive([(HEADER, change_tree(rng, header)), (MODEL, model)])


def gzip_bomb(rng: random.Random, content: bytes) -> bytes:
    """A small file that would fill the memory."""
    head = gzip.decompress(content)
    head = head[: head.find(b"\n") + 1]
    filler = rng.choice([b"0", b",", b"\n", b"a,", head, b"0,0,0,0,a\n", b"\t", b"\0"])
    size = rng.choice([10**6, 10**7, 6 * 10**7])
    start = rng.choice([b"", head, gzip.decompress(content)])
    return gzip.compress(start + filler * (size // len(filler)), 6)


def packed(
    change: Callable[[random.Random, bytes], bytes],
) -> Callable[[random.Random, bytes], bytes]:
    """The change inside the compressed text, so that its checksum is right."""
    return lambda rng, content: gzip.compress(change(rng, gzip.decompress(content)), 1)


# The targets ----------------------------------------------------------------------

Change = Callable[[random.Random, bytes], bytes]


@dataclass(frozen=True)
class Target:
    """A kind of file.

    Attributes
    ----------
    name : str
        Name of the file in its folder.
    content : bytes
        What is right.
    changes : tuple of callables
        Faults; each is as likely as the others.
    read : callable
        Reads the folder with the file; returns what is compared.
    must_equal : tuple of callables
        Those of the changes that a checksum reveals.
    in_command : bool
        Whether only the command line reads it, which shortens messages.
    """

    name: str
    content: bytes
    changes: tuple[Change, ...]
    read: Callable[[Path], Any]
    must_equal: tuple[Change, ...] = ()
    in_command: bool = False


def rows(n: int = 24) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n, 4))
    return X, np.where(X[:, 0] + X[:, 2] > 0, "ill", "well")


def table_text(separator: str = ",", n: int = 24) -> str:
    X, y = rows(n)
    lines = [separator.join(["a_1", "a_2", "b_1", "b_2", "label"])]
    lines += [
        separator.join([*(f"{v:.3f}" for v in row), str(c)])
        for row, c in zip(X, y, strict=True)
    ]
    return "\n".join(lines) + "\n"


def model_target(folder: Path) -> Target:
    X, y = rows()
    views = [("a", "auto", [0, 1]), ("b", ["linear", "rbf"], [2, 3])]
    model = kernelweave.MultipleKernelFDA(views, norm=1, alpha=0.1, cv=None).fit(X, y)
    path = folder / "good.kw"
    kernelweave.save(model, path, notes={"label": "label", "rows": 24, "files": ["a"]})

    def read(place: Path) -> Any:
        found = kernelweave.load(place / "model.kw")
        try:
            return found.decision_function(X).tolist()
        except Exception:  # of another model, forged rather than damaged
            return "another model"

    plain: tuple[Change, ...] = (change_bytes, change_archive)
    changes = (*plain, change_header, forge)
    return Target("model.kw", path.read_bytes(), changes, read, (*plain, change_header))


def command(arguments: list[str]) -> str:
    """What a command prints; its one line on standard error becomes an error."""
    said, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
        status = main(arguments)
    if status == 0:
        return said.getvalue()
    message = wrong.getvalue()
    if status != 2 or not message.startswith("kernelweave: error: "):
        raise Breach(f"exit status {status}: {message!r:.300}")
    raise ValueError(message.removesuffix("\n"))


def inspect_target(folder: Path) -> Target:
    """The same file for the command line, which also uses the header and the model."""
    good = model_target(folder)
    data = folder / "new.csv"
    data.write_text(table_text(n=5).replace("a_1,a_2,b_1,b_2", "x0,x1,x2,x3"))

    def read(place: Path) -> Any:
        model = str(place / "model.kw")
        said = command(["inspect", model])
        return said, command(["predict", model, str(data)])

    X, y = rows()
    frame = __import__("pandas").DataFrame(X, columns=["x0", "x1", "x2", "x3"])
    views = [("a", "auto", ["x0", "x1"]), ("b", "auto", ["x2", "x3"])]
    model = kernelweave.MultipleKernelFDA(views, norm=1, alpha=0.1, cv=None)
    kernelweave.save(model.fit(frame, y), folder / "named.kw")
    content = (folder / "named.kw").read_bytes()
    return Target(good.name, content, (change_header, forge), read)


def half() -> float:
    return 0.5


def draw(data: float, rng: np.random.Generator) -> float:
    return data + float(rng.standard_normal())


def measured(split: float) -> dict[str, Any]:
    return {"score": split, "list": [1.0, 2.0]}


def warned(split: float) -> dict[str, Any]:
    warnings.warn(f"the gap is {split}", UserWarning, stacklevel=1)
    return {"score": split}


EXPERIMENT = Experiment(
    key="table1",
    title="Table 1",
    rows={"half": half},
    split=draw,
    columns={"one": measured, "two": warned},
    measures=(Measure("score", digits=2),),
    splits=3,
    quick=1,
)


def long(split: float) -> dict[str, Any]:
    return {"score": split, "list": [split] * 200}


#: Its splits take more than the 500 bytes of a disk that is almost full.
LONG = dataclasses.replace(EXPERIMENT, columns={"one": long})


def cache_target(folder: Path) -> Target:
    """The results of one split of an experiment, which is run again if need be."""
    run_experiment(EXPERIMENT, 1, folder / "good")
    job = list_jobs(EXPERIMENT, 1, folder / "good")["half"][0]
    place_of = list_jobs(EXPERIMENT, 1, Path())["half"][0].path

    def read(place: Path) -> Any:
        os.makedirs((place / place_of).parent, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(place / "split.json", place / place_of)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            known = run_experiment(EXPERIMENT, 1, place, cached=True)
            known.cells(), known.claims()
            again = run_experiment(EXPERIMENT, 1, place)
        (place / place_of).unlink()
        if known.splits and known.splits != again.splits:
            raise Breach("a split was read that differs from the one that was run")
        if caught:
            raise ValueError(str(caught[0].message))
        return again.splits, again.warnings

    changes = (change_bytes, change_tree)
    return Target("split.json", job.path.read_bytes(), changes, read, changes)


@contextlib.contextmanager
def data_folder(place: Path) -> Iterator[None]:
    before = os.environ.get(_sources.DATA_VARIABLE)
    os.environ[_sources.DATA_VARIABLE] = str(place)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "holds different numbers"
            yield
    finally:
        os.environ.pop(_sources.DATA_VARIABLE)
        if before is not None:
            os.environ[_sources.DATA_VARIABLE] = before


def dataset_target(folder: Path) -> Target:
    text = table_text().encode()
    values = np.loadtxt(io.BytesIO(text), delimiter=",", skiprows=1, usecols=range(4))
    source = _sources.Source("toy", 24, 4, _sources.fingerprint(values))

    def read(place: Path) -> Any:
        with data_folder(place):
            cells = _sources.find_cells(source, download=False)
        return cells.names, cells.values.tolist(), cells.texts["label"].tolist()

    changes = (change_bytes, packed(change_bytes), gzip_bomb)
    return Target("toy.csv.gz", gzip.compress(text), changes, read)


def zip_bomb(rng: random.Random, content: bytes) -> bytes:
    big = io.BytesIO()
    np.save(big, np.zeros((rng.choice([10**5, 2 * 10**7]), 1)))
    made = [("X.npy", big.getvalue()), *members_of(content)[1:]]
    return archive(made, zipfile.ZIP_DEFLATED)


def chip_target(folder: Path) -> Target:
    X, y = rows()
    file = io.BytesIO()
    np.savez_compressed(file, X=X, y=y, features=np.array(["A", "B", "C", "D"]))
    chip = expression.Chip("toy", "A chip.")

    def read(place: Path) -> Any:
        with data_folder(place):
            return [part.tolist() for part in expression._read_chip(chip)]

    changes = (change_bytes, change_archive, zip_bomb)
    return Target("toy.npz", file.getvalue(), changes, read)


def series_target(folder: Path) -> Target:
    lines = ["^DATABASE = Geo", "!dataset_title = Toy"]
    for kind, samples in (("ill", "S1,S2"), ("well", "S3,S4")):
        lines += ["^SUBSET = GDS1_1", f"!subset_description = {kind}"]
        lines += [f"!subset_sample_id = {samples}", "!subset_type = disease state"]
    lines += ["!dataset_table_begin", "ID_REF\tIDENTIFIER\tS1\tS2\tS3\tS4"]
    lines += [f"p{j}\tG{j}\t1.0\t2.0\t3.5\t{j}" for j in range(6)]
    lines += ["!dataset_table_end"]

    def read(place: Path) -> Any:
        with data_folder(place):
            found = expression.fetch_expression("GDS1", gene_sets=None, as_frame=False)
        return found.data.tolist(), found.target.tolist()

    content = gzip.compress(("\n".join(lines) + "\n").encode())
    changes = (change_bytes, packed(change_bytes), gzip_bomb)
    return Target("GDS1.soft.gz", content, changes, read)


def gene_sets_target(folder: Path) -> Target:
    text = b"HALLMARK_A\tabout\tG1\tG2\nHALLMARK_B\tabout\tG3\n"

    def read(place: Path) -> Any:
        return expression._read_gene_sets(str(place / "sets.gmt.gz"))

    changes = (change_bytes, packed(change_bytes), gzip_bomb)
    return Target("sets.gmt.gz", gzip.compress(text), changes, read)


def probes_target(folder: Path) -> Target:
    def read(place: Path) -> Any:
        with data_folder(place):
            return expression._symbols(np.array(["p1", "p2"])).tolist()

    changes = (change_bytes, packed(change_bytes), gzip_bomb)
    return Target(expression.PROBES, gzip.compress(b"p1,G1\np2,G2\n"), changes, read)


def read_problem(arguments: list[str]) -> Any:
    """What "fit" would learn from, without the fit itself."""
    options = build_parser().parse_args(["fit", *arguments])
    with contextlib.redirect_stdout(io.StringIO()):
        return fit.read_problem(options)


def table_target(
    name: str, changes: tuple[Change, ...], make: Callable[[], bytes]
) -> Callable[[Path], Target]:
    def target(folder: Path) -> Target:
        def read(place: Path) -> Any:
            problem = read_problem([str(place / name), "--label", "label"])
            return problem.samples.data.to_csv(), problem.y.tolist()

        return Target(name, make(), changes, read, in_command=True)

    return target


def excel() -> bytes:
    frame = __import__("pandas").read_csv(io.StringIO(table_text()))
    file = io.BytesIO()
    frame.to_excel(file, index=False)
    return file.getvalue()


def parquet() -> bytes:
    frame = __import__("pandas").read_csv(io.StringIO(table_text()))
    file = io.BytesIO()
    frame.to_parquet(file)
    return file.getvalue()


def excel_bomb(rng: random.Random, content: bytes) -> bytes:
    members = members_of(content)
    k = next(k for k, (name, _) in enumerate(members) if "sheet1" in name)
    cell = rng.choice([b"<row><c><v>1</v></c></row>", b"<c><v>1</v></c>", b" "])
    filler = cell * (rng.choice([10**6, 3 * 10**7]) // len(cell))
    name, part = members[k]
    members[k] = (name, part.replace(b"</sheetData>", filler + b"</sheetData>"))
    return archive(members, zipfile.ZIP_DEFLATED)


def parquet_bomb(rng: random.Random, content: bytes) -> bytes:
    """Runs of one value, of which a file needs to keep but one."""
    pyarrow = __import__("pyarrow.parquet")
    n = rng.choice([10**5, 3 * 10**7])
    column = pyarrow.array(np.zeros(n, dtype="int8"))
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"x": column, "label": column}), file)
    return file.getvalue()


SETTINGS = b"""\
[data]
label = "label"
drop = ["b_2"]

[model]
norm = 2
alpha = 0.1
missing = "zero"

[views.a]
columns = ["a_1", "a_2"]
kernel = ["linear", {name = "rbf", gamma = 0.5, standardize = true}]

[views.b]
columns = "b_1"
kernel = {name = "polynomial", degree = 3}
"""


def settings_target(folder: Path) -> Target:
    data = folder / "table.csv"
    data.write_text(table_text())

    def read(place: Path) -> Any:
        problem = read_problem([str(data), "--views", str(place / "views.toml")])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem.model.fit(problem.samples.data, problem.y)
        return problem.model.decision_function(problem.samples.data).tolist()

    def change_values(rng: random.Random, content: bytes) -> bytes:
        """Another value, of any type, behind one of the keys."""
        lines = content.decode().splitlines()
        k = rng.choice([k for k, line in enumerate(lines) if " = " in line])
        values = ["1", "-1", "1.5", "true", "nan", "inf", '""', '"rbf"', "[]", "{}"]
        values += ["[1]", '["a_1"]', "1979-05-27", "[" * 3000, '{name = ["rbf"]}']
        values += ['{name = "rbf", gamma = []}', "9" * 5000, '"\\u0000"', "[[[]]]"]
        values += ['{name = "rbf", gamma = "x"}', '{name = "rbf", standardize = 3}']
        lines[k] = f"{lines[k].partition(' = ')[0]} = {rng.choice(values)}"
        if rng.random() < 0.3:
            key = rng.choice(["solver", "cv", "tol", "max_iter", "class_weight"])
            place = lines.index("[model]") + 1
            lines.insert(place, f"{key} = {rng.choice(values)}")
        return "\n".join(lines).encode()

    changes = (change_bytes, change_values)
    return Target("views.toml", SETTINGS, changes, read, in_command=True)


TARGETS: dict[str, Callable[[Path], Target]] = {
    "model": model_target,
    "inspect": inspect_target,
    "cache": cache_target,
    "dataset": dataset_target,
    "chip": chip_target,
    "series": series_target,
    "gene sets": gene_sets_target,
    "probes": probes_target,
    "settings": settings_target,
    "csv": table_target("t.csv", (change_bytes,), lambda: table_text().encode()),
    "semicolons": table_target(
        "t.txt", (change_bytes,), lambda: table_text(";").replace(".", ",").encode()
    ),
    "csv.gz": table_target(
        "t.csv.gz",
        (change_bytes, packed(change_bytes), gzip_bomb),
        lambda: gzip.compress(table_text().encode()),
    ),
    "excel": table_target("t.xlsx", (change_bytes, change_archive, excel_bomb), excel),
    "parquet": table_target("t.parquet", (change_bytes, parquet_bomb), parquet),
}


#: Changes that take long to make, and how rarely they come into question.
BOMBS, RARE = (gzip_bomb, excel_bomb, parquet_bomb, zip_bomb), 0.1

# One attempt ----------------------------------------------------------------------


class Watch:
    """Notes forbidden events, while it is on."""

    on = False
    seen: list[str] = []  # noqa: RUF012
    installed = False

    @classmethod
    def hook(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if not cls.on:
            return
        if event in FORBIDDEN:
            cls.seen.append(f"{event}{arguments!r:.200}")
        elif event == "import" and str(arguments[0]).startswith(TRAP):
            cls.seen.append(f"import {arguments[0]}")

    @classmethod
    @contextlib.contextmanager
    def watching(cls) -> Iterator[None]:
        if not cls.installed:
            sys.addaudithook(cls.hook)
            cls.installed = True
        cls.seen.clear()
        cls.on = True
        try:
            yield
        finally:
            cls.on = False


def resident(which: str) -> int | None:
    """Memory of this process, now (VmRSS) or at most (VmHWM); None if unknown."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(which):
                return int(line.split()[1]) * 1024
    return None


def forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def attempt(target: Target, folder: Path, seed: int, right: Any) -> str:
    """Change the file, read it, and tell the outcome."""
    rng = random.Random(seed)
    common = [change for change in target.changes if change not in BOMBS]
    change = rng.choice(target.changes if rng.random() < RARE else common)
    (folder / target.name).write_bytes(change(rng, target.content))
    forget_peak()
    before = resident("VmRSS")
    with Watch.watching():
        try:
            found = target.read(folder)
            outcome = "equal" if found == right else "other"
        except TypeError:  # of the reader; in commands, a column of dates may raise one
            raise
        except INPUT_ERRORS as error:
            outcome = "refused"
            if target.in_command:
                error = ValueError(in_one_line(error))
            if "\n" in str(error) or not str(error).strip():
                raise Breach(f"not one line: {str(error)!r:.300}") from error
            if len(str(error)) > 1200:
                raise Breach(f"{len(str(error))} characters") from error
            if type(error) in (MemoryError, RecursionError):
                raise Breach(f"{type(error).__name__}: {error}") from error
    if Watch.seen:
        raise Breach("; ".join(Watch.seen))
    after = resident("VmHWM")
    if before is not None and after is not None and after - before > MEMORY:
        raise Breach(f"{(after - before) / 2**20:.0f} MB")
    if outcome == "other" and change in target.must_equal:
        raise Breach("loaded, but not equal, although a checksum tells")
    return outcome


def right_answer(target: Target, folder: Path) -> Any:
    (folder / target.name).write_bytes(target.content)
    return target.read(folder)


def run(
    name: str,
    seeds: range,
    folder: Path,
    wrong: Callable[[int, Exception], None] | None = None,
) -> Counter[str]:
    """Attempts with these seeds; the number of each outcome.

    The first breach is raised, unless ``wrong`` is given to be told of all.
    """
    (folder / "good").mkdir(parents=True)
    (folder / "bad").mkdir()
    target = TARGETS[name](folder / "good")
    right = right_answer(target, folder / "bad")
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts[attempt(target, folder / "bad", seed, right)] += 1
        except Exception as error:
            error.add_note(f"{name}, seed {seed}")
            if wrong is None:
                raise
            counts["BREACH"] += 1
            wrong(seed, error)
    return counts


def by_hand() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", choices=TARGETS, action="append")
    options = parser.parse_args()
    names = options.only or list(TARGETS)
    each = -(-options.count // len(names))
    failed = 0
    for name in names:
        start, shown = time.process_time(), set[str]()

        def wrong(
            seed: int, error: Exception, name: str = name, shown: set[str] = shown
        ) -> None:
            last = traceback.extract_tb(error.__traceback__)[-1]
            key = f"{type(error).__name__} {last.filename}:{last.lineno}"
            if key not in shown:
                shown.add(key)
                print(f"  {name}, seed {seed}: {key}: {error!s:.200}", flush=True)

        with tempfile.TemporaryDirectory() as place:
            seeds = range(options.first, options.first + each)
            counts = run(name, seeds, Path(place), wrong)
        failed += counts["BREACH"]
        spent = time.process_time() - start
        print(f"{name:10} {dict(sorted(counts.items()))} {spent:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    warnings.simplefilter("error")
    sys.exit(by_hand())
