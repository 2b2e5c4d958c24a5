"""Counting the area of many layers: jobs whose key is the text of the hardware, the synthesizer's version and the family.

A second run finds what the first has counted; changed hardware is counted again and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dovetail.errors import ToolError, UsageError
from dovetail.explore.area_layers import AreaLayer, area_graph
from dovetail.explore.campaign import run_jobs
from dovetail.explore.crew import Crew
from dovetail.explore.job import Arguments, CampaignJob
from dovetail.explore.store import ResultStore
from dovetail.files import cache_folder
from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.synthesize import FAMILIES, SYNTHESIS_MEMORY_BYTES, find_synthesizer, synthesize
from dovetail.fpga.toolchain.tools import content_key
from dovetail.measure.layers import MeasuredLayer
from dovetail.progress import Progress
from dovetail.words import counted

TOP = "layer"
"""Name of every layer's top module."""
NAMES: Mapping[str, str] = {"ultrascale": "xcu", "ultrascale+": "xcup"}
"""Families by the names people use, where the synthesizer has another."""


@dataclass(frozen=True, slots=True)
class CountedArea:
    """What a synthesizer counted of one layer."""

    layer: str
    family: str
    tool: str
    resources: Mapping[str, float]
    wall_s: float


def default_store() -> Path:
    """Where results are kept unless told otherwise."""
    return cache_folder() / "campaign-area" / "results.sqlite"


def family_of(name: str) -> str:
    """The synthesizer's family by either of its names."""
    family = NAMES.get(name.lower(), name.lower())
    if family not in FAMILIES:
        raise UsageError(f"--family {name}: unknown; known are {', '.join((*FAMILIES, *NAMES))}")
    return family


def area_job(specimen: AreaLayer, family: str, files: Mapping[str, str], tool: str) -> CampaignJob:
    """The count of a layer whose hardware is these files."""
    key = content_key(["area", family, tool, *(text for item in sorted(files.items()) for text in item)])
    return CampaignJob(key, "area", f"{family}: {specimen}", count_layer, {**asdict(specimen), "family": family},
                       SYNTHESIS_MEMORY_BYTES)


def count_layer(arguments: Arguments, files: Mapping[str, Path]) -> dict[str, object]:
    """Generate a layer and count it; what workers run."""
    stated = dict(arguments)
    family, layer = stated.pop("family"), MeasuredLayer(**stated.pop("layer"))
    # One part: a worker is one process with one synthesizer below it, whose memory is bounded.
    found = synthesize(build_design(area_graph(AreaLayer(layer, **stated)), TOP), family, unit_bytes=None)
    return {"tool": found.version, "resources": dict(found.resources)}


def run_campaign(layers: Sequence[AreaLayer], families: Sequence[str], store: ResultStore, crew: Crew,
                 progress: Progress) -> dict[str, dict[AreaLayer, CountedArea]]:
    """Count every layer for every family; results by family, in the layers' order.

    Raises:
        ToolError: a synthesizer is missing or failed; what was counted is kept.
    """
    tools = {family: find_synthesizer(family).version for family in families}
    jobs: dict[tuple[str, AreaLayer], CampaignJob] = {}
    for i, layer in enumerate(layers):
        progress("generate layers", i, len(layers))
        files = build_design(area_graph(layer), TOP).files
        jobs |= {(family, layer): area_job(layer, family, files, tools[family]) for family in families}
    report = run_jobs([jobs[family, layer] for family in families for layer in layers], store, crew, progress)
    if report.failed:
        label, problem = next(iter(report.failed.items()))
        raise ToolError(f"campaign: {counted(len(report.failed), 'layer')} without a count, {label} first: {problem}; the others "
                        f"are kept in {store.path}, the same command goes on")
    found = store.read(job.key for job in jobs.values())
    areas: dict[str, dict[AreaLayer, CountedArea]] = {}
    for (family, layer), job in jobs.items():
        outcome = found[job.key]
        if outcome.result is None:
            raise ToolError(f"campaign: {job.label}: {outcome.refusal}")
        areas.setdefault(family, {})[layer] = CountedArea(str(layer), family, str(outcome.result["tool"]),
                                                          dict(outcome.result["resources"]), outcome.wall_s)
    return areas
