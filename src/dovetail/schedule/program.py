"""A plan made concrete: for every device, the sub-graphs it runs, what each reads and writes, in order.

Lowering never changes numbers: shares are exact slices of operators, and an input-channel split becomes
int32 partial sums plus one `Reduce`, so the pieces put together are the original integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from dovetail.errors import UnsupportedError
from dovetail.ir import Axis, Constant, Graph, Node, Op, Reduce, Region, Shape, Tensor, intersect, slices, whole
from dovetail.ir.tensor import region_shape
from dovetail.numerics.requantize import accumulator_scheme
from dovetail.partition.plan import Assignment, Split


@dataclass(frozen=True, slots=True)
class Binding:
    """A region of a whole tensor, under the name a segment's graph knows it by."""

    name: str
    tensor: str
    region: Region


@dataclass(frozen=True, slots=True)
class Segment:
    """A sub-graph that one device runs without handing anything to another device in between."""

    name: str
    device: str
    graph: Graph
    nodes: tuple[str, ...]
    """The nodes of the planned graph it computes (or computes a share of)."""
    reads: tuple[Binding, ...]
    writes: tuple[Binding, ...]
    origins: tuple[str, ...] = ()
    """The planned node of every node of `graph`, in its order."""


@dataclass(frozen=True, slots=True)
class Program:
    """Segments in an order that respects every dependency, and the tensors that live between them."""

    graph: Graph
    segments: tuple[Segment, ...]
    tensors: Mapping[str, Tensor]
    """Every tensor a segment reads or writes, partial sums included."""


@dataclass(frozen=True, slots=True)
class _Job:
    """One share of one node on one device."""

    origin: str
    device: str
    name: str
    op: Op
    reads: tuple[tuple[str, Region], ...]
    constants: tuple[Constant, ...]
    write: tuple[str, Region]


class _Names:
    """Names for what lowering makes: readable, the same every time, and never one the network already uses."""

    def __init__(self, graph: Graph) -> None:
        self._taken = {*(n.name for n in graph.nodes), *graph.tensors, *graph.constants}
        self._made: dict[tuple[str, str, str], str] = {}

    def derive(self, kind: str, name: str, suffix: str) -> str:
        """The name of the `kind` that `suffix` makes of `name`; without a suffix, the name itself."""
        if not suffix:
            return name
        made, number = f"{name}_{suffix}", 2
        if (kind, name, suffix) not in self._made:
            while made in self._taken:
                made, number = f"{name}_{suffix}_{number}", number + 1
            self._taken.add(made)
            self._made[kind, name, suffix] = made
        return self._made[kind, name, suffix]


@dataclass(slots=True)
class _Group:
    """Jobs that will become one segment."""

    device: str
    jobs: list[_Job] = field(default_factory=list)
    needs: set[int] = field(default_factory=set)


def lower(graph: Graph, assignment: Assignment) -> Program:
    """Turn a quantized graph and its assignment into a program."""
    tensors, names = dict(graph.tensors), _Names(graph)
    jobs = [job for node in graph.nodes for job in _jobs(graph, node, assignment[node.name], tensors, names)]
    groups = _group(jobs)
    order = list(TopologicalSorter({i: g.needs for i, g in enumerate(groups)}).static_order())
    counts: dict[str, int] = {}
    segments = []
    for i in order:
        device = groups[i].device
        number = counts[device] = counts.get(device, -1) + 1
        apart = "_" if device[-1].isdigit() else ""  # fpga1's eleventh is not fpga11's first
        segments.append(_segment(f"{device}{apart}{number}", groups[i], graph, jobs, tensors, names))
    return Program(graph, tuple(segments), tensors)


def count_parts(graph: Graph, assignment: Assignment) -> int:
    """How many segments the program of a plan has, also of a graph that is not quantized yet."""
    tensors, names = dict(graph.tensors), _Names(graph)
    return len(_group([job for node in graph.nodes for job in _jobs(graph, node, assignment[node.name], tensors, names)]))


def _jobs(graph: Graph, node: Node, split: Split, tensors: dict[str, Tensor], names: _Names) -> list[_Job]:
    """A node's shares; those of an input-channel split are partial sums, and their reduction on `split.reducer` follows."""
    shapes = graph.input_shapes(node)
    if split.axis is None:
        reads = tuple((t, whole(s)) for t, s in zip(node.inputs, shapes, strict=True))
        return [_Job(node.name, split.pieces[0].device, node.name, node.op, reads, graph.params(node),
                     (node.output, whole(graph.shape(node.output))))]
    summed, reducer = split.axis is Axis.INPUT_CHANNELS, split.reducer
    if summed and (not node.op.product or reducer is None):
        raise UnsupportedError(f"node {node.name}: an input-channel split needs a Conv or Gemm and a reducing device")
    jobs = []
    for piece in split.pieces:
        share = node.op.share(split.axis, piece.start, piece.stop, shapes)
        units, target = f"{piece.start}_{piece.stop}", node.output
        if summed:
            target = names.derive("tensor", node.output, f"partial_{units}")
            tensors[target] = Tensor(target, graph.shape(node.output),
                                     accumulator_scheme(graph, node) if graph.quantized else None)
        jobs.append(_Job(node.name, piece.device, names.derive("share", node.name, units), share.op,
                         tuple(zip(node.inputs, share.inputs, strict=True)), _cut(graph, node, share.params, names),
                         (target, share.output)))
    if summed and reducer is not None:
        partials, bias = tuple(job.write for job in jobs), graph.constants[node.params[1]]
        jobs.append(_Job(node.name, reducer, names.derive("share", node.name, "reduce"), Reduce(node.op.bounds), partials,
                         (bias,), (node.output, whole(graph.shape(node.output)))))
    return jobs


