"""A folder of results: all files of a run or none; other files are not touched."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kernelweave
from kernelweave._writing import (
    DRAFT_DIGITS,
    HIDDEN,
    begun_draft,
    check_name,
    remove_abandoned,
    resolved,
    sync,
    written_whole,
)
from kernelweave.cli.entry import ENDINGS

#: The file that marks a folder as ours, the key in it that says so, and the key that
#: lists the files of the run.
MARK_FILE, MARK_KEY, FILES_KEY = "certificate.json", "kernelweave_version", "files"
#: The files that a run may write, except for a page, which users may also put there.
FILES = (
    MARK_FILE,
    "evaluation.csv",
    "weights.csv",
    "columns.csv",
    "predictions.csv",
    "weights.png",
    "projection.png",
    "predicted.png",
)
#: Every file that a run may write.
OURS = (*FILES, "report.html")
#: Prefix of those that hold the old files while new ones move in.
ASIDE = f"{HIDDEN}old-"
#: A list of the files outside the folder, with their drafts, until these are in place.
JOURNAL = f"{HIDDEN}elsewhere.json"
#: The name of a draft of a file outside the folder.
OF_OURS = re.escape(HIDDEN) + DRAFT_DIGITS
#: Advice on a file outside the folder that cannot be written.
FILE = "choose another file"

Move = tuple[Path, Path]  # from, to


@dataclass(frozen=True)
class Draft:
    """Results in preparation.

    Attributes
    ----------
    folder : Path
        Their final place.
    staging : Path
        Their place until they are complete.
    written : dict
        The files written so far, each with a description of its contents.
    remarks : list of str
        Further remarks to print.
    beside : dict
        Files that belong elsewhere: their final places, and where they are until then.
    """

    folder: Path
    staging: Path
    written: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    beside: dict[Path, Path] = field(default_factory=dict)

    @contextmanager
    def file(self, name: str, content: str) -> Iterator[Path]:
        """Path to write a file to; disk errors name the file."""
        path, final = self.staging / name, self.folder / name
        with _named_errors(final), begun_draft(path, final):
            yield path
        self.written[name] = content

    @contextmanager
    def elsewhere(self, name: str) -> Iterator[Path]:
        """Path to write a file outside the folder to."""
        with _named_errors(Path(name), FILE):
            final = resolved(Path(name))
            draft = final.with_name(f"{HIDDEN}{uuid.uuid4().hex[:12]}")
            remove_abandoned(final.parent, f"{HIDDEN}{DRAFT_DIGITS}")
            self.beside[Path(name)] = draft
            with begun_draft(draft, final):
                yield draft


def check_place(name: str | None, others: Iterable[str | None] = ()) -> None:
    """Refuse a file that could not be written, before the work begins.

    So is one of the ``others`` of the command, which may be given as NAME=FILE.
    """
    if name is None:
        return
    path = Path(name)
    check_name(path)
    folder = resolved(path).parent
    if path.is_dir():
        raise ValueError(f"{name!r} is a folder; choose a file")
    if path.exists() and not path.is_file():
        raise ValueError(f"{name!r} is a device, not a file; choose a file")
    _check_apart(name, others)
    if not folder.is_dir():
        folder = folder if path.is_symlink() else path.parent
        raise ValueError(f"there is no folder {str(folder)!r} for {name!r}; create it")
    if not os.access(folder, os.W_OK):
        raise ValueError(
            f"cannot write {name!r}: its folder is not writable; choose another file"
        )


def _check_apart(name: str, others: Iterable[str | None]) -> None:
    for text in filter(None, others):
        files = map(Path, (text, text.partition("=")[2]))
        if Path(name).resolve() in [file.resolve() for file in files]:
            raise ValueError(
                f"this command also reads or writes {name!r}; choose another file"
            )


@contextmanager
def new_results(name: str, read: Iterable[str | None] = ()) -> Iterator[Draft]:
    """Collect files, and move them to the folder ``name`` once all are complete.

    If anything goes wrong before that, the folder is unchanged. If two runs overlap,
    the one that ends last replaces all files of the other. Files elsewhere are replaced
    together with those in the folder: the old ones leave first and the new ones arrive
    last, so a run that is killed never leaves a mixture of old and new ones.

    Parameters
    ----------
    name : str
        The folder. It may exist if it is empty or was written by an earlier run.
    read : iterable of str
        The files that the command reads, which are not replaced.

    Yields
    ------
    draft : Draft
        The results in preparation, to which files are written.
    """
    folder, read = Path(name), list(read)
    for file in FILES:
        _check_apart(str(folder / file), read)
    if folder.is_dir():
        with _locked(folder):  # another run may be halfway through its exchange
            _recover(folder)
            _check(folder)
    else:
        _check(folder)
    with staging_folder(_existing(folder), folder) as staging:
        draft = Draft(folder, staging)
        try:
            yield draft
            with _uninterrupted():
                _publish(draft)
                print(f"\nWritten to {folder}:")
                for file, content in draft.written.items():
                    print(f"  {folder / file}  ({content})")
                for final in draft.beside:
                    print(f"  {final}")
                for remark in draft.remarks:
                    print(f"  {remark}")
        finally:
            for waiting in draft.beside.values():
                waiting.unlink(missing_ok=True)


@contextmanager
def staging_folder(place: Path, final: Path) -> Iterator[Path]:
    """A hidden folder for files in preparation, removed at the end.

    A run that was killed could not remove its own; the next one in the same place does.
    The folder of a run still under way is locked.

    Parameters
    ----------
    place : Path
        The existing folder in which to make it.
    final : Path
        The place of the results, which errors name.
    """
    staging = place / f"{HIDDEN}{uuid.uuid4().hex[:12]}"
    with ExitStack() as stack:
        with _named_errors(final), _locked(place):
            _remove_abandoned(place)
            staging.mkdir()
            stack.enter_context(_locked(staging, wait=False))
            stack.callback(shutil.rmtree, staging, ignore_errors=True)
        yield staging


def _remove_abandoned(place: Path) -> None:
    for path in place.glob(f"{HIDDEN}{DRAFT_DIGITS}"):
        if not path.is_dir() or path.is_symlink():
            continue
        # the folder may vanish as its own run ends
        with suppress(FileNotFoundError), _locked(path, wait=False) as locked:
            if locked:
                _undo_journal(path)
                shutil.rmtree(path, ignore_errors=True)


def write_mark(path: Path, content: dict[str, Any], files: list[str]) -> None:
    """Write the file that identifies a folder of results.

    Parameters
    ----------
    path : Path
        The file.
    content : dict
        Its entries besides the version and the names of the files.
    files : list of str
        Names of all files of the run.
    """
    whole = {MARK_KEY: kernelweave.__version__, **content, FILES_KEY: files}
    with written_whole(path) as file:
        file.write(f"{as_json(whole)}\n".encode())


def as_json(content: dict[str, Any]) -> str:
    """JSON, which has neither NaN nor infinity nor NumPy's numbers."""

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else str(value)

    text = json.dumps(content, default=plain)
    finite = json.loads(text, parse_constant={"Infinity": "inf"}.get)  # NaN is null
    return json.dumps(finite, indent=2)


