"""Compile designs into one simulation program with Verilator and a C++ compiler.

Many designs share one build, because Verilator and the compiler cost seconds however small a design is. Each design keeps
its own clock, so a bundle simulates at the speed of the design that is being driven.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from math import inf
from pathlib import Path

from dovetail.errors import ToolError
from dovetail.fpga.design import Design, StreamPort, is_verilog, module_texts
from dovetail.fpga.toolchain import tools
from dovetail.fpga.toolchain.tools import GIBIBYTE, Command, Tool
from dovetail.hardware.arrays.layers import RATE_STEPS

PROGRAM = "simulation"
HARNESS = "harness.cpp"
COMPILE_TIMEOUT_S = 1800.0
COMPILE_MEMORY_BYTES = 6 * GIBIBYTE
MOST_UNIT_BYTES = 1_500_000
"""C++ compiled at once, at most: 1.2 MB of generated code take the compiler 4 s and 0.3 GB."""
VERILATOR_OPTIONS = (
    *("--cc", "-O3", "-fno-table", "--x-assign", "fast", "--x-initial", "unique", "--noassert"),
    *("-Wno-fatal", "-Wno-lint", "-Wno-style", "--output-split", "5000", "--output-split-cfuncs", "5000"),
    *("--prefix", "Bundle", "--top-module", "dovetail_bundle", "--Mdir", "generated"),
)
"""No tables of logic: engines have no logic that becomes one, and to look for it in products made of gates takes 27 s of 31."""
COMPILE_OPTIONS = ("-std=c++17", "-DVERILATOR=1", "-DVM_SC=0", "-DVL_TIME_CONTEXT", "-w",
                   "-fPIC", "-fvisibility=hidden")
WORD_ARITHMETIC = "-mtune-ctrl=^himode_math"
"""Keeps GCC on x86 from arithmetic in 16 bits, whose constants stall the decoder: 3 to 8 filters of 3x3 run twice as fast."""
WELL_OPTIMISED_BYTES = 600_000
"""C++ up to which the compiler optimises fully: 285 kB take 2.4 s instead of 2.0 and run a fifth faster."""
SMALL_BYTES = 60_000
"""C++ that is compiled at once with little optimisation."""
QUICK_CYCLES = 200_000
"""Clocks of a design up to which its simulator is compiled without optimisation.

Six accelerators of 7.8 MB C++: optimisation takes 18 s of processor time more, and 20,000 clocks take 0.14 s without it. Any
value from 50,000 to 600,000 serves as well: there simulation and optimisation take about the same time.
"""
Pin = tuple[str, str, int, bool]
"""A pin of a design: its name, its name in the bundle, its bits, and whether it is an input."""
INSTALL_WAVEFORMS = "install them with apt-get install zlib1g-dev liblz4-dev, or simulate without a trace"
HEADERS = ("bundle_handle.h", "ports.h", "axi_ports.h", "stall.h", "axi_memory.h", "cable.h")
"""What harnesses and bundles include."""
COMMON_HEADER = '#include "verilated.h"\n#include <string>\n#include <vector>\n'
"""What every generated file includes, directly or not."""
HANDLE = """BundleHandle::BundleHandle(VerilatedContext& context) : model_(new Bundle(&context)) {}
BundleHandle::~BundleHandle() { delete model_; }
void BundleHandle::eval() { model_->eval(); }
void BundleHandle::final() { model_->final(); }
#if VM_TRACE_FST
#include "verilated_fst_c.h"
void BundleHandle::trace(VerilatedFstC* file) { model_->trace(file, 99); }
#endif
#if VM_SAVABLE
#include "verilated_save.h"
bool BundleHandle::save(const char* path) {
    VerilatedSave file;
    file.open(path);
    if (!file.isOpen()) return false;
    file << *model_;
    file.close();
    return true;
}
bool BundleHandle::restore(const char* path) {
    VerilatedRestore file;
    file.open(path);
    if (!file.isOpen()) return false;
    file >> *model_;
    file.close();
    return true;
}
#else
bool BundleHandle::save(const char*) { return false; }
bool BundleHandle::restore(const char*) { return false; }
#endif
"""
"""The end of every bundle's C++: what bundle_handle.h declares, but for the port table."""


