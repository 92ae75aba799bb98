"""Write files whole or not at all, without making private ones public."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

#: Prefix of the files and folders that exist only until a run is complete.
HIDDEN = ".kernelweave-"
#: Prefix of drafts of single files. Their names do not depend on that of the file, with
#: which they might be too long.
DRAFT = f"{HIDDEN}draft-"
#: Twelve hexadecimal digits at the end of the name of a draft.
DRAFT_DIGITS = "[0-9a-f]" * 12
#: Seconds after which a file that nobody completes may be removed.
ABANDONED = 3600.0
#: Who may read and write a new file: its owner alone, or as the umask says.
OWNER, UMASK = 0o600, 0o666


@contextmanager
def written_whole(path: Path, private: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` once it is complete.

    Until then, and if anything goes wrong, what was there stays there. Drafts of
    processes that were killed are removed an hour after they were last written to.

    Parameters
    ----------
    path : Path
        The file; if it is a link, the file that it leads to. A file that exists keeps
        its owner and permissions.
    private : bool, default=False
        Whether a new file is for its owner alone; otherwise the umask decides.
    """
    try:
        final = resolved(path)
        if final.exists() and not final.is_file() and not final.is_dir():
            raise OSError(errno.EINVAL, "it is a device, which is left alone")
        remove_abandoned(final.parent, f"{DRAFT}{DRAFT_DIGITS}")
        draft = final.with_name(f"{DRAFT}{uuid4().hex[:12]}")
        # what replaces a private file is private from its first byte on
        mode = OWNER if private or final.exists() else UMASK
        try:
            with open(
                draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)
            ) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            take_permissions(draft, final)
            os.replace(draft, final)
        finally:
            with suppress(OSError):
                draft.unlink()
        sync(final.parent)
    except OSError as error:
        reason = f"{error.strerror or error}; nothing was written"
        raise type(error)(
            error.errno, f"cannot write {str(path)!r}: {reason}"
        ) from error


def resolved(path: Path) -> Path:
    """The file that a path leads to through links, whether it exists or not."""
    final = Path(os.path.realpath(path))
    if final.is_symlink():
        raise OSError(errno.ELOOP, "it is a link that leads to itself", str(path))
    return final


def check_name(path: Path) -> None:
    """Refuse a name that the system does not allow, before the work begins."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            reason = f"{error.strerror}; choose a shorter name"
            raise OSError(
                error.errno, f"cannot write {str(path)!r}: {reason}"
            ) from None


def take_permissions(draft: Path, final: Path) -> None:
    """Give a draft the owner and permissions of the file that it will replace, if any.

    If its group cannot be that of the file, it may do no more than everyone may.
    """
    try:
        old, new = final.stat(), draft.stat()
    except FileNotFoundError:
        return
    mode = old.st_mode & 0o777
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        with suppress(OSError):  # not all systems and users can
            os.chown(draft, -1, old.st_gid)
            os.chown(draft, old.st_uid, -1)
        if draft.stat().st_gid != old.st_gid:
            mode = mode & ~0o070 | (mode & 0o007) << 3
    if mode != new.st_mode & 0o777:
        with suppress(OSError):
            draft.chmod(mode)


@contextmanager
def begun_draft(draft: Path, final: Path) -> Iterator[None]:
    """While a draft is written by others: it is as private as what it will replace.

    From its first byte on: if there is such a file, the draft is made now, for its
    owner alone, and takes the permissions of the file once it is written.
    """
    try:
        if final.exists():
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER))
        yield
        if draft.exists():
            with draft.open("r+b") as file:  # a disk may be full only now
                os.fsync(file.fileno())
            take_permissions(draft, final)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def sync(folder: Path) -> None:
    """Let the names in a folder survive a power cut, which Windows cannot."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove files that a killed process left, an hour after their last change."""
    with suppress(OSError):
        for left in folder.glob(pattern):
            if left.is_file() and time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()
