"""Boards as circuit switches: time slots shared out exactly, tables without collisions, and all boards simulated together."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import PlatformError, UnsupportedError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.links.bench import Faults, simulate_system
from dovetail.fpga.links.slots import LEAST_SLOTS, Circuit, SlotSchedule, clocks_of, follow, schedule, shares_of
from dovetail.fpga.links.system import build_system, systems_of
from dovetail.fpga.part import weight_sets
from dovetail.hardware.folds import Fold
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import whole_on
from dovetail.platform.device import Switch
from dovetail.platform.load import load_platform, platform_from_dict, platform_to_dict
from dovetail.platform.topology import joined_as, with_switch
from dovetail.schedule.program import lower
from tests.fpga.joined_boards import chain, narrow
from tests.fpga.test_links import check, comes_back, frames, joined, over_three


def ways(most: int, cells: int) -> st.SearchStrategy[list[Circuit]]:
    """Circuits over a line of four boards, each from some board to another."""
    ends = st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda e: e[0] != e[1])
    return st.lists(st.tuples(ends, st.integers(0, cells)), min_size=1, max_size=most).map(
        lambda drawn: [Circuit(f"c{n}", way(*e), size) for n, (e, size) in enumerate(drawn)])


def way(source: int, target: int) -> tuple[tuple[str, str], ...]:
    step = 1 if target > source else -1
    return tuple((f"link{min(at, at + step)}", f"board{at}") for at in range(source, target, step))


def sound(circuits: list[Circuit], found: SlotSchedule) -> None:
    """No slot twice, as many on each link of a way, and every slot on a board between followed by one of the same circuit."""
    for hop, owners in found.owners.items():
        assert len(owners) == found.slots
        assert {o for o in owners if o is not None} == {n for n, c in enumerate(circuits) if hop in c.hops}
    for n, circuit in enumerate(circuits):
        for hop in circuit.hops:
            assert len(found.of(n, hop)) == found.shares[n] >= 1
        for here, there in zip(circuit.hops, circuit.hops[1:], strict=False):
            pairs = follow(found.owners[here], found.owners[there], [n])
            assert [a for a, _ in pairs] == list(found.of(n, here))
            assert [b for _, b in pairs] == list(found.of(n, there)), "words of a circuit keep their order"


@settings(max_examples=15, deadline=None)
@given(ways(12, 5000), st.integers(1, 20_000))
def test_slots_are_never_used_twice_and_follow_each_other(circuits: list[Circuit], wanted: int) -> None:
    found = schedule(circuits, 64, wanted)
    sound(circuits, found)
    assert LEAST_SLOTS <= found.slots <= 64
    assert found.clocks == clocks_of(circuits, found.slots, found.shares)


@settings(max_examples=40, deadline=None)
@given(ways(4, 40), st.integers(4, 7))
def test_no_other_shares_carry_a_frame_sooner(circuits: list[Circuit], slots: int) -> None:
    """Held against all shares there are."""
    hops = {hop for c in circuits for hop in c.hops}
    possible = [n for n in product(range(1, slots + 1), repeat=len(circuits))
                if all(sum(k for k, c in zip(n, circuits, strict=True) if hop in c.hops) <= slots for hop in hops)]
    assert shares_of(circuits, slots) in possible
    assert clocks_of(circuits, slots, shares_of(circuits, slots)) == min(clocks_of(circuits, slots, n) for n in possible)


def test_more_circuits_than_slots_are_refused_with_the_link_and_its_circuits() -> None:
    circuits = [Circuit(f"c{n}", (("serial0", "fpga0"),), 5) for n in range(3)]
    with pytest.raises(UnsupportedError) as refused:
        schedule(circuits, 2, 100)
    assert str(refused.value) == ("link serial0 from fpga0: 3 circuits (c0, c1, c2) need a time slot each, and a frame of its "
                                  "switch has 2; divide less, or put layers that exchange data on one board")


def test_frames_grow_only_as_far_as_the_pace_asks() -> None:
    line = (("serial0", "fpga0"),)
    even = [Circuit(f"c{n}", line, 100) for n in range(3)]
    assert schedule(even, 64, 1000).slots == LEAST_SLOTS
    assert schedule(even, 64, 300).slots == 18, "three times six slots carry 300 cells in 300 clocks, and no fewer slots do"
    assert schedule(even, 64, 299).clocks == 300, "a link with 300 cells takes 300 clocks, whatever its slots are"


def test_a_switch_is_chosen_as_a_topology_and_kept_in_plans(tmp_path: Path) -> None:
    board = joined_as(load_platform("fic:4"), "mesh+switch")
    assert (board.switch is not None, len([x for x in board.links if x.name.startswith("serial")])) == (True, 4)
    assert platform_from_dict(platform_to_dict(board)) == board
    assert joined_as(load_platform("fic:4"), "line").switch is None
    plain, switched = load_platform("fic:2").link_logic("fpga0"), joined_as(load_platform("fic:2"), "switch").link_logic("fpga0")
    assert switched != plain, "ends of links are charged as they are then"
    assert joined_as(load_platform("fic:2"), "switch").with_link_logic().switch is not None
    own = tmp_path / "own.toml"
    boards = Path(load_platform.__code__.co_filename).with_name("boards")
    text = (boards / "fic.toml").read_text() + "\n[switch]\nslots = { value = 16, source = \"assumed\" }\n"
    own.write_text(text)
    assert load_platform(f"{own}:3").switch == Switch(16, "assumed")
    own.write_text(text.replace("value = 16, source = \"assumed\" }", "value = 16.5, source = \"assumed\" }"))
    with pytest.raises(PlatformError, match=r"switch: key slots is 16\.5; a whole number from 2 to 128 time slots is needed"):
        load_platform(f"{own}:3")


def test_what_no_switch_can_join_is_named() -> None:
    with pytest.raises(PlatformError, match="no link between two FPGAs, so there is nothing to switch"):
        joined_as(load_platform("tx2-c10gx"), "switch")
    ring = load_platform("fic:3")
    uneven = replace(ring, links=tuple(replace(x, bandwidth_bytes_per_s=1e9) if x.name == "serial1" else x for x in ring.links))
    with pytest.raises(PlatformError, match=r"a switch needs links of one bandwidth, and serial1 has 1e\+09 B/s where serial2"):
        with_switch(uneven)


@pytest.mark.verilator
def test_circuits_through_a_switch_are_exact_late_words_wait_and_every_spoilt_one_is_reported(tmp_path: Path) -> None:
    """Over a line, what the first and the third board exchange passes the second, both ways."""
    graph, platform = chain(), joined_as(narrow(load_platform("fic:3")), "line+switch")
    system, program = joined(graph, over_three(), platform)
    assert system.slots[0] == "frames of 16 time slots carry a frame of the network in 10 clocks of a link"
    assert any(line.startswith("x: ") and "serial0 from fpga0 in " in line and "serial1 from fpga1 in " in line
               for line in system.slots), "the same circuit's slots on both links"
    middle = system.boards[system.devices.index("fpga1")]
    passages = [text for name, text in middle.files.items() if "_pass" in name]
    assert len(passages) == 2, "one way each"
    check(system, graph, 5)
    check(system, graph, 5, stall_seed=1, jitter=200)
    injected, detected = check(system, graph, 100, faults=Faults(1, 150))
    assert injected > 50
    assert detected == injected
    assert comes_back(system, program, platform, tmp_path)


@pytest.mark.verilator
def test_switches_in_a_mesh_pass_on_between_three_links_and_weights_as_well() -> None:
    """Frames, weights and what two boards exchange all cross a third, each over another pair of its links."""
    graph, platform, fold = chain(2, 2, 3), joined_as(narrow(load_platform("fic:6")), "mesh+switch"), Fold(1, 2, 1)
    program = lower(graph, {"n0": whole_on("fpga2"), "n1": whole_on("fpga4")})
    ((name, segments),) = systems_of(program, platform).items()
    designs = {s.name: build_design(s.graph, s.name, folds={"n1": fold} if s.device == "fpga4" else None,
                                    loaded=("n1",) if s.device == "fpga4" else ()) for s in segments}
    system = build_system(name, segments, designs, program, platform)
    assert system.devices == ("fpga0", "fpga1", "fpga2", "fpga3", "fpga4")
    assert len([f for f in system.boards[1].files if "_pass" in f]) == 3, "frames, weights, and what the boards exchange"
    assert any(line.startswith("n1 weights: 1 of 16 slots; serial0 from fpga0") for line in system.slots)
    (reader,) = (s.graph for s in segments if s.device == "fpga4")
    x = frames(60, graph)
    found = simulate_system(system, {**x, **weight_sets(reader, {"n1": fold}, ("n1",))}, jitter=5, faults=Faults(3, 150))
    (values,) = found.outputs.values()
    np.testing.assert_array_equal(values.reshape(60, 2, 3, 3), run_integer(graph, x)["y1"])
    assert len(found.faults) > 5
    assert all(f.detected for f in found.faults)