def _check(folder: Path, wanted: Iterable[str] = FILES) -> None:
    """Refuse a file, a folder that is not ours, or ``wanted`` files that are not."""
    existing = _existing(folder)
    if not existing.is_dir():
        raise ValueError(f"{str(existing)!r} is a file; choose a folder with --out")
    if existing != folder:
        return
    there = {path.name for path in folder.iterdir()}
    # a run that was killed may leave drafts
    visible = [name for name in there if not name.startswith(HIDDEN)]
    ours = _our_files(folder / MARK_FILE)
    if visible and ours is None:
        raise ValueError(
            f"the folder {str(folder)!r} holds files that kernelweave did not write; "
            "choose another folder with --out"
        )
    foreign = sorted(there.intersection(wanted).difference(ours or ()))
    if foreign:
        raise ValueError(
            f"kernelweave did not write {str(folder / foreign[0])!r} and will not "
            "replace it; move it, or choose another folder with --out"
        )


def _existing(folder: Path) -> Path:
    """The folder or its nearest existing parent, which is on the same disk."""
    above = (folder, *folder.parents)
    return next((place for place in above if place.exists()), folder)


def _our_files(mark: Path) -> list[str] | None:
    """Names of the files of an earlier run; None if the folder is not ours."""
    try:
        content = json.loads(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not (isinstance(content, dict) and MARK_KEY in content):
        return None
    listed = content.get(FILES_KEY)
    if not isinstance(listed, list):
        return None
    # Anyone may edit the list, so only names that we use count.
    return [name for name in OURS if name in listed]


def _publish(draft: Draft) -> None:
    """Exchange all files; an error names the file concerned, or else the folder."""
    places = {resolved(final): final for final in draft.beside}
    try:
        if places:
            drafts = [waiting.name for waiting in draft.beside.values()]
            listed = list(zip(map(str, places), drafts, strict=True))
            (draft.staging / JOURNAL).write_text(json.dumps(listed), encoding="utf-8")
        _exchange(draft.staging, draft.folder)
        for folder in {draft.folder, draft.folder.parent, *(p.parent for p in places)}:
            sync(folder)
    except OSError as error:
        met = [Path(name) for name in (error.filename, error.filename2) if name]
        own = next((places[path] for path in met if path in places), None)
        with _named_errors(draft.folder) if own is None else _named_errors(own, FILE):
            raise


def _exchange(staging: Path, folder: Path) -> None:
    """Rename the whole folder; if it exists already, replace the files in it."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            with _locked(folder.parent):  # another run may be about to create it
                _move(_amid_others(staging, [(staging, folder)]))
            _end_journal(folder)
            return
        except OSError:  # another run came first
            if not folder.is_dir():
                raise
    with _locked(folder):
        _recover(folder)
        # again, since it may have changed during a long fit
        _check(folder, wanted=[path.name for path in staging.iterdir()])
        _swap(staging, folder)


def _swap(staging: Path, folder: Path) -> None:
    """Move old files out and new files in, the mark before all others.

    The folder itself is not replaced, because other files in it must not be touched.
    """
    aside = folder / staging.name.replace(HIDDEN, ASIDE)
    old = [folder / name for name in _our_files(folder / MARK_FILE) or ()]
    new = sorted(staging.iterdir(), key=lambda path: (path.name != MARK_FILE, path))
    moves = [(path, aside / path.name) for path in old if path.exists()]
    moves += [(path, folder / path.name) for path in new]
    aside.mkdir()
    try:
        _move(_amid_others(staging, moves))
    except BaseException:
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)
    _end_journal(folder)


def _move(moves: list[Move]) -> None:
    """Rename files one by one; if a step fails, undo all earlier ones."""
    begun = []
    try:
        for move in moves:
            begun.append(move)  # recorded first, in case of an interrupt
            os.rename(*move)
    except BaseException:
        for source, target in reversed(begun):
            if not source.exists() and target.exists():
                os.rename(target, source)
        raise


def _recover(folder: Path) -> None:
    """Complete or undo the :func:`_exchange` of a run that was killed in the middle.

    The mark is the first of the new files to move in, once all old ones are out: if it
    has moved, the rest follows, and otherwise the old files return.
    """
    for aside in folder.glob(f"{ASIDE}*"):
        name = aside.name.replace(ASIDE, HIDDEN)
        places = [folder / name, folder.parent / name]
        staging = next((path for path in places if path.is_dir()), None)
        if staging is not None:
            undo = (staging / MARK_FILE).exists()
            for path in (aside if undo else staging).iterdir():
                os.rename(path, folder / path.name)
            if undo:
                _undo_journal(staging)
            shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)
    for final, draft, _ in _others(folder):
        if draft.exists():
            os.replace(draft, final)
    _end_journal(folder)


def _others(place: Path) -> list[tuple[Path, Path, Path]]:
    """Files outside the folder: their places, their drafts, and where old ones wait.

    Anyone may edit the journal, so only drafts that are named like ours count.
    """
    try:
        listed = json.loads((place / JOURNAL).read_text(encoding="utf-8"))
        known = [(Path(final), str(draft)) for final, draft in listed]
    except (OSError, TypeError, ValueError, RecursionError):
        return []  # there is none, or the run was killed while it wrote it
    return [
        (final, final.with_name(name), final.with_name(name.replace(HIDDEN, ASIDE)))
        for final, name in known
        if final.name and re.fullmatch(OF_OURS, name)
    ]


def _amid_others(place: Path, moves: list[Move]) -> list[Move]:
    """Moves, preceded by those of old files outside and followed by those of new."""
    others = _others(place)
    leave = {final: old for final, _, old in others if final.exists()}
    # a page in the folder itself, say, would otherwise leave twice
    moves = [move for move in moves if Path(os.path.realpath(move[0])) not in leave]
    return [*leave.items(), *moves, *((draft, final) for final, draft, _ in others)]


def _undo_journal(place: Path) -> None:
    """Bring the old files outside the folder back."""
    for final, _, old in _others(place):
        if old.exists() and not final.exists():
            os.rename(old, final)


def _end_journal(place: Path) -> None:
    """All new files are in place: the old ones outside the folder may go."""
    with suppress(OSError):
        for _, _, old in _others(place):
            old.unlink(missing_ok=True)
        (place / JOURNAL).unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path, wait: bool = True) -> Iterator[bool]:
    """Lock a folder, so that no other run replaces files in it.

    Yields whether it is locked. It is not if another run has the lock and we do not
    wait, nor on Windows and some network file systems, which cannot lock folders.
    """
    try:
        import fcntl
    except ImportError:
        yield False
        return
    handle, locked = os.open(folder, os.O_RDONLY), False
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            locked = True
        yield locked
    finally:
        os.close(handle)  # also unlocks


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C and the like for an instant: the results are already complete."""
    # other threads receive no signals
    receives = threading.current_thread() is threading.main_thread()
    numbers = ENDINGS if receives else ()
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def _named_errors(
    path: Path, advice: str = "choose a writable folder with --out"
) -> Iterator[None]:
    """Name the file that could not be written, which a disk-full error does not."""
    try:
        yield
    except OSError as error:
        # The error may name a file already, but by the temporary path of its draft.
        first = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise OSError(
            f"cannot write {str(path)!r}: {first.strerror or first}; nothing was "
            f"written; {advice}"
        ) from error
