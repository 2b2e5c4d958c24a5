"""LQ multi-FPGA 2020 on our models: what is legible is printed, what is planned fits, nothing is invented."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dovetail.errors import UsageError
from dovetail.numerics.lq_alexnet import lq_alexnet, weight_bits_of
from dovetail.platform.device import Kind
from dovetail.platform.load import load_platform
from dovetail.reproduce.lq_2020 import figures as lq_figures
from dovetail.reproduce.lq_2020 import results as lq_2020
from dovetail.reproduce.lq_2020.boards import RUNS, waiting_clocks
from dovetail.reproduce.lq_2020.layers import (
    bits_of_conv2,
    bits_table,
    float_layers,
    float_table,
    layer_table,
    layers_on_one_board,
    load_training,
    training_table,
)

SMALL = lq_alexnet(99, 12, 48, 10)


def test_the_least_pace_that_boards_hold_is_found_and_all_layers_are_on_boards() -> None:
    board = load_platform("fic:2")
    paces = (10, 12_000, 20_000)
    found = lq_2020.fastest(SMALL, board, paces)
    assert found is not None
    pace, plan = found
    assert pace in paces
    assert all(device.startswith("fpga") for split in plan.assignment.values() for device in split.devices)
    row = lq_2020.row_of(SMALL, pace, plan, board)
    assert 0 < row["bram_max"] <= 1
    assert 0 < row["lut_max"] <= lq_2020.ROUTABLE
    assert row["fps"] >= row["fps_through_gpio"] > 0
    assert row["switch_slots"] >= 16
    assert row["cells_of_busiest_link"] <= row["switch_clocks"] <= 1.1 * 100e6 / row["fps"], "slots carry what links carry"
    assert lq_2020.plan_at(SMALL, board, 10) is None or pace == 10


def test_layers_that_fill_boards_are_shared_in_whole_blocks_before_the_search() -> None:
    graph, board = lq_alexnet(99, 12, 512, 10), load_platform("fic:3")
    assert lq_2020.large_layers_shared(graph, board) == {}, "a board holds all of it"
    largest = max((n for n in graph.nodes if n.params), key=lambda n: weight_bits_of(graph, n))
    blocks = weight_bits_of(graph, largest) * 1.5 / (36 * 1024)
    small = replace(board, devices=tuple(replace(d, resources={**d.resources, "bram36": blocks}) if d.resources else d
                                         for d in board.devices))
    shared = lq_2020.large_layers_shared(graph, small)
    assert largest.name in shared
    assert weight_bits_of(graph) == sum(weight_bits_of(graph, n) for n in graph.nodes if n.params)
    for name, split in shared.items():
        assert weight_bits_of(graph, graph.node(name)) * 2 > blocks * 36 * 1024
        ends = [(p.start, p.stop) for p in split.pieces]
        assert ends[0][0] == 0
        assert ends[-1][1] == 512
        assert all(a[1] == b[0] for a, b in pairwise(ends))
        assert all(b % lq_2020.BLOCK_FILTERS == 0 for _, b in ends)


def test_memory_alone_says_how_many_boards_are_needed_at_least() -> None:
    device = load_platform("fic:1").of_kind(Kind.FPGA)[0]
    assert lq_2020.least_boards(SMALL, device) == 1
    assert weight_bits_of(SMALL) < device.resources["bram36"] * 36 * 1024
    assert -(-149_520_640 // int(device.resources["bram36"] * 36 * 1024)) == 3, "the published network needs three"


def test_folds_trade_clocks_for_area_and_the_table_prints_them_with_the_papers_cells() -> None:
    device = load_platform("fic:1").of_kind(Kind.FPGA)[0]
    folds = lq_2020.folds_of_conv2(SMALL, device)
    assert len(folds) > 2
    assert [r["cycles"] for r in folds] == sorted((r["cycles"] for r in folds), reverse=True)
    assert folds[-1]["products_at_once"] > folds[0]["products_at_once"]
    row = {"fps": 100.0, "boards_used": 3, "fps_through_gpio": 65.0,
           "bram_max": 0.5, "lut_max": 0.25, "dsp_max": 0.1, "divided": ["fc6"]}
    record = json.loads((Path(lq_2020.__file__).parents[1] / "records" / lq_2020.RECORD).read_text(encoding="utf-8"))
    measured = {**record,
                "alexnet_conv2_cycles": {"value": 1, "fold": "1x16x13", "area_xcku095": {"lut": 2.0, "bram": 3.0, "dsp": 4.0}},
                "popcount_vs_int8": {"value": 0.29, "target": 0.3, "by_layer": {"5x5": {}}},
                "datapaths": {"5x5: popcount": {"xcup": {"lut": 2797.0, "ff": 3539.0, "bram": 1.0}}}}
    text = lq_2020.text({"table_5_2": lq_2020.TABLE_5_2, "claims": lq_2020.CLAIMS, "slips": lq_2020.SLIPS, "weights_mbit": 149.5,
                         "conv2_folds": folds, "boards": {"fic": {"2": None, "3": row, "least_by_memory": 3}},
                         "one_board": layers_on_one_board(SMALL, device, (51_529,)), "training": {"experiments": {}},
                         "figure_4_8": lq_2020.figure_4_8(), "float_layers": float_layers(record, device),
                         "conv2_bits": bits_of_conv2(SMALL, device, {"experiments": {}}), "measured": measured})
    assert "1,739,753,782" in text
    assert "729 places" in text
    assert "mapped directly 979 cycles" in text
    assert "not legible" in text
    assert "fic:2" in text
    assert "does not fit" in text
    assert "59.1 Mbit" in text
    assert "2,797" in text
    assert "below 50 % BRAM, 30 % logic" in text
    assert "4,096 right" in text
    assert "conv1 to fc6" in text
    assert "1,457" in text, "look-up tables of a link's end"
    assert "2,920" in text, "clocks of a frame through four pins"
    assert "loaded, 161,109 bytes" in text
    assert "at most 0.290 of the logic of int8 adder graphs (asked 0.30), over 5x5." in text


def test_a_layer_whose_weights_exceed_the_board_is_said_not_to_fit() -> None:
    device = load_platform("fic:1").of_kind(Kind.FPGA)[0]
    rows = {r["layer"]: r for r in layers_on_one_board(SMALL, device, (51_529,))}
    assert list(rows) == ["conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7", "fc8"]
    assert rows["conv3"]["as_claimed"]
    small = replace(device, resources={**device.resources, "bram36": 0.25, "lut": 100.0})
    found = {r["layer"]: r for r in layers_on_one_board(SMALL, small, (51_529, 103_058))}
    assert not found["conv2"]["fits"]
    assert not found["conv2"]["as_claimed"]
    assert found["conv2"]["pace_clocks"] == 103_058, "the slowest that was tried"
    assert "no board holds it alone" in layer_table(list(found.values()))


def test_bits_stand_beside_accuracies_that_were_measured_and_beside_nothing_else(tmp_path: Path) -> None:
    device = load_platform("fic:1").of_kind(Kind.FPGA)[0]
    path = tmp_path / "training.json"
    path.write_text(json.dumps({"schema": 1, "experiments": {
        "resnet20-w2a2": {"mean_accuracy": 12.34, "points_lost": 5.67, "published": "LQ-Nets: 90.2", "runs": [{}, {}]},
        "resnet20-float": {"mean_accuracy": 18.01, "points_lost": None, "runs": [{}]},
        "vgg-small-w2a2": {"mean_accuracy": 13.57, "points_lost": 1.0, "runs": [{}]}}}))
    training = load_training(path)
    rows = {(r["weights"], r["activations"]): r for r in bits_of_conv2(SMALL, device, training, 12_000)}
    assert {bits for bits, r in rows.items() if r["accuracy"] is not None} == {(2, 2), (32, 32)}
    assert rows[1, 1]["lut"] < rows[2, 2]["lut"] < rows[4, 4]["lut"]
    assert all(r["cycles"] <= 12_000 for bits, r in rows.items() if bits != (32, 32)), "floats have no folded engine"
    shown = bits_table(list(rows.values()))
    assert all(f"{percent} %" in shown for percent in (12.34, 18.01, 13.57))
    assert shown.count("not measured") == len(rows) - 2
    assert "LQ-Nets: 90.2" in training_table(training)
    with pytest.raises(UsageError, match="not a record of trainings"):
        load_training(tmp_path / "absent.json")
    path.write_text("[]")
    with pytest.raises(UsageError, match="no experiments in it"):
        load_training(path)


def test_every_row_of_the_paper_has_ours_in_floats_beside_it() -> None:
    device = load_platform("fic:1").of_kind(Kind.FPGA)[0]
    record = json.loads((resources.files("dovetail.reproduce") / "records" / lq_2020.RECORD).read_text(encoding="utf-8"))
    rows = {(r["row"], r["fold"]): r for r in float_layers(record, device)}
    assert [row for row, fold in rows if fold == "1x1x1"] == list(lq_2020.TABLE_5_2)
    assert all(r["bit_exact"] for r in rows.values())
    for fold in ("1x1x1", "1x3x32"):
        assert rows["pps_2", fold]["bram"] < rows["trad_2", fold]["bram"] / 3, "the paper's third, and less"
        assert rows["pps_2", fold]["dsp"] == 0 < rows["trad_2", fold]["dsp"]
        assert rows["pps_1", fold]["clocks"] == pytest.approx(rows["trad_1", fold]["clocks"], rel=1e-4)
    products = {"1": 55 * 55 * 96 * 363, "2": 27 * 27 * 256 * 2400}
    assert all(products[row[-1]] <= r["clocks"] < 1.001 * products[row[-1]] for (row, fold), r in rows.items() if fold == "1x1x1")
    some = {**record["float_layers"]["trad_2 1x1x1"], "closed_form_cycles": 12_345, "filters": 999}
    (part,) = [r for r in float_layers({"float_layers": {**record["float_layers"], "trad_2 1x1x1": some}}, device)
               if (r["row"], r["fold"]) == ("trad_2", "1x1x1")]
    assert part["clocks"] == 12_345, "of a layer that was not simulated whole, the closed form"
    text = float_table([{**part, "bit_exact": False}], lq_2020.TABLE_5_2)
    assert "2,393,524,791" in text
    assert "WRONG" in text


def test_the_record_that_comes_along_holds_what_was_measured() -> None:
    record = json.loads((resources.files("dovetail.reproduce") / "records" / lq_2020.RECORD).read_text(encoding="utf-8"))
    assert record["alexnet_conv2_cycles"]["bit_exact"]
    assert record["alexnet_conv2_cycles"]["value"] <= 90_000
    assert record["faults"]["injected"] == record["faults"]["detected"] > 1000
    assert record["faults"]["wrong_outputs"] == record["repeats"]["wrong_outputs"] == 0
    assert record["repeats"]["injected"] > 1000
    assert record["repeats"]["frames"] == 10_000
    assert record["fic_cut"]["bit_exact"]
    assert record["memories"]["rom_equal"]
    boards = record["memories"]["boards"].values()
    assert max(b["part"] for b in boards) < 1
    assert all(b["bram36"] == pytest.approx(b["bram36_model"], rel=0.01) for b in boards)


@pytest.mark.verilator
def test_the_program_of_figure_4_8_simulates_in_the_clocks_of_its_closed_form() -> None:
    found = lq_2020.figure_4_8(simulated=True)
    for form, run in found["simulated"].items():
        assert run == {"places": found["places"], "latency_cycles": found["forms"][form]["latency_cycles"], "bit_exact": True}


def test_waits_at_links_are_counted_from_the_last_maker_to_the_last_reader_on_another_board() -> None:
    run = {"on": {"a": "fpga0", "b": "fpga1", "c": "fpga1"}, "streams": {
        "a.in0": {"of": "x", "clocks": [0, 90]}, "a.out0": {"of": "y", "clocks": [5, 100]},
        "b.out0": {"of": "y", "clocks": [5, 130]}, "c.in0": {"of": "y", "clocks": [9, 170]},
        "c.out0": {"of": "z", "clocks": [20, 200]}}}
    assert waiting_clocks(run) == {"y": 40}


def test_quantizers_folds_and_boards_are_drawn() -> None:
    record = json.loads((resources.files("dovetail.reproduce") / "records" / lq_2020.RECORD).read_text(encoding="utf-8"))
    folds = [{"products_at_once": 25, "cycles": 1000}, {"products_at_once": 100, "cycles": 250}]
    drawn = lq_figures.figures({"measured": record, "conv2_folds": folds})
    simulated = [f"boards_{'_'.join(what.split())}.svg" for key, what in RUNS.items() if key in record]
    assert list(drawn) == ["figure_3_7.svg", "table_4_1.svg", "boards.svg", *simulated]
    assert "boards_conv1_to_fc6.svg" in simulated
    assert "74.3</text>" in drawn["boards_conv1_to_fc6.svg"], "the BRAM of the first board"
    assert all(ElementTree.fromstring(svg).tag.endswith("svg") for svg in drawn.values())
    corners = lq_figures._steps((0.5, 1.0))
    assert corners == [(0.0, 0.0), (0.25, 0.0), (0.25, 0.5), (0.75, 0.5), (0.75, 1.0), (1.25, 1.0), (1.25, 1.5), (2.0, 1.5)]
