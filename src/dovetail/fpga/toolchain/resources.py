"""From the cells a synthesis tool counts to the resources a board lists.

Counts are before packing. Weights that are not a plain count say where they come from; none is calibrated against a vendor's
fitter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

ALM_PER_SMALL_LUT = 0.8
"""ALMs per look-up table of five inputs or fewer: 0.5 when two always share an ALM, 1 when they never do; assumed."""

XILINX_MEMORY_LUTS: Mapping[str, int] = {
    **{"RAM32X1S": 1, "RAM64X1S": 1, "RAM128X1S": 2, "RAM256X1S": 4, "RAM512X1S": 8},
    **{"RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM256X1D": 8},
    **{"RAM32M": 4, "RAM64M": 4, "RAM32M16": 8, "RAM64M8": 8},
}
"""Look-up tables per distributed-memory primitive, from the shapes that fill the eight of a slice in Yosys' lutrams_xcu.txt.

A primitive of 32 words counts as one of 64; two of them may share a look-up table, which is not assumed here.
"""


def count(cells: Mapping[str, int], pattern: str) -> int:
    """How many cells have a type that matches the whole pattern."""
    return sum(number for name, number in cells.items() if re.fullmatch(pattern, name))


def ecp5(cells: Mapping[str, int]) -> dict[str, float]:
    """A carry cell is two LUT4; a 16x4 memory takes four for its bits and, assumed, the two of the slice that writes them."""
    memories = count(cells, "TRELLIS_DPR16X4")
    return {
        "lut4": count(cells, "LUT4") + 2 * count(cells, "CCU2C") + 6 * memories,
        "register": count(cells, "TRELLIS_FF"),
        "bram": count(cells, "DP16KD|PDPW16KD"),
        "dsp": count(cells, "MULT18X18D") + 0.5 * count(cells, "MULT9X9D"),
    }


def xilinx(cells: Mapping[str, int]) -> dict[str, float]:
    memories = sum(luts * cells.get(name, 0) for name, luts in XILINX_MEMORY_LUTS.items())
    return {
        "lut": count(cells, "LUT[1-6]|INV|SRL.*") + memories,
        "register": count(cells, "FD[RSCP]E.*|LD[CP]E.*"),
        "bram36": count(cells, "RAMB36E[12]") + 0.5 * count(cells, "RAMB18E[12]"),
        "dsp": count(cells, "DSP48E[12]"),
        "uram": count(cells, "URAM288.*"),
    }


def _alm(cells: Mapping[str, int]) -> dict[str, float]:
    """Adaptive logic modules: `alm_low` packs every pair of small look-up tables together, `alm` most of them."""
    large = count(cells, "MISTRAL_ALUT6")
    small = count(cells, "MISTRAL_ALUT[2-5]|MISTRAL_NOT|MISTRAL_BUF")
    arithmetic, memory = count(cells, "MISTRAL_ALUT_ARITH"), count(cells, "MISTRAL_MLAB")
    registers = count(cells, "MISTRAL_FF|MISTRAL_SDFF")
    shared = (arithmetic + memory) / 2
    return {
        "alm": max(large + ALM_PER_SMALL_LUT * small + shared, registers / 4),
        "alm_low": max(large + 0.5 * small + shared, registers / 4),
        "alut": large + small + arithmetic,
        "register": registers,
    }


def cyclonev(cells: Mapping[str, int]) -> dict[str, float]:
    """Assumes a DSP block filled with one 27x27, two 18x18 or three 9x9 multipliers."""
    multipliers = count(cells, "MISTRAL_MUL27X27") + count(cells, "MISTRAL_MUL18X18") / 2 + count(cells, "MISTRAL_MUL9X9") / 3
    return {**_alm(cells), "m10k": count(cells, "MISTRAL_M10K|altsyncram"), "dsp": multipliers}


def cyclone10gx(cells: Mapping[str, int]) -> dict[str, float]:
    """Assumes a DSP block filled with one 27x27 or two smaller multipliers."""
    multipliers = count(cells, "MISTRAL_MUL27X27") + count(cells, "MISTRAL_MUL(18X18|9X9)") / 2
    return {**_alm(cells), "m20k": count(cells, "MISTRAL_M20K|altsyncram"), "dsp": multipliers}


RESOURCES: Mapping[str, Callable[[Mapping[str, int]], dict[str, float]]] = {
    "ecp5": ecp5,
    "xcu": xilinx,
    "xcup": xilinx,
    "cyclonev": cyclonev,
    "cyclone10gx": cyclone10gx,
}
