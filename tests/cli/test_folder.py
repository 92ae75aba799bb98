"""Results appear completely or not at all, and other files are never touched."""

from __future__ import annotations

import csv
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import kernelweave
from estimators import in_turn
from kernelweave.cli import demo, entry, fit, folder, output, samples
from kernelweave.cli.main import main

TABLES = {"certificate.json", "weights.csv", "columns.csv", "predictions.csv"}
FIT = ["fit", "data.csv", "--label", "y", "--kernel", "linear", "--norm", "1"]
FIT += ["--alpha", "1", "--folds", "2", "--out", "results"]
INTERRUPTED = "kernelweave: interrupted; nothing was written\n"


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """A folder with a table, and a Ctrl-C that interrupts as in a terminal."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    with open("data.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "y"])
        writer.writerows([*rng.standard_normal(2), i % 2] for i in range(60))
    before = {number: signal.getsignal(number) for number in entry.ENDINGS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def no_pictures(monkeypatch):
    monkeypatch.setattr(output, "_write_pictures", lambda *arguments: True)


@pytest.fixture(params=["first", "again", "beside a note"])
def contents(request, tmp_path, no_pictures):
    """The contents of the results folder before a run, which must be preserved."""
    if request.param != "first":
        earlier_run(tmp_path)
    if request.param == "beside a note":
        (tmp_path / "results" / "note.txt").write_text("of the user")
        (tmp_path / "results" / "figures").mkdir()
        (tmp_path / "results" / "figures" / "weights.csv").write_text("too")
    return snapshot(tmp_path)


#: The files of a run with another alpha, once there was one.
EARLIER = {}


def earlier_run(tmp_path):
    """Results of an earlier run, which is made once."""
    if not EARLIER:
        assert main([*FIT, "--alpha", "3"]) == 0
        EARLIER.update(snapshot(tmp_path / "results"))
    (tmp_path / "results").mkdir(exist_ok=True)
    for name, content in EARLIER.items():
        (tmp_path / "results" / name).write_bytes(content)


def snapshot(path):
    return {
        file.relative_to(path): file.read_bytes() if file.is_file() else None
        for file in path.rglob("*")
    }


def alpha_of(path):
    return json.loads((path / "certificate.json").read_text())["alpha"]


STEPS = {
    "reading": (fit, "read_tables"),
    "checking": (samples, "choose_views"),
    "fitting": (fit.MultipleKernelFDA, "fit"),
    "folds": (fit, "evaluate"),
    "first file": (output, "to_csv"),
    "pictures": (output, "_write_pictures"),
    "last file": (output, "write_mark"),
}


def press(monkeypatch, owner, name):
    """Press Ctrl-C in the middle of a step."""

    def step(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("nobody reacted")

    monkeypatch.setattr(owner, name, step)


@in_turn(
    step=list(STEPS),
    contents=["first", "again", "beside a note"],
    indirect=["contents"],
)
def test_interrupts(contents, tmp_path, monkeypatch, capsys, step):
    capsys.readouterr()
    press(monkeypatch, *STEPS[step])
    assert main(FIT) == 130
    assert capsys.readouterr().err == INTERRUPTED
    assert snapshot(tmp_path) == contents


def test_interrupt_of_the_demo(tmp_path, monkeypatch, capsys):
    press(monkeypatch, demo, "fetch_views")
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == INTERRUPTED
    assert {path.name for path in tmp_path.iterdir()} == {"data.csv"}


@pytest.fixture
def command(monkeypatch):
    """``kernelweave fit`` as from a shell, which has to see to signals by itself."""
    monkeypatch.setattr(sys, "argv", ["kernelweave", *FIT])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    return entry.main


@pytest.mark.parametrize("number", entry.ENDINGS)
def test_signals_clean_up_and_give_the_status(
    number, command, no_pictures, tmp_path, monkeypatch, capsys
):
    before = snapshot(tmp_path)

    def step(*arguments):
        assert list(tmp_path.glob(".kernelweave-*/weights.csv"))  # drafts
        signal.raise_signal(number)

    monkeypatch.setattr(output, "write_mark", step)
    signal.signal(number, signal.SIG_DFL)  # "nohup" may run these tests, too
    assert command() == 128 + number
    assert capsys.readouterr().err == INTERRUPTED
    assert snapshot(tmp_path) == before
    assert signal.getsignal(number) is signal.SIG_DFL


def test_ignored_signals_stay_ignored(command, no_pictures, monkeypatch):
    """As "nohup" has it, or a shell that runs the command in the background."""
    monkeypatch.setattr(
        fit, "print_fit", lambda model: signal.raise_signal(signal.SIGINT)
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert command() == 0


def test_interrupt_of_a_finaliser_is_not_lost(command, monkeypatch, capsys):
    class Dying:
        def __del__(self):  # where Python ignores exceptions
            signal.raise_signal(signal.SIGTERM)

    def step(model):
        Dying()
        for _ in range(1000):
            time.sleep(0.01)
        raise AssertionError("nobody reacted")

    monkeypatch.setattr(fit, "print_fit", step)
    assert command() == 128 + signal.SIGTERM
    assert capsys.readouterr().err == INTERRUPTED


@in_turn(
    number=list(entry.ENDINGS),
    contents=["first", "again", "beside a note"],
    indirect=["contents"],
)
def test_interrupt_is_too_late_once_all_is_written(
    number, contents, tmp_path, monkeypatch
):
    real = os.rename

    def rename(source, target):
        signal.raise_signal(number)
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    assert main(FIT) == 0
    assert alpha_of(tmp_path / "results") == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupt_of_a_process(tmp_path):
    fcntl, termios = map(pytest.importorskip, ("fcntl", "termios"))
    root = str(Path(kernelweave.__file__).parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    reads, writes = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelweave", "fit", "/dev/stdin", "--label", "y"],
        stdin=reads,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    os.write(writes, b"a,y\n1,")
    waiting = bytearray(b"....")
    while any(waiting) and process.poll() is None:  # until the process reads
        time.sleep(0.01)
        fcntl.ioctl(reads, termios.FIONREAD, waiting)
    process.send_signal(signal.SIGINT)
    # The table ends here, for a signal that came just before the process read on.
    os.close(writes)
    _, err = process.communicate(timeout=60)
    os.close(reads)
    assert err == INTERRUPTED
    assert process.returncode == 130
    assert not (tmp_path / "kernelweave-fit").exists()


def test_failed_fit_leaves_nothing(contents, tmp_path, monkeypatch, capsys):
    capsys.readouterr()

    def explode(*arguments):
        raise ValueError("kernels are not what they were")

    monkeypatch.setattr(fit.MultipleKernelFDA, "fit", explode)
    assert main(FIT) == 2
    assert "not what they were" in capsys.readouterr().err
    assert snapshot(tmp_path) == contents


@in_turn(
    contents=["first", "again", "beside a note"],
    size=[50, 600],
    name=["weights.csv", "predictions.csv"],
    indirect=["contents"],
)
def test_full_disk(contents, tmp_path, capsys, size, name):
    resource = pytest.importorskip("resource")
    capsys.readouterr()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        assert main(FIT) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (line,) = capsys.readouterr().err.splitlines()
    path = str(Path("results") / name)
    assert f"error: cannot write {path!r}: File too large; nothing was written" in line
    assert snapshot(tmp_path) == contents


@pytest.mark.parametrize("name", ["weights.png", "projection.png"])
def test_full_disk_for_a_picture(tmp_path, monkeypatch, capsys, name):
    figure = pytest.importorskip("matplotlib.figure").Figure
    real = figure.savefig

    def savefig(self, path, **options):
        if Path(path).name == name:
            raise OSError(28, "No space left on device")
        real(self, path, **options)

    monkeypatch.setattr(figure, "savefig", savefig)
    assert main(FIT) == 2
    path = str(Path("results") / name)
    assert f"cannot write {path!r}: No space left on device" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"data.csv"}


@pytest.mark.parametrize("failing", [1, 3, 5, 8])
def test_swap_is_undone(tmp_path, monkeypatch, capsys, no_pictures, failing):
    earlier_run(tmp_path)
    before = snapshot(tmp_path)
    real, calls = os.rename, []

    def rename(source, target):
        calls.append(target)
        if len(calls) == failing:  # four files out, four files in
            raise PermissionError(13, "Permission denied")
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    assert main(FIT) == 2
    assert "cannot write 'results': Permission denied" in capsys.readouterr().err
    assert snapshot(tmp_path) == before


def test_folder_that_cannot_be_made(tmp_path, monkeypatch, capsys):
    def mkdir(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(fit.MultipleKernelFDA, "fit", None)  # refused before the fit
    assert main(FIT) == 2
    assert "cannot write 'results': Permission denied" in capsys.readouterr().err


def test_results_of_an_earlier_run_are_replaced(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    results = tmp_path / "results"
    assert main([*FIT, "--alpha", "3"]) == 0
    (results / "note.txt").write_text("of the user")
    (results / "figures").mkdir()
    inode = results.stat().st_ino
    monkeypatch.setattr(output, "_write_pictures", lambda *arguments: True)
    assert main(FIT) == 0
    # The old plots, which show other weights, are gone.
    names = {path.name for path in results.iterdir()}
    assert names == TABLES | {"note.txt", "figures"}
    assert (results / "note.txt").read_text() == "of the user"
    assert alpha_of(results) == 1
    assert results.stat().st_ino == inode  # still the same folder


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
def test_private_files_stay_private(tmp_path, no_pictures):
    before = os.umask(0o022)
    try:
        for wanted in (0o644, 0o600):  # of new files, and of those replaced
            assert main([*FIT, "--save", "model.kw"]) == 0
            assert main(["predict", "model.kw", "data.csv", "--out", "p.csv"]) == 0
            results = [tmp_path / "results" / name for name in TABLES]
            written = [tmp_path / "p.csv", *results, tmp_path / "model.kw"]
            modes = [stat.S_IMODE(path.stat().st_mode) for path in written]
            assert modes == [wanted] * 5 + [0o600]
            for path in written:
                path.chmod(0o600)
    finally:
        os.umask(before)


def test_files_of_the_user_with_our_names_are_not_replaced(
    tmp_path, capsys, no_pictures
):
    assert main(FIT) == 0  # without plots
    mine = tmp_path / "results" / "weights.png"
    mine.write_text("of the user")
    assert main(FIT) == 2
    path = str(Path("results") / "weights.png")
    assert f"kernelweave did not write {path!r}" in capsys.readouterr().err
    assert mine.read_text() == "of the user"


def test_a_mark_that_lists_no_files_is_not_ours(tmp_path, no_pictures, capsys):
    results = tmp_path / "results"
    results.mkdir()
    (results / "certificate.json").write_text('{"kernelweave_version": "0.0.1"}')
    (results / "weights.csv").write_text("of the user")
    assert main(FIT) == 2
    assert "holds files that kernelweave did not write" in capsys.readouterr().err
    assert (results / "weights.csv").read_text() == "of the user"


@pytest.mark.parametrize("out", ["results", "new/and/deep", "there"])
def test_new_folders(tmp_path, no_pictures, out):
    (tmp_path / "there").mkdir()
    assert main([*FIT, "--out", out]) == 0
    assert {path.name for path in (tmp_path / out).iterdir()} == TABLES
    (tmp_path / "ordinary").mkdir()
    for path in (tmp_path / out, tmp_path / "ordinary"):
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(
            (tmp_path / "ordinary").stat().st_mode
        )
    hidden = [p for p in tmp_path.rglob("*") if p.name.startswith(folder.HIDDEN)]
    assert hidden == []


def test_the_folder_one_is_in(tmp_path, monkeypatch, no_pictures):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir("here")
    arguments = [text.replace("data.csv", "../data.csv") for text in FIT]
    for _ in range(2):
        assert main([*arguments, "--out", "."]) == 0
        assert set(os.listdir()) == TABLES


def test_below_a_file(capsys):
    assert main([*FIT, "--out", "data.csv/results"]) == 2
    assert "'data.csv' is a file; choose a folder" in capsys.readouterr().err


def write_all(draft, text, names=folder.OURS):
    for name in names:
        with draft.file(name, "text") as path:
            content = {folder.MARK_KEY: text, folder.FILES_KEY: list(names)}
            path.write_text(json.dumps(content) if name == folder.MARK_FILE else text)


def texts(path):
    found = {file.name: file.read_text() for file in path.iterdir()}
    assert set(found) == set(folder.OURS)
    mark = json.loads(found.pop(folder.MARK_FILE))[folder.MARK_KEY]
    return {mark, *found.values()}


def test_a_page_in_the_folder_itself(tmp_path):
    """It replaces that of an earlier run, and stays when there is no new one."""
    page = tmp_path / "both" / "report.html"
    with folder.new_results("both") as draft:
        write_all(draft, "first")
    for text in ("second", "third"):
        with folder.new_results("both") as draft:
            write_all(draft, text, folder.FILES)
            with draft.elsewhere("both/report.html") as path:
                path.write_text(f"{text} page")
        assert page.read_text() == f"{text} page"
    with folder.new_results("both") as draft:
        write_all(draft, "fourth", folder.FILES)
    assert page.read_text() == "third page"
    refused = pytest.raises(ValueError, match=r"did not write 'both.report.html'")
    with refused, folder.new_results("both") as draft:
        write_all(draft, "fifth")


def test_the_last_of_two_runs_wins(contents, tmp_path):
    with folder.new_results("both") as first:
        write_all(first, "first")
        with folder.new_results("both") as second:
            write_all(second, "second")
        assert texts(tmp_path / "both") == {"second"}
    assert texts(tmp_path / "both") == {"first"}


def test_runs_at_the_same_time_do_not_mix(tmp_path):
    n_runs, n_rounds = 6, 10
    barrier = threading.Barrier(n_runs)
    found, errors = [], []

    def run(k):
        try:
            for i in range(n_rounds):
                with folder.new_results("both") as draft:
                    write_all(draft, f"{k} {i}")
                    barrier.wait(timeout=30)
                barrier.wait(timeout=30)
                if k == 0:
                    found.append(texts(tmp_path / "both"))
                barrier.wait(timeout=30)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(k,)) for k in range(n_runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [len(names) for names in found] == [1] * n_rounds
    assert {path.name for path in tmp_path.iterdir()} == {"data.csv", "both"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
def test_ctrl_c_during_imports_is_one_line(tmp_path):
    # in scipy's place a package that takes its time to load, and ignores interrupts
    slow = "import time\nprint('loading', flush=True)\n"
    slow += "try:\n    time.sleep(30)\nexcept BaseException:\n    pass\n"
    (tmp_path / "scipy.py").write_text(slow)
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelweave", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1] == INTERRUPTED
    assert process.returncode == 130


def test_a_staging_folder_is_removed_before_it_is_unlocked(tmp_path, monkeypatch):
    """Another run that begins in between must not take it for abandoned."""
    pytest.importorskip("fcntl")
    free = []

    def remove(path, ignore_errors):
        with folder._locked(path, wait=False) as locked:
            free.append(locked)

    monkeypatch.setattr(folder.shutil, "rmtree", remove)
    with folder.staging_folder(tmp_path, tmp_path):
        pass
    assert free == [False]
