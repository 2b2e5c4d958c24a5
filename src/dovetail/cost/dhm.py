"""Costs of directly mapped hardware: engines times the clock and the coefficients of an FPGA's family.

Whether the area fits is the partitioner's question, not ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dovetail.cost.estimate import ShareCosts
from dovetail.cost.measured import hardware_rows
from dovetail.cost.power import activity_of, dynamic_power_w
from dovetail.cost.processor import free_costs
from dovetail.hardware.engines import ACCUMULATOR_BITS, PARTIAL_SUM_BITS, EngineSizes, engines_of
from dovetail.hardware.lq_engines import SOURCE
from dovetail.hardware.scans import ROUNDING_STAGES, stream_shape
from dovetail.hardware.shares import Flags, Floats, Ints, Question, shares_in
from dovetail.hardware.streaming import CREDIT_CYCLES, CREDIT_RESERVE, FIFO_LATENCY_CYCLES
from dovetail.hardware.work import joined, map_shape
from dovetail.ir import Axis, Gemm, Graph, Node
from dovetail.platform.device import Device, ModelSet
from dovetail.platform.fitted import DhmModel, dhm_model

ROWS_FAMILY = "cyclone10gx"
"""The FPGA family whose published rows the model sets `measured` and `published` go by."""
LINE_BLOCK_BITS = 1024
SKIP_BLOCK_BITS = 4096
SKIP_BLOCK_DEPTH = 64
"""Line memories and FIFOs of at least this size become RAM blocks; smaller ones, and shallow FIFOs, distributed memory."""
ABOVE = 1e-6
"""Relative margin above a device's limits, so that rounding makes nothing fit that should not."""


def dhm_costs(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints, device: Device) -> ShareCosts:
    """Costs of shares of a node that has an engine, exact however large they are."""
    return _answered(graph, [(node, ((axis, starts, stops),))], [device], np.inf)[0][0]


def dhm_answers(graph: Graph, questions: Sequence[Question], devices: Sequence[Device]) -> list[list[ShareCosts]]:
    """Costs, device by device, of shares of nodes that have engines; shares that no plan should think of never end."""
    return _answered(graph, questions, devices, max(most_adder_bits(d) for d in devices))


def most_adder_bits(device: Device) -> float:
    """Adder bits beyond which an engine alone exceeds the device."""
    cost, model = dhm_model(device.model).coefficients, dhm_model(device.model)
    limits = ((model.logic, cost["logic_per_adder_bit"]), ("register", cost["register_per_sum_bit"]))
    return min((device.resources[r] / per_bit * (1 + ABOVE) for r, per_bit in limits if r in device.resources and per_bit > 0),
               default=np.inf)


def _answered(graph: Graph, questions: Sequence[Question], devices: Sequence[Device], most_bits: float) -> list[list[ShareCosts]]:
    found: list[list[ShareCosts]] = [[None] * len(questions) for _ in devices]  # type: ignore[list-item]  # filled below
    built = [i for i, (node, _) in enumerate(questions) if not node.op.still]
    free = sorted(set(range(len(questions))).difference(built))
    edges = np.cumsum([0, *(shares_in(questions[i][1]) for i in built)]).tolist()
    engine = _offered(graph, [questions[i] for i in built], most_bits) if built else None
    known: dict[tuple[str, float | None], ShareCosts] = {}
    for d, device in enumerate(devices):
        for i in free:
            found[d][i] = free_costs(shares_in(questions[i][1]), "flattening is wiring")
        if engine is None:
            continue
        alike = (device.model, device.clock_hz)
        if alike not in known:
            known[alike] = engine_costs(engine, device)
        for i, a, b in zip(built, edges[:-1], edges[1:], strict=True):
            found[d][i] = _by_rows(graph, questions[i], known[alike].part(a, b), device)
            if questions[i][0].op.learned:
                found[d][i] = replace(found[d][i], extrapolated=np.ones(b - a, dtype=np.bool_), source=SOURCE)
    return found


