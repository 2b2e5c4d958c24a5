"""Count what a design costs on an FPGA family, with Yosys.

Large modules are synthesized on their own, two at a time, and kept in the cache by content; the rest of the design is
synthesized with them as black boxes, and the counts are added up along the hierarchy.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import ToolError, UnsupportedError, UsageError
from dovetail.fpga.design import Design
from dovetail.fpga.resources import RESOURCES
from dovetail.fpga.source import is_verilog, module_texts, without_comments
from dovetail.fpga.tools import (
    GIBIBYTE,
    INSTALL_YOSYS,
    Command,
    Tool,
    cache_lookup,
    cached,
    content_key,
    find_pyosys,
    find_yosys,
    parallelism,
    run_tools,
    yosys_is_chosen,
)

FAMILIES = tuple(RESOURCES)
UNIT_BYTES = 12_000
"""Verilog text from which a module is synthesized on its own; below, starting Yosys costs more than it saves."""
SYNTHESIS_TIMEOUT_S = 3600.0
SYNTHESIS_MEMORY_BYTES = 10 * GIBIBYTE
LAST_CYCLONE10GX = (0, 41)
"""Newest Yosys release that still maps to Cyclone 10 GX."""

PASSES: Mapping[str, str] = {
    "ecp5": "synth_ecp5 {dsp} -top {top}",
    "xcu": "synth_xilinx -family xcu -flatten -noiopad -noclkbuf {dsp} -top {top}",
    "xcup": "synth_xilinx -family xcup -flatten -noiopad -noclkbuf {dsp} -top {top}",
    "cyclonev": "synth_intel_alm -family cyclonev -noiopad -noclkbuf {dsp} -top {top}",
    "cyclone10gx": "synth_intel_alm -family cyclone10gx -noiopad -noclkbuf {dsp} -top {top}",
}
HEADER = re.compile(r"\bmodule\s+\w+\s*\((?:[^()]|\([^()]*\))*\)\s*;")
MULTIPLICATION = re.compile(r"(?<![(@*])\*(?![)*])")


@dataclass(frozen=True, slots=True)
class Synthesis:
    """Cells and resources of a design after technology mapping, before placement."""

    family: str
    tool: str
    version: str
    cells: Mapping[str, int]
    resources: Mapping[str, float]
    """By the names boards use: `lut4`, `lut`, `alm`, `register`, `bram`, `bram36`, `m20k`, `m10k`, `dsp`, `uram`."""
    notes: tuple[str, ...]
    wall_s: float
    cached: bool
    """Whether every part came from the cache."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A part that is synthesized on its own: a top module with its small children; larger ones are black boxes."""

    top: str
    text: str
    images: Mapping[str, str]

    def script(self, family: str) -> str:
        """Yosys commands that read `unit.v` and write the cell counts to `cells.json`."""
        code = without_comments(self.text, keep_strings=False)
        dsp = "" if MULTIPLICATION.search(code) else "-nodsp"
        return f"read_verilog unit.v\n{PASSES[family].format(dsp=dsp, top=self.top)}\ntee -q -o cells.json stat -json\n"


def synthesize(
    design: Design,
    family: str,
    progress: Callable[[int, int], None] | None = None,
    split: bool = True,
    unit_bytes: int = UNIT_BYTES,
) -> Synthesis:
    """Synthesize a design for a family of `FAMILIES` and count its resources.

    `progress` hears how many of how many parts are finished. With `split` false the whole design is one part: slower, and
    logic may then be optimised across the borders of large modules. Modules of `unit_bytes` of text and more are parts of
    their own: fewer for designs of hundreds of engines that are small by themselves.
    """
    if family not in RESOURCES:
        raise UsageError(f"synthesis of {design.top}: family is {family}; known are {', '.join(FAMILIES)}")
    start = time.monotonic()
    if family == "cyclone10gx" and any(not is_verilog(name) for name in design.files):
        raise UnsupportedError(f"synthesis of {design.top}: Yosys cannot map memories with contents to cyclone10gx, and folded "
                               "layers keep their weights in some; synthesize for cyclonev as a proxy")
    tool = find_synthesizer(family)
    units = divide(design, unit_bytes if split else None)
    counts, fresh = _count_units(tool, family, units, progress)
    cells = _total(design.top, counts, Counter({design.top: 1}))
    notes = [f"{tool.version}, cells after technology mapping, before place and route"]
    if len(units) > 1:
        notes.append(f"sum over {len(units)} parts synthesized out of context")
    if family.startswith("cyclone"):
        notes.append("ALMs are estimated from look-up tables: alm_low packs every pair that may share one, alm 0.8 per small one")
    wall_s = time.monotonic() - start
    version = tool.version.removeprefix("Yosys ")
    return Synthesis(family, "Yosys", version, cells, RESOURCES[family](cells), tuple(notes), wall_s, not fresh)


def find_synthesizer(family: str) -> Tool:
    """The Yosys that knows a family: DOVETAIL_YOSYS, else pyosys, else PATH; Cyclone 10 GX needs a release up to 0.41."""
    native = find_yosys()
    if family == "cyclone10gx":
        if native is None or native.release > LAST_CYCLONE10GX:
            found = "none is" if native is None else f"{native.version} is"
            raise ToolError(
                f"yosys: cyclone10gx needs release 0.41 or older, {found} installed; apt-get install yosys (Debian 12 has 0.23) "
                "and name it in DOVETAIL_YOSYS, or synthesize for cyclonev as a proxy (2 to 4 % fewer ALMs)"
            )
        return native
    packaged = find_pyosys()
    chosen = packaged if packaged is not None and not yosys_is_chosen() else native
    if chosen is None:
        raise ToolError(f"yosys: not found; {INSTALL_YOSYS}")
    return chosen


