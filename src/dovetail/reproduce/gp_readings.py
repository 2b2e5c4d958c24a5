"""What the printed points of GP partitioning 2023 ask of the models: 61 of 64 filters on the FPGA, 352 of 512 on the GPU.

At the end of the tightening every device's share times its cost per filter is the same, whatever kappa, the step of alpha and
how closely the sum must be met (tried: 1 to 100, 0.001 to 0.05; the answers move by three filters at most). So only costs and
who takes part decide: each reading is a set of devices, the FPGA's time and whether its area counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dovetail.partition.geometric.paper import PaperLayer, PaperProblem, Terms, tighten
from dovetail.partition.geometric.rounding import whole_units
from dovetail.platform.device import Platform
from dovetail.reproduce.gp_layers import DEVICES, NETWORKS, FpgaTime, paper_layer

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
