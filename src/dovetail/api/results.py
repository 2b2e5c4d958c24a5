"""What the functions of Python's interface return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dovetail import comparison, terminal
from dovetail.files import replace_bytes, replace_text
from dovetail.ir import Graph
from dovetail.ir.onnx.qonnx_write import to_qonnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numbers import Numbers
from dovetail.numerics import quality
from dovetail.partition.pareto import Front
from dovetail.partition.plan import Plan
from dovetail.partition.plan_json import plan_to_json
from dovetail.pipeline import dump
from dovetail.platform.device import Platform
from dovetail.progress import Progress, silent
from dovetail.report.collect import plan_fields
from dovetail.report.fronts import front_svg
from dovetail.report.units import joules, percent, quantity, rate, seconds
from dovetail.report.verdict import verdict
from dovetail.runtime.build import Build
from dovetail.schedule.list_schedule import Timeline
from dovetail.shown import Rows, Shown
from dovetail.words import counted


def briefly(plan: Plan) -> str:
    """A plan in one line: its figures without their errors, and how near the best possible it is."""
    figures = ", ".join(filter(None, (rate(plan.interval_s) if plan.interval_s else "", seconds(plan.latency_s),
                                      joules(plan.energy_j))))
    near = "proven optimal" if plan.proven else f"within {percent(plan.gap)} of the best possible"
    return f"{plan.model} on {plan.platform}: {figures} per frame, {near}"


def plan_rows(plan: Plan) -> Rows:
    """A plan as a table: a row per layer."""
    return [{"layer": cost.node, "device": terminal.shares(plan.assignment[cost.node]), "latency_s": cost.latency_s,
             "compute_s": cost.compute_s, "compute_low_s": cost.interval_s[0], "compute_high_s": cost.interval_s[1],
             "transfer_s": cost.transfer_s, "transfer_bytes": cost.transfer_bytes, "energy_j": cost.energy_j,
             "extrapolated": cost.extrapolated, "area": terminal.area(cost), "why": cost.why} for cost in plan.nodes]


@dataclass(frozen=True, slots=True, repr=False)
class Inspection(Shown):
    """What is in a network, and which kind of device can take what: a row per layer."""

    graph: Graph
    notes: tuple[str, ...]
    """What was assumed on the way in."""
    document: Mapping[str, Any]
    """The same as `dovetail inspect --json`."""

    def headline(self) -> str:
        kind = "quantized" if self.graph.quantized else "float"
        return (f"{self.graph.name}, {kind}: {counted(len(self.graph.nodes), 'layer')}, {quantity(self.graph.macs)} MACs, "
                f"{quantity(self.graph.parameters)} parameters")

    def rows(self) -> Rows:
        return [{"layer": layer["name"], "operator": layer["operator"], "output": tuple(layer["output"]), "macs": layer["macs"],
                 "parameters": layer["parameters"], "runs_on": " ".join(name for name, able in layer["devices"].items() if able),
                 "attributes": layer["attributes"], "why_not": "; ".join(layer["reasons"].values())}
                for layer in self.document["layers"]]

    def __str__(self) -> str:
        return terminal.inspection_table(self.document)


@dataclass(frozen=True, slots=True, repr=False)
class QuantizedModel(Shown):
    """A network of integers: a row per tensor with its scale."""

    numbers: Numbers

    @property
    def graph(self) -> Graph:
        """The network of integers, which every other function takes as a model."""
        return self.numbers.graph

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of where the numbers come from."""
        return self.numbers.warnings

    def headline(self) -> str:
        bits = sorted({s.bits for n in self.graph.nodes if (s := self.graph.tensors[n.output].scheme) is not None})
        widths = " and ".join(map(str, bits)) or "no"
        return f"{self.graph.name}: tensors of {widths} bits, scales from {counted(self.numbers.samples.count, 'sample')} " \
               f"({self.numbers.samples.source})"

    def rows(self) -> Rows:
        found = []
        for name, tensor in self.graph.tensors.items():
            node, scheme = self.graph.producer(name), tensor.scheme
            found.append({"tensor": name, "operator": "input" if node is None else node.op.kind, "shape": tensor.shape,
                          "bits": None if scheme is None else scheme.bits, "signed": None if scheme is None else scheme.signed,
                          "zero": None if scheme is None else scheme.zero,
                          "scales": "float" if scheme is None else " ".join(f"{s:.6g}" for s in scheme.scales)})
        return found

    def save(self, path: str | Path, qonnx: bool = False) -> Path:
        """Write the network as a QDQ model that plain ONNX Runtime loads, or as QONNX."""
        replace_bytes(path, (to_qonnx if qonnx else to_onnx)(self.graph))
        return Path(path)

    def noise(self, progress: Progress = silent) -> dict[str, Any]:
        """What integers add to every tensor, worst first, and the answers beside ONNX Runtime's int8, as `--report` has it."""
        return quality.report(self.numbers.imported.graph, self.numbers.source, self.graph, self.numbers.samples, progress)


