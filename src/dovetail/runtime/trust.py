"""Where a build's files come from: made here, made again and compared, or trusted because the user says so.

Verilog, sub-models and what describes them are run. A build folder may be anybody's, so they are used only where this user's
own tool wrote these very bytes (their digest is then remembered in the user's cache), or where generating them again from
`model.onnx`, `plan.json` and `manifest.json` gives the same bytes. Everything else is refused unless the user trusts it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dovetail.errors import BuildError, ToolError
from dovetail.fpga.toolchain.tools import cache_lookup, cached, content_key
from dovetail.ir.onnx.file import external_tensor
from dovetail.platform.device import Kind, Platform
from dovetail.progress import Progress
from dovetail.runtime.generate import Hardware, write_parts
from dovetail.schedule.program import Program

GENERATED = tuple(kind.value for kind in Kind)
"""Folders of generated files."""
SOURCES = ("manifest.json", "plan.json", "model.onnx")
"""What they are generated from."""
KNOWN = "builds"
"""Where the user's cache remembers the digests of builds that were made or checked here."""
MOST_KNOWN = 4096
MOST_FILES = 200_000
MOST_DEPTH = 8


def check_plain(folder: Path) -> None:
    """Refuse a build folder that holds anything but plain files and folders: a link or a pipe leads out of it."""
    for _ in plain_files(folder):
        pass


def plain_files(folder: Path) -> Iterator[Path]:
    """All files below a folder."""
    waiting, count = [(folder, 0)], 0
    while waiting:
        above, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(above), key=lambda e: e.name)
        except OSError as error:
            raise BuildError(f"{above}: cannot be read, {(error.strerror or str(error)).lower()}") from None
        for entry in entries:
            path, count = above / entry.name, count + 1
            if count > MOST_FILES or depth > MOST_DEPTH:
                raise BuildError(f"{folder}: more than {MOST_FILES:,} files or {MOST_DEPTH} folders deep; no build is so large")
            if entry.is_dir(follow_symlinks=False):
                waiting.append((path, depth + 1))
            elif entry.is_file(follow_symlinks=False):
                yield path
            else:
                raise BuildError(f"{path}: {'a link' if entry.is_symlink() else 'not a plain file'}; a build folder holds plain "
                                 "files alone, copy what it stands for to its place")


def generated_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every generated file by its path below the build folder."""
    found: dict[str, str] = {}
    for name in GENERATED:
        if (folder / name).is_dir():
            found |= {str(path.relative_to(folder)): _digest(path) for path in plain_files(folder / name)}
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def remember(folder: Path) -> None:
    """Remember a build that this tool has just written."""
    _remember(_key(folder, generated_digests(folder)))


def _key(folder: Path, generated: Mapping[str, str]) -> str:
    sources = [text for name in SOURCES for text in (name, _digest(folder / name))]
    return content_key([*sources, *(text for item in sorted(generated.items()) for text in item)])


def _remember(key: str) -> None:
    with suppress(ToolError):  # a cache that cannot be written only costs the next command some time
        cached(KNOWN, key, lambda folder: (folder / "known").touch(), MOST_KNOWN)


def check_origin(folder: Path, program: Program, platform: Platform, hardware: Hardware, progress: Progress) -> None:
    """Refuse a build whose generated files are neither known here nor what its model and plan give; names the first such file."""
    stored = generated_digests(folder)
    key = _key(folder, stored)
    if cache_lookup(KNOWN, key) is not None:
        return
    with tempfile.TemporaryDirectory(prefix="dovetail-", ignore_cleanup_errors=True) as name:
        try:
            write_parts(Path(name), program, platform, hardware, progress)
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            # Fields that are right one by one may describe no hardware together, such as an accelerator of another network.
            raise BuildError(f"{folder}: its hardware cannot be generated from model, plan and board ({error!r}); they do not "
                             "belong together, compile the model again") from error
        made = generated_digests(Path(name))
    for path in sorted(stored.keys() | made.keys()):
        if stored.get(path) != made.get(path):
            wrong = "missing" if path not in stored else "nothing that Dovetail generates" if path not in made \
                else "not what Dovetail generates from this model and plan"
            raise BuildError(f"{folder / path}: {wrong}; the file was changed or another version made it: compile the model "
                             "again, or give --trust to use the build's files as they are, if you trust who made them")
    _remember(key)


def check_trusted(folder: Path) -> None:
    """What holds of trusted files, too: sub-models read no other file."""
    for path in (p for kind in (Kind.CPU, Kind.GPU) for p in sorted((folder / kind.value).glob("*.onnx"))):
        tensor = external_tensor(path.read_bytes())
        if tensor is not None:
            raise BuildError(f"{path}: tensor {tensor} lies in another file; sub-models hold their own, compile the model again")


def what_runs(folder: Path, program: Program, platform: Platform) -> list[str]:
    """What a command may run of a trusted build, in words."""
    kinds = {s.name: platform.device(s.device).kind for s in program.segments}
    fpga = [f"fpga/{name}" for name, kind in kinds.items() if kind is Kind.FPGA]
    others = [f"{kind.value}/{name}.onnx" for name, kind in kinds.items() if kind is not Kind.FPGA]
    said = []
    if fpga:
        said.append(f"--trust: Verilog of {', '.join(fpga)} in {folder} is compiled, run and handed over as it is; it can run "
                    "any command in your name")
    if others:
        said.append(f"--trust: {', '.join(others)} in {folder} is run by ONNX Runtime as it is")
    return said
