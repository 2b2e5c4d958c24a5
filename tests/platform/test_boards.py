"""The shipped boards: what they are, what their plans look like, and boards of N equal devices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.cost import costs_of
from dovetail.errors import PlatformError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.synthesize import FAMILIES, synthesize
from dovetail.ir import RELU, Conv, Graph, MaxPool, Window
from dovetail.partition.solve import plan
from dovetail.platform.describe import describe
from dovetail.platform.device import Kind
from dovetail.platform.fitted import dhm_model
from dovetail.platform.load import RESOURCE_KEYS, example_of, load_platform, platform_from_dict, platform_names, platform_to_dict
from tests.strategies import Net, quantized

BOARDS = [*(example_of(name) for name in platform_names()), "fic:1", "fic:3", "fic:24", "fic-ku115:24"]
PARTS = {
    # Look-up tables, registers, RAM blocks of 36 kbit, multipliers, as in the vendor's DS180, DS190, DS890, DS891, DS987.
    "zcu102": (274_080, 548_160, 912, 2_520),
    "kcu105": (242_400, 484_800, 600, 1_920),
    "zc706": (218_600, 437_200, 545, 900),
    "pynq-z2": (53_200, 106_400, 140, 220),
    "zedboard": (53_200, 106_400, 140, 220),
    "zybo-z7-20": (53_200, 106_400, 140, 220),
    "cora-z7-10": (17_600, 35_200, 60, 80),
    "cora-z7-07s": (14_400, 28_800, 50, 66),
    "arty-a7-100t": (63_400, 126_800, 135, 240),
    "kv260": (117_120, 234_240, 144, 1_248),
    "fic:2": (537_600, 1_075_200, 1_680, 768),
    "fic-ku115:2": (663_360, 1_326_720, 2_160, 5_520),
}


def small_network() -> Graph:
    net = Net(5)
    x = net.input((1, 3, 16, 16))
    x = net.add(Conv(8, Window((3, 3), pads=(1, 1, 1, 1)), 1, RELU), x)
    x = net.add(MaxPool(Window((2, 2), (2, 2))), x)
    return quantized(net.graph(net.add(Conv(8, Window((3, 3))), x)))


def test_the_boards_of_the_issue_are_there() -> None:
    assert platform_names() == ("arty-a7-100t", "cora-z7-07s", "cora-z7-10", "ecp5-85", "fic-ku115:N", "fic:N", "h200", "kcu105",
                                "kv260", "pynq-z2", "tang-primer-20k", "this-machine", "tx2", "tx2-c10gx", "ulx3s", "zc706",
                                "zcu102", "zedboard", "zybo-z7-20")


@pytest.mark.parametrize("name", ["arty-a7-100t", "tang-primer-20k", "ulx3s"])
def test_a_serial_line_carries_no_more_than_its_speed_and_is_slower_than_any_bus(name: str) -> None:
    link, = load_platform(name).links
    assert link.bandwidth_bytes_per_s < 400e3
    buses = [load_platform(other).links[0] for other in ("ecp5-85", "pynq-z2")]
    assert link.transfer_s(1 << 20) > 100 * max(bus.transfer_s(1 << 20) for bus in buses)


@pytest.mark.parametrize("name", [name for name in PARTS if name.startswith(("zc", "pynq", "zed", "zybo", "cora", "kv"))])
def test_masters_of_a_shared_memory_read_no_faster_than_they_are_wide(name: str) -> None:
    board = load_platform(name)
    fpga, = board.of_kind(Kind.FPGA)
    masters, width = fpga.parameters["memory_masters"], fpga.parameters["memory_master_bytes"]
    assert fpga.parameters["memory_bytes_per_s"] <= masters * width * fpga.clock_hz
    assert board.links[0].bandwidth_bytes_per_s <= width * fpga.clock_hz


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_survives_json(name: str) -> None:
    board = load_platform(name)
    assert board.name == name
    assert platform_from_dict(json.loads(json.dumps(platform_to_dict(board)))) == board


@pytest.mark.parametrize("name", BOARDS)
def test_the_description_shows_every_number_with_its_source_and_marks_what_is_assumed(name: str) -> None:
    board = load_platform(name)
    lines = describe(board).splitlines()
    for owner in (*board.devices, *board.links):
        for key, source in owner.sources.items():
            line = next(x for x in lines if x.strip().startswith(key.split(".")[-1]) and x.endswith(source))
            assert ("* " in line) == source.startswith("assumed"), line


@pytest.mark.parametrize("name", [name for name in BOARDS if not name.endswith(":24")])
def test_every_board_has_a_plan_no_worse_than_any_simpler_one(name: str) -> None:
    found = plan(small_network(), load_platform(name))
    assert found.lower_bound <= found.objective
    assert all(found.objective <= value for value in found.baselines.values() if value is not None)


@pytest.mark.parametrize(("name", "numbers"), PARTS.items())
def test_xilinx_parts_have_the_vendors_counts(name: str, numbers: tuple[int, ...]) -> None:
    for device in load_platform(name).of_kind(Kind.FPGA):
        assert tuple(device.resources[key] for key in ("lut", "register", "bram36", "dsp")) == numbers


def test_every_family_of_a_board_can_be_synthesized_and_counts_what_its_model_names() -> None:
    for name in BOARDS:
        for device in load_platform(name).of_kind(Kind.FPGA):
            assert device.family in FAMILIES
            model = dhm_model(device.model)
            assert {model.logic, model.block, "register", "dsp"} == set(RESOURCE_KEYS[device.family])
            graph = small_network()
            costs = costs_of(graph, graph.nodes[0], None, np.array([0]), np.array([1]), device)
            assert costs is not None
            assert set(costs.resources) == set(device.resources)


def test_the_tx2_alone_is_the_tx2_of_the_papers_board() -> None:
    alone, papers = load_platform("tx2"), load_platform("tx2-c10gx")
    assert alone.devices == papers.devices[:2]
    assert alone.links == papers.links[:1]


def test_a_ring_joins_each_board_to_the_next_and_the_host_to_the_first() -> None:
    ends = {n: [link.ends for link in load_platform(f"fic:{n}").links] for n in (1, 2, 4)}
    assert ends == {
        1: [("cpu", "fpga0")],
        2: [("cpu", "fpga0"), ("fpga0", "fpga1")],
        4: [("cpu", "fpga0"), ("fpga0", "fpga1"), ("fpga1", "fpga2"), ("fpga2", "fpga3"), ("fpga3", "fpga0")],
    }
    ring = load_platform("fic:24")
    assert [d.name for d in ring.of_kind(Kind.FPGA)] == [f"fpga{i}" for i in range(24)]
    assert len(ring.route("cpu", "fpga12")) == 13
    assert len(ring.route("fpga1", "fpga22")) == 3
    assert ring.description == ("Flow-in-Cloud: 24 of up to 24 Kintex UltraScale XCKU095 in a ring of serial links, "
                                "Raspberry Pi 3 host")


def test_equal_devices_and_links_are_described_once() -> None:
    text = describe(load_platform("fic:24"))
    assert "\nfpga0 to fpga23 (fpga): XCKU095 (20 nm), direct hardware mapping\n" in text
    assert "\nlink serial0 to serial23: fpga0 - fpga1, fpga1 - fpga2, ..., fpga23 - fpga0, full duplex\n" in text
    assert text.count("clock_hz") == 1
    assert "\nlink serial0: fpga0 - fpga1, full duplex\n" in describe(load_platform("fic:2"))


def test_numbers_are_shown_in_full_or_with_the_exponent_of_a_prefix() -> None:
    text = describe(load_platform("fic:1"))
    assert "  register      1,075,200  UltraScale" in text
    assert "  clock_hz          100e6* assumed" in text
    assert "  peak_flop_per_s        38.4e9  4 cores" in text
    assert "  launch_s                30e-6* assumed" in text


COUNTS = [
    ("fic", "platform fic: the number of devices is missing; write fic:N with N from 1 to 24, such as fic:2"),
    ("fic:0", "platform fic:0: N is '0'; a whole number from 1 to 24 devices is needed, such as fic:2"),
    ("fic:25", "platform fic:25: N is '25'; a whole number from 1 to 24 devices is needed, such as fic:2"),
    ("fic:N", "platform fic:N: N is 'N'; a whole number from 1 to 24 devices is needed, such as fic:2"),
    ("fic:", "platform fic:: N is ''; a whole number from 1 to 24 devices is needed, such as fic:2"),
    ("fic:2.5", "platform fic:2.5: N is '2.5'; a whole number from 1 to 24 devices is needed, such as fic:2"),
    ("fic:-1", "platform fic:-1: N is '-1'; a whole number from 1 to 24 devices is needed, such as fic:2"),
    ("fic:²", "platform fic:²: N is '²'; a whole number from 1 to 24 devices is needed, such as fic:2"),
    ("tx2:3", "platform tx2:3: tx2 has no [repeat] table, so no number of devices can be chosen; write tx2"),
    ("fix:4", f"platform fix:4: unknown (did you mean fic:N?); known are {', '.join(platform_names())}, "
     "or give the path of a board file (.toml)"),
]


@pytest.mark.parametrize(("name", "message"), COUNTS, ids=[name for name, _ in COUNTS])
def test_a_wrong_number_of_boards_is_named_with_what_is_allowed(name: str, message: str) -> None:
    with pytest.raises(PlatformError) as caught:
        load_platform(name)
    assert str(caught.value) == message


EDITS = [
    ('device = "fpga"\nlink', 'device = "fpgaa"\nlink',
     "{file}, repeat: key device is 'fpgaa' (did you mean fpga?); allowed are cpu, fpga"),
    ('link = "serial"', 'link = "cereal"',
     "{file}, repeat: key link is 'cereal' (did you mean serial?); allowed are gpio, serial"),
    ("most = 24", "most = 2.5", "{file}, repeat: key most is 2.5; a whole number from 1 to 64 devices is needed"),
    ("most = 24", "most = 1000", "{file}, repeat: key most is 1000; allowed is 1 to 64 devices"),
    ("most = 24", "least = 24", "{file}, repeat: unknown key least; allowed are device, link, most"),
    ("most = 24", "", "{file}, repeat: key most is missing; needed are device, link, most"),
    ('ends = ["fpga", "fpga"]', 'ends = ["fpga", "cpu"]',
     "{file}, link serial: key ends is ['fpga', 'cpu']; a link that repeats joins 'fpga' to itself: [\"fpga\", \"fpga\"]"),
    ("value = 100e6", "value = 100",
     "{file}, device fpga0, clock_hz: key value is 100; allowed is 10000 to 1e+11 Hz"),
    ("bram36 = { value = 1680", "bram18 = { value = 1680",
     "{file}, device fpga0, resources: unknown key bram18 (did you mean bram36?); allowed are lut, register, bram36, dsp"),
]


@pytest.mark.parametrize(("old", "new", "message"), EDITS, ids=[message[8:60] for _, _, message in EDITS])
def test_a_wrong_repeating_board_file_is_refused_with_the_whole_story(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (Path(__file__).parents[2] / "src/dovetail/platform/boards/fic.toml").read_text(encoding="utf-8")
    assert text.count(old) == 1
    file = tmp_path / "ring.toml"
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(PlatformError) as caught:
        load_platform(f"{file}:3")
    assert str(caught.value) == message.format(file=file)


def test_a_repeating_board_of_ones_own_takes_its_number_after_the_path(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "src/dovetail/platform/boards/fic.toml").read_text(encoding="utf-8")
    file = tmp_path / "ring.toml"
    file.write_text(text.replace("most = 24", "most = 3"), encoding="utf-8")
    assert len(load_platform(f"{file}:3").devices) == 4
    with pytest.raises(PlatformError) as caught:
        load_platform(str(file))
    assert str(caught.value) == (f"platform {file}: the number of devices is missing; write {file}:N with N from 1 to 3, "
                                 f"such as {file}:2")


@pytest.mark.parametrize("family", ["ecp5", "gw2a", "cyclone10gx", "xcu", "xcup"])
def test_a_larger_share_never_needs_less_area(family: str) -> None:
    board = {"ecp5": "ecp5-85", "gw2a": "tang-primer-20k", "cyclone10gx": "tx2-c10gx", "xcu": "kcu105", "xcup": "zcu102"}[family]
    device = load_platform(board).device("fpga")
    graph = small_network()
    node = graph.nodes[0]
    axis = node.op.axes(graph.input_shapes(node))[0]
    stops = np.arange(1, node.op.extent(axis, graph.input_shapes(node)) + 1)
    costs = costs_of(graph, node, axis, np.zeros_like(stops), stops, device)
    assert costs is not None
    assert all(np.all(np.diff(values) >= 0) for values in costs.resources.values())


@pytest.mark.yosys
def test_area_planned_for_ultrascale_is_that_of_synthesis_within_the_stated_error() -> None:
    net = Net(3)
    graph = quantized(net.graph(net.add(Conv(6, Window((3, 3), pads=(1, 1, 1, 1)), 1, RELU), net.input((1, 2, 40, 40)))))
    device = load_platform("kcu105").device("fpga")
    costs = costs_of(graph, graph.nodes[0], None, np.array([0]), np.array([1]), device)
    assert costs is not None
    counted = synthesize(build_design(graph, "layer"), "xcu").resources
    assert costs.resources["lut"][0] == pytest.approx(counted["lut"], rel=dhm_model(device.model).error)
    assert costs.resources["register"][0] == pytest.approx(counted["register"], rel=0.25)
    assert costs.resources["bram36"][0] == pytest.approx(counted["bram36"], abs=0.5)
