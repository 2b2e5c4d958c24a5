"""Everything a report says, as one plain dictionary: values in SI units, nothing formatted yet.

`EXTRAS` names what the pipeline adds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import BuildError
from dovetail.fpga.design import Design
from dovetail.ir import Graph, Node
from dovetail.partition.plan import NodeCost, Plan, Split
from dovetail.platform.device import Device, Kind, Link, ModelSet, Platform
from dovetail.platform.quantity import Form, quantity_model, quantity_names
from dovetail.report.frames import frames_of
from dovetail.report.model_chart import chart_entry
from dovetail.schedule.list_schedule import Timeline
from dovetail.schedule.pipelined import pipelined

SCHEMA = "dovetail-report/1"

EXTRAS: Mapping[str, str] = {
    "quantization": "{calibration: str}",
    "segments": "[{name, device, backend: onnxruntime|verilator|emulated, nodes: [str], note}]",
    "designs": "[what `describe_design` returns]",
    "circuits": "[{system, circuits: [str], slots: [str]}]: between boards; slots where they are switches, the first line of all",
    "synthesis": "[{device, segment, family, tool, resources: {name: count}, fmax_hz, wall_s, notes: [str]}]",
    "power": "[{segment, toggles_per_clock, activity, planned_activity, energy_low_j, energy_high_j, planned_energy_j, source}]",
    "verification": "{equal, frames, tensors_compared, first_mismatch: str | None, clocks}",
    "measured": "what `runtime.measured.summary` returns",
    "provenance": "{model_file, model_sha256, versions: {tool: version}, warnings: [str], commands: [str]}",
}
"""What `extras` holds; synthesis, power, verification and measured are None as long as they were not run."""
PLAN_FIELDS = ("goal", "mode", "solver", "status", "objective", "lower_bound", "gap", "proven", "given_up", "beyond", "latency_s",
               "energy_j", "interval_s", "intervals", "busy_s", "limited_by", "makespan_s", "resources", "baselines", "pinned",
               "notes", "bound_covers")
"""What the report holds of a plan beside its nodes."""
COST_FIELDS = tuple(f.name for f in dataclasses.fields(NodeCost) if f.name != "node")


def collect(graph: Graph, plan: Plan, platform: Platform, timeline: Timeline, extras: Mapping[str, object]) -> dict[str, Any]:
    """Assemble the report; what is not finite becomes None, because JSON has no word for it."""
    assert extras.keys() == EXTRAS.keys()
    costs = {cost.node: cost for cost in plan.nodes}
    report = {
        "schema": SCHEMA,
        "model": _model(graph, plan),
        "platform": {"name": platform.name, "description": platform.description, "host": platform.host,
                     "devices": [_device(d) for d in platform.devices],
                     "links": [_link(link) for link in platform.links]},
        "plan": plan_fields(plan),
        "nodes": [_node(graph, node, plan.assignment.get(node.name), costs.get(node.name), platform) for node in graph.nodes],
        "timeline": {"makespan_s": timeline.makespan_s, "tasks": timeline.tasks, "buffers": timeline.buffers},
        "pipelined": frames_of(pipelined(timeline, platform, plan.interval_s)),
        **{key: extras[key] for key in EXTRAS},
    }
    result: dict[str, Any] = plain(report, "report")
    return result


def plan_fields(plan: Plan) -> dict[str, Any]:
    """What the report holds of a plan beside its nodes, as JSON can hold it."""
    found: dict[str, Any] = plain({**_fields(plan, PLAN_FIELDS), "layers": len(plan.nodes)}, "plan")
    return found


def describe_design(design: Design, device: str, segment: str, clock_hz: float | None,
                    high_water: Mapping[str, int]) -> dict[str, object]:
    """One entry of extras["designs"]; `high_water` maps a FIFO's name to the most beats seen in it during simulation."""
    return {
        "device": device,
        "segment": segment,
        "top": design.top,
        "clock_hz": clock_hz,
        "adders": design.adders,
        "latency_cycles": design.latency_cycles,
        "interval_cycles": design.interval_cycles,
        "fifos": [{"name": f.name, "width_bits": f.width_bits, "depth": f.depth, "high_water": high_water.get(f.name)}
                  for f in design.fifos],
        "files": [{"name": name, "lines": body.count("\n") + (not body.endswith("\n"))} for name, body in design.files.items()],
        "notes": list(design.notes),
    }


