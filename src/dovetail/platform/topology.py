"""How equal FPGAs are joined, where that is not as their board file has it: a line, a ring or a mesh of the same links, and
whether they are circuit switches with time slots, as FiC's are."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from math import isqrt

from dovetail.errors import PlatformError
from dovetail.platform.device import Kind, Link, Platform, Switch


class Topology(StrEnum):
    """Who has a link to whom."""

    LINE = "line"
    RING = "ring"
    MESH = "mesh"
    """Rows and columns as nearly equal in number as the count of boards allows."""


SWITCH = "switch"
CHOICES = (*(t.value for t in Topology), SWITCH, *(f"{t.value}+{SWITCH}" for t in Topology))
"""What can be asked for; a switch alone leaves links as they are."""
MOST_SLOTS = Switch(64, "assumed: FiC's switch needs fewer than 16 slots up to 256 boards (Azegami et al., MCSoC 2019)")


def joined_as(platform: Platform, choice: str) -> Platform:
    """The platform with its FPGAs joined as one of `CHOICES` says.

    Raises:
        PlatformError: no two FPGAs are linked, or links that a switch joins have different bandwidths.
    """
    shape, _, switch = choice.rpartition("+") if choice.endswith(SWITCH) else (choice, "", "")
    found = with_topology(platform, Topology(shape)) if shape else platform
    return with_switch(found) if switch else found


def with_switch(platform: Platform) -> Platform:
    """The platform whose FPGAs pass circuits on by time slots.

    Raises:
        PlatformError: no two FPGAs are linked, or links between them have different bandwidths.
    """
    _between(platform, "there is nothing to switch")
    return replace(platform.with_switch(MOST_SLOTS), description=f"{platform.description}; circuit switches with time slots")


def _between(platform: Platform, otherwise: str) -> tuple[list[str], list[Link]]:
    """The FPGAs and the links between two of them; PlatformError where there are none, with what follows from it."""
    boards = [d.name for d in platform.of_kind(Kind.FPGA)]
    between = [x for x in platform.links if all(end in boards for end in x.ends)]
    if not between:
        raise PlatformError(f"platform {platform.name}: no link between two FPGAs, so {otherwise}; give a board of several, "
                            "such as fic:4")
    return boards, between


def pairs_of(count: int, topology: Topology) -> list[tuple[int, int]]:
    """Numbers of the boards that a link joins."""
    line = [(i, i + 1) for i in range(count - 1)]
    if topology is Topology.LINE or count < 3:
        return line
    if topology is Topology.RING:
        return [*line, (count - 1, 0)]
    columns = next(c for c in range(isqrt(count), 0, -1) if count % c == 0)
    columns = count // columns
    return [(i, i + 1) for i in range(count) if (i + 1) % columns] + [(i, i + columns) for i in range(count - columns)]


def with_topology(platform: Platform, topology: Topology) -> Platform:
    """The platform with its FPGAs joined so, by links like the first between two of them.

    Raises:
        PlatformError: no two FPGAs are linked.
    """
    boards, between = _between(platform, f"they cannot be joined as a {topology}")
    stem = between[0].name.rstrip("0123456789")
    made = [replace(between[0], name=f"{stem}{n}", ends=(boards[a], boards[b]))
            for n, (a, b) in enumerate(pairs_of(len(boards), topology))]
    return replace(platform, description=f"{platform.description}; joined as a {topology}",
                   links=tuple(x for x in platform.links if x not in between) + tuple(made))
