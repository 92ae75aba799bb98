"""A folder of results: all of a run or nothing of it, beside the files of others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "FILES_KEY",
    "MARK_FILE",
    "MARK_KEY",
    "Draft",
    "new_results",
    "prepare_folder",
]

#: The file by which a folder is known to be ours, its key that says so, and the key
#: that lists the files of the run.
MARK_FILE, MARK_KEY, FILES_KEY = "certificate.json", "kernelweave_version", "files"
#: Every file that a run may write; earlier versions did not list theirs.
OURS = (MARK_FILE, "weights.csv", "predictions.csv", "weights.png", "projection.png")
#: How the names of folders begin that are only there during a run.
HIDDEN = ".kernelweave-"


@dataclass(frozen=True)
class Draft:
    """Results on the way.

    Attributes
    ----------
    folder : Path
        Where they will be.
    staging : Path
        Where they are until they are complete.
    written : dict
        What is in each file so far.
    remarks : list of str
        What else to say about them.
    """

    folder: Path
    staging: Path
    written: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @contextmanager
    def file(self, name: str, content: str) -> Iterator[Path]:
        """The path to write one file to; errors of the disk name the file."""
        with _named_errors(self.folder / name):
            yield self.staging / name
        self.written[name] = content


@contextmanager
def new_results(name: str) -> Iterator[Draft]:
    """Collect files, and show them in the folder ``name`` when all are complete.

    If anything goes wrong before, the folder is as it was. Of two runs at a time, the
    one that ends last replaces all files of the other.

    Parameters
    ----------
    name : str
        The folder. It may exist if it is empty or an earlier run wrote to it.

    Yields
    ------
    draft : Draft
        Where to write.
    """
    folder = Path(name)
    _check(folder)
    staging = _existing(folder) / f"{HIDDEN}{uuid.uuid4().hex[:12]}"
    draft = Draft(folder, staging)
    try:
        with _named_errors(folder):
            staging.mkdir()
        yield draft
        with _uninterrupted():
            with _named_errors(folder):
                _publish(staging, folder)
            _announce(draft)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def prepare_folder(name: str, mark: str = MARK_FILE) -> Path:
    """Make a folder that is written to step by step; see :func:`new_results`.

    Parameters
    ----------
    name : str
        The folder. It may exist if it is empty or an earlier run wrote to it.
    mark : str, default="certificate.json"
        The file by which an earlier run is known.

    Returns
    -------
    folder : Path
        The folder, which now exists.
    """
    folder = Path(name)
    _check(folder, mark)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _check(folder: Path, mark: str = MARK_FILE) -> None:
    """Refuse files, and folders of others."""
    existing = _existing(folder)
    if not existing.is_dir():
        raise ValueError(f"{str(existing)!r} is a file; name a folder with --out")
    if existing != folder:
        return
    there = {path.name for path in folder.iterdir()}
    strange = [name for name in there if not name.startswith(HIDDEN)]
    ours = _our_files(folder / mark)
    if strange and ours is None:
        raise ValueError(
            f"the folder {str(folder)!r} holds files that kernelweave did not write; "
            "name another one with --out"
        )
    foreign = sorted(there.intersection(OURS).difference(ours or ()))
    if foreign and mark == MARK_FILE:
        raise ValueError(
            f"kernelweave did not write {str(folder / foreign[0])!r} and will not "
            "replace it; move it, or name another folder with --out"
        )


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists: on the same disk."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _our_files(mark: Path) -> list[str] | None:
    """Names of the files of an earlier run; None if the folder is not ours."""
    try:
        content = json.loads(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not (isinstance(content, dict) and MARK_KEY in content):
        return None
    listed = content.get(FILES_KEY)
    if not isinstance(listed, list):
        return list(OURS)
    # Anyone may edit the list: no other names count than those that we give.
    return [name for name in OURS if name in listed]


def _publish(staging: Path, folder: Path) -> None:
    """Rename the whole folder; if there is one already, swap the files in it."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(staging, folder)
            return
        except OSError:  # perhaps another run was faster
            if not folder.is_dir():
                raise
    with _locked(folder):
        _check(folder)  # a fit takes its time: the folder may have changed
        _swap(staging, folder)


def _swap(staging: Path, folder: Path) -> None:
    """Old files out, new files in; if a step fails, undo those before it.

    Other files in the folder are not touched, which is why the folder itself is not
    swapped.
    """
    aside = folder / f"{HIDDEN}old-{uuid.uuid4().hex[:12]}"
    old = [
        name
        for name in _our_files(folder / MARK_FILE) or ()
        if (folder / name).exists()
    ]
    new = sorted(path.name for path in staging.iterdir())
    moves = [(folder / name, aside / name) for name in old]
    moves += [(staging / name, folder / name) for name in new]
    begun = []
    aside.mkdir()
    try:
        for move in moves:
            begun.append(move)  # first, since an interrupt may come in between
            os.rename(*move)
    except BaseException:
        for source, target in reversed(begun):
            if not source.exists():
                os.rename(target, source)
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other run swaps files in this folder."""
    try:
        import fcntl
    except ImportError:  # Windows has no locks on folders
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # nor have some network disks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # and unlock


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C for an instant: the results are complete, and so is the run."""
    if threading.current_thread() is not threading.main_thread():
        yield  # other threads get no signals
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Say which file could not be written: a full disk does not."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"cannot write {str(path)!r}: {error.strerror or error}; nothing was "
            "written; name a folder with --out that can be written to"
        ) from error


def _announce(draft: Draft) -> None:
    lines = [f"\nWritten to {draft.folder}:"]
    for name, content in draft.written.items():
        lines.append(f"  {draft.folder / name}  ({content})")
    lines += [f"  {remark}" for remark in draft.remarks]
    print("\n".join(lines))
