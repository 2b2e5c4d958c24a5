"""The generated hardware: what each design is made of and what the tools counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.report import units
from dovetail.report.commands import compile_command, power_command, synth_command
from dovetail.report.markup import Markup, element, not_run, section, table
from dovetail.report.palette import Report, bar, looks


def hardware(report: Report) -> Markup:
    """Section: FPGA designs with cycles, FIFOs and files; synthesis results."""
    fpgas = {d["name"] for d in report["platform"]["devices"] if d["kind"] == "fpga"}
    used = any(p["device"] in fpgas for n in report["nodes"] for p in n["pieces"])
    designs = report.get("designs")
    if not designs and not used:
        return section(
            "designs", "FPGA designs", element("p", "This plan computes nothing on an FPGA, so there is no hardware to show.")
        )
    body = [_design(d, looks(report)) for d in designs or []]
    if not designs:
        body = [not_run("No Verilog has been generated for the FPGA part of this plan.", compile_command(report))]
    return section("designs", "FPGA designs", body, _circuits(report), _synthesis(report), _power(report))


def _design(design: Mapping[str, Any], shown: Mapping[str, str]) -> Markup:
    clock = design.get("clock_hz")

    def cycles(key: str) -> str:
        value = design.get(key)
        return units.count(value) + (f" ({units.seconds(value / clock)} at {units.hertz(clock)})" if value and clock else "")

    facts = (
        ("Top module", design.get("top")),
        ("Device", design.get("device")),
        ("Adders", units.count(design.get("adders"))),
        ("Cycles for one frame", cycles("latency_cycles")),
        ("Cycles between frames", cycles("interval_cycles")),
    )
    look = shown.get(str(design.get("device")), "fpga")
    return element(
        "article",
        element("h3", design.get("segment") or design.get("top") or "Design"),
        element("dl", [element("div", element("dt", k), element("dd", v)) for k, v in facts if v], class_="facts"),
        _fifos(design, look),
        _files(design.get("files") or []),
        [element("p", n) for n in design.get("notes") or []],
    )


def _circuits(report: Report) -> Markup | None:
    """What crosses links between boards, and its time slots where boards are switches."""
    found: list[Markup] = []
    for system in report.get("circuits") or []:
        slots = system.get("slots") or []
        rows = []
        for number, line in enumerate(system.get("circuits") or []):
            name, _, way = line.partition(": ")
            rows.append((name, way, *([slots[number + 1].partition(": ")[2]] if slots else [])))
        head = ("Tensor", "Way", *(["Time slots"] if slots else []))
        found.append(table(f"Circuits of {system.get('system') or 'the boards'}", head, rows))
        found += [element("p", f"The boards are circuit switches: {slots[0]}.")] if slots else []
    return element("article", element("h3", "Circuits between boards"), found) if found else None


def _fifos(design: Mapping[str, Any], look: str) -> Markup:
    fifos = design.get("fifos") or []
    if not fifos:
        return element("p", "No FIFO: nothing waits for anything else in this design.")
    rows = []
    for fifo in fifos:
        mark, depth = fifo.get("high_water"), fifo.get("depth") or 0
        filled = (
            element(
                "div",
                bar(mark / depth if depth else 0, look),
                element("span", f"{units.count(mark)} of {units.count(depth)}"),
                class_="meter",
            )
            if mark is not None
            else element("span", "not simulated", class_="muted")
        )
        rows.append((fifo.get("name"), units.count(fifo.get("width_bits")), units.count(depth), filled))
    return table(
        f"FIFOs of {design.get('top') or 'the design'}",
        ("FIFO", "Width, bits", "Depth, beats", "Fullest seen in simulation"),
        rows,
        numeric=(1, 2),
        class_="bars",
    )


def _files(files: list[Any]) -> Markup | None:
    """Names and lengths, folded away."""
    if not files:
        return None
    named = [(f.get("name"), f.get("lines")) if isinstance(f, Mapping) else (f, None) for f in files]
    items = [element("li", element("code", name), f", {units.counted(lines, 'line')}" if lines else None)
             for name, lines in named]
    return element("details", element("summary", units.counted(len(named), "Verilog file")), element("ul", items))


def _power(report: Report) -> Markup:
    """Energy of a frame by counted toggles, beside the plan's."""
    results = report.get("power")
    if not results:
        return not_run("Energy of this hardware goes by an assumed activity; its toggles have not been counted.",
                       power_command(report))
    rows = [(r.get("segment") or "design", units.percent(r.get("toggles_per_clock")),
             f"{units.percent(r.get('activity'))} (planned {units.percent(r.get('planned_activity'))})",
             f"{units.joules(r.get('energy_low_j'))} to {units.joules(r.get('energy_high_j'))}",
             units.joules(r.get("planned_energy_j")), r.get("source") or units.ABSENT) for r in results]
    return table("Energy per frame above idle, by toggles counted in simulation (a model)",
                 ("Design", "Toggles per clock", "Activity while working", "Energy, counted", "Energy, planned", "Source"), rows,
                 numeric=(1, 2, 3, 4))


def _synthesis(report: Report) -> Markup:
    results = report.get("synthesis")
    if not results:
        return not_run("No synthesis tool has counted these designs.", synth_command(report))
    rows = [
        (
            r.get("segment") or r.get("device") or "design",
            r.get("family") or units.ABSENT,
            r.get("tool") or units.ABSENT,
            ", ".join(f"{units.count(v)} {k}" for k, v in (r.get("resources") or {}).items()) or units.ABSENT,
            units.hertz(r["fmax_hz"]) if r.get("fmax_hz") else "not routed",
            units.seconds(r.get("wall_s")),
            " ".join(r.get("notes") or []) if isinstance(r.get("notes"), list) else r.get("notes") or "",
        )
        for r in results
    ]
    return table(
        "Synthesis results",
        ("Design", "Family", "Tool", "Resources", "Clock reached", "Tool ran for", "Notes"),
        rows,
        numeric=(4, 5),
    )
