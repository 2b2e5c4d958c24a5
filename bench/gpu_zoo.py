"""Networks of torchvision on the GPU: whether all compile and agree with float64 (--check), and how fast twelve of them are.

    python bench/gpu_zoo.py --check --json FILE --minutes 4
    python bench/gpu_zoo.py --json FILE --minutes 30

Results are written as they come; a second call goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dovetail.gpu
from dovetail.gpu import pytorch
from dovetail.gpu.executor import compile_graph
from dovetail.ir import Graph
from lib.gpu import torchvision_zoo as zoo
from lib.gpu.timing import captured, device, gpu_is_here, timed_us

KINDS = {"float16": torch.float16, "float32": torch.float32, "bfloat16": torch.bfloat16}
WORKERS = 6
"""Processes that export side by side (chosen: each takes two threads and up to 4 GB)."""
OF_PEER = 1.5
"""How much larger than PyTorch's own an error may be (chosen: both round, in another order)."""
SMALL = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-6}
"""Errors that are as good as none: a few units in the last place of results."""


class Record:
    """Results in a file, written after every one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
        if gpu_is_here():
            self.held["machine"] = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"

    def put(self, part: str, name: str, row: dict[str, Any]) -> None:
        self.held.setdefault(part, {})[name] = row
        self.path.write_text(json.dumps(self.held, indent=1) + "\n")
        print(part, name, {k: v for k, v in row.items() if k != "library"}, flush=True)

    def has(self, part: str, name: str) -> bool:
        return "error" not in self.held.get(part, {}).get(name, {"error": ""})


def as_tuple(found: Any) -> tuple[torch.Tensor, ...]:
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def distance(found: Any, wanted: Any) -> float:
    """Relative distance of all results together, in the Euclidean norm."""
    both = [(np.asarray(f, np.float64), np.asarray(w, np.float64)) for f, w in zip(found, wanted, strict=True)]
    return float(np.sqrt(sum(np.sum((f - w) ** 2) for f, w in both) / sum(np.sum(w**2) for _, w in both)))


def peer_results(made: torch.nn.Module, frames: torch.Tensor, kind: torch.dtype) -> list[Any]:
    with torch.inference_mode():
        found = as_tuple(made.to(device(), kind)(frames.to(device(), kind)))
        return [f.double().cpu().numpy() for f in found]


def checked(name: str, graph: Graph, kind: str) -> dict[str, Any]:
    """Whether a network compiles and computes what float64 does, as far as PyTorch itself does; in bfloat16, where the network
    goes beyond float16 in PyTorch."""
    made, frames = zoo.module(name), zoo.frames_for(name)
    wanted = peer_results(made, frames, torch.float64)
    peer = distance(peer_results(zoo.module(name), frames, KINDS[kind]), wanted)
    if kind == "float16" and not np.isfinite(peer):
        return {**checked(name, graph, "bfloat16"), "kind": "bfloat16: PyTorch's results in float16 are not finite"}
    begun = time.perf_counter()
    network = compile_graph(graph, kind, tune=False)
    compiling = time.perf_counter() - begun
    found = network.run({graph.inputs[0]: frames.numpy()})
    ours = distance(list(found.values()), wanted)
    row: dict[str, Any] = {"ours": ours, "peer": peer, "agrees": bool(ours <= max(OF_PEER * peer, SMALL[kind])),
                           "compiling_s": round(compiling, 1), "kernels": len(network.calls), "library": list(network.library),
                           "library_nodes": len(network.library)}
    if gpu_is_here():
        half = zoo.module(name).to(device(), KINDS[kind]).to(memory_format=torch.channels_last)
        given = frames.to(device(), KINDS[kind]).to(memory_format=torch.channels_last)
        with torch.inference_mode():
            row |= {"untuned_us": timed_us(network.replay)[0], "eager_graph_us": timed_us(captured([lambda: half(given)]))[0]}
    return row


def exported_in_turn(names: list[str], until: float) -> Iterator[tuple[str, Graph | None, str]]:
    """Graphs of networks as they are ready."""
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(zoo.prepared, name) for name in names]
        try:
            for one in as_completed(waiting, timeout=max(1.0, until - time.perf_counter())):
                name, path, why, _ = one.result()
                yield name, None if path is None else zoo.unpacked(path), why
        except TimeoutError:
            print("the time is over", flush=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def attempt(row: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A row, or what went wrong, with where."""
    try:
        return row()
    except Exception as error:  # one network must not end the others
        where = traceback.extract_tb(error.__traceback__)[-1]
        return {"error": f"{type(error).__name__}: {str(error)[:300]}", "at": f"{Path(where.filename).name}:{where.lineno}"}