@dataclass(frozen=True, slots=True)
class BuildTarget:
    """What is built: files of the bundle, the C++ that drives it, the name of the result, and whether it can draw waveforms.

    A harness knows a bundle by bundle_handle.h alone, so it is compiled once for all bundles. C++ among the files is compiled
    with the bundle; one that has a `main` of its own needs no harness.
    """

    files: Mapping[str, str]
    harness: Path | None
    result: str
    trace: bool = False
    quick: bool = False
    """Whether it is compiled without optimisation, for a run that is shorter than the optimisation."""
    savable: bool = False
    """Whether its state can be saved, for a run that may be stopped and go on."""
    covered: bool = False
    """Whether it counts what of the Verilog was executed and which bits changed."""

    @property
    def shared(self) -> bool:
        return self.result.endswith(".so")

    @property
    def verilator_options(self) -> tuple[str, ...]:
        return (*VERILATOR_OPTIONS, *(("--trace-fst",) if self.trace else ()), *(("--savable",) if self.savable else ()),
                *(("--coverage-line", "--coverage-toggle") if self.covered else ()))

    @property
    def compile_options(self) -> tuple[str, ...]:
        return (*COMPILE_OPTIONS, f"-DVM_TRACE={self.trace:d}", f"-DVM_TRACE_FST={self.trace:d}",
                *(("-DVM_SAVABLE=1",) if self.savable else ()), f"-DVM_COVERAGE={self.covered:d}")

    def link_options(self, verilator: Tool) -> tuple[str, ...]:
        """Newer Verilators write waveforms with the system's lz4, older ones bring their own."""
        packed = ("-lz", *(("-llz4",) if (verilator.root / "include" / "fstcpp").is_dir() else ())) if self.trace else ()
        return (*(("-shared",) if self.shared else ()), "-pthread", *packed)


Counted = Callable[[int, int], None]
"""Told how many of how many compilations are done."""


def build(designs: Sequence[Design], cycles: float = inf, progress: Counted | None = None, covered: bool = False) -> Path:
    """Folder with the simulation program of these designs, and with the memory images they read; cached by content.

    The folder must be the working directory of the program. `cycles` says how long a design is about to be simulated.
    """
    harness = Path(__file__).with_name("harness.cpp")
    return build_target(BuildTarget(bundle_files(designs), harness, PROGRAM, quick=cycles <= QUICK_CYCLES, covered=covered),
                        progress)


def cycles_of(design: Design, frames: float) -> float:
    """Clocks that a design is simulated for, about; a board that links alone feed has no streams of its own."""
    beats = max((port.beats for port in (*design.inputs, *design.outputs)), default=0)
    return design.latency_cycles + frames * max(design.interval_cycles, beats)


def build_target(target: BuildTarget, progress: Counted | None = None) -> Path:
    """Folder with a target's result beside the files it was made from; cached by content.

    Where an optimised result is there already, it serves a quick target too.
    """
    verilator, compiler = tools.find_verilator(), tools.find_compiler()
    options = (*target.verilator_options, *target.compile_options, *_tuning(compiler.command), *target.link_options(verilator))
    everything = {**_harness_files(target), **target.files}
    parts = [verilator.version, compiler.version, target.result, *options,
             *(text for item in sorted(everything.items()) for text in item)]
    if target.quick and (optimised := tools.cache_lookup("simulate", tools.content_key(parts))) is not None:
        return optimised
    key = tools.content_key([*parts, "quick"] if target.quick else parts)

    def make(folder: Path) -> None:
        for name, text in everything.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        sources = [name for name in target.files if is_verilog(name)]
        arguments = (*verilator.command, *target.verilator_options, *sources)
        tools.run_tool(Command("verilator", arguments, folder, folder / "verilator.log", COMPILE_TIMEOUT_S, COMPILE_MEMORY_BYTES,
                               verilator.environment))
        try:
            _compile(verilator, compiler, folder, target, progress)
        except ToolError as error:
            if target.trace and re.search(r"\b(lz4|zlib)\.h\b|-l(lz4|z)\b", str(error)):
                raise ToolError(f"waveforms: the C++ compiler finds no zlib or lz4; {INSTALL_WAVEFORMS}") from None
            raise

    return tools.cached("simulate", key, make)[0]


