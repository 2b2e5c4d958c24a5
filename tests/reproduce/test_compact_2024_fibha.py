"""Papers I and II of Compact DNNs 2024: every architecture on a board, by the model, with the papers' claims."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli import main
from dovetail.errors import DovetailError
from dovetail.partition.accelerator.architecture import judge
from dovetail.partition.plan import Goal
from dovetail.platform.accelerator import Architecture
from dovetail.reproduce.compact_2024 import fibha as compact_2024_fibha
from dovetail.reproduce.compact_2024.fibha import BOARDS, CLOCK_HZ, NETWORKS, board_of, fpga_of
from dovetail.reproduce.compact_2024.tables import EARLIER, block_energy_j, described_lines, map_lines, ours, recorded, text
from dovetail.zoo import names
from lib.fibha.described import (
    DescribedBudget,
    DescribedLayer,
    budget_of,
    described,
    described_layer,
    meml,
    powers_of_two,
    sesl_interval,
)
from lib.fibha.maps import map_figures
from tests.partition.test_hybrid import bottlenecks


def test_all_architectures_stand_beside_the_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(compact_2024_fibha, "region", lambda network, size, device: bottlenecks())
    found = compact_2024_fibha.reproduce(["mobilenet-v2"], lambda stage, done, total: seen.append(stage), ("zc706",))
    kinds = found["boards"]["zc706"]["mobilenet-v2"]
    assert list(kinds) == ["fibha", "sesl", "seml", "monolithic", "splitcnn"]
    assert len(seen) == 6
    made = [one for one in kinds.values() if one["fps_200mhz"] is not None]
    assert made
    for one in kinds.values():
        assert one["fps_200mhz"] is not None or "no accelerator of this kind fits" in one["reason"]
        if "bound_fps" in one:
            assert one["fps_200mhz"] <= one["bound_fps"] * (1 + 1e-9)
            assert one["batch1_bound_ms"] <= one["batch1_ms"] * (1 + 1e-9)
            assert all(one[r] <= fpga_of(board_of("zc706")).resources[r] for r in ("dsp", "lut", "bram36", "register"))
            assert one["model_cycles"] * one["fps_200mhz"] == pytest.approx(CLOCK_HZ)
            assert one["multipliers"] >= one["dsp"]  # a DSP48E1 makes one product
            assert 0 < one["utilisation"] <= 1
    for kind in ("sesl", "seml"):
        if kinds[kind]["fps_200mhz"] is not None:
            assert kinds["fibha"]["fps_200mhz"] >= kinds[kind]["fps_200mhz"] * 0.99
    shown = text(found)
    assert all(claim in shown for claim in found["claims"].values())
    assert EARLIER not in shown
    best = kinds["fibha"]
    idle_w = sum(d.idle_power_w for d in board_of("zc706").devices)
    assert best["frame_mj"] > idle_w / best["fps_200mhz"] * 1e3
    assert best["batch1_mj"] > idle_w * best["batch1_ms"]
    assert f"{found['gpus']['mobilenet-v2']['tx2']['batch1_mj']:.2f} mJ" in shown


def test_ratios_are_taken_where_both_kinds_exist_and_say_how_much_better_the_hybrid_is() -> None:
    boards = {"a": {"n": {"fibha": {"fps_200mhz": 30.0, "batch1_ms": 2.0, "frame_mj": 5.0, "bram36": 10.0},
                          "seml": {"fps_200mhz": 10.0, "batch1_ms": 3.0, "frame_mj": 6.0, "bram36": 40.0},
                          "sesl": {"fps_200mhz": None, "batch1_ms": None, "reason": "too large"}}}}
    found = ours(boards)
    assert found["over SEML"] == {"frames/s": {"a n": 3.0}, "one frame": {"a n": 1.5}}
    assert "over SESL" not in found
    assert found["energy"] == {"frames per joule of the board, against SEML": {"a n": 1.2}}
    assert found["buffers"] == {"RAM blocks of everything, against SEML": {"a n": 0.25}}


def test_the_papers_networks_and_boards_exist() -> None:
    assert set(NETWORKS) <= set(names())
    assert all(fpga_of(board_of(board)).clock_hz == CLOCK_HZ for board in BOARDS)


def recorded_hybrid() -> dict[str, Any]:
    """MobileNetV2's hybrid on a ZCU102."""
    record = json.loads((resources.files("dovetail.reproduce") / "records" / "fibha.json").read_text(encoding="utf-8"))
    return record["zcu102"]["mobilenet-v2"]["fibha"]


def test_the_record_that_comes_along_is_shown_with_its_claims(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "compact-2024", "--part", "fibha"]) == 0
    shown = capsys.readouterr().out
    assert all(board in shown for board in BOARDS)
    assert "ours, one frame:" in shown
    assert ("ms*" in shown) == (EARLIER in shown) == ("batch1_accelerator" not in recorded_hybrid())
    assert "bit-exact" in shown
    assert "features.3.depthwise.conv 0.56x" in shown
    assert "one engine, projection in passes" in shown
    assert "one engine of least energy" in shown