@dataclass(frozen=True, slots=True, repr=False)
class Planned(Shown):
    """A plan with its board, network and schedule: a row per layer. `print` shows what `dovetail plan` shows."""

    plan: Plan
    platform: Platform
    """The board, with what its FPGAs became."""
    graph: Graph
    timeline: Timeline

    @property
    def latency_s(self) -> float:
        """Seconds of one frame by itself."""
        return self.plan.latency_s

    @property
    def frames_per_s(self) -> float:
        """Frames per second when they are pipelined."""
        return 1 / self.plan.interval_s if self.plan.interval_s else float("inf")

    @property
    def energy_j(self) -> float:
        """Joules per frame."""
        return self.plan.energy_j

    @property
    def gap(self) -> float:
        """How far the plan can be from the best possible, as a fraction."""
        return self.plan.gap

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of the plan."""
        return self.plan.notes

    def headline(self) -> str:
        return briefly(self.plan)

    def caption(self) -> str:
        return f"{self.plan.model} on {self.plan.platform}: {verdict(plan_fields(self.plan))}"

    def rows(self) -> Rows:
        return plan_rows(self.plan)

    def document(self) -> dict[str, Any]:
        """The plan as `dovetail plan --json` prints it."""
        return plan_to_json(self.plan, self.platform)

    def save(self, path: str | Path) -> Path:
        """Write the plan as JSON, as `dovetail plan -o` does."""
        replace_text(path, dump(self.document()))
        return Path(path)

    def __str__(self) -> str:
        return terminal.plan_table(self.plan)


@dataclass(frozen=True, slots=True, repr=False)
class Accuracy(Shown):
    """Right answers, agreement with the float network and noise of everybody who computed: a row each."""

    found: Mapping[str, Any]
    """The same as `dovetail evaluate --json`."""

    def headline(self) -> str:
        right = [f"{terminal.WAYS[way]} {self.found[way]:.4f}" for way in terminal.WAYS if self.found.get(way) is not None]
        return f"{counted(self.found['images'], 'image')}: {', '.join(right) or 'no labels to be right about'}"

    def rows(self) -> Rows:
        agreement, noise = self.found["agreement"] or {}, self.found["snr_db"]
        ways = [way for way in terminal.WAYS if way in noise or self.found.get(way) is not None]
        return [{"computed_by": terminal.WAYS[way], "right": self.found.get(way), "agrees_with_float": agreement.get(way),
                 "output_snr_db": noise.get(way)} for way in ways]

    def __str__(self) -> str:
        return terminal.accuracy_table(self.found)


@dataclass(frozen=True, slots=True, repr=False)
class ParetoFront(Shown):
    """The fastest plan for every of several limits on energy: a row per plan, the thriftiest first."""

    front: Front

    def headline(self) -> str:
        worst = max((p.gap for p in self.front.points), default=0.0)
        return f"{self.front.model} on {self.front.platform}: {counted(len(self.front.points), 'plan')}, each proven within " \
               f"{percent(worst)} of the best or less"

    def rows(self) -> Rows:
        return [{"energy_j": p.energy_j, "latency_s": p.latency_s, "area": p.area, "area_limit": p.area_limit,
                 "no_plan_below_s": p.lower_bound_s, "gap": p.gap} for p in self.front.points]

    def save(self, path: str | Path) -> Path:
        """Draw the front as SVG."""
        replace_text(path, front_svg(self.front))
        return Path(path)

    def __str__(self) -> str:
        return terminal.front_table(self.front)


@dataclass(frozen=True, slots=True, repr=False)
class BuiltModel(Shown, Build):
    """A build folder that is loaded: a row per segment. It is a `Build`: `run`, `stream`, `plan`, `folder`."""

    @classmethod
    def of(cls, build: Build) -> BuiltModel:
        """The same build, which shows itself."""
        return cls(**{f.name: getattr(build, f.name) for f in fields(Build)})

    def headline(self) -> str:
        return f"{self.folder}: {briefly(self.plan)}"

    def rows(self) -> Rows:
        return [{"segment": s.name, "device": s.device, "layers": len(s.nodes), "first": s.nodes[0], "last": s.nodes[-1]}
                for s in self.program.segments]


def compare(first: str | Path | Planned | Build, second: str | Path | Planned | Build) -> comparison.PlanComparison:
    """What differs between two plans or builds: figures, layers that moved, resources.

    Each is a result of `plan` or `compile`, a plan's file, or a build folder.

    Raises:
        UsageError: a path holds neither a plan nor a build.
    """
    return comparison.PlanComparison(*(
        comparison.Side(f"{x.plan.model} on {x.plan.platform}", x.plan) if isinstance(x, Planned | Build)
        else comparison.read_side(x) for x in (first, second)))
