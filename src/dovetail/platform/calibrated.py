"""The model of a device that was measured layer by layer: one sum of meaningful terms per class of layer.

Its coefficients stand in the board file as parameters named CLASS_TERM (`depthwise_s_per_mac`); a term that is
absent is zero. `dovetail calibrate` writes such a file.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.platform.schema import Limits

CALIBRATED = "calibrated"

CLASSES = ("stem", "dense", "pointwise", "depthwise", "grouped", "grouped_odd", "gemm", "max_pool", "average_pool",
           "global_average", "add", "concat")
"""Stem: a convolution of at most four channels; dense: any other with a window; grouped: groups of 4, 8, 16, ... channels
in and out; grouped_odd: any other; add: also a lone activation.

The two poolings are libraries' kernels of their own: on a GPU one takes several times as long as the other.
"""

TERMS: Mapping[str, str] = {
    "launch_s": "s per run",
    "s_per_mac": "s per multiply-add",
    "s_per_read": "s per input element",
    "s_per_write": "s per output element",
    "s_per_weight": "s per weight",
    "s_per_tap": "s per window value gathered",
    "s_per_depth": "s per multiply-add of one output value, which follow one another",
    "s_per_root_mac": "s per square root of the multiply-adds, for kernels that fill the device little by little",
    "activation_s": "s per activation",
    "s_per_rectified": "s per output element of a ReLU",
    "s_per_clipped": "s per output element that is held between two bounds (ReLU6)",
}
"""What the time of a layer is a sum of, with units."""

PARAMETERS: Mapping[str, Limits] = {
    "launch_s": Limits(0.0, 0.1, "s"),
    "bandwidth_bytes_per_s": Limits(1e6, 1e14, "B/s"),
    "interval_fraction": Limits(0.0, 10.0, "(fraction)"),
    "overhead_s": Limits(0.0, 0.1, "s"),
}
"""What every calibrated device states besides: for operators of no class, and for a frame as a whole."""

COEFFICIENTS: Mapping[str, Limits] = {
    f"{group}_{term}": Limits(0.0, 1.0, unit) for group in CLASSES for term, unit in TERMS.items()
} | {f"{group}_interval_fraction": Limits(0.0, 10.0, "(fraction)") for group in CLASSES} | {
    "kernel_factor": Limits(0.01, 100.0, "(measured over estimated time of our kernels)"),
    "j_per_mac": Limits(0.0, 1e-3, "J per multiply-add"),
    "j_per_element": Limits(0.0, 1e-3, "J per element read or written"),
}
"""Everything a board file may state besides; `interval_fraction` is the 90th percentile of the fit's error.

Energy above idle is busy less idle power for the time a layer takes, and these two for what is done in it.
"""

RELATED: Mapping[str, tuple[str, ...]] = {
    "stem": ("dense", "pointwise"), "dense": ("pointwise", "grouped", "grouped_odd"), "pointwise": ("dense",),
    "depthwise": ("grouped", "grouped_odd", "dense"), "grouped": ("grouped_odd", "dense", "depthwise"),
    "grouped_odd": ("grouped", "dense", "depthwise"), "gemm": ("pointwise", "dense"),
    "max_pool": ("average_pool",), "average_pool": ("max_pool",),
}
"""Classes whose terms stand in for those of a class that was not measured, the nearest first."""
