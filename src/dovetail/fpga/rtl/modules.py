"""Modules of a minimal typed hardware description: named wires, registers, memories and instances of one clock domain.

The clock is `clk`, the reset `rst` is synchronous. `fpga.rtl.expressions` are what drives them, `fpga.rtl.verilog`
prints them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.fpga.rtl.expressions import ONE, ZERO, Const, Expr, Signal, TableEntry, compare, select, signal, successor


@dataclass(frozen=True, slots=True)
class Register:
    """`target` takes `value` at the clock edge, while `enable` is set; `reset` is its value under `rst`."""

    target: Signal
    value: Expr
    enable: Expr = ONE
    reset: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """One write port and one registered read port; a word read while it is being written is undefined and must not be used."""

    name: str
    width: int
    depth: int
    write_enable: Expr
    write_address: Expr
    write_value: Expr
    read_address: Expr
    read_value: Signal
    block: bool
    read_enable: Expr = ONE
    """The value read is kept while this is 0."""


@dataclass(frozen=True, slots=True)
class Rom:
    """Constant words with one registered read port; they lie in a memory image of the module's name and its own."""

    name: str
    width: int
    words: tuple[int, ...]
    address: Expr
    read_value: Signal
    block: bool


@dataclass(frozen=True, slots=True)
class ConstantTable:
    """Constants by the bits of an index: (bits, value) pairs; other indices never occur."""

    name: str
    index_bits: int
    entries: tuple[tuple[int, int], ...]

    @property
    def lo(self) -> int:
        return min(value for _, value in self.entries)

    @property
    def hi(self) -> int:
        return max(value for _, value in self.entries)

    def entry(self, index: Signal) -> Expr:
        """The constant that the bits of a signal point to."""
        return TableEntry(self.lo, self.hi, self.name, index)


@dataclass(frozen=True, slots=True)
class Instance:
    """Another module's instance; connections are (port, signal of this module). Its reset is this module's unless named."""

    module: str
    name: str
    connections: tuple[tuple[str, Signal], ...]
    reset: Signal | None = None


@dataclass(slots=True)
class Module:
    """One hardware module under construction; `clk` and `rst` are implied inputs."""

    name: str
    header: tuple[str, ...] = ()
    inputs: list[Signal] = field(default_factory=list)
    outputs: list[Signal] = field(default_factory=list)
    wires: list[tuple[Signal, Expr | None]] = field(default_factory=list)
    assigns: list[tuple[Signal, Expr]] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    roms: list[Rom] = field(default_factory=list)
    tables: list[ConstantTable] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    simulation_only: tuple[str, ...] = ()
    """Verilog lines only a simulator sees."""
    behaviour: tuple[str, ...] = ()
    """Verilog lines that a simulator sees instead of all that the module is made of, which a test proves equal."""
    shared: bool = False
    """Whether it is instantiated so often that a simulator should compile it once instead of copying it."""

    def input(self, name: str, width: int = 1) -> Signal:
        self.inputs.append(signal(name, 0, (1 << width) - 1))
        return self.inputs[-1]

    def output(self, name: str, value: Expr) -> None:
        """Drive an output port of the value's width."""
        self.outputs.append(signal(name, 0, (1 << value.width) - 1))
        self.wires.append((self.outputs[-1], value))

    def drive_outputs(self, **values: Expr) -> None:
        """Drive several output ports, each of its value's width."""
        for name, value in values.items():
            self.output(name, value)

    def wire(self, name: str, value: Expr, bounds: tuple[int, int] | None = None) -> Signal:
        """Name a value; `bounds` replace its range where more is known about it, or more bits are wanted."""
        made = signal(name, *(bounds or (value.lo, value.hi)))
        self.wires.append((made, value))
        return made

    def net(self, name: str, width: int = 1) -> Signal:
        """A wire driven by an instance."""
        made = signal(name, 0, (1 << width) - 1)
        self.wires.append((made, None))
        return made

    def register(self, name: str, value: Expr, enable: Expr = ONE, reset: int | None = None,
                 bounds: tuple[int, int] | None = None) -> Signal:
        """A register of the value's range (and of its reset value); `bounds` replace it where more is known."""
        lo, hi = bounds or ((value.lo, value.hi) if reset is None else (min(value.lo, reset), max(value.hi, reset)))
        made = signal(name, lo, hi)
        self.registers.append(Register(made, value, enable, reset))
        return made

    def drive(self, target: Signal, value: Expr, enable: Expr = ONE, reset: int | None = None) -> None:
        """A register whose signal was named first because its next value depends on it."""
        self.registers.append(Register(target, value, enable, reset))

    def counter(self, name: str, count: int, step: Expr) -> Signal:
        """A register that runs 0..count-1 and wraps, one per `step`."""
        if count & (count - 1):
            return self.rounds(name, count, step)[0]
        value = signal(name, 0, count - 1)
        self.drive(value, successor(value), step, 0)
        return value

    def rounds(self, name: str, count: int, step: Expr) -> tuple[Signal, Signal]:
        """A counter of at least two values, and the bit "at the last value" as a register of its own, which nothing waits for."""
        assert count > 1
        value, last = signal(name, 0, count - 1), signal(f"{name}_last")
        self.drive(value, select(last, 0, value + 1) if count & (count - 1) else value + 1, step, 0)
        self.drive(last, compare("==", value, count - 2), step, 0)
        return value, last

    def counted(self, name: str, count: int, step: Expr) -> tuple[Signal | Const, Signal | Const]:
        """`rounds`, or constants where there is only one value."""
        return self.rounds(name, count, step) if count > 1 else (ZERO, ONE)
