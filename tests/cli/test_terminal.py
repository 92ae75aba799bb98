"""What a terminal shows, and what happens if standard output cannot be written."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import kernelweave
from kernelweave._text import CONTROLS, escaped, in_line
from kernelweave.cli import output
from kernelweave.cli.main import main
from kernelweave.cli.terminal import Output, above
from kernelweave.persistence import HEADER, MODEL

pandas = pytest.importorskip("pandas")
#: Clears a screen, rings, turns text around, marks a direction, and is half a letter.
STRANGE = "\x1b[2J\x07\x9b\u202e\u2067\u200f\u061c"
SHOWN = r"\x1b[2J\x07\x9b\u202e\u2067\u200f\u061c"
FIT = ["--label", "y", "--norm", "1", "--alpha", "1", "--folds", "2"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "_write_pictures", lambda *arguments: True)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of two classes and two views, all with strange names."""
    path = tmp_path_factory.mktemp("model") / "model.kw"
    X, y = rows()
    views = [(f"left{STRANGE}\n", "linear", ["a"]), ("right", "linear", ["b"])]
    fitted = kernelweave.MultipleKernelFDA(views, norm=1, alpha=1, cv=None)
    kernelweave.save(fitted.fit(X, np.char.add(f"ill{STRANGE}\n", y.astype(str))), path)
    return str(path)


def rows():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    frame = pandas.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"])
    frame["a"] += y
    return frame, y


def write_table(name="t.csv"):
    X, y = rows()
    labels = np.where(y, f"ill{STRANGE}", "well\nVersion: 9")
    X.assign(**{f"v{STRANGE}_c": y[::-1] * 0.5, "y": labels}).to_csv(name, index=False)
    return name


def is_clean(text):
    return not CONTROLS.search(text)


def test_controls_are_written_out_as_in_python():
    every = [chr(code) for code in range(0x3000)] + ["\ud800", "\udfff"]
    shown = [c for c in every if escaped(c) != c]
    directions = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068"
    wanted = [
        chr(code) for code in (*range(32), *range(127, 160)) if code not in (9, 10)
    ]
    assert shown == [*wanted, *directions, "\u2069", "\ud800", "\udfff"]
    assert escaped(f"größe 基因 שלום\t{STRANGE}\n") == f"größe 基因 שלום\t{SHOWN}\n"
    assert in_line("a\tb\nc\r") == r"a\tb\nc\r"


@pytest.mark.parametrize("command", ["fit", "evaluate"])
@pytest.mark.parametrize("prefixes", [[], ["--view-prefix"]])
def test_labels_and_views_of_tables(command, prefixes, capsys):
    """A label cannot act on a terminal, nor begin a line of its own."""
    assert main([command, write_table(), *FIT, *prefixes]) == 0
    printed = capsys.readouterr()
    assert is_clean(printed.out) and is_clean(printed.err)
    assert f"Classes: ill{SHOWN} (20), well\\nVersion: 9 (20)\n" in printed.out
    assert "\nVersion" not in printed.out


def test_models_with_a_forged_header(model, capsys):
    with zipfile.ZipFile(model) as archive:
        header, content = json.loads(archive.read(HEADER)), archive.read(MODEL)
    header["versions"] = {"kernelweave": STRANGE, f"numpy\n{STRANGE}": "1\nall well"}
    header["written"] = f"today\n{STRANGE}"
    header["notes"] = {f"cohort\n{STRANGE}": STRANGE}
    for record in header["columns"]:
        record |= {"view": STRANGE, "column": STRANGE, "use": "left out"}
        record |= {"kind": STRANGE, "remark": f"\nall well{STRANGE}"}
    with zipfile.ZipFile("forged.kw", "w") as archive:
        archive.writestr(HEADER, json.dumps(header))
        archive.writestr(MODEL, content)
    assert main(["inspect", "forged.kw"]) == 0
    printed = capsys.readouterr()
    assert is_clean(printed.out) and is_clean(printed.err)
    assert f"written today\\n{SHOWN}\n" in printed.out
    assert f"  cohort\\n{SHOWN}: " in printed.out
    assert f"ill{SHOWN}\\n0, ill{SHOWN}\\n1" in printed.out
    assert "\nall well" not in printed.out


def test_names_of_files_in_errors(capsys):
    with pytest.raises(SystemExit):
        main(["inspect", "a.kw", f"{STRANGE}.kw"])
    assert f"unrecognized arguments: {SHOWN}.kw" in capsys.readouterr().err
    assert main(["fit", f"{STRANGE}.csv", "--label", "y"]) == 2
    assert SHOWN in capsys.readouterr().err
    with pytest.raises(ValueError), redirect_stderr(io.StringIO()) as shown:
        main(["fit", f"{STRANGE}.csv", "--label", "y", "--debug"])
    try:
        raise ValueError(STRANGE)
    except ValueError as error:
        with redirect_stderr(shown):
            sys.excepthook(ValueError, error, error.__traceback__)
    sys.excepthook = sys.__excepthook__
    assert is_clean(shown.getvalue()) and f"ValueError: {SHOWN}" in shown.getvalue()


