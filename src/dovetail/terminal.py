"""Results in words for a terminal: plain text, aligned, readable without colour."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from dovetail.certificate.check import ROUNDED, Verdict
from dovetail.cost.costs import why_not
from dovetail.ir import Graph
from dovetail.partition.explain.baselines import BASELINES
from dovetail.partition.pareto import Front
from dovetail.partition.plan import NodeCost, Plan, Split
from dovetail.platform.device import ASSUMED, Device, Kind
from dovetail.platform.load import load_platform
from dovetail.report.collect import plan_fields
from dovetail.report.fronts import shown_kinds
from dovetail.report.units import hertz, joules, objective, percent, rate, seconds
from dovetail.report.verdict import ERRORS, verdict
from dovetail.runtime.build import Build
from dovetail.runtime.verification import clocks_sentence
from dovetail.words import counted, plural, shortened

BUSIEST = 3
"""How many of what sets the pace of pipelined frames are named."""
NARROWEST = 40
"""Characters below which a column of sentences moves to lines of its own."""
WRAP = partial(textwrap.wrap, break_on_hyphens=False, break_long_words=False)
"""Lines of a sentence; names and commands in it stay whole."""
INSPECTION_BOARD = "tx2-c10gx"
"""The board whose CPU, GPU and FPGA stand for their kinds in `inspect`."""


_WIDEST: ContextVar[int | None] = ContextVar("widest", default=None)


@contextmanager
def wide(columns: int = 1000) -> Iterator[None]:
    """Tables as wide as they are, for files: no terminal cuts them."""
    token = _WIDEST.set(columns)
    try:
        yield
    finally:
        _WIDEST.reset(token)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns as wide as their contents; the last is wrapped, or stands below its row where it has no room beside the others."""
    limit = _WIDEST.get() or max(20, shutil.get_terminal_size((160, 24)).columns)
    everything = [[shortened(row[0], max(12, limit // 3)), *row[1:]] for row in (head, *rows)]
    widths = [max(len(r[i]) for r in everything) for i in range(len(head))]
    beside = limit - sum(widths[:-1]) - 2 * (len(widths) - 1) >= min(widths[-1], NARROWEST)
    shown = widths if beside else widths[:-1]
    lines = []
    for row in everything:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, shown, strict=False))]
        lines += _wrapped(cells, limit) if beside else ["  ".join(cells).rstrip()]
        if not beside and row[-1] and row is not everything[0]:
            lines += WRAP(row[-1], limit, initial_indent="    ", subsequent_indent="    ")
    lines.insert(1, "  ".join("─" * w for w in shown)[:limit])
    return "\n".join(lines)


def _wrapped(cells: Sequence[str], limit: int) -> list[str]:
    """A row whose last cell goes on in lines of its own, below where it began."""
    *first, last = cells
    before = "".join(f"{cell}  " for cell in first)
    words = WRAP(last.strip(), max(limit - len(before), 1)) if len(before) + len(last.rstrip()) > limit else [last]
    return [f"{before}{words[0]}".rstrip(), *(" " * len(before) + more for more in words[1:])]


def inspection(graph: Graph, labels: Sequence[str] = ()) -> dict[str, Any]:
    """What `dovetail inspect` knows, as JSON."""
    board = load_platform(INSPECTION_BOARD)
    layers = []
    for node in graph.nodes:
        shapes = graph.input_shapes(node)
        refusals = {d.name: why_not(graph, node, d) for d in board.devices}
        layers.append({"name": node.name, "operator": node.op.kind, "attributes": node.op.attributes(),
                       "output": list(graph.shape(node.output)), "macs": node.op.macs(shapes),
                       "parameters": graph.parameters_of(node),
                       "axes": [str(a) for a in node.op.axes(shapes)],
                       "devices": {name: reason is None for name, reason in refusals.items()},
                       "reasons": {name: reason for name, reason in refusals.items() if reason}})
    return {"name": graph.name, "inputs": {n: list(graph.shape(n)) for n in graph.inputs},
            "outputs": {n: list(graph.shape(n)) for n in graph.outputs}, "quantized": graph.quantized,
            "macs": graph.macs, "parameters": graph.parameters, **({"labels": list(labels)} if labels else {}), "layers": layers}


def inspection_table(document: Mapping[str, Any]) -> str:
    rows = []
    for layer in document["layers"]:
        takes = " ".join(name if able else "-" * len(name) for name, able in layer["devices"].items())
        rows.append([layer["name"], layer["operator"], "x".join(map(str, layer["output"][1:])), f"{layer['macs']:,}",
                     f"{layer['parameters']:,}", takes, layer["attributes"]])
    kind = "quantized" if document["quantized"] else "float"
    head = f"{document['name']}: {kind}, {document['macs']:,} MACs, {counted(document['parameters'], 'parameter')}, " \
           f"{counted(len(rows), 'layer')}"
    if labels := document.get("labels"):
        head += f", {counted(len(labels), 'class', 'classes')}: {', '.join(labels[:3])}{', …' if len(labels) > 3 else ''}"
    body = table(["layer", "operator", "output", "MACs", "params", "runs on", "attributes"], rows, right=(3, 4))
    reasons = [f"  {layer['name']}: {reason}" for layer in document["layers"] for reason in layer["reasons"].values()]
    return "\n".join([head, "", body, *(["", "why not everywhere:", *reasons] if reasons else [])])


def shares(split: Split) -> str:
    """`fpga`, or `fpga 8 + gpu 24 filters`."""
    if split.axis is None:
        return split.pieces[0].device
    parts = " + ".join(f"{p.device} {p.stop - p.start}" for p in split.pieces)
    return f"{parts} {split.axis.replace('_', ' ')}" + (f", summed on {split.reducer}" if split.reducer else "")


def area(cost: NodeCost) -> str:
    """`117 alm 2 m20k`: what a layer takes of FPGAs, registers aside."""
    return " ".join(f"{amount:,.0f} {name}" for used in cost.resources.values() for name, amount in used.items()
                    if amount >= 0.5 and name not in ("register", "ff"))


def plan_table(plan: Plan) -> str:
    """The verdict; per layer devices, share, time, energy, area and why; then what it rests on."""
    rows = []
    for cost in plan.nodes:
        flag = "*" if cost.extrapolated else ""
        rows.append([cost.node, shares(plan.assignment[cost.node]), seconds(cost.latency_s) + flag, joules(cost.energy_j),
                     area(cost), cost.why])
    lines = [f"{plan.model} on {plan.platform}: {verdict(plan_fields(plan))}", "",
             table(["layer", "device", "time", "energy", "area", "why"], rows, right=(2, 3)), ""]
    lines += [f"  one step up: {plan.limited_by.one_step_up}"] if plan.limited_by is not None else []
    lines += [f"  intervals: {ERRORS}"] if plan.intervals else []
    lines += [] if plan.makespan_s is None else [f"  schedule: {seconds(plan.makespan_s)} if every task waits for its data alone"]
    lines += [f"  {device} {name}: {used:,.0f} of {limit:,.0f} ({percent(used / limit)})"
              for device, found in plan.resources.items() for name, (used, limit) in found.items() if used > 0]
    busy = ", ".join(f"{name} {seconds(spent)}" for name, spent in list(plan.busy_s.items())[:BUSIEST])
    lines += [f"  busy per frame: {busy}"] if busy else []
    known = ", ".join(f"{name} {objective(value, plan.goal)}" for name, value in plan.baselines.items() if value is not None)
    lines.append(f"  compared with: {known}{impossible(plan)}{pins(plan)}")
    if any(cost.extrapolated for cost in plan.nodes):
        lines.append("  * extrapolated: outside the measured range of the device model")
    lines += [f"  {note}" for note in plan.notes]
    return "\n".join(lines)


def checked(verdict: Verdict) -> str:
    """What a checker found true."""
    bound, covered = objective(verdict.bound, verdict.goal), "".join(f" of {words}," for words in verdict.covered)
    away = f"{percent(verdict.gap)} away" if verdict.gap > ROUNDED else "proven best of these"
    lines = [f"accepted: the plan is legal and takes {objective(verdict.objective, verdict.goal)}, as it says",
             f"no plan{covered} over whole placements and candidate cuts is below {bound}: {away}"]
    return "\n".join([*lines, *(f"not checked: {words}" for words in verdict.uncovered)])


def impossible(plan: Plan) -> str:
    """Which plans beside it there are none of; what a board without the device cannot do fits no limit either."""
    absent = [name for name, value in plan.baselines.items() if value is None]
    full = "; fpga alone does not fit" if "fpga" in absent and plan.resources else ""
    others = [f"{name} alone" if name in list(Kind) else name for name in absent if not (full and name == "fpga")]
    return full + (f"; not possible: {', '.join(others)}" if others else "")


def pins(plan: Plan) -> str:
    """What pinned nodes mean for the plans beside it."""
    if not plan.pinned:
        return ""
    return (f" ({plan.pinned} of {counted(len(plan.nodes), 'node')} {plural(plan.pinned, 'is', 'are')} pinned: greedy, balanced "
            "and random keep that, single devices run "
            "everything themselves)")


def front_table(front: Front) -> str:
    """Per point: energy, latency, area, and how closely it is proven."""
    rows = [[joules(p.energy_j), seconds(p.latency_s), percent(p.area), percent(p.area_limit), seconds(p.lower_bound_s),
             percent(p.gap if p.gap >= 1e-6 else 0.0)] for p in front.points]
    head = f"{front.model} on {front.platform}: {counted(len(rows), 'plan')}, from the thriftiest to the fastest"
    return "\n".join([head, "", table(["energy", "latency", "area", "of at most", "no plan below", "gap"], rows, right=range(6)),
                      *(f"  {note}" for note in front.notes)])


def bits_table(document: Mapping[str, Any]) -> str:
    """Choices of bits in the order of their area; those that another beats in every respect are marked."""
    rows = [["" if p["best"] else "beaten", percent(p["accuracy"]), percent(p["loss"]), seconds(p["latency_s"]),
             rate(p["interval_s"]), percent(p["area"]), ("chosen: " if p["name"] == document["chosen"] else "")
             + shown_kinds(p["kinds"])] for p in document["points"]]
    chose, measured = document["images"]
    head = f"{document['model']} on {document['platform']}: float {percent(document['float_accuracy'])}; " \
           f"{counted(chose, 'image')} chose, {counted(measured, 'other')} measured"
    names = ["", "accuracy", "loss", "latency", "pipelined", "area", "layers"]
    return "\n".join([head, "", table(names, rows, right=range(1, 6))])


def infeasible_plan(goal: str, solver: str, reason: str) -> dict[str, Any]:
    """The plan contract for a question without an answer."""
    return {"schema": 1, "objective": None, "objective_low": None, "objective_high": None, "best_objective": None, "goal": goal,
            "lower_bound": None, "gap": None,
            "status": "infeasible", "solver": solver, "makespan_s": None, "interval_s": None, "limited_by": None,
            "baselines": dict.fromkeys(BASELINES), "pinned": 0, "assignment": {}, "resources": {}, "reason": reason}


def verification_line(outcome: Mapping[str, Any]) -> str:
    if outcome["equal"]:
        backends = ", ".join(f"{s['name']} ({s['backend']})" for s in outcome["segments"])
        speed = "".join(f"; {name} simulated at {found['cycles_per_s']:,.0f} cycles/s, {found['frames_per_s']:,.1f} frames/s"
                        for name, found in outcome.get("speed", {}).items())
        clocks = "".join(f"\n{'' if found['within'] else 'WARNING: '}{clocks_sentence(name, found)}"
                         for name, found in outcome.get("clocks", {}).items())
        return (f"bit-exact: {counted(outcome['tensors_compared'], 'boundary tensor')}, "
                f"{counted(outcome['elements_compared'], 'integer')} over {counted(outcome['frames'], 'frame')}"
                f"{f' ({note})' if (note := outcome.get('frames_note')) else ''}; "
                f"{backends}{speed}{clocks}")
    return f"MISMATCH: {outcome['first_mismatch']['text']}"


def clocks_warnings(outcome: Mapping[str, Any]) -> list[str]:
    """Sentences on segments whose simulated clocks are outside the plan's stated error."""
    return [clocks_sentence(name, found) for name, found in outcome.get("clocks", {}).items() if not found["within"]]


def trial_text(trials: Sequence[Mapping[str, Any]]) -> str:
    """What every board did, one paragraph each."""
    lines = []
    for trial in trials:
        if "links" in trial:
            lines += _joined_lines(trial)
            continue
        verdict = "self-test passed" if trial["self_test"] else "self-test FAILED"
        exact = "bit-exact" if trial["mismatch"] is None else f"MISMATCH: {trial['mismatch']}"
        lines += [f"{trial['segment']} on {trial['device']}: build {trial['build_hash']}, {trial['bus_bits']}-bit bus, {verdict}",
                  f"  {counted(trial['frames'], 'frame')} {exact}; soft reset in mid-frame: {trial['after_reset']}",
                  f"  {counted(trial['cycles'], 'cycle')}, computed at {trial['cycles_per_s']:,.0f} cycles/s, "
                  f"{trial['frames_per_s']:,.1f} frames/s"]
        for kind in ("inputs", "outputs"):
            for number, counts in enumerate(trial["counters"][kind]):
                told = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in counts.items())
                lines.append(f"  {kind[:-1]} {number}: {told}")
    return "\n".join(lines)


