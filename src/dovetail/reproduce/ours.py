"""Our values of every item that has some, in the order in which items/PAPER.toml names them.

Each is found in the documents of the paper's parts, by the part's name. What a run did not compute raises KeyError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from dovetail.numerics.lq import weight_values
from dovetail.numerics.lq_alexnet import lq_alexnet
from dovetail.platform.device import Kind
from dovetail.platform.load import load_platform
from dovetail.reproduce.lq_2020.boards import waiting_clocks
from dovetail.reproduce.lq_2020.layers import FLOAT_FOLDS
from dovetail.zoo import build

Documents = Mapping[str, Mapping[str, Any]]
"""What the parts of a paper computed, by the part's name."""
Find = Callable[[Documents], Sequence[float | None]]
WHOLE = "all"
"""The part of papers that have one only."""


def _by(rows: Iterable[Mapping[str, Any]], *keys: str) -> dict[Any, Mapping[str, Any]]:
    """Rows by one key, or by several as a tuple."""
    return {row[keys[0]] if len(keys) == 1 else tuple(row[k] for k in keys): row for row in rows}


def _less(gain: float | None) -> float | None:
    """A gain as percent less."""
    return None if gain is None else 100 * (1 - 1 / gain)


FIRE, BOTTLENECK = "Fire", "Bottleneck 0.5x"
UNITS = ("Shuffle reduction 0.5x", "Shuffle basic 0.5x")


def _block(documents: Documents, name: str) -> Mapping[str, Any]:
    return _by(documents["figure 4"]["blocks"], "block")[name]


def _single(key: str) -> Find:
    """Figure 1: gains of two layers, by time or energy."""
    def find(documents: Documents) -> Sequence[float | None]:
        rows = _by(documents["figure 1"]["layers"], "filters", "kernel")
        return [rows[filters, 5]["gain"][key] for filters in (16, 64)]
    return find


def _means(name: str) -> Find:
    """Figure 4: latency and energy of a block, GPU alone and by hand, mean over sizes."""
    def find(documents: Documents) -> Sequence[float | None]:
        rows = _block(documents, name)["sizes"]
        return [1e3 * fmean(r[side][key] for r in rows) for key in ("latency", "energy") for side in ("gpu", "hand")]
    return find


def _gains(documents: Documents, which: str, pairs: Iterable[tuple[str, str]]) -> list[float | None]:
    return [_block(documents, block)[which][key] for block, key in pairs]


def _range(documents: Documents, name: str, key: str) -> list[float]:
    """Least and most percent by which the authors' partition lowers something, over sizes."""
    found = [100 * (1 - r["hand"][key] / r["gpu"][key]) for r in _block(documents, name)["sizes"]]
    return [min(found), max(found)]


def _faster_on_fpga(documents: Documents) -> Sequence[float]:
    rows = [r["gain"] for r in documents["figure 1"]["layers"] if r["fpga"]["fits"]]
    return [100 * fmean(r[key] > 1 for r in rows) for key in ("latency_s", "energy_j")]


def _link_rate(_: Documents) -> Sequence[float]:
    return [next(x for x in load_platform("tx2-c10gx").links if "fpga" in x.ends).bandwidth_bytes_per_s / 1e9]


def _whole_modules(documents: Documents) -> Sequence[float]:
    """Percent of a network's modules whose nodes the FPGA holds as the authors divide them."""
    networks = documents["figure 4"]["networks"]
    return [100 * fmean(m["hand"]["fits"] for m in networks[name]["modules"])
            for name in ("squeezenet1.1", "mobilenet-v2-0.5", "shufflenet-v2-0.5")]


def _better_blocks(documents: Documents) -> Sequence[float]:
    return [100 * fmean(any((g or 0) > 1 for g in b["gain"].values()) for b in documents["figure 4"]["blocks"])]


BOTH_UNITS = {key: [(unit, key) for unit in UNITS] for key in ("energy", "latency")}
HETEROGENEITY: dict[str, Find] = {
    "Figure 1a": _single("latency_s"), "Figure 1b": _single("energy_j"),
    "Figure 4a": _means(FIRE), "Figure 4b": _means(BOTTLENECK), "Figure 4c": _means(UNITS[0]),
    "Table I": lambda d: _gains(d, "gain", [*((block, key) for block in (FIRE, BOTTLENECK) for key in ("energy", "latency")),
                                            *BOTH_UNITS["energy"], *BOTH_UNITS["latency"]]),
    "Abstract, SqueezeNet": lambda d: [*_range(d, FIRE, "energy"), _less(_block(d, FIRE)["gain"]["latency"])],
    "Abstract, MobileNetV2": lambda d: [*_range(d, BOTTLENECK, "energy"), *_range(d, BOTTLENECK, "latency")],
    "Abstract, ShuffleNetV2": lambda d: [*map(_less, _gains(d, "gain", BOTH_UNITS["energy"] + BOTH_UNITS["latency"]))],
    "Abstract, direct mapping": _faster_on_fpga,
    "Section V, SqueezeNet": lambda d: [_less(_block(d, FIRE)["best_gain"]["energy"])],
    "Section V, MobileNetV2": lambda d: [_less(_block(d, BOTTLENECK)["best_gain"][key]) for key in ("latency", "energy")],
    "Section V, ShuffleNetV2": lambda d: [*map(_less, _gains(d, "best_gain", BOTH_UNITS["latency"] + BOTH_UNITS["energy"]))],
    "Section III, limit": lambda d: [d["figure 1"]["limit"][whose]["5x5"] for whose in ("authors_rows", "ours")],
    "Section V, every layer": _whole_modules, "Section V, link": _link_rate, "Conclusion": _better_blocks}

