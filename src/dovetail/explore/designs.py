"""A space of designs as its TOML file states it: networks × boards × bits × architectures × objectives, and what to find out.

A design's jobs depend on no more than they use: accuracy is that of network and bits, whatever board there is.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from dovetail import zoo
from dovetail.errors import PlatformError, UsageError
from dovetail.explore.job import CampaignJob, StoredFile, package_digest
from dovetail.explore.kinds import ARCHITECTURES, KINDS, MEMORY_BYTES
from dovetail.files import cache_kind, replace_bytes
from dovetail.fpga.toolchain.synthesize import find_synthesizer
from dovetail.fpga.toolchain.tools import GIBIBYTE, content_key, find_verilator
from dovetail.numerics.quantize import DEFAULT_BITS
from dovetail.partition.plan import Goal
from dovetail.platform.load import load_platform, platform_names, platform_to_dict
from dovetail.platform.schema import Limits, TomlTable, suggestion
from dovetail.words import counted

AXES = ("network", "board", "bits", "architecture", "objective")
"""What a design is named by, in the order of a space's columns."""
OPTIONAL_KEYS = ("name", "jobs", "bits", "architectures", "objectives", "time_s", "frames", "memory_gb")
NETWORK_KEYS = ("name", "model", "zoo", "size", "width", "classes", "calibration", "data")
MOST_DESIGNS = 1_000_000
BITS = Limits(2, 8, "bits")
SIZE, WIDTH, CLASSES = Limits(8, 4096, "pixels"), Limits(0.05, 8, ""), Limits(2, 1e6, "classes")
SECONDS, FRAMES, MEMORY = Limits(0.01, 3600, "s"), Limits(1, 1e6, "frames"), Limits(0.1, 1024, "GiB")


@dataclass(frozen=True, slots=True)
class DesignPoint:
    """One point of a space, with the keys of its jobs by their kinds."""

    network: str
    board: str
    bits: int
    architecture: str
    objective: str
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DesignSpace:
    """All designs of a file, and the jobs that tell what they are worth, each once."""

    name: str
    designs: tuple[DesignPoint, ...]
    jobs: tuple[CampaignJob, ...]


@dataclass(frozen=True, slots=True)
class ExploredNetwork:
    """A network of a space: its files by their roles."""

    name: str
    files: Mapping[str, StoredFile]


def read_space(path: Path) -> DesignSpace:
    """A space and its jobs.

    Raises:
        UsageError: the file is none, or says something that cannot be; it names key and remedy.
        PlatformError: a board of it is unknown or wrong.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: not readable, {(error.strerror or '').lower()}; give a file as docs/guide/exploring.md "
                         "describes") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: not TOML ({error}); docs/guide/exploring.md has an example") from None
    try:
        return _space(path, TomlTable(str(path), document))
    except PlatformError as error:
        if str(error).startswith(f"{path}"):
            raise UsageError(f"{error}; docs/guide/exploring.md has an example") from None
        raise


def _space(path: Path, table: TomlTable) -> DesignSpace:
    table.check_keys(("networks", "boards"), OPTIONAL_KEYS)
    kinds = _list(table, "jobs", ["planning"], KINDS)
    boards = {name: load_platform(_beside(path, name) if name.endswith(".toml") else name)
              for name in _list(table, "boards", [], None)}
    bits = [int(b) for b in _numbers(table, "bits", [DEFAULT_BITS], BITS)]
    architectures = _list(table, "architectures", ["all"], ARCHITECTURES)
    objectives = _list(table, "objectives", [Goal.LATENCY.value], [g.value for g in Goal])
    networks = [_network(path, entry) for entry in table.tables("networks")]
    if not networks:
        table.fail("networks: there is none; write [[networks]] with model or zoo")
    if repeated := {n.name for i, n in enumerate(networks) if n.name in {m.name for m in networks[:i]}}:
        table.fail(f"networks: {', '.join(sorted(repeated))} stands there twice; give one another name")
    for network in networks:
        if "accuracy" in kinds and "data" not in network.files:
            table.fail(f"networks {network.name}: key data is missing, and accuracy needs labelled images (.npz with x and y)")
    count = len(networks) * len(boards) * len(bits) * len(architectures) * len(objectives)
    if count > MOST_DESIGNS:
        table.fail(f"{count:,} designs; at most {MOST_DESIGNS:,} are explored at once, leave some values out")
    memory = table.table("memory_gb")
    memory.check_keys((), tuple(KINDS))
    needs = {kind: int(memory.plain_number(kind, MEMORY) * GIBIBYTE) if kind in memory.values else MEMORY_BYTES[kind]
             for kind in kinds}
    common = {"time_s": _number(table, "time_s", 10.0, SECONDS), "frames": int(_number(table, "frames", 4.0, FRAMES))}
    entries = {name: platform_to_dict(board) for name, board in boards.items()}
    tools = {kind: _tools(kind, [d.family for b in boards.values() for d in b.devices if d.family]) for kind in kinds}
    jobs: dict[str, CampaignJob] = {}
    designs = []
    for network, board, width, architecture, objective in product(networks, boards, bits, architectures, objectives):
        keys = {}
        for kind in kinds:
            job = _job(kind, network, (board, entries[board]), width, architecture, objective, common, needs[kind], tools[kind])
            keys[kind] = jobs.setdefault(job.key, job).key
        designs.append(DesignPoint(network.name, board, width, architecture, objective, keys))
    name = table.text("name") if "name" in table.values else path.stem
    return DesignSpace(name, tuple(designs), tuple(jobs.values()))


def _job(kind: str, network: ExploredNetwork, board: tuple[str, Mapping[str, Any]], bits: int, architecture: str, objective: str,
         common: Mapping[str, Any], memory_bytes: int, tool: str) -> CampaignJob:
    """A job with what its kind depends on, and no more."""
    label = f"{kind}: {network.name}, {counted(bits, 'bit')}"
    arguments: dict[str, Any] = {"bits": bits}
    if kind != "accuracy":
        arguments |= {"board": board[1], "architecture": architecture, "objective": objective, "time_s": common["time_s"]}
        label += f", {board[0]}, {architecture}, {objective}"
    if kind == "simulation":
        arguments["frames"] = common["frames"]
    files = {role: file for role, file in network.files.items() if role != "data" or kind == "accuracy"}
    key = content_key([kind, package_digest(), tool, json.dumps(arguments, sort_keys=True),
                       *(text for role in sorted(files) for text in (role, files[role].digest))])
    return CampaignJob(key, kind, label, KINDS[kind], arguments, memory_bytes, files)


def _tools(kind: str, families: Sequence[str]) -> str:
    """Versions of the tools that a kind's results depend on."""
    if kind == "simulation":
        return find_verilator().version
    return " ".join(sorted({find_synthesizer(f).version for f in families})) if kind == "synthesis" else ""


