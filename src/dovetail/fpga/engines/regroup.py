"""The engine that cuts pixels into other words: from beats of some channels to beats of more or fewer.

Every turn looks at the beat that waits. If that completes a word, the word leaves; if nothing more is needed of the beat, it
is taken, and what the next word needs of it is held. Turns repeat with every pixel, so which field comes from where is a
choice by the turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

import numpy as np

from dovetail.fpga.engines.layers import MappedLayer, close, start
from dovetail.fpga.engines.stream import MAY_STEP, Engine, Format, Staged, read_stream
from dovetail.fpga.rtl.expressions import Expr, Signal, all_of, any_of, bit_width, choose, compare, const, pack, signal
from dovetail.fpga.rtl.modules import ConstantTable, Module


@dataclass(frozen=True, slots=True)
class Turn:
    """One clock of a pixel: whether the beat is taken, whether a word leaves, and where everything comes from.

    `word` has, per field of the word, its place among the held ones (negative: ~place of the beat), None where it says
    nothing; `kept` are (place held, place of the beat).
    """

    takes: bool
    emits: bool
    word: tuple[int | None, ...]
    kept: tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def turns(units: int, taken: int, left: int) -> tuple[Turn, ...]:
    """The turns of a pixel of `units` that comes in words of `taken` and leaves in words of `left`."""
    found: list[Turn] = []
    beat, word = 0, 0
    while word * left < units:
        first, known, wants = beat * taken, min(units, (beat + 1) * taken), min(units, (word + 1) * left)
        emits = wants <= known
        after = word + emits
        takes = not (emits and after * left < units and min(units, (after + 1) * left) <= known)
        sources = tuple(None if not emits or c >= wants else c - word * left if c < first else ~(c - first)
                        for c in range(word * left, (word + 1) * left))
        kept = tuple((c - after * left, c - first) for c in range(max(first, after * left), known)) if takes else ()
        found.append(Turn(takes, emits, sources, kept))
        beat, word = beat + takes, after
    return tuple(found)


def regroup_engine(module_name: str, label: str, form: Format, fields: int) -> Engine:
    """An engine that takes beats of `form` and leaves words of `fields` channels."""
    output = form.in_words(fields)
    layer = MappedLayer(module_name, label, (f"{label}: {form} -> {output}.",), (form,), output)
    unit = gcd(form.fields, fields)  # as many channels as both words are multiples of
    plan = turns(-(-form.channels // unit), form.fields // unit, fields // unit)
    module, pipeline = start(layer)
    in_valid, in_data = read_stream(module, "in0", form)
    step = module.wire("step", all_of(MAY_STEP, in_valid))
    codes, at = code_of_turn(module, plan, step)
    takes = by_code(at, [const(int(t.takes)) for t in codes])
    emits = by_code(at, [const(int(t.emits)) for t in codes])
    module.output("in0_ready", all_of(MAY_STEP, takes))
    emit = module.wire("emit", all_of(step, emits))
    values = _words(module, form, fields, codes, at, step, in_data)
    steps = np.arange(form.pixels, dtype=np.int64)[:, None] * len(plan)
    consumed = np.array([i for i, t in enumerate(plan) if t.takes], dtype=np.int64)
    left = np.array([i for i, t in enumerate(plan) if t.emits], dtype=np.int64)
    asked = np.concatenate([np.zeros(1, dtype=np.int64), consumed[:-1] + 1])
    made = close(layer, module, pipeline, Staged(emit, 0), (values, 0), (steps + consumed).reshape(-1),
                 (steps + left).reshape(-1), len(plan) * form.pixels)
    return replace(made, asked_steps=(steps + asked).reshape(-1))


def code_of_turn(module: Module, plan: Sequence[Turn], step: Expr) -> tuple[list[Turn], Expr]:
    """The different turns, and the number of the current one."""
    period = next(p for p in range(1, len(plan) + 1) if len(plan) % p == 0 and tuple(plan[:p]) * (len(plan) // p) == tuple(plan))
    codes = list(dict.fromkeys(plan[:period]))
    if len(codes) == period:
        return codes, module.counter("turn", period, step) if period > 1 else const(0)
    turn, code = module.counter("turn", period, step), signal("turn_code", 0, len(codes) - 1)
    after = ConstantTable("code_after", turn.width, tuple((t, codes.index(plan[(t + 1) % period])) for t in range(period)))
    module.tables.append(after)
    module.drive(code, after.entry(turn), step, codes.index(plan[0]))
    return codes, code


def by_code(at: Expr, options: Sequence[Expr | None]) -> Expr:
    """The option of the current turn; turns without one get whichever makes the choice cheap."""
    known = [option for option in options if option is not None]
    if len(set(known)) == 1:
        return known[0]
    own: list[Expr] = []
    for index, option in enumerate(options):
        neighbour = options[index ^ 1] if index ^ 1 < len(options) else None
        own.append(option or neighbour or known[0])
    return choose(at, own)


def _words(module: Module, form: Format, fields: int, codes: Sequence[Turn], at: Expr, step: Expr,
           data: Signal) -> list[Staged]:
    """The channels of the word that leaves, in a register behind their choice."""
    unit, width = gcd(form.fields, fields), bit_width(form.lo, form.hi)
    beat: list[Expr] = [  # as one slice where it is one: simulators refuse lines of many thousand
        data.bits(place * unit * width, unit * width) if width == form.bits else
        pack([(form.channel(data, place * unit + c), width) for c in range(unit)]) for place in range(form.fields // unit)]
    held: dict[int, Signal] = {}
    for place in sorted({place for turn in codes for place, _ in turn.kept}):
        sources = [next((beat[b] for p, b in turn.kept if p == place), None) for turn in codes]
        when = any_of(*(compare("==", at, index) for index, source in enumerate(sources) if source is not None))
        keeps = all_of(step, when) if None in sources else step
        held[place] = module.register(f"held_{place}", by_code(at, sources), keeps)
    values = []
    for field in range(fields // unit):
        sources = [None if s is None else beat[~s] if s < 0 else held[s] for s in (turn.word[field] for turn in codes)]
        word: Expr = by_code(at, sources) if any(s is not None for s in sources) else const(0)
        kept = module.register(f"word_{field}", word, bounds=(0, (1 << unit * width) - 1))
        values += [Staged(module.wire(f"x{field * unit + c}", kept.field(c * width, form.lo, form.hi)), 1)
                   for c in range(unit)]
    return values
