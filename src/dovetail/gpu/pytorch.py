"""Modules of PyTorch on our kernels: `compile_module`, and `torch.compile(model, backend="dovetail")`.

A module is exported for the shapes of an example. Layers that have kernels get them, PyTorch computes the rest, all in one CUDA
graph. Where `torch.compile`'s own backend or the module as it is are faster, those are taken: each is timed once.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dovetail.errors import DovetailError, UnsupportedError, UsageError
from dovetail.gpu.executor import Compiled, compile_graph
from dovetail.gpu.launcher import kernels_run_here
from dovetail.gpu.traced import Traced, traced

KINDS = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
CALLS, ROUNDS = 5, 5
"""Calls that are timed together, and how often; the median counts (chosen)."""
LOG = logging.getLogger("dovetail.gpu")


@dataclass(slots=True, eq=False)
class CompiledModule:
    """A module on kernels, for tensors of the example's shapes; results are in the module's own structure."""

    network: Compiled
    results: Any
    """How results are nested, with None where one is no tensor."""
    order: tuple[str, ...]
    """Of every result, the network's output."""
    given: tuple[tuple[torch.Size, torch.dtype], ...]

    def __call__(self, *args: Any) -> Any:
        tensors = [a for a in pytree.tree_leaves(args) if isinstance(a, torch.Tensor)]
        self.check(tensors)
        graph = self.network.graph
        found = self.network.lanes_for(True, False)[0].pass_through(dict(zip(graph.inputs, tensors, strict=True)), graph)
        return pytree.tree_unflatten([found[name] for name in self.order], self.results)

    def check(self, tensors: Sequence[torch.Tensor]) -> None:
        """UsageError names what differs from the example, and whoever asks for gradients."""
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            raise UsageError("torch: an input asks for gradients; networks on the GPU only infer: call them in torch.no_grad()")
        found = tuple((t.shape, t.dtype) for t in tensors)
        if found != self.given:
            raise UsageError(f"torch: inputs {_said(found)}; the network was compiled for {_said(self.given)}: compile it again")

    def summary(self) -> str:
        """Which kernels, and what PyTorch computes."""
        return self.network.summary()


def _said(given: Sequence[tuple[torch.Size, torch.dtype]]) -> str:
    return ", ".join(f"{list(shape)} {str(kind).removeprefix('torch.')}" for shape, kind in given)


def exported(module: torch.nn.Module, example: Sequence[Any]) -> Any:
    """A module in ATen operators with its weights inside."""
    with torch.no_grad():
        program = torch.export.export(module, tuple(example), strict=False)
        try:
            return program, program.module(check_guards=False)
        except TypeError:  # before PyTorch 2.9
            return program, program.module()


def compile_module(module: torch.nn.Module, example: Any, tune: bool = True, kind: str | None = None) -> CompiledModule:
    """A module in evaluation mode, for inputs like the example (a tensor, or a tuple of them).

    Arithmetic is that of the module's weights; float32 is computed as tf32 where PyTorch may (`allow_tf32`), or as `kind` says.
    """
    if any(part.training for part in module.modules()):
        raise UsageError("torch: the module is in training mode; call .eval() first, since GPU networks only infer")
    example = example if isinstance(example, tuple | list) else (example,)
    with torch.inference_mode(False), torch.no_grad():  # what is made here serves in either mode
        return _compiled(module, example, tune, kind)


def _compiled(module: torch.nn.Module, example: Sequence[Any], tune: bool, kind: str | None) -> CompiledModule:
    program, inside = exported(module, example)
    known = traced(inside)
    given = [a for a in pytree.tree_leaves(tuple(example)) if isinstance(a, torch.Tensor)]
    images = given[0].shape[0] if given and given[0].ndim else 1
    network = compile_graph(known.graph, kind or kind_of(known), images, tune=tune, functions=known.functions)
    return CompiledModule(network, program.call_spec.out_spec, known.results, tuple((g.shape, g.dtype) for g in given))


def kind_of(known: Traced) -> str:
    """The arithmetic of a module."""
    tf32 = torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
    return "tf32" if known.real == torch.float32 and tf32 else KINDS[known.real]


