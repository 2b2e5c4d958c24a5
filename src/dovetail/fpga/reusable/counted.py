"""From the words that an array reads which counts bits to the values that it writes: operands, counters, constants, finishing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.reusable.array import ArrayIssue, delayed, own_jobs
from dovetail.fpga.reusable.counting import (
    ConstantWords,
    LeavingCounts,
    counts_finisher,
    final_stage,
    finishing_pins,
    leave_counts,
    place_counters,
    plane_bits,
    shared_pins,
)
from dovetail.fpga.reusable.feed import Fill
from dovetail.fpga.reusable.image import layer_fields, lift_options
from dovetail.fpga.reusable.lanes import Finisher
from dovetail.fpga.reusable.numbers import BlockNumbers
from dovetail.fpga.reusable.storage import WideMemory, filled_memory
from dovetail.fpga.rtl.expressions import Signal, all_of, bits, pack
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.hardware.arrays.jobs import ARRAY, ARRAY_SLOTS, FACTOR_BYTES, ArrayProgram, factor_bytes, final_words

WORD_STAGE = 2
"""Stage of a word out of its bank."""
OPERAND_STAGE = 3
"""Stage of the array's operands: extended words and weights."""
CONSTANT_STAGE = 2
"""Stage of a word's constants, behind the word itself."""


@dataclass(frozen=True, slots=True)
class WrittenValues:
    """Values of a word that is written, so many stages behind `valid`."""

    values: Sequence[Signal]
    valid: Signal
    stages: int


def count_words(m: Module, pipeline: Pipeline, program: ArrayProgram, numbers: BlockNumbers, front: ArrayIssue, word: Signal,
                fill: Fill, other_of: Callable[[Signal, Finisher], Signal]) -> tuple[WrittenValues, list[Module]]:
    """What the array writes, and its modules; `other_of` reads the other operand of additions."""
    config, jobs, counts, beats = program.config, own_jobs(program, ARRAY), numbers.counts, fill.weights[ARRAY]
    assert counts is not None
    assert beats is not None
    x = m.wire("array_operands", pack([(bit, 1) for bit in plane_bits(m, pipeline, config, front, word, WORD_STAGE)]))
    weights = filled_memory(m, "array_weights", config.inputs * config.outputs * config.weight_planes,
                            ARRAY_SLOTS * program.weight_depth, beats, delayed(pipeline, front.weight, OPERAND_STAGE - 2, ""))
    counted, modules = place_counters(m, pipeline, config, counts.most, x, weights, front, OPERAND_STAGE)
    leaving = leave_counts(m, pipeline, front, counted, config.block_words, program.constant_depth)
    adds = numbers.add_shift if any(j.residual is not None for j in jobs) else 0
    finisher = counts_finisher(f"{m.name}_array_finish", config, counts, lift_options(numbers), adds, max(j.passes for j in jobs),
                               config.block_words)
    kept = _constants(m, pipeline, program, numbers, fill, leaving, final_stage(finisher.enters))
    valid = m.wire("array_results", all_of(leaving.valid, leaving.closes))
    other = other_of(valid, finisher) if adds else None
    size, width = config.value_bits, counted.ones.width // config.input_planes
    pins = [*shared_pins(m, pipeline, finisher, leaving, CONSTANT_STAGE).items(),
            *layer_pins(pipeline, numbers, "array", finisher, kept.final, config.inputs * final_words(config) * 32,
                        final_stage(finisher.enters))]
    outputs = []
    for k in range(config.inputs):
        y = m.net(f"array_y_{k}", size)
        own = finishing_pins(m, pipeline, config, finisher, leaving, kept, CONSTANT_STAGE, k, width)
        if other is not None:
            own.append(("other", m.wire(f"array_other_{k}", bits(other, k * size, size))))
        m.instances.append(Instance(finisher.module.name, f"array_finish_{k}", (*own, *pins, ("y", y))))
        outputs.append(y)
    return WrittenValues(outputs, valid, CONSTANT_STAGE + finisher.stages), [*modules, finisher.module]


def _constants(m: Module, pipeline: Pipeline, program: ArrayProgram, numbers: BlockNumbers, fill: Fill, leaving: LeavingCounts,
               late: int) -> ConstantWords:
    """The memories of factors, read with the counts, and of what finished sums meet, read `late` stages behind them."""
    config, depth, beats = program.config, ARRAY_SLOTS * program.constant_depth, fill.constants[ARRAY]
    assert beats is not None
    shared = sum(n for _, _, n in layer_fields(numbers, numbers.layers[0]))
    size = config.inputs * config.pairs * FACTOR_BYTES * 8
    factors = filled_memory(m, "array_factors", size, depth, beats, leaving.constant, 0)
    final = filled_memory(m, "array_final", config.inputs * final_words(config) * 32 + shared, depth, beats,
                          delayed(pipeline, leaving.constant, late, ""), factor_bytes(config) // config.port_bytes)
    return ConstantWords(factors, final)


def layer_pins(pipeline: Pipeline, numbers: BlockNumbers, name: str, finisher: Finisher, constants: WideMemory, start: int,
               known: int) -> list[tuple[str, Signal]]:
    """The layer's fields that a finisher asks for, each when it is needed; constants are there `known` stages behind sums."""
    at, pins = start, list[tuple[str, Signal]]()
    for key, _, count in layer_fields(numbers, numbers.layers[0]):
        if key in finisher.enters:
            now = Staged(constants.slice(pipeline.module, f"{name}_{key}_now", at, count), known)
            late = pipeline.at(now, finisher.enters[key])
            assert isinstance(late, Signal)
            pins.append((key, late))
        at += count
    return pins
