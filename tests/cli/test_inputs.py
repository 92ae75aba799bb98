"""Inputs that are no tables are refused at once, by name."""

from __future__ import annotations

import gzip
import io
import os
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

import kernelweave
from kernelweave._files import require_text, special_kind, unpacked_text
from kernelweave.cli import output
from kernelweave.cli.main import main
from kernelweave.exceptions import ModelFileError
from reproduce.report import kept_text

pandas = pytest.importorskip("pandas")

TABLE = b"a,b,y\n" + b"".join(
    f"{np.sin(i)},{np.cos(3 * i)},{'yn'[i % 2]}\n".encode() for i in range(12)
)
PAGE = b"<!DOCTYPE HTML>\n<html><head><title>\n Sign  in</title></head></html>"
SHORT = ["--label", "y", "--norm", "1", "--alpha", "1", "--folds", "2", "--out", "out"]


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "_write_pictures", lambda *arguments: True)


def refused(capsys, *arguments):
    assert main([*map(str, arguments)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("kernelweave: error: ") and err.count("\n") == 1
    return err


# Pipes and devices --------------------------------------------------------------------


@pytest.fixture
def pipe(tmp_path):
    """A pipe to which nobody writes; a reader that waits is let go after 20 seconds."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)

    def release():
        with open(path, "wb"):
            pass

    timer = threading.Timer(20, release)
    timer.daemon = True
    timer.start()
    yield str(path)
    assert timer.is_alive(), "it was read"
    timer.cancel()


@pytest.mark.parametrize("as_link", [False, True])
def test_pipes_are_refused_before_they_are_read(pipe, as_link, capsys):
    if as_link:
        os.symlink(pipe, "link.csv")
        pipe = "link.csv"
    Path("t.csv").write_bytes(TABLE)
    message = f"{pipe!r} is a pipe, not a file; copy what it holds to a file, and name"
    assert message in refused(capsys, "fit", pipe, "--label", "y")
    assert message in refused(capsys, "fit", "t.csv", *SHORT, "--predict", pipe)
    assert message in refused(capsys, "fit", "t.csv", *SHORT, "--views", pipe)
    with pytest.raises(ModelFileError, match="it is a pipe, not a file; copy the mod"):
        kernelweave.load(pipe)
    for command in (["inspect", pipe], ["predict", pipe, "t.csv"]):
        assert "it is a pipe, not a file" in refused(capsys, *command)
    with pytest.raises(ValueError, match="is a pipe"):
        unpacked_text(Path(pipe))
    with pytest.raises(ValueError, match="is a pipe"):
        kept_text(Path(pipe))


@pytest.mark.parametrize("suffix", [".xlsx", ".parquet", ".h5mu", ".csv.gz"])
def test_pipes_with_other_endings(pipe, suffix, capsys):
    os.symlink(pipe, f"link{suffix}")
    assert "is a pipe" in refused(capsys, "fit", f"link{suffix}", "--label", "y")


def test_devices_and_sockets_are_refused(tmp_path, capsys):
    if not Path("/dev/zero").is_char_device():
        pytest.skip("needs /dev/zero")
    message = "'/dev/zero' is a device, not a file"
    assert message in refused(capsys, "fit", "/dev/zero", "--label", "y")
    assert "it is a device" in refused(capsys, "inspect", "/dev/zero")
    with socket.socket(socket.AF_UNIX) as here:
        here.bind("socket")  # a relative name: those of sockets are short
        assert special_kind("socket") == "a socket"
    Path("t.csv").write_bytes(TABLE)
    assert special_kind("t.csv") is special_kind(".") is special_kind("none") is None


@pytest.mark.skipif(sys.platform == "win32", reason="needs /dev/stdin")
def test_tables_on_standard_input(tmp_path):
    """As in "cat t.csv | kernelweave fit /dev/stdin", and in "... <(cat t.csv)"."""
    source = Path(kernelweave.__file__).parents[1]
    command = [sys.executable, "-m", "kernelweave", "fit", "PLACE", *SHORT, "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    for place in ("/dev/stdin", "/dev/fd/0"):
        command[4] = place
        found = subprocess.run(
            command, input=TABLE, capture_output=True, env=environment
        )
        assert (found.returncode, found.stderr) == (0, b"")
    if Path("/dev/zero").is_char_device():
        with open("/dev/zero", "rb") as zero:
            found = subprocess.run(
                command, stdin=zero, capture_output=True, env=environment
            )
        assert b"'/dev/fd/0' is a device, not a file" in found.stderr


# Files that are something else --------------------------------------------------------


def archive(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        for name in names:
            members.writestr(name, "content")
    return file.getvalue()


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.txt", "t.xlsx", "t.parquet"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PAGE, "a web page (HTML), not a table: its title is 'Sign in'; did the downl"),
        (b"\xef\xbb\xbf\n<!-- x --><html>", "it begins with '<!-- x --><html>'"),
        (b"<?xml version='1.0'?>\n<HTML lang='en'>", "a web page (HTML), not a table"),
        (b"%PDF-1.7\n%\xe2\xe3", "a PDF document, not a table; save the table as CSV"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", "save it as CSV or .xlsx"),
        (b"\x89HDF\r\n\x1a\n\0", "an HDF5 file; save the table as CSV"),
        (b"BZh91AY&SY\0", "compressed with bzip2; unpack it, or use gzip"),
        (b"\xfd7zXZ\x00\0", "compressed with xz; unpack it"),
        (b"\x28\xb5\x2f\xfd\0", "compressed with Zstandard; unpack it"),
    ],
)
def test_files_that_are_no_tables(name, content, message, capsys):
    if name.endswith((".xlsx", ".parquet")):
        pytest.importorskip("openpyxl")
        pytest.importorskip("pyarrow")
    content = gzip.compress(content) if name.endswith(".gz") else content
    Path(name).write_bytes(content)
    err = refused(capsys, "fit", name, "--label", "y")
    assert err.startswith(f"kernelweave: error: {name} is ") and message in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive("t.csv"), "t.csv is a ZIP archive, not a table; unpack it first"),
        (
            archive("xl/workbook.xml"),
            "t.csv is an Excel file; rename it so that it end",
        ),
        (
            b"PAR1\0\0PAR1",
            "t.csv is a Parquet file; rename it so that it ends in .parq",
        ),
        (gzip.compress(gzip.compress(TABLE)), "t.csv is compressed twice with gzip"),
    ],
)
def test_tables_under_another_name(content, message, capsys):
    Path("t.csv").write_bytes(content)
    assert message in refused(capsys, "fit", "t.csv", "--label", "y")


def test_an_excel_file_called_parquet(capsys):
    pytest.importorskip("pyarrow")
    Path("t.parquet").write_bytes(archive("xl/workbook.xml"))
    assert "t.parquet is an Excel file" in refused(capsys, "fit", "t.parquet")


def test_tables_that_look_like_something_else(capsys):
    """Columns may have any name, and a table compressed with gzip any ending."""
    for header in (b"PAR1,PAR2,y", b"BZh9,PK,y", b"html,%PDF,y", b"<a>,<html>,y"):
        Path("t.csv").write_bytes(gzip.compress(TABLE.replace(b"a,b,y", header)))
        assert main(["fit", "t.csv", *SHORT, "--quiet"]) == 0


def test_many_comments_take_no_time():
    require_text(Path("t.csv"), b"<!-- -->" * 10**5)
    with pytest.raises(ValueError, match="is a web page"):
        require_text(Path("t.csv"), b"<!-- -->" * 10**4 + PAGE + b"<title>" * 10**5)


def test_pages_among_data_sets(monkeypatch):
    from kernelweave.datasets import fetch_views

    Path("heart.csv").write_bytes(PAGE)
    monkeypatch.setenv("KERNELWEAVE_DATA", str(Path.cwd()))
    with pytest.raises(ValueError, match=r"heart\.csv is a web page"):
        fetch_views("heart", download_if_missing=False)


# Tables that do not fit a model -------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a table, and models of it alone and beside another table."""
    folder = tmp_path_factory.mktemp("models")
    frame = pandas.read_csv(io.BytesIO(TABLE))
    frame.insert(0, "id", [f"p{i}" for i in range(len(frame))])
    frame.to_csv(folder / "t.csv", index=False)
    frame[["id"]].assign(c=np.arange(12) ** 2.0).to_csv(folder / "u.csv", index=False)
    out = ["--out", str(folder / "out"), "--quiet", "--id", "id", *SHORT[:-2]]
    one = ["--save", str(folder / "one.kw")]
    assert main(["fit", str(folder / "t.csv"), *out, *one]) == 0
    two = [f"t={folder / 't.csv'}", f"u={folder / 'u.csv'}"]
    assert main(["fit", *two, *out, "--save", str(folder / "two.kw")]) == 0
    return folder


def test_names_are_for_models_of_several_tables(models, capsys):
    """The columns of one table are not names of tables."""
    one, t, u = (str(models / name) for name in ("one.kw", "t.csv", "u.csv"))
    found = refused(capsys, "predict", one, f"t={t}")
    columns = "the model was fitted to one table, with the columns a, b; pass "
    assert f"{columns}{t!r} without 't=' before it" in found
    found = refused(capsys, "predict", one, t, u)
    assert f"{columns}one file with all of them" in found
    found = refused(capsys, "fit", t, "--id", "id", *SHORT, "--predict", f"new={t}")
    assert "without 'new=' before it" in found
    assert main(["predict", one, t, "--out", "p.csv"]) == 0
    os.symlink(t, "a=b.csv")  # a file is itself, whatever it is called
    assert main(["predict", one, "a=b.csv", "--out", "p.csv"]) == 0
    assert main(["predict", str(models / "two.kw"), f"t={t}", "--out", "p.csv"]) == 0
    capsys.readouterr()
    assert main(["predict", str(models / "two.kw"), f"x={t}"]) == 2
    found = capsys.readouterr().err
    assert "pass NAME=FILE with the names used in the fit: 't', 'u'" in found


def test_columns_with_dots_are_not_those_of_several_tables(capsys):
    """The notes of the fit say so, or else one column without a dot."""
    Path("t.csv").write_bytes(TABLE.replace(b"a,b,y", b"x.a,x.b,y"))
    assert main(["fit", "t.csv", *SHORT, "--quiet", "--save", "m.kw"]) == 0
    assert "without 'x='" in refused(capsys, "predict", "m.kw", "x=t.csv")
    assert main(["predict", "m.kw", "t.csv", "--out", "p.csv"]) == 0


def test_tables_may_follow_options(models, capsys):
    t, u = f"t={models / 't.csv'}", f"u={models / 'u.csv'}"
    for order in (
        [t, u, "--id", "id", *SHORT],
        ["--id", "id", *SHORT, t, u],
        [t, "--id", "id", u, *SHORT],
        [t, "--id", "id", *SHORT, u],
    ):
        assert main(["fit", *order]) == 0
        out = capsys.readouterr().out
        assert "12 samples from 2 tables" in out and "t: 12 samples, 2 columns" in out
    one, new = str(models / "one.kw"), str(models / "t.csv")
    assert main(["predict", one, "--out", "p.csv", new]) == 0
    assert main(["predict", "--out", "p.csv", one, new]) == 0
    for mistake in (["inspect", one, new], ["fit", new, "--labl", "y"]):
        with pytest.raises(SystemExit) as stop:
            main(mistake)
        wrong = "--labl" if mistake[0] == "fit" else new
        assert stop.value.code == 2
        err = capsys.readouterr().err
        assert f"kernelweave: error: unrecognized arguments: {wrong}\n" in err


def with_cell(content, *others):
    """A table of new rows, one of which has another content."""
    frame = pandas.read_csv(io.BytesIO(TABLE)).drop(columns="y").astype(object)
    frame.insert(0, "id", [f"p{i}" for i in range(len(frame))])
    for row, value in zip((3, 5), (content, *others), strict=False):
        frame.loc[row, "b"] = value
    return frame


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("0.13 mg", "'0.13 mg'"),
        ("?", "'?'"),
        ("1,234.5", "'1,234.5'"),
        ("x" * 99, "'x"),
    ],
)
def test_text_among_numbers(models, content, shown, capsys):
    """The cell is named, not the first of a column that it made text."""
    with_cell(content, "too").to_csv("new.csv", index=False)
    found = refused(capsys, "predict", models / "one.kw", "new.csv")
    assert f"new.csv, line 5 (id 'p3'): the column 'b' holds {shown}" in found
    assert "held numbers when the model was fitted (2 cells with text); write" in found
    assert "kernel" not in found.partition("error")[2] and len(found) < 300
    found = refused(capsys, "predict", models / "two.kw", "t=new.csv")
    assert f"new.csv, line 5 (id 'p3'): the column 'b' holds {shown}" in found


