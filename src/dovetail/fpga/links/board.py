"""One board of a system: its layers, the ends of its links, and what stands between them, as one design.

The top module of a board has the streams that host and board exchange, a pair of streams `linkN_rx` and `linkN_tx` per link,
whose words are cells, and `status`: bit 0 a fault anywhere, bit 1 all links up, then four bits per link: up, and the cause of
its fault (`receive.Cause`); then a bit per link that is set for a clock when a cell came spoilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.fpga.assemble import StreamWires, stream_ports
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.engines.stream import Format
from dovetail.fpga.links.cells import CREDIT_BITS
from dovetail.fpga.links.joint import flatten_module, is_flattened, joint_module
from dovetail.fpga.links.receive import CAUSE_BITS, ArrivingSlots, passage_bits, receiver_module
from dovetail.fpga.links.slots import follow
from dovetail.fpga.links.switch import LeavingSlots, passage_module, switch_transmitter
from dovetail.fpga.links.transmit import Outgoing, transmitter_module
from dovetail.fpga.links.wiring import BoardPlan, LinkEnd, Wiring
from dovetail.fpga.rtl.expressions import ONE, Signal, all_of, any_of, pack, signal
from dovetail.fpga.rtl.modules import Instance, Module

Pins = list[tuple[str, Signal]]
STATUS_BITS = 2
"""Of `status` before those of links."""


def build_board(plan: BoardPlan) -> Design:
    """The board's design; inputs are the host's, then the links' cells, outputs likewise, `status` last."""
    b = Wiring(plan)
    for index, port in enumerate(plan.inputs):
        b.offer(("host", index), stream_ports(b.module, port.name, port.data_bits, True))
    for name, core in plan.cores:
        for index, port in enumerate(core.outputs):
            b.offer(("core", name, index), b.wires(f"{name}_{port.name}", port.data_bits))
    for number, end in enumerate(plan.links):
        for j, carriage in enumerate(end.incoming):
            if (number, j) not in plan.passing:
                b.offer(("rx", number, j), b.wires(f"rx_{number}_{j}", carriage.bits))
    given = _inputs_of_cores(b)
    for name, core in plan.cores:
        outs = [pin for index, port in enumerate(core.outputs) for pin in b.producers["core", name, index].pins(port.name)]
        ins = [pin for index, port in enumerate(core.inputs) for pin in given[name, index].pins(port.name)]
        b.module.instances.append(Instance(core.top, f"u_{name}", (*ins, *outs)))
    for port, reading in plan.outputs:
        outer, inner = stream_ports(b.module, port.name, port.data_bits, False), b.whole(reading, f"host_{port.name}")
        b.lead(inner, [outer], port.name)
    _add_ends(b)
    b.connect()
    return _design(b)


def _inputs_of_cores(b: Wiring) -> dict[tuple[str, int], StreamWires]:
    """The stream of every core's input, its parts joined."""
    given: dict[tuple[str, int], StreamWires] = {}
    for name, index, port, wanted, parts in b.plan.readings:
        ends = [b.whole(part, f"{name}_in{index}_{k}") for k, part in enumerate(parts)]
        if wanted is None:
            given[name, index] = _in_order(b, f"{name}_in{index}", ends[0], parts[0].arrives.form, port)
            continue
        areas = [part.area for part in parts]
        label = f"joint_{name}_in{index}"
        joint = joint_module(f"{b.plan.name}_{label}", [a for a in areas if a is not None], wanted, port.width, port.bits)
        made = b.wires(label, port.data_bits)
        pins = [pin for k, end in enumerate(ends) for pin in end.pins(f"in{k}")]
        b.instantiate(joint, f"u_{label}", *pins, *made.pins("out"))
        given[name, index] = made
    return given


