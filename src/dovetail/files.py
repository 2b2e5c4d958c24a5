"""Writing so that a reader sees the old thing or the new thing, never half of one."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EISDIR, ENOENT
from pathlib import Path

from dovetail.errors import UsageError

SCRATCH = re.compile(r"\..*\.dovetail-(\d+)-\w{8}\.part")
"""Names of temporary files and folders, with the number of the process that made them."""
MOST_OF_NAME = 100
"""Letters of a file's name that its temporary one begins with: names have an end."""
LOCKED_BY_S = 60.0
"""Age from which scratch has been locked, if its process lives."""

def cache_folder() -> Path:
    """Root of what may be thrown away and made again: DOVETAIL_CACHE, else the user's cache directory."""
    chosen = os.environ.get("DOVETAIL_CACHE")
    if chosen:
        return Path(chosen)
    import platformdirs  # here, since a machine that only computes may do without it
    return Path(platformdirs.user_cache_dir("dovetail"))


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
    except ProcessLookupError:
        return False
    except OSError:
        return True
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
            if path.exists():
                with scratch_folder(path.parent, path.name) as retired:
                    os.replace(path, retired / "old")
                    os.replace(temporary, path)
            else:
                os.replace(temporary, path)
    except OSError as problem:
        raise _refuse(path, problem) from None
