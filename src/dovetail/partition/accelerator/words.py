"""Words between dedicated engines: what cuts pixels anew may be slower than both of its neighbours.

The folds of two layers say in which words one leaves its pixels and the other takes them. Where these differ an engine between
them cuts pixels anew, in some cases with one clock per pixel more than either has words (`regrouped_clocks`). A choice of folds
keeps its pace only with that counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.cost.folded import shape_of
from dovetail.hardware.folds import Fold, Loops, regrouped_clocks
from dovetail.hardware.scans import stream_shape
from dovetail.ir import Conv, Gemm, Graph, Reshape
from dovetail.partition.accelerator.choice import Clash


@dataclass(frozen=True, slots=True)
class WordLink:
    """A stream between two nodes by number, the first of them None for the graph's input, and its map."""

    source: int | None
    target: int
    channels: int
    pixels: int


def links_of(graph: Graph) -> tuple[WordLink, ...]:
    """All streams that nodes read; reshapes are wiring."""
    made = {node.output: i for i, node in enumerate(graph.nodes)}
    found = []
    for target, node in enumerate(graph.nodes):
        for tensor in node.inputs if not isinstance(node.op, Reshape) else ():
            channels, height, width = stream_shape(graph, tensor)
            source = made.get(tensor)
            while source is not None and isinstance(graph.nodes[source].op, Reshape):
                source = made.get(graph.nodes[source].inputs[0])
            found.append(WordLink(source, target, channels, height * width))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Row:
    """Dedicated engines of the first nodes of a graph: the fold of each, and which of them are together one engine."""

    folds: tuple[Fold | None, ...]
    fused: tuple[tuple[int, ...], ...]
    leaving: int | None
    """Channels of a beat that arrays behind them take; None where there are none."""


class Words:
    """In which words the dedicated engines of a graph take and leave pixels."""

    def __init__(self, graph: Graph) -> None:
        self.links = links_of(graph)
        self.into: dict[int, list[WordLink]] = {}
        for link in self.links:
            self.into.setdefault(link.target, []).append(link)
        self.channels = {i: shape_of(graph, n).channels for i, n in enumerate(graph.nodes) if isinstance(n.op, Conv | Gemm)}
        self.written = [stream_shape(graph, n.output)[0] for n in graph.nodes]

    def clocks(self, row: Row) -> dict[int, int]:
        """Of every link, by number, clocks per frame in which its pixels are cut anew; where they are not, it is left out."""
        inside = {i for members in row.fused for i in members[1:]}
        leaves, found = dict[int, int](), dict[int, int]()
        for number, link in enumerate(self.links):
            width = link.channels if link.source is None else min(link.channels, leaves.get(link.source, link.channels))
            if link.target in inside:
                leaves[link.target] = self.written[link.target]
                continue
            if link.target < len(row.folds):
                taken, leaves[link.target] = self._fields(link.target, row.folds[link.target], leaves)
            elif row.leaving is not None and link.source is not None and link.source < len(row.folds):
                taken = row.leaving
            else:
                continue
            if width != taken:
                found[number] = link.pixels * regrouped_clocks(link.channels, width, taken)
        return found

    def deciding(self, number: int) -> set[int]:
        """The layers with folds whose words decide in which ones a link's pixels are cut."""
        target = self.links[number].target
        return {target} & self.channels.keys() | self._feeding(target)

    def clashing(self, number: int, row: Row, folds: Mapping[int, Sequence[Fold | None]], pace: int) -> Clash | None:
        """Folds on offer with which a link is cut anew in more clocks than a pace, as it is in a row; None where others decide.

        Layers in front that leave as many channels or more change nothing, nor do other words of the layer behind that take too
        long with theirs.
        """
        link, deciding = self.links[number], sorted(self.deciding(number))
        if not deciding or link.target >= len(row.folds) or not set(deciding) <= folds.keys():
            return None
        words = {i: [self._fields(i, fold, {}) for fold in folds[i]] for i in deciding}
        own = {i: self._fields(i, row.folds[i], {}) for i in deciding}
        narrow = min((own[i][1] for i in deciding if i != link.target), default=link.channels)
        if link.target not in self.channels or narrow > link.channels:  # all words as they are
            ends = {i: int(i != link.target) for i in deciding}
            return Clash(tuple((i, tuple(k for k, w in enumerate(words[i]) if w[ends[i]] == own[i][ends[i]])) for i in deciding))
        late = {taken for taken, _ in words[link.target]
                if taken != narrow and link.pixels * regrouped_clocks(link.channels, narrow, taken) > pace}
        first = next((i for i in deciding if i != link.target and own[i][1] == narrow), None)
        found = [(i, [k for k, (taken, left) in enumerate(words[i]) if (
            taken in late if i == link.target else left == narrow if i == first else left >= narrow)]) for i in deciding]
        return Clash(tuple((i, tuple(options)) for i, options in found))

    def _feeding(self, index: int) -> set[int]:
        sources = [link.source for link in self.into[index] if link.source is not None]
        return {found for s in sources for found in ({s} if s in self.channels else self._feeding(s))}

    def _fields(self, index: int, fold: Fold | None, leaves: dict[int, int]) -> tuple[int, int]:
        """Channels of a beat that a node takes and leaves."""
        links = self.into[index]
        if index not in self.channels:
            fewest = min(link.channels if link.source is None else leaves.get(link.source, link.channels) for link in links)
            return fewest, fewest
        if fold is None:
            return links[0].channels, self.written[index]
        loops = Loops(self.channels[index], fold)
        return loops.input_width, loops.output_width
