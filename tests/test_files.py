"""Damaged and hostile files are refused in one line, or read; nothing else happens."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import itertools
import json
import os
import random
import shutil
import signal
import stat
import sys
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

import kernelweave
import stress_files
from conftest import SEED_VARIABLE
from kernelweave import _files, _writing
from kernelweave.cli import folder
from kernelweave.cli.main import main
from kernelweave.cli.read import read_frame
from reproduce.run import run_experiment

for needed in ("pandas", "pyarrow.parquet", "openpyxl", "skops"):
    pytest.importorskip(needed)

#: Mutations of each kind of file: a sample here, more with the seeds of "make fuzz".
COUNT = 200 if os.environ.get(SEED_VARIABLE) else 6


@pytest.mark.filterwarnings("ignore:Workbook contains no default style")
@pytest.mark.parametrize("name", stress_files.TARGETS)
def test_mutated_files_are_refused_or_read(name, global_random_seed, tmp_path):
    first = 1000 * global_random_seed
    counts = stress_files.run(name, range(first, first + COUNT), tmp_path)
    assert counts.total() == COUNT and counts["refused"]


# Faults that such runs have found -----------------------------------------------------


def bomb(path, size=3 * 10**7):
    path.write_bytes(gzip.compress(b"0," * (size // 2), 1))


def test_small_files_do_not_fill_the_memory(tmp_path):
    bomb(tmp_path / "table.csv.gz")
    with pytest.raises(ValueError, match="more than 50 times as many; unpack it first"):
        read_frame(str(tmp_path / "table.csv.gz"))
    (tmp_path / "table.csv").write_text("," * 10**5 + "\n" + "," * 10**5)
    with pytest.raises(ValueError, match="has 100001 columns without a name"):
        read_frame(str(tmp_path / "table.csv"))
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("sheet", b" " * 10**7)
    with pytest.raises(ValueError, match="more than 50 times as many"):
        read_frame(str(tmp_path / "t.xlsx"))
    pyarrow = pytest.importorskip("pyarrow")
    zeros = np.zeros(5 * 10**6, dtype="int8")
    text = ["x" * 2000] * 20_000  # of which the file keeps one
    for column in (zeros, text):
        table = pyarrow.table({"x": column})
        pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=r"0,000 rows and 1 columns in [\d,]+ "):
            read_frame(str(tmp_path / "t.parquet"))


def test_what_compresses_well_is_read(tmp_path):
    """A table of ones and zeros is no attack."""
    cells = np.random.default_rng(0).random((4000, 100)) < 0.05
    text = "\n".join(",".join("01"[int(v)] for v in row) for row in cells)
    path = tmp_path / "ones.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert _files.unpacked(path).decode() == text
    path.write_bytes(gzip.compress(b"1,2\n" * 10**5))  # 400 times, but small
    assert len(_files.unpacked(path)) == 4 * 10**5


def test_a_model_with_the_right_checksum_that_does_not_fit(tmp_path, capsys):
    """The command line blames the file, also for what it says about itself."""
    target = stress_files.inspect_target(tmp_path)
    rng, path = random.Random(0), tmp_path / "model.kw"
    messages = []
    for _ in range(6):
        path.write_bytes(stress_files.change_header(rng, target.content))
        with contextlib.suppress(ValueError):
            target.read(tmp_path)
        messages.append(capsys.readouterr().err)
    assert messages == [""] * 6  # everything was caught in "read"
    (_, header), (_, model) = stress_files.members_of(target.content)
    wrong = header.replace(b'"columns": [', b'"columns": [1, ')
    path.write_bytes(
        stress_files.archive([("header.json", wrong), ("model.skops", model)])
    )
    assert main(["inspect", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be used: its parts do not fit together (TypeError" in line


def test_a_model_that_lacks_a_part(tmp_path, capsys):
    data = tmp_path / "new.csv"
    X, y = stress_files.rows()
    frame = __import__("pandas").DataFrame(X, columns=["x0", "x1", "x2", "x3"])
    frame.to_csv(data, index=False)
    views = [("a", "linear", ["x0", "x1"]), ("b", "linear", ["x2", "x3"])]
    model = kernelweave.MultipleKernelFDA(views, norm=1, alpha=0.1, cv=None)
    del model.fit(frame, y).kernel_map_
    kernelweave.save(model, tmp_path / "model.kw")
    assert main(["predict", str(tmp_path / "model.kw"), str(data)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "its parts do not fit together (AttributeError: " in line


def test_devices_are_left_alone(tmp_path):
    if not Path("/dev/full").is_char_device():
        pytest.skip("needs /dev/full")
    with pytest.raises(OSError, match="is a device, which is left alone"):
        kernelweave.save(kernelweave.KernelFDA(), "/dev/full")
    assert Path("/dev/full").is_char_device()
    with pytest.raises(ValueError, match="is a device, not a file"):
        folder.check_place("/dev/full")


def test_folders_without_permission_are_refused_first(tmp_path, monkeypatch):
    name = str(tmp_path / "model.kw")
    folder.check_place(name)
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # for root
    with pytest.raises(ValueError, match="its folder is not writable"):
        folder.check_place(name)


# Processes that are killed, or that meet ----------------------------------------------

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def fork(action):
    """Run in a copy of this process, which needs no imports; return its number."""
    with warnings.catch_warnings():
        # The threads that other tests left behind are not used by the copy.
        warnings.simplefilter("ignore", DeprecationWarning)
        number = os.fork()
    if number:
        return number
    status = 1
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            action()
        status = 0
    finally:
        os._exit(status)


def killed(action, moment):
    """Run in a copy of this process, and kill it at the given call of a function.

    Returns whether it was killed, or had already finished.
    """
    count = 0

    def watch(frame, event, argument):
        nonlocal count
        count += 1
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched():
        sys.setprofile(watch)
        try:
            action()
        finally:
            sys.setprofile(None)

    _, status = os.waitpid(fork(watched), 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def calls(action):
    """How many moments there are to be killed at."""
    count = 0

    def watch(frame, event, argument):
        nonlocal count
        count += 1

    sys.setprofile(watch)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            action()
    finally:
        sys.setprofile(None)
    return count


def moments(rng, action, few):
    """Moments at which to die, most of them among the last calls, which move files."""
    total = calls(action)
    n = 10 * few if os.environ.get(SEED_VARIABLE) else few
    late = rng.integers(max(1, total - 400), total + 1, size=n)
    return [*late.tolist(), *rng.integers(1, total + 1, size=n).tolist()]


def mark_of(text):
    """A mark with this text, which lists every file that a run may write."""
    return json.dumps({folder.MARK_KEY: text, folder.FILES_KEY: list(folder.OURS)})


def write_results(name, text):
    with folder.new_results(name) as draft:
        for file in folder.OURS:
            content = text
            if file == folder.MARK_FILE:
                content = mark_of(text)
            with draft.file(file, "text") as path:
                path.write_text(content)


def texts_of(place):
    found = {path.name: path.read_text() for path in place.iterdir()}
    assert set(found) == set(folder.OURS)
    return {text.split('"')[3] if "{" in text else text for text in found.values()}


@needs_fork
def test_a_killed_run_leaves_the_old_results_or_the_new(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()):
        write_results("out", "0")
    for k, moment in enumerate(moments(rng, lambda: write_results("out", "0"), 6)):
        before, new = texts_of(tmp_path / "out"), f"{k + 1}"
        killed(lambda new=new: write_results("out", new), moment)
        with folder._locked(Path("out")):
            folder._recover(Path("out"))  # as the next run does
        with folder.staging_folder(Path("out"), Path("out")):
            pass
        assert texts_of(tmp_path / "out") in (before, {new})
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@needs_fork
def test_a_killed_run_never_leaves_an_old_model_beside_new_results(
    tmp_path, monkeypatch
):
    """Killed before each renaming in turn; the next run completes or undoes them."""
    monkeypatch.chdir(tmp_path)
    model, mark = Path("model.kw"), Path("out", folder.MARK_FILE)

    def run(text, left=np.inf):
        def counted(rename, *names):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(*names)

        for name in ("rename", "replace"):
            monkeypatch.setattr(
                folder.os, name, functools.partial(counted, getattr(os, name))
            )
        with folder.new_results("out") as draft:
            for file in folder.OURS[:2]:
                with draft.file(file, "text") as path:
                    path.write_text(mark_of(text))
            with draft.elsewhere("model.kw") as path:
                path.write_text(text)

    def found():
        """The texts of the results and of the model; None where there are none."""
        texts = json.loads(mark.read_text()) if mark.exists() else {}
        return texts.get(folder.MARK_KEY), model.read_text() if model.exists() else None

    for first in (True, False):  # the folder is new, or holds earlier results
        for moment in itertools.count():
            if first:
                shutil.rmtree("out", ignore_errors=True)
                model.write_text("old")
            else:
                os.waitpid(fork(lambda: run("old")), 0)
            before = found()
            _, status = os.waitpid(fork(lambda k=moment: run("new", k)), 0)
            results, kept = found()
            assert kept is None or results is None or kept == results
            with contextlib.suppress(KeyboardInterrupt), folder.new_results("out"):
                raise KeyboardInterrupt  # the next run begins, and changes nothing
            assert found() in (before, ("new", "new"))
            if not os.WIFSIGNALED(status):
                break
        assert found() == ("new", "new")
        assert moment == (3 if first else 7)


def test_a_file_that_cannot_arrive_keeps_the_old_results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_results("out", "old")
    Path("model.kw").write_text("old")
    rename = os.rename

    def full(source, target):
        if Path(target).name == "model.kw" and Path(source).read_text() == "new":
            raise OSError(28, "No space left on device", source, None, target)
        rename(source, target)

    monkeypatch.setattr(folder.os, "rename", full)
    with (
        pytest.raises(OSError, match=r"^cannot write 'model.kw': No space"),
        folder.new_results("out") as draft,
        draft.elsewhere("model.kw") as path,
    ):
        path.write_text("new")
    assert texts_of(tmp_path / "out") == {"old"}
    assert Path("model.kw").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "model.kw"}


def test_a_forged_journal_moves_no_file_of_others(tmp_path):
    for name in ("given.txt", "kept.txt"):
        (tmp_path / name).write_text(name)
    place = tmp_path / "out"
    place.mkdir()
    for draft in ("given.txt", "../given.txt", f"{folder.HIDDEN}../given.txt", 3):
        forged = json.dumps([[str(tmp_path / "kept.txt"), draft]])
        (place / folder.JOURNAL).write_text(forged)
        folder._recover(place)
        assert (tmp_path / "kept.txt").read_text() == "kept.txt"
        assert not list(place.iterdir())


def abandon(place):
    """Make the files of a folder old enough to be those of a killed process."""
    old = time.time() - 2 * _writing.ABANDONED
    for path in place.iterdir():
        os.utime(path, (old, old))


@needs_fork
def test_a_killed_save_leaves_the_old_model_or_the_new(tmp_path, rng):
    path = tmp_path / "model.kw"

    def save(alpha=1.0):
        kernelweave.save(kernelweave.KernelFDA(alpha=alpha), path)

    kernelweave.save(kernelweave.KernelFDA(alpha=1.0), path)
    alpha = 1.0
    for k, moment in enumerate(moments(rng, save, 4)):
        killed(lambda k=k: save(2.0 + k), moment)
        found = kernelweave.load(path).alpha
        assert found in (alpha, 2.0 + k)
        alpha = found
    abandon(tmp_path)
    save()
    assert [left.name for left in tmp_path.iterdir()] == ["model.kw"]


@needs_fork
def test_a_killed_experiment_resumes(tmp_path, rng):
    run = lambda place: run_experiment(stress_files.EXPERIMENT, 3, place)  # noqa: E731
    whole = run(tmp_path / "whole")
    for k, moment in enumerate(moments(rng, lambda: run(tmp_path / "count"), 4)):
        place = tmp_path / str(k)
        killed(lambda place=place: run(place), moment)
        again = run(place)
        assert (again.splits, again.warnings) == (whole.splits, whole.warnings)


def test_a_run_killed_at_its_very_beginning_left_a_folder_of_ours(tmp_path):
    (tmp_path / f"{_writing.DRAFT}0123456789ab").write_text("{")
    (tmp_path / f"{folder.HIDDEN}0123456789ab").mkdir()
    folder._check(tmp_path)
    (tmp_path / ".notes").write_text("of the user")
    with pytest.raises(ValueError, match="holds files that kernelweave did not write"):
        folder._check(tmp_path)


def test_files_left_beside_the_folder_are_removed(tmp_path):
    mine = tmp_path / f"{folder.HIDDEN}notes.txt"
    for name in (f"{folder.HIDDEN}0123456789ab", f"{_writing.DRAFT}0123456789ab"):
        (tmp_path / name).write_text("half")
    mine.write_text("of the user")
    (tmp_path / f"{folder.HIDDEN}000000000000").mkdir()  # of a run still under way
    abandon(tmp_path)
    draft = folder.Draft(tmp_path, tmp_path)
    with draft.elsewhere(str(tmp_path / "model.kw")) as path:
        kernelweave.save(kernelweave.KernelFDA(), path)
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {path.name, mine.name, f"{folder.HIDDEN}000000000000"}


@needs_fork
def test_two_processes_do_not_mix_their_results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def many(who):
        for k in range(15):
            write_results("out", f"{who}{k}")

    numbers = [fork(lambda who=who: many(who)) for who in "ab"]
    assert [os.waitpid(number, 0)[1] for number in numbers] == [0, 0]
    assert len(texts_of(tmp_path / "out")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@needs_fork
def test_a_run_that_meets_the_end_of_another(tmp_path, monkeypatch):
    """It looks at a folder only while no files move, and others' drafts may vanish."""
    monkeypatch.chdir(tmp_path)
    write_results("out", "old")
    Path("out", f"{folder.HIDDEN}0123456789ab").mkdir()
    check, lock, looks = folder._check, folder._locked, []

    def looking(place, **wanted):
        with lock(place, wait=False) as locked:
            looks.append(not locked)  # somebody, hence this run, holds the lock
        check(place, **wanted)

    def vanishing(place, wait=True):
        if place.name == f"{folder.HIDDEN}0123456789ab":
            place.rmdir()
        return lock(place, wait)

    monkeypatch.setattr(folder, "_check", looking)
    monkeypatch.setattr(folder, "_locked", vanishing)
    write_results("out", "new")
    assert texts_of(tmp_path / "out") == {"new"}
    assert looks == [True, True]