def _in_order(b: Wiring, name: str, link: StreamWires, form: Format, port: StreamPort) -> StreamWires:
    """What an input reads from one stream: as it comes, or flattened."""
    if not is_flattened(form, port):
        return link
    made = b.wires(f"{name}_flat", port.data_bits)
    b.instantiate(flatten_module(f"{b.plan.name}_{name}_flat", form), f"u_{name}_flat", *link.pins("in"), *made.pins("out"))
    return made


def _design(b: Wiring) -> Design:
    plan = b.plan
    adders = sum(core.adders for _, core in plan.cores)
    b.module.header = (f"{plan.name}: {len(plan.cores)} cores, {len(plan.links)} links.",)
    files = {name: text for _, core in plan.cores for name, text in core.files.items()} | b.files()
    cells = [(f"link{n}", StreamPort(f"link{n}_rx", end.name, 1, plan.cell.bits, False, 1, 1),
              StreamPort(f"link{n}_tx", end.name, 1, plan.cell.bits, False, 1, 1)) for n, end in enumerate(plan.links)]
    status = StreamPort("status", "status", 1, STATUS_BITS + (1 + CAUSE_BITS + 1) * len(plan.links), False, 1, 1)
    return Design(plan.name, files, (*plan.inputs, *(rx for _, rx, _ in cells)),
                  (*(port for port, _ in plan.outputs), *(tx for _, _, tx in cells), status), adders=adders,
                  latency_cycles=sum(core.latency_cycles for _, core in plan.cores) + plan.wait_clocks,
                  interval_cycles=max([core.interval_cycles for _, core in plan.cores], default=1))


@dataclass(frozen=True, slots=True)
class SwitchPassage:
    """What a switch passes on from one link to another: circuits by their numbers on both, and slots in and slots out."""

    number: int
    source: int
    target: int
    circuits: tuple[tuple[int, int], ...]
    slots: tuple[tuple[int, int], ...]


def _passages_of(plan: BoardPlan) -> tuple[SwitchPassage, ...]:
    """One for every pair of links with circuits between them."""
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (source, j), (target, k) in plan.passing.items():
        pairs.setdefault((source, target), []).append((j, k))
    found = []
    for number, ((source, target), circuits) in enumerate(sorted(pairs.items())):
        came = dict(circuits)
        arriving = [came.get(owner) for owner in plan.links[source].arriving]
        slots = follow(arriving, plan.links[target].slots, [k for _, k in circuits])
        found.append(SwitchPassage(number, source, target, tuple(sorted(circuits)), tuple(slots)))
    return tuple(found)


def _add_ends(b: Wiring) -> None:
    """Transmitters and receivers, and the board's alarm and status."""
    plan, module = b.plan, b.module
    alarm, faults, ups, states = signal("alarm"), list[Signal](), list[Signal](), list[tuple[Signal, int]]()
    passages, nets = _passages_of(plan), _Nets(module)
    for n, end in enumerate(plan.links):
        sent, held = _buffers(end)
        into, out_of = [p for p in passages if p.target == n], [p for p in passages if p.source == n]
        sender = _sender(plan, n, sent, into, len(held))
        through = {j: p.number for p in out_of for j, _ in p.circuits}
        receiver, parts = receiver_module(f"{plan.name}_rx{n}", plan.cell, held, plan.identity,
                                          ArrivingSlots(end.arriving, through) if end.arriving else None)
        b.parts += parts
        rx, tx = (stream_ports(module, f"link{n}_{way}", plan.cell.bits, way == "rx") for way in ("rx", "tx"))
        begin = {k for k in range(len(sent)) if not any(k == leaves for p in into for _, leaves in p.circuits)}
        taken = {k: b.tap(key if key[0] == "rx" else b.in_cells(key, carriage))
                 for k, (key, carriage) in enumerate(end.outgoing) if k in begin}
        known = dict([*rx.pins("rx"), *(pin for j in range(len(held)) if j not in through
                                        for pin in b.producers["rx", n, j].pins(f"ch{j}"))])
        b.instantiate(receiver, f"u_rx{n}", *nets.pins(receiver, n, known))
        known = dict([*tx.pins("tx"), ("alarm", alarm), *(pin for k, link in taken.items() for pin in link.pins(f"ch{k}")),
                      *(pin for p in out_of for j, k in p.circuits for pin in nets.relayed(j, p.target, k))])
        b.instantiate(sender, f"u_tx{n}", *nets.pins(sender, n, known))
        faults += [nets.of(f"link{n}_fault"), nets.of(f"link{n}_alarmed")]
        ups.append(nets.of(f"link{n}_up"))
        states += [(ups[-1], 1), (nets.of(f"link{n}_fault_cause", CAUSE_BITS), CAUSE_BITS)]
    for p in passages:
        width = passage_bits(p.number, _buffers(plan.links[p.source])[1], {j: p.number for j, _ in p.circuits})
        made = passage_module(f"{plan.name}_pass{p.number}", width, len(p.slots))
        known = {pin: nets.of(f"link{p.target}_slot_{pin}") for pin in ("step", "ends")}
        b.instantiate(made, f"u_pass{p.number}", *nets.named(made, f"pass{p.number}_", known))
    module.drive(alarm, any_of(alarm, *faults), reset=0)
    states += [(nets.of(f"link{n}_spoilt"), 1) for n in range(len(plan.links))]
    status = stream_ports(module, "status", STATUS_BITS + sum(bits for _, bits in states), False)
    module.assigns += [(status.valid, ONE), (status.data, pack([(alarm, 1), (all_of(*ups), 1), *states]))]


