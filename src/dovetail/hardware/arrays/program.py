"""From a block's layers to its layer program: which layers overlap, where maps lie, what passes the memory port."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dovetail.errors import UnsupportedError
from dovetail.hardware.arrays import jobs
from dovetail.hardware.arrays.hazards import Jobs, Stored
from dovetail.hardware.arrays.jobs import ArrayProgram, ArrayTransfer, Bank, Outside, TransferKind
from dovetail.hardware.arrays.layers import ArrayLayers, Config
from dovetail.hardware.arrays.stripes import SLOTS, Round, outside_maps, round_of, row_words, tallest

LATE_CLOCKS = 30
"""About as many clocks pass from a job's last work to its last word."""


def program_of(layers: ArrayLayers, config: Config) -> ArrayProgram:
    """The layer program of a block; raises UnsupportedError where additions leave no memory for a map."""
    _check_values(layers, config)
    for layer in layers.layers:
        if layer.largest and not layer.filtered(config):
            raise UnsupportedError(f"node {layer.node}: the largest of {layer.window}; windows of the depthwise array have at "
                                   f"most {config.kernel} rows and columns, enlarge them or leave the node out of the block")
    groups, outside, rounds = _rounds(layers, config)
    stored, depths, slots = _allocate(layers, config, groups, outside, rounds)
    maker = Jobs(config, layers, stored, outside, slots)
    for group, together in zip(groups, rounds, strict=True):
        for stripe in together.stripes():
            maker.add(group, stripe)
    program = ArrayProgram(config, layers, tuple(maker.finished()), tuple(depths))
    if all(together.count == 1 for together in rounds):
        return program
    first = -(-maker.image_beats // jobs.BURST_BEATS) * jobs.BURST_BEATS
    found = {tensor: replace(where, address=where.address + first) for tensor, where in outside.items()}
    made = [t if t.kind is TransferKind.WEIGHTS else t._replace(address=t.address + first) for t in maker.made]
    return replace(program, transfers=_in_order(program, made), outside=found)


def _check_values(layers: ArrayLayers, config: Config) -> None:
    """Raise UnsupportedError where values or thresholds are more than arrays that count bits have."""
    for layer in layers.layers if config.counts else ():
        if layer.value_bits > config.value_bits or layer.thresholds > config.thresholds:
            raise UnsupportedError(f"node {layer.node}: values of {layer.value_bits} bits and {layer.thresholds} thresholds; "
                                   f"these arrays have {config.value_bits} and {config.thresholds}, enlarge them")


def bank_sizes(layers: ArrayLayers, config: Config) -> list[tuple[int, int]]:
    """Words and width of every memory of maps; raises UnsupportedError as `program_of` does."""
    _check_values(layers, config)
    _, depths, _ = _allocate(layers, config, *_rounds(layers, config))
    return list(zip(depths, jobs.bank_widths(layers, config), strict=True))


def divides(layers: ArrayLayers, config: Config) -> bool:
    """Whether `Config.map_bytes` makes any layer work on stripes; else it changes nothing."""
    return any(together.count > 1 for together in _rounds(layers, config)[2])


def _rounds(layers: ArrayLayers, config: Config) -> tuple[list[tuple[int, ...]], dict[str, Outside], list[Round]]:
    """Layers that overlap, the maps in external memory, and how the layers of every round work together."""
    groups = rounds_of(layers, config)
    outside = outside_maps(layers, config, groups)
    return groups, outside, [round_of(layers, config, group, outside) for group in groups]


def _slots(layers: ArrayLayers, config: Config, rounds: Sequence[Round],
           outside: Mapping[str, Outside]) -> dict[Bank, int]:
    """Words of the largest stripe that passes through each bank of stripes."""
    found = {Bank.LOADED: 0, Bank.ADDED: 0, Bank.STORED: 0}
    for together in rounds:
        (first, last), leaving = (together.parts[0], together.parts[-1]), tallest(together.writes[-1])
        sizes = ((Bank.LOADED, first.source, tallest(together.reads[0])), (Bank.ADDED, last.residual, leaving),
                 (Bank.STORED, last.target, leaving))
        for bank, tensor, rows in sizes:
            if tensor is not None and tensor in outside:
                found[bank] = max(found[bank], rows * row_words(config, layers.maps[tensor]))
    return found


def rounds_of(layers: ArrayLayers, config: Config) -> list[tuple[int, ...]]:
    """Layers by number, those that overlap together."""
    found: list[tuple[int, ...]] = []
    number, every = 0, layers.layers
    while number < len(every):
        pair = number + 1 < len(every) and config.overlap and _overlaps(layers, number, config)
        found.append((number, number + 1) if pair else (number,))
        number += 2 if pair else 1
    return found


def _overlaps(layers: ArrayLayers, number: int, config: Config) -> bool:
    """Whether a depthwise layer may follow a convolution block by block: it alone reads what the convolution writes.

    Stripes of a round hold what its last layer adds, so one that adds comes last where maps may lie in external memory.
    """
    first, second = layers.layers[number:number + 2]
    if config.map_bytes and first.residual is not None:
        return False
    if second.source != first.target or first.target == layers.exit or first.filtered(config) or not second.filtered(config):
        return False
    return sum((x.source == first.target) + (x.residual == first.target) for x in layers.layers) == 1


def _allocate(layers: ArrayLayers, config: Config, groups: Sequence[tuple[int, ...]], outside: Mapping[str, Outside],
              rounds: Sequence[Round]) -> tuple[dict[str, Stored], list[int], dict[Bank, int]]:
    """Where maps lie, the words of every bank, and those of a stripe in the banks that stripes pass through."""
    banks = _banks(layers, config, outside)
    ring = {r.parts[0].target: tallest(r.writes[0]) * r.parts[0].writes.width for r in rounds if len(r.parts) == 2}
    when = {number: at for at, group in enumerate(groups) for number in group}
    born, dies = {layers.entry: -1}, {layers.exit: len(groups)}
    for number, layer in enumerate(layers.layers):
        born[layer.target] = when[number]
        for tensor in (layer.source, layer.residual):
            if tensor is not None:
                dies[tensor] = max(dies.get(tensor, -1), when[number])
    stored: dict[str, Stored] = {}
    depths = [0] * len(Bank)
    for tensor in (layers.entry, *(x.target for x in layers.layers if x.target not in outside)):
        shape, bank = layers.maps[tensor], banks[tensor]
        words = config.words(shape.channels)
        size = shape.pixels * words
        if tensor in ring:
            size = ring[tensor] * config.block_words * min(jobs.RING_BLOCKS, -(-words // config.block_words))
        alive = [(s.base, s.base + s.size) for t, s in stored.items() if s.bank == bank and dies.get(t, born[t]) >= born[tensor]]
        base = 0
        for start, stop in sorted(alive):
            if start - base >= size:
                break
            base = max(base, stop)
        stored[tensor] = Stored(bank, base, size, words, ring.get(tensor, shape.pixels), tensor in ring)
        depths[bank] = max(depths[bank], base + size)
    depths[Bank.INPUT] *= config.input_buffers
    slots = _slots(layers, config, rounds, outside)
    for bank, size in slots.items():
        depths[bank] = SLOTS * size
    return stored, depths, slots


def _banks(layers: ArrayLayers, config: Config, outside: Mapping[str, Outside]) -> dict[str, Bank]:
    """A bank per tensor: what an addition reads must not lie where its convolution reads."""
    apart: dict[str, set[str]] = {}
    for layer in layers.layers:
        if layer.residual is not None:
            if layer.residual == layer.source:
                raise UnsupportedError(f"node {layer.add or layer.node}: its other operand is what {layer.node} reads; reusable "
                                       "engines read both at once and have one port for them, leave it out of the block")
            if not {layer.residual, layer.source} & set(outside):
                apart.setdefault(layer.residual, set()).add(layer.source)
                apart.setdefault(layer.source, set()).add(layer.residual)
    banks = {layers.entry: Bank.INPUT, layers.exit: Bank.OUTPUT}
    for layer in layers.layers:
        tensor = layer.target
        if tensor in banks or tensor in outside:
            continue
        readers = [x for x in layers.layers if tensor in (x.source, x.residual)]
        inner = Bank.EXPANDED if all(x.filtered(config) for x in readers) else Bank.KEPT
        first = Bank.FILTERED if layer.filtered(config) else inner
        taken = {banks[t] for t in apart.get(tensor, ()) if t in banks}
        free = [b for b in (first, Bank.KEPT, Bank.EXPANDED, Bank.FILTERED) if b not in taken]
        if not free:
            raise UnsupportedError(f"tensor {tensor}: additions keep it out of all three memories of reusable engines; "
                                   "end the block before it")
        banks[tensor] = free[0]
    return banks


class _Times:
    """When jobs, loads and bursts happened so far, at the latest: of the first n of each."""

    def __init__(self) -> None:
        self.jobs: tuple[list[float], list[float]] = ([0.0], [0.0])
        self.loads, self.stores, self.bursts = [0.0], [0.0], [0]

    def after(self, needs: tuple[int, int], loads: int, bursts: int) -> float:
        """When as many jobs of each engine, loads and bursts have happened."""
        return max(self.jobs[0][needs[0]], self.jobs[1][needs[1]], self.loads[loads],
                   self.stores[bisect_left(self.bursts, bursts)])

    def moved(self, transfer: ArrayTransfer, at: float) -> None:
        """A transfer of rows happened."""
        times = self.loads if transfer.kind is TransferKind.LOAD else self.stores
        times.append(max(times[-1], at))
        if transfer.kind is TransferKind.STORE:
            self.bursts.append(self.bursts[-1] + transfer.bursts)


def _in_order(program: ArrayProgram, made: Sequence[ArrayTransfer]) -> tuple[ArrayTransfer, ...]:
    """Transfers, which wait only for earlier ones, in the order in which they are to pass the memory port.

    It is fixed when the program is made, so that the hardware needs no arbiter and a model can say when everything happens.
    Transfers follow each other as they would become possible if the memory took no time, rows of a stripe spread over the time
    that is left for them: weights and rows share the port. Everything comes behind what it waits for, so nothing waits for ever.
    """
    ready, opened = _ideal(program, made)
    keys, times = list[float](), _Times()
    for transfer, at in zip(made, ready, strict=True):
        if transfer.kind is TransferKind.WEIGHTS:
            job = program.jobs[transfer.job]
            own = times.jobs[job.engine]
            key = max(at, own[-1], times.after(job.needs, job.loads, job.stores))
            own.append(key)
        else:
            left = abs(opened[transfer.stripe] - at)  # until the stripe begins, or as long as it took
            key = max(at + left * transfer.share, times.after(transfer.needs, 0, transfer.stored))
            times.moved(transfer, key)
            key = (times.loads if transfer.kind is TransferKind.LOAD else times.stores)[-1]
        keys.append(key)
    return tuple(made[n] for n in sorted(range(len(made)), key=lambda n: (keys[n], n)))


def _ideal(program: ArrayProgram, made: Sequence[ArrayTransfer]) -> tuple[list[float], dict[int, float]]:
    """When every transfer could happen and every stripe begins if the memory took no time."""
    free, times = [0.0, 0.0], _Times()
    ready, opened = list[float](), dict[int, float]()
    slots = (jobs.ARRAY_SLOTS, jobs.DEPTHWISE_SLOTS)
    for transfer in made:
        if transfer.kind is not TransferKind.WEIGHTS:
            ready.append(times.after(transfer.needs, 0, transfer.stored))
            times.moved(transfer, ready[-1])
            continue
        job = program.jobs[transfer.job]
        own, engine = times.jobs[job.engine], job.engine
        ready.append(own[max(0, len(own) - slots[engine])])
        at = max(free[engine], times.after(job.needs, job.loads, job.stores))
        opened.setdefault(transfer.stripe, at)
        free[engine] = at + job.clocks
        own.append(free[engine] + job.tail + LATE_CLOCKS)
    return ready, opened
