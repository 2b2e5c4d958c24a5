"""What each filter of a layer of codes sees, group by group: windows, weights and sums in the order of a plain product."""

from __future__ import annotations

import numpy as np

from dovetail.ir import Array, Coded


def windows(op: Coded, x: Array) -> Array:
    """What every filter sees: (frames, groups, values of a window, pixels), in the order of a filter's weights."""
    body, window, (frames, channels) = op.body, op.body.window, x.shape[:2]
    if window is None:
        return x[:, None, :, None]
    padded = np.pad(x, ((0, 0), (0, 0), window.pads[0::2], window.pads[1::2]))
    taps = [tap.reshape(frames, body.groups, channels // body.groups, 1, -1) for _, _, tap in window.taps(padded)]
    seen = np.concatenate(taps, axis=3)
    return seen.reshape(frames, body.groups, -1, seen.shape[-1])


def placed(op: Coded, x: Array, sums: Array) -> Array:
    """(frames, groups, filters of a group, pixels) as the output's shape."""
    return sums.reshape(len(x), *op.infer((x.shape,))[1:])


def grouped(op: Coded, codes: Array) -> Array:
    """Weights as (groups, filters of a group, values of a window)."""
    return codes.reshape(op.body.groups, len(codes) // op.body.groups, -1)