def _joined_lines(trial: Mapping[str, Any]) -> list[str]:
    """What boards did that are joined by links."""
    exact = "bit-exact" if trial["mismatch"] is None else f"MISMATCH: {trial['mismatch']}"
    builds = ", ".join(f"{board} build {digest}" for board, digest in trial["build_hashes"].items())
    return [f"{trial['segment']} on {trial['device']}, one host through all of them: {builds}, {trial['bus_bits']}-bit bus",
            f"  {counted(trial['frames'], 'frame')} {exact}; reset of all boards in mid-frame: {trial['after_reset']}",
            *(f"  link {s['link']} of {s['board']}: {'up' if s['up'] else 'DOWN'}, {s['received']:,} cells received, "
              f"{s['sent']:,} sent, {s['spoilt']:,} spoilt" for s in trial["links"]),
            f"  {counted(trial['cycles'], 'cycle')}, computed at {trial['cycles_per_s']:,.0f} cycles/s, "
            f"{trial['frames_per_s']:,.1f} frames/s"]


def _routed_lines(result: Mapping[str, Any], device: Device) -> list[str]:
    """The clock of a routed design with its spread and slowest paths, beside the one planned with."""
    routes, source = result["routes"], device.sources.get("clock_hz", ASSUMED)
    clocks, planned = sorted(r["fmax_hz"] for r in routes), "" if device.clock_hz is None else (
        f"; planned at {hertz(device.clock_hz)}, {'assumed' if source.startswith(ASSUMED) else source}")
    spread = f" in the median of {len(routes)} seeds, {hertz(clocks[0])} to {hertz(clocks[-1])}" if len(routes) > 1 else ""
    lines = [f"clock of {result['routed']} after place and route: {hertz(result['fmax_hz'])}{spread}{planned}",
             *(f"  seed {r['seed']}: {hertz(r['fmax_hz'])}, {r['critical_path']}" for r in routes)]
    if result["family"] == device.family:
        lines.append(f"to plan with this clock, put into the board file under the device: {result['board_line']}")
    return lines


