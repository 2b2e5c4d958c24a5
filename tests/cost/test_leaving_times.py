"""Beats of one frame through a folded engine: what looks at beats only says the same as what looks at every step."""

import numpy as np

from dovetail.hardware.folds import Channels, Fold, Loops
from dovetail.hardware.streaming import FoldedRaster, Raster, issue_times, leaving_times
from dovetail.ir import Window


def test_outputs_leave_when_every_step_is_followed() -> None:
    rng, compared = np.random.default_rng(5), 0
    for _ in range(400):
        kernel, stride, groups = (int(rng.choice(of)) for of in ((1, 2, 3, 5), (1, 2, 3), (1, 2, 4)))
        pad, height, width = int(rng.integers(0, kernel // 2 + 1)), *map(int, rng.integers(kernel, 12, 2))
        raster = Raster(Window((kernel, kernel), (stride, stride), (pad,) * 4), height, width)
        if not raster.masks_suffice:
            continue
        channels = Channels(groups, *map(int, rng.integers(1, 9, 2)))
        fold = Fold(*(int(rng.integers(1, most + 1)) for most in (groups, channels.inputs, channels.outputs)))
        folded = FoldedRaster(raster, Loops(channels, fold))
        taken, left = folded.input_steps(), folded.output_steps()
        ready = [np.cumsum(rng.integers(0, 9, len(taken))) for _ in range(2)]
        followed = issue_times([r[None] for r in ready], [taken, taken], folded.steps)[0][left]
        np.testing.assert_array_equal(leaving_times(ready, taken, left), followed)
        late = taken + 2  # a first beat that is needed late holds all steps before it
        followed = issue_times([ready[0][None]], [late], folded.steps + 2)[0][left]
        np.testing.assert_array_equal(leaving_times(ready[:1], late, left), followed)
        compared += 1
    assert compared > 300
