"""A block of reusable engines as a design; its top joins arrays, what finishes their sums, memories, weights and streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.cost.array import frame_ends
from dovetail.fpga.design import Design, MemoryPort, StreamPort
from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.reusable import lanes
from dovetail.fpga.reusable.array import ArrayIssue, array_front, array_table, delayed, leave_in_words, own_jobs, token
from dovetail.fpga.reusable.counting import CONSTANT_STAGE, OPERAND_STAGE, WORD_STAGE, WrittenValues, count_words
from dovetail.fpga.reusable.depthwise import PIXEL_STAGE, TAP_STAGE, DepthwiseFront, depthwise_front, depthwise_table, masked_taps
from dovetail.fpga.reusable.feed import Fill, fill_weights, leave_frames, load_frames, phase_bits
from dovetail.fpga.reusable.image import Octets, gate_options, image_text, layer_fields, lift_options, weight_image
from dovetail.fpga.reusable.lanes import Finisher, Operands, PlacedSums
from dovetail.fpga.reusable.numbers import BlockNumbers, block_numbers
from dovetail.fpga.reusable.outside import leave_rows, progress_of, stores_of
from dovetail.fpga.reusable.storage import Access, Entries, Table, WideMemory, bank, filled_memory, walk
from dovetail.fpga.rtl.expressions import ONE, ZERO, Const, Expr, Signal, all_of, any_of, choose, compare, pack, select, signal
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.fpga.rtl.verilog import images, print_module
from dovetail.hardware.arrays.jobs import ARRAY, ARRAY_SLOTS, DEPTHWISE, DEPTHWISE_SLOTS, ArrayProgram, Bank, Job, MapPlace
from dovetail.hardware.arrays.layers import Config, layers_of
from dovetail.hardware.arrays.program import program_of
from dovetail.ir import Graph

NAMES = ("array", "depthwise")


@dataclass(frozen=True, slots=True)
class LeavingWord:
    """A word of sums on its way: the word and its token of one stage, its constants `CONSTANT_STAGE` later."""

    word: Signal
    valid: Signal
    constants: WideMemory
    sum_bits: int


class Assembly:
    """A block's top module while it is being made."""

    def __init__(self, name: str, program: ArrayProgram, numbers: BlockNumbers) -> None:
        self.program, self.numbers, self.config = program, numbers, program.config
        self.module = m = Module(name, (f"{program.config}: {len(program.layers.layers)} layers in {len(program.jobs)} jobs.",))
        self.pipeline = Pipeline(m)
        self.modules: list[Module] = []
        self.address_bits = max(2, (max(program.depths) - 1).bit_length())
        self.jobs = [own_jobs(program, engine) for engine in (ARRAY, DEPTHWISE)]
        self.engines = [e for e in (ARRAY, DEPTHWISE) if self.jobs[e]]
        self.reads = {b: signal(f"{b.name.lower()}_read", 0, (1 << program.widths[b]) - 1) for b in Bank if program.depths[b]}
        self.word_range = (0, (1 << self.config.word_bits) - 1)
        self.readers: dict[Bank, list[Access]] = {b: [] for b in self.reads}
        self.writers: dict[Bank, list[Access]] = {b: [] for b in self.reads}
        self.loads = {e: m.net(f"{NAMES[e]}_load") for e in self.engines}
        self.dones = {e: m.net(f"{NAMES[e]}_done") for e in self.engines}
        self.ended = m.net("frame_ended")
        self.released: list[Expr] = []
        self.finished: list[Expr] = []

    def build(self) -> list[Module]:
        """All modules of the block, its own first."""
        m, layers, config = self.module, self.program.layers, self.config
        frame, result = (layers.maps[t].pixels * config.words(layers.maps[t].channels) for t in (layers.entry, layers.exit))
        released, finished = m.net("input_released"), m.net("output_finished")
        source = load_frames(m, frame, self.numbers.ends[0], config, released)
        self.writers[Bank.INPUT].append(Access(source.writes, source.address, source.word))
        streaming, leaving, fifo = leave_frames(m, result, self.numbers.ends[1][0], config, finished, self.reads[Bank.OUTPUT])
        self.now, arrived = progress_of(m, self.program, self._counts(), self.ended)
        self._end_frame()
        fill = fill_weights(m, self.program, [self.loads.get(e) for e in (ARRAY, DEPTHWISE)],
                            [self.dones.get(e) for e in (ARRAY, DEPTHWISE)], self.now, arrived)
        self.modules += [fifo, *fill.modules]
        self._outside(fill)
        self.frame_words, self.parity = frame, ZERO if source.parity is None else source.parity
        ready = {e: m.net(f"{NAMES[e]}_may_start") for e in self.engines}
        entries: dict[int, Entries] = {}
        operands: dict[int, Operands] = {}
        if ARRAY in ready:
            array, word = self._array(ready[ARRAY])
            entries[ARRAY] = array.entries
            if not config.counts:
                operands[ARRAY] = self._multiplied(array, word, fill)
        if DEPTHWISE in ready:
            depthwise, operands[DEPTHWISE] = self._depthwise(ready[DEPTHWISE], fill)
            entries[DEPTHWISE] = depthwise.entries
        sums = self._sums(operands)
        for engine in self.engines:
            if engine == ARRAY and config.counts:
                made, modules = count_words(m, self.pipeline, self.program, self.numbers, array, word, fill, self._other)
                self.modules += modules
            else:
                made = self._outputs(engine, self._leave_array(array, sums[ARRAY], fill) if engine == ARRAY
                                     else self._leave_depthwise(depthwise, sums[DEPTHWISE], fill))
            m.assigns.append((ready[engine], self._may_start(engine, entries[engine], fill.filled[engine], source.loaded,
                                                             streaming)))
            self.modules.append(entries[engine].fifo)
            self._write(engine, made)
        m.assigns += [(released, any_of(*self.released)), (finished, any_of(*self.finished))]
        self.readers[Bank.OUTPUT].append(Access(ONE, leaving))
        for b, read in self.reads.items():
            bank(m, f"{b.name.lower()}_map", self.program.widths[b], self.program.depths[b], self.readers[b][::-1],
                 self.writers[b], read)
        return list({module.name: module for module in (m, *self.modules)}.values())

    def _counts(self) -> list[Expr]:
        """Jobs of the frame that each engine has finished."""
        counts: list[Expr] = [ZERO, ZERO]
        for engine in self.engines:
            total = len(self.jobs[engine])
            count = signal(f"{NAMES[engine]}_count", 0, total)
            self.module.drive(count, select(self.ended, 0, count + self.dones[engine]), reset=0)
            counts[engine] = count
        return counts

    def _end_frame(self) -> None:
        """When all jobs are done and all that they wrote is in memory, the next frame begins.

        Rows that no window reaches are written and never read, so nothing else waits for them; counted late, they would be taken
        for rows of the next frame.
        """
        over = [compare("==", self.now.counts[engine], len(self.jobs[engine])) for engine in self.engines]
        bursts = sum(t.bursts for t in stores_of(self.program))
        if bursts:
            over.append(compare("==", self.now.bursts, bursts))
        self.module.assigns.append((self.ended, all_of(*over)))

    def _outside(self, fill: Fill) -> None:
        """Connect the banks that stripes of maps in external memory pass through."""
        if fill.rows is None:
            return
        for number, when in fill.rows.writes.items():
            self.writers[number].append(Access(when, fill.rows.address, fill.rows.word))
        address, modules = leave_rows(self.module, self.program, self.now, self.reads[Bank.STORED])
        self.readers[Bank.STORED].append(Access(ONE, address))
        self.modules += modules

    def _may_start(self, engine: int, entries: Entries, filled: Signal, loaded: Signal, streaming: Signal) -> Expr:
        """Whether the entry at hand may start: weights, operands and room are there, and it belongs to this frame."""
        m, fields, over = self.module, entries.fields, signal(f"{NAMES[engine]}_over")
        m.drive(over, any_of(all_of(self.loads[engine], fields["ends_frame"]), all_of(over, ~self.ended)), reset=0)
        known = (*self.now.counts, self.now.loads, self.now.bursts)
        keys = ("needs_array", "needs_depthwise", "needs_loads", "needs_bursts")
        needs = [compare(">=", count, fields[key]) for count, key in zip(known, keys, strict=True)]
        return all_of(filled, ~over, ~self.ended, *needs, any_of(~fields["needs_input"], loaded),
                      any_of(~fields["needs_output"], ~streaming))

    def _word(self, name: str, banks: Sequence[Bank], index: Expr, stage: int) -> Signal:
        """What was read of the bank that an index of stage 0 names; a clock after the read, which is one after the address."""
        late = delayed(self.pipeline, index, stage - 1, f"{name}_bank_now")
        read = choose(late, [self.reads[b] for b in banks])
        return self.module.register(f"{name}_word", read, bounds=self.word_range)

    def _array(self, ready: Signal) -> tuple[ArrayIssue, Signal]:
        """Issue of the array, and the words it reads."""
        m, jobs = self.module, self.jobs[ARRAY]
        banks = sorted({j.read.bank for j in jobs})
        table = array_table(self.program, self.numbers, banks, self.address_bits)
        front = array_front(m, table, self.loads[ARRAY], ready, self.program.weight_depth, self.parity, self.frame_words,
                            self.address_bits)
        for number, b in enumerate(banks):
            self.readers[b].append(Access(compare("==", front.bank, number), front.address))
        return front, self._word("array", banks, front.bank, WORD_STAGE)

    def _multiplied(self, front: ArrayIssue, word: Signal, fill: Fill) -> Operands:
        """What the array's lanes multiply."""
        m, pipeline, config = self.module, self.pipeline, self.config
        inside = delayed(pipeline, front.inside, WORD_STAGE, "array_hit")
        signed = delayed(pipeline, front.signed, WORD_STAGE, "array_sign")
        fields = []
        for channel in range(config.inputs):
            byte = m.wire(f"array_byte_{channel}", word.bits(channel * 8, 8))
            extended = pack([(byte, 8), (all_of(signed, byte.bit(7)), 1)])
            fields.append((m.register(f"array_x_{channel}", select(inside, extended, 0), bounds=(0, 511)), lanes.ACTIVATION_BITS))
        beat = fill.weights[ARRAY]
        assert beat is not None
        weights = filled_memory(m, "array_weights", config.inputs * config.outputs * 8, ARRAY_SLOTS * self.program.weight_depth,
                                beat, delayed(pipeline, front.weight, OPERAND_STAGE - 2, ""))
        return Operands("array", config.outputs, config.inputs, (m.wire("array_operands", pack(fields)),), weights,
                        front.starts, front.works, OPERAND_STAGE, packed=config.packed, soft=config.soft)

    def _depthwise(self, ready: Signal, fill: Fill) -> tuple[DepthwiseFront, Operands]:
        """Issue of the depthwise array, and what its lanes multiply."""
        m, pipeline, config, jobs = self.module, self.pipeline, self.config, self.jobs[DEPTHWISE]
        banks = sorted({j.read.bank for j in jobs})
        table = depthwise_table(self.program, self.numbers, banks)
        front = depthwise_front(m, config, table, self.loads[DEPTHWISE], ready, self.parity, self.frame_words, self.address_bits)
        for number, b in enumerate(banks):
            self.readers[b].append(Access(all_of(front.reading, compare("==", front.bank, number)), front.address))
        pixel = self._word("depthwise", banks, front.bank, PIXEL_STAGE)
        taps = masked_taps(m, pipeline, config, front, pixel, self.program.line_width)
        beat = fill.weights[DEPTHWISE]
        assert beat is not None
        low = phase_bits(self.program)
        place = [(front.phase, low)] if front.phase is not None else []
        address = m.wire("depthwise_weight", pack([*place, (front.slot, front.slot.width)]))
        weights = filled_memory(m, "depthwise_weights", config.inputs * config.taps * 8, DEPTHWISE_SLOTS << low, beat,
                                delayed(pipeline, address, TAP_STAGE - 2, ""))
        x = tuple(m.wire(f"depthwise_taps_{c}", pack([(t, lanes.ACTIVATION_BITS) for t in own])) for c, own in enumerate(taps))
        return front, Operands("depthwise", config.inputs, config.taps, x, weights, front.starts, front.works, TAP_STAGE,
                               front.largest, compares=config.counts)

    def _sums(self, operands: dict[int, Operands]) -> dict[int, PlacedSums]:
        """Lanes for all engines, one set for both where they share it."""
        ranges = {e: numbers.sums for e, numbers in enumerate(self.numbers.engines) if numbers is not None}
        if self.config.monolithic and len(operands) == 2:
            widest = min(r[0] for r in ranges.values()), max(r[1] for r in ranges.values())
            array, depthwise, modules = lanes.place_together(self.module, self.pipeline, operands[ARRAY], operands[DEPTHWISE],
                                                                   widest)
            self.modules += modules
            return {ARRAY: array, DEPTHWISE: depthwise}
        placed = {}
        for engine, own in operands.items():
            placed[engine], modules = lanes.place_apart(self.module, self.pipeline, own, ranges[engine])
            self.modules += modules
        return placed

    def _leave_array(self, front: ArrayIssue, placed: PlacedSums, fill: Fill) -> LeavingWord:
        words = self.config.block_words
        leaving = leave_in_words(self.module, self.pipeline, front, placed.sums, words, placed.stage)
        constants = self._constants(ARRAY, fill, ARRAY_SLOTS * words, leaving.constant)
        return LeavingWord(leaving.word, leaving.valid, constants, placed.sum_bits)

    def _leave_depthwise(self, front: DepthwiseFront, placed: PlacedSums, fill: Fill) -> LeavingWord:
        m, stage = self.module, placed.stage
        word = m.wire("depthwise_sums", pack([(s, s.width) for s in placed.sums]))
        valid = token(m, "depthwise_leaves", front.ends, stage)
        slot = self.pipeline.signal_at(Staged(front.slot, 0), stage)
        return LeavingWord(word, valid, self._constants(DEPTHWISE, fill, DEPTHWISE_SLOTS, slot), placed.sum_bits)

    def _constants(self, engine: int, fill: Fill, depth: int, address: Signal) -> WideMemory:
        beat = fill.constants[engine]
        assert beat is not None
        width = self.config.inputs * 64 + sum(n for _, _, n in layer_fields(self.numbers, self.numbers.layers[0]))
        return filled_memory(self.module, f"{NAMES[engine]}_constants", width, depth, beat, address)

    def _outputs(self, engine: int, sums: LeavingWord) -> WrittenValues:
        """From words of sums to what is written."""
        m, name, numbers, jobs = self.module, NAMES[engine], self.numbers.engines[engine], self.jobs[engine]
        assert numbers is not None
        adds = self.numbers.add_shift if any(j.part.add is not None for j in jobs) else 0
        gates = gate_options(self.numbers) if any(j.part.gated for j in jobs) else ()
        finisher = lanes.finisher_module(f"{m.name}_{name}_finish", numbers, sums.sum_bits, lift_options(self.numbers), adds,
                                   self.config.value_bits, gates, self.numbers.tables[engine])
        self.modules.append(finisher.module)
        other = self._other(sums.valid, finisher) if adds or gates else None
        return WrittenValues(self._finishers(name, finisher, sums, other), sums.valid, CONSTANT_STAGE + finisher.stages)

    def _write(self, engine: int, made: WrittenValues) -> None:
        """From outputs to words in memory."""
        m, name, jobs, size = self.module, NAMES[engine], self.jobs[engine], self.config.value_bits
        writing = token(m, f"{name}_finished", made.valid, made.stages)
        banks = sorted({j.write.bank for j in jobs})
        table = walk_table(jobs, [j.write for j in jobs])
        table["bank"] = [banks.index(j.write.bank) for j in jobs]
        table["releases"] = [int(j.releases_input) for j in jobs]
        table["finishes"] = [int(j.finishes) for j in jobs]
        walked = walk(m, f"{name}_write", table, writing, self.address_bits)
        self.modules.append(walked.entries.fifo)
        writes = m.register(f"{name}_writes", writing, reset=0)
        address = m.register(f"{name}_write_to", walked.address)
        word = m.register(f"{name}_write_word", pack([(y, size) for y in made.values]))
        index = walked.fields["bank"]
        where = index if isinstance(index, Const) else m.register(f"{name}_write_bank", index)
        for number, b in enumerate(banks):
            self.writers[b].append(Access(all_of(writes, compare("==", where, number)), address, word))
        m.assigns.append((self.dones[engine], m.register(f"{name}_job_done", walked.last, reset=0)))
        for flag, kept in (("releases", self.released), ("finishes", self.finished)):
            if any(table[flag]):
                kept.append(m.register(f"{name}_{flag}", all_of(walked.last, walked.fields[flag]), reset=0))

    def _other(self, valid: Signal, finisher: Finisher) -> Signal:
        """The other operand of additions and products, read again in the order in which outputs are finished."""
        m, jobs = self.module, self.jobs[ARRAY]
        places = [j.residual for j in jobs]
        banks = sorted({p.bank for p in places if p is not None})
        table = walk_table(jobs, [j.write if p is None else p for j, p in zip(jobs, places, strict=True)])
        table["jump"] = [jump % (1 << self.address_bits) for jump in table["jump"]]  # back to the same value of every channel
        table["bank"] = [0 if p is None else banks.index(p.bank) for p in places]
        table["reads"] = [int(p is not None) for p in places]
        table["from_input"] = [int(p is not None and p.bank == Bank.INPUT) for p in places]
        stage = CONSTANT_STAGE + finisher.enters["other"] - 2
        reading = token(m, "other_reads", valid, stage)
        walked = walk(m, "other", table, reading, self.address_bits, self.parity, self.frame_words)
        self.modules.append(walked.entries.fifo)
        for number, b in enumerate(banks):
            self.readers[b].append(Access(all_of(reading, walked.fields["reads"], compare("==", walked.fields["bank"], number)),
                                          walked.address))
        index = walked.fields["bank"]
        late = index if isinstance(index, Const) else m.register("other_bank", index)
        return m.register("other_word", choose(late, [self.reads[b] for b in banks]), bounds=self.word_range)

    def _finishers(self, name: str, finisher: Finisher, sums: LeavingWord, other: Signal | None) -> list[Signal]:
        """An instance per channel of a word; what leaves them."""
        m, size = self.module, sums.sum_bits
        word = self.pipeline.signal_at(Staged(sums.word, 0), CONSTANT_STAGE)
        values = self.config.value_bits
        pins = lanes.layer_pins(self.pipeline, self.numbers, name, finisher, sums.constants, self.config.inputs * 64, 0)
        outputs = []
        for k in range(self.config.inputs):
            y = m.net(f"{name}_y_{k}", values)
            own = [("total", m.wire(f"{name}_total_{k}", word.bits(k * size, size))),
                   ("bias", sums.constants.slice(m, f"{name}_bias_{k}", k * 64, 32)),
                   ("multiplier", sums.constants.slice(m, f"{name}_multiplier_{k}", k * 64 + 32, 32))]
            if other is not None:
                own.append(("other", m.wire(f"{name}_other_{k}", other.bits(k * values, values))))
            m.instances.append(Instance(finisher.module.name, f"{name}_finish_{k}", (*own, *pins, ("y", y))))
            outputs.append(y)
        return outputs


