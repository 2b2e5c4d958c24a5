"""Why to believe the report: verification, numerics, and where every number comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dovetail.platform.device import ASSUMED
from dovetail.report import units
from dovetail.report.commands import compile_command, synth_command, verify_command
from dovetail.report.headline import RUNS_IN, mismatch
from dovetail.report.markup import Markup, element, join, not_run, section, table
from dovetail.report.model_chart import model_charts
from dovetail.report.palette import Report
from dovetail.runtime.clocks import clocks_sentence
from dovetail.words import counted, plural


def verification(report: Report) -> Markup:
    """Section: what was compared with the reference, by whom, and the numbers' formats."""
    return section(
        "verification", "Verification and numerics", _compared(report), _clocks(report), _segments(report), _accuracy(report),
        _schemes(report)
    )


def _compared(report: Report) -> Markup:
    checked = report.get("verification")
    if not checked:
        return not_run("Nothing has been compared with the integer reference yet.", verify_command(report))
    equal = checked.get("equal")
    result = (
        "Every compared value equals the integer reference"
        if equal
        else f"Differs from the integer reference: {mismatch(checked.get('first_mismatch'))}"
    )
    tensors = units.counted(checked.get("tensors_compared"), "tensor")
    amount = f"{units.counted(checked.get('frames'), 'frame')}, {tensors} compared"
    took = f" in {units.seconds(checked['wall_s'])}" if checked.get("wall_s") is not None else ""
    return element(
        "p",
        element("strong", "✓ Bit-exact. " if equal else "✗ Mismatch. "),
        f"{result}: {amount}{took}.",
        class_=f"verdict {'good' if equal else 'bad'}",
    )


def _clocks(report: Report) -> Markup:
    """Whether the hardware takes the clocks that the plan states."""
    found = (report.get("verification") or {}).get("clocks") or {}
    return join(element("p", element("strong", "✓ Clocks. " if own["within"] else "✗ Clocks. "), f"{clocks_sentence(name, own)}.",
                        class_=f"verdict {'good' if own['within'] else 'bad'}") for name, own in found.items())


def _segments(report: Report) -> Markup:
    segments = report.get("segments")
    if not segments:
        return not_run("The plan has not been cut into device programs.", compile_command(report))
    rows = []
    for s in segments:
        nodes = s.get("nodes") or []
        listed = (
            element("details", element("summary", counted(len(nodes), "layer")), ", ".join(map(str, nodes)))
            if len(nodes) > 6
            else ", ".join(map(str, nodes))
        )
        rows.append(
            (
                s.get("name") or units.ABSENT,
                s.get("device") or units.ABSENT,
                RUNS_IN.get(str(s.get("backend")), s.get("backend") or units.ABSENT),
                listed,
                s.get("note") or "",
            )
        )
    caption, column = ("Device programs and what executed them here", "Executed in") if report.get("verification") else \
        ("Device programs and what executes them here, once they are verified or run", "Executes in")
    return table(caption, ("Program", "Device", column, "Layers", "Note"), rows)


def _accuracy(report: Report) -> list[Markup]:
    quantization = report.get("quantization")
    if not quantization:
        return [not_run("No accuracy or calibration was recorded for this build.", compile_command(report))]
    found: list[Markup] = []
    if accuracy := quantization.get("accuracy"):
        images = quantization.get("images")
        found.append(
            table(
                "Accuracy" + (f" on {units.counted(images, 'labelled image')}" if images else ""),
                ("Arithmetic", "Accuracy"),
                [(k, units.accuracy(v)) for k, v in accuracy.items()],
                numeric=(1,),
                class_="narrow",
            )
        )
    if quantization.get("calibration"):
        found.append(element("p", element("strong", "Calibration: "), _words(quantization["calibration"])))
    return found + [element("p", note) for note in _lines(quantization.get("notes"))]


def _schemes(report: Report) -> Markup:
    tensors = report["model"]["tensors"]
    if not report["model"]["quantized"]:
        return element("p", "The model is planned in floating point; quantize it to fix its integer formats.")
    rows = [(t["name"], units.shape(t["shape"]), element("code", t["scheme"])) for t in tensors]
    return element(
        "details",
        element("summary", f"Integer format of all {counted(len(tensors), 'tensor')}"),
        table("A format u8e-7 means: unsigned, 8 bits, value = integer × 2⁻⁷", ("Tensor", "Shape", "Format"), rows),
    )


def provenance(report: Report) -> Markup:
    """Section: sources, assumptions, warnings, versions, commands."""
    known = report.get("provenance") or {}
    warnings = _lines(known.get("warnings"))
    return section(
        "provenance",
        "Where the numbers come from",
        element("h3", "Warnings"),
        element("ul", [element("li", w) for w in warnings], class_="warnings")
        if warnings
        else element("p", "None." if report.get("provenance") else "Not recorded."),
        element("h3", "Assumed numbers"),
        _assumed(report),
        _measured(report),
        element("h3", "Sources"),
        _sources(report),
        element("h3", "Made from"),
        _made_from(report, known),
        element("h3", "Reproduce"),
        _commands(report, known),
    )


def _parts(report: Report) -> Iterable[tuple[str, Mapping[str, Any]]]:
    yield from ((d["name"], d) for d in report["platform"]["devices"])
    yield from ((f"link {link['name']}", link) for link in report["platform"]["links"])


def _assumed(report: Report) -> Markup:
    rows = [
        (owner, key, _value(part["values"], key), _reason(source))
        for owner, part in _parts(report)
        for key, source in part["sources"].items()
        if source.strip().lower().startswith(ASSUMED)
    ]
    if not rows:
        return element("p", "None: every number of this platform names its source.")
    return table(
        "Numbers nobody has published or measured; the plan depends on them",
        ("Of", "Number", "Value (SI)", "Reason"),
        rows,
        numeric=(2,),
    )


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
    if not used:
        return element("p", "No source is recorded.")
    return table(
        "Every source and what rests on it",
        ("Source", "Used for"),
        [(source, "; ".join(keys)) for source, keys in used.items()],
        class_="prose",
    )


def _made_from(report: Report, known: Mapping[str, Any]) -> Markup:
    digest = known.get("model_sha256")
    rows: list[tuple[str, object]] = [
        ("Model file", known.get("model_file") or "not recorded"),
        ("SHA-256", element("code", digest) if digest else "not recorded"),
        ("Board", f"{report['platform']['name']}: {report['platform']['description']}"),
    ]
    rows += [(str(tool), version) for tool, version in (known.get("versions") or {}).items()]
    return table("Inputs and tool versions", ("What", "Which"), rows, class_="prose")


def _commands(report: Report, known: Mapping[str, Any]) -> Markup:
    given = _lines(known.get("commands")) or [compile_command(report), verify_command(report), synth_command(report)]
    return element("pre", element("code", "\n".join(given)))


def _lines(value: object) -> list[str]:
    """Notes given as one text or as a list of them."""
    return [str(v) for v in value] if isinstance(value, list | tuple) else [str(value)] if value else []


def _words(value: object) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
