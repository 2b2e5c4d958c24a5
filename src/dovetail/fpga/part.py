"""FPGA parts: generated RTL on disk, run in Verilator; what is simulated is the files, not what they were made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path

import numpy as np

from dovetail import document
from dovetail.document import IDENTIFIER, INCOMPLETE, NATURAL, PLAIN_FILE, Each, FieldPath, Maybe, OneOf, Whole
from dovetail.errors import UsageError
from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.assemble import build_design, load_tensor, loaded_node
from dovetail.fpga.axi.shell import DEFAULT_BUS_BITS, MEMORY_FILE, Shell, build_shell, has_room, load_shell
from dovetail.fpga.design import Design, Fifo, MemoryPort, StreamPort
from dovetail.fpga.engines.coded_lane import coded_filters
from dovetail.fpga.engines.folded import weight_set
from dovetail.fpga.engines.lq import Datapath, coded_window
from dovetail.fpga.host_port import with_host_port
from dovetail.fpga.mapping import coded_rescale, stream_formats
from dovetail.fpga.packing import Integers, as_pixels, to_packets
from dovetail.fpga.toolchain.icarus import simulate_in_icarus
from dovetail.fpga.toolchain.simulate import Simulation, simulate
from dovetail.fpga.toolchain.simulator import Simulator
from dovetail.fpga.toolchain.verilate import Counted, build, cycles_of
from dovetail.hardware.arrays.layers import MASTERS
from dovetail.hardware.folds import Fold, Loops, channels_of
from dovetail.ir import Array, Coded, Graph
from dovetail.numerics.reference import run_integer
from dovetail.platform.accelerator import AcceleratorDesign, check_folds
from dovetail.words import counted

SIMULATED_ADDERS = 20_000
"""Designs up to this many adders are simulated; compiling larger ones takes tens of minutes, so they are emulated."""

SHELL = "axi"
"""Folder of a part's shell."""
PINS = "pins"
"""Folder of a part behind a host's port of a few pins."""
DESCRIPTION = "design.json"
SCHEMA = 1
SIZE = Whole(1, 1 << 31)
PORT = {"name": IDENTIFIER, "tensor": str, "channels": SIZE, "bits": SIZE, "signed": bool, "height": SIZE, "width": SIZE,
        "at_once": Maybe(SIZE), "loads": bool}
FIFO = {"name": str, "width_bits": SIZE, "depth": NATURAL}
MEMORY = {"name": IDENTIFIER, "bytes": Whole(1, 4096), "image": PLAIN_FILE, "bytes_per_clock": float, "latency_clocks": NATURAL,
          "beats": NATURAL, "writes": bool, "masters?": OneOf(MASTERS)}
DESIGN = {"top": IDENTIFIER, "files": [PLAIN_FILE], "inputs": [PORT], "outputs": [PORT],
          "fifos": [FIFO], "adders": NATURAL, "latency_cycles": NATURAL,
          "interval_cycles": NATURAL, "notes": [str], "folds?": Each([NATURAL]), "words?": Each(SIZE), "fused?": [str],
          "memory?": Maybe(MEMORY), "datapath?": OneOf(tuple(d.value for d in Datapath))}
"""What `design.json` holds."""


