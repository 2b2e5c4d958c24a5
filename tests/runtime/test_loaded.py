"""Weights that are loaded: a build whose layers take another model's weights without being built again, in simulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail import pipeline
from dovetail.cli import main
from dovetail.errors import UsageError
from dovetail.fpga.export_pages import link_page
from dovetail.fpga.part import load_part, load_part_shell, loaded_sets
from dovetail.ir import Axis, Graph
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.planning import Options
from dovetail.platform.load import load_platform
from dovetail.runtime.board_trial import try_board
from dovetail.runtime.build import Build, load_build
from dovetail.runtime.driver import open_simulated
from dovetail.runtime.weights import loaded_names, with_weights
from tests.fpga.joined_boards import chain, narrow
from tests.numerics.lq_networks import images, network

PINNED = {n.name: whole_on("fpga" if n.name in ("second", "pool", "third") else "cpu") for n in network(1, 2, 2).nodes}


def other_weights(graph: Graph, seed: int, names: tuple[str, ...]) -> Graph:
    """The graph with weights and thresholds of some layers drawn anew."""
    drawn = network(seed, 2, 2)
    return replace(graph, constants={**graph.constants, **{p: drawn.constants[p] for n in names for p in graph.node(n).params}})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "lq.onnx").write_bytes(to_onnx(network(1, 2, 2)))
    return pipeline.compile(folder / "lq.onnx", "zcu102", folder / "build", assignment=PINNED, frames=3,
                            options=Options(fold=600, loaded=("all",)))


def test_a_build_takes_the_weights_of_another_model_and_is_bit_exact_with_them(built: Build, tmp_path: Path) -> None:
    assert loaded_names(built) == ["second", "third"]
    assert pipeline.read_json(built.folder / "verification.json")["equal"]
    assert any("weights of second, third are loaded" in w for w in built.manifest["warnings"])
    graph, path = other_weights(network(1, 2, 2), 8, ("second", "third")), tmp_path / "other.onnx"
    path.write_bytes(to_onnx(graph))
    frames = images(3, 4)["x"]
    expected = run_integer(graph, {"x": frames})["last_y"]
    assert not np.array_equal(expected, run_integer(network(1, 2, 2), {"x": frames})["last_y"])
    np.save(tmp_path / "x.npy", frames.astype(np.float32) / 256)
    assert main(["run", str(built.folder), "-i", str(tmp_path / "x.npy"), "-o", str(tmp_path / "y.npy"), "--weights",
                 str(path)]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected.astype(np.float64) * 2.0**-8)
    assert main(["run", str(built.folder), "-i", str(tmp_path / "x.npy"), "-o", str(tmp_path / "z.npy"), "--weights",
                 str(path), "--pipeline"]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), np.load(tmp_path / "y.npy"))
    assert not (built.folder / "measured.json").exists(), "what was measured is not about the build's own weights"
    before = (built.folder / "verification.json").read_bytes()
    assert main(["verify", str(built.folder), "--weights", str(path), "--frames", "3"]) == 0
    assert (built.folder / "verification.json").read_bytes() == before, "what was remembered is about the build's own weights"


def test_a_board_loads_weights_through_its_ports_and_keeps_them_over_resets(built: Build) -> None:
    (segment,) = (s for s in built.program.segments if s.device == "fpga")
    part = load_part(segment.graph, built.folder / "fpga")
    shell = load_part_shell(segment.graph, built.folder / "fpga")
    page = link_page(shell)
    assert "`s_axis_load0`, `s_axis_load1` take weights" in page
    assert "axi/load0.bin, axi/load1.bin" in page
    told = list[tuple[int, int]]()
    trial = try_board(part, shell, 3, stall_seed=2, progress=lambda done, total: told.append((done, total)))
    assert trial.equal, trial
    assert (told[0], told[-1]) == ((0, 3), (3, 3))
    assert trial.frames_per_s == pytest.approx(trial.cycles_per_s * trial.frames / trial.cycles)
    folder = built.folder / "fpga" / segment.graph.name / "axi"
    stored = [(folder / f"{port.name}.bin").read_bytes() for port in shell.core.loads]
    changed = other_weights(segment.graph, 8, ("second", "third"))
    frames = {name: np.random.default_rng(4).integers(0, 4, (3, *segment.graph.shape(name)[1:])) for name in segment.graph.inputs}
    with open_simulated(shell) as board:
        with pytest.raises(UsageError, match=r"no weights for second weights, third weights; load them first"):
            board.run(frames)
        with pytest.raises(UsageError, match="load them first"):
            board.self_test()
        for graph in (segment.graph, changed):
            board.load(loaded_sets(graph, shell.core))
            found = board.run(frames)
            for name, right in run_integer(graph, frames).items():
                np.testing.assert_array_equal(found[name].reshape(right.shape), right)
            assert (list(board.weights.values()) == stored) == (graph is segment.graph)
        with pytest.raises(UsageError, match="sets for none; it loads second weights, third weights"):
            board.load({})


@pytest.mark.parametrize(("loaded", "said"), [
    ("nobody", "--loaded nobody: no such layer; second, third can be loaded"),
    ("pool", "--loaded pool: a MaxPool whose weights are constants of the design; only layers of codes have memories"),
    ("last", r"--loaded last: not on FPGAs whose layers are folded"),
    ("first", r"--loaded first: not on FPGAs whose layers are folded \(--fold CLOCKS\), or only in part; second, third can be "
              "loaded")])
def test_layers_that_cannot_be_loaded_are_refused_by_name(tmp_path: Path, loaded: str, said: str) -> None:
    (tmp_path / "lq.onnx").write_bytes(to_onnx(network(1, 2, 2)))
    with pytest.raises(UsageError, match=said):
        pipeline.compile(tmp_path / "lq.onnx", "zcu102", tmp_path / "build", assignment=PINNED, verify=False,
                         options=Options(fold=600, loaded=(loaded,)))
    assert not (tmp_path / "build").exists()


def test_weights_of_another_network_are_refused(built: Build, tmp_path: Path) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(to_onnx(other_weights(network(1, 2, 2), 8, ("second", "last"))))
    with pytest.raises(UsageError, match="weights of last differ, and they are constants of the build; only those of second"):
        with_weights(load_build(built.folder), path)
    path.write_bytes(to_onnx(network(1, 3, 2)))
    with pytest.raises(UsageError, match="node second is another operator or scheme there; weights come from a model"):
        with_weights(load_build(built.folder), path)


def test_boards_that_are_joined_load_their_weights_over_the_links(tmp_path: Path) -> None:
    (tmp_path / "chain.onnx").write_bytes(to_onnx(chain(1, 2, 3)))
    build = pipeline.compile(tmp_path / "chain.onnx", narrow(load_platform("fic:2")), tmp_path / "build", frames=2,
                             options=Options(fold=90, loaded=("n0",)), assignment={"n0": whole_on("fpga1")})
    found = pipeline.read_json(build.folder / "verification.json")
    assert found["equal"]
    assert [s["name"] for s in found["segments"]][-1] == "boards0"
    assert list(build.systems()["boards0"].weights) == ["n0 weights"]


@pytest.mark.parametrize("axis", [Axis.OUTPUT_CHANNELS, Axis.ROWS])
def test_a_layer_that_is_divided_over_boards_loads_a_set_for_every_share(tmp_path: Path, axis: Axis) -> None:
    graph, path = chain(1, 3, 3), tmp_path / "other.onnx"
    (tmp_path / "chain.onnx").write_bytes(to_onnx(graph))
    shares = Split(axis, (Piece("fpga0", 0, 1), Piece("fpga1", 1, 3)))
    build = pipeline.compile(tmp_path / "chain.onnx", narrow(load_platform("fic:2")), tmp_path / "build", verify=False,
                             options=Options(fold=90, loaded=("n0",)), assignment={"n0": shares})
    assert loaded_names(build) == ["n0"]
    assert sorted(build.systems()["boards0"].weights) == ["n0_0_1 weights", "n0_1_3 weights"]
    codes = np.random.default_rng(5).permutation(graph.constants["n0_codes"].array.reshape(-1)).reshape(3, 3, 3, 3)
    changed = replace(graph, constants={**graph.constants, "n0_codes": replace(graph.constants["n0_codes"], array=codes)})
    path.write_bytes(to_onnx(changed))
    other = with_weights(load_build(build.folder), path)
    frames = np.random.default_rng(1).integers(0, 4, (3, 3, 3, 3)).astype(np.float32)
    answers = [np.asarray(b.run(frames)) for b in (build, other)]
    for found, own in zip(answers, (graph, changed), strict=True):
        np.testing.assert_array_equal(found, run_integer(own, {"x": frames.astype(np.uint8)})["y0"])
    assert not np.array_equal(*answers), "the other weights give other answers"


def test_a_layer_whose_other_half_stays_on_the_processor_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "chain.onnx").write_bytes(to_onnx(chain(1, 2, 3)))
    shares = Split(Axis.OUTPUT_CHANNELS, (Piece("fpga", 0, 1), Piece("cpu", 1, 2)))
    with pytest.raises(UsageError, match=r"--loaded n0: not on FPGAs .* \(--fold CLOCKS\), or only in part; none of this plan"):
        pipeline.compile(tmp_path / "chain.onnx", "zcu102", tmp_path / "build", verify=False,
                         options=Options(fold=90, loaded=("n0",)), assignment={"n0": shares})
