"""Engines without windows or adder graphs: tables of constants, and products of two streams."""

from __future__ import annotations

from dovetail.fpga.engines.layers import Compute, MappedLayer, Rescale, lowered, rescale_output
from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.engines.window import Taps
from dovetail.fpga.rtl.expressions import Signal, TableEntry, const, multiply
from dovetail.fpga.rtl.modules import ConstantTable
from dovetail.hardware.adders.graph import IntMatrix

ADDERS_PER_PRODUCT = 7
"""Of two bytes, where it is built from adders; only the size of a design is judged by it."""


def looked_up(layer: MappedLayer, tables: IntMatrix, lo: int) -> Compute:
    """Every channel through its row of constants, which starts with the entry of code `lo`; equal rows share a function."""

    def compute(pipeline: Pipeline, taps: Taps) -> tuple[list[Staged], int]:
        values, known = [], dict[tuple[tuple[int, int], ...], ConstantTable]()
        for channel, key in enumerate(sorted(taps)):
            code, stage = taps[key].value, taps[key].stage
            assert isinstance(code, Signal)
            span = range(code.lo, code.hi + 1)
            entries = tuple((c % (1 << code.width), int(tables[channel, c - lo])) for c in span)
            if len({value for _, value in entries}) == 1:
                values.append(Staged(const(entries[0][1]), 0))
                continue
            if entries not in known:
                known[entries] = ConstantTable(f"{layer.label}_table_{len(known)}", code.width, entries)
                pipeline.module.tables.append(known[entries])
            table = known[entries]
            values.append(pipeline.register(f"{layer.label}_entry_{channel}", TableEntry(table.lo, table.hi, table.name, code),
                                            stage))
        return values, 0

    return compute


def multiplied(layer: MappedLayer, zeros: tuple[int, int], rescale: Rescale) -> Compute:
    """Products of two streams less their zero points, channel by channel; one channel multiplies every one of the other."""

    def compute(pipeline: Pipeline, taps: Taps) -> tuple[list[Staged], int]:
        columns, first = [taps[key] for key in sorted(taps)], layer.inputs[0].fields
        both = (columns[:first], columns[first:])
        left, right = ([lowered(pipeline, f"{layer.label}_in{i}_{c}", x, zeros[i]) for c, x in enumerate(side)]
                       for i, side in enumerate(both))
        values = []
        for channel in range(layer.output.fields):
            name = f"{layer.label}_product_{channel}"
            a, b = (side[min(channel, len(side) - 1)] for side in (left, right))
            stage = max(a.stage, b.stage)
            product = pipeline.register(name, multiply(pipeline.at(a, stage), pipeline.at(b, stage)), stage)
            values.append(rescale_output(pipeline, name, product, 0, rescale, channel))
        return values, ADDERS_PER_PRODUCT * len(values)

    return compute
