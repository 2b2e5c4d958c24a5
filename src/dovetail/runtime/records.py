"""What a build remembers of commands on it, as it stands in its JSON files."""

from __future__ import annotations

from dovetail.document import NATURAL, Each, Maybe

VERIFICATION = {"equal": bool, "frames": NATURAL, "tensors_compared": NATURAL, "elements_compared": NATURAL,
                "first_mismatch": Maybe({"text": str}), "segments": [{"name": str, "backend": str}],
                "high_water": Each(Each(NATURAL)), "cycles": Each(Each(NATURAL)), "speed?": Each(Each(float)),
                "clocks?": Each({"planned": {"one_frame": float, "interval": float}, "error": float, "source": str,
                                 "simulated": {"one_frame": NATURAL, "interval": Maybe(NATURAL)}, "within": bool,
                                 "holds": {"one_frame": bool, "interval": bool}})}
"""`verification.json`."""
SYNTHESIS = {"results": [{"device": str, "segment": str, "family": str, "tool": str, "resources": Each(float), "notes": [str],
                          "fmax_hz?": Maybe(float), "wall_s?": Maybe(float)}]}
"""`synthesis.json`."""
POWER = {"results": [{"segment": str, "toggles_per_clock": float, "activity": float, "planned_activity": float,
                      "energy_low_j": float, "energy_high_j": float, "planned_energy_j": float, "source": str}]}
"""`power.json`."""