def test_no_multiplier_of_the_record_makes_more_than_one_product_in_a_clock() -> None:
    found = recorded()
    kinds = [(board, one) for board, networks in found["boards"].items() for entries in networks.values()
             for one in entries.values() if "utilisation" in one]
    assert len(kinds) > 50
    for board, one in kinds:
        assert 0 < one["utilisation"] <= 1
        products = one["multipliers"] * one["model_cycles"] * one["utilisation"]
        assert products == pytest.approx(round(products), rel=1e-9)
        assert one["multipliers"] >= one["dsp"] or board != "zc706"  # whose blocks make one product each
    shown = text(found)
    assert "'used' is products per multiplier and clock" in shown
    assert "above one" not in shown


def test_a_record_whose_multipliers_are_not_all_counted_is_refused(tmp_path: Path) -> None:
    source = resources.files("dovetail.reproduce") / "records" / "fibha.json"
    record = json.loads(source.read_text(encoding="utf-8"))
    record["zc706"]["mobilenet-v2"]["fibha"]["utilisation"] = 1.83
    (tmp_path / "r.json").write_text(json.dumps(record))
    with pytest.raises(DovetailError, match="not a record of accelerators"):
        recorded(tmp_path / "r.json")


def test_the_energy_that_one_engine_costs_is_said_with_its_cause() -> None:
    found = recorded()
    shown = text(found)
    for name, block in found["firb"].items():
        one, plain = block["engine"], block["plain"]
        more = block_energy_j(one) / block_energy_j(plain) - 1
        told = f"Energy of {name} against three engines with their own folds (the papers: -35 %)"
        assert f"{told}: one engine {more * 100:+.0f} %" in shown
        assert f"({one['estimated']['lut'] / plain['estimated']['lut']:.2f} times the LUT" in shown
    assert len(found["firb"]) == 16  # all of MobileNetV2's that expand
    for name, ratio in found["ours"]["FIRB"]["least energy, against three engines"].items():
        assert ratio <= found["ours"]["FIRB"]["energy above idle, against three engines"][name] * (1 + 1e-9)
        assert found["ours"]["FIRB"]["least energy, against rows in front of every layer"][name] <= ratio


def test_other_files_are_no_records(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"zc706": {"a": {"fibha": {}}}}')
    assert main(["reproduce", "compact-2024", "--part", "fibha", "--record", str(tmp_path / "r.json")]) == 2


def test_the_theses_sesl_takes_powers_of_two_and_reads_weights_anew_for_every_tile() -> None:
    layer = DescribedLayer(macs=1 << 20, weight_bytes=10 * 4608, buffer_bytes=4608, tiles=7)
    roomy = sesl_interval([layer], DescribedBudget(dsp=15, ram=11, bytes_per_clock=1))
    assert (1 << 20) / 8 <= roomy <= (1 << 20) / 8 * 1.003  # eight of fifteen multipliers are a power of two
    assert sesl_interval([layer], DescribedBudget(dsp=64, ram=10, bytes_per_clock=1)) == pytest.approx(7 * 46080, rel=0.003)
    assert sesl_interval([layer], DescribedBudget(dsp=64, ram=1, bytes_per_clock=1)) == float("inf")


def test_the_theses_hybrid_is_no_slower_than_its_seml_and_several_engines_no_slower_than_one() -> None:
    graph, device = bottlenecks(), fpga_of(board_of("zc706"))
    found = described(graph, device)
    assert found["over_seml"] >= 1
    assert found["sesl_clocks"] == sesl_interval([described_layer(graph, n) for n in graph.nodes], budget_of(device))
    several = meml(graph, device, powers_of_two(graph, device))
    assert several["clocks"] <= several["one_engine_clocks"]
    assert several["engines"] in (2, 4, 8)
    assert all(several["needs"][r] <= device.resources[r] for r in ("dsp", "lut", "bram36"))
    shown = "\n".join(described_lines({"zc706": {"small": {**found, "meml": several}}}))
    assert "modelled" in shown


def test_memories_of_maps_are_counted_apart_from_weights() -> None:
    graph, device = bottlenecks(), fpga_of(board_of("zc706"))
    kinds = {kind: map_figures(graph, judge(graph, device, kind, Goal.THROUGHPUT).accelerator, device)
             for kind in (Architecture.SESL, Architecture.SEML)}
    assert kinds[Architecture.SESL]["offchip_map_bytes"] == kinds[Architecture.SESL]["offchip_weight_bytes"] == 0
    weights = sum(graph.constants[n.params[0]].array.size for n in graph.nodes if n.params)
    assert kinds[Architecture.SEML]["offchip_weight_bytes"] >= weights
    assert kinds[Architecture.SESL]["map_buffer_bytes"] > 0
    shown = map_lines({"zc706": {"small": {str(kind): one for kind, one in kinds.items()}}})
    assert "weights off-chip, kB" in shown[1]
