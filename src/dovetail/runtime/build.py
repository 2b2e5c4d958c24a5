"""A build folder: everything a plan needs to run, written once, loaded anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dovetail.cpu import executor as cpu_executor
from dovetail.errors import BuildError
from dovetail.fpga import part as fpga_part
from dovetail.fpga.links.stored import Boards, is_stored, load_system
from dovetail.fpga.links.system import systems_of
from dovetail.fpga.simulate import Simulation
from dovetail.gpu import part as gpu_part
from dovetail.ir import Array, Graph
from dovetail.ir.onnx_read import read_onnx
from dovetail.numerics.calibration import load_arrays
from dovetail.numerics.ranges import Range, stored_ranges
from dovetail.partition.plan import Plan
from dovetail.partition.plan_json import plan_from_json
from dovetail.platform.device import Kind, Platform
from dovetail.platform.load import platform_from_dict
from dovetail.schedule.program import Program, Segment, lower

SCHEMA = 1
SAMPLES = "samples.npz"
INCOMPLETE = "this is not a complete build folder, run `dovetail compile` again"


class Part(Protocol):
    """A segment that can be run: stored integers in, stored integers out, any number of frames.

    Parts that take long tell `on_frame` how many frames are done.
    """

    @property
    def backend(self) -> str: ...
    @property
    def note(self) -> str: ...
    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]: ...


@dataclass(frozen=True, slots=True)
class Build:
    """A loaded build folder."""

    folder: Path
    manifest: Mapping[str, Any]
    graph: Graph
    plan: Plan
    platform: Platform
    program: Program
    partials: Mapping[str, Range]
    """Ranges of the partial sums that travel between parts."""

    def part(self, segment: Segment, on_simulated: Callable[[Simulation], None] | None = None) -> Part:
        """The runnable form of a segment, from its files; simulated parts report each run to `on_simulated`."""
        kind = self.platform.device(segment.device).kind
        if kind is Kind.FPGA:
            return fpga_part.load_part(segment.graph, self.folder / "fpga", on_simulated)
        if kind is Kind.GPU:
            return gpu_part.load_part(segment.graph, self.folder / "gpu", self.partials)
        return cpu_executor.load_part(segment.graph, self.folder / "cpu", self.partials)

    def systems(self) -> dict[str, Boards]:
        """Boards that are joined by links, by the name of their system."""
        folder = self.folder / "fpga"
        return {name: Boards(load_system(name, folder), segments, {
            port: beats for s in segments
            for port, beats in fpga_part.loaded_sets(s.graph, fpga_part.load_design(folder / s.graph.name)).items()})
            for name, segments in systems_of(self.program, self.platform).items() if is_stored(name, folder)}

    def run(self, inputs: Array | Mapping[str, Array]) -> Array | dict[str, Array]:
        """Inference over the plan's devices: float frames in, results out; one array each way for one input and output."""
        from dovetail.runtime.execute import run  # here, because running a build needs builds
        named = inputs if isinstance(inputs, Mapping) else {self.graph.inputs[0]: np.asarray(inputs)}
        results = run(self, named)
        return results if isinstance(inputs, Mapping) or len(results) > 1 else next(iter(results.values()))

    def samples(self) -> dict[str, Array]:
        """The stored calibration inputs, as the integers the devices see."""
        path = self.folder / SAMPLES
        arrays = load_arrays(path) if path.is_file() else {}
        for name in self.graph.inputs:
            if name not in arrays:
                raise BuildError(f"{path}: no samples of input {name}; {INCOMPLETE}")
        return {name: arrays[name] for name in self.graph.inputs}


def partial_ranges(program: Program) -> dict[str, Range]:
    """Ranges of the partial sums that travel between parts, from the weights that make them."""
    found: dict[str, Range] = {}
    for segment in program.segments:
        ranges = stored_ranges(segment.graph)
        found |= {b.name: ranges[b.name] for b in segment.writes if b.tensor not in program.graph.tensors}
    return found


def read_json(path: Path, remedy: str = INCOMPLETE) -> dict[str, Any]:
    """A JSON object of a build, with its schema checked; `remedy` is what a user does about a bad one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BuildError(f"{path}: missing; {remedy}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BuildError(f"{path}: unreadable ({error}); {remedy}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else None
        raise BuildError(f"{path}: schema {found!r}; this version reads schema {SCHEMA}, build again with it")
    return content


MANIFEST = {"platform": (), "versions": (), "warnings": (), "model": ("file", "sha256"),
            "quantization": ("calibration", "samples")}
"""What a manifest holds that builds are read by, and the keys inside."""


def _check_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    for key, inner in MANIFEST.items():
        held = manifest.get(key)
        if not isinstance(held, list if key == "warnings" else dict) or any(k not in held for k in inner):
            raise BuildError(f"{path}: holds no complete {key}; {INCOMPLETE}")


def load_build(folder: str | Path) -> Build:
    """Load a build folder; the program is lowered again from the stored model and plan."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BuildError(f"{folder}: no such build folder; make one with `dovetail compile MODEL -p BOARD -o {folder}`")
    manifest = read_json(folder / "manifest.json")
    document = read_json(folder / "plan.json")
    _check_manifest(folder / "manifest.json", manifest)
    if not (folder / "model.onnx").is_file():
        raise BuildError(f"{folder / 'model.onnx'}: missing; {INCOMPLETE}")
    graph = read_onnx(folder / "model.onnx").graph
    platform = platform_from_dict(manifest["platform"])
    plan = plan_from_json(document)
    missing = {n.name for n in graph.nodes} ^ set(plan.assignment)
    if missing:
        raise BuildError(f"{folder}: plan.json and model.onnx disagree about node {sorted(missing)[0]}; build again")
    program = lower(graph, plan.assignment)
    return Build(folder, manifest, graph, plan, platform, program, partial_ranges(program))


def synthetic_integers(graph: Graph, count: int, seed: int) -> dict[str, Array]:
    """Seeded inputs over the whole range of every input's scheme."""
    rng = np.random.default_rng(seed)
    values = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        shape = (count, *tensor.shape[1:])
        if tensor.scheme is None:
            values[name] = rng.random(shape).astype(tensor.dtype)
            continue
        values[name] = rng.integers(tensor.scheme.lo, tensor.scheme.hi + 1, shape).astype(tensor.dtype)
    return values