def _offered(graph: Graph, questions: Sequence[Question], most_bits: float) -> EngineSizes:
    """The engines of shares, or engines that never end for shares no plan should think of."""
    engine = engines_of(graph, questions)
    if most_bits == np.inf:
        return engine
    ends = np.concatenate([_sensible(graph, node, most_bits, *own) for node, segments in questions for own in segments])
    return engine if ends.all() else replace(engine, steps=np.where(ends, engine.steps, np.inf))


def _sensible(graph: Graph, node: Node, most_bits: float, axis: Axis | None, starts: Ints, stops: Ints) -> Flags:
    """Which shares hold whole channels of what was flattened, of which a single one has no more weights than adder bits fit.

    Features of a flattened map are values of one pixel each: a device that got some of a channel's would still be sent all of it.
    """
    if axis is not Axis.INPUT_CHANNELS or not isinstance(node.op, Gemm):
        return np.ones(len(starts), dtype=np.bool_)
    _, height, width = stream_shape(graph, node.inputs[0])
    pixels = height * width
    small = pixels == 1 or pixels * node.op.units <= most_bits
    return np.asarray((starts % pixels == 0) & (stops % pixels == 0) & small)


def _by_rows(graph: Graph, question: Question, costs: ShareCosts, device: Device) -> ShareCosts:
    """The published rows' costs of a convolution, where the model set asks for them."""
    node, segments = question
    if device.models is ModelSet.PLANNING or device.family != ROWS_FAMILY or not (node.op.product and node.op.window):
        return costs
    work = joined(graph, [question])
    return hardware_rows(costs, work, device, work.read_channels / work.channels, shares_in(segments))


def engine_costs(engine: EngineSizes, device: Device) -> ShareCosts:
    """Time from the clock, area and power from the family's coefficients."""
    model = dhm_model(device.model)
    assert device.clock_hz is not None
    count = len(engine.steps)
    area = resources_of(engine, model)
    seconds = (engine.steps + engine.stages) / device.clock_hz
    fused = (engine.flush + engine.stages) / device.clock_hz
    activity = activity_of(device)
    power_w = dynamic_power_w(area, model, device.clock_hz, activity)
    spread, inside = 1 + model.clock_error, np.zeros(count, dtype=np.bool_)
    return ShareCosts(seconds, fused, seconds / spread, seconds * spread, power_w * seconds, area, inside,
                      f"DHM cycles in closed form at {device.clock_hz / 1e6:.0f} MHz; area: {model.source}, ±{model.error:.0%}; "
                      f"power: a model, {activity:.1%} toggles per clock")


def resources_of(engine: EngineSizes, model: DhmModel) -> dict[str, Floats]:
    """Logic, registers and RAM blocks of the engines."""
    cost = model.coefficients
    zero = np.zeros(len(engine.steps))
    bits, choices, blocks = _memories(engine, model)
    control = engine.control_bits + 4 * np.ceil(np.log2(fifo_words_of(engine)))  # two pointers, beats, credits
    stored = engine.accumulator_bits + engine.rounded_bits + engine.clamped_bits
    logic = (cost["logic_per_engine"] + cost["logic_per_adder_bit"] * engine.adder_bits
             + cost["logic_per_counted_bit"] * engine.counted_bits
             + cost["logic_per_adder"] * engine.adders + cost["logic_per_loop_bit"] * engine.loop_bits
             + cost["logic_per_bias_bit"] * engine.accumulator_bits + cost["logic_per_rounded_bit"] * engine.rounded_bits
             + cost["logic_per_comparison_bit"] * engine.comparison_bits
             + cost["logic_per_division_bit"] * engine.division_bits + cost["logic_per_output_bit"] * engine.clamped_bits
             + cost["logic_per_control_bit"] * control + cost["logic_per_mask_bit"] * engine.masked_bits
             + cost["logic_per_choice_bit"] * (choices + engine.choice_bits) + cost["logic_per_buffer_bit"] * bits
             + cost["logic_per_chain_bit"] * engine.chain_rows + cost["logic_per_table_bit"] * engine.table_bits)
    registers = (cost["register_per_engine"] + cost["register_per_sum_bit"] * engine.sum_bits
                 + cost["register_per_counted_bit"] * engine.counted_bits
                 + cost["register_per_output_bit"] * stored + cost["register_per_lag_bit"] * engine.lag_bits
                 + cost["register_per_control_bit"] * control + cost["register_per_chain_bit"] * engine.chain_bits
                 + engine.register_bits + engine.masked_bits)
    return {model.logic: logic + zero, "register": registers + zero, model.block: blocks,
            "dsp": cost["dsp_per_product"] * engine.products + zero}


