"""A bundle of the random networks that `bench/dhm.py --part random` runs by the hundreds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fpga.random_bundles import BUNDLE, draw, mismatches, run_bundles


@pytest.mark.verilator
def test_a_bundle_of_random_networks_equals_the_reference_with_and_without_stalls() -> None:
    heard: list[tuple[int, int]] = []
    found = run_bundles(range(0, 2 * BUNDLE, 2), on_bundle=lambda done, wrong: heard.append((done, wrong)))
    assert found.mismatches == ()
    assert heard == [(BUNDLE, 0)]
    assert {"Conv", "Gemm", "MaxPool", "AvgPool", "Add", "Mul", "Concat", "Clip", "Lookup", "Reduce",
            "GlobalAvgPool", "Upsample"} <= found.operators.keys()


@pytest.mark.verilator
def test_a_wrong_constant_in_one_network_of_a_bundle_is_named() -> None:
    right = draw(0)
    name, text = next((n, t) for n, t in right.design.files.items() if " <= " in t and "_acc_" in t)
    wrong = replace(right.design, files={**right.design.files, name: text.replace(" + ", " - ", 1)})
    assert wrong != right.design
    assert all(m.startswith("network 0 with") for m in mismatches([replace(right, design=wrong)]))


def test_a_network_is_drawn_alike_every_time() -> None:
    assert draw(7).design == draw(7).design
