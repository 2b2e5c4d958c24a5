"""Proofs of a generated design, engine by engine, from its graph and from the Verilog as it is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from dovetail import ir
from dovetail.errors import ToolError
from dovetail.fpga.assemble import loaded_node
from dovetail.fpga.design import Design, module_texts
from dovetail.fpga.engines.lq import Datapath
from dovetail.fpga.engines.stream import Engine, Format
from dovetail.fpga.network import Station, make_network
from dovetail.fpga.proofs import obligations, wanted
from dovetail.fpga.proofs.exploration import Offered
from dovetail.fpga.proofs.netlist import Netlist, read_netlist
from dovetail.fpga.proofs.streams import Flow, Moves, Place
from dovetail.fpga.proofs.verdicts import Method, Proof, Ruling, timed
from dovetail.hardware.folds import Fold
from dovetail.hardware.streaming import OUTPUT_COUNT_STAGES, Raster
from dovetail.ir import Graph, Node, Window
from dovetail.numerics.requantize import requantizer

FAMILIES: dict[type[ir.Op], str] = {
    ir.Conv: "adder graph", ir.Gemm: "adder graph", ir.AvgPool: "pooling", ir.MaxPool: "pooling", ir.GlobalAvgPool: "pooling",
    ir.Add: "add with skip", ir.Reduce: "requantizer", ir.Clip: "requantizer", ir.Concat: "requantizer",
    ir.Select: "requantizer", ir.Mul: "product of streams", ir.Lookup: "table",
}
Make = Callable[[], Proof]
Told = Callable[[Proof], None]
"""Hears of every proof as it is made."""


def prove_design(graph: Graph, design: Design, yosys: Sequence[str], on_proof: Told, limit_s: float = 60.0) -> list[Proof]:
    """All that can be said of a design that is a stream of engines; engines of shared arrays are simulated only."""
    if design.memory is not None:
        return _told([_simulated(design.top, "reusable array", "reads its weights from memory")], on_proof)
    network = make_network(graph, design.top, folds={n: Fold(*sizes) for n, sizes in design.folds.items()}, words=design.words,
                           datapath=Datapath(design.datapath), fused=design.fused,
                           leaving=design.outputs[0].at_once if design.outputs else None,
                           loaded=[loaded_node(port.tensor) for port in design.loads])
    found = list[Proof]()
    for station in network.stations:
        node = next((n for n in graph.nodes if n.name == station.name), None)
        for engine in station.engines:
            files = _of_modules(design, {m.name for m in engine.modules})
            for proof in engine_proofs(graph, node, station, engine, files, yosys, limit_s):
                found += _told([proof], on_proof)
    for name, text in module_texts(design).items():
        if (make := _wiring(name, text, yosys)) is not None:
            found += _told([timed(make, _simulated(name, "FIFO", ""))], on_proof)
    return found


def _told(proofs: list[Proof], on_proof: Told) -> list[Proof]:
    for proof in proofs:
        on_proof(proof)
    return proofs


def _of_modules(design: Design, names: set[str]) -> dict[str, str]:
    """Files of some modules alone, and the memory images."""
    texts = module_texts(design)
    images = {name: text for name, text in design.files.items() if not name.endswith((".v", ".sv"))}
    return {f"{name}.v": texts[name] for name in names if name in texts} | images


def _simulated(part: str, family: str, why: str) -> Proof:
    return Proof(part, family, "its outputs are the reference's", Method.NONE, Ruling.SIMULATED, detail=why)


def engine_proofs(graph: Graph, node: Node | None, station: Station, engine: Engine, files: Mapping[str, str],
                  yosys: Sequence[str], limit_s: float) -> Iterator[Proof]:
    """The proofs of one engine: what it sees, what it computes, when that is valid, and that nothing overflows."""
    top = engine.modules[0].name
    if node is None or (node.op.layer is not None and node.name in _folded(station, engine)) or type(node.op) not in FAMILIES:
        kind = "word regrouping" if node is None else "folded lane" if node.op.layer else node.op.kind
        yield _simulated(top, kind, "its sequence is not followed; its lane is proven by make prove")
        if node is not None:
            yield timed(lambda: obligations.prove_credits(top, read_netlist(files, top, yosys), engine.fifo_depth, engine.stages,
                                                          True), _simulated(top, "FIFO", ""))
        return
    family = FAMILIES[type(node.op)]
    try:
        netlist = read_netlist(files, top, yosys)
    except ToolError as error:
        yield _simulated(top, family, str(error).splitlines()[0])
        return
    if top.endswith("_pad") and engine is not station.engines[-1]:
        yield timed(lambda: prove_padding(top, netlist, engine, requantizer(graph, node).zeros[0]), _simulated(top, family, ""))
    elif node.op.window is not None or isinstance(node.op, ir.Gemm):
        yield from _windowed(graph, node, engine, netlist, family, limit_s)
    elif all(f.words == 1 for f in (*engine.inputs, engine.output)) and not engine.keeps \
            and not isinstance(node.op, ir.GlobalAvgPool):
        yield from _elementwise(graph, node, engine, netlist, family, limit_s)
    else:
        yield _simulated(top, family, "its counters are not followed")
    yield timed(lambda: obligations.prove_credits(top, netlist, engine.fifo_depth, engine.stages, "step_2" in netlist.names),
                _simulated(top, "FIFO", ""))


def _folded(station: Station, engine: Engine) -> set[str]:
    return {station.name} if any(m.name.endswith("_lane") for m in engine.modules) else set()


def _windowed(graph: Graph, node: Node, engine: Engine, netlist: Netlist, family: str, limit_s: float) -> Iterator[Proof]:
    (form,), top = engine.inputs, engine.modules[0].name
    window = node.op.window or Window((form.height, form.width))
    raster = Raster(window, form.height, form.width)
    if not raster.masks_suffice or form.words > 1:
        raster = Raster(Window(window.kernel, window.stride, (0, 0, 0, 0), window.dilation), form.height, form.width)
    if form.words > 1:
        yield _simulated(top, family, "its words are not followed")
        return
    fill = form.lo if isinstance(node.op, ir.MaxPool) else requantizer(graph, node).zeros[0]
    yield timed(lambda: obligations.prove_window(top, netlist, raster, form, fill, limit_s=limit_s),
                _simulated(top, "window and padding", ""))
    limits = (min(form.lo, fill), max(form.hi, fill)) if raster.masked else (form.lo, form.hi)
    rows, columns = window.kernel
    sources = {wanted.tap(c, i, j): limits for c in range(form.channels) for i in range(rows) for j in range(columns)}
    made = timed(lambda: obligations.prove_outputs(top, family, netlist, sources,
                                                   wanted.outputs(graph, node, (form,), engine.output),
                                                   engine.output.bits, limit_s=limit_s), _simulated(top, family, ""))
    yield made
    if made.status is not Ruling.PROVEN or made.detail == "constant":
        return
    emit = "emit" if raster.counted and "emit" in netlist.names else "step"
    delay = raster.stages - (OUTPUT_COUNT_STAGES if raster.counted else 0)
    yield timed(lambda: obligations.prove_flags(top, family, netlist, emit, obligations.clocks_of(made) + delay),
                _simulated(top, family, ""))


def _elementwise(graph: Graph, node: Node, engine: Engine, netlist: Netlist, family: str, limit_s: float) -> Iterator[Proof]:
    top, forms = engine.modules[0].name, engine.inputs
    sources = {f"in{i}_x{c}": (form.lo, form.hi) for i, form in enumerate(forms) for c in range(form.channels)}
    yield timed(lambda: prove_pairing(top, family, netlist, forms), _simulated(top, family, ""))
    made = timed(lambda: obligations.prove_outputs(top, family, netlist, sources,
                                                   wanted.outputs(graph, node, forms, engine.output),
                                                   engine.output.bits, limit_s=limit_s), _simulated(top, family, ""))
    yield made
    if made.status is not Ruling.PROVEN or made.detail == "constant":
        return
    yield timed(lambda: obligations.prove_flags(top, family, netlist, "step", obligations.clocks_of(made) + 1),
                _simulated(top, family, ""))


def prove_pairing(top: str, family: str, netlist: Netlist, forms: Sequence[Format]) -> Proof:
    """That what is computed together came together: beat n of every input."""
    names = [(i, c, f"in{i}_x{c}") for i, form in enumerate(forms) for c in range(form.channels)]
    names = [(i, c, name) for i, c, name in names if name in netlist.names]
    ends = [*(name for _, _, name in names), "valid[0]", *(f"in{i}_ready" for i in range(len(forms)))]
    cone = obligations.without_ready(netlist.cone(ends, ["may_step"]))
    inputs = tuple(Flow(f"in{i}_valid", f"in{i}_ready", (f"in{i}_data",)) for i in range(len(forms)))
    places: list[Place] = [(i, 0, c * forms[i].bits + bit) for i, c, name in names for bit in range(len(netlist.bits(name)))]
    monitor = Moves(inputs, (1,) * len(forms), (Flow("valid[0]", None, tuple(n for _, _, n in names)),), ((tuple(places),),))
    return obligations.prove_moves(top, family, "what is computed together came together", cone,
                                   Offered(("may_step", *(s.valid for s in inputs)), {s.data[0]: s.valid for s in inputs}),
                                   monitor, ["may_step"])


def prove_padding(top: str, netlist: Netlist, engine: Engine, fill: int) -> Proof:
    """That a padding engine surrounds every frame with beats of the fill."""
    (form,), output = engine.inputs, engine.output
    pads = engine.input_steps[0] // output.width, engine.input_steps[0] % output.width
    places = []
    for row in range(output.height):
        for column in range(output.width):
            y, x = row - int(pads[0]), column - int(pads[1])
            inside = 0 <= y < form.height and 0 <= x < form.width
            beat = list[Place]()
            for channel in range(form.channels):
                beat += [(0, y * form.width + x, channel * form.bits + bit) if inside else fill >> bit & 1
                         for bit in range(output.bits)]
            places.append(beat)
    return obligations.prove_beats(top, "window and padding", netlist, (form,), (form.beats,), places, len(places) + 8)


MOST_FIFO_STATES = 300_000
"""States of a FIFO that are followed: 64 beats have 12,352."""
MOVED_BITS = 2
"""Bits of a beat that are followed through a FIFO or a fork, which treats all alike."""


def _wiring(name: str, text: str, yosys: Sequence[str]) -> Make | None:
    """The proof of a module that only moves beats, told by its ports; None where it is none."""
    ports = set(re.findall(r"\b(?:input|output) wire (?:\[\d+:0\] )?(\w+)", text))
    branches = sorted(p for p in ports if re.fullmatch(r"out\d+_valid", p))
    if {"in_valid", "in_data", "out_valid", "out_ready", "out_data", "clk", "rst"} <= ports <= {
            "in_valid", "in_data", "in_ready", "out_valid", "out_ready", "out_data", "clk", "rst", "level"}:
        return lambda: prove_fifo(name, text, yosys)
    if branches and {"in_valid", "in_data", "in_ready", "clk", "rst"} | {
            f"out{i}_{w}" for i in range(len(branches)) for w in ("valid", "ready", "data")} == ports:
        return lambda: prove_fork(name, text, len(branches), yosys)
    return None


def narrowed(text: str) -> str:
    """A module that moves words, with words of two bits: what happens to one bit does not depend on how many there are."""
    found = re.search(r"input wire \[(\d+):0\] in_data", text)
    return text if found is None else text.replace(f"[{found[1]}:0]", f"[{MOVED_BITS - 1}:0]")


def prove_fifo(name: str, text: str, yosys: Sequence[str]) -> Proof:
    """That a FIFO neither loses nor repeats nor reorders; one without `in_ready` behind a writer that keeps count."""
    depth = re.search(r"reg (?:\[\d+:0\] )?beats \[0:(\d+)\]", text)
    size = int(depth[1]) + 1 if depth else 1
    text, top = narrowed(text), name
    if "in_ready" not in text:
        top, text = f"{name}_counted", text + _counted(name, size, "[1:0] " if "[1:0] in_data" in text else "")
    netlist = read_netlist({"fifo.v": text}, top, yosys)
    width = len(netlist.inputs["in_data"])
    monitor = Moves((Flow("in_valid", "in_ready", ("in_data",)),), (1,), (Flow("out_valid", "out_ready", ("out_data",)),),
                    ((tuple((0, 0, bit) for bit in range(width)),),), 6, size + 2)
    return obligations.prove_moves(name, "FIFO", "every beat leaves once, in order", netlist,
                                   Offered(("in_valid", "out_ready"), {"in_data": "in_valid"}), monitor,
                                   most_states=MOST_FIFO_STATES)


def _counted(name: str, depth: int, data: str) -> str:
    """A writer that knows how many beats are in a FIFO, in front of it."""
    bits = depth.bit_length()
    return f"""
