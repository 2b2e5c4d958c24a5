"""A host drives boards that are joined by links: each behind its own AXI shell, all of them in one simulation."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from dovetail.errors import TransportError, UnsupportedError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.axi import registers
from dovetail.fpga.axi.model import Damage
from dovetail.fpga.links.receive import Cause
from dovetail.fpga.links.shells import board_shell, cables_of, host_side
from dovetail.fpga.links.system import System, build_system, systems_of
from dovetail.fpga.part import weight_sets
from dovetail.hardware.folds import Fold
from dovetail.ir import Array, Axis, Graph, slices
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.platform.load import load_platform
from dovetail.runtime.joined import JoinedAccelerator, open_joined
from dovetail.schedule.program import lower
from tests.fpga.joined_boards import chain

FRAMES = 12


def two_boards() -> tuple[System, Graph]:
    """Three layers, the second divided over two boards of which the host is linked to the first."""
    graph, platform = chain(), load_platform("fic:2")
    halves = Split(Axis.OUTPUT_CHANNELS, (Piece("fpga0", 0, 1), Piece("fpga1", 1, 4)))
    program = lower(graph, {"n0": whole_on("fpga0"), "n1": halves, "n2": whole_on("fpga1")})
    ((name, segments),) = systems_of(program, platform).items()
    return build_system(name, segments, {s.name: build_design(s.graph, s.name) for s in segments}, program, platform), graph


def frames(graph: Graph, count: int = FRAMES) -> dict[str, Array]:
    return {"x": np.random.default_rng(11).integers(0, 4, (count, *graph.tensors["x"].shape[1:])).astype(np.uint8)}


def right(boards: JoinedAccelerator, graph: Graph, x: dict[str, Array]) -> bool:
    """Whether what the host took is the reference's."""
    expected, found = run_integer(graph, x), boards.run(x)
    return bool(found) and all(np.array_equal(values.ravel(), expected[p.tensor][(slice(None), *slices(p.region)[1:])].ravel())
                               for p, values in found.items())


def test_a_board_the_host_is_not_linked_to_has_registers_and_links_alone() -> None:
    system, _ = two_boards()
    first, second = (board_shell(board) for board in system.boards)
    assert [p.tensor for p in (*first.core.inputs, *first.core.outputs)] == ["x", "y2"]
    assert (second.core.inputs, second.core.outputs) == ((), ())
    assert [len(s.lanes) for s in (first, second)] == [1, 1]
    assert not any("axis" in pin for pin, _, _ in second.pins)
    assert {"link0_rx_data", "link0_tx_ready"} <= {pin for pin, _, _ in second.pins}
    assert first.build_hash != second.build_hash
    assert {(c.source, c.leaves, c.target, c.enters) for c in cables_of(system, (first, second))} == {(0, 0, 1, 0), (1, 0, 0, 0)}
    listed = {r["name"]: r["address"] for r in json.loads(second.documents()["registers.json"])}
    assert listed["LINK0_SPOILT"] == registers.LINK_BASE + 4
    assert "IN0_FRAMES" not in listed


def test_more_links_than_the_register_map_has_room_for_are_refused() -> None:
    system, _ = two_boards()
    board = system.boards[1]
    many = [replace(board.inputs[0], name=f"link{n}_rx") for n in range(registers.MOST_LINKS + 1)]
    leaving = [replace(board.outputs[0], name=f"link{n}_tx") for n in range(registers.MOST_LINKS + 1)]
    crowded = replace(board, inputs=tuple(many), outputs=(*leaving, board.outputs[-1]))
    assert len(host_side(crowded)[1]) == registers.MOST_LINKS + 1
    with pytest.raises(UnsupportedError, match="5 links; the register map has room for 4"):
        board_shell(crowded)


@pytest.mark.verilator
@pytest.mark.parametrize("stall_seed", [None, 3])
def test_a_host_drives_both_boards_bit_exactly_and_counts_what_links_repeat(stall_seed: int | None) -> None:
    system, graph = two_boards()
    shells = [board_shell(board) for board in system.boards]
    with open_joined(system, shells, stall_seed) as (boards, model):
        assert right(boards, graph, frames(graph))
        clean = boards.links()
        assert all(s.up and not s.cause and not s.spoilt and s.received > 100 and s.sent > 100 for s in clean), clean
        for cable, damage in ((0, Damage.FLIPPED), (1, Damage.LOST)):
            model.spoil(cable, damage, shells[0].lanes[0].tx.data_bits)
            assert right(boards, graph, frames(graph))
        spoilt = boards.links()
        assert [s.board for s in spoilt if s.spoilt] == ["fpga0"], "counters restart with every run"
        boards.reset()
        assert not any(s.spoilt for s in boards.links())
        assert right(boards, graph, frames(graph))


@pytest.mark.verilator
def test_a_link_that_is_cut_or_a_board_that_is_reset_alone_is_named_and_a_reset_of_all_mends_it() -> None:
    system, graph = two_boards()
    shells = [board_shell(board) for board in system.boards]
    with open_joined(system, shells) as (boards, model):
        model.spoil(0, Damage.CUT, shells[0].lanes[0].tx.data_bits)
        with pytest.raises(TransportError, match="link 0 of fpga1: silent; reset all boards"):
            boards.run(frames(graph))
        assert all(registers.LINK_ALARM.of(board.read("STATUS")) for board in boards.boards[1:])
        model.mend()
        boards.reset()
        assert right(boards, graph, frames(graph))
        boards.boards[1].soft_reset()
        with pytest.raises(TransportError, match="link 0 of fpga0: restarted"):
            boards.run(frames(graph))
        boards.reset()
        assert {s.cause for s in boards.links()} == {Cause.NONE}
        assert right(boards, graph, frames(graph))


@pytest.mark.verilator
def test_weights_are_loaded_over_links_after_every_reset() -> None:
    graph, platform, fold = chain(2), load_platform("fic:2"), Fold(1, 2, 1)
    program = lower(graph, {"n0": whole_on("fpga0"), "n1": whole_on("fpga1")})
    ((name, segments),) = systems_of(program, platform).items()
    designs = {s.name: build_design(s.graph, s.name, folds={"n1": fold} if s.device == "fpga1" else {},
                                    loaded=("n1",) if s.device == "fpga1" else ()) for s in segments}
    system = build_system(name, segments, designs, program, platform)
    reader = next(s.graph for s in segments if s.device == "fpga1")
    with open_joined(system, [board_shell(board) for board in system.boards]) as (boards, _):
        boards.load(weight_sets(reader, {"n1": fold}, ("n1",)))
        assert right(boards, graph, frames(graph))
        boards.reset()
        assert right(boards, graph, frames(graph))