def check(record: Record, names: list[str], kinds: list[str], until: float) -> None:
    open_ones = [n for n in names if not all(record.has("check", f"{n} {k}") for k in kinds)]
    for name, graph, why in exported_in_turn(open_ones, until):
        for kind in kinds:
            if time.perf_counter() > until:
                return
            if not record.has("check", f"{name} {kind}"):
                row = {"error": f"export: {why}"} if graph is None else attempt(lambda g=graph, n=name, k=kind: checked(n, g, k))
                record.put("check", f"{name} {kind}", row)
    rows = record.held.get("check", {})
    bad = [n for n, r in rows.items() if "error" in r or not r["agrees"]]
    print(f"{len(rows)} checked, refused or failed {sum('error' in r for r in rows.values())}, open to question: {bad}")


def ours_us(name: str, images: int) -> dict[str, Any]:
    """A module on our kernels, from tensors on the GPU to tensors on the GPU, and how far it is from float64."""
    made, frames = zoo.module(name).to(device(), torch.float16), zoo.frames_for(name, images).to(device(), torch.float16)
    begun = time.perf_counter()
    own = pytorch.compile_module(made, frames)
    tuning_s, lane = time.perf_counter() - begun, own.network.lanes_for(True, False)[0]
    row = {"tuning_s": round(tuning_s, 1), "ours_us": timed_us(lane.replay)[0],
           "kernels": len(own.network.calls), "library_nodes": len(own.network.library),
           "joined_parts": sum(c.function is not None for c in own.network.program.choices.values())}
    with torch.no_grad():
        found = [f[:1].double().cpu().numpy() for f in as_tuple(own(frames))]
    return {**row, "distance": distance(found, peer_results(zoo.module(name), zoo.frames_for(name, images)[:1], torch.float64))}


def eager_us(name: str, images: int) -> dict[str, Any]:
    """PyTorch in a CUDA graph, cuDNN choosing its algorithms by time."""
    made, frames = laid_out(name, images)
    torch.backends.cudnn.benchmark = True
    with torch.inference_mode():
        return {"eager_graph_us": timed_us(captured([lambda: made(frames)]))[0]}


def compiled_us(name: str, images: int) -> dict[str, Any]:
    """torch.compile (max-autotune) in a CUDA graph of ours."""
    made, frames = laid_out(name, images)
    torch.backends.cudnn.benchmark = True
    with torch.inference_mode():
        begun = time.perf_counter()
        fast = torch.compile(made, mode="max-autotune-no-cudagraphs", fullgraph=True)
        for _ in range(3):
            fast(frames)
        return {"compiling_s": round(time.perf_counter() - begun, 1), "compile_us": timed_us(captured([lambda: fast(frames)]))[0]}


