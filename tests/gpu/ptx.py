"""A kernel's PTX, run for all threads of all programs at once: what a compiler made of it, without a GPU.

Triton's interpreter runs a kernel's source and never what is written in PTX itself. This runs the instructions that kernels of
bytes are made of; threads go one way together, so there are no branches, no shared memory and nothing that waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Words = Any
"""A register of every thread: 64 bits without sign, or truth."""
MASKS = {bits: np.uint64((1 << bits) - 1) for bits in (8, 16, 32, 64)}
SKIPPED = re.compile(r"\s*(\.(loc|reg|file|section|pragma)|\$L)")
COMPARED: Mapping[str, Callable[[Words, Words], Words]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}
COMPUTED: Mapping[str, Callable[[Words, Words], Words]] = {
    "add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum,
    "max": np.maximum, "shl": np.left_shift, "shr": np.right_shift}


def statements(ptx: str) -> list[str]:
    """A kernel's instructions in order, without what tells a debugger where they come from."""
    body = re.sub(r"//.*", "", ptx[ptx.index("{\n"):ptx.index("func_end0")])
    kept = "\n".join(line for line in body.split("\n") if not SKIPPED.match(line))
    found = [re.sub(r"^[{}\s]+", "", statement).strip() for statement in kept.split(";")]
    return [s for s in found if s and not s.startswith(".reg")]


