"""Every reachable state of a module under every choice of its partners: no loss, no repetition, no change of order, no stop.

The data are tokens (`tokens`), so that what holds in all states holds for all data, all stalls and all time: this is a proof by
exhaustion, and needs no invariant. A monitor says what each output has to be.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import ToolError
from dovetail.fpga.proofs.netlist import Bit, Netlist
from dovetail.fpga.proofs.tokens import OFFERED, UNKNOWN, Codes, Integers, TokenMachine, aged, token

RESET_CLOCKS = 2
"""Clocks of reset in front of an exploration."""


class StateWatch:
    """The wires of all states in one clock, by name."""

    def __init__(self, netlist: Netlist, wires: Mapping[Bit, Codes]) -> None:
        self.netlist, self.wires = netlist, wires

    def codes(self, name: str) -> Codes:
        """Bits of a wire (states x bits)."""
        return np.stack([self.wires[b] for b in self.netlist.bits(name)], axis=1)

    def flag(self, name: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether a wire of one bit is set, and whether it is known."""
        (bit,) = self.netlist.bits(name)
        return self.wires[bit] == 1, self.wires[bit] != UNKNOWN


class Monitor(Protocol):
    """What a module has to do: its own numbers (states x `numbers`) beside the module's, which begin with zeros."""

    @property
    def numbers(self) -> int: ...

    @property
    def patience(self) -> int:
        """Clocks after which an output has left, if everything is offered and taken."""

    def owes(self, numbers: Integers) -> NDArray[np.bool_]:
        """States in which an output has to leave even if nothing more is offered."""

    def observe(self, watch: StateWatch, numbers: Integers) -> tuple[Integers, Mapping[int, NDArray[np.bool_]],
                                                                 Mapping[str, NDArray[np.bool_]], NDArray[np.bool_]]:
        """The next numbers, the inputs that took a beat, the states that break a rule, by rule, and where an output left."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What the partners choose in every clock: free bits, and streams, each the name of its data to that of its valid."""

    free: tuple[str, ...]
    streams: Mapping[str, str] = field(default_factory=dict)
    keeps: bool = False
    """Whether a beat stays offered until it is taken, as AXI4-Stream has it."""


@dataclass(frozen=True, slots=True)
class Explored:
    """What an exploration found: `broken` names the rule that a state breaks, `trace` the choices that lead there."""

    states: int
    clocks: int
    closed: bool
    """Whether no state is left that was not seen."""
    broken: str | None = None
    trace: tuple[Mapping[str, int], ...] = ()


def explore(netlist: Netlist, offered: Offered, monitor: Monitor, cut: Sequence[str] = (),
            most_states: int = 200_000, limit_s: float = 600.0) -> Explored:
    """Follow all choices from reset until no state is new, a rule is broken, or there are too many states, or time is up.

    Then, from every state, outputs are taken, and inputs offered or not: an output leaves within the monitor's patience.
    """
    machine, kept = TokenMachine(netlist, cut), len(offered.streams) if offered.keeps else 0
    choices = list(product((0, 1), repeat=len(offered.free)))
    found = _Found(_reset(machine, offered), np.zeros((1, kept + monitor.numbers), dtype=np.int64))
    state, numbers, names, clocks = found.states[0], found.numbers[0], np.zeros(1, dtype=np.int64), 0
    until = time.monotonic() + limit_s
    while len(state) and len(found.seen) <= most_states and time.monotonic() < until:
        clocks, fresh = clocks + 1, []
        for number, choice in enumerate(choices):
            wires = machine.wires(state, _inputs(machine, offered, choice, len(state)))
            after, took, broken, _ = monitor.observe(StateWatch(netlist, wires), numbers[:, kept:])
            possible = ~((numbers[:, :kept] == 1) & ~_valids(offered, choice)[:kept]).any(axis=1)
            for rule, where in broken.items():
                if (where & possible).any():
                    trace = found.trace(int(names[np.flatnonzero(where & possible)[0]]), number)
                    return Explored(len(found.seen), clocks, False, rule, _told(trace, choices, offered))
            waits = [valid & ~took[s] for s, valid in enumerate(_valids(offered, choice))] if kept else []
            after = np.concatenate([*(w[:, None].astype(np.int64) for w in waits), after], axis=1)
            fresh.append(found.add(_moved(machine, state, wires, took)[possible], after[possible], names[possible], number))
        state, numbers = (np.concatenate([f[i] for f in fresh]) for i in (0, 1))
        names = np.concatenate([f[2] for f in fresh])
        found.states.append(state)
        found.numbers.append(numbers)
    if len(state):
        return Explored(len(found.seen), clocks, False)
    every, numbers = np.concatenate(found.states), np.concatenate(found.numbers)[:, kept:]
    for rule, offers in ENDS.items():
        asked = np.arange(len(every)) if offers else np.flatnonzero(monitor.owes(numbers))
        choice = tuple(int(offers or name not in offered.streams.values()) for name in offered.free)
        stuck = _stuck(machine, offered, monitor, every[asked], numbers[asked], choice)
        if stuck is not None:
            trace = found.trace(int(asked[stuck]), choices.index(choice)) + [choices.index(choice)] * monitor.patience
            return Explored(len(found.seen), clocks, False, rule, _told(trace, choices, offered))
    return Explored(len(found.seen), clocks, True)


