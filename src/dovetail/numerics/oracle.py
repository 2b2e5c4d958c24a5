"""ONNX Runtime: foreign nodes and formulas in floats, and the exported QDQ model on somebody else's arithmetic, as a judge.

Graph optimisations stay off: fused int8 kernels saturate on some processors and would not be exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir import Array, Function, Graph
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.onnx.writer import Boundary

CUDA = "CUDAExecutionProvider"
ON_CUDA = {"use_tf32": "0", "cudnn_conv_algo_search": "DEFAULT"}
"""Products of all bits, and convolutions that add up products: those of fewer products (Winograd's) round in between."""


def has_cuda() -> bool:
    """Whether an ONNX Runtime is here that says it can use a CUDA GPU."""
    if find_spec("onnxruntime") is None:
        return False
    import onnxruntime
    return CUDA in onnxruntime.get_available_providers()


def session(content: bytes, threads: int = 1, arena: bool = True, cuda: bool = False, optimised: bool = False,
            profile: str | None = None) -> Any:
    """An ONNX Runtime session on the CPU, or a `cuda` GPU; without `arena` it gives memory back after each run.

    It is deterministic unless it is `optimised`, as users open theirs. With `profile`, it records its kernels in files of that
    prefix.
    """
    import onnxruntime  # here: graphs are written, trained and judged by the reference where it is not installed, too
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what went wrong is raised, and said once
    options.enable_cpu_mem_arena = arena
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, profile
    providers: list[Any] = [(CUDA, ON_CUDA) if cuda else "CPUExecutionProvider"]
    try:
        made = onnxruntime.InferenceSession(content, options, providers=providers)
    except Exception as error:  # onnxruntime raises its own family, rooted in Exception only
        raise ModelError(f"ONNX Runtime refused the model: {str(error).splitlines()[0]}") from None
    if cuda and CUDA not in made.get_providers():
        raise ModelError("ONNX Runtime has a CUDA provider that finds no GPU, or not the libraries it needs")
    return made


_cached_session = lru_cache(maxsize=1024)(session)  # a transformer has hundreds of foreign nodes, each run once per frame


def run_onnx(content: bytes, inputs: Mapping[str, Array], cuda: bool = False) -> dict[str, Array]:
    """Run a serialized model frame by frame batches as given, on the CPU or a `cuda` GPU; outputs by name."""
    runner = _cached_session(content, cuda=cuda)
    names = [o.name for o in runner.get_outputs()]
    try:
        return dict(zip(names, runner.run(names, dict(inputs)), strict=True))
    except Exception as error:  # onnxruntime raises its own family, rooted in Exception only
        raise ModelError(f"ONNX Runtime could not run the model: {str(error).splitlines()[0]}") from None


def run_function(op: Function, x: Array, params: Sequence[Array]) -> Array:
    """A formula of float32 values of any shape and number of frames; axis 1 is channels."""
    along = (1, -1) + (1,) * (x.ndim - 2)
    given = {f"p{i}": np.asarray(p, dtype=np.float32).reshape(along) for i, p in enumerate(params)}
    return run_onnx(op.content, {"x0": np.ascontiguousarray(x, dtype=np.float32), **given})["y0"]


def run_oracle(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of a quantized graph as ONNX Runtime computes it, as stored integers."""
    exposed = replace(graph, outputs=tuple(dict.fromkeys((*graph.outputs, *(n.output for n in graph.nodes)))))
    stored = {name: np.asarray(x, dtype=graph.tensors[name].dtype) for name, x in inputs.items()}
    return run_onnx(to_onnx(exposed, Boundary.INTEGER), stored)
