"""The families that carry beats away: cells of links, the register port of a shell, and the packing of packets."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import gcd

from dovetail.errors import ToolError
from dovetail.fpga.axi.control import Facts, control_module
from dovetail.fpga.axi.gearbox import frame_out_module
from dovetail.fpga.design import StreamPort
from dovetail.fpga.links import cells
from dovetail.fpga.links.receive import receiver_module
from dovetail.fpga.links.transmit import Outgoing, transmitter_module
from dovetail.fpga.packing import packet_words, pixel_bytes
from dovetail.fpga.proofs import obligations
from dovetail.fpga.proofs.cases import Case, Files, one, texts
from dovetail.fpga.proofs.dataflow import Dataflow, Key, Piece
from dovetail.fpga.proofs.exploration import Offered
from dovetail.fpga.proofs.induction import Inductive, Rule, StepRule, all_hold, implied, stays
from dovetail.fpga.proofs.netlist import Netlist, read_netlist
from dovetail.fpga.proofs.solver import Term, Vectors
from dovetail.fpga.proofs.streams import Flow, Moves, Place
from dovetail.fpga.proofs.verdicts import Method, Proof, Ruling, timed

DETECTED = 3
"""Wrong bits of a cell that no checksum of this length lets pass."""


def links() -> list[Case]:
    """Cells: offered until taken, checked by their CRC, accepted once and in order."""
    form = cells.CellFormat(32)
    sender = transmitter_module("sender", form, [Outgoing(8, 4)], (0,), 1, 0x1234)
    receiver, more = receiver_module("receiver", form, [Outgoing(8, 4)], 0x1234)
    offered = Inductive({}, {"a cell stays until it is taken": stays("tx_valid", "tx_ready", "tx_data")})
    return [
        Case("cells are offered", "link framing", texts(sender), "sender",
             one(lambda n: obligations.prove_invariant("sender", "link framing", "a cell stays as it is until it is taken",
                                                       n, offered), "link framing", "sender"),
             r"(full|checked_body|check) <=|tx_"),
        Case("cells are whole", "link framing", texts(sender), "sender",
             one(partial(_checked, form), "link framing", "sender"), r"crc_|checked_body <=|check <="),
        Case("damage is seen", "link framing", texts(receiver, *more), "receiver",
             one(partial(_detected, form), "link framing", "receiver"), r"wrong_|syndrome <="),
        Case("cells in order", "link framing", texts(receiver, *more), "receiver",
             one(lambda n: obligations.prove_invariant("receiver", "link framing", "a cell is accepted once, in order, and whole",
                                                       n, Inductive({}, _accepting())), "link framing", "receiver"),
             r"(expected|next_expected|accept|in_order|of_epoch|counts|push0) <?="),
    ]


def checksum_columns(form: cells.CellFormat) -> tuple[int, list[int]]:
    """The CRC-32 of a body of zeros, and what each bit of the body changes of it, as zlib computes them."""
    octets = form.body_bits // 8
    zero = zlib.crc32(bytes(octets))
    return zero, [zlib.crc32((1 << i).to_bytes(octets, "little")) ^ zero for i in range(form.body_bits)]


def parities_of(flow: Dataflow, pieces: Sequence[Piece], source: str) -> list[tuple[int, int]]:
    """Of every bit, the source's bits whose parity it is, and the constant; ToolError where it is more than a parity."""
    known: dict[Piece, tuple[int, int]] = {"0": (0, 0), "1": (0, 1)}

    def of(piece: Piece) -> tuple[int, int]:
        if piece not in known:
            assert not isinstance(piece, str)
            key, place = piece
            known[piece] = (1 << place, 0) if key[:2] == ("source", source) else _parity(flow, key, place, of)
        return known[piece]

    return [of(piece) for piece in pieces]


def _parity(flow: Dataflow, key: Key, place: int, of: Callable[[Piece], tuple[int, int]]) -> tuple[int, int]:
    kind, ports = flow.cell(key).kind, flow.inputs_of(key)
    if kind == "$and":  # with a constant mask
        a, b = (of(ports[p][place]) if place < len(ports[p]) else (0, 0) for p in ("A", "B"))
        if a[0] and b[0]:
            raise ToolError("proof of a checksum: bits are multiplied; a checksum is linear")
        chosen, mask = (a, b[1]) if not b[0] else (b, a[1])
        return (chosen[0] * mask, chosen[1] * mask)
    if kind in ("$xor", "$reduce_xor", "$not"):
        whole = kind == "$reduce_xor"
        bits = [of(p) for p in ports["A"]] if whole else [of(ports[p][place]) for p in ports if place < len(ports[p])]
        mask = constant = 0
        for own, one in bits:
            mask, constant = mask ^ own, constant ^ one
        return mask, constant ^ (kind == "$not")
    raise ToolError(f"proof of a checksum: cell {kind} is not linear")