def _memories(engine: EngineSizes, model: DhmModel) -> tuple[Floats, Floats, Floats]:
    """Bits of distributed memory, of the choices between its banks, and RAM blocks, of output FIFO, lines and skip FIFO."""
    zero = np.zeros(len(engine.steps))
    skip_limit = np.where(np.asarray(engine.skip_depth) > SKIP_BLOCK_DEPTH, float(SKIP_BLOCK_BITS), np.inf)
    memories: list[tuple[int | Floats, Floats, Floats]] = [(fifo_words_of(engine), engine.output_bits, zero + np.inf),
                                                           (engine.skip_depth, engine.skip_bits + zero, skip_limit)]
    if engine.line_bits is not None:
        memories.append((engine.line_depth, engine.line_bits, zero + LINE_BLOCK_BITS))
    bits, choices, blocks = zero, zero, zero
    for depth, width, threshold in memories:
        large = depth * width >= threshold
        capacity, banks = distributed(depth, width, model.distributed)
        bits = bits + np.where(large, 0.0, capacity)
        choices = choices + np.where(large, 0.0, np.maximum(banks - 1, 0.0) * width)
        blocks = blocks + np.where(large, ram_blocks(depth, width, model.shapes) / model.parts, 0.0)
    return bits, choices, blocks


def fifo_words_of(engine: EngineSizes) -> Floats:
    """Entries of the output FIFO: all that can be in flight."""
    flight = engine.stages + CREDIT_CYCLES - FIFO_LATENCY_CYCLES - CREDIT_RESERVE - 1
    rows, rest = np.divmod(flight, engine.row_steps)
    beats = rows * engine.row_outputs + np.minimum(engine.row_outputs, np.ceil(rest * engine.fifo_share))
    return CREDIT_RESERVE + 1 + np.asarray(np.maximum(1.0, beats), dtype=np.float64)


def distributed(depth: int | Floats, width: Floats, shapes: tuple[tuple[int, int], ...]) -> tuple[Floats, Floats]:
    """Bits of a memory in look-up tables, whole primitives of the cheapest shape counted, and the banks it is deep."""
    best, banks = np.full(np.shape(width), np.inf), np.zeros(np.shape(width))
    for words, bits in shapes:
        deep = np.ceil(np.asarray(depth, dtype=np.float64) / words)
        capacity = deep * np.ceil(width / bits) * (words * bits)
        banks, best = np.where(capacity < best, deep, banks), np.minimum(capacity, best)
    return best, banks


def ram_blocks(depth: float | Floats, width: Floats, shapes: tuple[tuple[int, int], ...]) -> Floats:
    """Blocks of a memory of `depth` words of `width` bits, in the cheapest configuration."""
    fewest = np.ceil(depth / shapes[0][0]) * np.ceil(width / shapes[0][1])
    for words, bits in shapes[1:]:
        fewest = np.minimum(fewest, np.ceil(depth / words) * np.ceil(width / bits))
    return np.asarray(fewest, dtype=np.float64)


def dhm_reductions(shapes: Sequence[tuple[int, ...]], parts: int, device: Device) -> ShareCosts:
    """Adding `parts` int32 partial sums of outputs of each shape per beat, with bias and rounding."""
    channels, height, width = np.array([map_shape(shape) for shape in shapes], dtype=np.float64).T
    one, zero = np.ones(len(shapes)), np.zeros(len(shapes))
    bits, sums = channels * 8, channels * parts * PARTIAL_SUM_BITS
    engine = EngineSizes(height * width, zero, one * (ROUNDING_STAGES + FIFO_LATENCY_CYCLES + np.ceil(np.log2(parts))), sums,
                         zero, bits, channels * ACCUMULATOR_BITS * parts + bits, zero, bits, sum_bits=sums)
    return engine_costs(engine, device)
