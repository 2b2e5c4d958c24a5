"""Every kernel and tile that a network may get on this GPU, one by one, against float64.

`PYTHONPATH=src:bench python bench/gpu_check.py --network ceit-blocks --batch 8 [--kind fp16] [--kernel conv] [--node i2t]
[--tiles 6] [--stages 4] [--after 0]`. Noise goes through each kernel alone, several times over; a tile is wrong if a value of
any launch is further from float64 than rounding brings it. `refused` says that tuning does not launch a tile, since its code has
one of the faults of compilers that are known (`gpu/distrusted.py`); `--stages` runs convolutions with another depth of
pipelining, which the planner's tiles need not have, to see whether that matters. Every tile is then replayed in a CUDA graph as
tuning does. Exits with 1 if a tile that may be chosen, one that is not refused, is wrong or touches memory that is not its own:
the latter is named, and ends the process, since nothing can be launched behind it; another one takes over from the tile behind
(`--after`).
Layers that read more than one tensor are passed over. Without a GPU: TRITON_INTERPRET=1, and small images (`ceit-blocks@32`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

from dovetail.gpu.distrusted import distrusted
from dovetail.gpu.executor import gpu_here, options_of
from dovetail.gpu.launcher import Launcher, launcher_here
from dovetail.gpu.precompile import precompile
from dovetail.gpu.tuning import REPEATS, captured, without_pipelining
from dovetail.ir import Add, Concat, Function, Gemm, Graph, Mul, Node, Select
from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import CANDIDATES, Config
from dovetail.kernels.items import TensorLayout
from dovetail.kernels.lower import lower
from dovetail.measure.cuda import apply_node
from lib.gpu.networks import KINDS
from lib.gpu.torch_network import FUNCTIONS
from lib.zoo_graph import network

LAUNCHES, ROUNDS = 8, 4
"""Launches in a row of which the last one's results are looked at, and how often."""
ALLOWED = {"float16": 0.05, "tf32": 0.02, "float32": 1e-4}
"""Largest error of a value, in root mean squares of all."""


@dataclass
class Checked:
    """A kernel with noise to read, and what it should make of it."""

    call: Call
    x: torch.Tensor
    wanted: torch.Tensor


def viewed(launcher: Launcher, place: TensorLayout) -> torch.Tensor:
    """A place as images x channels x rows x columns."""
    launcher.place(place)
    whole: torch.Tensor = launcher.buffers[place.buffer]
    if place.planar:
        return whole.view(place.images, place.channels, place.height, place.width)
    maps = whole[:place.pixels * place.pitch].view(place.images, place.height, place.width, place.pitch)
    return maps[..., place.offset:place.offset + place.channels].permute(0, 3, 1, 2)