def median_s(call: Callable[[], object]) -> float:
    """Median time of a call on the GPU, the host's part included."""
    found = []
    for _ in range(3):
        call()
    for _ in range(ROUNDS):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(CALLS):
            call()
        stop.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(stop) / CALLS * 1e-3)
    return float(sorted(found)[ROUNDS // 2])


def backend(module: torch.fx.GraphModule, example: list[Any], options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """For `torch.compile`: kernels where they win, else what PyTorch has.

    Options: `tune` False lets estimates choose kernels, `compare` False takes ours without timing others.
    """
    asked = {"tune": True, "compare": True, **(options or {})}
    if unknown := set(asked) - {"tune", "compare"}:
        raise UsageError(f"torch.compile: option {min(unknown)}; backend dovetail has tune and compare")
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in (*example, *module.parameters())):
        raise UsageError("torch.compile: gradients are asked for; backend dovetail only infers: call the model in "
                         "torch.no_grad() or torch.inference_mode(), or freeze its parameters")
    others: Callable[..., Any] = module.forward
    if torch.cuda.is_available() and asked["compare"]:
        others = _inductor(module, example)
    if not kernels_run_here():
        return others
    try:
        ours = _ours(module, example, bool(asked["tune"]))
    except UsageError:
        raise
    except (DovetailError, RuntimeError) as reason:
        LOG.warning("PyTorch computes a graph that Dovetail cannot: %s", reason)
        return others
    if not torch.cuda.is_available() or not asked["compare"]:
        return ours
    with torch.no_grad():
        times = {"dovetail": median_s(lambda: ours(*example)), "inductor": median_s(lambda: others(*example)),
                 "eager": median_s(lambda: module(*example))}
    LOG.info("a graph takes %s", ", ".join(f"{s * 1e6:.1f} us by {name}" for name, s in times.items()))
    fastest = min(times, key=lambda name: times[name])
    taken: dict[str, Callable[..., Any]] = {"dovetail": ours, "inductor": others, "eager": module.forward}
    return taken[fastest]


if "dovetail" not in torch._dynamo.list_backends(exclude_tags=()):  # an installed package is known by its entry point
    torch._dynamo.register_backend(backend, name="dovetail")


def _inductor(module: torch.fx.GraphModule, example: list[Any]) -> Callable[..., Any]:

    from torch._inductor.compile_fx import compile_fx  # it takes seconds to import
    made: Callable[..., Any] = compile_fx(copy.deepcopy(module), example)
    return made


def _ours(module: torch.fx.GraphModule, example: list[Any], tune: bool) -> Callable[..., Any]:
    """A graph of torch.compile's on kernels; its parameters, which come as inputs, stay as they are now."""
    fixed = [isinstance(x, torch.nn.Parameter) or _is_static(n) for x, n in
             zip(example, (n for n in module.graph.nodes if n.op == "placeholder"), strict=True)]
    if any(not isinstance(x, torch.Tensor) for x in example):
        raise UnsupportedError("torch.compile: a size that may change; compile with dynamic=False")
    inner = FixedInputs(module, example, fixed)
    network = compile_module(inner.eval(), tuple(x for x, own in zip(example, fixed, strict=True) if not own), tune)

    def run(*args: Any) -> Any:
        return network(*(x for x, own in zip(args, fixed, strict=True) if not own))
    return run


def _is_static(node: torch.fx.Node) -> bool:
    """Whether an input is a buffer or parameter of the module that is compiled."""
    given = node.meta.get("grapharg")
    example = node.meta.get("example_value")
    return getattr(example, "_dynamo_static_input_type", None) is not None or \
        getattr(getattr(given, "example", None), "_dynamo_static_input_type", None) is not None


class FixedInputs(torch.nn.Module):  # type: ignore[misc]  # PyTorch's types are left out
    """A graph with some of its inputs inside."""

    def __init__(self, module: torch.fx.GraphModule, example: Sequence[Any], fixed: Sequence[bool]) -> None:
        super().__init__()
        self.module, self.fixed = module, list(fixed)
        for i, (value, own) in enumerate(zip(example, fixed, strict=True)):
            if own:
                self.register_buffer(f"held{i}", value.detach())

    def forward(self, *args: Any) -> Any:
        rest = iter(args)
        return self.module(*(getattr(self, f"held{i}") if own else next(rest) for i, own in enumerate(self.fixed)))
