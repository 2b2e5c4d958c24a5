"""Dovetail joins CPU, GPU and FPGA into one bit-exact accelerator for convolutional networks.

    import dovetail as dt
    plan = dt.plan("model.onnx", "tx2-c10gx")
    build = dt.compile("model.onnx", "tx2-c10gx", "build/model", calibration=images)
    scores = build.run(frames)

Names are loaded on first use, so that a package of ours can be imported alone where the others' dependencies are missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.api.functions import compile, evaluate, inspect, load_build, pareto, plan, quantize
    from dovetail.api.results import Accuracy, BuiltModel, Inspection, ParetoFront, Planned, QuantizedModel, compare
    from dovetail.comparison import PlanComparison
    from dovetail.errors import (
        BuildError,
        DovetailError,
        InfeasibleError,
        MismatchError,
        MissingToolError,
        ModelError,
        PlatformError,
        RangeWarning,
        ToolError,
        TransportError,
        UnsupportedError,
        UnverifiedError,
        UsageError,
    )
    from dovetail.numbers import decide_numbers
    from dovetail.partition.plan import Goal, Mode, Plan
    from dovetail.pipeline import synthesize_build, write_report
    from dovetail.pipeline import verify_build as verify
    from dovetail.planning import Options, make_plan
    from dovetail.platform.load import load_platform, platform_names
    from dovetail.runtime.build import Build, run

__version__ = "0.2.0"

_HOMES = {
    "api.functions": ("compile", "evaluate", "inspect", "load_build", "pareto", "plan", "quantize"),
    "api.results": ("Accuracy", "BuiltModel", "Inspection", "ParetoFront", "Planned", "QuantizedModel", "compare"),
    "comparison": ("PlanComparison",),
    "errors": ("BuildError", "DovetailError", "InfeasibleError", "MismatchError", "MissingToolError", "ModelError",
               "PlatformError", "RangeWarning", "ToolError", "TransportError", "UnsupportedError", "UnverifiedError",
               "UsageError"),
    "numbers": ("decide_numbers",),
    "partition.options": ("Options",),
    "partition.plan": ("Goal", "Mode", "Plan"),
    "pipeline": ("synthesize_build", "verify", "write_report"),
    "planning": ("make_plan",),
    "platform.load": ("load_platform", "platform_names"),
    "runtime.build": ("Build", "run"),
}
"""Names by the module that they are loaded from."""
_CALLED = {"verify": "verify_build"}
"""What names are called in their modules, where that is longer."""

__all__ = [
    "Accuracy", "Build", "BuildError", "BuiltModel", "DovetailError", "Goal", "InfeasibleError", "Inspection",
    "MismatchError", "MissingToolError", "Mode", "ModelError", "Options", "ParetoFront", "Plan", "PlanComparison",
    "Planned", "PlatformError", "QuantizedModel", "RangeWarning", "ToolError", "TransportError", "UnsupportedError",
    "UnverifiedError", "UsageError", "compare", "compile", "decide_numbers", "evaluate", "inspect", "load_build",
    "load_platform", "make_plan", "pareto", "plan", "platform_names", "quantize", "run", "synthesize_build", "verify",
    "write_report",
]


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    return getattr(import_module(f"dovetail.{home}"), _CALLED.get(name, name))


def __dir__() -> list[str]:
    """What completion offers: every name, loaded or not."""
    return sorted({*__all__, "__version__", *(name for name in globals() if name.startswith("__"))})
