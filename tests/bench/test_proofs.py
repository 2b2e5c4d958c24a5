"""Modules of compact networks and the trained example in hardware, smaller and fewer than the bench has them."""

from __future__ import annotations

import pytest

from lib.proofs.images import example_images
from lib.proofs.modules import MODULES, PREFIX, Cut, cut_out, judged, quantized

SMALL = [(PREFIX, 96, 17), (Cut("shufflenet-v2-0.5", ("stage3.0.", "stage3.1.")), 64, 12),
         (Cut("squeezenet1.1", ("fire4_",)), 64, 4)]


@pytest.mark.verilator
@pytest.mark.parametrize(("cut", "size", "nodes"), SMALL, ids=lambda value: value.name if isinstance(value, Cut) else str(value))
def test_modules_of_compact_networks_equal_the_reference_as_the_optimiser_folds_them(cut: Cut, size: int, nodes: int) -> None:
    found = judged(cut.name, cut_out(quantized(cut.network, size), cut.stems))
    assert found["bit_exact"]
    assert found["simulated_cycles"] == [found["latency_cycles"]]
    assert found["nodes"] == nodes
    assert found["folds"]
    assert max(found["area_share"].values()) <= 1.0


@pytest.mark.verilator
def test_the_example_equals_the_reference_as_planned_and_as_one_design() -> None:
    found = example_images(4)["example_images"]
    assert found["as_planned"] == {"bit_exact": True, "backends": {"fpga0": "verilator", "cpu0": "onnxruntime"}}
    assert found["one_design"]["bit_exact"]
    assert found["one_design"]["first_frame_cycles"] == found["one_design"]["latency_cycles"]
    assert found["status"] == "ok"


def test_every_module_is_cut_out_of_its_network_whole() -> None:
    for cut in MODULES:
        if cut.network == "squeezenet1.1":
            assert [n.op.kind for n in cut_out(quantized(cut.network, 64), cut.stems).nodes] == ["Conv", "Conv", "Conv", "Concat"]
