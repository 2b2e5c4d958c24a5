"""What the ends of links take of FPGAs, and that it is taken once."""

from __future__ import annotations

from dovetail.partition.plan import Goal
from dovetail.planning import Options, decide
from dovetail.platform.load import load_platform, platform_from_dict, platform_to_dict
from tests.numerics.lq_networks import network


def test_every_link_to_another_fpga_takes_its_part_and_only_once() -> None:
    single, ring, pair = (load_platform(f"fic:{n}") for n in (1, 3, 2))
    assert single.link_logic("fpga0") == {}, "the host's link is none of them"
    one, two = pair.link_logic("fpga0"), ring.link_logic("fpga1")
    assert one["bram36"] == 20
    assert two == {r: 2 * v for r, v in one.items()}
    left = ring.with_link_logic()
    assert left.device("fpga1").resources["lut"] == ring.device("fpga1").resources["lut"] - two["lut"]
    assert left.with_link_logic() == left
    assert platform_from_dict(platform_to_dict(ring)) == ring
    restored = platform_from_dict(platform_to_dict(left)).with_link_logic()
    assert restored.device("fpga1").resources == left.device("fpga1").resources


def test_plans_give_layers_what_links_leave_and_say_so() -> None:
    board = load_platform("fic:2")
    plan, _, charged = decide(network(1, 2, 2), board, Options(goal=Goal.LATENCY, time_limit_s=1.0))
    limit = plan.resources["fpga0"]["bram36"][1]
    assert limit == board.device("fpga0").resources["bram36"] - 20
    assert charged.device("fpga0").resources["bram36"] == limit
    assert sum("fpga0: the ends of its links take 3,265 lut" in note for note in plan.notes) == 1
