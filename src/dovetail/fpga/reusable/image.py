"""The image of weights that a block reads from memory, from its first beat to its last, once a frame.

Jobs follow each other in the order of the layer program; those that do the same for other rows share their beats. A job is

    its weights:    array, for every kernel row, kernel column and input word: for every filter of the block's output words, one
                    byte per channel of the word; depthwise array, for every phase: for every channel, one byte per tap;
                    each such word begins with a beat of its own and ends with zeros;
    its constants:  for every output word: per filter the bias and the multiplier (four bytes each, lowest byte first), then
                    eight bytes of the layer (`layer_fields`), zeros to the end of the beat.

Where the array counts bits, its weights are, for every group of planes, kernel row, kernel column and input word: for every
filter, for every plane of the group, one bit per channel. Its constants are, for every time that a pixel is worked on and every
output word: per filter the factor of every pair of planes (four bytes), zeros to the end of the beat, per filter the thresholds,
or bias and multiplier (four bytes each), then twelve bytes of the layer.

Taps of the depthwise array are numbered from the newest pixel outwards (`tap_order`), so that a kernel of k x k uses the first
k * k of them. Channels and filters that do not exist are zeros.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.fpga.reusable.numbers import NEVER, BlockNumbers, Ints, LayerNumbers, PlaneForm
from dovetail.hardware.arrays import jobs
from dovetail.hardware.arrays.jobs import ArrayProgram, Job
from dovetail.hardware.arrays.layers import ArrayLayer

Octets = NDArray[np.uint8]


def tap_order(kernel: int) -> list[tuple[int, int]]:
    """Taps as ages (rows, columns) before the newest pixel: those of a smaller kernel come before those of a larger one."""
    return sorted(((a, b) for a in range(kernel) for b in range(kernel)), key=lambda t: (max(t), t))


def lift_options(numbers: BlockNumbers) -> tuple[list[int], list[int]]:
    """Left shifts that additions choose from: of the convolution's output, of the other operand."""
    adds = [x.added for x in numbers.layers if x.added is not None]
    return sorted({a.own_lift for a in adds}), sorted({a.other_lift for a in adds})


def cut_bits(numbers: BlockNumbers) -> int:
    """Bits that say what a layer's average cuts off, if it is one."""
    return index_bits(1 + max(len(e.cuts) for e in numbers.engines if e is not None) if any(numbers.engines) else 1)


def gate_options(numbers: BlockNumbers) -> list[int]:
    """Left shifts of the other operand that products of maps choose from."""
    return sorted({x.gate.lift for x in numbers.layers if x.gate is not None})


def layer_fields(numbers: BlockNumbers, layer: LayerNumbers) -> list[tuple[str, int, int]]:
    """(name, value, bits) of what all filters of a layer share, lowest bits first."""
    own, other = lift_options(numbers)
    added, wide = layer.added, bound_bits(numbers.value_bits)
    fields = [("low", layer.bounds[0], wide), ("high", layer.bounds[1], wide), ("cut", layer.cut, cut_bits(numbers)),
              ("adds", int(added is not None), 1)]
    if own:
        bounds = (0, 0) if added is None else added.bounds
        fields += [("sum_low", bounds[0], wide), ("sum_high", bounds[1], wide),
                   ("own_lift", 0 if added is None else own.index(added.own_lift), index_bits(len(own))),
                   ("other_lift", 0 if added is None else other.index(added.other_lift), index_bits(len(other)))]
    gates, tables = gate_options(numbers), max(map(len, numbers.tables))
    if own or gates:
        signed = layer.gate.signed if layer.gate is not None else added is not None and added.other_signed
        fields.append(("other_signed", int(signed), 1))
    if gates:
        fields += [("gates", int(layer.gate is not None), 1),
                   ("gate_lift", 0 if layer.gate is None else gates.index(layer.gate.lift), index_bits(len(gates)))]
    if tables:
        fields += [("looks_up", int(layer.table is not None), 1), ("table_index", layer.table or 0, index_bits(tables))]
    if numbers.counts is not None:
        fields.append(("codes", int(layer.planes is not None and layer.planes.steps is not None), 1))
    return fields


