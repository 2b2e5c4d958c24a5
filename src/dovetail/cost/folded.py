"""What a folded layer costs, and which fold a device takes for it.

A device with the parameter `pace_clocks` may share multipliers as long as no layer takes more clocks than that per frame. For
every layer (or share of one) the fold is chosen that needs the smallest parts of the device, added up over its resources;
direct mapping is kept where the largest of its parts is no larger. The choice depends on nothing but the share and
the device, so whoever builds a plan finds the folds its costs were made of.

Area in bits and words is counted as the engine is built (fpga/engines/folded.py); the family's coefficients turn it into cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, log2, prod

import numpy as np

from dovetail.cost.coded_folds import CodedShape, best_coded_fold
from dovetail.cost.dhm import LINE_BLOCK_BITS, SKIP_BLOCK_BITS, SKIP_BLOCK_DEPTH, dhm_costs, ram_blocks
from dovetail.cost.estimate import Question, ShareCosts
from dovetail.cost.folds import Channels, Fold, Loops, channels_of
from dovetail.cost.power import power_w
from dovetail.cost.rounding import HEADROOM_BITS, input_bits
from dovetail.cost.scans import window_of
from dovetail.cost.soft import soft_logic
from dovetail.cost.streaming import FIFO_LATENCY_CYCLES, FoldedRaster, Raster
from dovetail.ir import Add, AvgPool, Axis, Clip, Coded, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Mul, Node, Reshape, Window
from dovetail.ir.lq import steps_of
from dovetail.platform.device import Device
from dovetail.platform.fitted import DhmModel, dhm_model

PRODUCTS = "products_per_dsp"
"""The parameter of a device: products that one multiplier block can make, where that is not what its family's can."""
PACE = "pace_clocks"
"""The parameter of a device: clocks per frame that a folded layer may take."""
ROUNDING_STAGES = 3
"""Clock edges from a sum to its place in the output beat: bias, lift, saturation."""
REGROUP_STAGES = 1 + FIFO_LATENCY_CYCLES
"""Clock edges of what cuts pixels anew in front of an engine."""
SPREAD = 4
"""Scales among the filters of a layer, of which each lane chooses."""
BIAS_BITS = 20
WORD_OPERATORS = (Add, AvgPool, Clip, GlobalAvgPool, MaxPool, Mul)
"""Operators whose engines do the same to every channel, so that few of them at a time will do."""
LEAST_FIELDS = 8
"""Channels at once that folded layers mostly leave at least."""
FIFO_WORDS = 4
"""Beats of an output FIFO that rarely has more than one in flight."""
SMALL_MEMORY_WORDS = {"lut4": 16}
LUT_MEMORY_WORDS = 32
"""Words that a distributed memory has at least, however few are used; fewer where look-up tables have four inputs."""
WEIGHT_BITS = 8
UNUSED_SUM_BITS = 2
"""Bits by which sums of many weights stay below the largest such sum: their range is that of the real weights."""
TWIN_PARTS = 4
"""Products that are added before two filters in one multiplier are taken apart."""
TWIN_MODELS = frozenset({"dhm-xcu", "dhm-xcup"})
"""Families whose multiplier blocks are 27 x 18 bits, which is enough for two products (UltraScale DSP slices, UG579)."""
SETTLED = 2.0
"""Logic per output bit of ties, lower and upper bound."""
REGROUP_LOGIC = 60.0
"""Logic of counters and handshakes of what cuts pixels anew and keeps them waiting in front of an engine."""
WAITING_PIXELS = 4
"""Pixels in the FIFO in front of an engine, which bridges its neighbour's pauses; a mean of MobileNetV2's."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A layer or a share of one, as far as its fold depends on it."""

    channels: Channels
    window: Window
    height: int
    width: int
    input_bits: int
    output_bits: int
    """Per channel of the output beat: 8, or 32 for partial sums."""
    weight_bits: int = WEIGHT_BITS

    @property
    def raster(self) -> Raster:
        """The window over the stream, behind explicit padding where masks cannot express it."""
        raster = Raster(self.window, self.height, self.width)
        if raster.masks_suffice:
            return raster
        top, left, bottom, right = self.window.pads
        return Raster(replace(self.window, pads=(0, 0, 0, 0)), self.height + top + bottom, self.width + left + right)


