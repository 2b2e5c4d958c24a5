"""A build to report on: ten layers with a residual, one layer divided between GPU and FPGA, made of the real values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.fpga.design import Design, Fifo
from dovetail.ir import RELU, Add, Constant, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Node, Op, Reshape, Scheme, Tensor, Window
from dovetail.ir.operators.base import Axis
from dovetail.partition.plan import Goal, LimitedBy, Mode, NodeCost, Piece, Plan, Split, Status, whole_on
from dovetail.platform.device import Device, Kind, Link, Platform
from dovetail.report.collect import describe_design
from dovetail.schedule.list_schedule import Buffer, Task, Timeline

SCHEME = Scheme(8, False, (-5,))


def _window(kernel: int, stride: int = 1) -> Window:
    pad = kernel // 2
    return Window((kernel, kernel), (stride, stride), (pad, pad, pad, pad))


LAYERS: tuple[tuple[str, Op, tuple[str, ...]], ...] = (
    ("stem", Conv(16, _window(3, 2), clamp=RELU), ("x",)),
    ("block1.depthwise", Conv(16, _window(3), groups=16, clamp=RELU), ("stem.y",)),
    ("block1.pointwise", Conv(16, _window(1)), ("block1.depthwise.y",)),
    ("block1.add", Add(clamp=RELU), ("block1.pointwise.y", "stem.y")),
    ("pool", MaxPool(Window((2, 2), (2, 2))), ("block1.add.y",)),
    ("widen", Conv(64, _window(3), clamp=RELU), ("pool.y",)),
    ("mix", Conv(64, _window(1), clamp=RELU), ("widen.y",)),
    ("average", GlobalAvgPool(), ("mix.y",)),
    ("flatten", Reshape((1, 64)), ("average.y",)),
    ("classify", Gemm(10), ("flatten.y",)),
)


def chain(layers: tuple[tuple[str, Op, tuple[str, ...]], ...], name: str, shape: tuple[int, ...]) -> Graph:
    """A quantized graph of (name, operator, input tensors); every layer NAME writes tensor NAME.y."""
    tensors, constants, nodes = {"x": Tensor("x", shape, SCHEME)}, {}, []
    for layer, op, inputs in layers:
        shapes = tuple(tensors[t].shape for t in inputs)
        params = []
        for label, size in zip(("weight", "bias"), op.param_shapes(shapes), strict=False):
            kind = np.dtype(np.int8 if label == "weight" else np.int32)
            params.append(f"{layer}.{label}")
            constants[params[-1]] = Constant(
                params[-1], np.zeros(size, kind), Scheme(kind.itemsize * 8, True, (-6,) * size[0], axis=0)
            )
        nodes.append(Node(layer, op, inputs, tuple(params), f"{layer}.y"))
        tensors[f"{layer}.y"] = Tensor(f"{layer}.y", op.infer(shapes), SCHEME)
    return Graph(name, ("x",), (nodes[-1].output,), tuple(nodes), tensors, constants)


def graph(name: str = "fashion-residual") -> Graph:
    return chain(LAYERS, name, (1, 1, 28, 28))


PLACES = dict(zip((layer[0] for layer in LAYERS), ("fpga",) * 5 + ("split", "gpu") + ("cpu",) * 3, strict=True))
SPLIT = Split(Axis.OUTPUT_CHANNELS, (Piece("gpu", 0, 48), Piece("fpga", 48, 64)))


def plan(model: str = "fashion-residual") -> Plan:
    nodes = []
    for i, (name, place) in enumerate(PLACES.items()):
        compute, transfer = 20e-6 + 7e-6 * i, 31e-6 if name in ("widen", "average") else 0.0
        area = {"fpga": {"alm": 1830.0 + 100 * i, "m20k": 2.0}} if place in ("fpga", "split") else {}
        nodes.append(
            NodeCost(
                name,
                compute + transfer,
                compute,
                transfer,
                0.1e-3 * (i + 1),
                3136 if transfer else 0,
                area,
                (compute * 0.9, compute * 1.2),
                name == "classify",
                "own engines, cycle formula" if place == "fpga" else "fit of TX2 measurements, 2021",
                why=f"transfer {transfer * 1e6:.0f} µs < saving {compute * 2e6:.0f} µs" if transfer else "",
            )
        )
    latency = sum(n.latency_s for n in nodes)
    return Plan(
        model,
        "tx2-c10gx",
        Goal.LATENCY,
        Mode.CONCURRENT,
        "exact",
        Status.OPTIMAL,
        {n: SPLIT if p == "split" else whole_on(p) for n, p in PLACES.items()},
        tuple(nodes),
        latency,
        latency,
        latency,
        sum(n.energy_j for n in nodes),
        {"fpga": {"alm": (12_480.0, 80_330.0), "m20k": (14.0, 587.0), "dsp": (0.0, 192.0)}},
        baselines={"cpu": 4.1e-3, "gpu": 1.62e-3, "fpga": None, "greedy": 0.98e-3, "balanced": 1.2e-3, "random": 6.4e-3},
        makespan_s=latency,
        interval_s=400e-6,
        busy_s={"gpu": 400e-6, "pcie:cpu>fpga": 62e-6},
        intervals={"objective": (latency * 0.9, latency * 1.2), "latency_s": (latency * 0.9, latency * 1.2),
                   "energy_j": (5e-3, 6e-3), "interval_s": (360e-6, 480e-6)},
        limited_by=LimitedBy("layer", "classify", 0.144, 560e-6,
                             "a 25 % faster cpu would save 2.95 % of the latency, this plan kept"),
    )


def platform() -> Platform:
    c10gx = {"alm": 80_330.0, "m20k": 587.0, "dsp": 192.0}
    return Platform(
        "tx2-c10gx",
        "Jetson TX2 joined to a Cyclone 10 GX over PCIe",
        "cpu",
        (
            Device(
                "cpu",
                Kind.CPU,
                "ARM Cortex-A57, 4 cores",
                "tx2_cpu",
                0.5,
                3.2,
                2.0e9,
                sources={"idle_power_w": "assumed: one core awake", "busy_power_w": "measured on the TX2 rails, 2021"},
            ),
            Device(
                "gpu",
                Kind.GPU,
                "Pascal, 256 cores",
                "tx2_gpu",
                0.3,
                6.1,
                1.3e9,
                sources={"busy_power_w": "measured on the TX2 rails, 2021"},
            ),
            Device(
                "fpga",
                Kind.FPGA,
                "Intel Cyclone 10 GX 10CX220",
                "dhm",
                1.1,
                2.4,
                150e6,
                "cyclone10gx",
                c10gx,
                sources={"resources.alm": "Intel C10GX51001, table 2", "clock_hz": "assumed"},
            ),
        ),
        (
            Link(
                "pcie",
                ("cpu", "fpga"),
                1.5e9,
                8e-6,
                60e-12,
                sources={"energy_j_per_byte": "assumed", "latency_s": "fit of PCIe measurements"},
            ),
            Link("memory", ("cpu", "gpu"), 20e9, 1e-6, 20e-12, shared_memory=True),
        ),
    )


def timeline() -> Timeline:
    tasks: list[Task] = [Task("x to fpga", "pcie cpu→fpga", "transfer", "stem", 0.0, 9e-6, 784)]
    now = 9e-6
    for cost in plan().nodes:
        place = PLACES[cost.node]
        if cost.transfer_s:
            tasks.append(
                Task(
                    f"{cost.node} input", "pcie fpga→cpu", "transfer", cost.node, now, now + cost.transfer_s, cost.transfer_bytes
                )
            )
            now += cost.transfer_s
        devices = SPLIT.devices if place == "split" else (place,)
        tasks += [
            Task(cost.node, d, "compute", cost.node, now, now + cost.compute_s * (1 if i == 0 else 0.8))
            for i, d in enumerate(devices)
        ]
        now += cost.compute_s
    return Timeline(
        tuple(tasks),
        (
            Buffer("pool.y", "cpu", 784, 0.0, 4e-4),
            Buffer("widen.y", "cpu", 3136, 3e-4, 5e-4),
            Buffer("stem.y", "fpga", 3136, 1e-5, 1e-4),
        ),
    )


def design() -> Design:
    return Design(
        "segment0",
        {"segment0.v": "module segment0;\nendmodule\n", "line_buffer.v": "module line_buffer;\nendmodule"},
        (),
        (),
        (Fifo("skip_stem", 128, 64), Fifo("out_pool", 128, 16)),
        adders=1134,
        latency_cycles=912,
        interval_cycles=784,
    )


def extras() -> dict[str, object]:
    return {
        "quantization": {"calibration": "training.npz, 256 samples"},
        "segments": [
            {
                "name": "fpga0",
                "device": "fpga",
                "backend": "verilator",
                "nodes": ["stem", "block1.depthwise", "block1.pointwise", "block1.add", "pool"],
                "note": "",
            },
            {
                "name": "gpu0",
                "device": "gpu",
                "backend": "emulated",
                "nodes": ["widen[0:48]", "mix"],
                "note": "no GPU kernels in this build",
            },
            {"name": "cpu0", "device": "cpu", "backend": "onnxruntime", "nodes": ["average", "flatten", "classify"], "note": ""},
        ],
        "designs": [describe_design(design(), device="fpga", segment="fpga0", clock_hz=150e6, high_water={"skip_stem": 61})],
        "circuits": [{"system": "boards0", "circuits": ["x: fpga0 > fpga1, 18 cells per frame"],
                      "slots": ["frames of 16 time slots carry a frame of the network in 18 clocks of a link",
                                "x: 16 of 16 slots; serial0 from fpga0 in 0, 1, 2"]}],
        "synthesis": [
            {
                "device": "fpga",
                "segment": "fpga0",
                "family": "cyclone10gx",
                "tool": "yosys 0.60",
                "resources": {"alm": 11_902, "m20k": 13},
                "fmax_hz": None,
                "wall_s": 41.2,
                "notes": ["synth_intel_alm; not placed"],
            }
        ],
        "power": [
            {
                "segment": "fpga0",
                "toggles_per_clock": 0.085,
                "activity": 0.24,
                "planned_activity": 0.125,
                "energy_low_j": 4.3e-7,
                "energy_high_j": 4.5e-7,
                "planned_energy_j": 2.3e-7,
                "source": "power model; toggles counted by Verilator over 16 frames (calibration.npz)",
            }
        ],
        "measured": {
            "frames": 64,
            "in_flight": 8,
            "wall_s": 0.32,
            "frames_per_s": 200.0,
            "planned": {"latency_s": 1e-4, "frames_per_s": 18_000.0},
            "virtual_frames_per_s": 17_900.0,
            "stages": [{"name": "fpga0", "device": "fpga", "backend": "verilator", "frame_s": 4e-3, "planned_s": 1.2e-5,
                        "clocks": {"one_frame": 926, "interval": 813}},
                       {"name": "cpu0", "device": "cpu", "backend": "onnxruntime", "frame_s": 4e-4, "planned_s": 5e-5,
                        "clocks": None}],
            "failures": [],
        },
        "verification": {"equal": True, "frames": 64, "tensors_compared": 320, "first_mismatch": None, "clocks": {}},
        "provenance": {
            "model_file": "examples/fashion/model.onnx",
            "model_sha256": "9f" * 32,
            "versions": {"dovetail": "0.1.0", "onnxruntime": "1.20.0", "verilator": "5.032", "yosys": "0.60"},
            "warnings": ["classify: cost extrapolated beyond the fitted range"],
            "commands": ["dovetail compile model.onnx -p tx2-c10gx -o build/", "dovetail verify build/"],
        },
    }


def hostile(name: str) -> tuple[Graph, Plan]:
    """The sample under another model name and with the same text as name of its first layer."""
    renamed = tuple(
        (name if layer == "stem" else layer, op, tuple(f"{name}.y" if t == "stem.y" else t for t in inputs))
        for layer, op, inputs in LAYERS
    )
    judged = plan(name)
    nodes = tuple(replace(c, node=name, why=name, source=name) if c.node == "stem" else c for c in judged.nodes)
    assignment = {name if k == "stem" else k: v for k, v in judged.assignment.items()}
    return chain(renamed, name, (1, 1, 28, 28)), replace(judged, nodes=nodes, assignment=assignment, notes=(name,))
