"""Paper III of Compact DNNs 2024: what was measured stands beside the claims, what was not is said to be missing."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from statistics import median

import pytest

from dovetail.cli.program import main
from dovetail.reproduce.compact_2024 import fcm as compact_2024_fcm


def test_the_record_that_comes_along_answers_every_claim_or_says_it_does_not() -> None:
    found = compact_2024_fcm.reproduce()
    assert found["network_over_cudnn"]["value"] > 1
    assert all(n["ours_us"] > 0 for n in found["networks"])
    shown = compact_2024_fcm.text(found)
    assert all(claim in shown for claim in found["claims"].values())
    assert found["gpu"] in shown


def test_ratios_are_those_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"ours_us": 50.0, "cudnn_us": 200.0, "compile_us": 150.0, "ours_mj": 2.0, "compile_mj": 8.0, "cudnn_mj": 10.0}
    pairs = {"fp32": {"b1": {"pairs": {"lost": {"fused_us": 4.0, "apart_us": 2.0, "cudnn_us": 16.0},
                                       "won": {"fused_us": 2.0, "apart_us": 3.0, "cudnn_us": 6.0}}}}}
    record = {"gpu": "A card", "date": "2026-01-01", "pairs": pairs,
              "networks": {"small": {"fp16": {"b1": one, "b8": {"ours_us": None, "reason": "no kernel"}}}}}
    (tmp_path / "r.json").write_text(json.dumps(record))
    assert main(["reproduce", "compact-2024", "--part", "fcm", "--record", str(tmp_path / "r.json"), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["network_over_cudnn"]["value"], found["network_over_compiler"]["value"]) == (4.0, 3.0)
    assert (found["energy_of_compiler"]["value"], found["energy_of_cudnn"]["value"]) == (0.25, 0.2)
    assert found["pairs"] == [{
        "arithmetic": "fp32", "images": 1, "pairs": 2, "faster_fused": 1,
        "fused_over_apart": {"best": 1.5, "median": 1.0, "lowest": 0.5},
        "fused_over_cudnn": {"best": 4.0, "median": 3.5, "lowest": 3.0},
        "apart_over_cudnn": {"best": 8.0, "median": 5.0, "lowest": 2.0}}]
    assert [n["images"] for n in found["networks"]] == [1]


def test_what_fusion_gives_is_of_fused_kernels_alone_and_networks_stand_apart() -> None:
    record = json.loads((resources.files("dovetail.reproduce") / "records" / "gpu_fcm.json").read_text("utf-8"))
    pairs = record["pairs"]["fp32"]["b1"]["pairs"].values()
    fused, apart = (sorted(p[above] / p["fused_us"] for p in pairs) for above in ("cudnn_us", "apart_us"))
    found = compact_2024_fcm.reproduce()
    (told,) = found["pairs"]
    assert told["fused_over_cudnn"] == {"best": fused[-1], "median": median(fused), "lowest": fused[0]}
    assert told["fused_over_apart"] == {"best": apart[-1], "median": median(apart), "lowest": apart[0]}
    assert told["faster_fused"] == sum(p["fused_us"] < p["apart_us"] for p in pairs)
    claims = compact_2024_fcm.text(found).split("pairs of layers")[0]
    assert f"fused pairs, fp32 b1: best {fused[-1]:.2f}x, median {median(fused):.2f}x" in claims
    assert f"fused pairs, fp32 b1: best {apart[-1]:.2f}x, median {median(apart):.2f}x" in claims
    better = max(p["cudnn_us"] / min(p["fused_us"], p["apart_us"]) for p in pairs)
    assert f"{better:.2f}x" not in claims
    assert f"best {found['network_over_cudnn']['value']:.2f}x" in claims


def test_words_say_whether_fusing_pairs_gains_or_loses() -> None:
    found = compact_2024_fcm.reproduce()
    (told,) = found["pairs"]
    assert told["faster_fused"] < told["pairs"] / 2
    assert f"Fusion of pairs mostly loses at batch 1 on {found['gpu']} (fp32)" in compact_2024_fcm.text(found)
    assert "mostly gains" in compact_2024_fcm.verdict({**told, "faster_fused": told["pairs"]}, "a card")


@pytest.mark.parametrize("content", [
    "", "[]", "{}", '{"gpu": "a", "date": "b", "networks": 3}',
    '{"gpu": "a", "date": "b", "networks": {}, "pairs": {"fp32": {"b1": {"ratio_best": 7.4}}}}'])
def test_other_files_are_refused(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.json").write_text(content)
    assert main(["reproduce", "compact-2024", "--record", str(tmp_path / "r.json")]) == 2
    assert "not a file of measurements" in capsys.readouterr().err
