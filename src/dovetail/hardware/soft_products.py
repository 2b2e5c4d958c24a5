"""What a product in logic takes: digits of two bits of the weight, each a row of the activation's bits (fpga/engines/soft.py).

Yosys 0.70, eight products between registers, activations of 0..255 and weights of 8, 4 and 2 bits: 45, 21 and 9 look-up tables
of six inputs (xcu, xcup), 107, 49 and 20 of four (ecp5), 55, 27 and 13 ALM (cyclonev); signed activations take a tenth less.
Activations of 0..15 and weights of 4 and 2 bits: 13 and 5 look-up tables of six inputs. The lines below meet all of these.
"""

from __future__ import annotations

from collections.abc import Mapping

EDGE_BITS = 4
"""Bits of a row beside those of the activation: sign, doubling, and the two of the next row."""
LINES: Mapping[str, tuple[float, float]] = {"lut": (1.0, 3.0), "lut4": (29 / 12, 9.0), "alm": (14 / 12, 1.0)}
"""By kind of logic: cells of a row's bit, and by how many the last row is cheaper."""


def soft_logic(logic: str, input_bits: float, weight_bits: int) -> float:
    """Logic of one product; `logic` names the device's cells."""
    per_bit, less = LINES[logic]
    return -(-weight_bits // 2) * per_bit * (input_bits + EDGE_BITS) - less
