"""The top of the report: what was built, how good it is in one sentence, and the numbers behind the sentence."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from dovetail.report import units
from dovetail.report.markup import Markup, breakable, element, join
from dovetail.report.palette import Report
from dovetail.report.verdict import (
    BETTER,
    ERRORS,
    best_single,
    compared,
    error,
    figures,
    frames,
    limited,
    limited_share,
    proof,
    ratio,
)
from dovetail.words import counted, plural

LEAST_GAP = 1e-6
"""A gap below is the solver's arithmetic, and none."""
RUNS_IN = {"onnxruntime": "ONNX Runtime", "verilator": "Verilator (cycle-accurate RTL)", "emulated": "bit-exact emulation"}
VERIFY = "dovetail verify build"
"""What a reader can paste to get what a report lacks."""
POWER = "dovetail power build"
"""The same for counted toggles."""


def headline(report: Report) -> Markup:
    """The page's header: names, verdict, cards."""
    checked = report["verification"]
    tone = "open" if checked is None else "good" if checked["equal"] else "bad"
    return element(
        "header",
        element("p", "Dovetail build report", class_="kicker"),
        element(
            "h1", element("span", report["model"]["name"], class_="model"), " on ", element("span", report["platform"]["name"])
        ),
        element("p", lead(report), class_=f"lead {tone}", id="lead"),
        element("dl", cards(report), class_="cards"),
        element("p", sentence(report), class_=f"verdict {tone}", id="verdict"),
        _executed(report),
        id="headline",
    )


def lead(report: Report) -> list[object]:
    """What a plan reaches, what holds it back, and whether it was checked: for who reads nothing else."""
    plan, checked, single = report["plan"], report["verification"], best_single(report["plan"])
    reached = [f"{units.rate(plan['interval_s'])}"] if plan["interval_s"] else []
    reached += [f"one frame in {units.seconds(plan['latency_s'])}", f"{units.joules(plan['energy_j'])} per frame"]
    alone = ""
    if single and single[1] and plan["objective"]:
        better, worse = BETTER[plan["goal"]]
        alone = f": {ratio(single[1] / plan['objective'], better, worse)} the {single[0].upper()} alone"
    found = plan["limited_by"]
    bottleneck = [" Bottleneck: ", element("strong", breakable(found["name"])), f", {limited_share(plan)}."] if found else []
    exact = "" if not report["segments"] else " Not verified yet." if checked is None else \
        " Bit-exact in verification." if checked["equal"] else " NOT bit-exact."
    return [element("strong", reached[0]), "".join(f", {words}" for words in reached[1:]), f"{alone}.", *bottleneck, exact]


def used_devices(report: Report) -> list[str]:
    """Devices the plan computes on, in the platform's order."""
    used = {p["device"] for n in report["nodes"] for p in n["pieces"]}
    return [d["name"] for d in report["platform"]["devices"] if d["name"] in used]


def sentence(report: Report) -> str:
    """The verdict on the plan, on which devices, and whether it is bit-exact."""
    plan, checked = report["plan"], report["verification"]
    parts = [f"Predicted on {' + '.join(used_devices(report))}: {figures(plan)}", compared(plan), proof(plan), limited(plan)]
    if checked is None:
        parts.append("not yet verified" if report["segments"] else "")
    elif checked["equal"]:
        parts.append(f"bit-exact over {counted(checked['frames'], 'frame')}")
    else:
        parts.append(f"NOT bit-exact: {checked['first_mismatch']}")
    return "; ".join(filter(None, parts)) + "."


def _executed(report: Report) -> Markup:
    """Who stood in for which device, so that nobody takes an emulation for hardware."""
    if not report["segments"]:
        return element("p", f"A plan: nothing has been built or executed. Times and energies are model estimates; {ERRORS}.",
                       class_="muted")
    ran = dict.fromkeys((s["device"], RUNS_IN.get(s["backend"], s["backend"])) for s in report["segments"])
    said = "Executed here: " if report["verification"] else "Nothing has been executed yet. Here verification runs "
    return element("p", said, "; ".join(f"{device} in {backend}" for device, backend in ran),
                   f". Times and energies are model estimates for the board; {ERRORS}.", class_="muted")


