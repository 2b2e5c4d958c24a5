"""Writing so that a reader sees the old thing or the new thing, never half of one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EISDIR, ENOENT
from pathlib import Path

from dovetail.errors import UsageError


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


def replace_bytes(path: str | Path, content: bytes) -> None:
    """Write beside `path` under a temporary name, then rename into place; a device or pipe is written to as it stands."""
    path = Path(path)
    temporary: str | None = None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(content)  # renaming over /dev/stdout or /dev/null would take it from everybody
            return
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
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


def check_folder(path: str | Path, marker: str) -> None:
    """Refuse at once a folder that `replace_folder` would not replace after all the work."""
    path = Path(path)
    if path.exists() and not (path.is_dir() and (not any(path.iterdir()) or (path / marker).is_file())):
        raise UsageError(f"{path}: exists and is not a folder of ours (no {marker} in it); give another folder or remove it")
    above = next(p for p in path.absolute().parents if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise _refuse(path, PermissionError(EACCES, os.strerror(EACCES)))


@contextmanager
def replace_folder(path: str | Path, marker: str) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends well, and vanishes when it does not.

    An existing `path` is replaced only if it is empty or holds `marker`, the file that says it is ours.
    """
    path = Path(path)
    check_folder(path, marker)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    except OSError as problem:
        raise _refuse(path, problem) from None
    try:
        yield temporary
        _share(temporary, 0o777)
        if path.exists():
            retired = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
            os.replace(path, retired / "old")
            os.replace(temporary, path)
            shutil.rmtree(retired, ignore_errors=True)
        else:
            os.replace(temporary, path)
    except OSError as problem:
        raise _refuse(path, problem) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