@dataclass(frozen=True, slots=True)
class FoldedCost:
    """A fold of a layer: clocks per frame, clocks it adds behind an equally slow producer, and what it occupies."""

    fold: Fold
    steps: int
    tail: int
    stages: int
    resources: tuple[tuple[str, float], ...]


def folded_cost(shape: Shape, fold: Fold, model: DhmModel) -> FoldedCost:
    """Cycles and area of one fold."""
    loops, raster = Loops(shape.channels, fold), shape.raster
    folded = FoldedRaster(raster, loops)
    taps = prod(shape.window.kernel)
    products = fold.inputs * taps
    stages = (folded.stages + 1 + ceil(log2(products)) + (loops.slices > 1) + ROUNDING_STAGES + REGROUP_STAGES
              + FIFO_LATENCY_CYCLES)
    tail = max(raster.flush * loops.clocks, raster.first * folded.words) + loops.clocks
    return FoldedCost(fold, folded.steps, tail, stages, resources_of(content_of(shape, loops, folded), loops, folded, model))


def _tree_bits(products: int, width: int) -> tuple[int, int]:
    """Widths of all adders of a balanced tree, and of the registers in which odd ends wait."""
    total, odd, count = 0, 0, products
    while count > 1:
        odd += count % 2 * width
        width += 1
        total += count // 2 * width
        count -= count // 2
    return total, odd


def _distinct(depth: int, width: int) -> int:
    """Columns of a memory of constants that differ: tools build equal ones once."""
    return min(width, 1 << min(depth, 30))


@dataclass(frozen=True, slots=True)
class Content:
    """What an engine is made of, in bits; memories as (words, width, whether they are constant)."""

    adders: int
    choices: int
    masked: int
    registers: int
    rounded: int
    multipliers: int
    lines: tuple[int, int]
    soft: tuple[int, int, int]
    """Products in logic, and the bits of their activations and weights."""
    memories: tuple[tuple[int, int, bool], ...]
    """Weights, constants, output FIFO, window, and in front of it what cuts pixels anew and what keeps them waiting."""
    regroups: bool = True

    def without(self, leaves: bool, enters: bool, width: int) -> Content:
        """Less the FIFO behind it, or less what is in front of it, whose beats have `width` bits: other engines are there."""
        kept = self.memories[:2] + (() if leaves else self.memories[2:3]) + self.memories[3:4] + (
            () if enters else self.memories[4:])
        less = width if enters else 0
        return replace(self, memories=kept, regroups=self.regroups and not enters, adders=self.adders - less,
                       registers=int(self.registers - 2.5 * less))


def content_of(shape: Shape, loops: Loops, folded: FoldedRaster, turned: bool = False) -> Content:
    """Bits of a folded engine, part by part as it is built; with `turned` all passes go over a word as it comes."""
    fold, window, windowed, lanes = loops.fold, shape.window, not folded.raster.pointwise, loops.lanes
    word, taps = fold.groups * fold.inputs * shape.input_bits, prod(window.kernel)
    products = fold.inputs * taps
    adders, in_lanes, sum_bits = _lane_bits(shape, loops, products)
    width = shape.weight_bits * lanes if not loops.twins else (2 * shape.weight_bits + 1) * loops.twins
    weights, lines = products * width, (window.reach[0] - 1) * word if windowed else 0
    again = loops.passes > 1 and loops.slices > 1 and not turned
    kept = window.kernel[0] * (window.reach[1] - (not again)) * word if windowed and loops.words > 1 else 0
    kept += word if again and not windowed and loops.reads_words else 0
    masked, constants = taps * word if folded.raster.masked else 0, lanes * (BIAS_BITS + 2)
    in_window = (window.kernel[0] * window.reach[1] * word if windowed else 0) + lines + masked + kept
    pixel, beat = loops.channels.groups * loops.channels.inputs * 8, loops.channels.groups * loops.channels.outputs
    whole = (0 if loops.reads_words else pixel) + (0 if loops.writes_words and not turned else beat * shape.output_bits)
    whole += (loops.passes - 1) * lanes * sum_bits if turned and loops.slices > 1 else 0
    shallow = 0.5 * (_distinct(loops.clocks, weights) * (loops.clocks <= SKIP_BLOCK_DEPTH) + constants)
    left = loops.output_width * shape.output_bits
    regrouped = loops.input_width * shape.input_bits  # in front of an engine pixels are mostly cut anew
    return Content(
        lanes * adders + regrouped, (0 if loops.reads_words else (loops.words - 1) * word) + lanes * (SPREAD - 1) * sum_bits
        + (taps * word if windowed and kept and again else kept), masked,
        int(lanes * in_lanes + in_window + whole + 2 * word + left + _distinct(loops.clocks, weights) + constants + shallow
            + 2.5 * regrouped), lanes * 8, 0 if loops.soft else products * (loops.twins or lanes),
        (0, 0) if folded.line_in_registers else (folded.raster.width * folded.words, lines),
        (products * lanes if loops.soft else 0, shape.input_bits, shape.weight_bits),
        ((loops.clocks, weights, True), (loops.results, constants, True), (FIFO_WORDS, left, False),
         (loops.words if windowed else loops.slices, kept, False), (FIFO_WORDS, regrouped, False),
         (WAITING_PIXELS * (loops.words if loops.reads_words else 1), regrouped, False)))


