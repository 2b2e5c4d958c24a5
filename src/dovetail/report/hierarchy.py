"""What a network consists of: stages of one resolution, blocks, layers; and names without what they have in common.

Blocks are what names say belongs together, as long as it follows one another; where names say nothing, runs that begin where
one tensor alone passes. Groups are runs of layers, so that nothing flows from a later group to an earlier one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil
from typing import Any

FLAT = 14
"""Layers of a network that needs no groups. Chosen."""
MOST = 16
"""Layers of a block, blocks of a stage, and groups beside each other, at the most. Chosen."""
CHUNK = 8
"""Layers of a block whose names say nothing, if one tensor alone passes there. Chosen."""

NamePath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A part of a network: groups, and layers by their index, in order."""

    name: str
    children: tuple[Group | int, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """Layers of all groups in it."""
        return tuple(i for child in self.children for i in (child.members if isinstance(child, Group) else (child,)))


def paths(names: Sequence[str]) -> list[NamePath]:
    """Names as the parts between their separators, without what stands twice and what all begin with; numbers do not begin."""
    found: list[NamePath] = []
    for name in names:
        elements = [e for e in re.split(r"[/:]+", name) if e] or [name]
        rest = [elements[0], *(own.removeprefix(f"{before}.") for before, own in pairwise(elements))]
        found.append(tuple(part for element in rest for part in element.split(".") if part) or (name,))
    while len(found) > 1 and len({path[0] for path in found}) == 1 and all(len(p) > 1 and not p[1].isdigit() for p in found):
        found = [path[1:] for path in found]
    return found


def short_names(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """The layers' names without what they have in common, and without the operator where it tells nothing apart."""
    whole = paths([node["name"] for node in nodes])
    begun = Counter(path[:i] for path in whole for i in range(1, len(path) + 1))
    shorter = [path[:-1] if len(path) > 1 and path[-1].lower() == node["op"].lower() and begun[path[:-1]] == 1 else path
               for path, node in zip(whole, nodes, strict=True)]
    joined = [".".join(path) for path in shorter]
    full = [".".join(path) for path in whole]
    times = Counter(joined)
    chosen = [full[i] if times[name] > 1 else name for i, name in enumerate(joined)]
    return chosen if len(set(chosen)) == len(nodes) else [str(node["name"]) for node in nodes]


def within(name: str, group: str) -> str:
    """A short name inside a group that is called what it begins with."""
    return name.removeprefix(f"{group}.") or name


def hierarchy(nodes: Sequence[Mapping[str, Any]], outputs: Sequence[str]) -> Group:
    """The whole network as a group."""
    everything = tuple(range(len(nodes)))
    if len(nodes) <= FLAT:
        return Group("network", everything)
    finder = _Finder(paths([node["name"] for node in nodes]), _narrow(nodes, outputs))
    items = finder.items(0, len(nodes), 0)
    sizes = [resolution(nodes[_last(item)]["shape"]) for item in items]
    stages: list[tuple[Group | int, ...]] = []
    for _, run in groupby(zip(sizes, items, strict=True), key=lambda pair: pair[0]):
        stages += _parts(finder.chunked([item for _, item in run]))
    return Group("network", tuple(_stage(i, part) for i, part in enumerate(_merged(stages), 1)))


def resolution(shape: Sequence[int]) -> str:
    """Height and width of a feature map; what has none is a vector."""
    spatial = [size for size in shape[2:]]
    return "×".join(map(str, spatial)) if any(size > 1 for size in spatial) else "vector"


def _last(item: Group | int) -> int:
    return item.members[-1] if isinstance(item, Group) else item


def _stage(number: int, items: tuple[Group | int, ...]) -> Group | int:
    """A stage; a layer alone is none, and a block alone is one."""
    if len(items) > 1:
        return Group(f"stage {number}", items)
    return items[0] if isinstance(items[0], int) else Group(f"stage {number}", items[0].children)


def _parts(items: Sequence[Group | int]) -> list[tuple[Group | int, ...]]:
    """A stage in parts of equal size, where it has more than can be seen at once."""
    count = ceil(len(items) / MOST)
    size = ceil(len(items) / count)
    return [tuple(items[i:i + size]) for i in range(0, len(items), size)]


def _merged(stages: list[tuple[Group | int, ...]]) -> list[tuple[Group | int, ...]]:
    """Stages side by side taken together, as long as there are more than can be seen at once and each holds few."""
    while len(stages) > MOST:
        least = min(range(len(stages) - 1), key=lambda i: len(stages[i]) + len(stages[i + 1]))
        if len(stages[least]) + len(stages[least + 1]) > MOST:
            break
        stages[least:least + 2] = [stages[least] + stages[least + 1]]
    return stages


def _narrow(nodes: Sequence[Mapping[str, Any]], outputs: Sequence[str]) -> list[bool]:
    """Whether one tensor alone is read behind a layer by what comes after it."""
    last = {tensor: i for i, node in enumerate(nodes) for tensor in node["inputs"]} | dict.fromkeys(outputs, len(nodes))
    alive: set[str] = set()
    found: list[bool] = []
    for i, node in enumerate(nodes):
        alive = {t for t in (*alive, *node["inputs"], node["output"]) if last.get(t, -1) > i}
        found.append(len(alive) <= 1)
    return found


@dataclass(frozen=True, slots=True)
class _Finder:
    """Names as paths, and whether a cut behind a layer is narrow."""

    names: Sequence[NamePath]
    narrow: Sequence[bool]

    def items(self, begin: int, end: int, depth: int) -> list[Group | int]:
        """Blocks and single layers of a run whose names begin with the same `depth` parts."""
        found: list[Group | int] = []
        for first, stop in self._runs(begin, end, depth):
            if stop - first == 1:
                found.append(first)
            elif self._divides(first, stop, depth + 1):
                found += self.items(first, stop, depth + 1)
            else:
                found.append(Group(".".join(self.names[first][:depth + 1]), tuple(range(first, stop))))
        return found

    def _runs(self, begin: int, end: int, depth: int) -> list[tuple[int, int]]:
        """Layers in succession whose names have the same next part; those without one stand alone."""
        starts = [i for i in range(begin, end) if i == begin or len(self.names[i]) <= depth + 1
                  or self.names[i - 1][:depth + 1] != self.names[i][:depth + 1] or len(self.names[i - 1]) <= depth + 1]
        return list(pairwise([*starts, end]))

    def _divides(self, begin: int, end: int, depth: int) -> bool:
        """Whether a run is several blocks rather than one."""
        if end - begin > MOST:
            return True
        runs = self._runs(begin, end, depth)
        if len(runs) == 1:
            return len(self.names[begin]) > depth + 1 and self._divides(begin, end, depth + 1)
        return all(stop - first > 1 for first, stop in runs) and all(self.narrow[stop - 1] for _, stop in runs[:-1])

    def chunked(self, items: list[Group | int]) -> list[Group | int]:
        """Items of a stage, of which long runs of single layers are blocks that begin where one tensor alone passes."""
        if len(items) <= MOST:
            return items
        found: list[Group | int] = []
        for single, run in groupby(items, key=lambda item: isinstance(item, int)):
            members = list(run)
            found += self._chunks([i for i in members if isinstance(i, int)]) if single and len(members) > CHUNK else members
        return found

    def _chunks(self, layers: Sequence[int]) -> list[Group]:
        chunks: list[list[int]] = [[]]
        for i in layers:
            if len(chunks[-1]) >= MOST or (len(chunks[-1]) >= CHUNK and self.narrow[i - 1]):
                chunks.append([])
            chunks[-1].append(i)
        return [Group(f"layers {c[0] + 1} to {c[-1] + 1}", tuple(c)) for c in chunks]
