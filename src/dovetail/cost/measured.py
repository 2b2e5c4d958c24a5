"""Costs straight from the published rows, for comparison and to reproduce papers; plans use `processor` and `dhm`.

`measured`: the fitted rows as they are, the measuring loop included; hardware streams, with the area, power and clock
that Quartus gave. `published`: the authors' own form of model, and their serial FPGA latency.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.cost.estimate import ShareCosts
from dovetail.cost.predict import Prediction, SquareLayers, predict
from dovetail.hardware.shares import Flags, Floats
from dovetail.hardware.work import ShareWork
from dovetail.platform.device import Device, ModelSet
from dovetail.platform.quantity import factor_model, quantity_model

HARDWARE_ROWS = "c10gx"


def layers_of_work(work: ShareWork, count: int) -> SquareLayers:
    """The measured kind of layer that is nearest to each share: the square output of equal area, stride 1, no padding."""
    kernel = np.atleast_1d(np.sqrt(work.kernel))
    side = np.sqrt(work.pixels) + kernel - 1
    return SquareLayers(*(np.broadcast_to(v, (count,)).astype(np.float64) for v in (side, work.channels, kernel, work.filters)))


def row_costs(work: ShareWork, device: Device, count: int) -> ShareCosts:
    """A dense convolution on a TX2 processor as its row would read, energy above idle."""
    layers = layers_of_work(work, count)
    power = predict(quantity_model("measured", f"{device.model}-power"), layers)
    if device.models is ModelSet.PUBLISHED:
        model = factor_model(f"{device.model}-latency")
        seconds = model.values(layers.levels)
        low, high = seconds / (1 + 2 * model.mape), seconds * (1 + 2 * model.mape)
        source = f"authors' form refitted, {model.mape:.0%} off, float32"
    else:
        latency = predict(quantity_model("measured", f"{device.model}-latency"), layers)
        seconds, low, high, source = latency.value, latency.low, latency.high, "measured float32 rows, loop included"
    energy = np.maximum(power.value - device.idle_power_w, 0.0) * seconds
    outside = ~power.inside | ~np.asarray(work.plain, dtype=np.bool_)
    return ShareCosts(seconds, seconds, np.minimum(low, seconds), np.maximum(high, seconds), energy, {}, outside,
                      f"TX2 {device.kind.upper()}: {source}")


def hardware_rows(streamed: ShareCosts, work: ShareWork, device: Device, groups: Floats, count: int) -> ShareCosts:
    """A convolution as the authors' own hardware: area and power per group from the rows, times its groups.

    `streamed` is what our engine takes; its cycles are kept for `measured`, at the clock the rows give.
    """
    layers = layers_of_work(work, count)
    layers = replace(layers, filters=layers.filters / groups)
    alm, m20k, power, clock = (_quantity(name, layers, device) for name in ("alm", "m20k", "power", "fmax"))
    area = {**streamed.resources, "alm": alm.value * groups, "m20k": m20k.value * groups}
    assert device.clock_hz is not None
    rate = device.clock_hz / clock.value
    seconds, fused = streamed.alone_s * rate, streamed.fused_s * rate
    if device.models is ModelSet.PUBLISHED:
        area |= {r: _quantity(r, layers, device).value * groups for r in ("alut", "lab")}
        serial = factor_model(f"{HARDWARE_ROWS}-latency").values(layers.levels)
        seconds = fused = serial * groups
    energy = np.maximum(power.value - device.idle_power_w, 0.0) * groups * seconds
    outside: Flags = ~alm.inside | (groups > 1) | ~np.asarray(work.plain, dtype=np.bool_)
    low, high = seconds * clock.value / clock.high, seconds * clock.value / clock.low
    return ShareCosts(seconds, fused, np.minimum(low, seconds), np.maximum(high, seconds), energy, area, outside,
                      f"Quartus rows of the authors' hardware ({device.models})")


def _quantity(name: str, layers: SquareLayers, device: Device) -> Prediction:
    """A quantity of the FPGA rows: fitted, or in the authors' form where the set says so and they had one."""
    found = predict(quantity_model("measured", f"{HARDWARE_ROWS}-{name}"), layers)
    if device.models is not ModelSet.PUBLISHED or name not in ("alm", "alut", "lab", "m20k"):
        return found
    value = factor_model(f"{HARDWARE_ROWS}-{name}").values(layers.levels)
    return Prediction(value, value, value, found.inside)
