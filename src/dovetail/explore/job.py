"""A job of a campaign: what it computes, what it depends on, and how it is computed in a worker."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from dovetail import __version__
from dovetail.errors import DovetailError, InternalError, MismatchError, ToolError, TransportError

Arguments = Mapping[str, Any]
"""Plain data, as JSON has it."""
Work = Callable[[Arguments, Mapping[str, Path]], Mapping[str, Any]]
"""A function of a module: of arguments and files by their roles. What it returns is plain data."""
FAULTS = (ToolError, InternalError, MismatchError, TransportError)
"""Errors that say nothing of a job's subject: another try may succeed."""
SOURCES = (".py", ".toml", ".v", ".cpp", ".h", ".c")
"""Files of the package that results depend on."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file with the SHA-256 of its bytes."""

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> StoredFile:
        return cls(path, sha256(path.read_bytes()).hexdigest())


@dataclass(frozen=True, slots=True)
class CampaignJob:
    """One computation. `key` is the hash of all that its result depends on; `memory_bytes` is what it may need."""

    key: str
    kind: str
    label: str
    work: Work
    arguments: Arguments
    memory_bytes: int
    files: Mapping[str, StoredFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job found: a result, or a refusal, where there is none and never will be (no plan meets the limits)."""

    result: Mapping[str, Any] | None
    refusal: str | None
    wall_s: float


def perform(work: Work, arguments: Arguments, files: Mapping[str, StoredFile | bytes],
            digests: Mapping[str, str]) -> tuple[Mapping[str, Any] | None, str | None, float]:
    """Run a job in a worker, which has its files or is sent their bytes; the fields of an `Outcome`.

    Raises:
        ToolError: a file is no longer what it was as the job was made.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dovetail-job-") as folder:
        paths = {role: _placed(Path(folder) / role, given, digests[role]) for role, given in files.items()}
        try:
            return work(arguments, paths), None, time.monotonic() - began
        except FAULTS:
            raise
        except DovetailError as refusal:
            return None, str(refusal), time.monotonic() - began


def _placed(path: Path, given: StoredFile | bytes, digest: str) -> Path:
    content = given if isinstance(given, bytes) else given.path.read_bytes()
    if sha256(content).hexdigest() != digest:
        name = path.name if isinstance(given, bytes) else given.path
        raise ToolError(f"{name}: the file changed while jobs on it were waiting; run the same command again")
    if isinstance(given, StoredFile):
        return given.path
    path.write_bytes(content)
    return path


@cache
def package_digest() -> str:
    """The package's version and the hash of its code and numbers: another release computes other results."""
    digest, root = sha256(), Path(str(resources.files("dovetail")))
    for path in sorted(p for p in root.rglob("*") if p.suffix in SOURCES):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:16]}"
