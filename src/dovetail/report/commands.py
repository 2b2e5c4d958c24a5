"""The commands a reader can paste to get what a report lacks, or the report again."""

from __future__ import annotations

import shlex

from dovetail.report.palette import Report


def _known(report: Report, key: str, otherwise: str) -> str:
    return shlex.quote(str((report.get("provenance") or {}).get(key) or otherwise))


def compile_command(report: Report) -> str:
    goal = f" --objective {report['plan']['goal']}" if report["plan"]["goal"] != "latency" else ""
    model, folder = _known(report, "model_file", "MODEL.onnx"), _known(report, "build_dir", "build")
    return f"dovetail compile {model} -p {shlex.quote(report['platform']['name'])}{goal} -o {folder}"


def verify_command(report: Report) -> str:
    return f"dovetail verify {_known(report, 'build_dir', 'build')}"


def power_command(report: Report) -> str:
    return f"dovetail power {_known(report, 'build_dir', 'build')}"


def synth_command(report: Report) -> str:
    """Synthesis for the family of the first FPGA on the board."""
    family = next((d["family"] for d in report["platform"]["devices"] if d["kind"] == "fpga" and d["family"]), None)
    return f"dovetail synth {_known(report, 'build_dir', 'build')}" + (f" --family {shlex.quote(family)}" if family else "")
