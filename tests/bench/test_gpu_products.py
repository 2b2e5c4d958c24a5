"""Shares of products without matrix units are what the record of timed tiles says, and hold for networks not fitted to."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

import gpu_estimator
from dovetail.gpu.remembered import Remembered
from lib.gpu import products
from lib.gpu.products import RECORD, WRITTEN, fitted, judged_apart, networks_told, timed, written
from lib.gpu.tiles import counted
from lib.parts import run


@pytest.fixture(scope="module")
def every() -> list[products.Timed]:
    return timed()


@pytest.mark.slow("reads the committed times of every tile")
def test_what_comes_with_the_package_is_what_the_record_says(every: list[products.Timed]) -> None:
    assert written(fitted(every), json.loads(RECORD.read_text()), every) == WRITTEN.read_text()


@pytest.mark.slow("reads the committed times of every tile")
def test_shares_say_more_of_other_networks_than_a_full_rate(every: list[products.Timed]) -> None:
    found = judged_apart(every)
    assert found["held out"]["kernels"] > 100
    assert found["held out"]["error_median"] < found["without shares"]["error_median"] / 3
    assert found["held out"]["lost_mean"] < found["without shares"]["lost_mean"] / 3
    assert found["held out"]["first_within_5_percent"] > found["without shares"]["first_within_5_percent"]


@pytest.mark.slow("reads the committed times of every tile")
def test_a_record_is_made_of_what_tuning_remembers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = [call for call, _ in counted("mobilenet-v1@32", 2, "float32").values()]
    tiles = {call.key: ((1e-6, call.configs[0]), (float("inf"), call.configs[-1])) for call in calls}
    Remembered(tmp_path / "cache.json", tiles).save()
    sitting = {"gpu": "some GPU", "date": "2026-11-17", "torch": "2", "triton": "3", "command": "bench", "networks": {}}
    (tmp_path / "sitting.json").write_text(json.dumps(sitting))
    record = tmp_path / "record.json"
    asked = ["--part", "tuned", str(tmp_path / "cache.json"), "--into", str(record), "--case", "mobilenet-v1@32:2",
             "--kind", "float32", "--source", "test", "--kernel", "conv", "--kernel", "depthwise"]
    with pytest.raises(SystemExit, match="--of SITTING"):
        run("", gpu_estimator.PARTS, asked)
    assert run("", gpu_estimator.PARTS, [*asked, "--of", str(tmp_path / "sitting.json")]) == 0
    made = json.loads(record.read_text())
    assert (made["gpu"], made["kind"], made["tuned"]["conv"]["command"]) == ("some GPU", "float32", "test")
    assert len(made["kernels"]) == sum(call.kernel in ("conv", "depthwise") for call in calls)
    assert all(seconds < 1 for kernel in made["kernels"] for seconds, _ in kernel["times"])
    assert run("", gpu_estimator.PARTS, ["--part", "products", "--json", str(tmp_path / "judged.json")]) == 0
    assert "held out" in capsys.readouterr().out
    assert json.loads((tmp_path / "judged.json").read_text())["shipped"]["kernels"] > 100


def test_whole_networks_are_estimated_near_their_times() -> None:
    """Of one that no share was fitted to."""
    told = [line.split() for line in islice(networks_told(), 3)]
    assert [(name, batch) for name, batch, *_ in told] == [("mobilenet-v2", batch) for batch in ("b1", "b64", "b8")]
    assert all(2 / 3 < float(ratio) < 3 / 2 for *_, ratio in told)
