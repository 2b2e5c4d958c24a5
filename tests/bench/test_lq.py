"""The benches of learned quantization: what they compare is the same layer, and runs start after those they build on."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lq
import lq_accuracy
import lq_training
from dovetail.errors import ToolError, UsageError
from dovetail.fpga.links.system import HostPort
from dovetail.hardware.folds import Fold
from dovetail.ir import Window
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.floats import FloatFilters
from dovetail.numerics.lq import fit_weights, weight_values
from dovetail.numerics.lq_alexnet import lq_alexnet
from dovetail.numerics.reference import run_integer
from dovetail.train.networks import precision_of
from lib import lq_floats, lq_network
from tests.numerics.lq_networks import images, network


def test_codes_and_bytes_are_the_same_layer() -> None:
    op, shape = lq.LAYERS["5x5, 8 to 4"]
    weights, *_ = lq.drawn(op, shape)
    codes, basis = fit_weights(weights, lq.BITS)
    error = float(np.mean((weight_values(codes, basis) - weights) ** 2) / np.mean(weights**2))
    assert error < 0.125  # the best four levels of a normal distribution leave 0.1175
    stored = lq.byte_graph(op, shape)
    integers = stored.constants["w"].array
    for own, drawn in zip(integers, weights, strict=True):
        assert np.corrcoef(own.reshape(-1), drawn.reshape(-1))[0, 1] > 0.999


def test_both_forms_of_the_layer_use_their_whole_range() -> None:
    op, shape = lq.LAYERS["5x5, 8 to 4"]
    rng = np.random.default_rng(1)
    codes = run_integer(lq.coded_graph(op, shape), {"x": rng.integers(0, 4, (1, *shape)).astype(np.uint8)})["y"]
    assert set(np.unique(codes)) == {0, 1, 2, 3}
    stored = run_integer(lq.byte_graph(op, shape), {"x": rng.integers(0, 256, (1, *shape)).astype(np.uint8)})["y"]
    assert stored.max() > 64


def test_figures_of_an_earlier_run_are_kept_and_ratios_follow_from_all_of_them(tmp_path: Path) -> None:
    names = [f"{lq.SMALL}: {form}" for form in ("popcount", "int8")]
    known = {"datapaths": {names[0]: {"xcup": {"lut": 20.0}, "ecp5": {"lut": 30.0}}, names[1]: {"xcup": {"lut": 100.0}}}}
    heard: list[object] = []
    found = lq.measure([lq.SMALL], ["xcup"], ["popcount", "int8"], known, heard.append)
    assert heard == [], "nothing was synthesized again"
    assert found["datapaths"] == {**known["datapaths"], f"{lq.SMALL}: fp32": {"xcup": None}}
    assert list(found["not_counted"]) == [f"{lq.SMALL}: fp32: xcup"]
    assert "left out unless asked for (--form fp32)" in found["not_counted"][f"{lq.SMALL}: fp32: xcup"]
    assert found["popcount_vs_int8"] == {"value": 0.2, "target": 0.3, "status": "ok", "by_layer": {lq.SMALL: {"xcup": 0.2}}}
    assert "popcount_vs_table" not in found
    assert lq.load_record(tmp_path / "none.json") == {}
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(UsageError, match="holds a list; a record of this bench is an object"):
        lq.load_record(tmp_path / "list.json")


def test_what_synthesis_does_not_end_with_is_null_with_its_reason_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> dict[str, float]:
        raise ToolError("yosys (unit for ecp5): over 3600 s; killed")

    monkeypatch.setattr(lq, "counted", fails)
    found = lq.measure([lq.SMALL], ["ecp5"], ["popcount"], {}, lambda more: None)
    assert found["datapaths"][f"{lq.SMALL}: popcount"] == {"ecp5": None}
    assert "over 3600 s" in found["not_counted"][f"{lq.SMALL}: popcount: ecp5"]
    assert "popcount_vs_int8" not in found
    monkeypatch.setattr(lq, "counted", lambda *_: {"lut": 3.0, "ff": 2.0, "bram": 1.0, "adders": 1.0})
    again = lq.measure([lq.SMALL], ["ecp5"], ["popcount"], found, lambda more: None)
    assert again["datapaths"][f"{lq.SMALL}: popcount"]["ecp5"]["lut"] == 3.0
    assert f"{lq.SMALL}: popcount: ecp5" not in again["not_counted"]


def test_networks_over_boards_are_cut_whole_and_a_wrong_value_is_seen() -> None:
    """The layers that are simulated compute what they compute in the network, and each is on a board, or all of it on several."""
    graph = lq_alexnet(99, 12, 48, 10)
    image = {"image": np.random.default_rng(0).integers(0, 256, (1, 3, 99, 99)).astype(np.uint8)}
    middle = lq_network.layers_of(graph, "conv3", "conv4")
    right = run_integer(middle, run_integer(lq_network.layers_of(graph, "conv1", "conv2_pool"), image))
    np.testing.assert_array_equal(right["conv4_y"], run_integer(lq_network.layers_of(graph, "conv1", "conv4"), image)["conv4_y"])
    for part, places in ((middle, lq_network.pair_over_two), (lq_network.layers_of(graph, "conv1", "fc6"), lq_network.over_two),
                         (graph, lq_network.over_three)):
        on = places(part)
        assert set(on) == {n.name for n in part.nodes}
        divided = {name: split.pieces[-1].stop for name, split in on.items() if split.axis is not None}
        assert divided == {name: part.shape(f"{name}_y")[1] for name in ("conv4", "fc6") if name in on}
    port = HostPort(0, 0, "conv4_y", tuple((0, n) for n in right["conv4_y"].shape))
    assert lq_network.judged(middle, {port: right["conv4_y"]}, right)["bit_exact"]
    assert not lq_network.judged(middle, {port: right["conv4_y"] ^ 1}, right)["bit_exact"]
    assert not lq_network.judged(middle, {}, right)["bit_exact"], "what nobody took is not right"


def test_layers_in_floats_are_measured_once_and_again_only_with_more_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"1": ((3, 9, 9), 3, Window((4, 4), (2, 2))), "2": ((3, 5, 5), 2, Window((3, 3), pads=(1, 1, 1, 1)))}
    monkeypatch.setattr(lq_floats, "SHAPES", small)
    monkeypatch.setattr(lq_floats, "FOLDS", (Fold(1, 1, 1),))
    done, kept = list[tuple[str, str, int]](), dict[str, Any]()

    def fake(kind: str) -> Any:
        def make(filters: FloatFilters, *rest: Any) -> dict[str, Any]:
            done.append((kind, rest[-1], filters.count))
            return {"filters": filters.count}
        return make

    monkeypatch.setattr(lq_floats, "simulated", fake("simulated"))
    monkeypatch.setattr(lq_floats, "area", fake("area"))
    lq_floats.float_layers({}, kept.update, 1)
    assert len(done) == 8
    assert done[:2] == [("simulated", "pps_1_1x1x1", 1), ("area", "pps_1_1x1x1", 3)]
    assert kept["float_layers"]["trad_2 1x1x1"]["closed_form_cycles"] > 5 * 5 * 2 * 27
    done.clear()
    lq_floats.float_layers(kept, kept.update, 1)
    assert done == []
    lq_floats.float_layers(kept, kept.update, None)
    assert [(kind, count) for kind, _, count in done] == [("simulated", 3)] * 2 + [("simulated", 2)] * 2


@pytest.mark.verilator
def test_a_layer_in_floats_is_simulated_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lq_floats, "SHAPES", {"2": ((3, 5, 5), 2, Window((3, 3), pads=(1, 1, 1, 1)))})
    filters, x = lq_floats.drawn("pps_2")
    found = lq_floats.simulated(filters, x, Fold(1, 1, 1), "tiny_pps_2")
    assert found["bit_exact"]
    assert found["distinct_outputs"] > 2
    assert found["latency_cycles"] >= found["closed_form_cycles"] > 0


def test_runs_that_others_start_from_come_first(tmp_path: Path) -> None:
    jobs = lq_training.jobs_of(["resnet20-w2a2-first"], tmp_path, None, None)
    assert [j.folder.name for j in jobs] == [f"{n}-{s}" for n in ("resnet20-float", "resnet20-w2a2-first") for s in range(3)]
    assert set(jobs[-1].needs) == {tmp_path / "resnet20-float-2" / "model.pt"}
    assert jobs[-1].recipe.start == jobs[-1].recipe.teacher == str(jobs[-1].needs[0])
    assert [j.recipe.seed for j in jobs[3:]] == [0, 1, 2]
    second = lq_training.jobs_of(["resnet20-w2a2"], tmp_path, None, None)
    assert [j.folder.name for j in second[:6]] == [j.folder.name for j in jobs]
    assert [j.folder.name for j in second[6:]] == ["vgg-small-float-0", *(f"resnet20-w2a2-{s}" for s in range(3))]
    assert [p.parent.name for p in second[-1].needs] == ["resnet20-w2a2-first-2", "vgg-small-float-0"]
    vgg = lq_training.jobs_of(["vgg-small-w2a2"], tmp_path, None, None)
    assert [j.folder.name for j in vgg if not j.needs] == ["vgg-small-float-0"]
    assert {Path(j.recipe.start).parent.name for j in vgg[1:]} == {"vgg-small-float-0", "vgg-small-w2a2-first-0"}
    assert {j.recipe.teacher for j in vgg[1:]} == {str(tmp_path / "vgg-small-float-0" / "model.pt")}
    short = lq_training.jobs_of(["resnet20-float"], tmp_path, 2, 1)
    assert [(j.recipe.epochs, j.recipe.seed) for j in short] == [(2, 0)]
    with pytest.raises(UsageError, match="experiment 'lenet': unknown"):
        lq_training.jobs_of(["lenet"], tmp_path, None, None)


def test_losses_are_counted_from_floats_of_the_same_seeds(tmp_path: Path) -> None:
    jobs = lq_training.jobs_of(["resnet20-float", "resnet20-w3a3", "vgg-small-w2a2"], tmp_path, None, None)
    accuracies = {"resnet20-float-0": 0.90, "resnet20-float-1": 0.92, "resnet20-float-2": 0.94, "resnet20-w3a3-0": 0.89,
                  "vgg-small-float-0": 0.93, "vgg-small-w2a2-0": 0.925, "vgg-small-w2a2-1": 0.915}
    for job in jobs:
        if job.folder.name in accuracies:
            job.folder.mkdir()
            (job.folder / "result.json").write_text(json.dumps({"recipe": asdict(job.recipe),
                                                                "test_accuracy": accuracies[job.folder.name]}))
    found = lq_training.summary(jobs, [])["experiments"]
    assert isinstance(found, dict)
    assert found["resnet20-float"]["points_lost"] is None
    assert found["resnet20-w3a3"]["points_lost"] == pytest.approx(1.0)
    assert found["vgg-small-w2a2"]["points_lost"] == pytest.approx(1.0)


@pytest.mark.verilator
def test_a_network_is_judged_in_integers_and_as_hardware(tmp_path: Path) -> None:
    graph, frames = network(1, 2, 2), images(4, 40)["x"]
    (tmp_path / "model.onnx").write_bytes(to_onnx(graph))
    answers = run_integer(graph, {"x": frames})["last_y"].argmax(axis=1)
    labels = np.where(np.arange(40) < 10, answers, (answers + 1) % 10)
    np.savez(tmp_path / "data.npz", test_images=frames, test_labels=labels)
    (tmp_path / "result.json").write_text(json.dumps({"test_accuracy": 0.2, "test_images": 40, "recipe": {}}))
    common = [str(tmp_path), "--data", str(tmp_path / "data.npz"), "--json", str(tmp_path / "out.json")]
    assert lq_accuracy.main([*common, "--rtl-images", "2", "--fold", "600"]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["integers"]["right"], found["integers"]["images"], found["integers"]["reference_equal"]) == (10, 40, True)
    assert found["torch"]["points_apart"] == pytest.approx(5.0)
    assert found["rtl"]["bit_exact"]
    assert [s["backend"] for s in found["rtl"]["segments"]] == ["verilator"]
    np.savez(tmp_path / "data.npz", x=frames)
    with pytest.raises(UsageError, match=r"holds \['x'\]; test_images and test_labels are needed"):
        lq_accuracy.main(common)
    np.savez(tmp_path / "data.npz", test_images=frames[:, :2], test_labels=labels)
    with pytest.raises(UsageError, match=r"shape \[40, 2, 8, 8\]; bytes \[N, 3, 8, 8\] and a label each are needed"):
        lq_accuracy.main(common)


def test_one_name_stands_for_all_experiments_on_cifar10(tmp_path: Path) -> None:
    """Every one the issue asks for, with its seeds; quantizers have the same rounds."""
    names = {j.name for j in lq_training.jobs_of(["cifar10"], tmp_path, None, None)}
    assert names == {n for n in lq_training.EXPERIMENTS if not n.startswith("fashion")}
    for bits, seeds in (("w1a1", 3), ("w2a2", 3), ("w3a3", 3), ("w1a2", 1), ("w4a4", 1), ("w8a8", 1)):
        assert lq_training.EXPERIMENTS[f"resnet20-{bits}"].seeds == seeds
    for name, experiment in lq_training.EXPERIMENTS.items():
        recipe = experiment.recipe
        precision_of(recipe.bits, recipe.method, recipe.ends)
        like = lq_training.EXPERIMENTS[f"{recipe.network}-w2a2{'-first' * name.endswith('-first')}"] \
            if recipe.network != "small" else experiment
        if recipe.method in ("lsq", "apot"):
            assert replace(recipe, bits="w2a2", method="lq") == like.recipe


def test_the_list_says_what_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lq_training.recorded("resnet20-w2a2") == "recorded, 3 of 3 seeds"
    one = lq_training.EXPERIMENTS["resnet20-w3a3"]
    monkeypatch.setitem(lq_training.EXPERIMENTS, "resnet20-w3a3", replace(one, recipe=replace(one.recipe, epochs=80)))
    assert lq_training.recorded("resnet20-w3a3") == "recorded with another recipe"
    assert lq_training.recorded("resnet20-w3a3-apot") == "not recorded"


def test_every_experiment_names_what_it_is_compared_with() -> None:
    for name, experiment in lq_training.EXPERIMENTS.items():
        assert not experiment.baseline or experiment.baseline in lq_training.EXPERIMENTS
        assert experiment.recipe.bits == "float" or experiment.baseline, name