def power_text(results: Sequence[Mapping[str, Any]]) -> str:
    """Toggles and energy of every part and engine, beside what the plan assumed."""
    lines = []
    for found in results:
        rows = [[e["node"], f"{e['register_bits']:,}", percent(e["activity"]), _between(e), joules(e["planned_energy_j"])]
                for e in found["engines"]]
        lines += [f"{found['segment']} on {found['device']}: {percent(found['toggles_per_clock'])} of all register bits toggle "
                  f"per clock, {percent(found['activity'])} while their engine works "
                  f"(planned with {percent(found['planned_activity'])})",
                  table(["engine", "register bits", "activity", "energy per frame", "planned"], rows, right=(1, 2, 3, 4)),
                  f"energy per frame above idle: {_between(found)}, planned {joules(found['planned_energy_j'])}; "
                  f"{found['power_low_w']:.3g} to {found['power_high_w']:.3g} W at full rate",
                  f"source: {found['source']}",
                  f"to plan with these toggles, put into the board file under [device.parameters]: {found['board_line']}"]
    return "\n".join(lines)


def _between(found: Mapping[str, Any]) -> str:
    return f"{joules(found['energy_low_j'])} to {joules(found['energy_high_j'])}"


WAYS = {"float": "float", "int8": "integers", "onnxruntime_int8": "ONNX Runtime int8", "build": "build"}