def bound_bits(value_bits: int) -> int:
    """Bits of a bound of values of so many bits, signed or not."""
    return value_bits + 1


def index_bits(count: int) -> int:
    return max(1, (count - 1).bit_length())


def weight_image(program: ArrayProgram, numbers: BlockNumbers) -> Octets:
    """The image, shaped (beats, bytes of a beat)."""
    once = {(job.layer, job.first): job for job in program.jobs[::-1]}
    return np.concatenate([_job_beats(program, numbers, job) for job in program.jobs if once[job.layer, job.first] is job])


def image_text(image: Octets) -> str:
    """A beat per line, hexadecimal, highest byte first."""
    return "".join(f"{row[::-1].tobytes().hex()}\n" for row in image)


def _job_beats(program: ArrayProgram, numbers: BlockNumbers, job: Job) -> Octets:
    config, layer, own = program.config, program.layers.layers[job.layer], numbers.layers[job.layer]
    if own.planes is not None:
        rows, values = _plane_rows(program, layer, own.planes, job), _counted_constants(program, own, own.planes, job)
    else:
        rows = _array_rows(program, layer, own, job) if job.engine == jobs.ARRAY else _depthwise_rows(program, layer, own, job)
        values = _constants(program, layer, own, job)
    shared = at = 0
    for _, value, bits in layer_fields(numbers, own):
        shared, at = shared | (value & ((1 << bits) - 1)) << at, at + bits
    tail = np.frombuffer(shared.to_bytes(jobs.layer_bytes(config), "little"), dtype=np.uint8)
    constants = np.hstack([values, np.broadcast_to(tail, (len(values), len(tail)))])
    beats = [_beats(rows, config.port_bytes), _beats(constants, config.port_bytes)]
    assert [len(part) for part in beats] == [job.weight_beats, len(values) * jobs.constant_beats_per_word(config, job.engine)]
    return np.concatenate(beats)