def computed(graph: Graph, nodes: Sequence[Node], x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Nodes one after another in float64, weights as kernels have them."""
    value = x.double()
    for node in nodes:
        if isinstance(node.op, Function):
            value = FUNCTIONS[node.op.name](value)
            continue
        value = value.flatten(1) if isinstance(node.op, Gemm) else value
        arrays = [torch.from_numpy(c.array.copy()).to(x.device) for c in graph.params(node)]
        value = apply_node(torch, node, [value], [(a.to(kind) if a.ndim > 1 else a).double() for a in arrays])
    return value


def to_check(graph: Graph, kind: str, images: int, launcher: Launcher) -> Iterator[Checked]:
    """Every kernel that could compute some of a network's layers, equal ones once."""
    nodes, seen = {n.name: n for n in graph.nodes}, set[str]()
    for ways in options_of(lower(graph, kind, gpu_here(), images)):
        for *_, call in ways:
            own, source = [nodes[n] for n in call.nodes], call.operands[0]
            assert isinstance(source, TensorLayout)
            if call.key in seen or any(isinstance(n.op, Add | Mul | Concat | Select) for n in own) \
                    or graph.shape(own[0].inputs[0])[1] != source.channels:
                continue
            seen.add(call.key)
            launcher.buffers.clear()
            torch.manual_seed(0)
            x = torch.randn(images, source.channels, source.height, source.width, device=launcher.device)
            x = x.to(launcher.element(source))
            yield Checked(call, x, computed(graph, own, x, x.dtype))


def errors_of(launcher: Launcher, one: Checked, tile: Config) -> tuple[float, int, bool]:
    """The largest error of a tile, values that are wrong by more than is allowed, and whether tuning refuses its code."""
    source, allowed = one.call.operands[0], ALLOWED[launcher.kind]
    assert isinstance(source, TensorLayout)
    viewed(launcher, source).copy_(one.x)
    launch, unit = launcher.bound(one.call, tile), one.wanted.pow(2).mean().sqrt()
    worst, wrong, made = 0.0, 0, None
    for _ in range(ROUNDS if launcher.device == "cuda" else 1):
        viewed(launcher, one.call.output).fill_(float("nan"))
        for _ in range(LAUNCHES if launcher.device == "cuda" else 1):
            made = launch()
        found = viewed(launcher, one.call.output).double().reshape(one.wanted.shape)
        errors = ((found - one.wanted).abs() / unit).nan_to_num(float("inf"))
        worst, wrong = max(worst, float(errors.max())), wrong + int((errors > allowed).sum())
    if launcher.device == "cuda":
        captured([launch] * REPEATS)()
        torch.cuda.synchronize()
    return worst, wrong, made is not None and distrusted(made.asm["ptx"], made.n_spills)


def tiles_of(call: Call, count: int, stages: int | None) -> list[Config]:
    """The tiles that tuning would time, and what it takes in the place of some; convolutions with as many stages as asked for."""
    changed: dict[str, Any] = {"num_stages": stages} if stages and call.kernel == "conv" else {}
    tiles = [{**c, **changed} for c in call.configs[:count]]
    plain = [p for p in (without_pipelining(call, t) for t in tiles) if p is not None] if stages is None else []
    return list({str(t): t for t in (*tiles, *plain)}.values())


def check(name: str, kind: str, images: int, options: argparse.Namespace) -> bool:
    """One network and batch; whether all tiles that may be chosen are right."""
    launcher, graph, right = launcher_here(kind), network(name), True
    kernels = [one for one in to_check(graph, kind, images, launcher)
               if one.call.kernel in (options.kernel or [one.call.kernel]) and options.node in one.call.nodes[0]]
    if launcher.device == "cuda":
        precompile([launcher.described(one.call, c) for one in kernels
                    for c in tiles_of(one.call, options.tiles, options.stages)])
    for one in kernels:
        launcher.buffers.clear()
        for tile in tiles_of(one.call, options.tiles, options.stages):
            options.begun += 1
            if options.begun <= options.after:
                continue
            said = f"{name} b{images} {one.call.kernel} {'+'.join(one.call.nodes)} {tile}: "
            try:
                worst, wrong, refused = errors_of(launcher, one, tile)
            except (triton.TritonError, RuntimeError) as reason:
                print(f"{said}no run: {str(reason)[:60]}", flush=True)
                if "illegal" in str(reason) or "misaligned" in str(reason):
                    take_over(options)
                continue
            right = right and (refused or not wrong)
            print(f"{said}error {worst:.1e}{f', {wrong} values WRONG' if wrong else ''}{', refused' * refused}", flush=True)
    return right


def take_over(options: argparse.Namespace) -> None:
    """Go on behind a tile after which this process can launch nothing more, in another one that knows of a fault."""
    own = [a for a in sys.argv[1:] if not a.startswith(("--after=", "--broken"))]
    os.execv(sys.executable, [sys.executable, sys.argv[0], *own, f"--after={options.begun}", "--broken"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", action="append", required=True, help="repeatable")
    parser.add_argument("--batch", action="append", type=int, help="repeatable; 1 if none is named")
    parser.add_argument("--kind", choices=[k for k in KINDS if k != "int8"], default="fp16")
    parser.add_argument("--kernel", action="append", help="only these kernels; repeatable")
    parser.add_argument("--node", default="", help="only kernels whose first node's name holds this")
    parser.add_argument("--tiles", type=int, default=CANDIDATES, help="tiles of a kernel, the best estimates first")
    parser.add_argument("--stages", type=int, help="depth of pipelining of convolutions, in the place of their tiles' own")
    parser.add_argument("--after", type=int, default=0, help="tiles to pass over, counted over all networks and batches")
    parser.add_argument("--broken", action="store_true", help="one of those was at fault")
    options = parser.parse_args(namespace=argparse.Namespace(begun=0))
    found = [check(name, KINDS[options.kind], images, options) for name in options.network for images in options.batch or [1]]
    raise SystemExit(0 if all(found) and not options.broken else 1)


if __name__ == "__main__":
    main()
