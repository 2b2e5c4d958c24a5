"""What all engines share: stream formats, the pipeline with its delays, credits, and the output FIFO.

There is no clock enable. An engine makes a step only while its output FIFO has room for everything in flight
(a credit counter); behind the step the arithmetic runs freely, followed by a shift register of valid bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dovetail.fpga.design import Beats
from dovetail.fpga.rtl.expressions import (
    ZERO,
    Const,
    Expr,
    Signal,
    all_of,
    any_bit,
    any_of,
    compare,
    odd_of,
    pack,
    select,
    signal,
)
from dovetail.fpga.rtl.modules import Instance, Memory, Module
from dovetail.hardware.folds import LUT_MEMORY_DEPTH
from dovetail.hardware.streaming import CREDIT_RESERVE, Cycles, output_fifo_depth

BLOCK_MEMORY_BITS = 4096
"""Memories at least this large, and deeper than a look-up table, are asked to become block memory."""
READ_STAGES = 2
"""Clock edges from the address of weights to the word: the read and a register behind it."""


def in_blocks(depth: int, width: int) -> bool:
    """Whether a memory is asked to become block memory."""
    return depth > LUT_MEMORY_DEPTH and depth * width >= BLOCK_MEMORY_BITS


@dataclass(frozen=True, slots=True)
class Format(Beats):
    """A stream of height x width pixels of `channels` fields of `bits` bits, values in [lo, hi].

    A beat is a whole pixel, or a word of `at_once` of its channels in their order; what the last word of a pixel has beyond
    its channels says nothing.
    """

    channels: int
    bits: int
    signed: bool
    lo: int
    hi: int
    height: int
    width: int
    at_once: int | None = None

    @property
    def pixels(self) -> int:
        return self.height * self.width

    def in_words(self, fields: int) -> Format:
        """The same pixels in words of so many channels."""
        return replace(self, at_once=None if fields == self.channels else fields)

    def channel(self, data: Signal, index: int) -> Expr:
        """Field `index` of a beat, in no more bits than its values need."""
        return data.field(index * self.bits, self.lo, self.hi)

    def __str__(self) -> str:
        words = "" if self.at_once is None else f", {self.at_once} channels at once"
        return f"{self.channels}x{self.height}x{self.width} {'s' if self.signed else 'u'}{self.bits}{words}"


@dataclass(frozen=True, slots=True)
class Engine:
    """A finished engine: its modules (its own first), stream formats, and when it does what.

    Step input_steps[n] consumes beat n of every input, which step asked_steps[n] is the first to need, the same one if None;
    step output_steps[k] leads to output beat k, which enters the output FIFO `stages` clocks later. A frame takes `steps`
    steps. `adders` are those of its adder graph (or accumulators), without bias and rounding.
    """

    modules: tuple[Module, ...]
    inputs: tuple[Format, ...]
    output: Format
    input_steps: Cycles
    output_steps: Cycles
    steps: int
    stages: int
    adders: int
    fifo_depth: int
    asked_steps: Cycles | None = None
    loads: Format | None = None
    """The stream `load` that brings its weights, a set a frame; None where they are constants."""
    own_steps: tuple[Cycles, ...] | None = None
    """Of each input, where they differ: the steps that consume its beats."""

    @property
    def keeps(self) -> bool:
        """Whether one pixel of an input is kept for the whole map of another, which waits for it."""
        return len({f.pixels for f in self.inputs}) > 1

    def asks(self, index: int) -> Cycles:
        """The first step that needs each beat of an input."""
        return self.takes(index) if self.asked_steps is None else self.asked_steps

    def takes(self, index: int) -> Cycles:
        """The step that consumes each beat of an input."""
        return self.input_steps if self.own_steps is None else self.own_steps[index]


@dataclass(frozen=True, slots=True)
class Staged:
    """A value that belongs to the step issued `stage` clocks ago."""

    value: Signal | Const
    stage: int

    @property
    def signal(self) -> Signal:
        """The value, which is no constant."""
        assert isinstance(self.value, Signal)
        return self.value


class Pipeline:
    """Registers of a free-running pipeline; delays of one value are shared."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.delays: dict[str, list[Signal]] = {}

    def register(self, name: str, value: Expr, stage: int, bounds: tuple[int, int] | None = None) -> Staged:
        """The value, formed from operands of `stage`, one clock later."""
        return Staged(self.module.register(name, value, bounds=bounds), stage + 1)

    def at(self, staged: Staged, stage: int) -> Signal | Const:
        """The value as seen at a later stage."""
        value, wait = staged.value, stage - staged.stage
        assert wait >= 0 or isinstance(value, Const)
        if isinstance(value, Const) or wait == 0:
            return value
        chain = self.delays.setdefault(value.name, [])
        while len(chain) < wait:
            before = chain[-1] if chain else value
            chain.append(self.module.register(f"{value.name}_d{len(chain) + 1}", before))
        return chain[wait - 1]

    def signal_at(self, staged: Staged, stage: int) -> Signal:
        """A value that is no constant, as seen at a later stage."""
        return Staged(self.at(staged, stage), stage).signal

    def paired(self, values: Sequence[Staged], merge: Callable[[Staged, Staged], Staged]) -> Staged:
        """Values of one stage made one, two by two."""
        level = list(values)
        while len(level) > 1:
            merged = [merge(first, second) for first, second in zip(level[::2], level[1::2], strict=False)]
            if len(level) % 2:
                merged.append(Staged(self.at(level[-1], merged[0].stage), merged[0].stage))
            level = merged
        return level[0]


