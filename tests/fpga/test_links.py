"""Boards joined by links: cells, time slots, ways over boards, and all boards simulated together with and without faults."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import PlatformError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.engines.stream import Format
from dovetail.fpga.links.bench import Faults, simulate_system
from dovetail.fpga.links.cells import HEADER_BITS, CellFormat, carried, syndrome_masks
from dovetail.fpga.links.joint import Area, overlap
from dovetail.fpga.links.layout import cell_of, entry_of
from dovetail.fpga.links.stored import load_system, write_system
from dovetail.fpga.links.system import System, build_system, cells_over_links, in_turn, systems_of, time_slots
from dovetail.fpga.part import weight_sets
from dovetail.hardware.folds import Fold
from dovetail.ir import Array, Axis, Constant, Conv, Gemm, Graph, MaxPool, Node, Reshape, Scheme, Tensor, Window, slices
from dovetail.numerics.lq import coded_node
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Assignment, Piece, Split, whole_on
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform, platform_of_devices
from dovetail.platform.topology import Topology, pairs_of, with_topology
from dovetail.schedule.program import Program, lower
from tests.fpga.joined_boards import CODES, Cell, chain, encode_cell, narrow
from tests.numerics.lq_networks import learned


def frames(count: int, graph: Graph) -> dict[str, Array]:
    shape = graph.tensors["x"].shape[1:]
    return {"x": np.random.default_rng(7).integers(0, 4, (count, *shape)).astype(np.uint8)}


def joined(graph: Graph, assignment: Assignment, platform: Platform) -> tuple[System, Program]:
    program = lower(graph, assignment)
    ((name, segments),) = systems_of(program, platform).items()
    designs = {s.name: build_design(s.graph, s.name) for s in segments}
    return build_system(name, segments, designs, program, platform), program


def comes_back(system: System, program: Program, platform: Platform, folder: Path) -> bool:
    """Whether a system that is stored is the same when it is loaded."""
    ((name, segments),) = systems_of(program, platform).items()
    write_system(name, segments, {s.name: build_design(s.graph, s.name) for s in segments}, program, platform, folder)
    return load_system(name, folder) == system


def over_three() -> Assignment:
    """The first layer's rows and the second's filters over boards that are not neighbours of each other's readers."""
    rows = Split(Axis.ROWS, (Piece("fpga0", 0, 1), Piece("fpga2", 1, 4)))
    filters = Split(Axis.OUTPUT_CHANNELS, (Piece("fpga1", 0, 3), Piece("fpga2", 3, 4)))
    return {"n0": rows, "n1": filters, "n2": whole_on("fpga2")}


@given(st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.booleans())
def test_a_cell_ends_in_the_checksum_of_its_body_and_its_masks_compute_it(sequence: int, payload: int, data: bool) -> None:
    form = CellFormat(32)
    cell = encode_cell(Cell(sequence, payload, 3, 1, 77, data), form)
    body = cell & (1 << form.body_bits) - 1
    assert cell >> form.body_bits == zlib.crc32(body.to_bytes(form.body_bits // 8, "little"))
    assert body >> HEADER_BITS == payload
    parities = sum(((body & mask).bit_count() + zero) % 2 << i for i, (mask, zero) in enumerate(syndrome_masks(form)))
    assert parities == cell >> form.body_bits


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=9))
def test_every_circuit_has_time_slots_and_more_words_never_have_fewer(words: list[int]) -> None:
    slots = time_slots(words)
    counts = [slots.count(k) for k in range(len(words))]
    assert min(counts) >= 1
    for (one, some), (other, more) in zip(sorted(zip(words, counts, strict=True)), sorted(zip(words, counts, strict=True))[1:],
                                          strict=False):
        assert some <= more or one == other


