"""Heterogeneity 2021, Table I: the ten results of other works as the paper prints them, and this work's, the paper's and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dovetail.reproduce import gains
from dovetail.terminal import table


class OtherWork(NamedTuple):
    """A row of Table I. Source: Heterogeneity 2021; energy gain and speed-up as printed, none where it prints a dash."""

    work: str
    platform: str
    granularity: str
    algorithm: str
    energy: str
    latency: str | None


QASAIMEH = ("Qasaimeh et al. 2019", "Jetson TX2 + ZCU102", "element-wise")
HOSSEINABADY = ("Hosseinabady et al. 2019", "Jetson TX1 + Virtex-7, Zynq UltraScale+", "element-wise")
TU = ("Tu et al. 2019", "Jetson TX2 + Nexys Artix-7", "feature extraction, classification")
OTHERS = (
    OtherWork(*QASAIMEH, "background subtraction", "1.74x", None),
    OtherWork(*QASAIMEH, "colour segmentation", "1.86x", None),
    OtherWork(*QASAIMEH, "Harris corners tracking", "3.94x", None),
    OtherWork(*QASAIMEH, "stereo block matching", "8.83x", None),
    OtherWork(*HOSSEINABADY, "histogram", "1.45x-2.29x", "1.18x-1.79x"),
    OtherWork(*HOSSEINABADY, "dense matrix-vector product", "0.96x-1.19x", "1.22x-1.48x"),
    OtherWork(*HOSSEINABADY, "sparse matrix-vector product", "1.1x-1.23x", "1.15x-1.25x"),
    OtherWork(*TU, "CNN, N = 16", "2.11x", "1.3x"),
    OtherWork(*TU, "CNN, N = 32", "1.94x", "1.19x"),
    OtherWork(*TU, "CNN, N = 64", "1.9x", "1.17x"))
"""The table's ten rows of other works; none was run by us."""
HERE = "Jetson TX2 + Cyclone 10 GX"


def table_1(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Other works, then the paper's rows with ours below each."""
    rows = [[one.work, one.platform, one.granularity, one.algorithm, one.energy, one.latency or "-"] for one in OTHERS]
    for b in blocks:
        printed = b["paper"]["table_1"]
        for who, found in (("Heterogeneity 2021", printed), ("ours, their partition", b["gain"]),
                           ("ours, optimum", b["optimum_gain"])):
            rows.append([who, HERE, "layer-wise", b["block"], *(gains.told(found[key]) for key in ("energy", "latency"))])
    return table(("work", "platform", "granularity", "algorithm", "energy gain", "speed-up"), rows, (4, 5))
