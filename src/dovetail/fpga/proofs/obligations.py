"""What is to be proven of each kind of engine, on the netlist of its Verilog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dovetail.errors import ToolError
from dovetail.fpga.engines.stream import Format
from dovetail.fpga.proofs.dataflow import Dataflow
from dovetail.fpga.proofs.exploration import Explored, Monitor, Offered, explore
from dovetail.fpga.proofs.induction import Inductive, credits, induct
from dovetail.fpga.proofs.netlist import Bit, Netlist
from dovetail.fpga.proofs.solver import SolverVerdict, Term, Vectors
from dovetail.fpga.proofs.specification import WantedRounding
from dovetail.fpga.proofs.streams import Flow, Moves, Place, TokenWindow
from dovetail.fpga.proofs.sums import DIFFERENT, Summed, common_clock, prove_sum
from dovetail.fpga.proofs.verdicts import Method, Proof, Ruling
from dovetail.hardware.streaming import CREDIT_RESERVE, OUTPUT_COUNT_STAGES, Raster

MOST_STATES = 40_000
"""States that are followed before a proof by exhaustion is called bounded."""
MOST_TAPS = 400
"""Taps whose tokens are followed."""


@dataclass(frozen=True, slots=True)
class Computed:
    """An output that is no weighted sum: rounding of what `make` computes from signed sources, which lies within `limits`."""

    sources: tuple[str, ...]
    make: Callable[[Vectors, Sequence[Term]], Term]
    limits: tuple[int, int]
    rounding: WantedRounding


Output = Summed | Computed


def prove_moves(part: str, family: str, statement: str, netlist: Netlist, offered: Offered, monitor: Monitor,
                cut: Sequence[str] = (), most_states: int = MOST_STATES) -> Proof:
    """That a module, or a part of it, moves the right beats, by all of its states."""
    found = explore(netlist, offered, monitor, cut, most_states)
    return _explored(Proof(part, family, statement, Method.EXHAUSTION, Ruling.PROVEN), found)


def _explored(proof: Proof, found: Explored) -> Proof:
    size = f"{found.states:,} states"
    if found.broken is not None:
        return replace(proof, status=Ruling.REFUTED, size=size, detail=f"not so: {found.broken}",
                       counterexample={"clocks": [dict(clock) for clock in found.trace]})
    if not found.closed:
        return replace(proof, status=Ruling.BOUNDED, size=size, detail=f"to {found.clocks} clocks behind reset")
    return replace(proof, size=size)


def prove_window(part: str, netlist: Netlist, raster: Raster, form: Format, fill: int,
                 most_states: int = MOST_STATES, limit_s: float = 600.0) -> Proof:
    """That every output's taps are the pixels of its window, and the fill in the padding."""
    channels, (rows, columns) = form.fields, raster.window.kernel
    taps = {(c, i, j): f"x{c}_{i}_{j}" for c in range(channels) for i in range(rows) for j in range(columns)}
    proof = Proof(part, "window and padding", "taps are the window's pixels, the fill in the padding", Method.EXHAUSTION,
                  Ruling.PROVEN)
    if len(taps) > MOST_TAPS or raster.steps * 8 > most_states:
        return replace(proof, status=Ruling.SIMULATED, method=Method.NONE,
                       detail=f"{raster.steps} steps a frame, {len(taps)} taps: more than are followed")
    emit = "emit" if raster.counted and "emit" in netlist.names else "step"
    delay = raster.stages - (OUTPUT_COUNT_STAGES if raster.counted else 0)
    cone = without_ready(netlist.cone(["in0_ready", "step", emit, *taps.values()], ["may_step"]))
    found = explore(cone, Offered(("may_step", "in0_valid"), {"in0_data": "in0_valid"}),
                    TokenWindow(raster, form, fill, emit, delay, taps), ["may_step"], most_states, limit_s)
    return _explored(proof, found)


def without_ready(netlist: Netlist) -> Netlist:
    """What is cut off from the output needs no `out_ready`."""
    return replace(netlist, inputs={name: bits for name, bits in netlist.inputs.items() if name != "out_ready"})


def prove_beats(part: str, family: str, netlist: Netlist, forms: Sequence[Format], taken: Sequence[int],
                places: Sequence[Sequence[Place]], patience: int) -> Proof:
    """That an engine which moves beats sends the right ones to its output FIFO, whenever it may."""
    cone = without_ready(netlist.cone(["beat", "beat_valid", *(f"in{i}_ready" for i in range(len(forms)))], ["may_step"]))
    inputs = tuple(Flow(f"in{i}_valid", f"in{i}_ready", (f"in{i}_data",)) for i in range(len(forms)))
    monitor = Moves(inputs, tuple(taken), (Flow("beat_valid", None, ("beat",)),), (tuple(tuple(p) for p in places),), patience)
    free = ("may_step", *(s.valid for s in inputs))
    return prove_moves(part, family, "beats are the inputs' beats, in order", cone,
                       Offered(free, {s.data[0]: s.valid for s in inputs}), monitor, ["may_step"])


