"""Parts of a network without kernels: node by node through PyTorch's operators, on tensors that kernels share.

A model's batch is fixed in such nodes (shapes that were computed on import). For several batches of that size at once, every
node is mapped over them (`torch.func.vmap`), or computed batch by batch where PyTorch cannot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dovetail.errors import UnsupportedError
from dovetail.gpu.library.nodes import LibraryNode
from dovetail.ir import Graph, Opaque
from dovetail.kernels.calls import LibraryPart
from dovetail.kernels.items import TensorLayout
from dovetail.numerics.reference import run_float_node, run_node

LOG = logging.getLogger("dovetail.gpu")
FIRST_BIT = -128
"""As a signed byte; changing it takes 128 (`kernels.layers.STORED_OFFSET`) from an unsigned one, or adds it."""


def seen_as_maps(buffer: Any, place: TensorLayout, rank: int) -> Any:
    """A place in memory as images x channels x rows x columns, or images x features where those are no map."""
    images, rows, columns, channels = place.strides
    sizes, steps = (place.images, place.channels, place.height, place.width), (images, channels, rows, columns)
    shown = 4 if place.height * place.width > 1 else rank
    return buffer.as_strided(sizes[:shown], steps[:shown], buffer.storage_offset())


@dataclass(slots=True, eq=False)
class LibraryLaunch:
    """A part, ready to run again and again; `held` are tensors of the network that have no place among those of kernels."""

    graph: Graph
    part: LibraryPart
    views: Mapping[str, Any]
    """What it shares with kernels, as the graph has it."""
    batches: int
    nodes: Sequence[LibraryNode]
    held: dict[str, Any]
    done: dict[str, list[str]] = field(default_factory=dict)
    """Tensors that nothing needs behind a node."""
    apart: set[str] = field(default_factory=set)
    """Nodes that are not mapped over batches, but computed for each."""
    joined: Callable[[LibraryLaunch], bool] | None = None
    """The part as one function; False where it is not for these tensors."""

    def __post_init__(self) -> None:
        last = {t: node.name for node in self.part.nodes for t in node.inputs}
        inside = {node.name for node in self.part.nodes}
        for tensor, name in last.items():
            if tensor not in self.graph.outputs and all(n.name in inside for n in self.graph.consumers(tensor)):
                self.done.setdefault(name, []).append(tensor)

    def __call__(self) -> None:
        with torch.no_grad():
            if self.joined is None or not self.joined(self):
                self.by_nodes()

    def by_nodes(self) -> None:
        """Node by node."""
        with torch.no_grad():
            local = {name: self.batched(self.turned(name, self.views[name]), self.graph.shape(name)) for name in self.part.reads}
            for each in self.nodes:
                found = self.evaluated(each, [local[t] if t in local else self.held[t] for t in each.node.inputs])
                local[each.node.output] = self.held[each.node.output] = found
                if each.node.output in self.part.writes:
                    view = self.views[each.node.output]
                    view.copy_(self.turned(each.node.output, found.reshape(view.shape)))
                for tensor in self.done.get(each.node.name, ()):
                    local.pop(tensor, None)
                self.forget(self.done.get(each.node.name, ()))
            self.part_from_kernels()

    def forget(self, names: Iterable[str]) -> None:
        """Leave the memory of tensors to others."""
        for name in names:
            if name not in self.graph.inputs:
                self.held.pop(name, None)

    def turned(self, name: str, tensor: Any) -> Any:
        """Unsigned bytes as kernels have them, less 128, for plain ones, or the reverse; all others as they are."""
        scheme = self.graph.tensors[name].scheme
        if scheme is None or scheme.signed:
            return tensor
        other = torch.uint8 if tensor.dtype == torch.int8 else torch.int8
        return torch.bitwise_xor(tensor.view(torch.int8), FIRST_BIT).view(other)

    def part_from_kernels(self) -> None:
        """Copy what lies where kernels may write before others read it."""
        shared = {view.untyped_storage().data_ptr() for view in self.views.values()}
        for each in self.nodes:
            value = self.held.get(each.node.output)
            pieces = value if isinstance(value, tuple | list) else [value]
            if any(isinstance(v, torch.Tensor) and v.untyped_storage().data_ptr() in shared for v in pieces):
                copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in pieces]
                self.held[each.node.output] = copies if isinstance(value, tuple | list) else copies[0]

    def batched(self, view: Any, shape: tuple[int, ...]) -> Any:
        """With the batches in front, where there are several."""
        return view.reshape(shape if self.batches == 1 else (self.batches, *shape))

    def evaluated(self, each: LibraryNode, inputs: Sequence[Any]) -> Any:
        if not each.on_host:
            try:
                return self.through_torch(each, inputs)
            except torch.OutOfMemoryError:
                raise
            except (UnsupportedError, RuntimeError, TypeError, ValueError, IndexError, KeyError) as reason:
                if each.function is not None:
                    raise
                LOG.warning("node %s is computed on the host: %s", each.node.name, reason)
                each.on_host = True
        return self.by_host(each, inputs)

    @property
    def leaves_gpu(self) -> bool:
        """Whether ONNX Runtime computes a node on the host, so that the part cannot be in a CUDA graph."""
        return any(each.on_host for each in self.nodes)

    def through_torch(self, each: LibraryNode, inputs: Sequence[Any]) -> Any:
        if self.batches == 1 or not inputs:
            found = each(inputs)
            return found if self.batches == 1 else found.expand(self.batches, *found.shape)
        if each.node.name not in self.apart:
            try:
                return torch.func.vmap(lambda *one: each(one))(*inputs)
            except RuntimeError:
                self.apart.add(each.node.name)
        return torch.stack([each([x[i] for x in inputs]) for i in range(self.batches)])

    def by_host(self, one: LibraryNode, inputs: Sequence[Any]) -> Any:
        """The node as the reference computes it, foreign ones in ONNX Runtime, batch by batch."""
        arrays = [(x.float() if x.is_floating_point() else x).cpu().contiguous().numpy() for x in inputs]
        each = [[a[i] for a in arrays] for i in range(self.batches)] if self.batches > 1 else [arrays]
        run = run_node if self.graph.quantized else run_float_node
        found = [np.asarray(run(self.graph, one.node, xs)) for xs in each]
        made = torch.from_numpy(np.stack(found) if self.batches > 1 else found[0])
        return made.to(one.device).to(one.real) if made.is_floating_point() else made.to(one.device)


def described(part: LibraryPart) -> list[str]:
    """Operators of a part, by name."""
    return [node.op.operator if isinstance(node.op, Opaque) else node.op.kind for node in part.nodes]
