"""What `dovetail train` does."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from dovetail.cli.options import refuse_unused
from dovetail.cli.output import emit, keeping
from dovetail.errors import ToolError


def train_command(options: argparse.Namespace) -> int:
    """Run `dovetail train`."""
    if find_spec("torch") is None:
        raise ToolError("train: PyTorch is not installed; get it with pip install 'dovetail-accel[train]'")
    from dovetail.train.loop import CHECKPOINT
    from dovetail.train.recipe import Pace, TrainingRecipe
    from dovetail.train.run import run
    _check_used(options)
    recipe = TrainingRecipe(options.network, options.bits, options.method or "lq", 8 if options.ends is None else options.ends,
                    options.epochs, options.batch, options.rate,
                    decay=options.decay, schedule=options.schedule, warmup=options.warmup, pad=options.pad,
                    flip=not options.no_flip, seed=options.seed, width=options.width, start=options.start,
                    teacher=options.teacher, temperature=1.0 if options.temperature is None else options.temperature,
                    precision=options.precision, mean=options.mean, deviation=options.deviation, size=options.size)
    pace = Pace(options.every, options.minutes, options.workers, not options.eager)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with keeping(options.output / CHECKPOINT, "the last checkpoint"):
        result = run(recipe, options.data, options.output, say, options.device, pace, options.integer_images)
    emit(options.json, result, lambda: _summary(options.output, result))
    return 0


def _check_used(options: argparse.Namespace) -> None:
    """Refuse what this network or its training does not read."""
    if options.bits == "float":
        refuse_unused("train --bits float", {"--method": options.method, "--ends": options.ends}, "nothing is quantized")
    if not options.teacher:
        refuse_unused("train", {"--temperature": options.temperature}, "it is a teacher's; name one with --teacher")
    if options.network.endswith(".onnx"):
        refuse_unused(f"train {options.network}", {"--width": options.width}, "a network from a file has its own")
    elif not options.teacher.endswith(".onnx"):
        refuse_unused(f"train {options.network}", {"--mean": options.mean or None, "--deviation": options.deviation or None},
                      "only networks from ONNX files read other images than bytes")


def _summary(folder: Path, result: dict[str, object]) -> str:
    exact = result.get("integer_accuracy")
    beside = f"; as integers {exact:.2%} of {result['integer_images']}" if isinstance(exact, float) else ""
    five = f" ({result['test_top5']:.2%} among five)" if "test_top5" in result else ""
    return f"{folder}/model.onnx: test accuracy {result['test_accuracy']:.2%}{five}{beside}"
