"""The papers and their parts: what computes each, its tables for a terminal, and its drawings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.platform.device import ModelSet
from dovetail.progress import Progress, silent
from dovetail.reproduce.compact_2024 import fcm, fibha
from dovetail.reproduce.compact_2024 import tables as fibha_tables
from dovetail.reproduce.gp_2023 import figures as gp_figures
from dovetail.reproduce.gp_2023 import results as gp_2023
from dovetail.reproduce.heterogeneity_2021 import figure_1 as heterogeneity_figure_1
from dovetail.reproduce.heterogeneity_2021 import figure_4 as heterogeneity_2021
from dovetail.reproduce.lq_2020 import figures as lq_figures
from dovetail.reproduce.lq_2020 import results as lq_2020
from dovetail.reproduce.ours import WHOLE

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asks of a paper; empty means as it comes."""

    models: ModelSet = ModelSet.PLANNING
    networks: tuple[str, ...] = ()
    record: Path | None = None
    boards: tuple[int, ...] = ()
    fresh: bool = False
    """Compute anew what a record holds, where that needs nothing but this package."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a paper: its document, its tables, its drawings by file name, and the records its items may come from."""

    compute: Callable[[Asked, Progress], dict[str, Any]]
    text: Callable[[Document], str]
    figures: Callable[[Document], dict[str, str]] = lambda _: {}
    record: str | None = None
    """The record that `Asked.record` stands in for."""


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper: its title for people, and its parts; the first is what a terminal shows unless told otherwise."""

    title: str
    parts: Mapping[str, Part]


def _accelerators(asked: Asked, progress: Progress) -> dict[str, Any]:
    if asked.networks or asked.fresh:
        return fibha.reproduce(asked.networks or fibha.NETWORKS, progress)
    return fibha_tables.recorded(asked.record)


PAPERS = {
    "gp-2023": Paper("GP partitioning 2023", {
        WHOLE: Part(lambda _, progress: gp_2023.reproduce(progress), gp_2023.text, gp_figures.figures)}),
    "heterogeneity-2021": Paper("Heterogeneity 2021", {
        "figure 4": Part(lambda asked, progress: heterogeneity_2021.reproduce(asked.models, progress), heterogeneity_2021.text,
                         heterogeneity_2021.figures),
        "figure 1": Part(lambda _, progress: heterogeneity_figure_1.reproduce(progress), heterogeneity_figure_1.text,
                         heterogeneity_figure_1.figures)}),
    "compact-2024": Paper("Compact DNNs 2024", {
        "fcm": Part(lambda asked, _: fcm.reproduce(asked.record), fcm.text, record="gpu_fcm"),
        "fibha": Part(_accelerators, fibha_tables.text, record="fibha")}),
    "lq-2020": Paper("LQ multi-FPGA 2020", {
        WHOLE: Part(lambda asked, progress: lq_2020.reproduce(progress, counts=asked.boards or lq_2020.COUNTS,
                                                              training=asked.record, simulated=asked.fresh),
                    lq_2020.text, lq_figures.figures, "training")}),
}
"""In the order in which `reproduce all` takes them."""


def compute_part(arguments: Mapping[str, Any], files: Mapping[str, Path]) -> dict[str, Any]:
    """The document of a part, by the fields of `Asked` as plain data; what workers run."""
    asked = Asked(ModelSet(arguments["models"]), tuple(arguments["networks"]), files.get("record"), tuple(arguments["boards"]),
                  arguments["fresh"])
    return PAPERS[arguments["paper"]].parts[arguments["part"]].compute(asked, silent)