def _constants(program: ArrayProgram, layer: ArrayLayer, own: LayerNumbers, job: Job) -> Octets:
    """Bias and multiplier of every filter, word after word."""
    config = program.config
    filters = range(job.first * config.inputs, min((job.first + job.words) * config.inputs, layer.writes.channels))
    pairs = np.zeros((job.words * config.inputs, jobs.CONSTANT_BYTES // 4), dtype=np.uint32)
    pairs[:len(filters), 0] = own.bias[filters.start:filters.stop].astype(np.int32).view(np.uint32)
    pairs[:len(filters), 1] = np.array(own.multipliers[filters.start:filters.stop], dtype=np.uint32)
    return pairs.astype("<u4").view(np.uint8).reshape(job.words, -1)


def _counted_constants(program: ArrayProgram, own: LayerNumbers, form: PlaneForm, job: Job) -> Octets:
    """Pass after pass and word after word: factors of every filter's pairs of planes, then thresholds, or bias and multiplier."""
    config = program.config
    lanes, start = job.words * config.inputs, job.first * config.inputs
    count = min(lanes, len(form.factors) - start)
    factors = np.zeros((lanes, job.turns * config.weight_planes, job.rounds * config.input_planes), dtype=np.int64)
    factors[:count, :form.factors.shape[1], :form.factors.shape[2]] = form.factors[start:start + count]
    ordered = factors.reshape(job.words, config.inputs, job.turns, config.weight_planes, job.rounds, config.input_planes)
    packed = ordered.transpose(2, 4, 0, 1, 3, 5).reshape(job.passes * job.words, -1).astype("<i4").view(np.uint8)
    assert packed.shape[1] == config.inputs * config.pairs * jobs.FACTOR_BYTES
    final = np.zeros((lanes, jobs.final_words(config)), dtype=np.int64)
    if form.steps is None:
        final[:count, 0] = own.bias[start:start + count]
        final[:count, 1] = np.array(own.multipliers[start:start + count])
    else:
        final[:] = NEVER
        final[:count, :form.steps.shape[1]] = form.steps[start:start + count]
    numbers = (final & 0xFFFFFFFF).astype("<u4").view(np.uint8).reshape(job.words, -1)
    found = np.zeros((job.passes * job.words, jobs.factor_bytes(config) + numbers.shape[1]), dtype=np.uint8)
    found[:, :packed.shape[1]], found[:, jobs.factor_bytes(config):] = packed, np.tile(numbers, (job.passes, 1))
    return found


def _beats(rows: Octets, port_bytes: int) -> Octets:
    """Every row in beats of its own."""
    each = -(-rows.shape[1] // port_bytes)
    padded = np.zeros((len(rows), each * port_bytes), dtype=np.uint8)
    padded[:, :rows.shape[1]] = rows
    return padded.reshape(-1, port_bytes)


def _array_rows(program: ArrayProgram, layer: ArrayLayer, own: LayerNumbers, job: Job) -> Octets:
    """Weights of a filter block as (kernel row, kernel column, input word) x (filter, channel)."""
    rows = _dense(program, layer, own.weights, job)
    return rows.reshape(len(rows), -1).astype(np.int8).view(np.uint8)


def _plane_rows(program: ArrayProgram, layer: ArrayLayer, form: PlaneForm, job: Job) -> Octets:
    """Bits of weights as (group of planes, kernel row, kernel column, input word) x (filter, plane, channel)."""
    planes, dense = program.config.weight_planes, _dense(program, layer, form.weights, job)
    places = np.arange(job.turns * planes).reshape(job.turns, 1, 1, planes, 1)
    known = (places < form.factors.shape[1]) * (dense[None, :, :, None, :] >> places & 1)
    return np.packbits(known.astype(np.uint8).reshape(job.steps, -1), axis=1, bitorder="little")


def _dense(program: ArrayProgram, layer: ArrayLayer, weights: Ints, job: Job) -> Ints:
    """Weights of a filter block as (kernel row, kernel column, input word) x filter x channel, zeros between groups."""
    size = program.config.inputs
    high, wide = layer.window.kernel
    lanes, channels = job.words * size, job.read_words * size
    dense = np.zeros((lanes, channels, high, wide), dtype=np.int64)
    per_filter, per_group = layer.writes.channels // layer.groups, layer.reads.channels // layer.groups
    for lane in range(lanes):
        number = job.first * size + lane
        if number < layer.writes.channels:
            start = number // per_filter * per_group - job.read_first * size
            dense[lane, start:start + per_group] = weights[number]
    ordered: Ints = dense.reshape(lanes, job.read_words, size, high, wide).transpose(3, 4, 1, 0, 2)
    return ordered.reshape(high * wide * job.read_words, lanes, size)


def _depthwise_rows(program: ArrayProgram, layer: ArrayLayer, own: LayerNumbers, job: Job) -> Octets:
    """Weights of a word of channels as (phase) x (channel, tap)."""
    config = program.config
    taps = tap_order(config.kernel)
    flat = np.zeros((config.inputs, job.steps * config.taps), dtype=np.int64)
    filters = slice(job.first * config.inputs, min((job.first + 1) * config.inputs, layer.writes.channels))
    chosen = own.weights[filters, 0]
    high, wide = (1, 1) if layer.whole else layer.window.kernel
    for place, (row, column) in enumerate(taps):
        if row < high and column < wide:
            flat[:len(chosen), place] = chosen[:, high - 1 - row, wide - 1 - column]
    ordered: Ints = flat.reshape(config.inputs, job.steps, config.taps).transpose(1, 0, 2)
    return ordered.reshape(job.steps, -1).astype(np.int8).view(np.uint8)
