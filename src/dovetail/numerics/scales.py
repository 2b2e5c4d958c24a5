"""Which scales a network is quantized with: powers of two, whose rounding is a shift, or any, whose rounding multiplies."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from dovetail.ir import Array


class Scales(StrEnum):
    """`auto`: powers of two, unless answers agree less with the float network than by any scales (`TOLERANCE`)."""

    AUTO = "auto"
    POW2 = "pow2"
    ANY = "any"


TOLERANCE = 0.005
"""By which part of all answers powers of two may agree less. Stated: the half point that int8 is allowed to lose."""
JUDGED = 256
"""Samples, evenly spread, on which answers are compared. Chosen: two answers are more than the tolerance."""


def agreement(expected: Mapping[str, Array], found: Mapping[str, Array]) -> float:
    """The part of all answers that are the same: per frame (and pixel) the largest channel, of every output with several."""
    same = [np.equal(np.argmax(x, axis=1), np.argmax(found[name], axis=1)).ravel() for name, x in expected.items()
            if x.ndim > 1 and x.shape[1] > 1]
    return float(np.concatenate(same).mean()) if same else 1.0