def _lane_bits(shape: Shape, loops: Loops, products: int) -> tuple[int, int, int]:
    """Of one filter: widths of its adders, its registers, and the width of its sum."""
    product = shape.input_bits + shape.weight_bits
    total = product + max(0, ceil(log2(products * loops.slices)) - UNUSED_SUM_BITS)
    tree, odd = _tree_bits(products, product)
    adders, registers = tree + total * (1 + (loops.slices > 1)), products * product + tree + odd
    if loops.twins:
        parts = -(-products // TWIN_PARTS)
        adders, registers = adders + parts * product // 2, registers + parts * product
    return adders, registers + total * (2 + (loops.slices > 1)), total


def control_bits(loops: Loops, folded: FoldedRaster) -> int:
    """Widths of counters: those of the raster, of the rounds, and of the output FIFO and its credits."""
    rounds = sum((count - 1).bit_length() for count in (loops.blocks, loops.slices, loops.passes, loops.clocks))
    return folded.raster.counter_bits + rounds + 4 * (FIFO_WORDS - 1).bit_length()


def resources_of(content: Content, loops: Loops, folded: FoldedRaster, model: DhmModel) -> tuple[tuple[str, float], ...]:
    """An engine's content by the family's coefficients."""
    cost = model.coefficients
    blocks, small = 0.0, 0.0
    depth, width = content.lines
    if depth * width >= LINE_BLOCK_BITS:
        blocks = _blocks(depth, width, model)
    else:
        small = cost["logic_per_buffer_bit"] * depth * width
    for depth, width, constant in content.memories:
        always = constant and depth > 1 and not cost["logic_per_rom_bit"]  # the family's tools put any constants into blocks
        if always or (depth > SKIP_BLOCK_DEPTH and depth * width >= SKIP_BLOCK_BITS):
            blocks += _blocks(depth, width, model)
        elif depth > 1:
            least = SMALL_MEMORY_WORDS.get(model.logic, LUT_MEMORY_WORDS)
            words = depth if constant and model.logic == "lut" else ceil(depth / least) * least
            small += (cost["logic_per_rom_bit"] * words * _distinct(depth, width) if constant
                      else cost["logic_per_buffer_bit"] * words * width)
    rounded, control = content.rounded + HEADROOM_BITS * loops.lanes, control_bits(loops, folded)
    logic = (cost["logic_per_adder_bit"] * content.adders + cost["logic_per_rounded_bit"] * rounded
             + (cost["logic_per_output_bit"] + SETTLED) * content.rounded + REGROUP_LOGIC * content.regroups
             + cost["logic_per_mask_bit"] * content.masked + cost["logic_per_choice_bit"] * content.choices
             + cost["logic_per_control_bit"] * control + small)
    count, *widths = content.soft
    if count:
        logic += count * soft_logic(model.logic, *widths)
    registers = (content.registers + cost["register_per_control_bit"] * control
                 + cost["register_per_output_bit"] * (content.rounded + rounded))
    return ((model.logic, logic), ("register", registers), (model.block, blocks),
            ("dsp", cost["dsp_per_product"] * content.multipliers))


def _blocks(depth: int, width: int, model: DhmModel) -> float:
    return float(ram_blocks(depth, np.array([float(width)]), model.shapes)[0]) / model.parts


def folds_within(shape: Shape, clocks: int) -> list[Fold]:
    """Folds of at most `clocks` clocks per frame that use no more multipliers than each number of slices asks for."""
    raster, channels = shape.raster, shape.channels
    found: set[Fold] = set()
    for groups in {1, *_rounds(channels.groups)}:
        for inputs in {channels.inputs, *(_rounds(channels.inputs) if groups == 1 else ())}:
            loops = Loops(channels, Fold(groups, inputs, channels.outputs))
            passes = (clocks - (raster.steps - raster.outputs) * loops.words) // (raster.outputs * loops.words)
            if passes >= 1:
                outputs = -(-channels.outputs // min(passes, channels.outputs))
                found.add(Fold(groups, inputs, outputs))
    return sorted(found, key=lambda f: f.sizes)


def _rounds(count: int) -> set[int]:
    """The smallest numbers at once for every number of rounds: as few as leave no smaller number of rounds unused."""
    return {-(-count // rounds) for rounds in range(1, count + 1)}


def twins_allowed(device: Device) -> bool:
    """Whether a multiplier block of the device can make two products: its family says so, unless the board says otherwise."""
    return device.model in TWIN_MODELS and device.parameters.get(PRODUCTS, 2.0) >= 2


def folds_offered(shape: Shape, twins: bool, clocks: int, soft: bool = False) -> list[Fold]:
    """`folds_within`, and where multiplier blocks are wide enough for `twins`, also with two products in each.

    With `soft` also with all products in logic, for devices whose multiplier blocks run out.
    """
    folds = folds_within(shape, clocks)
    found = folds + ([replace(fold, products=2) for fold in folds if fold.outputs > 1] if twins else [])
    return found + ([replace(fold, products=0) for fold in folds] if soft else [])


@lru_cache(maxsize=65536)
def best_fold(shape: Shape, model_name: str, resources: tuple[tuple[str, float], ...], clocks: int,
              twins: bool = False) -> FoldedCost | None:
    """The fold of at most `clocks` clocks per frame that needs the smallest parts of a device; None if there is none."""
    model, limits = dhm_model(model_name), dict(resources)
    found = [folded_cost(shape, fold, model) for fold in folds_offered(shape, twins, clocks)]
    return min(found, key=lambda c: (sum_of_parts(dict(c.resources), limits), c.steps), default=None)


def sum_of_parts(used: Mapping[str, float], limits: Mapping[str, float]) -> float:
    """The parts of all resources that are used, added up; resources without a limit are free."""
    return sum(amount / limits[r] for r, amount in used.items() if limits.get(r))


def largest_part(used: Mapping[str, float], limits: Mapping[str, float]) -> float:
    """The part of the resource of which most is used; resources without a limit are free."""
    return max((amount / limits[r] for r, amount in used.items() if limits.get(r)), default=0.0)


def coded_shape(graph: Graph, node: Node, axis: Axis | None = None, start: int = 0, stop: int = 1) -> CodedShape:
    """A layer of codes, or the units [start, stop) of an axis of it."""
    op = node.op
    assert isinstance(op, Coded)
    plain = shape_of(graph, replace(node, op=op.body), axis, start, stop)
    return CodedShape(plain.channels, plain.window.kernel, plain.raster, op.weight_bits, op.input_bits,
                      op.weight_bits or WEIGHT_BITS, plain.input_bits, steps_of(op.output_bits) if op.output_bits else 0)


def shape_of(graph: Graph, node: Node, axis: Axis | None = None, start: int = 0, stop: int = 1) -> Shape:
    """A Conv or Gemm, or the units [start, stop) of an axis of it."""
    op = node.op
    assert isinstance(op, Conv | Gemm)
    window, channels, height, width = window_of(graph, node)
    filters = graph.shape(node.output)[1]
    has = channels_of(op, channels, filters)
    partial = op.partial or axis is Axis.INPUT_CHANNELS
    match axis:
        case Axis.OUTPUT_CHANNELS:
            has = replace(has, outputs=(stop - start) // has.groups)
        case Axis.INPUT_CHANNELS:
            has = replace(has, inputs=-(-(stop - start) * has.inputs // node.op.extent(axis, graph.input_shapes(node))))
        case Axis.GROUPS:
            has = replace(has, groups=stop - start)
        case Axis.ROWS:
            window, (first, last) = window.rows(start, stop, height)
            height = last - first
    return Shape(has, window, height, width, int(input_bits(graph, node)), 32 if partial else 8, weight_bits(graph, node))


def weight_bits(graph: Graph, node: Node) -> int:
    """Bits of a layer's weights; eight where they are not quantized yet."""
    scheme = graph.constants[node.params[0]].scheme
    return WEIGHT_BITS if scheme is None else scheme.bits


def pace_of(device: Device) -> int | None:
    """Clocks per frame that the device allows a layer; None where everything is mapped directly."""
    pace = device.parameters.get(PACE)
    return None if pace is None else int(pace)


def chosen_fold(graph: Graph, node: Node, device: Device, direct: Mapping[str, float], axis: Axis | None = None, start: int = 0,
                stop: int = 1) -> FoldedCost | None:
    """The fold a device takes for a share whose direct mapping needs `direct`; None where it is mapped directly."""
    pace = pace_of(device)
    if pace is None or not isinstance(node.op, Conv | Gemm | Coded):
        return None
    limits, found = tuple(sorted(device.resources.items())), None
    if not isinstance(node.op, Coded):
        found = best_fold(shape_of(graph, node, axis, start, stop), device.model, limits, pace, twins_allowed(device))
    elif coded := best_coded_fold(coded_shape(graph, node, axis, start, stop), device.model, limits, pace):
        found = FoldedCost(*coded)
    if found is None or largest_part(direct, device.resources) <= largest_part(dict(found.resources), device.resources):
        return None
    return found


def folds_of(graph: Graph, device: Device) -> dict[str, Fold]:
    """The folds of a graph's nodes on a device, as its costs assume them."""
    found: dict[str, Fold] = {}
    one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    for node in graph.nodes:
        if pace_of(device) is not None and isinstance(node.op, Conv | Gemm | Coded):
            direct = dhm_costs(graph, node, None, *one, device).resources
            chosen = chosen_fold(graph, node, device, {r: float(v[0]) for r, v in direct.items()})
            if chosen is not None:
                found[node.name] = chosen.fold
    return found


def paced_costs(graph: Graph, question: Question, direct: ShareCosts, device: Device) -> ShareCosts:
    """Costs of shares on a device that may fold them, from those of direct mapping; the same where it may not.

    Every share alone takes at least the pace, since one that is slower behind it would make it wait. Behind its producer it
    adds what it still does after the last beat, or, if that is more, what fills its window at the pace of the stream.
    """
    pace = pace_of(device)
    if pace is None or device.clock_hz is None:
        return direct
    node, segments = question
    second, index, folded = 1 / device.clock_hz, 0, False
    fill = _filled(graph, node) * pace
    alone, fused = np.maximum(direct.alone_s, pace * second), np.maximum(direct.fused_s, fill * second)
    energy = direct.energy_j.copy()
    part = word_part(graph, node, device)
    resources = {r: v * part if r in (dhm_model(device.model).logic, "register", "dsp") else v.copy()
                 for r, v in direct.resources.items()}
    for axis, starts, stops in segments:
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            needs = {r: float(v[index]) for r, v in direct.resources.items()}
            chosen = chosen_fold(graph, node, device, needs, axis, start, stop)
            if chosen is not None:
                used, folded = dict(chosen.resources), True
                alone[index] = max(pace, chosen.steps + chosen.stages) * second
                fused[index] = (max(chosen.tail, fill) + chosen.stages) * second
                energy[index] = power_w(used, device) * chosen.steps * second
                for r, values in resources.items():
                    values[index] = used.get(r, 0.0)
            index += 1
    spread = 1 + dhm_model(device.model).clock_error
    source = f"{direct.source}; multipliers shared, at most {pace} clocks per frame" if folded else direct.source
    return ShareCosts(alone, fused, alone / spread, alone * spread, energy, resources, direct.extrapolated, source)


def word_part(graph: Graph, node: Node, device: Device) -> float:
    """The part of its channels that a layer without weights works on at once behind folded ones; 1 where it takes whole pixels.

    Which one is its neighbours' choice: at least what keeps the pace, and mostly a few more.
    """
    pace, shape = pace_of(device), graph.shape(node.output)
    if pace is None or not isinstance(node.op, WORD_OPERATORS) or len(shape) != 4:
        return 1.0
    channels, (height, width) = shape[1], graph.shape(node.inputs[0])[2:]
    fields = max(LEAST_FIELDS, 2 * ceil(channels * height * width / pace))
    return min(1.0, fields / channels)


def _filled(graph: Graph, node: Node) -> float:
    """The part of a frame that a node's window holds before its first output."""
    if isinstance(node.op, Reshape):
        return 0.0
    window, _, height, width = window_of(graph, node)
    return max(0, Raster(window, height, width).first) / (height * width)