def test_a_line_a_ring_and_a_mesh_join_the_boards_they_should() -> None:
    assert pairs_of(4, Topology.LINE) == [(0, 1), (1, 2), (2, 3)]
    assert pairs_of(4, Topology.RING) == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert sorted(pairs_of(6, Topology.MESH)) == [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    line = with_topology(load_platform("fic:4"), Topology.LINE)
    assert [x.name for x in line.route("fpga0", "fpga3")] == ["serial0", "serial1", "serial2"]
    with pytest.raises(PlatformError, match="no link between two FPGAs"):
        with_topology(load_platform("tx2-c10gx"), Topology.RING)


def test_a_part_and_a_count_name_the_board_that_has_them() -> None:
    assert platform_of_devices("xcku095:4", "tx2-c10gx") == load_platform("fic:4")
    assert platform_of_devices("XCKU115:2", "tx2-c10gx") == load_platform("fic-ku115:2")
    for wrong in ("xcku095", "xcku:2", "xc7z045:2", ":3"):
        with pytest.raises(PlatformError, match="write fpga:N or xcku095:N or xcku115:N with N from 1 on"):
            platform_of_devices(wrong, "tx2-c10gx")


def test_cells_are_as_wide_as_a_clock_of_the_link_carries() -> None:
    platform = load_platform("fic:2")
    cables = [x for x in platform.links if x.name.startswith("serial")]
    assert cell_of(cables, platform).bits == 336
    assert cell_of([x for x in narrow(platform).links if x.name.startswith("serial")], platform).payload_bits == 32


def test_frames_enter_where_the_host_is_linked_and_segments_around_the_host_are_separate_systems() -> None:
    platform, graph = load_platform("fic:3"), chain()
    assert entry_of(platform, "fpga2") == "fpga0"
    alone = lower(graph, {f"n{n}": whole_on("fpga0") for n in range(3)})
    assert not systems_of(alone, platform), "one board beside its host needs no links"
    around = lower(graph, {"n0": whole_on("fpga1"), "n1": whole_on("cpu"), "n2": whole_on("fpga2")})
    assert [[s.device for s in group] for group in systems_of(around, platform).values()] == [["fpga1"], ["fpga2"]]
    assert [s.device for s in in_turn(around, platform)] == ["fpga1", "cpu", "fpga2"]


def test_a_board_that_only_forwards_has_links_and_no_layer() -> None:
    line = with_topology(load_platform("fic:3"), Topology.LINE)
    system, _ = joined(chain(1), {"n0": whole_on("fpga2")}, line)
    middle = system.boards[system.devices.index("fpga1")]
    assert [p.name for p in (*middle.inputs, *middle.outputs)] == ["link0_rx", "link1_rx", "link0_tx", "link1_tx", "status"]
    assert middle.adders == 0
    assert system.circuits == ("x: fpga0 > fpga1 > fpga2, 1 cells per frame", "y0: fpga2 > fpga1 > fpga0, 1 cells per frame")


def test_narrow_pixels_share_a_cell_and_wide_ones_are_cut() -> None:
    narrow_one, wide = (Format(channels, 2, False, 0, 3, 5, 5) for channels in (3, 30))
    assert (carried(narrow_one, 32).group, carried(narrow_one, 32).cells) == (5, 5)
    assert (carried(narrow_one, 4096).group, carried(narrow_one, 4096).cells) == (25, 1)
    cut = carried(wide, 32)
    assert (cut.form.fields, cut.form.words, cut.cells, cut.bits) == (16, 2, 50, 32)


def test_links_are_charged_for_the_cells_of_all_circuits() -> None:
    platform = narrow(load_platform("fic:3"))
    program = lower(chain(), over_three())
    (segments,) = systems_of(program, platform).values()
    system, _ = joined(chain(), over_three(), platform)
    loads = cells_over_links(segments, program, platform)
    by_circuit = sum(int(c.split(", ")[1].split()[0]) * c.count(" > ") for c in system.circuits)
    assert sum(loads.values()) == by_circuit > 0
    assert set(loads) <= {f"{w.link}:{system.devices[w.source]}" for w in system.wires}


def test_areas_overlap_where_both_have_something() -> None:
    assert overlap((0, 4), (3, 9)) == (3, 4)
    assert overlap((0, 4), (4, 9)) is None
    assert Area((2, 5), (0, 1)).fields == 3


def check(system: System, graph: Graph, count: int, **how: object) -> tuple[int, int]:
    """Faults injected and detected; every frame the host took must be the reference's."""
    x = frames(count, graph)
    found = simulate_system(system, x, **how)  # type: ignore[arg-type]
    right = run_integer(graph, x)
    for port, values in found.outputs.items():
        expected = right[port.tensor][(slice(None), *slices(port.region)[1:])]
        np.testing.assert_array_equal(values.reshape(expected.shape), expected)
    assert len(found.frame_cycles) == count
    return len(found.faults), sum(f.detected for f in found.faults)


def flattened(size: int = 4) -> Graph:
    """A convolution of codes, its map flattened, and a fully connected layer."""
    graph, count = chain(1, size=size), 4 * size * size
    flat = Node("flat", Reshape((1, count)), ("y0",), (), "z")
    last, own = coded_node("last", learned(np.random.default_rng(0), Gemm(3), (3, count), 1, 2), "z", "w", [0.1, 0.5, 0.9], 3, 6)
    tensors = {**graph.tensors, "z": Tensor("z", (1, count), CODES), "w": Tensor("w", (1, 3), CODES)}
    return replace(graph, nodes=(*graph.nodes, flat, last), outputs=("w",), tensors=tensors,
                   constants={**graph.constants, **{c.name: c for c in own}})


@pytest.mark.verilator
def test_a_flattened_map_travels_as_pixels_and_is_put_into_order_where_it_is_read() -> None:
    graph = flattened()
    apart = Split(Axis.OUTPUT_CHANNELS, (Piece("fpga0", 0, 1), Piece("fpga1", 1, 3)))
    system, _ = joined(graph, {"n0": whole_on("fpga0"), "flat": whole_on("fpga0"), "last": apart}, narrow(load_platform("fic:2")))
    assert "z: fpga0 > fpga1, 4 cells per frame" in system.circuits
    check(system, graph, 5)
    check(system, graph, 3, stall_seed=1)


@pytest.mark.verilator
def test_pixels_wider_than_a_cell_travel_in_words() -> None:
    node = Node("n0", MaxPool(Window((2, 2))), ("x",), (), "y0")
    tensors = {"x": Tensor("x", (1, 24, 3, 3), CODES), "y0": Tensor("y0", (1, 24, 2, 2), CODES)}
    graph = Graph("wide", ("x",), ("y0",), (node,), tensors, {})
    system, _ = joined(graph, {"n0": whole_on("fpga1")}, narrow(load_platform("fic:2")))
    assert system.circuits[0] == "x: fpga0 > fpga1, 18 cells per frame"
    check(system, graph, 4)
    check(system, graph, 4, stall_seed=3)


@pytest.mark.verilator
def test_partial_sums_of_divided_input_channels_meet_on_the_board_that_adds_them() -> None:
    rng = np.random.default_rng(0)
    tensors = {"x": Tensor("x", (1, 4, 3, 3), Scheme(8, True, (-4,))), "y": Tensor("y", (1, 3, 2, 2), Scheme(8, True, (-2,)))}
    weights = Constant("w", rng.integers(-3, 4, (3, 4, 2, 2)).astype(np.int8), Scheme(8, True, (-3,) * 3, 0))
    bias = Constant("b", rng.integers(-9, 9, 3).astype(np.int32), Scheme(32, True, (-7,) * 3, 0))
    node = Node("n0", Conv(3, Window((2, 2))), ("x",), ("w", "b"), "y")
    graph = Graph("sums", ("x",), ("y",), (node,), tensors, {"w": weights, "b": bias})
    split = Split(Axis.INPUT_CHANNELS, (Piece("fpga0", 0, 2), Piece("fpga1", 2, 4)), reducer="fpga1")
    system, _ = joined(graph, {"n0": split}, narrow(load_platform("fic:2")))
    assert system.circuits[1] == "y_partial_0_2: fpga0 > fpga1, 12 cells per frame"
    check(system, graph, 4)


@pytest.mark.verilator
def test_rows_and_filters_over_three_boards_are_exact_and_every_spoilt_word_is_repeated(tmp_path: Path) -> None:
    graph, platform = chain(), narrow(load_platform("fic:3"))
    system, program = joined(graph, over_three(), platform)
    check(system, graph, 5)
    check(system, graph, 5, stall_seed=1, jitter=9)
    assert check(system, graph, 400, faults=Faults(1, 150))[0] > 30
    injected, detected = check(system, graph, 400, faults=Faults(2, 5), stall_seed=4, jitter=7)
    assert injected > 1000
    assert detected == 0, "nothing is reported, nobody resets, and no frame is sent again"
    assert comes_back(system, program, platform, tmp_path)


@pytest.mark.verilator
def test_boards_in_a_mesh_are_exact_and_repeat_every_spoilt_word() -> None:
    """What leaves a board for two others goes different ways, and what comes back is joined."""
    graph, platform = chain(2, 2, 3), with_topology(narrow(load_platform("fic:4")), Topology.MESH)
    filters = Split(Axis.OUTPUT_CHANNELS, (Piece("fpga1", 0, 1), Piece("fpga2", 1, 2)))
    system, _ = joined(graph, {"n0": whole_on("fpga3"), "n1": filters}, platform)
    assert len(system.wires) == 8
    check(system, graph, 4, stall_seed=2, jitter=5)
    injected, detected = check(system, graph, 400, faults=Faults(3, 20))
    assert injected > 100
    assert detected == 0


@pytest.mark.verilator
def test_a_link_that_is_broken_for_good_is_reported() -> None:
    """Repetition has an end: without any whole cell for long, a link has failed."""
    graph = chain(1)
    system, _ = joined(graph, {"n0": whole_on("fpga1")}, narrow(load_platform("fic:2")))
    injected, detected = check(system, graph, 60, faults=Faults(1, 60, cut=True))
    assert injected == detected > 2


@pytest.mark.verilator
def test_weights_are_loaded_over_a_line_of_boards_and_again_after_every_reset() -> None:
    """Weights and frames pass a board that reads neither, over links that are cut."""
    graph, platform, fold = chain(2, 2, 3), with_topology(narrow(load_platform("fic:3")), Topology.LINE), Fold(1, 2, 1)
    places: Assignment = {"n0": whole_on("fpga0"), "n1": whole_on("fpga2")}
    program = lower(graph, places)
    ((name, segments),) = systems_of(program, platform).items()
    designs = {s.name: build_design(s.graph, s.name, folds={"n1": fold} if s.device == "fpga2" else None,
                                    loaded=("n1",) if s.device == "fpga2" else ()) for s in segments}
    system = build_system(name, segments, designs, program, platform)
    assert any(c.startswith("n1 weights: fpga0 > fpga1 > fpga2") for c in system.circuits)
    others = np.random.default_rng(5).permutation(graph.constants["n1_codes"].array.reshape(-1)).reshape(2, 2, 3, 3)
    changed = replace(graph, constants={**graph.constants, "n1_codes": replace(graph.constants["n1_codes"], array=others)})
    x, seen = frames(200, graph), list[Array]()
    for own in (graph, changed):
        (reader,) = (s.graph for s in lower(own, places).segments if s.device == "fpga2")
        found = simulate_system(system, {**x, **weight_sets(reader, {"n1": fold}, ("n1",))}, faults=Faults(1, 150, cut=True))
        (values,) = found.outputs.values()
        np.testing.assert_array_equal(values.reshape(200, 2, 3, 3), run_integer(own, x)["y1"])
        assert all(f.detected for f in found.faults)
        assert len(found.faults) > 10
        seen.append(values)
    assert not np.array_equal(*seen), "the other weights give other answers"
