"""Time slots of a circuit switch: which circuit owns which slot of every link, and which slot follows which on boards between.

A frame of the switch has the same number of slots on every link. A circuit owns as many of them on each link of its way, none
with another circuit. A board on the way stores what a frame brought and sends it with a frame of its own, so that any slot can
follow any other, and the first of a circuit is followed by its first. Slots in a frame therefore exist if, and only if, no link
has more of them than a frame has; how many each circuit gets is a question of shares alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dovetail.errors import UnsupportedError

LEAST_SLOTS = 16
"""Of a frame: enough for shares of most circuits, and a frame is short beside the latency of a link."""
MOST_DELAY_FRAMES = 3
"""On a board between: the rest of the frame a cell comes in, that of the frame that leaves then, the next up to its slot."""
Hop = tuple[str, str]
"""A link, and the board that a circuit leaves over it."""


@dataclass(frozen=True, slots=True)
class Circuit:
    """What crosses links: its name, its way, and the cells that a frame of the network takes (0: it wants one slot, no more)."""

    name: str
    hops: tuple[Hop, ...]
    cells: int


@dataclass(frozen=True, slots=True)
class SlotSchedule:
    """Slots of a frame, how many of them each circuit has, and the owner of every slot of every link in use (None: nobody)."""

    slots: int
    shares: tuple[int, ...]
    owners: Mapping[Hop, tuple[int | None, ...]]
    clocks: int
    """Cells of a link's time within which every circuit carries a frame of the network."""
    wanted: int
    """The same, as it was asked for."""
    busiest: Hop | None

    def of(self, circuit: int, hop: Hop) -> tuple[int, ...]:
        """Slots of a circuit on a link, in their order."""
        return tuple(s for s, owner in enumerate(self.owners[hop]) if owner == circuit)


def schedule(circuits: Sequence[Circuit], most_slots: int, wanted_clocks: int) -> SlotSchedule:
    """The shortest frame whose slots carry a frame of the network in `wanted_clocks`; else the frame that needs the fewest.

    Raises:
        UnsupportedError: a link has more circuits than a frame may have slots.
    """
    crowded = {hop: [c.name for c in circuits if hop in c.hops] for hop in _hops(circuits)}
    for (link, board), names in crowded.items():
        if len(names) > most_slots:
            raise UnsupportedError(f"link {link} from {board}: {len(names)} circuits ({', '.join(names)}) need a time slot each, "
                                   f"and a frame of its switch has {most_slots}; divide less, or put layers that exchange data "
                                   "on one board")
    least = max((sum(c.cells for c in circuits if hop in c.hops) for hop in crowded), default=0)
    best: tuple[int, int, tuple[int, ...]] | None = None
    for slots in range(min(LEAST_SLOTS, most_slots), most_slots + 1):
        if any(len(names) > slots for names in crowded.values()):
            continue
        shares = shares_of(circuits, slots)
        found = clocks_of(circuits, slots, shares), slots, shares
        best = found if best is None else min(best, found)
        if found[0] <= max(wanted_clocks, least):
            best = found
            break
    assert best is not None
    clocks, slots, shares = best
    owners = {hop: spread([(k, shares[k]) for k, c in enumerate(circuits) if hop in c.hops], slots) for hop in _hops(circuits)}
    pairs = list(zip(circuits, shares, strict=True))
    slowest = max(pairs, key=lambda pair: Fraction(pair[0].cells, pair[1]))[0] if pairs else None
    busiest = None if slowest is None else max(slowest.hops, key=lambda hop: sum(o is not None for o in owners[hop]))
    return SlotSchedule(slots, shares, owners, clocks, wanted_clocks, busiest)


def _hops(circuits: Sequence[Circuit]) -> list[Hop]:
    return list(dict.fromkeys(hop for c in circuits for hop in c.hops))


def clocks_of(circuits: Sequence[Circuit], slots: int, shares: Sequence[int]) -> int:
    """Clocks in which a link carries the cells of its slowest circuit, one cell a clock."""
    return max((-(-c.cells * slots // n) for c, n in zip(circuits, shares, strict=True)), default=0)


def shares_of(circuits: Sequence[Circuit], slots: int) -> tuple[int, ...]:
    """Slots of each circuit, so that the slowest takes as little time as any shares allow.

    One each, then one more for whoever takes longest, as long as its way has one left. Nobody got a slot who was faster than
    the one that is refused at the end, so nothing can be taken from others for it. What is left goes to the next slowest.
    """
    shares = [1] * len(circuits)
    left = {hop: slots - sum(hop in c.hops for c in circuits) for hop in _hops(circuits)}
    growing = {k for k, c in enumerate(circuits) if c.cells}
    while growing:
        slowest = max(growing, key=lambda k: (Fraction(circuits[k].cells, shares[k]), -k))
        if any(not left[hop] for hop in circuits[slowest].hops):
            growing.discard(slowest)
            continue
        shares[slowest] += 1
        for hop in circuits[slowest].hops:
            left[hop] -= 1
    return tuple(shares)


def spread(shares: Sequence[tuple[int, int]], slots: int) -> tuple[int | None, ...]:
    """The owner of each slot of a link: slots of a circuit as far apart as those of others let them."""
    places = sorted((Fraction(2 * i + 1, 2 * count), k) for k, count in shares for i in range(count))
    free = slots - len(places)
    gaps: list[tuple[Fraction, int | None]] = [(Fraction(2 * i + 1, 2 * free), None) for i in range(free)]
    return tuple(owner for _, owner in sorted([*places, *gaps], key=lambda p: (p[0], p[1] is None, p[1] or 0)))


def follow(came: Sequence[int | None], leaves: Sequence[int | None], passing: Sequence[int]) -> list[tuple[int, int]]:
    """Slot in and slot out of what a board passes on from one link to another: the n-th of a circuit by its n-th."""
    found = []
    for circuit in passing:
        enters, exits = ([s for s, owner in enumerate(owners) if owner == circuit] for owners in (came, leaves))
        found += list(zip(enters, exits, strict=True))
    return sorted(found)