def accuracy_table(found: Mapping[str, Any]) -> str:
    """Right answers, agreement with float and output noise of everybody who computed, and whether the build is exact."""
    def cell(values: Mapping[str, float | None] | None, way: str, form: str) -> str:
        value = (values or {}).get(way)
        return "" if value is None else format(value, form)

    ways = [w for w in WAYS if w == "int8" or found.get(w) is not None or w in found["snr_db"]]
    rows = [[WAYS[w], cell(found, w, ".4f"), cell(found["agreement"], w, ".4f"), cell(found["snr_db"], w, ".1f")] for w in ways]
    shared = ", the same for all" if "onnxruntime_int8" in found["snr_db"] else ""
    samples = counted(found["calibration_samples"], "sample")
    lines = [f"{counted(found['images'], 'image')}, calibration: {found['calibration']}, {samples}{shared}",
             table(["computed by", "right", "agrees with float", "output SNR dB"], rows, right=(1, 2, 3)),
             *_notes(found)]
    if found["build_equals_int8"] is not None:
        verb = "equals the integer reference on every output bit" if found["build_equals_int8"] else "DIFFERS from the reference"
        lines.append(f"the build {verb}")
    return "\n".join(lines)


def _notes(found: Mapping[str, Any]) -> list[str]:
    """What is to be said below a comparison with ONNX Runtime."""
    return [found[key] for key in ("agreement_note", "peer_lead", "peer_note") if found[key]]


