"""Choices are found again on the same GPU with the same kernels, and damage is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.gpu.remembered import Remembered, for_gpu, load, network_key

TILES = ((1.5e-6, {"BP": 16}), (2e-6, {"BP": 32}))
CHOSEN = ((0, 0, 1, "fused", {"BP": 16, "num_warps": 4}, 1.25e-6), (1, 0, 0, "conv", {"BP": 32}, 2e-6))


def test_choices_come_back_as_they_were(tmp_path: Path) -> None:
    Remembered(tmp_path / "deep" / "gpu.json", {"conv a": TILES}, {"n": CHOSEN}).save()
    found = load(tmp_path / "deep" / "gpu.json")
    assert found.tiles == {"conv a": TILES}
    assert found.networks == {"n": CHOSEN}


def test_two_processes_add_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    first, second = load(path), load(path)
    first.tiles["a"], second.tiles["b"] = TILES, TILES
    first.save()
    second.save()
    assert set(load(path).tiles) == {"a", "b"}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"tiles": 3, "networks": {}}', '{"tiles": {"a": [["x", {}]]}, "networks": {}}'])
def test_a_damaged_file_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "gpu.json").write_text(text)
    assert load(tmp_path / "gpu.json").tiles == {}


def test_what_cannot_be_written_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    Remembered(tmp_path / "file" / "gpu.json", {"a": TILES}).save()
    assert (tmp_path / "file").read_text() == ""


def test_gpus_and_versions_do_not_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    one = for_gpu("NVIDIA A", ("3.6",))
    one.tiles["a"] = TILES
    one.save()
    assert for_gpu("NVIDIA A", ("3.6",)).tiles == {"a": TILES}
    assert for_gpu("NVIDIA B", ("3.6",)).tiles == {}
    assert for_gpu("NVIDIA A", ("3.7",)).tiles == {}


def test_a_network_is_known_by_all_its_kernels() -> None:
    assert network_key(["a", "b"]) == network_key(["a", "b"]) != network_key(["a", "c"])
