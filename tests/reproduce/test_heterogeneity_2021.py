"""Heterogeneity 2021: the authors' partitions, their printed values, and what overlapping branches are worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dovetail.cli import main
from dovetail.partition.plan import whole_on
from dovetail.platform.device import ModelSet
from dovetail.platform.load import load_platform
from dovetail.report import sheet
from dovetail.reproduce import gains
from dovetail.reproduce.heterogeneity_2021 import figure_4 as heterogeneity_2021
from dovetail.reproduce.heterogeneity_2021 import modules as heterogeneity_modules
from dovetail.reproduce.heterogeneity_2021.blocks import BLOCKS, PaperBlock, believed, hand_partition, judge
from dovetail.reproduce.heterogeneity_2021.modules import PARTS, recorded
from dovetail.reproduce.heterogeneity_2021.table_1 import OTHERS
from lib.heterogeneity import NETWORKS, boards, hand_nodes, network_graph, of_module, shared


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return heterogeneity_2021.reproduce(sizes=(28, 7))


@pytest.fixture(scope="module")
def authors() -> dict[str, Any]:
    return heterogeneity_2021.reproduce(ModelSet.MEASURED, sizes=(7,))


def test_every_block_stands_beside_its_printed_values(found: dict[str, Any]) -> None:
    printed = {b["block"]: tuple(b["paper"]["table_1"].values()) for b in found["blocks"]}
    assert printed == {"Fire": (1.34, 1.01), "Bottleneck 0.5x": (1.55, 1.26), "Shuffle reduction 0.5x": (1.39, 1.35),
                       "Shuffle basic 0.5x": (1.39, 1.35)}
    assert all(len(b["sizes"]) == 2 and b["why"].endswith(".") for b in found["blocks"])


def test_the_optimum_is_never_worse_than_the_authors_partition_that_fits(found: dict[str, Any]) -> None:
    for block in found["blocks"]:
        assert block["fits"]
        for row in block["sizes"]:
            assert row["best_energy"]["energy"] <= row["hand"]["energy"] * (1 + 1e-9)
            assert row["best_latency"]["latency"] <= row["hand"]["latency"] * (1 + 1e-9)


def test_figure_4_is_drawn_for_every_block_and_both_quantities(found: dict[str, Any]) -> None:
    drawn = heterogeneity_2021.figures(found)
    blocks = {name: drawing for name, drawing in drawn.items() if name.endswith(("_latency.svg", "_energy.svg"))}
    assert len(blocks) == 2 * len(BLOCKS)
    for drawing in blocks.values():
        points = ElementTree.fromstring(drawing).findall(".//{http://www.w3.org/2000/svg}circle")
        assert len(points) == 3 * len(found["blocks"][0]["sizes"])
        assert all(0 <= float(p.attrib["cy"]) <= sheet.HEIGHT for p in points)
    assert "Figure 4: Fire, log10 of milliseconds" in drawn["figure_4_fire_latency.svg"]


def test_the_gain_is_that_of_the_averages(found: dict[str, Any]) -> None:
    rows = found["blocks"][0]["sizes"]
    total = {k: sum(r[k]["energy"] for r in rows) for k in ("gpu", "hand")}
    assert found["blocks"][0]["gain"]["energy"] == pytest.approx(total["gpu"] / total["hand"])


def test_text_holds_every_size_and_reason(found: dict[str, Any]) -> None:
    text = heterogeneity_2021.text(found)
    assert "Fire: expand 3x3 on the FPGA beside expand 1x1 on the GPU; fits the FPGA (alm " in text
    assert all(b.why in text and b.printed.text in text for b in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: b.name)
def test_only_the_named_convolutions_go_to_the_fpga(block: PaperBlock) -> None:
    graph = block.graph(14)
    moved = [n for n, split in hand_partition(block, graph).items() if split == whole_on("fpga")]
    assert len(moved) == len(block.on_fpga)
    assert all(graph.node(n).params for n in moved)


def test_the_3x3_expansion_hides_behind_the_1x1() -> None:
    graph, board = BLOCKS[0].graph(28), load_platform("tx2-c10gx")
    partition = hand_partition(BLOCKS[0], graph)
    beside, after = (judge(graph, board, partition, parallel) for parallel in (True, False))
    assert beside.latency_s < after.latency_s
    assert beside.energy_j < after.energy_j


def test_the_command_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heterogeneity_2021, "SIZES", (7,))
    target = tmp_path / "found.json"
    assert main(["reproduce", "heterogeneity-2021", "--json", str(target)]) == 0
    document = json.loads(target.read_text())
    assert document["paper"] == "heterogeneity-2021"
    assert [r["side"] for r in document["blocks"][0]["sizes"]] == [7]


def test_what_does_not_fit_has_no_gain_and_says_how_much_too_large_it_is(authors: dict[str, Any]) -> None:
    blocks = {b["block"]: b for b in authors["blocks"]}
    assert [name for name, b in blocks.items() if b["fits"]] == ["Shuffle reduction 0.5x"]
    for block in blocks.values():
        for key in ("energy", "latency"):
            assert (block["gain"][key] is not None) == (block["best_gain"][key] is not None) == block["fits"]
            assert block["optimum_gain"][key] is not None
        assert block["fits"] == all(used <= limit for _, used, limit in block["fullest"])
    shown = heterogeneity_2021.text(authors)
    assert "m20k 2,350 of 587" in shown
    assert "m20k 890 of 587" in shown
    assert "! does not fit the FPGA, and has no gain" in shown
    assert "by hand, does not fit" in heterogeneity_2021.figures(authors)["figure_4_fire_latency.svg"]


def test_processors_are_timed_alike_whatever_the_fpga_holds(found: dict[str, Any], authors: dict[str, Any]) -> None:
    for ours, theirs in zip(found["blocks"], authors["blocks"], strict=True):
        assert ours["sizes"][1]["gpu"] == theirs["sizes"][0]["gpu"]


def test_every_gain_is_of_times_of_one_kind(found: dict[str, Any], authors: dict[str, Any]) -> None:
    for block in (*found["blocks"], *authors["blocks"]):
        sides = [row[k] for row in block["sizes"] for k in ("gpu", "hand", "best_energy", "best_latency")]
        assert {side["times"] for side in sides} == {block["times"]} == {gains.Times.LOOP_REMOVED}
        assert all(isinstance(side["fits"], bool) for side in sides)


def test_times_with_and_without_the_measuring_loop_are_no_gain() -> None:
    board = load_platform("tx2-c10gx")
    assert gains.times_of(believed(board, ModelSet.MEASURED)) is gains.Times.LOOP_REMOVED
    assert gains.times_of(board.with_models(ModelSet.MEASURED)) is gains.Times.MIXED
    removed, mixed = ({"s": 1.0, "fits": True, "times": kind} for kind in gains.Times)
    assert gains.gain([removed, removed], [removed], "s") == 1.0
    assert gains.gain([removed], [{**removed, "fits": False}], "s") is None
    for pair in ((removed, mixed), (mixed, mixed)):
        with pytest.raises(AssertionError, match="times of different kinds are no gain"):
            gains.gain([pair[0]], [pair[1]], "s")


def test_figure_4_has_a_point_of_every_module_on_every_platform(found: dict[str, Any]) -> None:
    drawn = heterogeneity_2021.figures(found)
    for name, network in found["networks"].items():
        drawing = ElementTree.fromstring(drawn[f"figure_4_{name.replace('.', '')}.svg"])
        titles = [t.text for t in drawing.findall(".//{http://www.w3.org/2000/svg}circle/{http://www.w3.org/2000/svg}title")]
        assert titles == [f"{m['module']}, {what}" for what in ("GPU alone", "by hand", "optimum") for m in network["modules"]]


def test_table_1_has_its_ten_other_works_beside_ours(found: dict[str, Any]) -> None:
    text = heterogeneity_2021.text(found)
    assert len(OTHERS) == len(found["other_works"]) == 10
    assert all(one.algorithm in text and one.energy in text for one in OTHERS)
    assert text.count("ours, their partition") == len(BLOCKS)


def test_the_record_holds_every_module_and_gives_no_gain_to_what_does_not_fit() -> None:
    networks = recorded()["networks"]
    assert list(networks) == list(NETWORKS)
    assert [len(one["modules"]) for one in networks.values()] == [8, 17, 16]
    for network in networks.values():
        for one in network["modules"]:
            fits = all(used <= limit for _, used, limit in one["resources"])
            assert one["hand"]["fits"] == fits == (one["sixteenths"] == PARTS) == (one["gain"]["hand"]["energy"] is not None)
            assert one["part"]["fits"]
            for key in ("energy", "latency", "edp"):
                reached = [one[way][key] for way in ("part", "folded") if one[way]["fits"]]
                assert one["best"][key][key] <= min(reached) * (1 + 1e-9)
        whole = network["whole"]
        for key, found in whole["best"].items():
            assert found[key] <= whole["gpu"][key] / whole["gain"][f"best for {key}"][key] * (1 + 1e-9)
            assert found["edp"] == pytest.approx(found["energy"] * found["latency"])


def test_a_module_stands_at_its_place_and_its_largest_part_fits() -> None:
    whole, (board, gpu_board) = network_graph("squeezenet1.1"), boards()
    last = list(NETWORKS["squeezenet1.1"]())[-1]
    found = of_module(last, whole, board, gpu_board, sizes=(7,))
    assert found["input"] == [512, 13, 13]
    assert not found["hand"]["fits"]
    assert 0 <= found["sixteenths"] < PARTS
    assert hand_nodes(last, whole) == ["fire9_expand3x3"]
    split = shared(whole, {"fire9_expand3x3": 4})["fire9_expand3x3"]
    assert [(p.device, p.start, p.stop) for p in split.pieces] == [("fpga", 0, 64), ("gpu", 64, 256)]


def test_modules_are_told_with_their_totals(found: dict[str, Any]) -> None:
    text = heterogeneity_modules.text(found)
    assert all(f"{name}, whole:" in text for name in NETWORKS)
    assert "features.17" in text
    assert "folded, one FPGA" in text