@dataclass(frozen=True, slots=True)
class FpgaPart:
    """A segment as hardware: `run` simulates its Verilog clock by clock."""

    graph: Graph
    design: Design
    on_simulated: Callable[[Simulation], None] | None = None
    simulator: Simulator | None = None
    """The process that simulates it; None where every run has its own."""

    @property
    def emulated(self) -> bool:
        return self.design.adders > SIMULATED_ADDERS

    @property
    def backend(self) -> str:
        return "emulated" if self.emulated else "verilator"

    @property
    def note(self) -> str:
        if self.emulated:
            return (f"{self.design.adders} adders exceed the {SIMULATED_ADDERS} that are simulated in reasonable time; "
                    "computed by the integer reference, RTL unproven")
        return f"generated RTL for simulation in Verilator, {counted(self.design.adders, 'adder')}"

    def prepare(self, frames: int, progress: Counted) -> None:
        """Compile the simulator that `run` needs for so many frames, saying how much of it is done; not for emulated parts."""
        progress(0, 1)
        build([self.design], cycles_of(self.design, frames), progress)

    def opened(self, frames: int | None, timeout_s: float) -> FpgaPart:
        """The part in a simulator that stays, for so many frames in all (None: nobody knows); close it when all are done."""
        if self.emulated:
            return self
        cycles = inf if frames is None else cycles_of(self.design, frames)
        return replace(self, simulator=Simulator(self.design, build([self.design], cycles), timeout_s))

    def close(self) -> None:
        if self.simulator is not None:
            self.simulator.close()

    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        if self.emulated:
            return run_integer(self.graph, inputs)
        streams = self.streams(inputs)
        simulation = simulate(self.design, streams, on_frame=on_frame) if self.simulator is None else self.simulator.run(streams)
        if self.on_simulated is not None:
            self.on_simulated(simulation)
        return self._tensors(simulation)

    def run_stalled(self, inputs: Mapping[str, Array], seed: int,
                    on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        """The same numbers with sources that pause and sinks that make wait, as buses do; not for emulated parts."""
        return self._tensors(simulate(self.design, self.streams(inputs), seed, on_frame))

    def run_in_icarus(self, inputs: Mapping[str, Array], unknown: bool) -> dict[str, Array]:
        """The same numbers from a second simulator, with stalls; not for emulated parts.

        What holds state is `unknown` at first; else random, and the first frame is broken off by a reset.
        """
        reset_at, start_seed = (None, None) if unknown else (self.design.latency_cycles // 2 + 1, 1)
        return self._tensors(simulate_in_icarus(self.design, self.streams(inputs), 1, reset_at, start_seed))

    def streams(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """What all inputs of the design take: frames, and once the weights that are loaded."""
        frames = {port.tensor: as_pixels(port, np.asarray(inputs[port.tensor])) for port in self.design.streams}
        return {**frames, **loaded_sets(self.graph, self.design)}

    def _tensors(self, simulation: Simulation) -> dict[str, Array]:
        tensors = self.graph.tensors
        return {name: pixels.reshape(len(pixels), *tensors[name].shape[1:]).astype(tensors[name].dtype)
                for name, pixels in simulation.outputs.items()}


def weight_sets(graph: Graph, folds: Mapping[str, Fold], loaded: Collection[str], frames: int = 0) -> dict[str, Integers]:
    """A set of weights for so many frames (0: for all that come) by the input that takes it, shaped as a frame of it.

    `folds` and `loaded` as the design had them. UsageError where a set does not fit what was built.
    """
    formats, found = stream_formats(graph), dict[str, Integers]()
    for node in graph.nodes:
        if node.name not in loaded:
            continue
        assert isinstance(node.op, Coded)
        form, output = formats[node.inputs[0]], formats[node.output]
        loops = Loops(channels_of(node.op.body, form.channels, output.channels), folds[node.name])
        filters = coded_filters(node.op, graph.params(node), coded_window(node.op, form), coded_rescale(graph, node), form,
                                loaded=True)
        try:
            beats = weight_set(loops, filters, frames)
        except UsageError as error:
            raise UsageError(f"{node.name}: {error}") from None
        found[load_tensor(node.name)] = beats.T.reshape(1, beats.shape[1], 1, len(beats))
    return found


def loaded_sets(graph: Graph, design: Design) -> dict[str, Integers]:
    """The graph's weights for all inputs of a design that load them, as one set each, which holds for all frames that come."""
    names = [loaded_node(port.tensor) for port in design.loads]
    return weight_sets(graph, {name: Fold(*design.folds[name]) for name in names}, names)


def write_part(graph: Graph, folder: Path, bus_bits: int = DEFAULT_BUS_BITS, folds: Mapping[str, Fold] | None = None,
               accelerator: AcceleratorDesign | None = None, loaded: Collection[str] = (),
               datapath: Datapath = Datapath.POPCOUNT, memory_bits: int | None = None, host_pins: int | None = None) -> Design:
    """Generate the segment's RTL into `folder/NAME/` with a description of its ports, and its shell into `axi/` below; with what
    must lie in memory (`memory.bin`) where the design uses some, and the packet of every input for weights (`load0.bin`).

    Nodes in `folds` share multipliers; an `accelerator` says of all nodes which engines they have. Weights of nodes in `loaded`
    are loaded. `datapath` sums products of codes where nothing is folded. `memory_bits` is the width of the
    shell's port to memory, where the design uses some. With `host_pins` the design stands behind so many pins, too, in `pins/`.
    """
    design = (build_design(graph, graph.name, folds=folds, loaded=loaded, datapath=datapath) if accelerator is None
              else build_accelerator(graph, graph.name, accelerator))
    if host_pins is not None and design.memory is not None:
        raise UsageError(f"--host-pins {host_pins}: {graph.name} reads memory, which a host of a few pins does not have; leave "
                         "--architecture or --host-pins out")
    target = folder / graph.name
    store_design(design, target)
    if host_pins is not None:
        store_design(with_host_port(design, host_pins), target / PINS)
    if has_room(design):
        shell = build_shell(design, graph, bus_bits, memory_bits)
        (target / SHELL).mkdir()
        for name, text in {**shell.files, **shell.documents()}.items():
            (target / SHELL / name).write_text(text, encoding="utf-8")
        if design.memory is not None:
            (target / SHELL / MEMORY_FILE).write_bytes(shell.memory_image)
        sets = loaded_sets(graph, design)
        for port in design.loads:
            (target / SHELL / f"{port.name}.bin").write_bytes(to_packets(port, sets[port.tensor], bus_bits).tobytes())
    return design


def store_design(design: Design, folder: Path) -> None:
    """Write a design's files into a new folder, with a description of its ports."""
    folder.mkdir(parents=True)
    for name, text in design.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    description = {**asdict(design), "files": list(design.files), "schema": SCHEMA}
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")


def load_design(folder: Path) -> Design:
    """A stored design with the Verilog text as it is on disk now; its files lie in its folder and nowhere else."""
    known = document.read_document(folder / DESCRIPTION, SCHEMA, INCOMPLETE, DESIGN)
    check_folds(known.get("folds", {}), FieldPath(str(folder / DESCRIPTION), INCOMPLETE, "folds"))
    files = document.read_texts(folder, known["files"])
    memory = known.get("memory")
    if memory is not None and memory["image"] not in files:
        FieldPath(str(folder / DESCRIPTION), INCOMPLETE, "memory.image").refuse(memory["image"], f"one of {', '.join(files)}")
    inputs, outputs = (tuple(StreamPort(**document.picked(p, PORT)) for p in known[way]) for way in ("inputs", "outputs"))
    return Design(known["top"], files, inputs, outputs, tuple(Fifo(**document.picked(f, FIFO)) for f in known["fifos"]),
                  known["adders"], known["latency_cycles"], known["interval_cycles"], tuple(known["notes"]),
                  {name: tuple(sizes) for name, sizes in known.get("folds", {}).items()},
                  known.get("words", {}), tuple(known.get("fused", ())),
                  None if memory is None else MemoryPort(**document.picked(memory, MEMORY)),
                  known.get("datapath", Datapath.POPCOUNT.value))


def load_part_shell(graph: Graph, folder: Path) -> Shell:
    """The stored shell of a segment's design."""
    return load_shell(load_design(folder / graph.name), folder / graph.name / SHELL)


def load_handover(graph: Graph, folder: Path) -> tuple[Design, Shell | None]:
    """A segment's stored design, and its shell where it has one: a design of more ports than a register map holds has none."""
    design = load_design(folder / graph.name)
    return design, load_part_shell(graph, folder) if has_room(design) else None


def load_part(graph: Graph, folder: Path, on_simulated: Callable[[Simulation], None] | None = None) -> FpgaPart:
    return FpgaPart(graph, load_design(folder / graph.name), on_simulated)