def prove_outputs(part: str, family: str, netlist: Netlist, sources: Mapping[str, tuple[int, int]], outputs: Sequence[Output],
                  field_bits: int, beat: str = "beat", limit_s: float = 60.0) -> Proof:
    """That a beat's fields are what they have to be, of sources that all are seen at one clock."""
    vectors, clocks, open_fields = Vectors(limit_s), set[int](), list[int]()
    flow, bits = Dataflow(netlist, sources, vectors), netlist.bits(beat)
    proof = Proof(part, family, "outputs are exact sums, rounded half to even and saturated", Method.SUMS, Ruling.PROVEN)
    if any(isinstance(o, Computed) for o in outputs):
        proof = replace(proof, method=Method.SMT, states="outputs are the integers' function of the taps")
    for place, output in enumerate(outputs):
        own = bits[place * field_bits:(place + 1) * field_bits]
        verdict, clock, values = _field(flow, own, output)
        if clock == DIFFERENT:
            return replace(proof, status=Ruling.REFUTED, detail=f"output {place} joins values of different clocks")
        if verdict is SolverVerdict.POSSIBLE:
            return replace(proof, status=Ruling.REFUTED, detail=f"output {place} differs", counterexample={"taps": values})
        if verdict is SolverVerdict.UNKNOWN:
            open_fields.append(place)
        clocks |= {clock} if clock is not None else set()
    if len(clocks) > 1:
        return replace(proof, status=Ruling.REFUTED, detail=f"outputs of one beat are of clocks {sorted(clocks)}")
    width = sum(len(netlist.bits(name)) for name in sources)
    proof = replace(proof, size=f"{width:,} bits to {len(outputs) * field_bits:,}")
    if open_fields:
        return replace(proof, status=Ruling.BOUNDED, detail=f"outputs {open_fields} not decided in {limit_s:g} s each, "
                       f"{len(outputs) - len(open_fields)} of {len(outputs)} proven")
    return replace(proof, detail=f"{-clocks.pop()} clocks behind the taps" if clocks else "constant")


def _field(flow: Dataflow, bits: Sequence[Bit], output: Output) -> tuple[SolverVerdict, int | None, Mapping[str, int]]:
    if isinstance(output, Summed):
        found = prove_sum(flow, bits, output)
        return found.verdict, found.clock, found.values
    vectors, pieces = flow.vectors, flow.pieces(bits, 0)
    clock = common_clock(flow, pieces)
    if clock == DIFFERENT:
        return SolverVerdict.POSSIBLE, clock, {}
    vectors.constants.clear()
    flow.base, flow.terms, flow.assumptions = None, {}, {}
    width = max((max(abs(end) for end in output.limits)).bit_length() + 2,
                *(len(flow.netlist.bits(name)) + 1 for name in output.sources))
    terms = []
    for name in output.sources:
        key = ("source", name, clock or 0)
        terms.append(vectors.fitted(flow.term(key), width, flow.limits[name][0] < 0))
    expected, assumed = output.rounding.term(vectors, output.make(vectors, terms), output.limits, len(bits))
    found_term = flow.term_of(pieces)
    answer = vectors.ask([vectors.compare("DISTINCT", found_term, expected), *assumed, *flow.assumptions.values()])
    values = {name.partition("@")[0]: value for name, value in answer.values.items() if "@" in name}
    return answer.verdict, clock, values


def prove_flags(part: str, family: str, netlist: Netlist, emit: str, clocks: int) -> Proof:
    """That the valid bit of a beat belongs to the step that its taps belong to."""
    vectors = Vectors()
    flow = Dataflow(netlist, {emit: (0, 1)}, vectors)
    found = flow.pieces(netlist.bits("beat_valid"), 0)
    right = found == ((("source", emit, -clocks), 0),)
    return Proof(part, family, "a beat is valid when its step had an output", Method.LINEAR,
                 Ruling.PROVEN if right else Ruling.REFUTED, f"{clocks} clocks", 0.0,
                 "" if right else f"found {found}, expected {emit} {clocks} clocks before")


def prove_credits(part: str, netlist: Netlist, depth: int, stages: int, counted: bool) -> Proof:
    """That an engine never issues more than its output FIFO holds."""
    names = ["spare", "may_step", "left", "issuing", "issued", "valid", "fifo.waiting", "fifo.valid", "fifo.some"]
    delayed = counted and "step_2" in netlist.names
    names += ["step_1", "step_2"] if delayed else []
    return prove_invariant(part, "FIFO", f"at most {depth} beats are under way and in the output FIFO",
                           netlist.cone(names, _memory_reads(netlist)), credits(depth, CREDIT_RESERVE, stages, delayed))


def _memory_reads(netlist: Netlist) -> list[str]:
    """Wires that show what a memory's read port gives."""
    found = []
    for memory in netlist.memories:
        found += [next(name for name, bits in netlist.names.items() if bits == memory.ports["RD_DATA"] and "[" not in name)]
    return found


def prove_invariant(part: str, family: str, statement: str, netlist: Netlist, what: Inductive, limit_s: float = 60.0) -> Proof:
    """That rules hold for all time, by induction."""
    broken, answer = induct(netlist, what, limit_s)
    size = f"{sum(len(r.ports['Q']) for r in netlist.registers):,} bits of state"
    proof = Proof(part, family, statement, Method.INDUCTION, Ruling.PROVEN, size)
    if broken is None:
        return proof
    if answer.verdict is SolverVerdict.UNKNOWN:
        return replace(proof, status=Ruling.SIMULATED, detail=f"not decided in {limit_s:g} s: {broken}")
    values = {name: value for name, value in answer.values.items() if value}
    return replace(proof, status=Ruling.REFUTED, detail=f"not kept: {broken}", counterexample={"state": values})


def clocks_of(proof: Proof) -> int:
    """Clocks from taps to outputs that a proof of outputs found; ToolError where it found none."""
    number = proof.detail.partition(" ")[0]
    if proof.status is not Ruling.PROVEN or not number.isdigit():
        raise ToolError(f"{proof.part}: its outputs are not proven, so their clock is not known")
    return int(number)