def read_stream(module: Module, name: str, form: Format) -> tuple[Signal, Signal]:
    """Input ports of a stream; the caller drives `NAME_ready`. Returns (valid, data)."""
    return module.input(f"{name}_valid"), module.input(f"{name}_data", form.data_bits)


def fifo_module(name: str, width: int, depth: int, report: bool = False, level: bool = False, reserved: bool = False) -> Module:
    """A FIFO whose next beat waits in a register: it can be taken two clocks after it was written.

    With `report`, a simulator prints its high-water mark when it ends; with `level`, a port says how many beats are in it.
    With `reserved`, the writer knows that there is room, and nothing on the way to the memory asks for it.
    """
    m = Module(name, (f"FIFO of {depth} beats of {width} bits.",))
    in_valid, in_data, out_ready = m.input("in_valid"), m.input("in_data", width), m.input("out_ready")
    count, waiting = signal("count", 0, depth), signal("waiting", 0, depth)
    valid, some = signal("valid"), signal("some")
    full = signal("full")
    push = m.wire("push", in_valid if reserved else all_of(in_valid, ~full))
    load = m.wire("load", all_of(some, any_of(~valid, out_ready)))
    # What comes is known early, what leaves late: that decides whether to count, not how far.
    change = m.wire("change", select(push, 1, -1))
    if not reserved:
        pop = m.wire("pop", all_of(valid, out_ready))
        m.drive(count, count + change, odd_of(push, pop), 0)
        m.drive(full, all_of(~pop, any_of(full, all_of(push, compare("==", count, depth - 1)))), reset=0)
        m.output("in_ready", ~full)
    m.drive(waiting, waiting + change, odd_of(push, load), 0)
    # Whether any are waiting is known with their number: asking it would delay all that leaves.
    several = any_bit(waiting.bits(1, waiting.width - 1)) if waiting.width > 1 else ZERO
    m.drive(some, any_of(push, several, all_of(some, ~load)), reset=0)
    m.drive(valid, any_of(load, all_of(valid, ~out_ready)), reset=0)
    write_at = m.counter("write_at", depth, push)
    read_at = m.counter("read_at", depth, load)
    word = signal("word", 0, (1 << width) - 1)
    m.memories.append(Memory("beats", width, depth, push, write_at, in_data, read_at, word, in_blocks(depth, width), load))
    m.drive_outputs(out_valid=valid, out_data=word)
    if level:
        m.output("level", count)
    if report:
        width = count.width
        m.simulation_only = (f"reg [{width - 1}:0] high_water;",
                             "always @(posedge clk)",
                             f"  if (rst) high_water <= {width}'d0;",
                             "  else if (count > high_water) high_water <= count;",
                             'final $display("high_water %m %0d", high_water);')
    return m


