"""Launches on one device: kernels with their constants and buffers."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
import triton

from dovetail.errors import UsageError
from dovetail.gpu.memory import MemoryPlan
from dovetail.gpu.precompile import ALIGNED, UNALIGNED, CompileJob
from dovetail.gpu.triton.table import KERNELS
from dovetail.ir import Array
from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import Config
from dovetail.kernels.items import TensorLayout

TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "tf32": torch.float32,
         "int8": torch.int8}
PDL_CAPABILITY = (9, 0)
"""First compute capability with programmatic dependent launches."""

SHARED_CARVEOUT = 9
"""CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT of the CUDA driver; source: cuda.h."""


@cache
def cuda_driver() -> ctypes.CDLL:
    """The CUDA driver, which PyTorch has loaded already."""
    return ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")


@dataclass(slots=True, eq=False)
class Launcher:
    """Kernels, constants and buffers of one network on one device."""

    kind: str
    device: str
    pdl: bool
    buffers: dict[str, Any] = field(default_factory=dict)
    arrays: dict[int, tuple[Array, Any]] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)

    @property
    def real(self) -> Any:
        """PyTorch's type of the network's floats, also of those between integers."""
        return torch.float32 if self.kind == "int8" else TYPES[self.kind]

    def constant(self, array: Array) -> Any:
        """A constant array on the device, in the type its kernel multiplies in."""
        known = self.arrays.get(id(array))
        if known is None:
            values = array if array.dtype.kind == "i" else array.astype(np.float32)
            tensor = torch.from_numpy(np.ascontiguousarray(values)).to(self.device).to(self.element(array))
            known = self.arrays[id(array)] = (array, tensor)
        return known[1]

    def element(self, operand: TensorLayout | Array) -> torch.dtype:
        """The type of an operand's elements: weights in that of activations, what is added to sums in float32."""
        if isinstance(operand, TensorLayout):
            return TYPES[self.kind]
        if operand.dtype.kind == "i" or operand.dtype == np.float16:
            own: torch.dtype = getattr(torch, operand.dtype.name)
            return own
        return TYPES[self.kind] if operand.ndim > 1 else torch.float32

    def place(self, at: TensorLayout) -> Any:
        """The first element of a place."""
        if at.buffer not in self.buffers:
            self.buffers[at.buffer] = torch.zeros(at.pixels * at.pitch, device=self.device, dtype=TYPES[self.kind])
        return self.buffers[at.buffer][at.offset:]

    def share_memory(self, memory: MemoryPlan) -> None:
        """Put all buffers into one piece of memory, in the place of those that tuning used."""
        self.buffers.clear()
        whole = torch.zeros(max(memory.elements, 1), device=self.device, dtype=TYPES[self.kind])
        self.buffers |= {name: whole[at:at + memory.sizes[name]] for name, at in memory.offsets.items()}

    def described(self, call: Call, config: Config) -> CompileJob:
        """What compiling a launch needs to know; nothing is put on the device."""
        kinds = list[str | int]()
        for operand in call.operands:
            if isinstance(operand, int):
                kinds.append(operand)
                continue
            element = self.element(operand)
            inside = isinstance(operand, TensorLayout) and operand.offset * element.itemsize % ALIGNED > 0
            kinds.append(str(element).removeprefix("torch.") + UNALIGNED * inside)
        return CompileJob(call.kernel, tuple(kinds), dict(call.constants), dict(config), self.pdl)

    def operands(self, call: Call) -> list[Any]:
        """A call's operands on the device; numbers stay numbers."""
        return [self.place(o) if isinstance(o, TensorLayout) else self.constant(o) if isinstance(o, np.ndarray) else o
                for o in call.operands]

    def options(self, config: Config) -> dict[str, int | bool]:
        """What a launch says beside operands and constants."""
        options: dict[str, int | bool] = dict(config)
        if self.pdl:
            options["launch_pdl"] = True
        if self.device == "cpu":
            options = {k: v for k, v in options.items() if k not in ("num_warps", "num_stages")}
        return options | {"PDL": self.pdl}

    def loaded(self, call: Call, config: Config) -> Any:
        """The compiled kernel of a launch, on the device but not launched: what it takes there is known then."""
        made = KERNELS[call.kernel].function.warmup(*self.operands(call), grid=call.grid(config), **call.constants,
                                                   **self.options(config))
        _ = made.run  # looking at it loads it
        return made

    def bound(self, call: Call, config: Config) -> Callable[[], Any]:
        """A launch with all its arguments; it returns the compiled kernel, where there is one."""
        kernel, grid, operands, options = KERNELS[call.kernel], call.grid(config), self.operands(call), self.options(config)

        def launch() -> Any:
            made = kernel.function[grid](*operands, **call.constants, **options)
            # All kernels divide the first-level cache alike: a change makes a multiprocessor run empty first.
            if self.device != "cpu" and kernel.shared_percent is not None and made.function not in self.shared:
                cuda_driver().cuFuncSetAttribute(ctypes.c_void_p(made.function), SHARED_CARVEOUT, kernel.shared_percent)
                self.shared.add(made.function)
            return made
        return launch


def launcher_here(kind: str) -> Launcher:
    """A launcher for this machine: its GPU, or the CPU under Triton's interpreter."""
    if triton.knobs.runtime.interpret:
        return Launcher(kind, "cpu", pdl=False)
    if not torch.cuda.is_available():
        raise UsageError("GPU: PyTorch finds no CUDA device; set TRITON_INTERPRET=1 to run kernels on the CPU (slowly)")
    return Launcher(kind, "cuda", torch.cuda.get_device_capability() >= PDL_CAPABILITY)


def kernels_run_here() -> bool:
    """Whether this machine runs kernels: on a GPU, or in Triton's interpreter."""
    return bool(triton.knobs.runtime.interpret or torch.cuda.is_available())


def precise(kind: str, run: Callable[[], object]) -> None:
    """Run with PyTorch's products in float32, or in tf32 where that is asked for."""
    matrices, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matrices.allow_tf32, convolutions.allow_tf32
    matrices.allow_tf32 = convolutions.allow_tf32 = kind == "tf32"
    try:
        run()
    finally:
        matrices.allow_tf32, convolutions.allow_tf32 = before
