"""Toggles of the example's hardware on real images beside those on random pixels, which overstate them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import dovetail as dt
from dovetail.fpga.activity import Toggles, count_toggles
from dovetail.fpga.part import as_pixels, load_part
from dovetail.ir import Array
from dovetail.runtime.build import synthetic_integers
from dovetail.runtime.power import measure_power
from lib.proofs.images import BOARD, FASHION

FRAMES = 64


def activity() -> dict[str, Any]:
    """Activity and energy per frame of the example's FPGA part by toggles counted over its calibration images."""
    with TemporaryDirectory() as folder:
        build = dt.compile(FASHION / "fashion.onnx", BOARD, Path(folder) / "build", verify=False,
                           calibration=FASHION / "calibration.npz", options=dt.Options(thrift=0.05, fold="none"))
        (found,) = measure_power(build, FRAMES)
        segment = next(s for s in build.program.segments if s.name == found.segment)
        part = load_part(segment.graph, build.folder / "fpga")

        def rate(inputs: dict[str, Array]) -> float:
            streams = {p.tensor: as_pixels(p, np.asarray(inputs[p.tensor])) for p in part.design.inputs}
            counted = count_toggles(part.design, streams).values()
            return sum(counted, start=Toggles(0, 0, FRAMES, next(iter(counted)).clocks)).per_clock

        random = rate(synthetic_integers(part.graph, FRAMES, 0))
    print(f"activity           {found.toggles_per_clock:.1%} of register bits toggle per clock on images, {random:.1%} on random "
          f"pixels; {found.activity:.1%} while engines work; {found.energy_low_j * 1e9:.0f} to "
          f"{found.energy_high_j * 1e9:.0f} nJ per frame, planned {found.planned_energy_j * 1e9:.0f}", flush=True)
    return {"activity": {"toggles_per_clock": found.toggles_per_clock, "toggles_per_clock_random": random,
                         "random_overstates": random / found.toggles_per_clock - 1, "while_working": found.activity,
                         "energy_j": [found.energy_low_j, found.energy_high_j], "planned_energy_j": found.planned_energy_j,
                         "frames": FRAMES, "source": found.source, "status": "ok"}}
