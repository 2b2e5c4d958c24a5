"""Convolutions of GP partitioning 2023's networks, and what a share of their filters costs on its board.

CPU, GPU and area are the authors' form of model (`models/published`), which is a posynomial in the filters as it stands.
For the FPGA's time there are two readings. The published rows take side^2 x channels x filters / clock, serial over
channels. The direct mapping that the paper describes takes one pixel per clock, whatever the filters.

The paper prints two points of ResNet18: 61 of 64 filters on the FPGA, 352 of 512 on the GPU. At the end of the tightening every
device's share times its cost per filter is the same, whatever kappa, the step of alpha and how closely the sum must be met
(tried: 1 to 100, 0.001 to 0.05; the answers move by three filters at most). So only costs and who takes part decide what the
points ask of the models: each reading is a set of devices, the FPGA's time and whether its area counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from dovetail.cost.budget import usable
from dovetail.cost.predict import SquareLayers, predict
from dovetail.hardware.shares import Floats
from dovetail.partition.geometric.paper import PaperLayer, PaperProblem, Terms, tighten
from dovetail.partition.geometric.posynomials import fit
from dovetail.partition.geometric.rounding import whole_units
from dovetail.platform.device import ModelSet, Platform
from dovetail.platform.quantity import factor_model, quantity_model

DEVICES = ("cpu", "gpu", "fpga")
RESOURCES = ("alm", "alut", "lab", "m20k")
"""Of Eq. 4, 7 and 10. The authors' hardware has no multipliers of the kind that DSP blocks hold."""
MODELS = {"cpu": "tx2-cpu", "gpu": "tx2-gpu", "fpga": "c10gx"}
POWER_SHARES = np.array([1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0])


class FpgaTime(StrEnum):
    """How long the FPGA takes."""

    SERIAL = "serial"
    STREAMING = "streaming"


@dataclass(frozen=True, slots=True)
class Convolution:
    """A square convolution: side of its input, channels, side of its kernel, filters, stride."""

    side: int
    channels: int
    kernel: int
    filters: int
    stride: int = 1

    @property
    def point(self) -> tuple[float, float, float]:
        """Side, channels and kernel of the stride-1 layer without padding that gives as many outputs, as the rows have it."""
        return self.side / self.stride + self.kernel - 1.0, float(self.channels), float(self.kernel)