module {name}_counted (input wire clk, input wire rst, input wire in_valid, input wire {data}in_data, output wire in_ready,
                       output wire out_valid, input wire out_ready, output wire {data}out_data);
reg [{bits - 1}:0] inside;
assign in_ready = inside != {bits}'d{depth};
always @(posedge clk) if (rst) inside <= {bits}'d0; else inside <= inside + (in_valid & in_ready) - (out_valid & out_ready);
{name} fifo (.clk(clk), .rst(rst), .in_valid(in_valid & in_ready), .in_data(in_data), .out_valid(out_valid),
             .out_ready(out_ready), .out_data(out_data));
endmodule
"""


def prove_fork(name: str, text: str, branches: int, yosys: Sequence[str]) -> Proof:
    """That every branch of a fork gets every beat once, in order."""
    wide = re.search(r"input wire \[(\d+):0\] in_data", text)
    netlist = read_netlist({"fork.v": text.replace(f"[{wide[1]}:0]", "[1:0]") if wide else text}, name, yosys)
    same = (tuple((0, 0, bit) for bit in range(len(netlist.inputs["in_data"]))),)
    ends = tuple(Flow(f"out{i}_valid", f"out{i}_ready", (f"out{i}_data",)) for i in range(branches))
    monitor = Moves((Flow("in_valid", "in_ready", ("in_data",)),), (1,), ends, (same,) * branches, 2)
    free = ("in_valid", *(f"out{i}_ready" for i in range(branches)))
    return obligations.prove_moves(name, "FIFO", "every branch gets every beat once, in order", netlist,
                                   Offered(free, {"in_data": "in_valid"}, True), monitor)
