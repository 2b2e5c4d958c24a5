"""Count what a design costs on an FPGA family, with Yosys.

Large modules are synthesized on their own, two at a time, and kept in the cache by content; the rest of the design is
synthesized with them as black boxes, and the counts are added up along the hierarchy. Parts that differ in names alone are
synthesized once, and a run that was interrupted continues where it stopped.

Cells become the resources a board lists before packing. Weights that are not a plain count say where they come from; none is
calibrated against a vendor's fitter.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import MissingToolError, ToolError, UnsupportedError, UsageError
from dovetail.files import scratch_folder
from dovetail.fpga.design import Design, is_verilog, module_texts, without_comments
from dovetail.fpga.toolchain import tools
from dovetail.fpga.toolchain.tools import GIBIBYTE, INSTALL_YOSYS, Command, Tool, cached

UNIT_BYTES = 12_000
"""Verilog text from which a module is synthesized on its own; below, starting Yosys costs more than it saves."""
PASSES: Mapping[str, str] = {
    "ecp5": "synth_ecp5 {dsp} -top {top}",
    "gw2a": "synth_gowin -family gw2a -noiopads {dsp} -top {top}",
    "xcu": "synth_xilinx -family xcu -flatten -noiopad -noclkbuf {dsp} -top {top}",
    "xcup": "synth_xilinx -family xcup -flatten -noiopad -noclkbuf {dsp} -top {top}",
    "cyclonev": "synth_intel_alm -family cyclonev -noiopad -noclkbuf {dsp} -top {top}",
    "cyclone10gx": "synth_intel_alm -family cyclone10gx -noiopad -noclkbuf {dsp} -top {top}",
}
FSM_SEARCH_BYTES = 300_000
"""Text up to which Yosys looks for state machines: it judges every register that selects among constants by all cells, which of
thousands of products in tables does not come to an end. Engines have none to find."""
HEADER = re.compile(r"\bmodule\s+\w+\s*\((?:[^()]|\([^()]*\))*\)\s*;")
MULTIPLICATION = re.compile(r"(?<![(@*])\*(?![)*])")
DEFINED = re.compile(r"\bmodule\s+(\w+)")
WORD = re.compile(r"[A-Za-z_][\w$]*")
STRING_OR_WORD = re.compile(rf'"[^"\n]*"|{WORD.pattern}')
SYNTHESIS_TIMEOUT_S = 3600.0
SYNTHESIS_MEMORY_BYTES = 10 * GIBIBYTE
LAST_CYCLONE10GX = (0, 41)
"""Newest Yosys release that still maps to Cyclone 10 GX."""
ALM_PER_SMALL_LUT = 0.8
"""ALMs per look-up table of five inputs or fewer: 0.5 when two always share an ALM, 1 when they never do; assumed."""
XILINX_MEMORY_LUTS: Mapping[str, int] = {
    **{"RAM32X1S": 1, "RAM64X1S": 1, "RAM128X1S": 2, "RAM256X1S": 4, "RAM512X1S": 8},
    **{"RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM256X1D": 8},
    **{"RAM32M": 4, "RAM64M": 4, "RAM32M16": 8, "RAM64M8": 8},
}
"""Look-up tables per distributed-memory primitive, from the shapes that fill the eight of a slice in Yosys' lutrams_xcu.txt.