class _Found:
    """States by their order, how each is reached, and which are known."""

    def __init__(self, state: Codes, numbers: Integers) -> None:
        self.states, self.numbers = [state], [numbers]
        self.seen = {_key(state, numbers)[0]}
        self.origin: list[tuple[int, int]] = [(-1, -1)]

    def add(self, states: Codes, numbers: Integers, names: Integers, choice: int) -> tuple[Codes, Integers, Integers]:
        """Those that are new, with their names."""
        new, first = list[int](), len(self.origin)
        for row, key in enumerate(_key(states, numbers)):
            if key not in self.seen:
                self.seen.add(key)
                self.origin.append((int(names[row]), choice))
                new.append(row)
        return states[new], numbers[new], np.arange(first, len(self.origin), dtype=np.int64)

    def trace(self, at: int, last: int) -> list[int]:
        """The choices from reset to a state, and one more."""
        found = [last]
        while self.origin[at][0] >= 0:
            found.append(self.origin[at][1])
            at = self.origin[at][0]
        return found[::-1]


def _valids(offered: Offered, choice: Sequence[int]) -> NDArray[np.bool_]:
    """Which streams are offered."""
    chosen = dict(zip(offered.free, choice, strict=True))
    return np.array([chosen[valid] == 1 for valid in offered.streams.values()], dtype=np.bool_)


def _told(trace: Sequence[int], choices: Sequence[Sequence[int]], offered: Offered) -> tuple[Mapping[str, int], ...]:
    return tuple(dict(zip(offered.free, choices[number], strict=True)) for number in trace)


def _moved(machine: TokenMachine, state: Codes, wires: Mapping[Bit, Codes], took: Mapping[int, NDArray[np.bool_]]) -> Codes:
    following = machine.after(state, wires)
    for stream, beats in took.items():
        following = aged(following, stream, beats)
    return following


ENDS = {"an output leaves while all is offered and taken": True,
        "an output leaves though nothing more is offered": False}
"""What must not stop, and whether inputs are offered meanwhile."""


def _stuck(machine: TokenMachine, offered: Offered, monitor: Monitor, state: Codes, numbers: Integers,
           choice: Sequence[int]) -> int | None:
    """A state from which nothing leaves under a choice that stays."""
    waiting = np.arange(len(state))
    if not len(state):
        return None
    for _ in range(monitor.patience):
        wires = machine.wires(state, _inputs(machine, offered, choice, len(state)))
        numbers, took, _, left = monitor.observe(StateWatch(machine.netlist, wires), numbers)
        state = _moved(machine, state, wires, took)
        state, numbers, waiting = state[~left], numbers[~left], waiting[~left]
        if not len(waiting):
            return None
    return int(waiting[0])


def _reset(machine: TokenMachine, offered: Offered) -> Codes:
    state = machine.unknown(1)
    for _ in range(RESET_CLOCKS):
        wires = machine.wires(state, _inputs(machine, offered, (0,) * len(offered.free), 1, 1))
        state = machine.after(state, wires)
    return state


def _inputs(machine: TokenMachine, offered: Offered, choice: Sequence[int], count: int, reset: int = 0) -> dict[str, list[Codes]]:
    """All inputs of a clock: free bits as chosen, and the tokens of what is offered; what is not offered is not known."""
    chosen, found = dict(zip(offered.free, choice, strict=True)) | {"rst": reset, "clk": 0}, {}
    streams = list(offered.streams)
    for name, bits in machine.given.items():
        if name in offered.streams:
            there = chosen[offered.streams[name]]
            found[name] = [np.full(count, token(streams.index(name), OFFERED, place) if there else UNKNOWN, dtype=np.int32)
                           for place in range(len(bits))]
        elif name in chosen:
            found[name] = [np.full(count, chosen[name] >> place & 1, dtype=np.int32) for place in range(len(bits))]
        else:
            raise ToolError(f"proof of {machine.netlist.top}: nobody drives its input {name}; say what it is offered")
    return found


def _key(state: Codes, numbers: Integers) -> list[bytes]:
    both = np.concatenate([state, numbers.astype(np.int32)], axis=1)
    return [row.tobytes() for row in np.ascontiguousarray(both)]
