"""Dovetail joins CPU, GPU and FPGA into one bit-exact accelerator for convolutional networks.

    import dovetail as dt
    build = dt.compile("model.onnx", platform="tx2-c10gx", out="build/model")
    build.plan, dt.verify(build), dt.run(build, {"image": x})

Names are loaded on first use, so that a room can be imported alone where the others' packages are missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.errors import DovetailError
    from dovetail.numbers import decide_numbers
    from dovetail.partition.plan import Goal, Mode, Plan
    from dovetail.pipeline import compile, synthesize_build, write_report
    from dovetail.pipeline import verify_build as verify
    from dovetail.planning import Options, make_plan
    from dovetail.platform.load import load_platform, platform_names
    from dovetail.runtime.build import Build, load_build, run

__version__ = "0.1.0"

__all__ = [
    "Build", "DovetailError", "Goal", "Mode", "Options", "Plan", "compile", "decide_numbers", "load_build", "load_platform",
    "make_plan", "platform_names", "run", "synthesize_build", "verify", "write_report",
]

_HOMES = {
    "DovetailError": "errors", "Goal": "partition.plan", "Mode": "partition.plan", "Plan": "partition.plan",
    "Options": "planning", "compile": "pipeline", "decide_numbers": "numbers", "make_plan": "planning",
    "synthesize_build": "pipeline", "write_report": "pipeline", "run": "runtime.build", "verify": "pipeline:verify_build",
    "load_platform": "platform.load", "platform_names": "platform.load", "Build": "runtime.build", "load_build": "runtime.build",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    module, _, inner = _HOMES[name].partition(":")
    return getattr(import_module(f"dovetail.{module}"), inner or name)