def laid_out(name: str, images: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """A module and frames in float16, pixel by pixel, as PyTorch advises for such GPUs."""
    made, frames = zoo.module(name).to(device(), torch.float16), zoo.frames_for(name, images).to(device(), torch.float16)
    return made.to(memory_format=torch.channels_last), frames.to(memory_format=torch.channels_last)


def time_all(record: Record, names: list[str], batches: list[int], compiles: bool, until: float) -> None:
    """Ours of all networks first, then the peers."""
    parts: dict[str, Callable[[str, int], dict[str, Any]]] = {"ours": ours_us, "eager": eager_us}
    if compiles:
        parts["compiled"] = compiled_us
    for images, (part, measure), name in product(batches, parts.items(), names):
        row = f"{name} b{images}"
        if time.perf_counter() < until and not record.has(part, row):
            record.put(part, row, attempt(partial(measure, name, images)))
            torch._dynamo.reset()
            torch.cuda.empty_cache()
    rows = {part: record.held.get(part, {}) for part in parts}
    for row in (f"{n} b{b}" for b in batches for n in names):
        found = {part: rows[part].get(row, {}) for part in parts}
        times = {key: value for one in found.values() for key, value in one.items() if key.endswith("_us")}
        if "ours_us" in times and len(times) > 1:
            best = min(value for key, value in times.items() if key != "ours_us")
            ratio = best / times["ours_us"]
            print(f"{row}: {times['ours_us']:.1f} us, best of {len(times) - 1} peers {best:.1f} us, {ratio:.2f} times")


def backend_row(name: str, kind: torch.dtype, images: int = 1) -> dict[str, Any]:
    """torch.compile with our backend beside its own and the module as it is: what each takes, and what ours differs by."""
    made, frames = zoo.module(name).to(device(), kind), zoo.frames_for(name, images).to(device(), kind)
    wanted = peer_results(zoo.module(name), zoo.frames_for(name, images), torch.float64)
    with torch.no_grad():
        begun = time.perf_counter()
        ours = pytorch.compile_module(made, frames)
        row: dict[str, Any] = {"seconds": round(time.perf_counter() - begun, 1), "summary": ours.summary()}
        for who, network in (("distance", ours), ("peer", made)):
            row[who] = distance([f.double().cpu().numpy() for f in as_tuple(network(frames))], wanted)
        if gpu_is_here():
            chosen = torch.compile(made, backend=pytorch.backend)
            chosen(frames)
            row |= {"ours_called_us": pytorch.median_s(lambda: ours(frames)) * 1e6,
                    "chosen_called_us": pytorch.median_s(lambda: chosen(frames)) * 1e6,
                    "eager_called_us": pytorch.median_s(lambda: made(frames)) * 1e6}
    return row


def host_row(name: str, graph: Graph, images: int) -> dict[str, Any]:
    """What calls of a network take right after it was tuned, one after another, beside its graph and copies."""
    network = compile_graph(graph, "float16", images)
    frames = {graph.inputs[0]: zoo.frames_for(name, images).numpy()}
    calls = []
    for _ in range(40):
        begun = time.perf_counter()
        network.run(frames)
        calls.append((time.perf_counter() - begun) * 1e6)
    row: dict[str, Any] = {"calls_us": [round(c, 1) for c in calls], "kernels_us": timed_us(network.replay)[0],
                           "with_copies_us": timed_us(network.lanes[0].replay)[0]}
    path = Path(tempfile.gettempdir()) / f"{name}.dovetail"
    begun = time.perf_counter()
    network.save(path)
    saved = time.perf_counter()
    again = dovetail.gpu.load(path)
    row |= {"saving_s": round(saved - begun, 2), "loading_s": round(time.perf_counter() - saved, 2),
            "same": bool(all(np.array_equal(a, b) for a, b in zip(network.run(frames).values(), again.run(frames).values(),
                                                                  strict=True))),
            "loaded_us": timed_us(again.replay)[0]}
    if gpu_is_here():
        given = {graph.inputs[0]: torch.from_numpy(frames[graph.inputs[0]]).cuda()}
        row["on_device_us"] = pytorch.median_s(lambda: network.run(given)) * 1e6
    return row


def smoke(record: Record, until: float) -> None:
    """A few rows of everything that a GPU alone shows."""
    for name, kind in (("mobilenet_v2", torch.float16), ("vit_b_16", torch.float16), ("mobilenet_v2", torch.bfloat16),
                       ("shufflenet_v2_x1_0", torch.float32)):
        row = f"{name} {str(kind).removeprefix('torch.')}"
        if time.perf_counter() < until and not record.has("backend", row):
            record.put("backend", row, attempt(lambda n=name, k=kind: backend_row(n, k)))
    for name, images in (("mobilenet_v2", 1), ("resnet50", 1)):
        if time.perf_counter() < until and not record.has("host", f"{name} b{images}"):
            graph = zoo.exported(zoo.module(name), zoo.frames_for(name))
            record.put("host", f"{name} b{images}", attempt(lambda n=name, g=graph, i=images: host_row(n, g, i)))
    if time.perf_counter() < until and not record.has("pipeline", "googlenet x8"):
        record.put("pipeline", "googlenet x8", attempt(pipelined))


def pipelined() -> dict[str, Any]:
    """GoogLeNet over GPU and CPU, eight frames together (`bench/runtime.py --device cuda` has the others)."""
    from lib.execution import pipelines
    from lib.execution.timing import Effort
    from runtime import integers
    folder = Path(tempfile.mkdtemp())
    return pipelines.case(integers("googlenet", folder), 8, pipelines.Here(not gpu_is_here()), os.cpu_count() or 1, Effort())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--check", action="store_true", help="compile all networks, untuned, and compare them with float64")
    parser.add_argument("--smoke", action="store_true", help="torch.compile's backend, calls from the host, a pipeline")
    parser.add_argument("--kinds", nargs="+", default=["float16"], choices=sorted(KINDS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--networks", nargs="+", help="these instead of all, or of the drawn ones")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes minutes per network")
    options = parser.parse_args()
    record, until = Record(options.json), time.perf_counter() + 60 * options.minutes
    if options.smoke:
        smoke(record, until)
    elif options.check:
        check(record, options.networks or zoo.names(), options.kinds, until)
    else:
        time_all(record, options.networks or zoo.drawn(), options.batches, not options.no_compile, until)


if __name__ == "__main__":
    main()