def _compile(verilator: Tool, compiler: Tool, folder: Path, target: BuildTarget, progress: Counted | None) -> None:
    """Compile what Verilator wrote, two files at a time, and link it with the harness and the run-time library.

    Verilator's own makefile is not used: the one in the Python package names the compiler of the machine it was built on.
    """
    lists = _source_lists(folder / "generated" / "Bundle_classes.mk")
    options = _options(verilator, compiler, target)
    library = _library(verilator, compiler, lists["VM_GLOBAL_FAST"], target)
    fast = [folder / "generated" / f"{name}.cpp" for name in lists["VM_CLASSES_FAST"] + lists["VM_SUPPORT_FAST"]]
    slow = [folder / "generated" / f"{name}.cpp" for name in lists["VM_CLASSES_SLOW"] + lists["VM_SUPPORT_SLOW"]]
    own = [folder / name for name in target.files if name.endswith(".cpp")]
    units = _units(fast, slow, own, target.quick)
    common = {level: _common_header(verilator, compiler, (*options, level)) for level in sorted({level for _, level, _ in units})}
    commands = [_compilation(compiler, _unit(folder, name, batch), (*options, "-I.", "-I..", level, *common[level]))
                for name, level, batch in units]
    done = count(1)
    tools.run_tools(commands, on_done=None if progress is None else lambda _: progress(next(done), len(commands)))
    objects = [*sorted((folder / "generated").glob("*.o")), *library]
    link = (*compiler.command, "-o", target.result, *map(str, objects), *target.link_options(verilator))
    tools.run_tool(Command("C++ compiler", link, folder, folder / "link.log", COMPILE_TIMEOUT_S, COMPILE_MEMORY_BYTES))
    for path in (folder / "generated").iterdir():
        path.unlink()


def _units(fast: Sequence[Path], slow: Sequence[Path], own: Sequence[Path],
           quick: bool) -> list[tuple[str, str, list[Path]]]:
    """Compilations of a bundle: name, optimisation and files of each.

    Of a small bundle reading the headers takes longer than the code, so all of it is one compilation.
    """
    clocked = sum(source.stat().st_size for source in fast)
    if clocked + sum(source.stat().st_size for source in slow) <= SMALL_BYTES:
        return [("all", "-O0" if quick else "-O1", [*fast, *slow, *own])]
    level = "-O0" if quick else "-O2" if clocked <= WELL_OPTIMISED_BYTES else "-O1"
    batches = [("fast", level, batch) for batch in _batches(fast, 200_000)]
    batches += [("slow", "-O0", batch) for batch in _batches([*slow, *own], MOST_UNIT_BYTES)]
    return [(f"{name}_{index}", level, batch) for index, (name, level, batch) in enumerate(batches)]


def _unit(folder: Path, name: str, sources: Sequence[Path]) -> Path:
    """One file that includes several."""
    unit = folder / "generated" / f"unit_{name}.cpp"
    unit.write_text("".join(f'#include "{source.name}"\n' for source in sources), encoding="utf-8")
    return unit


def _options(verilator: Tool, compiler: Tool, target: BuildTarget) -> tuple[str, ...]:
    """What all compilations of a target are told."""
    include = verilator.root / "include"
    if not (include / "verilated.h").is_file():
        raise ToolError(f"verilator: {include / 'verilated.h'} is missing; reinstall Verilator")
    return (*target.compile_options, *_tuning(compiler.command), f"-I{include}", f"-I{include / 'vltstd'}")


@cache
def _tuning(compiler: tuple[str, ...]) -> tuple[str, ...]:
    """`WORD_ARITHMETIC` where the compiler knows it: clang and GCC for other processors refuse options of GCC for x86."""
    try:
        tools.ask("C++ compiler", [*compiler, WORD_ARITHMETIC, "-E", "-x", "c++", os.devnull], {}, "")
    except ToolError:
        return ()
    return (WORD_ARITHMETIC,)


