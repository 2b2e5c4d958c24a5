"""Writing so that a reader sees the old thing or the new thing, never half of one."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EBUSY, EEXIST, EINVAL, EISDIR, ENOENT, ENOSYS, ENOTEMPTY, EOPNOTSUPP
from pathlib import Path

from dovetail.errors import UsageError

SCRATCH = re.compile(r"\..*\.dovetail-(\d+)-\w{8}\.part")
"""Names of temporary files and folders, with the number of the process that made them."""
MOST_OF_NAME = 100
"""Letters of a file's name that its temporary one begins with: names have an end."""
AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Of renameat2(2): names are relative to the working directory; both stay, exchanged."""
UNKNOWN = (ENOSYS, EINVAL, EOPNOTSUPP)
"""What the system says where it cannot exchange names."""
PUT_TRIES = 100
"""Times that a name is tried to be taken: each but the last was lost to another process."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
"""Permissions that let others than a file's owner change it."""
LOCKED_BY_S = 60.0
"""Age from which scratch has been locked, if its process lives."""

def cache_folder() -> Path:
    """Root of what may be thrown away and made again: DOVETAIL_CACHE, else the user's cache directory."""
    chosen = os.environ.get("DOVETAIL_CACHE")
    if chosen:
        return Path(chosen)
    try:
        import platformdirs  # here, since a machine that only computes from the sources may do without it
    except ImportError:
        return Path.home() / ".cache" / "dovetail"
    return Path(platformdirs.user_cache_dir("dovetail"))


def cache_kind(kind: str) -> Path:
    """The folder of one kind of cached results, made where it is missing, for this user alone.

    UsageError where others could have put something into it, OSError where it cannot be made.
    """
    root = cache_folder()
    make_private(root / kind)
    check_own(root, root / kind)
    return root / kind


def make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, for this user alone."""
    for path in (*reversed(folder.absolute().parents), folder):
        if not path.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)


def check_own(*paths: Path) -> None:
    """Refuse cached files and folders that others own or may write to: what is in them is run. What is missing does no harm.

    Raises UsageError, which says which it is and how to mend it.
    """
    for path in paths:
        try:
            found = os.stat(path) if path == cache_folder() else os.lstat(path)  # the cache as a whole may be a link
        except (FileNotFoundError, NotADirectoryError):
            continue
        problem = _trouble(found)
        if problem:
            raise UsageError(f"cache {path}: {problem}, and what is in it would be trusted; "
                             "remove it, or set DOVETAIL_CACHE to a folder of your own")


def _trouble(found: os.stat_result) -> str:
    """Why a file or folder may hold what others wrote, and how to mend that; nothing where it may not."""
    if stat.S_ISLNK(found.st_mode):
        return "is a symbolic link"
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}, not to you (user {os.geteuid()})"
    if found.st_mode & OTHERS_WRITE:
        return (f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o}; "
                f"`chmod -R go-w {shlex.quote(str(cache_folder()))}` ends that)")
    return ""


def _refuse(path: Path, problem: OSError) -> UsageError:
    return UsageError(f"{path}: cannot be written, {(problem.strerror or str(problem)).lower()}; "
                      "give a path in an existing folder with write permission and free space")


def _share(path: str | Path, mode: int) -> None:
    """Temporary files and folders are made private; results are to be shared as the user's umask says."""
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(path, mode & ~umask)


@contextmanager
def scratch_folder(parent: str | Path, name: str) -> Iterator[Path]:
    """Yield a new folder in `parent`, removed when the block ends; what killed processes left there is removed first.

    A lock on the folder says that its process lives: the system lets go of it, however the process ends.
    """
    sweep(parent)
    made = Path(tempfile.mkdtemp(prefix=_scratch_prefix(name), suffix=".part", dir=parent))
    try:
        with _locked(os.open(made, os.O_RDONLY)):
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _scratch_prefix(name: str) -> str:
    return f".{name[:MOST_OF_NAME]}.dovetail-{os.getpid()}-"


