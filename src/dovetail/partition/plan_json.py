"""Plans as JSON: deterministic, without timestamps, floats in their shortest exact form.

The platform a plan was made for is stored with it; reading a plan back gives values equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dovetail.cost import clocks
from dovetail.document import NATURAL, Anything, Each, FieldPath, Maybe, OneOf, check, picked
from dovetail.errors import BuildError
from dovetail.ir import Axis
from dovetail.partition.pareto import Front
from dovetail.partition.plan import CONFIDENCE, Goal, LimitedBy, Mode, NodeCost, Piece, Plan, Split, Status
from dovetail.platform.device import Platform
from dovetail.platform.load import platform_to_dict

SCHEMA = 1
"""Version of the document. Chosen: counts up when old readers would misread."""
PIECE = {"device": str, "start": NATURAL, "stop": NATURAL}
SPLIT = {"axis": Maybe(OneOf(tuple(map(str, Axis)))), "shares": [PIECE], "reducer?": Maybe(str)}
NODE = {"node": str, "latency_s": float, "compute_s": float, "transfer_s": float, "energy_j": float, "transfer_bytes": int,
        "resources": Each(Each(float)), "interval_s": (float, float), "extrapolated": bool, "source": str,
        "busy_s?": Each(float), "why": str, "hidden_s?": float, "beside?": [str]}
LIMIT = {"kind": str, "name": str, "share": float, "objective_then": float, "one_step_up": str}
PLAN = {"model": str, "platform": Anything(), "goal": OneOf(tuple(map(str, Goal))), "mode": OneOf(tuple(map(str, Mode))),
        "solver": str, "status": OneOf(tuple(map(str, Status))), "objective": float, "best_objective?": Maybe(float),
        "lower_bound": float, "beyond?": float, "latency_s": float, "energy_j": float, "interval_s?": float,
        "makespan_s": Maybe(float), "busy_s?": Each(float), "baselines": Each(Maybe(float)), "pinned?": NATURAL,
        "assignment": Each(SPLIT), "resources": Each(Each({"used": float, "limit": float})), "nodes": [NODE], "notes": [str],
        "space?": [str],
        "intervals?": Each((float, float)), "objective_low?": Maybe(float), "objective_high?": Maybe(float),
        "limited_by?": Maybe(LIMIT),
        "clocks?": Each({"one_frame": float, "interval": float, "error": float, "source": str})}
"""What a plan holds that is read again."""
AGAIN = "the file is incomplete or edited, make the plan again"


def split_to_json(split: Split) -> dict[str, Any]:
    return {"axis": None if split.axis is None else str(split.axis),
            "shares": [{"device": p.device, "start": p.start, "stop": p.stop} for p in split.pieces],
            "reducer": split.reducer}


def _split(entry: Mapping[str, Any]) -> Split:
    pieces = tuple(Piece(s["device"], s["start"], s["stop"]) for s in entry["shares"])
    return Split(None if entry["axis"] is None else Axis(entry["axis"]), pieces, entry.get("reducer"))


def plan_to_json(plan: Plan, platform: Platform | None = None) -> dict[str, Any]:
    """A plan as JSON values. With a platform its full description is stored in place of its name."""
    low, high = plan.intervals.get("objective", (None, None))
    return {
        "schema": SCHEMA, "model": plan.model, "platform": plan.platform if platform is None else platform_to_dict(platform),
        "goal": str(plan.goal), "mode": str(plan.mode), "solver": plan.solver, "status": str(plan.status),
        "objective": plan.objective, "objective_low": low, "objective_high": high, "confidence": CONFIDENCE,
        "best_objective": plan.best_objective, "lower_bound": plan.lower_bound, "gap": plan.gap,
        "beyond": plan.beyond, "candidate_bound": plan.candidate_bound, "bound_covers": plan.bound_covers,
        "latency_s": plan.latency_s, "energy_j": plan.energy_j, "interval_s": plan.interval_s, "makespan_s": plan.makespan_s,
        "intervals": {name: list(ends) for name, ends in plan.intervals.items() if name != "objective"},
        "busy_s": dict(plan.busy_s), "limited_by": None if plan.limited_by is None else asdict(plan.limited_by),
        "baselines": dict(plan.baselines), "pinned": plan.pinned,
        "assignment": {name: split_to_json(split) for name, split in plan.assignment.items()},
        "resources": {d: {r: {"used": used, "limit": limit} for r, (used, limit) in held.items()}
                      for d, held in plan.resources.items()},
        "nodes": [_node_to_json(n) for n in plan.nodes],
        "clocks": {segment: asdict(estimate) for segment, estimate in plan.clocks.items()},
        "space": list(plan.space), "notes": list(plan.notes),
    }


def front_to_json(front: Front) -> dict[str, Any]:
    """A front as JSON values: every point with its limit, its proof and its plan."""
    return {"schema": SCHEMA, "model": front.model, "platform": front.platform, "points": [
        {"limit_j": p.limit_j, "area_limit": p.area_limit, "area": p.area, "latency_s": p.latency_s, "energy_j": p.energy_j,
         "lower_bound_s": p.lower_bound_s, "gap": p.gap,
         "assignment": {name: split_to_json(split) for name, split in p.assignment.items()}} for p in front.points],
        "notes": list(front.notes)}


def _node_to_json(cost: NodeCost) -> dict[str, Any]:
    return {
        "node": cost.node, "latency_s": cost.latency_s, "compute_s": cost.compute_s, "transfer_s": cost.transfer_s,
        "energy_j": cost.energy_j, "transfer_bytes": cost.transfer_bytes,
        "resources": {d: dict(held) for d, held in cost.resources.items()},
        "interval_s": list(cost.interval_s), "extrapolated": cost.extrapolated, "source": cost.source,
        "busy_s": dict(cost.busy_s), "why": cost.why, "hidden_s": cost.hidden_s, "beside": list(cost.beside),
    }


def plan_from_json(entries: Mapping[str, Any], file: str = "plan") -> Plan:
    """The plan a JSON object describes; BuildError names the field of `file` that is missing or wrong, or another schema."""
    if entries.get("schema") != SCHEMA:
        raise BuildError(f"{file}: schema {entries.get('schema')!r} found; this version reads schema {SCHEMA}, "
                         "make the plan again")
    check(entries, PLAN, FieldPath(file, AGAIN))
    if not isinstance(entries["platform"], str):
        check(entries["platform"], {"name": str}, FieldPath(file, AGAIN, "platform"))
    return _plan(entries)


def _plan(entries: Mapping[str, Any]) -> Plan:
    platform = entries["platform"]
    return Plan(
        model=entries["model"], platform=platform if isinstance(platform, str) else platform["name"], goal=Goal(entries["goal"]),
        mode=Mode(entries["mode"]), solver=entries["solver"], status=Status(entries["status"]),
        assignment={name: _split(entry) for name, entry in entries["assignment"].items()},
        nodes=tuple(_node_from_json(n) for n in entries["nodes"]),
        objective=float(entries["objective"]), lower_bound=float(entries["lower_bound"]), latency_s=float(entries["latency_s"]),
        energy_j=float(entries["energy_j"]), interval_s=float(entries.get("interval_s", 0.0)),
        busy_s=dict(entries.get("busy_s", {})),
        resources={d: {r: (float(v["used"]), float(v["limit"])) for r, v in held.items()}
                   for d, held in entries["resources"].items()},
        baselines={name: None if v is None else float(v) for name, v in entries["baselines"].items()},
        pinned=int(entries.get("pinned", 0)), beyond=float(entries.get("beyond", 0.0)),
        best_objective=None if entries.get("best_objective") is None else float(entries["best_objective"]),
        makespan_s=None if entries["makespan_s"] is None else float(entries["makespan_s"]), notes=tuple(entries["notes"]),
        space=tuple(entries.get("space", ())),
        intervals=_intervals(entries),
        limited_by=LimitedBy(**picked(limit, LIMIT)) if (limit := entries.get("limited_by")) is not None else None,
        clocks={str(segment): clocks.from_entries(e) for segment, e in entries.get("clocks", {}).items()})


def _intervals(entries: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    low, high = entries.get("objective_low"), entries.get("objective_high")
    whole = {} if low is None or high is None else {"objective": (float(low), float(high))}
    return whole | {name: (float(a), float(b)) for name, (a, b) in entries.get("intervals", {}).items()}


def _node_from_json(entry: Mapping[str, Any]) -> NodeCost:
    low, high = entry["interval_s"]
    return NodeCost(
        node=entry["node"], latency_s=entry["latency_s"], compute_s=entry["compute_s"], transfer_s=entry["transfer_s"],
        energy_j=entry["energy_j"], transfer_bytes=entry["transfer_bytes"],
        resources={d: dict(held) for d, held in entry["resources"].items()}, interval_s=(low, high),
        extrapolated=entry["extrapolated"], source=entry["source"], busy_s=dict(entry.get("busy_s", {})), why=entry["why"],
        hidden_s=entry.get("hidden_s", 0.0), beside=tuple(entry.get("beside", ())))