def test_text_among_numbers_with_decimal_commas_and_empty_lines(models, capsys):
    text = with_cell("0,1 mg").to_csv(index=False, sep=";", decimal=",")
    header, first, *rest = text.splitlines()
    lines = [header, "", first.replace(".", ","), *(r.replace(".", ",") for r in rest)]
    Path("new.csv").write_text("\n".join(lines), encoding="utf-8")
    found = refused(capsys, "predict", models / "one.kw", "new.csv")
    assert "new.csv, line 6 (id 'p3'): the column 'b' holds '0,1 mg'" in found


def test_text_among_numbers_of_a_spreadsheet(models, capsys):
    pytest.importorskip("openpyxl")
    with_cell("low").to_excel("new.xlsx", index=False)
    found = refused(capsys, "predict", models / "one.kw", "new.xlsx")
    assert "new.xlsx, line 5 (id 'p3'): the column 'b' holds 'low'" in found


def test_numbers_as_text_have_no_line_in_a_parquet_file(models, capsys):
    pytest.importorskip("pyarrow")
    frame = with_cell(0.5)
    frame.assign(b=frame["b"].astype(str)).to_parquet("new.parquet")
    found = refused(capsys, "predict", models / "one.kw", "new.parquet")
    assert "new.parquet, id 'p0': the column 'b' holds '1.0', but held numb" in found
    assert "(12 cells with text); write it as a number" in found


def test_rows_without_ids_are_counted(models, capsys):
    X = pandas.read_csv(io.BytesIO(TABLE))
    model = kernelweave.KernelFDA(cv=None, alpha=1.0).fit(X[["a", "b"]], X["y"])
    kernelweave.save(model, "m.kw")
    with_cell("low").to_csv("new.csv", index=False)
    found = refused(capsys, "predict", "m.kw", "new.csv")
    assert "new.csv, line 5 (row 4): the column 'b' holds 'low'" in found


def test_ids_of_a_similarity_may_be_text():
    """A kernel that looks samples up by id reads no numbers."""
    from kernelweave.cli.samples import number_columns
    from kernelweave.kernels import Similarity

    X = pandas.read_csv(io.BytesIO(TABLE))
    X.insert(0, "id", [f"p{i}" for i in range(len(X))])
    kernel = Similarity(np.eye(12) + 0.1, X["id"].tolist())
    views = [("ids", kernel, ["id"]), ("rest", "linear", ["a", "b"])]
    model = kernelweave.KernelFDA(views, cv=None, alpha=1.0).fit(X, X["y"])
    assert number_columns(model) == {"a", "b"}