A primitive of 32 words counts as one of 64; two of them may share a look-up table, which is not assumed here.
"""


def count(cells: Mapping[str, int], pattern: str) -> int:
    """How many cells have a type that matches the whole pattern."""
    return sum(number for name, number in cells.items() if re.fullmatch(pattern, name))


def ecp5(cells: Mapping[str, int]) -> dict[str, float]:
    """A carry cell is two LUT4; a 16x4 memory takes four for its bits and, assumed, the two of the slice that writes them."""
    return {"lut4": count(cells, "LUT4") + 2 * count(cells, "CCU2C") + 6 * count(cells, "TRELLIS_DPR16X4"),
            "register": count(cells, "TRELLIS_FF"),
            "bram": count(cells, "DP16KD|PDPW16KD"),
            "dsp": count(cells, "MULT18X18D") + 0.5 * count(cells, "MULT9X9D")}


def gw2a(cells: Mapping[str, int]) -> dict[str, float]:
    """A carry cell is one look-up table; a 16x4 memory takes six, as in nextpnr: four for its bits, two for its writes."""
    return {"lut4": count(cells, "LUT[1-4]|ALU|INV") + 6 * count(cells, "RAM16SDP[124]"),
            "register": count(cells, "DFF.*"),
            "bsram": count(cells, "(SDP|DP|SP|pROM)X?9?B?"),
            "dsp": count(cells, "MULT18X18") + 0.5 * count(cells, "MULT9X9") + 4 * count(cells, "MULT36X36")}


def xilinx(cells: Mapping[str, int]) -> dict[str, float]:
    memories = sum(luts * cells.get(name, 0) for name, luts in XILINX_MEMORY_LUTS.items())
    return {"lut": count(cells, "LUT[1-6]|INV|SRL.*") + memories,
            "register": count(cells, "FD[RSCP]E.*|LD[CP]E.*"),
            "bram36": count(cells, "RAMB36E[12]") + 0.5 * count(cells, "RAMB18E[12]"),
            "dsp": count(cells, "DSP48E[12]"),
            "uram": count(cells, "URAM288.*")}


def _alm(cells: Mapping[str, int]) -> dict[str, float]:
    """Adaptive logic modules: `alm_low` packs every pair of small look-up tables together, `alm` most of them."""
    large = count(cells, "MISTRAL_ALUT6")
    small = count(cells, "MISTRAL_ALUT[2-5]|MISTRAL_NOT|MISTRAL_BUF")
    arithmetic, memory = count(cells, "MISTRAL_ALUT_ARITH"), count(cells, "MISTRAL_MLAB")
    registers = count(cells, "MISTRAL_FF|MISTRAL_SDFF")
    shared = (arithmetic + memory) / 2
    return {"alm": max(large + ALM_PER_SMALL_LUT * small + shared, registers / 4),
            "alm_low": max(large + 0.5 * small + shared, registers / 4),
            "alut": large + small + arithmetic, "register": registers}


def cyclonev(cells: Mapping[str, int]) -> dict[str, float]:
    """Assumes a DSP block filled with one 27x27, two 18x18 or three 9x9 multipliers."""
    multipliers = count(cells, "MISTRAL_MUL27X27") + count(cells, "MISTRAL_MUL18X18") / 2 + count(cells, "MISTRAL_MUL9X9") / 3
    return {**_alm(cells), "m10k": count(cells, "MISTRAL_M10K|altsyncram"), "dsp": multipliers}


def cyclone10gx(cells: Mapping[str, int]) -> dict[str, float]:
    """Assumes a DSP block filled with one 27x27 or two smaller multipliers."""
    multipliers = count(cells, "MISTRAL_MUL27X27") + count(cells, "MISTRAL_MUL(18X18|9X9)") / 2
    return {**_alm(cells), "m20k": count(cells, "MISTRAL_M20K|altsyncram"), "dsp": multipliers}


RESOURCES: Mapping[str, Callable[[Mapping[str, int]], dict[str, float]]] = {
    "ecp5": ecp5, "gw2a": gw2a, "xcu": xilinx, "xcup": xilinx, "cyclonev": cyclonev, "cyclone10gx": cyclone10gx}
FAMILIES = tuple(RESOURCES)


@dataclass(frozen=True, slots=True)
class SynthesizedPart:
    """What was synthesized on its own: how often it is in the design, and the resources of one of them without their boxes."""

    module: str
    instances: int
    resources: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Synthesis:
    """Cells and resources of a design after technology mapping, before placement."""

    family: str
    tool: str
    version: str
    cells: Mapping[str, int]
    resources: Mapping[str, float]
    """By the names boards use: `lut4`, `lut`, `alm`, `register`, `bram`, `bsram`, `bram36`, `m20k`, `m10k`, `dsp`, `uram`."""
    notes: tuple[str, ...]
    wall_s: float
    cached: bool
    """Whether every part came from the cache."""
    parts: tuple[SynthesizedPart, ...] = ()


def synthesize(design: Design, family: str, progress: Callable[[int, int], None] | None = None,
               unit_bytes: int | None = UNIT_BYTES) -> Synthesis:
    """Synthesize a design for a family of `FAMILIES` and count its resources.

    `progress` hears how many of how many parts are finished. Modules of `unit_bytes` of text and more are parts of their own:
    fewer for designs of hundreds of engines that are small by themselves. With None the whole design is one part: slower, and
    logic may then be optimised across the borders of large modules.
    """
    if family not in RESOURCES:
        raise UsageError(f"synthesis of {design.top}: family is {family}; known are {', '.join(FAMILIES)}")
    start = time.monotonic()
    if family == "cyclone10gx" and any(not is_verilog(name) for name in design.files):
        raise UnsupportedError(f"synthesis of {design.top}: Yosys cannot map memories with contents to cyclone10gx, and folded "
                               "layers keep their weights in some; synthesize for cyclonev as a proxy")
    tool = find_synthesizer(family)
    units = divide(design, unit_bytes)
    counts, fresh = _count_units(tool, family, units, progress)
    instances = _instances(units, counts)
    own = {name: {cell: number for cell, number in counts[name].items()
                  if cell not in counts and not cell.startswith("$scopeinfo")} for name in instances}  # without parts inside
    cells: Counter[str] = Counter()
    for name, times in instances.items():
        cells.update({cell: times * number for cell, number in own[name].items()})
    parts = tuple(SynthesizedPart(name, times, RESOURCES[family](own[name])) for name, times in instances.items())
    notes = [f"{tool.version}, cells after technology mapping, before place and route"]
    if len(units) > 1:
        notes.append(f"sum over {len(units)} parts synthesized out of context")
    if family.startswith("cyclone"):
        notes.append("ALMs are estimated from look-up tables: alm_low packs every pair that may share one, alm 0.8 per small one")
    total = dict(sorted(cells.items()))
    return Synthesis(family, "Yosys", tool.version.removeprefix("Yosys "), total, RESOURCES[family](total), tuple(notes),
                     time.monotonic() - start, not fresh, parts)


def find_synthesizer(family: str) -> Tool:
    """The Yosys that knows a family: DOVETAIL_YOSYS, else pyosys, else PATH; Cyclone 10 GX needs a release up to 0.41."""
    native = tools.find_yosys()
    if family == "cyclone10gx":
        if native is None or native.release > LAST_CYCLONE10GX:
            found = "none is" if native is None else f"{native.version} is"
            raise ToolError(f"yosys: cyclone10gx needs release 0.41 or older, {found} installed; apt-get install yosys "
                            "(Debian 12 has 0.23) and name it in DOVETAIL_YOSYS, or synthesize for cyclonev as a proxy "
                            "(2 to 4 % fewer ALMs)")
        return native
    packaged = tools.find_pyosys()
    chosen = packaged if packaged is not None and not os.environ.get("DOVETAIL_YOSYS") else native
    if chosen is None:
        raise MissingToolError(f"yosys: not found; {INSTALL_YOSYS}")
    return chosen


def _count_units(tool: Tool, family: str, units: Sequence[Unit],
                 progress: Callable[[int, int], None] | None) -> tuple[dict[str, Counter[str]], bool]:
    """Cells by type of every part, and whether any had to be synthesized."""
    alike, names = zip(*(unit.nameless() for unit in units), strict=True)
    keys = [tools.content_key([tool.version, unit.script(family), unit.text, *map(str, unit.images.items())]) for unit in alike]
    first = {key: index for index, key in reversed(list(enumerate(keys)))}
    missing = [index for key, index in first.items() if tools.cache_lookup("synthesize", key) is None]
    missing.sort(key=lambda index: -len(units[index].text))
    with scratch_folder(tempfile.gettempdir(), "synthesis") as scratch:
        folders = [scratch / str(index) for index in missing]
        commands = [_command(tool, family, alike[index], units[index].top, folder)
                    for index, folder in zip(missing, folders, strict=True)]
        finished = len(first) - len(missing)

        def keep(position: int) -> None:
            nonlocal finished
            finished += 1
            counted = (folders[position] / "cells.json").read_text(encoding="utf-8")
            cached("synthesize", keys[missing[position]], lambda folder: _write(folder / "cells.json", counted), keep=4096)
            if progress is not None:
                progress(finished, len(first))

        tools.run_tools(commands, on_done=keep)
    counts = {}
    for unit, key, own in zip(units, keys, names, strict=True):
        found = tools.cache_lookup("synthesize", key)
        if found is None:
            raise ToolError("synthesis: the cache was emptied while it was in use; run again")
        cells = parse_cells((found / "cells.json").read_text(encoding="utf-8"), "unit")
        counts[unit.top] = Counter({own.get(cell, cell): number for cell, number in cells.items()})
    return counts, bool(missing)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _command(tool: Tool, family: str, unit: Unit, name: str, folder: Path) -> Command:
    folder.mkdir()
    for file, text in {**unit.images, "unit.v": unit.text, "unit.ys": unit.script(family)}.items():
        _write(folder / file, text)
    return Command(f"yosys ({name} for {family})", (*tool.command, "unit.ys"), folder, folder / "yosys.log",
                   SYNTHESIS_TIMEOUT_S, SYNTHESIS_MEMORY_BYTES)


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


def _instances(units: Sequence[Unit], counts: Mapping[str, Counter[str]]) -> dict[str, int]:
    """How often every part is in the design; the first one is the whole of it."""
    found = dict.fromkeys((unit.top for unit in units), 0)
    waiting = [(units[0].top, 1)]
    while waiting:
        name, times = waiting.pop()
        found[name] += times
        waiting += [(cell, times * number) for cell, number in counts[name].items() if cell in counts]
    return found


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
        search = "" if len(self.text) <= FSM_SEARCH_BYTES else 'setattr -set fsm_encoding "none" w:*\n'
        return f"read_verilog unit.v\n{search}{PASSES[family].format(dsp=dsp, top=self.top)}\ntee -q -o cells.json stat -json\n"

    def nameless(self) -> tuple[Unit, dict[str, str]]:
        """The same part with modules and memory images named by their place in it, and the modules' own names by the new ones.

        Engines and FIFOs that differ in nothing else thus become equal, and one synthesis serves them all.
        """
        found = {self.top: "unit"}
        for name in DEFINED.findall(self.text):
            found.setdefault(name, f"module{len(found)}")
        text = STRING_OR_WORD.sub(lambda word: found.get(word[0], word[0]), self.text)
        images = {}
        for index, name in enumerate(sorted(self.images, key=self.text.index)):
            text = text.replace(f'"{name}"', f'"image{index}"')
            images[f"image{index}"] = self.images[name]
        return Unit("unit", text, images), {new: old for old, new in found.items()}


def divide(design: Design, unit_bytes: int | None) -> tuple[Unit, ...]:
    """Parts of a design, the one with its top module first; modules of at least `unit_bytes` become parts of their own."""
    texts = module_texts(design)
    if design.top not in texts:
        raise UsageError(f"synthesis of {design.top}: no such module; the files define {', '.join(sorted(texts)) or 'none'}")
    # Modules that a module's text names; in strings, such as a memory's style, and comments words mean something else.
    children = {name: (set(WORD.findall(without_comments(text, keep_strings=False))) & texts.keys()) - {name}
                for name, text in texts.items()}
    large = {name for name, text in texts.items() if unit_bytes is not None and len(text) >= unit_bytes and _black_box(text)}
    large.discard(design.top)
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