def divide(design: Design, unit_bytes: int | None) -> tuple[Unit, ...]:
    """Parts of a design, the one with its top module first; modules of at least `unit_bytes` become parts of their own."""
    texts = module_texts(design)
    if design.top not in texts:
        raise UsageError(f"synthesis of {design.top}: no such module; the files define {', '.join(sorted(texts)) or 'none'}")
    children = {name: _children(name, text, texts) for name, text in texts.items()}
    large = set()
    if unit_bytes is not None:
        large = {name for name, text in texts.items() if len(text) >= unit_bytes and _black_box(text) and name != design.top}
    units: list[Unit] = []
    waiting, seen = [design.top], {design.top}
    while waiting:
        top = waiting.pop(0)
        inside, boxes = _closure(top, children, large)
        chosen = [texts[name] for name in sorted(inside)] + [_black_box(texts[name]) for name in sorted(boxes)]
        text = "\n".join(chosen)
        units.append(Unit(top, text, {name: image for name, image in design.files.items() if f'"{name}"' in text}))
        waiting += sorted(boxes - seen)
        seen |= boxes
    return tuple(units)


def _children(name: str, text: str, known: Mapping[str, str]) -> set[str]:
    return {word for word in set(re.findall(r"[A-Za-z_][\w$]*", text)) if word in known and word != name}


def _black_box(text: str) -> str:
    """The module without its body, empty where its ports are not declared in its header."""
    header = HEADER.match(text)
    return f"(* blackbox *) {header[0]} endmodule" if header and re.search(r"\b(input|output)\b", header[0]) else ""


def _closure(top: str, children: Mapping[str, set[str]], large: set[str]) -> tuple[set[str], set[str]]:
    """Modules below `top` that belong to its part, and the large ones at its border."""
    inside, boxes, waiting = {top}, set[str](), [top]
    while waiting:
        for child in children[waiting.pop()]:
            if child in large:
                boxes.add(child)
            elif child not in inside:
                inside.add(child)
                waiting.append(child)
    return inside, boxes


def _count_units(
    tool: Tool, family: str, units: Sequence[Unit], progress: Callable[[int, int], None] | None
) -> tuple[dict[str, Counter[str]], bool]:
    """Cells by type of every part, and whether any had to be synthesized."""
    keys = [content_key([tool.version, unit.script(family), unit.text, *map(str, unit.images.items())]) for unit in units]
    missing = [index for index, key in enumerate(keys) if cache_lookup("synthesize", key) is None]
    missing.sort(key=lambda index: -len(units[index].text))
    with tempfile.TemporaryDirectory(prefix="dovetail-") as name:
        folders = [Path(name) / str(index) for index in missing]
        commands = [_command(tool, family, units[index], folder) for index, folder in zip(missing, folders, strict=True)]
        finished = len(units) - len(missing)

        def keep(position: int) -> None:
            nonlocal finished
            finished += 1
            counted = (folders[position] / "cells.json").read_text(encoding="utf-8")
            cached("synthesize", keys[missing[position]], lambda folder: _write(folder / "cells.json", counted), keep=4096)
            if progress is not None:
                progress(finished, len(units))

        run_tools(commands, workers=parallelism(), on_done=keep)
    found = {unit.top: cache_lookup("synthesize", key) for unit, key in zip(units, keys, strict=True)}
    counts = {}
    for unit in units:
        folder = found[unit.top]
        if folder is None:
            raise ToolError("synthesis: the cache was emptied while it was in use; run again")
        counts[unit.top] = parse_cells((folder / "cells.json").read_text(encoding="utf-8"), unit.top)
    return counts, bool(missing)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _command(tool: Tool, family: str, unit: Unit, folder: Path) -> Command:
    folder.mkdir()
    for name, text in {**unit.images, "unit.v": unit.text, "unit.ys": unit.script(family)}.items():
        _write(folder / name, text)
    return Command(
        tool=f"yosys ({unit.top} for {family})",
        arguments=(*tool.command, "unit.ys"),
        cwd=folder,
        log=folder / "yosys.log",
        timeout_s=SYNTHESIS_TIMEOUT_S,
        memory_bytes=SYNTHESIS_MEMORY_BYTES,
    )


def parse_cells(report: str, top: str) -> Counter[str]:
    """Cells by type of the whole hierarchy from `stat -json`; black boxes stay in it under their module names.

    Yosys prints hierarchy totals only where there is a hierarchy, and newer releases count inner modules beside their cells.
    """
    statistics = json.loads(report)
    modules = {name.removeprefix("\\"): entry["num_cells_by_type"] for name, entry in statistics["modules"].items()}
    if top not in modules:
        raise ToolError(f"yosys: no cell counts for {top}, found {', '.join(modules) or 'none'}; report this as a bug")
    totals: Counter[str] = Counter()
    waiting = [(top, 1)]
    while waiting:
        name, times = waiting.pop()
        for cell, number in modules[name].items():
            cell = cell.removeprefix("\\")
            if cell in modules:
                waiting.append((cell, times * number))
            else:
                totals[cell] += times * number
    return totals


def _total(top: str, counts: Mapping[str, Counter[str]], instances: Counter[str]) -> dict[str, int]:
    """Sum of all parts, each as often as it is instantiated."""
    cells: Counter[str] = Counter()
    waiting = list(instances.items())
    while waiting:
        name, times = waiting.pop()
        for cell, number in counts[name].items():
            if cell in counts and cell != top:
                waiting.append((cell, times * number))
            else:
                cells[cell] += times * number
    return dict(sorted((cell, number) for cell, number in cells.items() if not cell.startswith("$scopeinfo")))