def cards(report: Report) -> Markup:
    """The key numbers."""
    plan, model = report["plan"], report["model"]
    speed = units.significant(1 / plan["latency_s"]) if plan["latency_s"] else ""
    alone = f"{speed} {plural(1 if speed == '1' else 2, 'frame')} per second, one at a time" if speed else ""
    if plan["latency_s"] and plan["makespan_s"] and abs(plan["makespan_s"] / plan["latency_s"] - 1) > 0.005:
        alone += f"; scheduled in {units.seconds(plan['makespan_s'])}"
    single, known = best_single(plan), plan["intervals"]
    best = _card("Best single device", f"{units.objective(single[1], plan['goal'])}",
                 f"{single[0]} alone{', without pins' if plan['pinned'] else ''}") if single else None
    gap = _card("Gap to the bound", units.percent(plan["gap"] if plan["gap"] >= LEAST_GAP else 0.0),
                f"{proof(plan)}; solver {plan['solver']}, {plan['mode']} mode")
    return join(
        [
            _limit(plan),
            _card("Latency", units.seconds(plan["latency_s"]) + error(plan["latency_s"], known.get("latency_s")), alone),
            _pipelined(plan),
            _card("Energy per frame", units.joules(plan["energy_j"]) + error(plan["energy_j"], known.get("energy_j")),
                  "idle power of all devices included"),
            best,
            gap,
            _bits(report) if report["segments"] else None,
            _area(report),
            _card("Network", counted(len(report["nodes"]), "layer"),
                  f"{units.quantity(model['macs'])} multiply-accumulates, {units.quantity(model['parameters'])} "
                  f"{plural(model['parameters'], 'parameter')}"),
        ]
    )


def _pipelined(plan: Mapping[str, Any]) -> Markup | None:
    """How many frames follow each other, and what sets their pace."""
    busy = list(plan["busy_s"].items())[:2]
    if not plan["interval_s"] or not busy:
        return None
    note = [[breakable(name), f" busy {units.seconds(seconds)} per frame; "] for name, seconds in busy]
    return _card("Pipelined", frames(plan), join([*note, "frames overlap, buffered between devices"]))


def _limit(plan: Mapping[str, Any]) -> Markup | None:
    """What limits the plan, and what one step up would buy."""
    found = plan["limited_by"]
    return _card("Bottleneck", breakable(found["name"]), f"{limited_share(plan)}; {found['one_step_up']}") if found else None


def _card(name: str, value: str, note: object, tone: str | None = None) -> Markup:
    """One number; its error in brackets stands behind it in small."""
    figure, bracket, spread = (value, "", "") if isinstance(value, Markup) else value.partition(" (")
    small = element("span", f"{bracket.lstrip()}{spread}", class_="spread") if bracket else None
    return element("div", element("dt", name), element("dd", figure, " " if small else None, small, class_="value"),
                   element("dd", note, class_="note"), class_=tone)


def _bits(report: Report) -> Markup:
    checked = report["verification"]
    if checked is None:
        return _card("Verification", "not run", VERIFY)
    if not checked["equal"]:
        return _card("Verification", "✗ differs", str(checked["first_mismatch"]), "bad")
    return _card("Verification", "✓ bit-exact",
                 f"{counted(checked['frames'], 'frame')}, {counted(checked['tensors_compared'], 'tensor')} compared",
                 "good")


def _area(report: Report) -> Markup | None:
    """The tightest resource of the plan."""
    filled = [(used / limit, device, name) for device, limits in report["plan"]["resources"].items()
              for name, (used, limit) in limits.items() if used and limit]
    if not filled:
        return None
    fraction, device, name = max(filled)
    done = "synthesized below" if report["synthesis"] else f"estimate; {synth_command(report)} counts it" \
        if report["segments"] else "estimate"
    return _card(
        f"Tightest resource, {device}", f"{units.percent(fraction)}", f"of {name}; {done}", "bad" if fraction > 1 else None)


def synth_command(report: Report) -> str:
    """What a reader can paste to get synthesized counts: for the family of the first FPGA on the board."""
    family = next((d["family"] for d in report["platform"]["devices"] if d["kind"] == "fpga" and d["family"]), None)
    return "dovetail synth build" + (f" --family {shlex.quote(family)}" if family else "")
