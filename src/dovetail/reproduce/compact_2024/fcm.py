"""Compact DNNs 2024, paper III: fused convolutional modules on a GPU, its claims beside what ours reach.

Times come from a file that bench/gpu_fcm.py writes on a machine with a GPU; one of an NVIDIA H200 comes
along. TVM is not measured: PyTorch's compiler (torch.compile, max-autotune) stands in for it, and where that was not run,
nothing does. What fusion of pairs is worth is taken from the fused kernels alone, never from the better of both forms; whole
networks, in which every layer has the form that was faster, are figures of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any

from dovetail.errors import UsageError
from dovetail.reproduce.compact_2024 import pairs as fused_pairs
from dovetail.terminal import table

CLAIMS = {
    "layer by layer": "up to 1.8x over the authors' own layer-by-layer kernels",
    "cuDNN": "up to 3.7x over the best cuDNN layers",
    "compiler": "up to 1.8x end to end over TVM",
    "energy": "down to 34 % of TVM's energy per image"}
"""As the paper prints them."""
WHY = (
    "Fusing two layers saves a launch and a trip through memory. On an H200 a launch that overlaps the kernel before it costs "
    "about one microsecond and a compact network's tensors stay in the second-level cache at batch 1, so fused pairs rarely "
    "beat our own layers apart; the paper's GPUs have dearer launches and slower memory, where its authors gain. At batch 64 "
    "tensors fit no cache, and whole inverted residuals in registers take 0.28 to 0.47 of our layers apart (MobileNetV2's blocks "
    "2 to 4, docs/method/gpu-findings.md).",
    "cuDNN's layers are alone in a CUDA graph with BatchNorm folded; most of its time at batch 1 is waiting, which our tiles, "
    "overlapping launches and one division of the first-level cache avoid.",
    "PyTorch's compiler stands in for TVM; energies are of the whole card by NVML.",
)


def reproduce(record: Path | None = None) -> dict[str, Any]:
    """The claims with ours beside them; `record` is a file of bench/gpu_fcm.py, else the one that comes along."""
    measured = _read(record)
    networks = list(_networks(measured))
    over_cudnn = list(_ratios(networks, "cudnn_us", "ours_us"))
    return {
        "paper": "compact-2024", "part": "fcm", "gpu": measured["gpu"], "date": measured["date"], "claims": CLAIMS,
        "pairs": [_pairs_told(kind, batch, list(found["pairs"].values()))
                  for kind, each in measured.get("pairs", {}).items() for batch, found in each.items()],
        "network_over_cudnn": _of(max, iter(over_cudnn)),
        "network_over_cudnn_median": median(r for r, _ in over_cudnn) if over_cudnn else None,
        "network_over_compiler": _of(max, _ratios(networks, "compile_us", "ours_us")),
        "energy_of_compiler": _of(min, _ratios(networks, "ours_mj", "compile_mj")),
        "energy_of_cudnn": _of(min, _ratios(networks, "ours_mj", "cudnn_mj")),
        "networks": [{"network": n, "arithmetic": k, "images": int(b[1:]), **{key: one.get(key) for key in (
            "ours_us", "cudnn_us", "compile_us", "floor_us", "rel_err", "cudnn_rel_err", "ours_mj", "cudnn_mj", "compile_mj",
            "kernels", "fused")}} for n, k, b, one in networks],
        "fused_modules": fused_pairs.modules(), "why": list(WHY)}


PAIR_RATIOS = {"fused_over_apart": ("apart_us", "fused_us"), "fused_over_cudnn": ("cudnn_us", "fused_us"),
               "apart_over_cudnn": ("cudnn_us", "apart_us")}
"""Whose time is divided by whose."""


def _pairs_told(kind: str, batch: str, pairs: list[Mapping[str, float]]) -> dict[str, Any]:
    """What fusion gives over all pairs of a kind: best, median and lowest, and how many are faster fused."""
    ratios = {name: [pair[above] / pair[below] for pair in pairs] for name, (above, below) in PAIR_RATIOS.items()}
    return {"arithmetic": kind, "images": int(batch[1:]), "pairs": len(pairs),
            "faster_fused": sum(r > 1 for r in ratios["fused_over_apart"]),
            **{name: {"best": max(found), "median": median(found), "lowest": min(found)} for name, found in ratios.items()}}


def verdict(pairs: Mapping[str, Any], gpu: str) -> str:
    """In words, whether fusing pairs gains or loses."""
    mostly = "loses" if 2 * pairs["faster_fused"] < pairs["pairs"] else "gains"
    return (f"Fusion of pairs mostly {mostly} at batch {pairs['images']} on {gpu} ({pairs['arithmetic']}): faster fused than as "
            f"our own layers apart: {pairs['faster_fused']} of {pairs['pairs']}; in the median "
            f"{pairs['fused_over_apart']['median']:.2f} times as fast.")


def _read(record: Path | None) -> dict[str, Any]:
    where = record or resources.files("dovetail.reproduce").joinpath("records").joinpath("gpu_fcm.json")
    try:
        found: dict[str, Any] = json.loads(where.read_text("utf-8"))
        for key in ("gpu", "date"):
            found[key]
        list(_networks(found))
        for each in found.get("pairs", {}).values():
            for one in each.values():
                [pair[key] for pair in one["pairs"].values() for key in ("fused_us", "apart_us", "cudnn_us")]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise UsageError(f"{where}: not a file of measurements; make one with bench/gpu_fcm.py --json FILE") from None
    return found


def _networks(measured: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    for name, kinds in measured["networks"].items():
        for kind, batches in kinds.items():
            for batch, one in sorted(batches.items(), key=lambda each: int(each[0][1:])):
                if one.get("ours_us") is not None:
                    yield name, kind, batch, one


def _ratios(networks: list[tuple[str, str, str, Mapping[str, Any]]], above: str, below: str) -> Iterator[tuple[float, str]]:
    for name, kind, batch, one in networks:
        if one.get(above) and one.get(below):
            yield one[above] / one[below], f"{name} {kind} {batch}"


def _of(choose: Callable[..., tuple[float, str] | None], found: Iterator[tuple[float, str]]) -> dict[str, Any] | None:
    """The largest or smallest value, by `choose`, and where it was found; None where nothing was."""
    one = choose(found, default=None)
    return None if one is None else {"value": one[0], "where": one[1]}


def text(document: Mapping[str, Any]) -> str:
    """Claims and networks as tables, then why they differ."""
    def told(key: str, form: str) -> str:
        one = document[key]
        return "not measured in this record" if one is None else form.format(one["value"]) + f" ({one['where']})"

    claims = [
        ["layer by layer", CLAIMS["layer by layer"], _fused(document, "fused_over_apart")],
        ["cuDNN", CLAIMS["cuDNN"], _fused(document, "fused_over_cudnn")],
        ["cuDNN, networks", "-", f"best {told('network_over_cudnn', '{:.2f}x')}" + (
            f", median {document['network_over_cudnn_median']:.2f}x" if document["network_over_cudnn"] else "")],
        ["compiler", CLAIMS["compiler"], f"over torch.compile: {told('network_over_compiler', '{:.2f}x')}"],
        ["energy", CLAIMS["energy"], f"of torch.compile's: {told('energy_of_compiler', '{:.0%}')}; of cuDNN's: "
                                     f"{told('energy_of_cudnn', '{:.0%}')}"]]
    rows = [[n["network"], n["arithmetic"], str(n["images"]), f"{n['ours_us']:.1f}", _number(n["cudnn_us"]),
             _number(n["compile_us"]), f"{n['cudnn_us'] / n['ours_us']:.2f}x" if n["cudnn_us"] else "",
             *(_number(n[key]) for key in ("floor_us", "ours_mj", "cudnn_mj"))] for n in document["networks"]]
    return "\n".join([
        f"Compact DNNs 2024, paper III: fused modules; ours on {document['gpu']}, {document['date']}", "",
        table(["against", "the paper", "ours"], claims), "", *_pair_lines(document),
        fused_pairs.text(document["fused_modules"]),
        table(["network", "type", "batch", "ours us", "cuDNN us", "compiler us", "over cuDNN", "floor us", "ours mJ", "cuDNN mJ"],
              rows, range(2, 10)), "", *(f"  {sentence}" for sentence in document["why"])])


def _fused(document: Mapping[str, Any], ratio: str) -> str:
    """Fused pairs alone, whichever form is faster."""
    told = [f"fused pairs, {p['arithmetic']} b{p['images']}: " + ", ".join(f"{which} {x:.2f}x" for which, x in p[ratio].items())
            for p in document["pairs"]]
    return "; ".join(told) or "not measured in this record"


def _pair_lines(document: Mapping[str, Any]) -> list[str]:
    if not document["pairs"]:
        return []
    rows = [[f"{p['arithmetic']} b{p['images']}", f"{p['faster_fused']} of {p['pairs']}",
             *(f"{p[ratio][which]:.2f}x" for ratio in PAIR_RATIOS for which in ("best", "median"))] for p in document["pairs"]]
    head = ["pairs of layers", "faster fused", *(name for ratio in PAIR_RATIOS for name in (ratio.replace("_", " "), "median"))]
    return [table(head, rows, range(1, 8)), *(verdict(p, document["gpu"]) for p in document["pairs"]), ""]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
