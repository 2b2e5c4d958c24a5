"""The GPU: kernels written in Triton, and what chooses and runs them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import ToolError
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.tables import tabulate

if TYPE_CHECKING:
    from dovetail.gpu.executor import Compiled


def cuda_devices() -> tuple[str, ...] | None:
    """Names of the GPUs that PyTorch reaches; None where PyTorch is not installed."""
    if find_spec("torch") is None:
        return None
    import torch  # here, so that planning for GPUs needs no PyTorch
    return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))


def compile(model: str | Path, kind: str = "float16", images: int = 1) -> Compiled:
    """An ONNX model as fast kernels: `compile("m.onnx").run({"x": frames})`.

    `kind` is float16, float32 or tf32, of a quantized model (QDQ) int8; `images` is the batch the network is made for. Needs the
    `gpu` extra and a CUDA GPU (or TRITON_INTERPRET=1). UnsupportedError names an operator without a kernel.
    """
    if missing := [name for name in ("torch", "triton") if find_spec(name) is None]:
        raise ToolError(f"GPU: {' and '.join(missing)} not found; get them with pip install 'dovetail-accel[gpu]' (Linux)")
    from dovetail.gpu.executor import compile_graph  # here, so that planning for GPUs needs no PyTorch
    return compile_graph(tabulate(read_onnx(model).graph), kind, images)
