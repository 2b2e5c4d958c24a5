"""A few of the cases that `bench/random_models.py` runs by the thousands, and that it names what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import random_models
from dovetail.explore.crew import Ended
from dovetail.explore.job import CampaignJob, Outcome, perform
from dovetail.ir import Array, Graph
from lib import random_cases

MENDED = (16, 41, 363)
"""A cut between a convolution and the clip that joins it; shares of a tensor that a board reads from another and the host; a sum
of three."""


class OwnProcess:
    """Runs jobs in this process, where tests change what they call; the latest begun ends first."""

    def __init__(self) -> None:
        self.begun: list[CampaignJob] = []

    def room(self, memory_bytes: int) -> bool:
        return len(self.begun) < 2

    def begin(self, job: CampaignJob) -> None:
        self.begun.append(job)

    def ended(self) -> list[Ended]:
        job = self.begun.pop()
        return [Ended(job, Outcome(*perform(job.work, job.arguments, {}, {})))]


@contextmanager
def here(workers: int) -> Iterator[OwnProcess]:
    yield OwnProcess()


def test_random_models_equal_onnx_runtime() -> None:
    found = [random_cases.integers(seed) for seed in (*range(30), 12_051)]
    assert {kind for kind, _ in found} <= {"equal", "not finite"}, found
    assert sum(kind == "equal" for kind, _ in found) > 25


def test_damaged_files_are_read_or_refused_in_one_line() -> None:
    kinds = [random_cases.damaged(seed)[0] for seed in (*range(120), 74_289)]
    assert set(kinds) == {"read", "refused"}


@pytest.mark.verilator
def test_random_plans_of_random_models_are_built_and_exact() -> None:
    found = [random_cases.planned(seed)[0] for seed in (0, 2, 7, *MENDED)]
    assert all(kind.startswith("equal: ") for kind in found), found
    assert {"verilator", "triton"} <= {part for kind in found for part in kind.removeprefix("equal: ").split("+")}


def test_what_is_wrong_is_named_and_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(graph: Graph, inputs: dict[str, Array]) -> dict[str, Array]:
        return {name: values + np.asarray(1, values.dtype) for name, values in real(graph, inputs).items()}

    real, path = random_cases.run_integer, tmp_path / "found.json"
    asked = ["random_models.py", "--part", "integers", "--jobs", "1", "--json", str(path)]
    monkeypatch.setattr("dovetail.explore.cluster.local_crew", here)
    monkeypatch.setattr("sys.argv", [*asked, "--cases", "60"])
    assert random_models.main() == 0
    monkeypatch.setattr(random_cases, "run_integer", off_by_one)
    monkeypatch.setattr("sys.argv", [*asked, "--cases", "64"])
    assert random_models.main() == 1
    found = json.loads(path.read_text(encoding="utf-8"))["integers"]
    assert (found["cases"], found["status"]) == (64, "missed")
    assert {case["case"] for case in found["wrong"]} <= {60, 61, 62, 63}
    assert "differ" in found["wrong"][0]["what"]
    monkeypatch.setattr(random_cases, "run_integer", real)
    assert random_models.main() == 0
    again = json.loads(path.read_text(encoding="utf-8"))["integers"]
    assert (again["wrong"], again["mended"], sum(again["outcomes"].values())) == ([], found["wrong"], 64)
