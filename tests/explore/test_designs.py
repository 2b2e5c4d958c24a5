"""Spaces of designs: what a file states, one job per what it depends on, and what is said of the results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cli import main
from dovetail.errors import UsageError
from dovetail.explore.designs import read_space
from dovetail.explore.findings import mark_best
from dovetail.ir import Conv, Gemm, GlobalAvgPool, Reshape, Window
from dovetail.ir.onnx.write import to_onnx
from tests.strategies import Net

SPACE = """
name = "tiny"
jobs = ["planning", "accuracy"]
boards = ["tx2-c10gx", "zedboard"]
bits = [8, 4]
architectures = ["direct"]
objectives = ["latency", "energy"]
time_s = 0.2

[[networks]]
model = "tiny.onnx"
data = "data.npz"
"""


@pytest.fixture
def space(tmp_path: Path) -> Path:
    net = Net(1)
    x = net.add(Conv(3, Window((3, 3), pads=(1, 1, 1, 1))), net.input((1, 2, 6, 6)))
    x = net.add(Reshape((1, 3)), net.add(GlobalAvgPool(), x))
    (tmp_path / "tiny.onnx").write_bytes(to_onnx(net.graph(net.add(Gemm(3), x))))
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.random((8, 2, 6, 6), dtype=np.float32), y=np.arange(8) % 3)
    path = tmp_path / "space.toml"
    path.write_text(SPACE)
    return path


@pytest.mark.slow("starts processes")
def test_a_space_is_explored_by_two_workers_and_a_second_run_computes_nothing(
        space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = space.parent
    arguments = ["explore", str(space), "--workers", "2", "--store", str(folder / "store")]
    assert main([*arguments, "-o", str(folder / "page.html"), "--table", str(folder / "table.csv"), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["jobs"] == {"known": 0, "computed": 10, "lost": 0, "failed": {}}
    assert len(found["designs"]) == 8
    for design in found["designs"]:
        assert design["latency_s"] > 0
        assert 0 <= design["accuracy"] <= 1
    assert [(s["axis"], s["value"], s["pairs"]) for s in found["sensitivities"]] == [
        ("board", "zedboard", 4), ("bits", "4", 4), ("objective", "energy", 4)]
    page = (folder / "page.html").read_text()
    assert page.count('class="point"') >= 1
    assert "energy per frame" in page
    assert len((folder / "table.csv").read_text().splitlines()) == 9
    space.write_text(SPACE.replace("[8, 4]", "[8, 4, 6]"))
    assert main([*arguments, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == {"known": 10, "computed": 5, "lost": 0, "failed": {}}
    assert main(arguments) == 0
    assert "0 jobs computed, 15 known before" in capsys.readouterr().out


def test_accuracy_depends_on_network_and_bits_alone_and_keys_on_bytes(space: Path) -> None:
    before = {job.label: job.key for job in read_space(space).jobs}
    assert sum(label.startswith("accuracy") for label in before) == 2
    assert sum(label.startswith("planning") for label in before) == 8
    space.write_text(SPACE.replace("time_s = 0.2", "time_s = 0.3"))
    slower = {job.label: job.key for job in read_space(space).jobs}
    assert {label for label in before if before[label] == slower[label]} == {la for la in before if la.startswith("accuracy")}
    data = space.with_name("data.npz")
    np.savez(data, x=np.zeros((4, 2, 6, 6), dtype=np.float32), y=np.zeros(4, dtype=int))
    other = {job.label: job.key for job in read_space(space).jobs}
    assert {label for label in slower if slower[label] == other[label]} == {la for la in before if la.startswith("planning")}


@pytest.mark.parametrize(("before", "after", "message"), [
    ('name = "tiny"', 'nam = "tiny"', "unknown key nam (did you mean name?)"),
    ('"accuracy"]', '"acuracy"]', "key jobs has 'acuracy' (did you mean accuracy?); allowed are planning, accuracy"),
    ("[8, 4]", "[8, 9]", "key bits is 9; allowed is 2 to 8 bits"),
    ("[8, 4]", "[8.5]", "key bits has 8.5; whole numbers from 2 to 8 bits are needed"),
    ("[8, 4]", "8", "key bits is 8; a list of numbers from 2 to 8 bits is needed"),
    ('["direct"]', '["fold"]', "key architectures has 'fold'"),
    ('"zedboard"', '"zedbord"', "zedbord"),
    ('"zedboard"', '"none.toml"', "none.toml"),
    ("[[networks]]", "[networks]", "key networks is {'model': 'tiny.onnx', 'data': 'data.npz'}; a list of tables"),
    ('model = "tiny.onnx"', 'model = "none.onnx"', "none.onnx: not readable, no such file or directory; paths are relative to"),
    ('model = "tiny.onnx"', 'zoo = "resnet-19"', "key zoo is 'resnet-19' (did you mean"),
    ('data = "data.npz"', "", "networks tiny: key data is missing, and accuracy needs labelled images"),
    ('data = "data.npz"', 'data = "data.npz"\nsize = 3', "key size is of networks of the zoo; leave it out"),
    ("time_s = 0.2", "time_s = true", "key time_s is True; a number from 0.01 to 3600 s is needed"),
    ("time_s = 0.2", "[memory_gb]\nplaning = 1", "unknown key planing (did you mean planning?)"),
    ("boards = [", "boards = ", "not TOML"),
])
def test_a_wrong_space_is_refused_in_one_line_with_place_and_remedy(space: Path, before: str, after: str, message: str,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    assert before in SPACE
    space.write_text(SPACE.replace(before, after))
    assert main(["explore", str(space), "--store", str(space.parent / "store")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (space.parent / "store").exists()


def test_a_space_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: not readable, no such file or directory; give a file as docs/guide/expl"):
        read_space(tmp_path / "none.toml")


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=8))
def test_the_best_are_those_that_no_other_one_beats(points: list[tuple[int, int, int]]) -> None:
    rows: list[dict[str, Any]] = [{"latency_s": a, "energy_j": b, "accuracy": c, "best": None} for a, b, c in points]
    mark_best(rows)

    def beats(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
        no_worse = (one["latency_s"] <= two["latency_s"] and one["energy_j"] <= two["energy_j"]
                    and one["accuracy"] >= two["accuracy"])
        return no_worse and any(one[n] != two[n] for n in ("latency_s", "energy_j", "accuracy"))

    assert [row["best"] for row in rows] == [not any(beats(other, row) for other in rows) for row in rows]
