"""A sitting at a GPU: everything is measured in order, written at once, bounded in time, and continued."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gpu_fcm
from dovetail.errors import UnsupportedError
from dovetail.gpu import precompile
from dovetail.gpu.launcher import Launcher
from dovetail.gpu.tuning import Tuner
from dovetail.ir import Graph
from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import Config
from dovetail.kernels.lower import lower
from dovetail.numerics.reference import run_float
from dovetail.platform.gpu_specification import specification
from gpu_fcm import Item, items, sit
from lib import zoo_graph
from lib.gpu import networks as gpu_networks
from lib.gpu import pairs, record, tiles
from lib.gpu.torch_network import TorchNetwork
from tests.kernels.networks import activated, inverted


@pytest.mark.parametrize(("name", "layers"), [("ceit-blocks@64", 38), ("cvt-blocks@64", 29)])
def test_convolutional_blocks_of_vision_transformers_become_kernels(name: str, layers: int) -> None:
    graph = zoo_graph.network(name)
    lowered = lower(graph, "float16", specification("h200"))
    assert sum(len(run) for run in lowered.runs if isinstance(run, tuple)) == layers


@pytest.mark.parametrize("name", ["GELU", "HardSwish", "SiLU"])
def test_the_peer_in_pytorch_computes_the_same_network(name: str) -> None:
    graph, x = activated(name), np.random.default_rng(0).normal(size=(2, 3, 9, 7))
    found = TorchNetwork(graph).double()(torch.from_numpy(x)).numpy()
    (wanted,) = run_float(graph, {"x": x.astype(np.float32)}).values()
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-4)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small network under every name; torch.compile and timing have no GPU to go by."""
    def network(name: str) -> Graph:
        return inverted(size=(4, 5))
    for module in (gpu_networks, gpu_fcm, tiles):
        monkeypatch.setattr(module, "network", network)
    monkeypatch.setattr(gpu_fcm, "measure_compiled", lambda *_, **__: {"compile_us": 3.0, "compiling_s": 1.0})
    monkeypatch.setattr(tiles, "TILES", 3)
    monkeypatch.setattr(pairs, "COPIES", 1)
    monkeypatch.setattr(precompile, "precompile", lambda jobs: set())
    monkeypatch.setattr(Tuner, "timed", lambda self, call, config: call.estimates_s[call.configs.index(config)])


