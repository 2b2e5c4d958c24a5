"""Compile every kind of kernel for a GPU that is not here; run as a module by test_compile.py, outside the interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import numpy as np
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_kernel

from dovetail.gpu.distrusted import distrusted
from dovetail.gpu.triton.table import KERNELS
from dovetail.ir import Graph
from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import CANDIDATES, Config
from dovetail.kernels.items import TensorLayout
from dovetail.kernels.lower import lower
from dovetail.platform.gpu_specification import specification
from tests.kernels.networks import GRAPHS, activated, blocks, dense, narrow_pool, wide_stem
from tests.scales import with_arbitrary_scales
from tests.strategies import quantized

TYPES = {"float16": "*fp16", "float32": "*fp32", "int8": "*i8", "int32": "*i32", "int64": "*i64"}
KINDS = ("float16", "float32", "int8")
NETWORKS: dict[str, tuple[Callable[[], Graph], tuple[str, ...]]] = {
    **{name: (GRAPHS[name], KINDS) for name in ("inverted", "deep", "fire", "classifier")},
    "dense": (dense, ("int8",)), "unit": (GRAPHS["unit"], ("float16",)), "wide stem": (wide_stem, ("float16",)),
    "blocks": (blocks, ("float16", "int8")), "GELU": (partial(activated, "GELU"), ("float16", "int8")),
    "narrow pool": (narrow_pool, ("float32",)), "gated": (GRAPHS["gated"], ("float16", "int8")),
    "pooled": (GRAPHS["pooled"], KINDS),
    "pooled, any scale": (lambda: with_arbitrary_scales(quantized(GRAPHS["pooled"]()), 0), ("int8",)),
    "gated, any scale": (lambda: with_arbitrary_scales(quantized(GRAPHS["gated"]()), 0, True), ("int8",))}


def compiled(call: Call, tile: Config, kind: str, capability: int) -> str:
    """A call with a tile in PTX, for operands that begin where buffers do."""
    kernel, config = KERNELS[call.kernel].function, dict(tile)
    options = {name: config.pop(name) for name in ("num_warps", "num_stages")}
    signature, constants = {}, {}
    for name, operand in zip(kernel.arg_names, call.operands, strict=False):
        if isinstance(operand, TensorLayout):
            signature[name] = TYPES[kind]
        elif isinstance(operand, np.ndarray):
            own = str(operand.dtype) if operand.dtype.kind == "i" or operand.dtype == np.float16 else "float32"
            signature[name] = TYPES[kind if own == "float32" and operand.ndim > 1 else own]
        else:
            signature[name] = "i32"
    for name, value in {**call.constants, **config, "PDL": capability >= 90}.items():
        signature[name], constants[(kernel.arg_names.index(name),)] = "constexpr", value
    aligned = {(i,): [["tt.divisibility", 16]] for i, kept in enumerate(signature.values()) if kept.startswith("*")}
    made = compile_kernel(ASTSource(kernel, signature, constants, aligned), target=GPUTarget("cuda", capability, 32),
                          options=options)
    ptx: str = made.asm["ptx"]
    return ptx


def main(capability: int) -> None:
    done = set()
    for name, (make, kinds) in NETWORKS.items():
        for kind in kinds:
            graph = make()
            lowered = lower(quantized(graph) if kind == "int8" and not graph.quantized else graph, kind, specification("h200"))
            for run in lowered.runs:
                for call in (run,) if isinstance(run, Call) else (c for *_, c in lowered.options(run)):
                    what = (call.kernel, kind, len(call.nodes), call.constants.get("FLAT"), make is wide_stem,
                            make is dense and call.constants.get("KH"),
                            call.constants.get("ADD"), bool(call.constants.get("AC")), call.constants.get("ACT"),
                            call.constants.get("ACTD"), call.constants.get("LARGEST"), call.constants.get("PADS_COUNT"),
                            call.constants.get("SAME"), name if name.endswith(("pool", "scale")) else "")
                    if what not in done:
                        # Of fused modules some tiles are as they must not be; tuning refuses these and takes another.
                        tiles = call.configs[:CANDIDATES if call.kernel == "fused" else 1]
                        if all(distrusted(compiled(call, tile, kind, capability), 0) for tile in tiles):
                            raise SystemExit(f"{call.kernel} {kind} {call.nodes}: {tiles[0]} must not run (gpu/distrusted.py)")
                        done.add(what)
    if missing := {"bridged", "walked", "walked_bytes", "banded", "fused", "deep", "vector"} - {kernel for kernel, *_ in done}:
        raise SystemExit(f"no network had {', '.join(sorted(missing))}")
    print(len(done), "kernels compiled")


if __name__ == "__main__":
    main(int(sys.argv[1]))
