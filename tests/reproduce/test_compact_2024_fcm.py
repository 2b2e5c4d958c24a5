"""Paper III of Compact DNNs 2024: what was measured stands beside the claims, what was not is said to be missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.cli.program import main
from dovetail.reproduce import compact_2024_fcm


def test_the_record_that_comes_along_answers_every_claim_or_says_it_does_not() -> None:
    found = compact_2024_fcm.reproduce()
    assert found["network_over_cudnn"]["value"] > 1
    assert all(n["ours_us"] > 0 for n in found["networks"])
    shown = compact_2024_fcm.text(found)
    assert all(claim in shown for claim in found["claims"].values())
    assert found["gpu"] in shown


def test_ratios_are_those_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"ours_us": 50.0, "cudnn_us": 200.0, "compile_us": 150.0, "ours_mj": 2.0, "compile_mj": 8.0, "cudnn_mj": 10.0}
    pairs = {"fp32": {"b1": {"fused_over_apart_best": 1.5, "ratio_best": 3.0, "ratio_median": 2.0}}}
    record = {"gpu": "A card", "date": "2026-01-01", "pairs": pairs,
              "networks": {"small": {"fp16": {"b1": one, "b8": {"ours_us": None, "reason": "no kernel"}}}}}
    (tmp_path / "r.json").write_text(json.dumps(record))
    assert main(["reproduce", "compact-2024", "--part", "fcm", "--record", str(tmp_path / "r.json"), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["network_over_cudnn"]["value"], found["network_over_compiler"]["value"]) == (4.0, 3.0)
    assert (found["energy_of_compiler"]["value"], found["energy_of_cudnn"]["value"]) == (0.25, 0.2)
    assert found["fused_over_apart"] == {"value": 1.5, "where": "fp32 b1"}
    assert [n["images"] for n in found["networks"]] == [1]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"gpu": "a", "date": "b", "networks": 3}'])
def test_other_files_are_refused(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text(content)
    assert main(["reproduce", "compact-2024", "--record", str(tmp_path / "r.json")]) == 2
    assert "not a file of measurements" in capsys.readouterr().err
