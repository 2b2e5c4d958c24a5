"""One board of a system: its layers, the ends of its links, and what stands between them, as one design.

The top module of a board has the streams that host and board exchange, a pair of streams `linkN_rx` and `linkN_tx` per link,
whose words are cells, and `status`: bit 0 a fault anywhere, bit 1 all links up, then four bits per link: up, and the cause of
its fault (`receive.Cause`).
"""

from __future__ import annotations

from dovetail.fpga.assemble import StreamWires, stream_ports
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.engines.stream import Format
from dovetail.fpga.links.ends import add_ends
from dovetail.fpga.links.flatten import flatten_module, is_flattened
from dovetail.fpga.links.joint import joint_module
from dovetail.fpga.links.wiring import BoardPlan, Wiring
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.fpga.rtl.verilog import print_module


def build_board(plan: BoardPlan) -> Design:
    """The board's design; inputs are the host's, then the links' cells, outputs likewise, `status` last."""
    b = Wiring(plan, Module(plan.name))
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
        outs = [pin for index, port in enumerate(core.outputs) for pin in b.producers["core", name, index][0].pins(port.name)]
        ins = [pin for index, port in enumerate(core.inputs) for pin in given[name, index].pins(port.name)]
        b.module.instances.append(Instance(core.top, f"u_{name}", (*ins, *outs)))
    for port, reading in plan.outputs:
        outer, inner = stream_ports(b.module, port.name, port.data_bits, False), b.whole(reading, f"host_{port.name}")
        b.module.assigns += [(outer.valid, inner.valid), (outer.data, inner.data), (inner.ready, outer.ready)]
    add_ends(b)
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
    files = {name: text for _, core in plan.cores for name, text in core.files.items()}
    files |= {f"{m.name}.v": print_module(m) for m in (b.module, *b.parts)}
    cells = [(f"link{n}", StreamPort(f"link{n}_rx", end.name, 1, plan.cell.bits, False, 1, 1),
              StreamPort(f"link{n}_tx", end.name, 1, plan.cell.bits, False, 1, 1)) for n, end in enumerate(plan.links)]
    status = StreamPort("status", "status", 1, 2 + 4 * len(plan.links), False, 1, 1)
    return Design(plan.name, files, (*plan.inputs, *(rx for _, rx, _ in cells)),
                  (*(port for port, _ in plan.outputs), *(tx for _, _, tx in cells), status), adders=adders,
                  latency_cycles=sum(core.latency_cycles for _, core in plan.cores) + plan.wait_clocks,
                  interval_cycles=max([core.interval_cycles for _, core in plan.cores], default=1))