NETWORKS = ("AlexNet", "VGG16", "ResNet18")


def _network(documents: Documents, name: str, limited: bool) -> Mapping[str, Any]:
    """Figure 9 of a network on a streaming FPGA, the first within its area or without limits."""
    return _by(reversed(documents[WHOLE]["figure_9"]), "network", "fpga", "area_limited")[name, "streaming", limited]


def _share(layer: Mapping[str, Any], device: str) -> float:
    return 100 * float(layer["filters"].get(device, 0) / sum(layer["filters"].values()))


def _first(limited: bool, *networks: str) -> Find:
    """Figure 9: percent of the first layer's filters on the FPGA."""
    return lambda d: [_share(_network(d, n, limited)["layers"][0], "fpga") for n in networks]


def _energy(documents: Documents, power: str, name: str) -> Mapping[str, Any]:
    return _by(documents[WHOLE]["energy"], "network", "power")[name, power]


def _reading(documents: Documents, devices: int, fpga: str, limited: bool) -> Mapping[str, Any]:
    return next(r for r in documents[WHOLE]["readings_of_printed_filters"]
                if (len(r["devices"]), r["fpga"], r["area_limited"]) == (devices, fpga, limited))


def _example(documents: Documents) -> Sequence[float]:
    found = documents[WHOLE]["figure_3_and_4"]
    return [*found["channels"], found["iteration"], found["alpha"]]


GEOMETRIC: dict[str, Find] = {
    "Figure 3": _example, "Figure 4": lambda d: [d[WHOLE]["figure_3_and_4"]["us"]],
    "Figure 5": lambda d: d[WHOLE]["figure_5"]["channels"],
    "Figure 7": lambda d: [d[WHOLE]["figure_7"]["100"][19]], "Figure 8": lambda d: [d[WHOLE]["figure_8"]["100"]],
    "Figure 9a": _first(True, "AlexNet"), "Figure 9b": _first(True, "VGG16"), "Figure 9c": _first(True, "ResNet18"),
    "Table 1": lambda d: [g for n in NETWORKS for g in _network(d, n, False)["gain_over_cpu"]["paid"]],
    "Abstract, latency": lambda d: [_network(d, n, True)["gain_over_balanced"] for n in NETWORKS],
    "Abstract, energy": lambda d: [_energy(d, "rows", n)["gain_over_balanced"] for n in NETWORKS],
    "Section 5.1, solve time": lambda d: [1e3 * d[WHOLE]["figure_3_and_4"]["solve_s"]],
    "Section 5.2, first layer": lambda d: [_reading(d, n, "streaming", False)["first_on_fpga"] for n in (3, 2)],
    "Section 5.2, deep layers": lambda d: [_reading(d, 3, "streaming", True)["last_on_gpu"]],
    "Section 5.2, over 80 %": _first(False, *NETWORKS),
    "Section 5.2, energy": lambda d: [g for n in NETWORKS for g in _energy(d, "constant", n)["gain_over_cpu"]]}


def _alexnet(_: Documents) -> Sequence[float]:
    graph = lq_alexnet()
    return [graph.parameters / 1e6, 2 * graph.macs / 1e9]


def _sizes(_: Documents) -> Sequence[float]:
    (fpga,) = load_platform("fic:1").of_kind(Kind.FPGA)
    return [len(build("squeezenet1.0")) / 1e6, fpga.resources["bram36"] * 36 * 1024 / 8e6]


def _places(documents: Documents) -> Sequence[float]:
    """Side of Figure 4.8's output, as simulated where it was."""
    found = documents[WHOLE]["figure_4_8"]
    return [min((run["places"] for run in found.get("simulated", {}).values()), default=found["places"]) ** 0.5]


def _example_code(_: Documents) -> Sequence[float]:
    """Levels of the basis 0.5, 1.1 from below, and the one nearest to 0.7."""
    levels = np.sort(weight_values(np.arange(4, dtype=np.uint8).reshape(1, 4), np.asarray([[0.5, 1.1]])).ravel())
    return [*levels[:2].tolist(), float(levels[np.abs(levels - 0.7).argmin()])]