def _stage(side: int, channels: int, filters: int) -> tuple[Convolution, ...]:
    """A stage of ResNet18 that halves the image: the shortcut's convolution, then four on the way beside it."""
    return (Convolution(side, channels, 1, filters, 2), Convolution(side, channels, 3, filters, 2),
            *(Convolution(side // 2, filters, 3, filters) for _ in range(3)))


NETWORKS: dict[str, tuple[Convolution, ...]] = {
    "AlexNet": (Convolution(224, 3, 11, 64, 4), Convolution(27, 64, 5, 192), Convolution(13, 192, 3, 384),
                Convolution(13, 384, 3, 256), Convolution(13, 256, 3, 256)),
    "VGG16": (Convolution(224, 3, 3, 64), Convolution(224, 64, 3, 64), Convolution(112, 64, 3, 128),
              Convolution(112, 128, 3, 128), Convolution(56, 128, 3, 256), Convolution(56, 256, 3, 256),
              Convolution(56, 256, 3, 256), Convolution(28, 256, 3, 512), *(Convolution(28, 512, 3, 512) for _ in range(2)),
              *(Convolution(14, 512, 3, 512) for _ in range(3))),
    "ResNet18": (Convolution(224, 3, 7, 64, 2), *(Convolution(56, 64, 3, 64) for _ in range(4)),
                 *_stage(56, 64, 128), *_stage(28, 128, 256), *_stage(14, 256, 512)),
}


def by_filters(model: str, layer: Convolution) -> Terms:
    """A model in the authors' form as terms of the share of a layer's filters."""
    found = factor_model(model)
    side, channels, kernel = (np.array([v]) for v in layer.point)
    scale = float(found.values((side, channels, kernel, np.ones(1)))[0]) / sum(found.coefficients[3])
    return tuple((scale * c * layer.filters**e, float(e)) for e, c in enumerate(found.coefficients[3]) if c > 0)


def seconds_of(layer: Convolution, device: str, reading: FpgaTime, board: Platform) -> Terms:
    """Time of a share of the filters."""
    if device != "fpga" or reading is FpgaTime.SERIAL:
        return by_filters(f"{MODELS[device]}-latency", layer)
    clock_hz = board.device("fpga").clock_hz
    assert clock_hz is not None
    return ((layer.side**2 / clock_hz, 0.0),)


def at(terms: Terms, shares: Floats) -> Floats:
    """What terms are at given shares."""
    return np.asarray(sum((c * shares**e for c, e in terms), np.zeros(len(shares))), dtype=np.float64)


def link_seconds(layer: Convolution, board: Platform) -> Terms:
    """The FPGA's share of the input feature map over PCIe, one byte per element (LAT_Comm(X_F))."""
    link = next(x for x in board.links if "fpga" in x.ends)
    return ((link.latency_s, 0.0), (layer.side**2 * layer.channels / link.bandwidth_bytes_per_s, 1.0))


def paper_layer(name: str, layer: Convolution, reading: FpgaTime, limited: bool, board: Platform,
                energy: str | None = None) -> PaperLayer:
    """A layer for the paper's method.

    `limited` applies the area models of Eq. 4, and leaves the FPGA out where it cannot take one filter.
    `energy` is None for latency, `constant` for busy
    power times latency, `rows` for the power that was measured at each share.
    """
    compute = {d: seconds_of(layer, d, reading, board) for d in DEVICES}
    transfer: dict[str, Terms] = {d: () for d in DEVICES} | {"fpga": link_seconds(layer, board)}
    if energy is not None:
        compute = {d: _joules(layer, d, terms, energy, board) for d, terms in compute.items()}
        link = next(x for x in board.links if "fpga" in x.ends)
        transfer["fpga"] = ((layer.side**2 * layer.channels * link.energy_j_per_byte, 1.0),)
    limits = {r: usable(board.with_models(ModelSet.PUBLISHED).device("fpga"))[r] for r in RESOURCES} if limited else {}
    area = {("fpga", r): tuple((c / limit, e) for c, e in by_filters(f"c10gx-{r}", layer)) for r, limit in limits.items()}
    if any(at(terms, np.array([1 / layer.filters]))[0] > 1 for terms in area.values()):
        return PaperLayer(name, layer.filters, {d: compute[d] for d in ("cpu", "gpu")}, {d: () for d in ("cpu", "gpu")}, {})
    return PaperLayer(name, layer.filters, compute, transfer, area)


def _joules(layer: Convolution, device: str, seconds: Terms, energy: str, board: Platform) -> Terms:
    if energy == "constant":
        return tuple((c * board.device(device).busy_power_w, e) for c, e in seconds)
    side, channels, kernel = layer.point
    ones = np.ones(len(POWER_SHARES))
    power = predict(quantity_model("measured", f"{MODELS[device]}-power"),
                    SquareLayers(ones * side, ones * channels, ones * kernel, np.maximum(1.0, POWER_SHARES * layer.filters)))
    return fit(POWER_SHARES, power.value * at(seconds, POWER_SHARES))


PAIR = ("gpu", "fpga")
POINTS = {"first": ("fpga", 61), "last": ("gpu", 352)}
"""Layer of ResNet18 to the device and the filters that Sec. 5.2 prints for it."""
SOUGHT = {"first": (PAIR, FpgaTime.STREAMING, False, "gpu"), "last": (DEVICES, FpgaTime.SERIAL, True, "cpu")}
"""The reading nearest to each point, and the device whose time is changed until the point is met."""
HALVINGS = 9


def readings(board: Platform) -> list[dict[str, Any]]:
    """Filters at both points under every reading."""
    found = []
    for devices in (DEVICES, PAIR):
        for reading in FpgaTime:
            for limited in (False, True):
                filters = {name: _filters(_layer(name, reading, limited, board, devices)) for name in POINTS}
                found.append({"devices": list(devices), "fpga": reading.value, "area_limited": limited,
                              "first_on_fpga": filters["first"].get("fpga", 0), "last_on_gpu": filters["last"].get("gpu", 0)})
    return found


def needed(board: Platform) -> dict[str, Any]:
    """Per point: the nearest reading's answer, and by which factor whose time would have to change to give the printed one."""
    found = {}
    for name, (device, printed) in POINTS.items():
        devices, reading, limited, changed = SOUGHT[name]
        layer = _layer(name, reading, limited, board, devices)
        low, high = 0.05, 20.0
        rising = _filters(_slower(layer, changed, high))[device] > _filters(_slower(layer, changed, low))[device]
        for _ in range(HALVINGS):
            middle = (low * high) ** 0.5
            enough = _filters(_slower(layer, changed, middle))[device] >= printed
            low, high = (low, middle) if enough == rising else (middle, high)
        found[name] = {"device": device, "printed": printed, "ours": _filters(layer)[device], "devices": list(devices),
                       "fpga": reading.value, "area_limited": limited, "changed": changed, "factor": (low * high) ** 0.5}
    return found


def _layer(name: str, reading: FpgaTime, limited: bool, board: Platform, devices: tuple[str, ...]) -> PaperLayer:
    layers = NETWORKS["ResNet18"]
    layer = paper_layer(name, layers[0] if name == "first" else layers[-1], reading, limited, board)
    kept = tuple(d for d in layer.devices if d in devices)
    return replace(layer, compute={d: layer.compute[d] for d in kept}, transfer={d: layer.transfer[d] for d in kept},
                   resources={key: terms for key, terms in layer.resources.items() if key[0] in kept})


def _slower(layer: PaperLayer, device: str, factor: float) -> PaperLayer:
    def times(terms: Terms) -> Terms:
        return tuple((c * factor, e) for c, e in terms)

    return replace(layer, compute={d: times(t) if d == device else t for d, t in layer.compute.items()})


def _filters(layer: PaperLayer) -> dict[str, int]:
    if len(layer.devices) == 1:
        return {layer.devices[0]: layer.channels}
    found = tighten(PaperProblem((layer,), shared_budget=False))
    return dict(zip(layer.devices, whole_units(layer.channels, found.answer.shares[0]), strict=True))