def reserved_fifo(module: Module, name: str, depth: int, push: tuple[Signal, Signal],
                  pop: tuple[Signal, Signal, Signal]) -> Module:
    """Place a FIFO whose writer knows that there is room: (valid, data) in, (valid, ready, data) out. Returns its module."""
    fifo = fifo_module(f"{module.name}_{name}", push[1].width, depth, reserved=True)
    ports = ("in_valid", "in_data", "out_valid", "out_ready", "out_data")
    module.instances.append(Instance(fifo.name, name, tuple(zip(ports, (*push, *pop), strict=True))))
    return fifo


def slice_module(name: str, width: int) -> Module:
    """A register slice: a stream one clock later, without a path through it forwards or backwards, at a beat every clock."""
    m = Module(name, (f"Register slice of {width} bits.",))
    in_valid, in_data, out_ready = m.input("in_valid"), m.input("in_data", width), m.input("out_ready")
    valid, kept = signal("valid"), signal("kept")
    first, second = (signal(s, 0, (1 << width) - 1) for s in ("first", "second"))
    moves = m.wire("moves", any_of(~valid, out_ready))
    m.drive(valid, any_of(in_valid, kept, ~moves), reset=0)
    m.drive(kept, all_of(~moves, any_of(kept, in_valid)), reset=0)
    m.drive(first, select(kept, second, in_data), moves)
    m.drive(second, in_data, ~kept)
    m.drive_outputs(in_ready=~kept, out_valid=valid, out_data=first)
    return m


def fork_module(name: str, width: int, branches: int) -> Module:
    """Copies a stream to several takers; each takes a beat when it can, the source moves on when all have."""
    m = Module(name, (f"Fork of a {width}-bit stream into {branches}.",))
    in_valid, in_data = m.input("in_valid"), m.input("in_data", width)
    ready = [m.input(f"out{i}_ready") for i in range(branches)]
    done = [signal(f"done{i}") for i in range(branches)]
    served = [m.wire(f"served{i}", any_of(ready[i], done[i])) for i in range(branches)]
    all_served = m.wire("all_served", all_of(*served))
    for i in range(branches):
        m.drive(done[i], all_of(in_valid, served[i], ~all_served), reset=0)
        m.output(f"out{i}_valid", all_of(in_valid, ~done[i]))
        m.output(f"out{i}_data", in_data)
    m.output("in_ready", all_served)
    return m


MAY_STEP = signal("may_step")
"""Whether the output FIFO has room for one more beat beyond those in flight; defined by `finish_stream`."""


def finish_stream(module: Module, pipeline: Pipeline, emit: Staged, values: Sequence[tuple[Staged, int]],
                  output_steps: Cycles, steps: int) -> tuple[Module, int, int]:
    """Align all channels, shift the valid bit along, end in the output FIFO, and count its credits.

    `emit` says of steps of its stage, 0 to 2, whether they lead to an output; `values` are (value, field bits) per
    channel. Returns the FIFO's module, the number of pipeline stages and the FIFO's depth.
    """
    stages = max([emit.stage + 1, *(v.stage for v, _ in values)])
    depth = output_fifo_depth(output_steps, steps, stages)
    count = stages - emit.stage
    flags = signal("valid", 0, (1 << count) - 1)
    older = [(flags.bits(0, count - 1), count - 1)] if count > 1 else []
    module.drive(flags, pack([(emit.value, 1), *older]), reset=0)
    valid = module.wire("beat_valid", flags.bit(count - 1))
    beat = module.wire("beat", pack([(pipeline.at(v, stages), field) for v, field in values]))
    out_valid, out_data = module.net("fifo_valid"), module.net("fifo_data", beat.width)
    out_ready = module.input("out_ready")
    fifo = reserved_fifo(module, "fifo", depth, (valid, beat), (out_valid, out_ready, out_data))
    # Issue and FIFO may lie far apart: every way between them starts and ends in a register. The reserve pays for that.
    spare = signal("spare", -CREDIT_RESERVE - 1, depth - CREDIT_RESERVE - 1)  # room beyond the reserve, if not negative
    left = module.register("left", all_of(out_valid, out_ready), reset=0)
    issued = module.register("issued", module.register("issuing", emit.value, reset=0), reset=0)
    module.drive(spare, spare + left - issued, reset=spare.hi)
    module.drive(MAY_STEP, ~spare.bit(spare.width - 1), reset=1)
    module.drive_outputs(out_valid=out_valid, out_data=out_data)
    return fifo, stages, depth