@contextmanager
def _locked(handle: int) -> Iterator[None]:
    """Hold the lock of an open file or folder, where the file system has locks, and close it."""
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def sweep(parent: str | Path) -> None:
    """Remove scratch of ours from a folder whose processes have ended without removing it."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            found = SCRATCH.fullmatch(entry.name)
            if found is not None and _abandoned(entry.path, int(found[1])):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


def _abandoned(path: str, owner: int) -> bool:
    """Whether scratch is this user's, nobody holds its lock, and it is not so new that its process has yet to take it."""
    try:
        held = os.lstat(path)
        if held.st_uid != os.geteuid() or (_lives(owner) and time.time() - held.st_mtime < LOCKED_BY_S):
            return False
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as problem:
        return not isinstance(problem, ProcessLookupError)
    return True


def replace_bytes(path: str | Path, content: bytes) -> None:
    """Write beside `path` under a temporary name, then rename into place; a device or pipe is written to as it stands."""
    path = Path(path)
    temporary: str | None = None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(content)  # renaming over /dev/stdout or /dev/null would take it from everybody
            return
        handle, temporary = tempfile.mkstemp(prefix=_scratch_prefix(path.name), suffix=".part", dir=path.parent)
        with _locked(handle):
            with os.fdopen(handle, "wb", closefd=False) as stream:
                stream.write(content)
            _share(temporary, 0o666)
            os.replace(temporary, path)
    except OSError as problem:
        raise _refuse(path, problem) from None
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def replace_text(path: str | Path, text: str) -> None:
    replace_bytes(path, text.encode("utf-8"))


def check_file(path: str | Path) -> None:
    """Refuse at once a file that could not be written after all the work; UsageError as writing it would give."""
    path = Path(path)
    if path.is_dir():
        raise _refuse(path, IsADirectoryError(EISDIR, os.strerror(EISDIR)))
    if not path.parent.is_dir():
        raise _refuse(path, FileNotFoundError(ENOENT, os.strerror(ENOENT)))
    if not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
        raise _refuse(path, PermissionError(EACCES, os.strerror(EACCES)))
    sweep(path.parent)


def check_folder(path: str | Path, marker: str) -> None:
    """Refuse at once a folder that `replace_folder` would not replace after all the work."""
    path = Path(path)
    if path.exists() and not (path.is_dir() and (not any(path.iterdir()) or (path / marker).is_file())):
        raise UsageError(f"{path}: exists and is not a folder of ours (no {marker} in it); give another folder or remove it")
    above = next(p for p in path.absolute().parents if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise _refuse(path, PermissionError(EACCES, os.strerror(EACCES)))
    sweep(path.parent)


@contextmanager
def replace_folder(path: str | Path, marker: str) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends well, and vanishes when it does not.

    An existing `path` is replaced only if it is empty or holds `marker`, the file that says it is ours.
    """
    path = Path(path)
    check_folder(path, marker)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(path.parent, path.name) as temporary:
            yield temporary
            _share(temporary, 0o777)
            _put(temporary, path)
    except OSError as problem:
        raise _refuse(path, problem) from None


def _put(new: Path, path: Path) -> None:
    """Give a folder its name; one that has it takes the name of the new one. There is no moment without either.

    Another process may do the same: who finds the name taken, or free again, looks once more.
    """
    for _ in range(PUT_TRIES):
        try:
            os.rename(new, path)  # also over an empty folder
            return
        except OSError as problem:
            if problem.errno not in (EEXIST, ENOTEMPTY):
                raise
        try:
            exchange(new, path)
            return
        except FileNotFoundError:
            continue
        except OSError as problem:
            if problem.errno not in UNKNOWN:
                raise
            with scratch_folder(path.parent, path.name) as retired, suppress(FileNotFoundError):
                os.rename(path, retired / "old")  # no exchange here: for a moment there is no folder
    raise OSError(EBUSY, os.strerror(EBUSY))


def exchange(a: str | Path, b: str | Path) -> None:
    """Let two files or folders of one file system trade names in one step, by Linux's renameat2(2).

    Raises OSError with an errno of `UNKNOWN` where the system or the file system does not know how.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(ENOSYS, os.strerror(ENOSYS))
    if call(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), ctypes.c_uint(RENAME_EXCHANGE)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