WORST_LAYERS = 20


def quality_table(found: Mapping[str, Any]) -> str:
    """The noisiest tensors first, then the outputs beside ONNX Runtime's int8."""
    rows = [[x["tensor"], x["operator"], "exact" if x["snr_db"] is None else f"{x['snr_db']:.1f}", x["scheme"]]
            for x in found["layers"][:WORST_LAYERS]]
    lines = [table(["tensor", "operator", "SNR dB", "scheme"], rows, right=(2,))]
    if len(found["layers"]) > WORST_LAYERS:
        lines.append(f"and {counted(len(found['layers']) - WORST_LAYERS, 'tensor')} with less noise; --json - lists all")
    lines += ["", f"outputs on {counted(found['samples'], 'sample')} ({found['calibration']})"]
    for way, ratio in found["snr_db"].items():
        agreed = "" if found["agreement"] is None else f", top-1 as float on {found['agreement'][way]:.4f}"
        lines.append(f"  {WAYS[way]:<18} {'exact' if ratio is None else f'{ratio:.1f} dB'}{agreed}")
    return "\n".join([*lines, *_notes(found)])


OTHER_BLOCKS = ("register", "dsp")
"""Resources that every family has under this name, though they are not the same blocks."""


def synthesis_table(results: Sequence[Mapping[str, Any]], build: Build) -> str:
    """Counted against planned against available."""
    lines = []
    for result in results:
        device = build.platform.device(result["device"])
        limits = device.resources
        planned = build.plan.resources.get(result["device"], {})
        other = OTHER_BLOCKS if result["family"] != device.family else ()
        rows = [[name, f"{amount:,.0f}", f"{planned[name][0]:,.0f}" if name in planned and name not in other else "",
                 f"{limits[name]:,.0f}" if name in limits and name not in other else ""]
                for name, amount in result["resources"].items()]
        lines += [f"{result['segment']} for {result['family']} ({result['tool']})",
                  table(["resource", "counted", "planned", "available"], rows, right=(1, 2, 3)), *result["notes"]]
        if "fmax_hz" in result:
            lines += _routed_lines(result, device)
        if other:
            lines.append(f"{device.name} is a {device.family}: its registers and DSPs are other blocks than those of "
                         f"{result['family']}, so that none are shown as planned or available")
    return "\n".join(lines)
