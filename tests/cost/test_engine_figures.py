"""Every field of the engines of small layers, kept for review: a change of a model of area shows here."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from dovetail.hardware.adders.digits import count_digits
from dovetail.hardware.engines import FIELDS, engine_of
from dovetail.hardware.rounding import division_bits
from dovetail.ir import AvgPool, GlobalAvgPool, Window
from tests.cost.test_costs_hardware import LAYERS, single
from tests.scales import with_arbitrary_scales

POOLS = {f"average of {rows} x {columns}": single(AvgPool(Window((rows, columns))), shape=(2, 9, 10))
         for rows, columns in ((1, 2), (2, 3), (3, 3), (2, 5), (4, 3))}
MEANS = {"mean of 5 x 6": single(GlobalAvgPool(), shape=(3, 5, 6))}


def test_fields_of_engines_are_those_reviewed(golden: Callable[[str, str], None]) -> None:
    rows = []
    for name, network in {**LAYERS, **POOLS, **MEANS}.items():
        for scales, graph in (("", network), (", any scales", with_arbitrary_scales(network, 1))):
            found = engine_of(graph, graph.nodes[-1], None, np.array([0]), np.array([1]))
            fields = {field: float(np.max(getattr(found, field))) for field in FIELDS if getattr(found, field) is not None}
            rows.append(f"{name}{scales}: {', '.join(f'{field} {amount:g}' for field, amount in fields.items() if amount)}\n")
    golden("engine_fields.txt", "".join(rows))


def test_bits_of_divisions_are_those_reviewed(golden: Callable[[str, str], None]) -> None:
    """Odd divisors take a reciprocal; of even ones that are no powers of two the remainder is computed back as well."""
    rows = [f"{bits} bits by {divisor}: {', '.join(map(str, division_bits(divisor, bits)))}\n"
            for bits, divisor in (*product((8, 12, 16), (1, 3, 4, 6, 7, 9, 12, 20, 49, 56)), (13, 258))]
    golden("divisions.txt", "".join(rows))


def test_digits_of_long_filters_are_all_counted() -> None:
    """Of each weight the four set bits; a filter has more of them than 16 bits count."""
    found = count_digits(np.full((2, 40_000), 0b1010101, np.int8))
    assert found.per_filter.tolist() == [160_000, 160_000]
    assert found.magnitudes.tolist() == [85 * 40_000] * 2
