"""Why to believe the report: verification, numerics, and where every number comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dovetail.platform.device import ASSUMED
from dovetail.report import units
from dovetail.report.headline import RUNS_IN, VERIFY
from dovetail.report.markup import Markup, element, join, not_run, section, table
from dovetail.report.model_chart import model_charts
from dovetail.report.palette import Report
from dovetail.runtime.verification import clocks_sentence
from dovetail.words import counted, plural

MOST_LISTED = 6
"""Layers of a program that are named at once; more are folded away."""


def verification(report: Report) -> Markup:
    """Section: what was compared with the reference, by whom, and the numbers' formats."""
    return section("verification", "Verification and numerics", _compared(report), _clocks(report), _segments(report),
                   element("p", element("strong", "Calibration: "), report["quantization"]["calibration"]), _schemes(report))


def _compared(report: Report) -> Markup:
    checked = report["verification"]
    if checked is None:
        return not_run("Nothing has been compared with the integer reference yet.", VERIFY)
    equal = checked["equal"]
    result = "Every compared value equals the integer reference" if equal \
        else f"Differs from the integer reference: {checked['first_mismatch']}"
    amount = f"{counted(checked['frames'], 'frame')}, {counted(checked['tensors_compared'], 'tensor')} compared"
    return element("p", element("strong", "✓ Bit-exact. " if equal else "✗ Mismatch. "), f"{result}: {amount}.",
                   class_=f"verdict {'good' if equal else 'bad'}")


def _clocks(report: Report) -> Markup:
    """Whether the hardware takes the clocks that the plan states."""
    found = report["verification"]["clocks"] if report["verification"] else {}
    return join(element("p", element("strong", "✓ Clocks. " if own["within"] else "✗ Clocks. "), f"{clocks_sentence(name, own)}.",
                        class_=f"verdict {'good' if own['within'] else 'bad'}") for name, own in found.items())


def _segments(report: Report) -> Markup:
    rows = []
    for s in report["segments"]:
        nodes, count = ", ".join(s["nodes"]), len(s["nodes"])
        listed = element("details", element("summary", counted(count, "layer")), nodes) if count > MOST_LISTED else nodes
        rows.append((s["name"], s["device"], RUNS_IN.get(s["backend"], s["backend"]), listed, s["note"]))
    caption, column = ("Device programs and what executed them here", "Executed in") if report["verification"] else \
        ("Device programs and what executes them here, once they are verified or run", "Executes in")
    return table(caption, ("Program", "Device", column, "Layers", "Note"), rows)


def _schemes(report: Report) -> Markup:
    tensors = report["model"]["tensors"]
    if not report["model"]["quantized"]:
        return element("p", "The model is planned in floating point; quantize it to fix its integer formats.")
    rows = [(t["name"], units.shape(t["shape"]), element("code", t["scheme"])) for t in tensors]
    return element("details", element("summary", f"Integer format of all {counted(len(tensors), 'tensor')}"),
                   table("A format u8e-7 means: unsigned, 8 bits, value = integer × 2⁻⁷", ("Tensor", "Shape", "Format"), rows))


def provenance(report: Report) -> Markup:
    """Section: sources, assumptions, warnings, versions, commands."""
    warnings = report["provenance"]["warnings"]
    return section(
        "provenance",
        "Where the numbers come from",
        element("h3", "Warnings"),
        element("ul", [element("li", w) for w in warnings], class_="warnings")
        if warnings
        else element("p", "None."),
        element("h3", "Assumed numbers"),
        _assumed(report),
        _measured(report),
        element("h3", "Sources"),
        _sources(report),
        element("h3", "Made from"),
        _made_from(report),
        element("h3", "Reproduce"),
        element("pre", element("code", "\n".join(report["provenance"]["commands"]))),
    )


def _parts(report: Report) -> Iterable[tuple[str, Mapping[str, Any]]]:
    yield from ((d["name"], d) for d in report["platform"]["devices"])
    yield from ((f"link {link['name']}", link) for link in report["platform"]["links"])


def _assumed(report: Report) -> Markup:
    rows = [(owner, key, _value(part["values"], key), _reason(source)) for owner, part in _parts(report)
            for key, source in part["sources"].items() if source.strip().lower().startswith(ASSUMED)]
    if not rows:
        return element("p", "None: every number of this platform names its source.")
    return table("Numbers nobody has published or measured; the plan depends on them",
                 ("Of", "Number", "Value (SI)", "Reason"), rows, numeric=(2,))


def _measured(report: Report) -> list[Markup]:
    """How the models of devices with published measurements scatter; nothing for boards without."""
    charts = model_charts(report)
    if not charts:
        return []
    return [element("h3", "Device models against measurements"),
            element("p", "Rows their fit had not seen, as measured; the band holds nine of ten. Plans leave out the loop "
                    "that the measurements include."), element("div", charts, class_="model-charts")]


def _reason(source: str) -> str:
    """What follows the word in "assumed: a third of the peak"."""
    return source.strip()[len(ASSUMED) :].lstrip(" :;,") or "none given"


def _value(values: Mapping[str, Any], key: str) -> str:
    """The number behind a source key, however the board file nested it."""
    last = key.rsplit(".", 1)[-1]
    value = next((values[k] for k in (key, f"resources.{key}", last, f"resources.{last}") if values.get(k) is not None), None)
    return units.ABSENT if value is None else units.significant(value) if isinstance(value, float) else units.count(value)


def _sources(report: Report) -> Markup:
    used: dict[str, dict[str, None]] = {}
    for owner, part in _parts(report):
        for key, source in part["sources"].items():
            if not source.strip().lower().startswith(ASSUMED):
                used.setdefault(source, {})[f"{owner} {key}"] = None
    for source in dict.fromkeys(n["source"] for n in report["nodes"] if n.get("source")):
        layers = [n["name"] for n in report["nodes"] if n.get("source") == source]
        used.setdefault(source, {})[f"{plural(len(layers), 'layer')} {', '.join(layers)}"] = None
    return table("Every source and what rests on it", ("Source", "Used for"),
                 [(source, "; ".join(keys)) for source, keys in used.items()], class_="prose")


def _made_from(report: Report) -> Markup:
    known, board = report["provenance"], report["platform"]
    rows = [("Model file", known["model_file"]), ("SHA-256", element("code", known["model_sha256"])),
            ("Board", f"{board['name']}: {board['description']}"), *known["versions"].items()]
    return table("Inputs and tool versions", ("What", "Which"), rows, class_="prose")