@dataclass
class Kernel:
    """Registers of all threads and the memory they share; addresses are places in it."""

    memory: np.ndarray[Any, np.dtype[np.uint8]]
    parameters: Sequence[int]
    grid: Sequence[int]
    threads: int
    held: dict[str, Words] = field(default_factory=dict)

    def run(self, ptx: str) -> None:
        every = np.arange(int(np.prod(self.grid)) * self.threads)
        program = every // self.threads
        self.held = {"%tid.x": (every % self.threads).astype(np.uint64)}
        for axis, size in zip("xyz", self.grid, strict=True):
            self.held[f"%ctaid.{axis}"], program = (program % size).astype(np.uint64), program // size
        for statement in statements(ptx):
            if statement == "ret":
                return
            self.step(statement)

    def value(self, operand: str, bits: int = 64, signed: bool = False) -> Words:
        found = self.held.get(operand)
        if found is None:
            found = np.full(len(self.held["%tid.x"]), int(operand, 0) & int(MASKS[64]), dtype=np.uint64)
        if found.dtype == bool:
            return found
        found = found & MASKS[bits]
        return found.astype(f"u{bits // 8}").view(f"i{bits // 8}").astype(np.int64) if signed else found

    def put(self, register: str, value: Words, bits: int, where: Words | None = None) -> None:
        if value.dtype != bool:
            value = (value.view(np.uint64) if value.dtype == np.int64 else value.astype(np.uint64)) & MASKS[bits]
        self.held[register] = value if where is None else np.where(where, value, self.held[register])

    def step(self, statement: str) -> None:
        where = None
        if guarded := re.match(r"@(!?)(%p\d+)\s+(.*)", statement, re.DOTALL):
            where, statement = self.held[guarded[2]] ^ bool(guarded[1]), guarded[3]
        name, rest = (*statement.split(None, 1), "")[:2]
        kind = name.split(".")
        if name.startswith(("ld.global", "st.global")):
            self.move(kind, rest, where)
            return
        operands = [o.strip() for o in rest.split(",")]
        if kind[0] == "mov":
            value = self.value(operands[1])
            self.put(operands[0], value != 0 if kind[-1] == "pred" else value, 32 if kind[-1].endswith("32") else 64, where)
        elif kind[0] != "griddepcontrol":
            assert where is None, statement
            self.compute(kind, operands)

    def move(self, kind: Sequence[str], rest: str, where: Words | None) -> None:
        """Load or store words; every address must be round and in memory."""
        assert kind[-1] == "b32", kind
        inside = re.search(r"\[([^\]+]*)\+?([^\]]*)\]", rest)
        assert inside is not None
        registers = re.findall(r"[%\w]+", rest.replace(inside[0], ""))
        acting = np.ones(len(self.held["%tid.x"]), bool) if where is None else where
        at = (self.value(inside[1].strip()) + np.uint64(int(inside[2] or 0)))[acting].astype(np.int64)
        assert not len(at) or (at.min() >= 0 and at.max() + 4 * len(registers) <= len(self.memory)), rest
        assert not (at % (4 * len(registers))).any(), rest
        words = self.memory.view(np.uint32)
        for i, register in enumerate(registers):
            if kind[0] == "ld":
                found = np.zeros(len(acting), np.uint64)
                found[acting] = words[at // 4 + i]
                self.put(register, found, 32, where)
            else:
                words[at // 4 + i] = self.value(register, 32)[acting].astype(np.uint32)

    def compute(self, kind: Sequence[str], operands: Sequence[str]) -> None:
        name, last, (to, *given) = kind[0], kind[-1], operands
        bits = int(last[1:]) if last != "pred" else 64
        signed = last.startswith("s")
        if name == "ld":  # a parameter
            numbered = re.search(r"_(\d+)\]", given[0])
            assert numbered is not None
            self.put(to, self.value(str(self.parameters[int(numbered[1])])), 64)
        elif name == "setp":
            self.put(to, COMPARED[kind[1]](self.value(given[0], bits, signed), self.value(given[1], bits, signed)), 64)
        elif name == "selp":
            self.put(to, np.where(self.held[given[2]], self.value(given[0], bits), self.value(given[1], bits)), bits)
        elif name == "not":
            self.put(to, ~self.value(given[0], bits), bits)
        elif name == "bfe":
            at, length = self.value(given[1], 32), self.value(given[2], 32)
            self.put(to, (self.value(given[0], bits) >> at) & ((np.uint64(1) << length) - np.uint64(1)), bits)
        elif name == "cvt" and kind[1] == "pack":
            high, low = (np.clip(self.value(o, 32, signed=True), 0, 255).astype(np.uint64) for o in given[:2])
            self.put(to, (self.value(given[2], 32) << np.uint64(16)) | (high << np.uint64(8)) | low, 32)
        elif name == "cvt":
            self.put(to, self.value(given[0], bits, signed), int(kind[-2][1:]))
        elif name == "fma":
            a, b, c = (self.value(o, 32).astype(np.uint32).view(np.float32).astype(np.float64) for o in given)
            self.put(to, (a * b + c).astype(np.float32).view(np.uint32), 32)  # products of two are exact, sums here as well
        elif name == "dp4a":
            total = self.value(given[2], 32, signed=True)
            for shift in (0, 8, 16, 24):
                total = total + np.prod([self.value(o, 32).astype(np.uint32).view(np.int32).astype(np.int64) << (24 - shift) << 32
                                         >> 56 for o in given[:2]], axis=0)
            self.put(to, total, 32)
        elif name == "prmt":
            both, chosen = self.value(given[0], 32) | (self.value(given[1], 32) << np.uint64(32)), int(given[2], 0)
            taken = [((both >> np.uint64(8 * (chosen >> 4 * i & 7))) & np.uint64(255)) << np.uint64(8 * i) for i in range(4)]
            self.put(to, np.bitwise_or.reduce(taken), 32)
        elif name in ("mul", "mad"):
            found, wide = self.value(given[0], bits, signed) * self.value(given[1], bits, signed), kind[1] == "wide"
            found = (found >> found.dtype.type(bits) if kind[1] == "hi" else found).astype(np.uint64)
            self.put(to, found + self.value(given[2], bits << wide) if name == "mad" else found, bits << wide)
        else:
            by = 32 if name in ("shl", "shr") else bits
            a, b = self.value(given[0], bits, signed), self.value(given[1], by, signed)
            self.put(to, COMPUTED[name](a, b), bits)
