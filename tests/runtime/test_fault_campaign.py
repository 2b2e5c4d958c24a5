"""The campaign of faults, a few of every kind: processes killed and hung, words of links flipped, boards reset in mid-frame."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail import pipeline
from dovetail.errors import ToolError
from dovetail.fpga.toolchain import tools
from dovetail.ir.onnx.write import to_onnx
from dovetail.partition.plan import whole_on
from dovetail.platform.load import load_platform
from dovetail.runtime.build import Build, run_stored, synthetic_integers
from dovetail.runtime.record import RunRecord
from dovetail.runtime.stages import SystemPart
from dovetail.runtime.workers import OnFailure, StreamOptions
from lib.faults import FRAMES, Moment, campaign, judge, read_moment, single, told
from tests.fpga.joined_boards import chain, narrow


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Two boards with a link between them."""
    folder = tmp_path_factory.mktemp("joined")
    (folder / "chain.onnx").write_bytes(to_onnx(chain(2)))
    return pipeline.compile(folder / "chain.onnx", narrow(load_platform("fic:2")), folder / "build",
                            assignment={"n0": whole_on("fpga0"), "n1": whole_on("fpga1")}, verify=False)


def test_no_kind_of_fault_costs_a_frame(streamed: Build, joined: Build) -> None:
    kept: list[dict[str, dict[str, object]]] = []
    found = campaign(streamed, joined, 2, {}, kept.append)
    assert set(found) == {"killed", "hung", "flipped", "reset"}
    for kind, row in found.items():
        assert row["met"] >= 2
        assert (row["wrong"], row["lost"], row["repeated"]) == (0, 0, 0), kind
        assert row["recovered_s"]["worst"] >= row["recovered_s"]["median"] >= 0
    assert all("came back" in text for text in found["reset"]["moments"])
    assert len(kept) == sum(row["streams"] for row in found.values())
    again = campaign(streamed, joined, 2, kept[-1], kept.append)
    assert {kind: row["moments"] for kind, row in again.items()} == {kind: row["moments"] for kind, row in found.items()}


def test_results_are_judged_frame_by_frame() -> None:
    expected = {"y": np.arange(4).reshape(4, 1)}
    right = [{"y": x} for x in (expected["y"][i : i + 1] for i in range(4))]
    assert judge(right, expected) == (0, 0, 0)
    assert judge(right[:3], expected) == (0, 1, 0)
    assert judge([*right, right[0]], expected) == (0, 0, 1)
    assert judge([right[0], right[0], {"y": np.array([[9]])}, right[3]], expected) == (1, 0, 1)
    moments = [Moment(0, 1, 0, 0, 0, 0.25, "link too, came back"), Moment(1, 0, 1, 2, 0)]
    assert [read_moment(str(m)) for m in moments] == moments
    assert told(moments)["recovered_s"] == {"median": 0.25, "worst": 0.25}


def test_joined_boards_that_take_too_long_are_ended_and_computed_on_the_cpu(joined: Build,
                                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "POLL_S", 0.0)  # a simulation that ends before it is looked at was not too long
    stored, record = synthetic_integers(joined.graph, FRAMES, seed=2), RunRecord()
    with joined.open_stream(StreamOptions(3, OnFailure.FALLBACK, 1e-4, FRAMES), record) as stream:
        found = list(stream.results(single(stored)))
    np.testing.assert_array_equal(np.concatenate([r["y1"] for r in found]), run_stored(joined, stored)["y1"])
    assert [f.stage for f in record.failures] == ["boards0"]
    (stage,) = joined.stages()
    assert isinstance(stage.part, SystemPart)
    with pytest.raises(ToolError, match=r"not finished after 0\.0001 s"):
        stage.part.boards.run({"x": stored["x"]}, timeout_s=1e-4)
