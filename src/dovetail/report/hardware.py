"""The generated hardware: what each design is made of and what the tools counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.report import units
from dovetail.report.headline import POWER, synth_command
from dovetail.report.markup import Markup, element, not_run, section, table
from dovetail.report.palette import Report, looks, meter
from dovetail.words import counted


def hardware(report: Report) -> Markup:
    """Section: FPGA designs with cycles, FIFOs and files; synthesis results."""
    if not report["designs"]:
        return section(
            "designs", "FPGA designs", element("p", "This plan computes nothing on an FPGA, so there is no hardware to show."))
    body = [_design(d, looks(report)) for d in report["designs"]]
    return section("designs", "FPGA designs", body, _circuits(report), _synthesis(report), _power(report))


def _design(design: Mapping[str, Any], shown: Mapping[str, str]) -> Markup:
    clock = design["clock_hz"]

    def cycles(value: int) -> str:
        return units.count(value) + (f" ({units.seconds(value / clock)} at {units.hertz(clock)})" if value and clock else "")

    facts = (("Top module", design["top"]), ("Device", design["device"]), ("Adders", units.count(design["adders"])),
             ("Cycles for one frame", cycles(design["latency_cycles"])),
             ("Cycles between frames", cycles(design["interval_cycles"])))
    return element(
        "article",
        element("h3", design["segment"]),
        element("dl", [element("div", element("dt", k), element("dd", v)) for k, v in facts], class_="facts"),
        _fifos(design, shown[design["device"]]),
        _files(design["files"]),
        [element("p", n) for n in design["notes"]],
    )


def _circuits(report: Report) -> Markup | None:
    """What crosses links between boards, and its time slots where boards are switches."""
    found: list[Markup] = []
    for system in report["circuits"]:
        slots = system["slots"]
        rows = []
        for number, line in enumerate(system["circuits"]):
            name, _, way = line.partition(": ")
            rows.append((name, way, *([slots[number + 1].partition(": ")[2]] if slots else [])))
        head = ("Tensor", "Way", *(["Time slots"] if slots else []))
        found.append(table(f"Circuits of {system['system']}", head, rows))
        found += [element("p", f"The boards are circuit switches: {slots[0]}.")] if slots else []
    return element("article", element("h3", "Circuits between boards"), found) if found else None


def _fifos(design: Mapping[str, Any], look: str) -> Markup:
    if not design["fifos"]:
        return element("p", "No FIFO: nothing waits for anything else in this design.")
    rows = []
    for fifo in design["fifos"]:
        mark, depth = fifo["high_water"], fifo["depth"]
        filled = meter(mark / depth if depth else 0, look, f"{units.count(mark)} of {units.count(depth)}") if mark is not None \
            else element("span", "not simulated", class_="muted")
        rows.append((fifo["name"], units.count(fifo["width_bits"]), units.count(depth), filled))
    return table(f"FIFOs of {design['top']}", ("FIFO", "Width, bits", "Depth, beats", "Fullest seen in simulation"), rows,
                 numeric=(1, 2), class_="bars")


def _files(files: list[Mapping[str, Any]]) -> Markup:
    """Names and lengths, folded away."""
    items = [element("li", element("code", f["name"]), f", {counted(f['lines'], 'line')}") for f in files]
    return element("details", element("summary", counted(len(files), "Verilog file")), element("ul", items))


def _power(report: Report) -> Markup:
    """Energy of a frame by counted toggles, beside the plan's."""
    results = report["power"]
    if not results:
        return not_run("Energy of this hardware goes by an assumed activity; its toggles have not been counted.", POWER)
    rows = [(r["segment"], units.percent(r["toggles_per_clock"]),
             f"{units.percent(r['activity'])} (planned {units.percent(r['planned_activity'])})",
             f"{units.joules(r['energy_low_j'])} to {units.joules(r['energy_high_j'])}",
             units.joules(r["planned_energy_j"]), r["source"]) for r in results]
    return table("Energy per frame above idle, by toggles counted in simulation (a model)",
                 ("Design", "Toggles per clock", "Activity while working", "Energy, counted", "Energy, planned", "Source"), rows,
                 numeric=(1, 2, 3, 4))


def _clock_reached(result: Mapping[str, Any]) -> str:
    """The clock of a routed design, with its spread where it was routed from several beginnings."""
    if not result.get("fmax_hz"):
        return "not routed"
    clocks = sorted(route["fmax_hz"] for route in result.get("routes", ()))
    spread = f" ({units.hertz(clocks[0])} to {units.hertz(clocks[-1])}, {len(clocks)} seeds)" if len(clocks) > 1 else ""
    return units.hertz(result["fmax_hz"]) + spread


def _synthesis(report: Report) -> Markup:
    results = report["synthesis"]
    if not results:
        return not_run("No synthesis tool has counted these designs.", synth_command(report))
    rows = [
        (
            r["segment"],
            r["family"],
            r["tool"],
            ", ".join(f"{units.count(v)} {k}" for k, v in r["resources"].items()) or units.ABSENT,
            _clock_reached(r),
            units.seconds(r.get("wall_s")),
            " ".join(r["notes"]),
        )
        for r in results
    ]
    return table("Synthesis results", ("Design", "Family", "Tool", "Resources", "Clock reached", "Tool ran for", "Notes"),
                 rows, numeric=(4, 5))
