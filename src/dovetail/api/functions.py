"""Python's interface: one function per question, for models and data in any form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dovetail import pipeline, terminal
from dovetail.api.results import Accuracy, BuiltModel, Inspection, ParetoFront, Planned, QuantizedModel
from dovetail.errors import UsageError
from dovetail.ir.onnx.read import Imported, Source, read_model, read_onnx
from dovetail.ir.tensor import Shape
from dovetail.numbers import decide_numbers, graph_to_plan
from dovetail.numerics.calibration import Calibration
from dovetail.partition.options import Options
from dovetail.partition.pareto import POINT_LIMIT_S, front
from dovetail.planning import decide
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform
from dovetail.progress import Progress, silent
from dovetail.runtime import build as builds
from dovetail.runtime.accuracy import LabelledData
from dovetail.train import module as pytorch

BOARD = "tx2-c10gx"
"""The board that is planned for unless told otherwise, as on the command line."""

Model = Source | QuantizedModel | Any
"""A path, a file's bytes, an `onnx.ModelProto`, a graph, a result of `quantize`, or a PyTorch module or exported program."""


def inspect(model: Model, *, shapes: Mapping[str, Shape] | None = None, example: Any = None) -> Inspection:
    """What is in a network: layers, multiply-adds, parameters, and which kind of device can take what.

    `shapes` state inputs with symbolic dimensions, by name. `example` is an input of a PyTorch module, or a tuple of them.

    Raises:
        ModelError: the model cannot be read.
        UsageError: a PyTorch module without an example, or something that is no model.
    """
    found = _imported(model, shapes, example)
    return Inspection(found.graph, found.notes, terminal.inspection(found.graph, found.labels))


def quantize(model: Model, calibration: Calibration | None = None, *, options: Options | None = None,
             shapes: Mapping[str, Shape] | None = None, example: Any = None, progress: Progress = silent) -> QuantizedModel:
    """The integers that a float network becomes, of `options.bits` bits; a quantized one keeps those it has.

    `calibration` is a file (.npz, .npy), an array with one sample per row, or arrays by the names of inputs. Without it, scales
    are of synthetic inputs, which a note says.

    Raises:
        UsageError: calibration does not fit the network, or bits are given for a model that came quantized.
    """
    asked = options or Options()
    imported = _imported(model, shapes, example, calibration)
    return QuantizedModel(decide_numbers(imported, calibration, asked.bits, None, progress, asked.equalise, asked.scales))


def plan(model: Model, platform: str | Platform = BOARD, *, options: Options | None = None,
         calibration: Calibration | None = None, shapes: Mapping[str, Shape] | None = None, example: Any = None,
         progress: Progress = silent) -> Planned:
    """Which device computes which slice of which layer, how long that takes, and how near the best possible it is.

    `platform` is a board's name, a path of its TOML file, or a `Platform`. Without `calibration` a float network is planned as
    the int8 it will become.

    Raises:
        InfeasibleError: no plan meets the limits of `options`; it names one and by how much it is missed.
        PlatformError: the board is unknown or its file wrong.
    """
    asked, board = options or Options(), _board(platform)
    imported = _imported(model, shapes, example, calibration)
    graph, notes = graph_to_plan(imported, calibration, asked.bits, None, progress, asked.equalise, asked.scales)
    found, timeline, became = decide(graph, board, asked, progress=progress)
    return Planned(replace(found, notes=(*found.notes, *notes)), became, graph, timeline)


def evaluate(model: Model, data: LabelledData, *, calibration: Calibration | None = None, options: Options | None = None,
             build: builds.Build | None = None, shapes: Mapping[str, Shape] | None = None, example: Any = None,
             progress: Progress = silent) -> Accuracy:
    """Accuracy on labelled data of the float network, its integers, ONNX Runtime's int8, and a build on its devices.

    `data` is a file with `x` and `y`, a pair of images and labels, or arrays by those names.

    Raises:
        UsageError: labels do not fit the images, or calibration is not that of the build.
    """
    asked = options or Options()
    imported = _imported(model, shapes, example, calibration)
    return Accuracy(pipeline.evaluate_model(imported, data, calibration, asked.bits, build, None, progress, asked.equalise,
                                            asked.scales))


def pareto(model: Model, platform: str | Platform = BOARD, *, points: int = 20, areas: int = 1,
           time_limit_s: float = POINT_LIMIT_S, shapes: Mapping[str, Shape] | None = None, example: Any = None,
           progress: Progress = silent) -> ParetoFront:
    """The fastest plan for every of several limits on energy, each with its proof; for each of so many `areas` of the FPGAs.

    Raises:
        InfeasibleError: no plan exists at all.
        UsageError: less than two points, or no area.
    """
    board = _board(platform)
    graph, notes = graph_to_plan(_imported(model, shapes, example), progress=progress)
    found = front(graph, board, points, point_limit_s=time_limit_s, progress=progress, areas=areas)
    return ParetoFront(replace(found, notes=(*found.notes, *notes)))


def compile(model: Model, platform: str | Platform = BOARD, out: str | Path | None = None, *, options: Options | None = None,
            calibration: Calibration | None = None, assignment: Mapping[str, Any] | None = None,
            shapes: Mapping[str, Shape] | None = None, example: Any = None, frames: int | None = None, verify: bool = True,
            progress: Progress = silent) -> BuiltModel:
    """Plan, generate hardware and sub-models, verify and report, into the folder `out` (`build/MODEL` unless told).

    `assignment` pins nodes to splits of your own (`options.pins` to devices). `frames` are verified, or as many as simulation is
    fast enough for; a failed verification does not raise, it stands in `verification.json` and in the report.

    Raises:
        UnverifiedError: a tool that verifies is missing or failed; the build folder is written nevertheless.
        InfeasibleError: no plan meets the limits, or hardware cannot fit its board.
    """
    imported = _imported(model, shapes, example, calibration)
    return BuiltModel.of(pipeline.compile(imported, platform, out, options=options, assignment=assignment,
                                          calibration=calibration, frames=frames, verify=verify, progress=progress))


def load_build(folder: str | Path, trust: bool = False, progress: Progress = silent) -> BuiltModel:
    """A build that lies on disk, its files checked against what its model and plan give.

    `trust` takes generated files as they are; they can run any command (SECURITY.md).

    Raises:
        BuildError: the folder is incomplete, foreign or of another schema, or its files are not what they should be.
    """
    return BuiltModel.of(builds.load_build(folder, trust, progress))


def _board(platform: str | Platform) -> Platform:
    return load_platform(platform) if isinstance(platform, str) else platform


def _imported(model: Model, shapes: Mapping[str, Shape] | None, example: Any = None,
              calibration: Calibration | None = None) -> Imported:
    """The network that a model in any form stands for; a PyTorch module is traced with the first sample if need be."""
    if isinstance(model, QuantizedModel):
        model = replace(read_model(model.graph), notes=model.notes)
    elif pytorch.is_module(model):
        first = np.asarray(calibration[:1], np.float32) if example is None and isinstance(calibration, np.ndarray) else example
        return read_onnx(pytorch.exported(model, first), shapes, type(model).__name__)
    if example is not None:
        raise UsageError("example: only a PyTorch module is traced with an example; leave it out")
    if not isinstance(model, Source):
        raise UsageError(f"model: a {type(model).__name__}; a path, the bytes of an ONNX file, an onnx.ModelProto, a graph or a "
                         "PyTorch module is needed")
    return read_model(model, shapes)


