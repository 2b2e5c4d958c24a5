"""Probes tell every beat of a simulated design, name the first wrong one, and a stopped simulation goes on where it was."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail.fpga.assemble import build_design
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.links.bench import Keeping, SystemRun, simulate_system
from dovetail.fpga.links.kept import open_kept
from dovetail.fpga.links.system import System, build_system, systems_of
from dovetail.fpga.probes import Watch, probed_design
from dovetail.ir import Array, slices
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import whole_on
from dovetail.platform.load import load_platform
from dovetail.schedule.program import lower
from tests.fpga.joined_boards import chain

FRAMES = 40


class StoppedError(Exception):
    """A simulation is stopped from outside."""


def watched() -> tuple[System, Watch, dict[str, Array]]:
    """Three layers over two boards, every stream of them watched."""
    graph, platform, watch = chain(), load_platform("fic:2"), Watch()
    program = lower(graph, {"n0": whole_on("fpga0"), "n1": whole_on("fpga1"), "n2": whole_on("fpga1")})
    ((name, segments),) = systems_of(program, platform).items()
    x = {"x": np.random.default_rng(5).integers(0, 4, (FRAMES, *graph.tensors["x"].shape[1:])).astype(np.uint8)}
    values, cores = run_integer(graph, x, keep=True), dict[str, Design]()
    for s in segments:
        cores[s.name], streams = probed_design(s.graph, s.name, {})
        watch.add(s.name, streams, {b.name: values[b.tensor][(slice(None), *slices(b.region)[1:])] for b in s.reads}
                  | {n.output: values[n.output] for n in s.graph.nodes})
    return build_system(name, segments, cores, program, platform), watch, x


def spoilt(system: System) -> System:
    """The same boards, whose second layer has a threshold wrong somewhere."""
    board = system.boards[1]
    name = next(n for n in sorted(board.files) if n.endswith("_n1.v"))
    text = board.files[name]
    assert "out_data = " in text
    files = {**board.files, name: text.replace("out_data = ", "out_data = 1'b1 ^ ", 1)}
    return replace(system, boards=(system.boards[0], replace(board, files=files)))


@pytest.mark.verilator
def test_every_stream_of_linked_boards_is_seen_and_right() -> None:
    system, watch, x = watched()
    run = simulate_system(system, x, on_line=watch.hear)
    assert watch.first_wrong is None
    assert sorted(s.stream.tensor for s in watch.streams.values()) == ["x", "y0", "y0", "y1", "y2"]
    assert all(s.right and s.last_clock > s.first_clock >= 0 for s in watch.streams.values())
    assert all(0 < data < cells for cells, data in run.carried)


@pytest.mark.verilator
def test_the_first_wrong_beat_is_named() -> None:
    system, watch, x = watched()
    simulate_system(spoilt(system), x, on_line=watch.hear)
    assert watch.first_wrong is not None
    assert watch.first_wrong.startswith("fpga1_0.")
    assert ", y1: beat 0 of " in watch.first_wrong
    assert all(s.right for s in watch.streams.values() if s.stream.tensor in ("x", "y0"))


@pytest.mark.verilator
def test_a_stopped_simulation_goes_on_where_its_state_was_kept(tmp_path: Path) -> None:
    system, watch, x = watched()
    unbroken = simulate_system(system, x)
    folder, marks = Keeping(tmp_path / "state", every_s=1e-6), list[str]()

    def run(until: list[str] | None) -> SystemRun:
        """Run, or be stopped when what is said of the state has come so far; who finishes before that was not stopped."""
        _, fresh, _ = watched()
        watch.streams, watch.first_wrong = fresh.streams, None
        marks.clear()
        left = [] if until is None else [*until]

        def listen(line: str) -> None:
            watch.hear(line)
            word = line.partition(" ")[0]
            marks.extend([word] if word in ("checkpoint", "resumed") else [])
            if left and word == left[0]:
                del left[0]
                if not left:
                    raise StoppedError

        return simulate_system(system, x, keeping=folder, on_line=listen)

    for until in (["checkpoint", "checkpoint"], ["resumed", "checkpoint", "checkpoint"]):
        with suppress(StoppedError):
            run(until)
        assert marks.count("checkpoint") >= 2
    found = run(None)
    assert "resumed" in marks
    assert all(s.right for s in watch.streams.values())
    assert watch.first_wrong is None
    assert (found.cycles, found.frame_cycles, found.carried) == (unbroken.cycles, unbroken.frame_cycles, unbroken.carried)
    for port, values in found.outputs.items():
        np.testing.assert_array_equal(values, unbroken.outputs[port])


def test_what_the_last_beat_of_a_pixel_has_too_many_is_not_compared() -> None:
    stream, watch = StreamPort("out", "y", channels=5, bits=4, signed=False, height=1, width=2, at_once=3), Watch()
    watch.add("top", (stream,), {"y": np.arange(1, 11).reshape(1, 2, 5).transpose(0, 2, 1).reshape(1, 5, 1, 2)})
    for clock, data in enumerate(("321", "f54", "876", "0a9")):
        watch.hear(f"beat core.top.out {clock} {data}")
    assert watch.streams["top", "out"].right
    watch.hear("beat core.top.out 4 000")
    assert watch.first_wrong == "top.out, y: beat 4 of 4 at clock 4 is 0, none was expected"


def test_a_wrong_channel_of_the_last_beat_is_named() -> None:
    stream, watch = StreamPort("out", "y", channels=5, bits=4, signed=False, height=1, width=1, at_once=3), Watch()
    watch.add("top", (stream,), {"y": np.arange(1, 6).reshape(1, 5, 1, 1)})
    for clock, data in enumerate(("321", "f64")):
        watch.hear(f"beat core.top.out {clock} {data}")
    assert watch.first_wrong == "top.out, y: beat 1 of 2 at clock 1 is 64, expected 54"


def test_probes_are_for_simulators_alone() -> None:
    graph = chain()
    plain, (probed, streams) = build_design(graph, "core"), probed_design(graph, "core", {})
    kept, told = probed.files["core.v"].split("`ifdef VERILATOR")
    assert kept + told.partition("`endif\n")[2] == plain.files["core.v"]
    assert {**probed.files, "core.v": ""} == {**plain.files, "core.v": ""}
    assert told.count("$display") == len(streams) == 4


def test_state_of_another_run_is_not_gone_on_from(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert open_kept(folder, "one") == []
    (folder / "kept.txt").write_text("64\n")
    (folder / "simulation.log").write_text("beat a\ncheckpoint 64\nbeat b\n")
    assert open_kept(folder, "one") == ["beat a", "checkpoint 64"]
    (folder / "simulation.log").write_text("resumed 64\nbeat b\nbeat c\n")
    assert open_kept(folder, "one") == ["beat a", "checkpoint 64"], "what was said after the checkpoint is said again"
    (folder / "kept.txt").write_text("128\n")
    (folder / "simulation.log").write_text("resumed 64\nbeat b\ncheckpoint 128\nbeat c\n")
    assert open_kept(folder, "one") == ["beat a", "checkpoint 64", "resumed 64", "beat b", "checkpoint 128"]
    assert open_kept(folder, "two") == []
    assert not (folder / "kept.txt").exists()