def _batches(sources: Sequence[Path], share_bytes: int) -> list[list[Path]]:
    """Group files into few compilations of about equal size: each one reads a second's worth of headers."""
    sizes = {source: source.stat().st_size for source in sources}
    total = sum(sizes.values())
    count = max(1 + (total > share_bytes), -(-total // MOST_UNIT_BYTES))
    batches: list[list[Path]] = [[] for _ in range(count)]
    for source in sorted(sources, key=lambda path: -sizes[path]):
        min(batches, key=lambda batch: sum(sizes[path] for path in batch)).append(source)
    return [batch for batch in batches if batch]


def _compilation(compiler: Tool, source: Path, options: Sequence[str]) -> Command:
    arguments = (*compiler.command, "-c", *options, "-o", source.with_suffix(".o").name, source.name)
    log = source.with_suffix(".log")
    return Command("C++ compiler", arguments, source.parent, log, COMPILE_TIMEOUT_S, COMPILE_MEMORY_BYTES)


def _common_header(verilator: Tool, compiler: Tool, options: Sequence[str]) -> tuple[str, ...]:
    """Options that include `COMMON_HEADER` as GCC read it once for these options; none for other compilers.

    Reading it takes GCC 12 1.0 s of processor time in every compilation, and 0.1 s where it was read before.
    """
    if not compiler.version.startswith("g++"):
        return ()

    def make(folder: Path) -> None:
        header = folder / "common.h"
        header.write_text(COMMON_HEADER, encoding="utf-8")
        arguments = (*compiler.command, "-x", "c++-header", *options, "-o", f"{header.name}.gch", header.name)
        tools.run_tool(Command("C++ compiler", arguments, folder, folder / "common.log", COMPILE_TIMEOUT_S, COMPILE_MEMORY_BYTES))

    key = tools.content_key([verilator.version, compiler.version, *options, COMMON_HEADER])
    return ("-include", str(tools.cached("verilator-header", key, make, keep=8)[0] / "common.h"))


def _library(verilator: Tool, compiler: Tool, names: Sequence[str], target: BuildTarget) -> list[Path]:
    """Verilator's run-time library and the harness, if any, as object files: compiled once, they are half of a small build."""
    library = {f"{name}.cpp": f'#include "{verilator.root / "include" / name}.cpp"\n' for name in names}
    made = [_objects(verilator, compiler, target, library, "-O1")]
    if target.harness is not None:
        made.append(_objects(verilator, compiler, target, _harness_files(target), "-O2"))
    return [path for folder in made for path in sorted(folder.glob("*.o"))]


def _objects(verilator: Tool, compiler: Tool, target: BuildTarget, files: Mapping[str, str], level: str) -> Path:
    """Folder with object files of the C++ among some files, cached by content."""
    options = (*_options(verilator, compiler, target), level)

    def make(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        tools.run_tools([_compilation(compiler, folder / name, options) for name in files if name.endswith(".cpp")])

    parts = [text for item in sorted(files.items()) for text in item]
    key = tools.content_key([verilator.version, compiler.version, *options, *parts])
    return tools.cached("verilator-library", key, make)[0]


def _harness_files(target: BuildTarget) -> dict[str, str]:
    """The harness and the headers, by name."""
    here = Path(__file__).parent
    harness = {} if target.harness is None else {HARNESS: target.harness.read_text(encoding="utf-8")}
    return {**{name: (here / name).read_text(encoding="utf-8") for name in HEADERS}, **harness}


def _source_lists(makefile: Path) -> dict[str, list[str]]:
    """The lists of generated C++ files, by the names Verilator's makefile fragment gives them."""
    joined = makefile.read_text(encoding="utf-8").replace("\\\n", " ")
    found = {match[1]: match[2].split() for match in re.finditer(r"^(VM_\w+) \+= ?(.*)$", joined, re.MULTILINE)}
    names = ("CLASSES_FAST", "CLASSES_SLOW", "SUPPORT_FAST", "SUPPORT_SLOW", "GLOBAL_FAST")
    return {f"VM_{name}": found.get(f"VM_{name}", []) for name in names}


def bundle_files(designs: Sequence[Design]) -> dict[str, str]:
    """Every file of a bundle: the designs' Verilog with distinct module names, the top module, and the C++ port table."""
    pins = []
    for index, design in enumerate(designs):
        pins.append([(f"{port.name}_{part}", f"{wire}_{part}", width, inward == (part != "ready"))
                     for port, wire, inward in _wires(index, design)
                     for part, width in (("valid", 1), ("ready", 1), ("data", port.data_bits))]
                    + _memory_pins(index, design))
    return {**bundle_sources(designs, pins), "bundle.cpp": _port_table(designs)}


def bundle_sources(designs: Sequence[Design], pins: Sequence[Sequence[Pin]]) -> dict[str, str]:
    """The designs' Verilog with distinct module names, and a top module that leads each design's pins outside."""
    files: dict[str, str] = {}
    ports: list[str] = []
    instances: list[str] = []
    for index, (design, own) in enumerate(zip(designs, pins, strict=True)):
        prefix = f"d{index}_" if len(designs) > 1 else ""
        files.update(_own_files(index, design, prefix))
        ports += [f"input d{index}_clk", f"input d{index}_rst"]
        ports += [f"{'input' if inward else 'output'} [{width - 1}:0] {outer}" for _, outer, width, inward in own]
        connections = [f".clk(d{index}_clk)", f".rst(d{index}_rst)", *(f".{inner}({outer})" for inner, outer, _, _ in own)]
        instances.append(f"  {prefix}{design.top} d{index} (\n    " + ",\n    ".join(connections) + "\n  );")
    text = "module dovetail_bundle (\n  " + ",\n  ".join(ports) + "\n);\n" + "\n".join(instances) + "\nendmodule\n"
    return {**files, "dovetail_bundle.v": text}


def _own_files(index: int, design: Design, prefix: str) -> dict[str, str]:
    """One design's files under its own folder; with a prefix, its modules are renamed consistently in all of them."""
    verilog = {name: text for name, text in design.files.items() if is_verilog(name)}
    images = [name for name in design.files if name not in verilog]
    modules = sorted(module_texts(design))
    if design.top not in modules:
        raise ToolError(f"{design.top}: no such module in {', '.join(sorted(verilog)) or 'an empty design'}; name the top module")
    identifier = re.compile(r"(?<![\w$.])(" + "|".join(map(re.escape, modules)) + r")(?![\w$])")
    written = {f"design{index}/{name}": design.files[name] for name in images}
    for name, text in verilog.items():
        for image in images:
            text = text.replace(f'"{image}"', f'"design{index}/{image}"')
        written[f"design{index}/{name}"] = identifier.sub(rf"{prefix}\1", text) if prefix else text
    return written


def _wires(index: int, design: Design) -> list[tuple[StreamPort, str, bool]]:
    """Every stream of a design with its name in the bundle and whether it flows into the design."""
    inputs = [(port, f"d{index}_in{number}", True) for number, port in enumerate(design.inputs)]
    return inputs + [(port, f"d{index}_out{number}", False) for number, port in enumerate(design.outputs)]


def _memory_pins(index: int, design: Design) -> list[Pin]:
    """The pins of a design's memory port."""
    if design.memory is None:
        return []
    return [(f"{design.memory.name}_{part}", f"d{index}_memory_{part}", bits, inward)
            for part, bits, inward in design.memory.signals]


def _memory_entry(index: int, design: Design) -> str:
    """The port table's entry of a design's memory port."""
    if design.memory is None:
        return "{}"
    port, wire = design.memory, f"m.d{index}_memory"
    parts = ("request_valid", "request_ready", "request_address", "request_beats", "valid", "data")
    pins = ", ".join(f"&{wire}_{part}" for part in parts)
    more = ("request_write", "write_valid", "write_ready", "write_data", "written")
    writes = ", ".join(f"&{wire}_{part}" if port.writes else "nullptr" for part in more)
    rate = int(port.bytes_per_clock * RATE_STEPS)
    return (f'{{{{{pins}, sizeof({wire}_data), {port.bytes}, "design{index}/{port.image}", {rate}, '
            f"{port.latency_clocks}, {port.beats}, {(1 << port.masters) - 1}, {writes}}}}}")


def _port_table(designs: Sequence[Design]) -> str:
    """C++ that says where the streams of every design are; see ports.h."""
    lines = ['#include "Bundle.h"', '#include "bundle_handle.h"', '#include "ports.h"',
             "std::vector<Ports> BundleHandle::describe() {", "    Bundle& m = *model_;", "    return {"]
    for index, design in enumerate(designs):
        groups: dict[bool, list[str]] = {True: [], False: []}
        for port, wire, inward in _wires(index, design):
            pointers = f"&m.{wire}_valid, &m.{wire}_ready, &m.{wire}_data, sizeof(m.{wire}_data)"
            groups[inward].append(f'{{"{port.name}", {pointers}, {port.beats}}}')
        inputs, outputs = ", ".join(groups[True]), ", ".join(groups[False])
        lines.append(f'        {{"{design.top}", &m.d{index}_clk, &m.d{index}_rst, {{{inputs}}}, {{{outputs}}}, '
                     f"{_memory_entry(index, design)}}},")
    return "\n".join([*lines, "    };", "}", HANDLE])