def _checked(form: cells.CellFormat, netlist: Netlist) -> Proof:
    """The checksum is zlib's CRC-32 of the body that leaves with it."""
    flow = Dataflow(netlist, {"body": (0, (1 << form.body_bits) - 1)}, Vectors(), {"advance": 1})
    both = [flow.pieces(netlist.drivers[netlist.bits(name)[0]][0].ports["D"], 0) for name in ("check", "checked_body")]
    zero, columns = checksum_columns(form)
    proof = Proof("sender", "link framing", "a cell's checksum is the CRC-32 of the body beside it", Method.LINEAR, Ruling.PROVEN,
                  f"{form.body_bits} bits")
    expected = [(sum((column >> row & 1) << i for i, column in enumerate(columns)), zero >> row & 1)
                for row in range(cells.CHECK_BITS)]
    expected += [(1 << i, 0) for i in range(form.body_bits)]
    return _linear(proof, flow, both[0] + both[1], "body", expected)


def _linear(proof: Proof, flow: Dataflow, pieces: tuple[Piece, ...], source: str, expected: Sequence[tuple[int, int]]) -> Proof:
    """Whether bits are these parities; a checksum that is no parity at all is wrong."""
    try:
        found = parities_of(flow, pieces, source)
    except ToolError as error:
        return replace(proof, status=Ruling.REFUTED, detail=str(error))
    wrong = [i for i, (own, wanted) in enumerate(zip(found, expected, strict=True)) if own != wanted]
    return replace(proof, status=Ruling.REFUTED, detail=f"bits {wrong} differ") if wrong else proof


def _detected(form: cells.CellFormat, netlist: Netlist) -> Proof:
    """A cell as it was sent has no syndrome; with one to three wrong bits it has one, whatever it says."""
    flow = Dataflow(netlist, {"word": (0, (1 << form.bits) - 1)}, Vectors())
    register = netlist.drivers[netlist.bits("syndrome")[0]][0]
    zero, columns = checksum_columns(form)
    columns += [1 << row for row in range(cells.CHECK_BITS)]
    expected = [(sum((column >> row & 1) << i for i, column in enumerate(columns)), zero >> row & 1)
                for row in range(cells.CHECK_BITS)]
    # Linear: what errors do to the syndrome does not depend on the cell, so one, two and three of them can be listed.
    pairs = {a ^ b for i, a in enumerate(columns) for b in columns[:i]}
    passes = 0 in columns or len(set(columns)) < len(columns) or bool(pairs & set(columns))
    proof = Proof("receiver", "link framing", f"whole cells pass, and with 1 to {DETECTED} wrong bits none does", Method.LINEAR,
                  Ruling.REFUTED if passes else Ruling.PROVEN, f"{form.bits} bits",
                  detail="some errors cancel" if passes else f"no {DETECTED} of {len(columns)} columns cancel")
    return _linear(proof, flow, flow.pieces(register.ports["D"], 0), "word", expected)


def _accepting() -> dict[str, StepRule]:
    """What changes the number that is expected: a whole cell of that number, in this epoch, with data."""
    def numbered(v: Vectors, now: Callable[[str], Term], following: Callable[[str], Term]) -> Term:
        width = cells.NUMBER_BITS
        expected = now("expected")
        number = v.extract(now("body"), 0, width)
        epoch = v.compare("EQUAL", v.extract(now("body"), width, 1), now("epoch"))
        right = all_hold(v, now("good"), v.compare("EQUAL", number, expected), epoch, now("is_data"),
                         v.make("BV_NOT", [now("is_greeting")]), v.make("BV_NOT", [now("failed")]))
        counted = v.choose(right, v.make("BV_ADD", [expected, v.value(1, width)]), expected)
        return v.compare("EQUAL", following("expected"), counted)

    def pushed(v: Vectors, now: Callable[[str], Term], following: Callable[[str], Term]) -> Term:
        accepted = all_hold(v, now("good"), v.make("BV_NOT", [now("failed")]),
                            v.compare("EQUAL", v.extract(now("body"), 0, cells.NUMBER_BITS), now("expected")))
        return implied(v, now("push0"), accepted)

    return {"the number expected counts accepted cells": numbered, "only the cell expected is stored": pushed}


