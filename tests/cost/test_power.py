"""Power of hardware: a model of static power, activity, resources and clock; every board has its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.cost import costs_of
from dovetail.cost.fitting.authors import fit_power
from dovetail.cost.power import DEFAULT_ACTIVITY, activity_of, dynamic_power_w
from dovetail.errors import PlatformError
from dovetail.hardware.work import whole_units
from dovetail.ir import RELU, Conv, Window
from dovetail.platform.device import Device, Kind
from dovetail.platform.fitted import dhm_model
from dovetail.platform.load import load_platform, platform_from_dict, platform_names, platform_to_dict
from tests.strategies import Net

C10GX = dhm_model("dhm-cyclone10gx")
FPGAS = [d for name in platform_names() for d in load_platform(name.replace(":N", ":1")).devices if d.kind is Kind.FPGA]


def area(alm: float, m20k: float) -> dict[str, np.ndarray]:
    return {"alm": np.array([alm]), "m20k": np.array([m20k])}


def energy(device: Device) -> float:
    net = Net(1)
    x = net.input((1, 3, 16, 16))
    graph = net.graph(net.add(Conv(4, Window((3, 3)), 1, RELU), x))
    costs = costs_of(graph, graph.nodes[0], None, *whole_units(), device)
    assert costs is not None
    assert "power: a model, " in costs.source
    return float(costs.energy_j[0])


def test_power_follows_area_clock_and_activity() -> None:
    once = dynamic_power_w(area(1000, 10), C10GX, 75.6e6)
    assert once == pytest.approx(1000 * 6.43e-6 + 10 * 2.675e-4)
    assert dynamic_power_w(area(2000, 20), C10GX, 75.6e6) == pytest.approx(2 * once)
    assert dynamic_power_w(area(1000, 10), C10GX, 151.2e6) == pytest.approx(2 * once)
    assert dynamic_power_w(area(1000, 10), C10GX, 75.6e6, activity=0.05) == pytest.approx(once * 0.05 / DEFAULT_ACTIVITY)


def test_a_full_quartus_report_comes_out_within_a_fifth() -> None:
    board = load_platform("tx2-c10gx").device("fpga")
    predicted = board.idle_power_w + dynamic_power_w(area(21_147, 587), C10GX, 75.6e6)[0]
    assert predicted == pytest.approx(1.1579, rel=0.2)  # 3x3, 224x224, 3 to 32 channels: no row of the fit


def test_a_board_may_state_the_activity_that_simulation_counted() -> None:
    board = load_platform("tx2-c10gx")
    entries = platform_to_dict(board)
    entries["device"][2]["parameters"] = {"activity": {"value": 0.0625, "source": "toggles counted on images"}}
    quiet = platform_from_dict(entries).device("fpga")
    assert (activity_of(quiet), activity_of(board.device("fpga"))) == (0.0625, DEFAULT_ACTIVITY)
    assert energy(quiet) == pytest.approx(energy(board.device("fpga")) / 2)
    entries["device"][2]["parameters"] = {"activity": {"value": 12.5, "source": "per cent"}}
    with pytest.raises(PlatformError, match=r"key value is 12\.5; allowed is 0\.001 to 2 toggles per clock and signal"):
        platform_from_dict(entries)


@pytest.mark.parametrize("device", FPGAS, ids=[d.description[:20] for d in FPGAS])
def test_every_fpga_has_static_and_dynamic_power_with_sources(device: Device) -> None:
    model = dhm_model(device.model)
    assert device.idle_power_w > 0
    assert device.sources["idle_power_w"]
    for key in ("power_w_per_logic", "power_w_per_block", "power_clock_hz", "power_activity"):
        assert model.coefficients[key] > 0
        assert model.sources[key]
    assert energy(device) > 0
    full = {model.logic: np.array([device.resources[model.logic]]), model.block: np.array([device.resources[model.block]])}
    assert device.clock_hz is not None
    assert device.idle_power_w + dynamic_power_w(full, model, device.clock_hz)[0] < 3 * device.busy_power_w
    assert energy(replace(device, clock_hz=2 * device.clock_hz)) == pytest.approx(energy(device))


def test_watts_per_cell_and_block_are_recovered() -> None:
    random = np.random.default_rng(0)
    columns = {c: random.integers(1, 9, 200).astype(float) for c in ("hw", "c", "k", "n")}
    columns |= {"alm": random.uniform(500, 60_000, 200), "m20k": random.uniform(5, 587, 200)}
    columns["power_w"] = 1.1 + 6e-6 * columns["alm"] + 3e-4 * columns["m20k"]
    watts, errors = fit_power(columns)
    assert watts == pytest.approx([1.1, 6e-6, 3e-4], rel=1e-5)
    assert errors.p90 < 1e-5