def _datapath(form: str) -> Find:
    return lambda d: [d[WHOLE]["measured"]["datapaths"][f"5x5, 8 to 4: {form}"]["xcup"]["lut"]]


def _layer(documents: Documents, name: str) -> Mapping[str, Any]:
    return _by(documents[WHOLE]["one_board"], "layer")[name]


def _cut(documents: Documents) -> Sequence[float]:
    found = documents[WHOLE]["measured"]["full_cut"]
    return [len(found["layers"]), found["values"] if found["bit_exact"] else 0]


def _conv2_parts(documents: Documents) -> Sequence[float]:
    parts = documents[WHOLE]["measured"]["alexnet_conv2_cycles"]["parts_of_xcku095"]
    return [100 * parts[key] for key in ("bram", "lut", "dsp")]


def _conv2_logic(documents: Documents) -> Sequence[float]:
    """Registers and LUT of layer 2, a product a clock, in FP32 and by look-ups."""
    floats = _by(documents[WHOLE]["float_layers"], "row", "fold")
    return [100 * floats[row, next(iter(FLOAT_FOLDS))][f"{key}_part"] for row in ("trad_2", "pps_2") for key in ("ff", "lut")]


def _folds(documents: Documents) -> Sequence[float]:
    cycles = [row["cycles"] for row in documents[WHOLE]["conv2_folds"]]
    return [100 * min(cycles) / max(cycles)]


def _whole(documents: Documents) -> Sequence[float]:
    found = documents[WHOLE]["measured"]["full_network"]
    return [len(found["layers"]), found["values_compared"] if found["bit_exact"] and found["first_wrong"] is None else 0]


def _links(documents: Documents) -> Sequence[float]:
    """Cells of the busiest link as planned, and what a simulated frame waits for links."""
    row, run = (documents[WHOLE]["measured"][key] for key in ("fic", "full_network"))
    return [100 * row["3"]["cells_of_busiest_link"] / row["3"]["pace_clocks"],
            100 * sum(waiting_clocks(run).values()) / run["frame_cycles"][0]]


def _bits(key: str) -> Find:
    """Layer 2 and networks of three widths."""
    def find(documents: Documents) -> Sequence[float | None]:
        rows = _by(documents[WHOLE]["conv2_bits"], "weights", "activations")
        return [rows[bits][key] for bits in ((1, 2), (2, 2), (3, 3))]
    return find


def _convolutions(documents: Documents) -> Sequence[float]:
    rows = [r for r in documents[WHOLE]["one_board"] if r["layer"].startswith("conv")]
    return [100 * max(r[key] for r in rows) for key in ("bram", "lut")]


def _floats(key: str, *rows: str, scale: float = 1.0) -> Find:
    """A figure of layers in floats, each at both folds."""
    def find(documents: Documents) -> Sequence[float]:
        found = _by(documents[WHOLE]["float_layers"], "row", "fold")
        return [scale * found[row, fold][key] for row in rows for fold in FLOAT_FOLDS]
    return find


def _float_parts(row: str) -> Find:
    """BRAM, LUT and DSP of a layer in floats that makes a product a clock, as percent of a board."""
    def find(documents: Documents) -> Sequence[float]:
        found = _by(documents[WHOLE]["float_layers"], "row", "fold")[row, next(iter(FLOAT_FOLDS))]
        return [100 * found[f"{key}_part"] for key in ("bram", "lut", "dsp")]
    return find


def _of_floats(key: str, layer: int) -> Find:
    """Percent of FP32's that the proposal takes, at both folds."""
    def find(documents: Documents) -> Sequence[float]:
        ours, theirs = (_floats(key, f"{form}_{layer}")(documents) for form in ("pps", "trad"))
        return [100 * (a or 0) / (b or 1) for a, b in zip(ours, theirs, strict=True)]
    return find


