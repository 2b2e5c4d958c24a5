"""The GPU: kernels written in Triton, and what chooses and runs them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from dovetail.errors import ToolError
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.tables import tabulate

if TYPE_CHECKING:
    import torch

    from dovetail.gpu.executor import Compiled
    from dovetail.gpu.pytorch import CompiledModule


def cuda_devices() -> tuple[str, ...] | None:
    """Names of the GPUs that PyTorch reaches; None where PyTorch is not installed."""
    if find_spec("torch") is None:
        return None
    import torch  # here, so that planning for GPUs needs no PyTorch
    return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))


def check_installed() -> None:
    """ToolError where the `gpu` extra is missing."""
    if missing := [name for name in ("torch", "triton") if find_spec(name) is None]:
        raise ToolError(f"GPU: {' and '.join(missing)} not found; get them with pip install 'dovetail-accel[gpu]' (Linux)")


@overload
def compile(model: str | Path, kind: str = "float16", images: int = 1) -> Compiled: ...
@overload
def compile(model: torch.nn.Module, kind: Any) -> CompiledModule: ...
def compile(model: Any, kind: Any = "float16", images: int = 1) -> Any:
    """A network as fast kernels: `compile("m.onnx").run({"x": frames})`, or of a module, `compile(module, example)(x)`.

    Of a file, `kind` is float16, bfloat16, float32 or tf32, of a quantized model (QDQ) int8; `images` is the batch the network is
    made for. A module is compiled for inputs like the example and called like itself; its weights say the arithmetic. What has
    no kernel runs through PyTorch's operators. Needs the `gpu` extra and a CUDA GPU (or TRITON_INTERPRET=1).
    """
    check_installed()
    from dovetail.gpu.executor import compile_graph  # here, so that planning for GPUs needs no PyTorch
    if not isinstance(model, str | Path) and hasattr(model, "parameters"):
        from dovetail.gpu.pytorch import compile_module
        return compile_module(model, kind)
    return compile_graph(tabulate(read_onnx(model).graph), kind, images)


def load(path: str | Path) -> Compiled:
    """A network that `network.save(path)` wrote on the same kind of GPU, without tuning."""
    check_installed()
    from dovetail.gpu.loaded import load
    return load(path)
