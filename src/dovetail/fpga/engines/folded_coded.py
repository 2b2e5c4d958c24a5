"""The folded engine of a layer of codes: the window and the order of `folded.py`, lanes that count bits, codes in ROM."""

from __future__ import annotations

import numpy as np

from dovetail.cost.folds import Loops
from dovetail.errors import UsageError
from dovetail.fpga.engines.coded_lane import CodedFilters, CodedLane, coded_lane, ones_module
from dovetail.fpga.engines.folded import as_signal, begun, ended, filter_tables, heading, joined, read_rom
from dovetail.fpga.engines.layers import Layer
from dovetail.fpga.engines.lq import Planes
from dovetail.fpga.engines.sequencer import Slot
from dovetail.fpga.engines.stream import Engine, Pipeline, Staged
from dovetail.fpga.engines.words import WordTaps
from dovetail.fpga.expressions import Expr, Signal, bits, pack
from dovetail.fpga.hardware import Instance, Module
from dovetail.ir import Window


def folded_coded_engine(layer: Layer, window: Window, filters: CodedFilters, loops: Loops) -> Engine:
    """An engine that takes `loops.clocks` clocks per output pixel; taps in the padding are zero.

    The fold must divide the input channels of a group: what a word has beyond them would be counted.
    """
    if loops.channels.inputs % loops.fold.inputs or loops.fold.products != 1:
        raise UsageError(f"{layer.label}: a fold of {loops.fold} for {loops.channels.inputs} input channels of codes; it must "
                         "divide them, and no multiplier holds two products")
    pipeline, folded, slot, taps = begun(layer, window, 0, loops)
    count, both = loops.fold.inputs * window.kernel[0] * window.kernel[1], bool(filters.op.weight_bits and filters.op.input_bits)
    ones, ones_stage = ones_module(f"{layer.module}_ones", count, filters.op, loops.slices) if both else (None, 0)
    lane = coded_lane(f"{layer.module}_lane", count, filters, loops.slices, ones_stage)
    results = _lanes(pipeline, loops, slot, taps, lane, filters, ones, ones_stage)
    fifo, stages, depth = ended(layer, loops, pipeline, folded, slot, results, lane.result.value, lane.stages)
    products = loops.lanes * count
    pipeline.module.header = heading(layer, loops, folded, f"{products} products of codes at once", stages, depth)
    parts = (pipeline.module, lane.module, *([ones] if ones is not None else []), fifo)
    return Engine(parts, layer.inputs, layer.output, folded.input_steps(), folded.output_steps(), folded.steps, stages, products,
                  depth)


def code_words(loops: Loops, filters: CodedFilters) -> list[int]:
    """The ROM: for every clock the codes of all lanes, lane after lane; of a lane its planes one after another."""
    codes, op = filters.codes, filters.op
    padded = np.concatenate([codes, np.zeros((1, *codes.shape[1:]), dtype=np.int64)])
    width = filters.weight_width
    words = []
    for result in range(loops.results):
        rows = [loops.filter(result, g, o) for g in range(loops.fold.groups) for o in range(loops.fold.outputs)]
        chosen = padded[[len(codes) if row is None else row for row in rows]]
        for part in range(loops.slices):
            flat = chosen[:, part * loops.fold.inputs:(part + 1) * loops.fold.inputs].reshape(len(rows), -1)
            if not op.weight_bits:
                words.append(joined(flat.reshape(-1).tolist(), [width] * flat.size))
                continue
            planes = np.stack([flat >> i & 1 for i in range(op.weight_bits)], axis=1).reshape(-1)
            words.append(int.from_bytes(np.packbits(planes.astype(np.uint8), bitorder="little").tobytes(), "little"))
    return words


def _lanes(pipeline: Pipeline, loops: Loops, slot: Slot, taps: WordTaps, lane: CodedLane, filters: CodedFilters,
           ones: Module | None, ones_stage: int) -> list[Signal]:
    """Instances of the lane, group after group; what each filter leaves at the lane's last stage."""
    module, stage = pipeline.module, max(tap.stage for tap in taps.values())
    field = lane.module.inputs[1].width
    words = read_rom(pipeline, "weights", code_words(loops, filters), field * loops.lanes, slot.weight, stage)
    tables = filter_tables(pipeline, loops, filters.fields(), slot, stage + lane.constant_stage)
    flow = _flow(pipeline, loops, slot, stage + lane.sum_stage)
    results = list[Signal]()
    for group in range(loops.fold.groups):
        seen = module.wire(f"taps_{group}", pack(_columns(pipeline, filters, taps, group)))
        totals: list[tuple[str, Signal]] = []
        if ones is not None:
            made = [(port.name, module.net(f"{port.name}_of_{group}", port.width)) for port in ones.outputs]
            module.instances.append(Instance(ones.name, f"ones_{group}", (
                ("x", seen), *_flow(pipeline, loops, slot, stage + ones_stage), *made)))
            # Counted by themselves, they may be ready before the lanes' sums are.
            waits = lane.sum_stage - ones_stage
            totals = [(name, as_signal(pipeline.at(Staged(net, 0), waits))) for name, net in made]
        for index in range(group * loops.fold.outputs, (group + 1) * loops.fold.outputs):
            y = module.net(f"result_{index}", lane.result.value.width)
            row = module.wire(f"weights_{index}", bits(words, index * field, field))
            own = [(name, values[index]) for name, values in tables]
            module.instances.append(Instance(lane.module.name, f"lane_{index}",
                                             (("x", seen), ("w", row), *flow, *totals, *own, ("y", y))))
            results.append(y)
    return results


def _flow(pipeline: Pipeline, loops: Loops, slot: Slot, stage: int) -> list[tuple[str, Signal]]:
    """When sums over slices start and go on, as seen at a stage."""
    if loops.slices == 1:
        return []
    known = {s.name for s, _ in pipeline.module.wires}
    starts = Signal(0, 1, "starts") if "starts" in known else pipeline.module.wire("starts", slot.starts)
    return [(port, as_signal(pipeline.at(Staged(value, 0), stage)))
            for port, value in (("starts", starts), ("works", slot.works))]


def _columns(pipeline: Pipeline, filters: CodedFilters, taps: WordTaps, group: int) -> list[tuple[Expr, int]]:
    """A group's taps as lanes read them: planes of all taps one after another, or plain integers side by side."""
    keys = [key for key in sorted(taps) if key[0] == group]
    if not filters.op.input_bits:
        return [(taps[key].value, filters.input_width) for key in keys]
    planes = Planes(pipeline, f"taps_{group}", filters.op, [taps[key] for key in keys])
    found: list[tuple[Expr, int]] = []
    for j in range(filters.op.input_bits):
        for tap in range(len(keys)):
            bit = planes.bit(tap, j)
            assert bit is not None
            found.append((bit.value, 1))
    return found