CODES: dict[str, Find] = {
    "Figure 2.8": _alexnet, "Figure 3.1": _sizes, "Figure 3.2": lambda _: [int(np.float32(20_422_242).view(np.uint32))],
    "Figure 4.2": _datapath("mux"), "Figure 4.3": _datapath("table"), "Figure 4.4": _datapath("popcount"),
    "Figure 4.8": _places, "Figure 4.10": _cut,
    "Figure 5.1a": _float_parts("trad_1"), "Figure 5.1b": _float_parts("pps_1"), "Figure 5.1c": _float_parts("trad_2"),
    "Figure 5.1d": lambda d: [*_float_parts("pps_2")(d), *_conv2_parts(d)],
    "Table 5.1, layer 2 to a third": _of_floats("bram", 2),
    "Table 5.1, layer 2 in float32": _floats("bram_part", "trad_2", scale=100),
    "Table 4.1": _folds, "Table 5.1, logic": _conv2_logic,
    "Table 5.2, trad_1": _floats("clocks", "trad_1"), "Table 5.2, trad_2": _floats("clocks", "trad_2"),
    "Table 5.2, pps_1": lambda d: [*_floats("clocks", "pps_1")(d), _layer(d, "conv1")["pace_clocks"]],
    "Table 5.2, pps_2": lambda d: [*_floats("clocks", "pps_2")(d), d[WHOLE]["measured"]["alexnet_conv2_cycles"]["value"]],
    "Section 5.2, layer 1": _of_floats("clocks", 1), "Section 5.2, layer 2": lambda d: _of_floats("clocks", 2)(d)[:1],
    "Abstract, BRAM and latency": lambda d: [_of_floats(key, 2)(d)[0] for key in ("bram", "clocks")],
    "Section 4.1.2, one layer": _convolutions, "Section 4.1.2, boards": lambda d: [d[WHOLE]["boards"]["fic"]["least_by_memory"]],
    "Section 4.1.1, example": _example_code, "Abstract, links": _links, "Conclusion, whole AlexNet": _whole,
    "Abstract, bits and resources": _bits("lut"), "Abstract, bits and accuracy": _bits("accuracy")}


def _highest(claim: str, what: str) -> Find:
    return lambda d: [max(d["fibha"]["ours"][claim][what].values())]


def _described(kind: str, *networks: str) -> Find:
    """How many times faster the thesis's hybrid is than its own baseline, both as it describes them."""
    return lambda d: [d["fibha"]["described"]["zcu102"][n][kind] for n in networks]


def _inverted(what: str) -> Find:
    return lambda d: [100 * (1 - d["fibha"]["ours"]["FIRB"][what][f"features.{i}.depthwise.conv"]) for i in (3, 12)]


def _map_buffers(documents: Documents) -> Sequence[float]:
    found = documents["fibha"]["ours"]["buffers"]
    return [100 * (1 - min(found[what].values())) for what in (
        "bytes of memories of maps, against SEML with all maps on the chip", "against monolithic with all maps on the chip")]


def _map_traffic(documents: Documents) -> Sequence[float]:
    return [documents["fibha"]["boards"][b]["mobilenet-v2"]["fibha"]["offchip_map_bytes"] / 1e6 for b in ("zc706", "kcu105")]


def _energies(documents: Documents) -> Sequence[float]:
    found = documents["fibha"]["ours"]["energy"]
    return [100 * (max(found[what].values()) - 1) for what in ("frames per joule of the board, against SEML", "against SESL")]


def _gpus(documents: Documents) -> Sequence[float]:
    own = documents["fibha"]["boards"]["zcu102"]["mobilenet-v2"]["fibha"]["batch1_mj"]
    return [documents["fibha"]["gpus"]["mobilenet-v2"][gpu]["batch1_mj"] / own for gpu in ("tx2", "h200")]


def _pairs(ratio: str) -> Find:
    """The best of all fused modules in float32."""
    return lambda d: [max(m[ratio]["best"] for m in d["fcm"]["fused_modules"]["modules"] if m["arithmetic"] == "fp32")]


COMPACT: dict[str, Find] = {
    "Abstract, throughput": lambda d: [max(d["fibha"]["ours"][f"over {kind}"]["frames/s"].values()) for kind in ("SEML", "SESL")],
    "Abstract, utilisation": _highest("utilisation", "multiplications per multiplier and clock"), "Abstract, energy": _energies,
    "Abstract, fused kernels": _pairs("fused_over_cudnn"), "Paper III, over layers apart": _pairs("fused_over_apart"),
    "Abstract, end to end": lambda d: [d["fcm"]["network_over_compiler"]["value"]],
    "Abstract, energy of kernels": lambda d: [100 * d["fcm"]["energy_of_compiler"]["value"]],
    "Paper I, over SEML": _described("over_seml", "mobilenet-v1", "mobilenet-v2", "proxylessnas-mobile"),
    "Paper I, over SESL": _described("over_sesl", "mobilenet-v2"),
    "Paper II, buffers for maps": _map_buffers, "Paper II, off-chip maps": _map_traffic,
    "Paper II, FIRB memory": _inverted("buffer bits, against three engines"),
    "Paper II, FIRB energy": _inverted("energy above idle, against three engines"),
    "Paper II, three boards": lambda d: [d["fibha"]["boards"][b]["mobilenet-v2"]["fibha"]["fps_200mhz"]
                                         for b in ("zc706", "kcu105", "zcu102")],
    "Paper II, two GPUs": _gpus}

OURS: dict[str, dict[str, Find]] = {
    "heterogeneity-2021": HETEROGENEITY, "gp-2023": GEOMETRIC, "lq-2020": CODES, "compact-2024": COMPACT}