def _cut(graph: Graph, node: Node, regions: tuple[Region, ...], names: _Names) -> tuple[Constant, ...]:
    cut = []
    for name, region in zip(node.params, regions, strict=False):
        constant = graph.constants[name]
        if region == whole(constant.array.shape):
            cut.append(constant)
            continue
        scheme = constant.scheme.cut(region) if constant.scheme else None
        cut_name = names.derive("constant", name, _region_suffix(region, constant.array.shape))
        cut.append(Constant(cut_name, constant.array[slices(region)], scheme))
    return tuple(cut)


def _region_suffix(region: Region, shape: Shape) -> str:
    """A readable name for a region: only the dimensions that are cut appear."""
    return "_".join(f"d{i}_{start}_{stop}" for i, ((start, stop), d) in enumerate(zip(region, shape, strict=True))
                    if (start, stop) != (0, d))


def _group(jobs: list[_Job]) -> list[_Group]:
    """Merge each job into its device's newest group where the group stays convex; else open a new one."""
    groups: list[_Group] = []
    home: dict[str, list[tuple[Region, int]]] = {}
    for job in jobs:
        sources = {g for tensor, region in job.reads for r, g in home.get(tensor, []) if intersect(r, region)}
        chosen = next((i for i in reversed(range(len(groups)))
                       if groups[i].device == job.device and _accepts(groups, i, job, sources)), None)
        if chosen is None:
            chosen = len(groups)
            groups.append(_Group(job.device))
        groups[chosen].jobs.append(job)
        groups[chosen].needs |= sources - {chosen}
        home.setdefault(job.write[0], []).append((job.write[1], chosen))
    return groups


def _accepts(groups: list[_Group], index: int, job: _Job, sources: set[int]) -> bool:
    """Whether a job can join a group: what it reads from the group is produced there exactly, and no cycle arises."""
    for tensor, region in job.reads:
        local = [j.write[1] for j in groups[index].jobs if j.write[0] == tensor and intersect(j.write[1], region)]
        if local and local != [region]:
            return False
    if any(j.write[0] == job.write[0] for j in groups[index].jobs):
        return False  # two shares of one tensor on one device stay apart
    return not any(_depends(groups, source, index) for source in sources - {index})


def _depends(groups: list[_Group], start: int, target: int) -> bool:
    seen, stack = {start}, [start]
    while stack:
        current = stack.pop()
        if current == target:
            return True
        stack += [n for n in groups[current].needs if n not in seen]
        seen |= groups[current].needs
    return False


def _segment(name: str, group: _Group, graph: Graph, jobs: list[_Job], tensors: Mapping[str, Tensor],
             naming: _Names) -> Segment:
    produced = {job.write for job in group.jobs}
    members = {id(job) for job in group.jobs}
    outside = [read for job in jobs if id(job) not in members for read in job.reads]
    reads: dict[tuple[str, Region], Binding] = {}
    local: dict[str, Tensor] = {}
    constants: dict[str, Constant] = {}
    nodes, writes = [], []
    for job in group.jobs:
        names = []
        for tensor, region in job.reads:
            names.append(_local(tensors[tensor], region, local, naming))
            if (tensor, region) not in produced:
                reads.setdefault((tensor, region), Binding(names[-1], tensor, region))
        output = _local(tensors[job.write[0]], job.write[1], local, naming)
        constants |= {c.name: c for c in job.constants}
        nodes.append(Node(job.name, job.op, tuple(names), tuple(c.name for c in job.constants), output))
        tensor, region = job.write
        if tensor in graph.outputs or any(t == tensor and intersect(r, region) for t, r in outside):
            writes.append(Binding(output, tensor, region))
    sub = Graph(name, tuple(b.name for b in reads.values()), tuple(b.name for b in writes), tuple(nodes), local, constants)
    origins = tuple(j.origin for j in group.jobs)
    return Segment(name, group.device, sub, tuple(dict.fromkeys(origins)), tuple(reads.values()), tuple(writes), origins)


def _local(tensor: Tensor, region: Region, local: dict[str, Tensor], names: _Names) -> str:
    """Declare a region of a tensor in a segment's graph and return its name there."""
    name = names.derive("tensor", tensor.name, _region_suffix(region, tensor.shape))
    scheme = tensor.scheme.cut(region) if tensor.scheme else None
    local[name] = Tensor(name, region_shape(region), scheme, tensor.element)
    return name