def test_a_sitting_measures_everything_and_a_second_one_has_nothing_left(small: None, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    wanted = ("toy fp16 b1", "toy int8 b1", "pairs fp32 b1", "torch.compile b1", "tiles float16, unseen")
    every = [i for i in items("toy", (), (), (("toy", 1),)) if i.name in wanted]
    assert len(every) == len(wanted)
    found = sit(every, path, 1e4, "test")
    assert {name: own["done"] for name, own in found["session"].items()} == {i.name: True for i in every}
    toy = json.loads(path.read_text())["networks"]["toy"]
    assert toy["fp16"]["b1"]["ours_us"] > 0
    assert toy["fp16"]["b1"]["compile_us"] == 3.0
    assert toy["fp16"]["b1"]["rel_err"] < 0.01
    assert toy["int8"]["b1"]["different"] == 0
    pairs = found["pairs"]["fp32"]["b1"]["pairs"]
    assert pairs
    assert all(one[key] > 0 for one in pairs.values() for key in ("fused_us", "apart_us", "cudnn_us"))
    assert found["estimator"]["float16"]["first_within_5_percent"] == 1.0
    before = path.read_text()
    sit(every, path, 1e4, "test")
    again = json.loads(path.read_text())
    assert again["networks"] == json.loads(before)["networks"]


def test_what_is_compiled_beforehand_is_what_measuring_launches(small: None, monkeypatch: pytest.MonkeyPatch,
                                                                 tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ("toy fp16 b1", "pairs fp32 b1", "tiles float16, unseen")
    every = [i for i in items("toy", (), (), (("toy", 1),)) if i.name in wanted]
    before, launched = list[precompile.CompileJob](), list[precompile.CompileJob]()
    monkeypatch.setattr(gpu_fcm, "precompile", lambda jobs, done: before.extend(jobs))
    gpu_fcm.compiled(every, 60.0)
    assert "kernels" in capsys.readouterr().out

    def bound(self: Launcher, call: Call, config: Config) -> Callable[[], None]:
        launched.append(self.described(call, config))
        return lambda: None
    monkeypatch.setattr(Launcher, "bound", bound)
    sit(every, tmp_path / "found.json", 1e4, "test")
    assert launched
    assert {job.alike for job in launched} <= {job.alike for job in before}


def test_items_are_taken_in_the_order_asked_for() -> None:
    every = items("toy", ("first",), ("second",))
    assert [i.name for i in gpu_fcm.selected(every, ["second fp16 b8", "pairs fp32", "fp16 b8"])] == [
        "second fp16 b8", "pairs fp32 b1", "toy fp16 b8", "first fp16 b8"]
    assert gpu_fcm.selected(every, None) == every


def test_rows_of_a_sitting_replace_those_of_the_record() -> None:
    old = {"networks": {"a": {"fp16": {"b1": {"ours_us": 9.0, "compile_us": 20.0, "date": "yesterday"}, "b8": {"ours_us": 7.0}}}}}
    new = {"gpu": "g", "date": "today", "torch": "1", "triton": "2", "cudnn": 3, "copy_bytes_per_s": 1e12, "command": "c",
           "networks": {"a": {"fp16": {"b1": {"ours_us": 8.0, "compile_us": None}, "b8": {"ours_us": None, "reason": "none"}}},
                        "b": {"fp16": {"b1": {"ours_us": 5.0, "rel_err": 0.86, "cudnn_rel_err": 0.017}},
                              "int8": {"b1": {"ours_us": 5.0, "different": 3}}}},
           "pairs": {"fp32": {"b1": {"pairs": {"p": {}}}}}, "session": {"pairs fp32 b1": {"done": True}}}
    found, said = record.merged(old, new)
    assert found["networks"]["a"]["fp16"] == {
        "b1": {"ours_us": 8.0, "compile_us": 20.0, "compile_mj": None, "compiling_s": None, "compile_date": "yesterday",
               "date": "today", "command": "c"}, "b8": {"ours_us": 7.0}}
    assert "b" not in found["networks"]
    assert found["pairs"]["fp32"]["b1"] == {"pairs": {"p": {}}, "date": "today", "command": "c", "complete": True}
    assert "a fp16 b1: torch.compile 20.0 us, measured yesterday, not again" in said
    assert "a fp16 b8: left out, none" in said
    assert "b fp16 b1: left out, WRONG BY 8.6e-01, MORE THAN 1.5 TIMES CUDNN'S" in said
    assert "b int8 b1: left out, 3 INTEGERS DIFFER FROM THE REFERENCE" in said


def test_an_item_that_takes_its_process_down_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                           capfd: pytest.CaptureFixture[str]) -> None:
    path, begun = tmp_path / "found.json", tmp_path / "begun"
    monkeypatch.setattr(gpu_fcm, "GRACE_S", 0.0)
    done = {"networks": {}, "session": {"well": {"tries": 1, "done": True}}}
    ends = {"crashes": "import os; os.abort()", "hangs": "import time; time.sleep(60)",
            "well": f"open({str(path)!r}, 'w').write({json.dumps(done)!r})"}

    def call(item: Item, left: float) -> list[str]:
        begun.write_text((begun.read_text() if begun.is_file() else "") + item.name + " ")
        return [sys.executable, "-c", ends[item.name]]
    every = [Item(name, took, lambda *_: True) for name, took in (("well", 60.0), ("crashes", 60.0), ("hangs", 0.1))]
    for _ in range(3):
        found = gpu_fcm.sit_apart(every, path, 1000.0, call)
    assert begun.read_text() == "well crashes hangs crashes hangs "
    assert found["well"]["done"]
    assert found["crashes"] == {"tries": 2, "done": False, "reason": "its process ended with -6"}
    assert found["hangs"]["reason"] == "its process did not end and was ended"
    assert "crashes: its process ended with -6" in capfd.readouterr().out


def test_items_are_bounded_tried_twice_and_skipped_where_time_is_short(tmp_path: Path) -> None:
    path, ran = tmp_path / "found.json", list[str]()

    def slow(found: dict[str, Any], where: Path, until: float) -> bool:
        ran.append("slow")
        time.sleep(60)
        return True

    def broken(found: dict[str, Any], where: Path, until: float) -> bool:
        ran.append("broken")
        raise UnsupportedError("no kernel")

    def partly(found: dict[str, Any], where: Path, until: float) -> bool:
        ran.append("partly")
        return ran.count("partly") == 3

    def long(found: dict[str, Any], where: Path, until: float) -> bool:
        raise AssertionError("there is no time for it")

    every = [Item("slow", 0.25, slow), Item("broken", 1, broken), Item("long", 1e3, long), Item("partly", 1, partly)]
    for _ in range(4):
        found = sit(every, path, 30.0, "test")
    assert ran == ["slow", "broken", "partly"] * 2 + ["partly"]
    held = found["session"]
    assert "interrupted after 1 s" in held["slow"]["reason"]
    assert held["broken"].keys() == {"tries", "done", "reason", "seconds"}
    assert (held["broken"]["tries"], held["broken"]["done"]) == (2, False)
    assert held["broken"]["reason"].startswith("UnsupportedError: no kernel (at test_session.py:")
    assert held["partly"]["done"]
    assert "long" not in held
    assert "1000 s to go" in gpu_fcm.listed(every, path)