def _network(path: Path, table: TomlTable) -> ExploredNetwork:
    table.check_keys((), NETWORK_KEYS)
    if ("model" in table.values) == ("zoo" in table.values):
        table.fail("one of the keys model (an ONNX file) and zoo (a name of `dovetail zoo`) is needed")
    if "zoo" in table.values:
        name = table.text("zoo")
        if name not in zoo.names():
            table.fail(f"key zoo is {name!r}{suggestion(name, zoo.names())}; allowed are {', '.join(zoo.names())}")
        form = {key: int(table.plain_number(key, limits)) for key, limits in (("size", SIZE), ("classes", CLASSES))
                if key in table.values}
        width = {"width": table.plain_number("width", WIDTH)} if "width" in table.values else {}
        content = zoo.build(name, **form, **width)  # type: ignore[arg-type]
        model = cache_kind("explore") / f"{content_key([content.hex()])}.onnx"
        if not model.is_file():
            replace_bytes(model, content)
    else:
        if given := [key for key in ("size", "width", "classes") if key in table.values]:
            table.fail(f"key {given[0]} is of networks of the zoo; leave it out")
        name, model = Path(table.text("model")).stem, Path(_beside(path, table.text("model")))
    files = {"model": model} | {role: Path(_beside(path, table.text(role))) for role in ("calibration", "data")
                                if role in table.values}
    try:
        stored = {role: StoredFile.of(file) for role, file in files.items()}
    except OSError as error:
        table.fail(f"{error.filename}: not readable, {(error.strerror or '').lower()}; paths are relative to {path.name}")
    return ExploredNetwork(table.text("name") if "name" in table.values else name, stored)


def _beside(path: Path, name: str) -> str:
    """A path of the file, relative to its folder; a board's file is found there, too."""
    return str(path.parent / name)


def _list(table: TomlTable, key: str, default: list[str], allowed: Collection[str] | None) -> list[str]:
    value = table.values.get(key, default)
    if not isinstance(value, list) or not value or not all(isinstance(v, str) and v for v in value):
        table.fail(f"key {key} is {value!r}; a list of names is needed, such as {(list(allowed or platform_names()))[:2]}")
    for name in value:
        if allowed is not None and name not in allowed:
            table.fail(f"key {key} has {name!r}{suggestion(name, allowed)}; allowed are {', '.join(allowed)}")
    return list(dict.fromkeys(value))


def _numbers(table: TomlTable, key: str, default: list[float], limits: Limits) -> list[float]:
    value = table.values.get(key, default)
    if not isinstance(value, list) or not value:
        table.fail(f"key {key} is {value!r}; a list of numbers from {limits} is needed")
    for entry in value:
        if isinstance(entry, float):
            table.fail(f"key {key} has {entry!r}; whole numbers from {limits} are needed")
    return list(dict.fromkeys(TomlTable(table.where, {key: v}).plain_number(key, limits) for v in value))


def _number(table: TomlTable, key: str, default: float, limits: Limits) -> float:
    return table.plain_number(key, limits) if key in table.values else default