def test_predictions_are_data_unless_a_terminal_shows_them(model):
    """A file has every letter of ids and classes."""
    X, _ = rows()
    X.head(2).assign(id=[f"p{STRANGE}", "q"]).to_csv("new.csv", index=False)
    command = ["predict", model, "new.csv", "--id", "id"]
    with redirect_stdout(io.StringIO()) as file:
        assert main(command) == 0
    assert f"p{STRANGE}," in file.getvalue()
    with redirect_stdout(Terminal()) as terminal:
        assert main(command) == 0
    assert f"p{SHOWN}," in terminal.getvalue() and is_clean(terminal.getvalue())
    assert len(terminal.getvalue().splitlines()) == len(file.getvalue().split("\n")) - 1


def test_progress_on_a_terminal():
    """rich moves the cursor; what users wrote does not, and nothing is lost."""
    pytest.importorskip("rich")
    write_table()
    with redirect_stdout(io.StringIO()) as file, redirect_stderr(Terminal()) as shown:
        assert main(["fit", "t.csv", *FIT, "--out", "one"]) == 0
    assert "View weights:" in file.getvalue() and "Written to one:" in file.getvalue()
    assert "View weights:" not in shown.getvalue()
    assert "writing" in shown.getvalue()
    with redirect_stdout(Terminal()) as file, redirect_stderr(shown):
        assert main(["fit", "t.csv", *FIT, "--out", "two"]) == 0
    everything = file.getvalue() + shown.getvalue()
    assert "View weights:" in everything and SHOWN[:8] in everything
    assert "\x1b[2J" not in everything and "\x07" not in everything


def test_lines_above_a_line_of_rich():
    """Each is printed once, whether it goes to standard output or standard error."""
    console = pytest.importorskip("rich.console").Console(file=io.StringIO(), width=80)
    with (
        redirect_stdout(Output(Terminal())),
        redirect_stderr(Output(io.StringIO())) as file,
        above(console),
    ):
        print("Views: [red]a[/red]", STRANGE)
        print("\n  all")
        print("warning", file=sys.stderr)
    assert (
        console.file.getvalue().replace("\n", "") == f"Views: [red]a[/red] {SHOWN}  all"
    )
    assert console.file.getvalue().endswith("\n\n  all\n")
    assert file.getvalue() == "warning\n"


# Standard output that is lost ---------------------------------------------------------

FULL = pytest.mark.skipif(
    not Path("/dev/full").is_char_device(), reason="needs /dev/full"
)


def run_with(stdout, *arguments):
    """Status and standard error of a command with the given standard output."""
    source = Path(kernelweave.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-m", "kernelweave", *arguments]
    if stdout == "closed":
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
        stdout = None
    found = subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, env=environment, text=True
    )
    return found.returncode, found.stderr


@FULL
@pytest.mark.parametrize("stdout", ["closed", "full"])
def test_predictions_that_are_lost(model, stdout):
    rows()[0].to_csv("new.csv", index=False)
    with open("/dev/full", "w") as full:
        found = run_with(
            full if stdout == "full" else stdout, "predict", model, "new.csv"
        )
    reasons = {"closed": "Bad file descriptor", "full": "No space left on device"}
    message = "kernelweave: error: cannot write to standard output: "
    assert found == (1, f"{message}{reasons[stdout]}\n")


@FULL
@pytest.mark.parametrize(
    "more", [["--json"], ["--out", "p.csv"], ["--out", "p.csv", "--quiet"]]
)
def test_files_are_written_if_standard_output_is_full(model, more, capsys):
    """Only what was to be printed is an error; with --quiet, nothing was."""
    rows()[0].to_csv("new.csv", index=False)
    with open("/dev/full", "w") as full, redirect_stdout(full):
        status = main(["predict", model, "new.csv", *more])
    assert status == (0 if "--quiet" in more else 1)
    assert Path("p.csv").exists() == ("--out" in more)
    lost = "cannot write to standard output: No space left on device\n"
    assert capsys.readouterr().err.endswith(lost) == (status == 1)


@FULL
def test_help_that_is_lost(monkeypatch, capsys):
    """argparse itself would not say so."""
    message = "kernelweave: error: cannot write to standard output: "
    for option in ("--help", "--version"):
        with (
            open("/dev/full", "w", buffering=1) as full,
            redirect_stdout(full),
            pytest.raises(SystemExit) as stop,
        ):
            main([option])
        assert stop.value.code == 1
        assert capsys.readouterr().err == f"{message}No space left on device\n"
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as stop:
            patch.setattr(sys, "stdout", None)
            main([option])
        assert stop.value.code == 1
        assert capsys.readouterr().err == f"{message}Bad file descriptor\n"


@FULL
def test_an_error_in_the_input_comes_first(capsys):
    with open("/dev/full", "w") as full, redirect_stdout(full):
        assert main(["fit", write_table(), "--label", "z"]) == 2
    assert "cannot write" not in capsys.readouterr().err


@FULL
def test_standard_error_may_be_full(model):
    with open("/dev/full", "w", buffering=1) as full, redirect_stderr(full):
        assert main(["inspect", model]) == 0
        assert main(["inspect", "none.kw"]) == 2