def axi() -> list[Case]:
    """The register port of a shell, and the packing of frames into packets."""
    port = StreamPort("in0", "x", 3, 8, True, 2, 2)
    facts = Facts((port,), (port,), 32, 10, 4, (0,), 0)
    module = control_module("control", facts)
    found = [Case("registers", "AXI shell", texts(module), "control", _registers,
                  r"(has_address|has_data|answered|looking|read_answered|read|read_free|write) <?=")]
    for channels, bus in ((3, 16), (1, 16), (4, 16)):
        packed = replace(port, channels=channels)
        module = frame_out_module("packer", packed, bus)
        found.append(Case(f"{channels} bytes to {bus // 8}", "AXI shell", texts(module), "packer",
                          one(partial(_packs, packed, bus), "AXI shell", "packer")))
    return found


def _registers(files: Files, yosys: Sequence[str]) -> Iterator[Proof]:
    otherwise = Proof("control", "AXI shell", "", Method.NONE, Ruling.SIMULATED)
    yield timed(lambda: prove_registers("control", files, yosys), otherwise)


def prove_registers(top: str, files: Files, yosys: Sequence[str]) -> Proof:
    """The rules of AXI4-Lite at a shell's register port."""
    rules: dict[str, Rule] = {
        "a read is looked up or answered, not both": lambda v, see: v.make(
            "BV_NOT", [v.make("BV_AND", [see("looking"), see("read_answered")])]),
        "a write has address and data, and no answer yet": lambda v, see: implied(v, see("write"), all_hold(
            v, see("has_address"), see("has_data"), v.make("BV_NOT", [see("answered")]))),
    }
    steps: dict[str, StepRule] = {
        "a write's answer stays until it is taken": stays("answered", "bready", "answer"),
        "a read's answer stays until it is taken": stays("read_answered", "rready", "read_word", "read_answer"),
        "a write is answered once, when address and data are there": _answered_once,
        "a read is answered once, when it was asked": _read_once,
        "an address is there when it came": _came("has_address", "awvalid"),
        "data are there when they came": _came("has_data", "wvalid"),
        "a read is looked up when it came": _came("looking", "arvalid"),
    }
    begins: dict[str, Rule] = {f"{name} is 0": partial(_empty, name)
                               for name in ("has_address", "has_data", "write", "answered", "looking", "read_answered")}
    return obligations.prove_invariant(top, "AXI shell", "AXI4-Lite: answers stay, and each request has one",
                                       read_netlist(files, top, yosys), Inductive(rules, steps, begins=begins))


def _empty(name: str, v: Vectors, see: Callable[[str], Term]) -> Term:
    return v.make("BV_NOT", [see(name)])


def _came(name: str, valid: str) -> StepRule:
    """What is kept anew has just been offered."""
    def rule(v: Vectors, now: Callable[[str], Term], following: Callable[[str], Term]) -> Term:
        return implied(v, all_hold(v, v.make("BV_NOT", [now(name)]), following(name)), now(valid))
    return rule


def _answered_once(v: Vectors, now: Callable[[str], Term], following: Callable[[str], Term]) -> Term:
    begins = all_hold(v, v.make("BV_NOT", [now("answered")]), following("answered"))
    asked = all_hold(v, now("has_address"), now("has_data"))
    gone = all_hold(v, v.make("BV_NOT", [following("has_address")]), v.make("BV_NOT", [following("has_data")]))
    return implied(v, begins, all_hold(v, asked, gone))


def _read_once(v: Vectors, now: Callable[[str], Term], following: Callable[[str], Term]) -> Term:
    begins = all_hold(v, v.make("BV_NOT", [now("read_answered")]), following("read_answered"))
    return implied(v, begins, all_hold(v, now("looking"), v.make("BV_NOT", [following("looking")])))


def _packs(port: StreamPort, bus_bits: int, netlist: Netlist) -> Proof:
    """Words of a packet are the pixels' bytes one after the other, zeros behind the last, which is marked."""
    bits, words = 8 * pixel_bytes(port), packet_words(port, bus_bits)
    assert gcd(bits, bus_bits) % 8 == 0
    places = []
    for word in range(words):
        own = list[Place]()
        for place in range(word * bus_bits, (word + 1) * bus_bits):
            beat, bit = divmod(place, bits)
            own.append((0, beat, bit) if beat < port.beats and bit < port.data_bits else 0)
        places.append((*own, int(word == words - 1)))
    monitor = Moves((Flow("in_valid", "in_ready", ("in_data",)),), (port.beats,),
                    (Flow("out_valid", "out_ready", ("out_data", "out_last")),), (tuple(places),), 16)
    statement = "AXI4-Stream: words are the pixels, in order, the last one marked"
    return obligations.prove_moves("packer", "AXI shell", statement, netlist,
                                   Offered(("in_valid", "out_ready"), {"in_data": "in_valid"}), monitor)
