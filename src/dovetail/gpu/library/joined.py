"""Parts of the library as one function each, made by PyTorch's compiler (Inductor), where that is faster than node by node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from dovetail.errors import UnsupportedError
from dovetail.gpu.library.part import LibraryLaunch

LOG = logging.getLogger("dovetail.gpu")
ALIGNMENT = 16
"""Bytes; the compiler's loads rely on it."""


def apart(tensor: Any) -> Any:
    """The same memory as a tensor of its own: the compiler orders what shares memory, and parts are in order already."""
    return torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))


@dataclass(frozen=True, slots=True, eq=False)
class PartInputs:
    """What a part is a function of: places among kernels' tensors, then tensors and tuples of the network beside them."""

    views: tuple[str, ...]
    held: tuple[str, ...]
    nesting: Any

    @staticmethod
    def of(launch: LibraryLaunch) -> tuple[PartInputs, list[Any]]:
        part, made = launch.part, {node.output for node in launch.part.nodes}
        held = tuple(dict.fromkeys(t for node in part.nodes for t in node.inputs if t not in made and t not in part.reads))
        leaves, nesting = pytree.tree_flatten([launch.held[name] for name in held])
        if any(not isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise UnsupportedError("a part reads what is no tensor")
        views = tuple(launch.views)
        return PartInputs(views, held, nesting), [*(apart(launch.views[name]) for name in views), *leaves]

    def launch(self, launch: LibraryLaunch, tensors: Sequence[Any]) -> LibraryLaunch:
        """The part on these tensors."""
        count = len(self.views)
        held = pytree.tree_unflatten(list(tensors[count:]), self.nesting)
        return replace(launch, views=dict(zip(self.views, tensors[:count], strict=True)),
                       held=dict(zip(self.held, held, strict=True)), joined=None, done={})


def layouts(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """What a compiled function relies on."""
    return tuple((x.shape, x.stride(), x.dtype, x.data_ptr() % ALIGNMENT == 0) for x in tensors)


@dataclass(frozen=True, slots=True, eq=False)
class JoinedPart:
    """A part as one function, for tensors laid out as its example's."""

    function: Callable[..., Sequence[Any]]
    layouts: tuple[Any, ...]
    made: tuple[str, ...]
    """Tensors that stay beside those of kernels."""
    nesting: Any

    def __call__(self, launch: LibraryLaunch) -> bool:
        """Run in a launch's place; False where tensors lie otherwise."""
        _, tensors = PartInputs.of(launch)
        if layouts(tensors) != self.layouts:
            return False
        found = pytree.tree_unflatten(list(self.function(*tensors)), self.nesting)
        launch.held.update(zip(self.made, found, strict=True))
        launch.forget(name for names in launch.done.values() for name in names)
        return True


def traced(launch: LibraryLaunch) -> tuple[torch.fx.GraphModule, list[Any], tuple[str, ...], Any]:
    """A part in ATen operators, its example, and what it leaves beside kernels' tensors."""
    given, example = PartInputs.of(launch)
    kept: dict[str, Any] = {}

    def function(*tensors: Any) -> list[Any]:
        own = given.launch(launch, tensors)
        own.by_nodes()
        kept.update({node.output: own.held[node.output] for node in own.part.nodes if node.output in own.held})
        leaves: list[Any] = pytree.tree_leaves(list(kept.values()))
        return leaves

    given.launch(launch, example).by_nodes()  # puts weights on the GPU
    module = make_fx(function)(*example)
    for node in module.graph.nodes:  # weights, which the compiler takes for numbers where they are no buffers
        if node.op == "get_attr" and isinstance(held := getattr(module, node.target, None), torch.Tensor):
            delattr(module, node.target)
            module.register_buffer(node.target, held)
    names = tuple(kept)
    return module, example, names, pytree.tree_structure(list(kept.values()))


def joined(launch: LibraryLaunch) -> JoinedPart:
    """A part compiled; launches before it have made what it reads."""
    from torch._inductor import compile as compile_function  # it takes seconds to import
    with torch.no_grad():
        module, example, names, nesting = traced(launch)
        return JoinedPart(compile_function(module, example), layouts(example), names, nesting)


@dataclass(frozen=True, slots=True, eq=False)
class PartChoice:
    """How a part is computed: as one function, or node by node; and the seconds it takes, where they were measured."""

    function: JoinedPart | None = None
    seconds: float = 0.0


def faster(launch: LibraryLaunch, seconds: Callable[[Callable[[], None]], float]) -> PartChoice:
    """A part compiled, if that takes less time than node by node."""
    def again() -> LibraryLaunch:
        return replace(launch, held=dict(launch.held), done={})

    def timed(call: Callable[[LibraryLaunch], Any]) -> float:
        return seconds(lambda: call(again()))

    again().by_nodes()  # which shows what PyTorch cannot compute
    if launch.leaves_gpu:
        return PartChoice()
    nodes_s = timed(LibraryLaunch.by_nodes)
    if len(launch.part.nodes) < 2:
        return PartChoice(None, nodes_s)
    try:
        made = joined(launch)
        made_s = timed(made)
    except Exception as reason:  # whatever the compiler raises: the part runs node by node, as it did before
        LOG.warning("%d nodes from %s on are computed one by one: %s", len(launch.part.nodes), launch.part.nodes[0].name,
                    str(reason).splitlines()[0] if str(reason) else type(reason).__name__)
        return PartChoice(None, nodes_s)
    return PartChoice(made, made_s) if made_s < nodes_s else PartChoice(None, nodes_s)