def test_a_full_disk_keeps_the_old_model(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "model.kw"
    kernelweave.save(kernelweave.KernelFDA(alpha=1.0), path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        with pytest.raises(OSError, match=r"cannot write .*model\.kw.*too large"):
            kernelweave.save(kernelweave.KernelFDA(alpha=2.0), path)
        with pytest.raises(OSError, match=r"cannot write .*0000\.json.*nothing was"):
            run_experiment(stress_files.LONG, 1, tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(OSError, match=r"cannot write .*model\.kw/below.*nothing was"):
        kernelweave.save(kernelweave.KernelFDA(), path / "below")
    assert kernelweave.load(path).alpha == 1.0
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p != path]


@needs_fork
def test_a_read_only_folder_keeps_what_it_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old, new = kernelweave.KernelFDA(alpha=1.0), kernelweave.KernelFDA(alpha=2.0)
    kernelweave.save(old, "model.kw")
    write_results("out", "old")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    folders = (tmp_path, tmp_path / "out")

    def attempts():
        if os.geteuid() == 0:
            os.setuid(65534)  # the administrator may write everywhere
        for write, name in (
            (lambda: kernelweave.save(new, "model.kw"), "model.kw"),
            (lambda: write_results("out", "new"), "out"),
            (lambda: write_results("other", "new"), "other"),
            (lambda: run_experiment(stress_files.LONG, 1, Path("cache")), "cache"),
        ):
            with pytest.raises(OSError, match="Permission denied") as error:
                write()
            assert repr(name) in str(error.value)

    for path in folders:
        path.chmod(0o555)
    try:
        _, status = os.waitpid(fork(attempts), 0)
    finally:
        for path in folders:
            path.chmod(0o755)
    assert status == 0
    assert before == {
        path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    }


# What is promised in SECURITY.md ------------------------------------------------------


def test_no_connections(monkeypatch, tmp_path):
    """Fitting, predicting, saving and loading open no socket."""
    import socket

    def refuse(*arguments, **options):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    X, y = stress_files.rows()
    model = kernelweave.MultipleKernelFDA(norm=1, alpha=0.1, cv=None).fit(X, y)
    kernelweave.save(model, tmp_path / "model.kw")
    kernelweave.load(tmp_path / "model.kw").predict(X)
    kernelweave.datasets.fetch_views("breast_cancer")


def mode_of(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def write_one(path, private=False):
    with _writing.written_whole(Path(path), private) as file:
        file.write(b"new")


needs_modes = pytest.mark.skipif(os.name != "posix", reason="needs permissions")


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@needs_modes
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o400])
def test_a_replaced_file_keeps_its_permissions(tmp_path, mode, usual_umask):
    path = tmp_path / "model.kw"
    path.write_text("old")
    path.chmod(mode)
    write_one(path)
    assert path.read_text() == "new"
    assert mode_of(path) == mode


@needs_modes
def test_a_new_model_is_for_its_owner_alone(tmp_path, usual_umask):
    kernelweave.save(kernelweave.KernelFDA(), tmp_path / "model.kw")
    assert mode_of(tmp_path / "model.kw") == 0o600
    write_one(tmp_path / "page.html")
    assert mode_of(tmp_path / "page.html") == 0o644


@needs_modes
def test_a_private_file_is_never_public_while_it_is_replaced(tmp_path, usual_umask):
    path = tmp_path / "model.kw"
    path.write_text("old")
    path.chmod(0o600)
    with _writing.written_whole(path) as file:
        assert mode_of(file.name) == 0o600
    with folder.Draft(tmp_path, tmp_path).elsewhere(str(path)) as draft:
        assert mode_of(draft) == 0o600


@needs_modes
@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid(), reason="needs root")
def test_a_replaced_file_keeps_its_owner(tmp_path, monkeypatch, usual_umask):
    path = tmp_path / "model.kw"
    path.write_text("old")
    os.chown(path, 12345, 54321)
    path.chmod(0o640)
    write_one(path)
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)

    def refuse(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    write_one(path)  # now of our group, which may not read what another one could
    assert (path.stat().st_gid, mode_of(path)) == (os.getgid(), 0o600)


@needs_modes
def test_results_keep_their_permissions(tmp_path, monkeypatch, usual_umask):
    monkeypatch.chdir(tmp_path)
    write_results("out", "old")
    assert mode_of("out/weights.csv") == 0o644
    Path("page.html").write_text("old")
    for path in (*Path("out").iterdir(), Path("page.html")):
        path.chmod(0o600)
    with folder.new_results("out") as draft:
        for file in folder.OURS:
            content = mark_of("new") if file == folder.MARK_FILE else "new"
            with draft.file(file, "text") as path:
                path.write_text(content)
        for name in ("page.html", "new.html"):
            with draft.elsewhere(name) as path:
                write_one(path)
    kept = (*Path("out").iterdir(), Path("page.html"))
    assert all("new" in path.read_text() for path in kept)
    assert {mode_of(path) for path in kept} == {0o600}
    assert mode_of("new.html") == 0o644


needs_links = pytest.mark.skipif(os.name != "posix", reason="needs links")


@needs_links
def test_links_are_followed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("store").mkdir()
    Path("latest.kw").symlink_to("store/v1.kw")
    for text in ("first", "second"):  # a file that is new, and one that is replaced
        with _writing.written_whole(Path("latest.kw")) as file:
            file.write(text.encode())
        assert os.readlink("latest.kw") == "store/v1.kw"
        assert Path("store/v1.kw").read_text() == text
    for text in ("third", "fourth"):
        with folder.new_results("out") as draft:
            write_all_to(draft, text)
            with draft.elsewhere("latest.kw") as path:
                path.write_text(text)
        assert os.readlink("latest.kw") == "store/v1.kw"
        assert Path("store/v1.kw").read_text() == text
    assert [path.name for path in Path("store").iterdir()] == ["v1.kw"]
    Path("round.kw").symlink_to("round.kw")
    with pytest.raises(OSError, match=r"cannot write 'round.kw': it is a link that"):
        write_one("round.kw")
    Path("nowhere.kw").symlink_to("missing/v1.kw")
    with pytest.raises(ValueError, match=r"no folder '.*missing' for 'nowhere.kw'"):
        folder.check_place("nowhere.kw")


def write_all_to(draft, text):
    with draft.file(folder.MARK_FILE, "text") as path:
        path.write_text(mark_of(text))


@pytest.mark.parametrize("length", [242, 243, 255])
def test_names_may_be_as_long_as_the_system_allows(tmp_path, length):
    name = str(tmp_path / f"{'m' * (length - 3)}.kw")
    folder.check_place(name)
    kernelweave.save(kernelweave.KernelFDA(), name)
    write_one(name)
    with folder.new_results(str(tmp_path / ("o" * length))) as draft:
        write_all_to(draft, "text")
        with draft.elsewhere(str(tmp_path / f"m.{'k' * (length - 2)}")) as path:
            write_one(path)
    assert {len(path.name) for path in tmp_path.iterdir()} == {length}


@needs_links
def test_longer_names_are_refused_before_the_work(tmp_path, monkeypatch):
    name = str(tmp_path / ("m" * 256))
    said = pytest.raises(OSError, match="File name too long; choose a shorter name")
    with said:
        folder.check_place(name)
    with said:
        kernelweave.save("not a model, which would be refused next", name)


@needs_modes
def test_the_folder_is_written_to_disk_after_the_renaming(tmp_path, monkeypatch):
    path, order = tmp_path / "model.kw", []
    replace, fsync = os.replace, os.fsync

    def synced(handle):
        order.append(os.fstat(handle).st_ino)
        fsync(handle)

    def replaced(source, target):
        order.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write_one(path)
    assert order == [path.stat().st_ino, "replace", tmp_path.stat().st_ino]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left")])
def test_a_failed_draft_leaves_nothing(tmp_path, stop):
    for name in ("old.kw", "new.kw"):
        if name == "old.kw":
            (tmp_path / name).write_text("old")
        draft = folder.Draft(tmp_path, tmp_path)
        for make in (_writing.written_whole, lambda p, d=draft: d.elsewhere(str(p))):
            with pytest.raises((KeyboardInterrupt, OSError)), make(tmp_path / name):
                raise stop
    assert [path.name for path in tmp_path.iterdir()] == ["old.kw"]
    assert (tmp_path / "old.kw").read_text() == "old"


def test_a_disk_that_is_full_when_results_are_synced(tmp_path, monkeypatch):
    """Some file systems find room for what was written only now."""
    monkeypatch.chdir(tmp_path)
    write_results("out", "old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    path = str(Path("out", folder.OURS[0]))
    with pytest.raises(OSError, match=f"^cannot write {path!r}: No space left on"):
        write_results("out", "new")
    assert texts_of(tmp_path / "out") == {"old"}
