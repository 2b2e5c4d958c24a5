"""A build whose hardware shares multipliers: the plan's folds are the hardware's, and it equals the reference."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.cost.folded import folds_of
from dovetail.partition.options import AUTO
from dovetail.partition.plan import whole_on
from dovetail.pipeline import compile as compile_model
from dovetail.pipeline import decide_numbers, verify_build
from dovetail.planning import Options, decide, make_plan
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform
from dovetail.runtime.build import Build
from dovetail.space import PACES
from tests.runtime.conftest import DIVIDED


def small_board(**limits: float) -> Platform:
    """The papers' board with a smaller FPGA."""
    board = load_platform("tx2-c10gx")
    fpga = board.device("fpga")
    smaller = replace(fpga, resources={**fpga.resources, **limits})
    return replace(board, devices=tuple(smaller if d is fpga else d for d in board.devices))


@pytest.fixture(scope="module")
def folded(model: Path, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    on_fpga = {name: whole_on("fpga") for name in DIVIDED if name not in ("flat", "fc")}
    return compile_model(model, small_board(alm=4000.0), tmp_path_factory.mktemp("folded") / "build", calibration=samples,
                         assignment=on_fpga, options=Options(fold=4096), verify=False)


def test_a_folded_build_holds_the_folds_its_costs_were_made_of_and_equals_the_reference(folded: Build) -> None:
    (segment,) = (s for s in folded.program.segments if s.device == "fpga")
    device = folded.platform.device("fpga")
    assert device.parameters["pace_clocks"] == 4096
    part = folded.part(segment)
    built = {name: tuple(sizes) for name, sizes in part.design.folds.items()}
    assert built == {name: (f.groups, f.inputs, f.outputs) for name, f in folds_of(segment.graph, device).items()} != {}
    assert 64 < part.design.interval_cycles <= 4096
    outcome = verify_build(folded, frames=20)
    assert outcome.equal, str(outcome.first_mismatch)


def test_a_wrong_weight_in_memory_is_found_and_the_engine_named(folded: Build, tmp_path: Path) -> None:
    shutil.copytree(folded.folder, tmp_path / "broken")
    images = sorted((tmp_path / "broken" / "fpga").glob("*/*_weights.hex"))
    assert images
    words = images[0].read_text(encoding="utf-8").splitlines()
    images[0].write_text("\n".join("0" * len(w) for w in words) + "\n", encoding="utf-8")
    outcome = verify_build(replace(folded, folder=tmp_path / "broken"), frames=4)
    assert not outcome.equal
    label = images[0].name.removesuffix("_weights.hex").removeprefix(f"{images[0].parent.name}_")
    assert label in str(outcome.first_mismatch)


def test_auto_keeps_the_board_whose_plan_is_best(model: Path, samples: Path) -> None:
    graph, board = decide_numbers(model, samples).graph, small_board(alm=3000.0)
    plan, _, chosen = decide(graph, board, Options(fold=AUTO))
    best = make_plan(graph, chosen, Options())[0].objective
    assert best == plan.objective
    for other in (board, *(board.with_pace(pace) for pace in PACES[:3])):
        assert best <= make_plan(graph, other, Options())[0].objective