def walk_table(jobs: Sequence[Job], places: Sequence[MapPlace]) -> Table:
    """Bounds and steps of the words of jobs at places."""
    found: Table = {"base": [], "word_most": [], "pixel_most": [], "jump": []}
    for job, place in zip(jobs, places, strict=True):
        found["base"].append(place.base)
        found["word_most"].append(job.words - 1)
        found["pixel_most"].append(job.part.writes.pixels - 1)
        found["jump"].append(place.stride - (job.words - 1))
    return found


@dataclass(frozen=True, slots=True)
class ArrayBlock:
    """A built block: its design, the layer program it runs, its integers, and the image of its weights."""

    design: Design
    program: ArrayProgram
    numbers: BlockNumbers
    image: Octets
    top: Module


def build_block(graph: Graph, nodes: Sequence[str], config: Config, name: str) -> ArrayBlock:
    """The block that these nodes of a quantized graph are, as a design of its own.

    Streams `in0` and `out` carry `config.inputs` channels of a pixel per beat, the words of a pixel in order, pixels in raster
    order. Weights, and maps in external memory, pass a port of their own (`MemoryPort`).
    """
    program = program_of(layers_of(graph, nodes, config.counts), config)
    numbers = block_numbers(graph, program)
    image = weight_image(program, numbers)
    modules = Assembly(name, program, numbers).build()
    files = {f"{m.name}.v": print_module(m) for m in modules}
    for m in modules:
        files.update(images(m))
    picture = f"{name}_weights_image.hex"
    files[picture] = image_text(image)
    ends = frame_ends(program)
    source = _stream_port(graph, program, "in0", program.layers.entry)
    target = _stream_port(graph, program, "out", program.layers.exit)
    memory = MemoryPort("memory", config.port_bytes, picture, config.bandwidth_bytes, config.latency_clocks,
                        program.memory_beats, bool(program.outside), config.masters)
    design = Design(name, files, (source,), (target,), latency_cycles=ends[0], interval_cycles=ends[-1] - ends[-2], memory=memory)
    return ArrayBlock(design, program, numbers, image, modules[0])


def _stream_port(graph: Graph, program: ArrayProgram, name: str, tensor: str) -> StreamPort:
    """A stream of the block, in words of `config.inputs` channels."""
    shape, scheme = program.layers.maps[tensor], graph.tensors[tensor].scheme
    size, signed = (8, True) if scheme is None else (scheme.bits, scheme.signed)
    return StreamPort(name, tensor, shape.channels, size, signed, shape.height, shape.width, program.config.inputs)
