"""What a layer's card tells on demand: its runner-up, its numbers, and the code that is generated for it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from dovetail.cost.folded import folds_of
from dovetail.errors import DovetailError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.engines.lq import datapath_of
from dovetail.ir import Graph
from dovetail.kernels.calls import Call, LibraryPart
from dovetail.kernels.lower import lower as lower_for_gpu
from dovetail.kernels.table import kernel_of
from dovetail.numerics.quality import LayerNoise
from dovetail.partition.plan import Split, whole_on
from dovetail.platform.device import Device, Kind, Platform
from dovetail.platform.gpu_specification import specification, specifications
from dovetail.report.units import significant
from dovetail.schedule.program import lower
from dovetail.words import counted

SHOWN = 60_000
"""Characters of a file that are shown. Chosen: what a page scrolls through easily; a build has all."""
FILES = 12
"""Files that are shown. Chosen."""
GPU = "h200"
"""The GPU that tiles are chosen for where a board's has no specification."""

Code = Mapping[str, Any]
"""What is generated of a layer for one device: its title, a note, and files with name, lines, text and whether it is cut."""


def codes(graph: Graph, node: str, split: Split, platform: Platform) -> list[Code]:
    """The code of every device that computes a part of a layer; `graph` is quantized."""
    assignment = {n.name: whole_on(platform.host) for n in graph.nodes} | {node: split}
    program, found = lower(graph, assignment), list[Code]()
    for device in (platform.device(name) for name in split.devices):
        own = [s.graph for s in program.segments if s.device == device.name and node in s.origins]
        try:
            found += [_code(part if device.kind is not Kind.CPU else graph, node, device) for part in own[:1]]
        except DovetailError as reason:
            found.append({"title": f"{device.name}: no code", "note": str(reason), "files": []})
    return found


def _code(graph: Graph, node: str, device: Device) -> Code:
    if device.kind is Kind.FPGA:
        return _verilog(graph, node, device)
    if device.kind is Kind.GPU:
        return _kernels(graph, device)
    return {"title": f"{device.name}: an ONNX sub-model", "files": [],
            "note": "ONNX Runtime computes it, in integers that equal the reference. A build holds the sub-model."}


def _verilog(graph: Graph, node: str, device: Device) -> Code:
    """The layer's own engine, as a build without its neighbours would have it."""
    design = device.accelerator
    if design is not None and node in design.reusable:
        return {"title": f"{device.name}: a program of the shared array", "files": [],
                "note": "An array computes this layer among others, by a program of its own. Verilog and programs are in the "
                        "build: save it."}
    made = build_design(graph, graph.name, folds=folds_of(graph, device), datapath=datapath_of(device.family))
    names = sorted(made.files, key=lambda name: (not name.endswith(".v"), name != f"{made.top}.v", -len(made.files[name])))
    more = f"; {counted(len(names) - FILES, 'file')} more in a build" if len(names) > FILES else ""
    return {"title": f"{device.name}: Verilog of the layer by itself", "files": [_file(n, made.files[n]) for n in names[:FILES]],
            "note": f"{counted(made.adders, 'adder')}; a frame takes {counted(made.interval_cycles, 'clock')}. Scales are of "
                    f"synthetic samples unless numbers were measured{more}."}


def _kernels(graph: Graph, device: Device) -> Code:
    """The kernel that a GPU computes the layer with by itself, with the tile that looks best."""
    name = device.model if device.model in specifications() else GPU
    lowered = lower_for_gpu(graph, "int8", specification(name))
    files, said = dict[str, str](), list[str]()
    for run in (run for run in lowered.runs if not isinstance(run, LibraryPart)):
        calls = [run] if isinstance(run, Call) else [
            min((call for first, last, call in lowered.options(run) if (first, last) == (i, i)),
                key=lambda call: call.estimates_s[0] if call.estimates_s else 0.0) for i in range(len(run))]
        for call in calls:
            module = kernel_of(call.shape).shape.__module__.rpartition(".")[2]
            files[f"{module}.py"] = (resources.files("dovetail") / "gpu" / "triton" / f"{module}.py").read_text(encoding="utf-8")
            tile = ", ".join(f"{key} {value}" for key, value in call.configs[0].items()) if call.configs else "none"
            said.append(f"{call.kernel}: tile {tile}; grid {' × '.join(map(str, call.grid(call.configs[0])))}")
    note = f"{'; '.join(said)}, the best by estimate on {specification(name).name}. Neighbours may be fused with it."
    return {"title": f"{device.name}: Triton kernel", "note": note, "files": [_file(n, text) for n, text in files.items()]}


def _file(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "lines": text.count("\n") + 1, "text": text[:SHOWN], "cut": len(text) > SHOWN}


def numbers_lines(graph: Graph, output: str, found: LayerNoise | None, samples: str) -> list[tuple[str, str]]:
    """Range, format and error of a layer's output, as label and value."""
    scheme = graph.tensors[output].scheme
    if scheme is None:
        return []
    lines = [("Format", f"{scheme}: {counted(scheme.bits, 'bit')}, {'signed' if scheme.signed else 'unsigned'}")]
    if scheme.axis is None:
        step = float(scheme.scales[0])
        ends = [significant((value - scheme.zero) * step) for value in (scheme.lo, scheme.hi)]
        lines.append(("Holds", f"{ends[0]} to {ends[1]}, in steps of {significant(step)}"))
    if found is None:
        return lines
    error = "none" if found.snr_db == float("inf") else f"{significant(found.snr_db)} dB below the signal"
    return [*lines, ("Range", f"{significant(found.least)} to {significant(found.most)} on {samples}"),
            ("Quantization error", error)]