def plain(value: object, where: str) -> Any:
    """`value` as JSON can hold it: dataclasses and mappings become dictionaries, tuples lists, infinities None."""
    if value is None or (isinstance(value, bool | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return plain(value.value, where)
    if isinstance(value, np.generic):
        return plain(value.item(), where)
    if isinstance(value, int | float):
        return value if isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), f"{where}.{f.name}") for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    raise BuildError(f"{where}: a {type(value).__name__} cannot stand in a report; give text, numbers, lists or mappings")


def _fields(value: object, names: Sequence[str]) -> dict[str, object]:
    return {name: getattr(value, name) for name in names}


def _model(graph: Graph, plan: Plan) -> dict[str, object]:
    return {
        "name": plan.model or graph.name,
        "macs": graph.macs,
        "parameters": graph.parameters,
        "quantized": graph.quantized,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "tensors": [{"name": t.name, "shape": t.shape, "scheme": None if t.scheme is None else str(t.scheme)}
                    for t in graph.tensors.values()],
    }


def _node(graph: Graph, node: Node, split: Split | None, cost: NodeCost | None, platform: Platform) -> dict[str, object]:
    shapes = graph.input_shapes(node)
    return {
        **({} if cost is None else _fields(cost, COST_FIELDS)),
        "name": node.name,
        "op": node.op.kind,
        "attributes": node.op.attributes(),
        "macs": node.op.macs(shapes),
        "inputs": node.inputs,
        "output": node.output,
        "shape": graph.shape(node.output),
        "axis": split.axis if split else None,
        "reducer": split.reducer if split else None,
        "pieces": _pieces(node.name, split, platform) if split else [],
    }


def _pieces(node: str, split: Split, platform: Platform) -> Sequence[Mapping[str, object]]:
    total = sum(p.stop - p.start for p in split.pieces)
    return [{"device": p.device, "start": p.start, "stop": p.stop, "share": (p.stop - p.start) / total,
             "engine": _engine(node, platform.device(p.device))} for p in split.pieces]


def _engine(node: str, device: Device) -> str | None:
    """What computes a layer inside an FPGA: an engine of its own, one with its neighbours, or an array that layers share."""
    if device.kind is not Kind.FPGA:
        return None
    design = device.accelerator
    return "engine" if design is None else "array" if node in design.reusable else "fused" if node in design.fused else "engine"


def _device(device: Device) -> dict[str, object]:
    return {
        **_fields(device, ("name", "kind", "description", "model", "models")),
        "accuracy": _accuracy(device),
        **_fields(device, ("family", "resources", "sources")),
        "values": {**_fields(device, ("idle_power_w", "busy_power_w", "clock_hz", "dispatch_s")), **device.parameters,
                   **{f"resources.{k}": v for k, v in device.resources.items()}},
    }


def _accuracy(device: Device) -> list[dict[str, object]]:
    """How the device's measured quantities scatter about their predictions, where it has published rows."""
    found: list[dict[str, object]] = []
    for name in quantity_names(ModelSet.MEASURED):
        model = quantity_model(ModelSet.MEASURED, name)
        if model.device == device.model:
            found.append(chart_entry(model, model.errors[Form.EVALUATION]))
    return found


def _link(link: Link) -> dict[str, object]:
    return {**_fields(link, ("name", "ends", "sources", "shared_memory")),
            "values": _fields(link, ("bandwidth_bytes_per_s", "latency_s", "energy_j_per_byte"))}