class _Nets:
    """Wires between the ends of links and passages, each made when it is first asked for."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.made: dict[str, Signal] = {}

    def of(self, name: str, width: int = 1) -> Signal:
        if name not in self.made:
            self.made[name] = self.module.net(name, width)
        return self.made[name]

    def named(self, made: Module, prefix: str, known: Mapping[str, Signal]) -> Pins:
        """A wire of its own name behind a prefix for every port that is not known."""
        return [(port.name, known[port.name] if port.name in known else self.of(prefix + port.name, port.width))
                for port in (*made.inputs, *made.outputs)]

    def pins(self, made: Module, link: int, known: Mapping[str, Signal]) -> Pins:
        """Those of a link's end; what belongs to a passage is the board's."""
        passes = {port.name: self.of(port.name, port.width) for port in (*made.inputs, *made.outputs)
                  if port.name.startswith("pass")}
        return self.named(made, f"link{link}_", {**passes, **known})

    def relayed(self, incoming: int, target: int, outgoing: int) -> Pins:
        """The credit of a circuit that came with one number, as the link that it leaves over with another was told it."""
        return [(f"freed{incoming}", self.of(f"link{target}_relay{outgoing}_count", CREDIT_BITS)),
                (f"told{incoming}", self.of(f"link{target}_relay{outgoing}_told"))]


def _buffers(end: LinkEnd) -> tuple[list[Outgoing], list[Outgoing]]:
    """Circuits that leave and that come, with the room at their ends."""
    sent = [Outgoing(carriage.bits, depth) for (_, carriage), depth in zip(end.outgoing, end.depths[1], strict=True)]
    return sent, [Outgoing(carriage.bits, depth) for carriage, depth in zip(end.incoming, end.depths[0], strict=True)]


def _sender(plan: BoardPlan, n: int, sent: list[Outgoing], into: list[SwitchPassage], incoming: int) -> Module:
    """The transmitter of a link: of a switch, or of a board that has a buffer for all that it passes on."""
    end, name = plan.links[n], f"{plan.name}_tx{n}"
    if not end.arriving:
        return transmitter_module(name, plan.cell, sent, end.slots, incoming, plan.identity)
    through = {k: p.number for p in into for _, k in p.circuits}
    places = {p.number: {leaves: place for place, (_, leaves) in enumerate(p.slots)} for p in into}
    relayed = [(n, j) in plan.passing for j in range(incoming)]
    return switch_transmitter(name, plan.cell, sent, LeavingSlots(end.slots, through, places), relayed, plan.identity)
