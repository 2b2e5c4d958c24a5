"""Equal FPGAs seen as one purse: a relaxation in which the budgets of all of them are one.

A board of a host and many equal FPGAs (`fic:24`) leaves a solver with as many copies of every choice, and with as many
budgets. In the pool, at most four FPGAs stand for all, and whatever runs on them is paid from the budgets of all together: an
FPGA whose tensors are no longer needed may be any other FPGA from then on. Of a long ring, the four are a window of neighbours
in a row, which moves on while what it holds stays as far apart, and all of them are at the host's door. Every plan that has no
more than four neighbours at work or holding tensors at once is then a plan of the pool that costs no more, so what bounds plans
of the pool bounds those of the board; and the pool of 24 FPGAs is no larger than that of four.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.platform.device import Device, Kind, Link, Platform

STAND_INS = 4
"""FPGAs that stand for all."""
ROW = 2 * STAND_INS - 2
"""Boards of a ring from which on four neighbours are as far from each other as in a row."""

Curve = Callable[[Floats], Floats]
"""A function of parts of one board that packs: parts that fit on a board together keep a sum of at most one under it."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The FPGAs that are pooled, in the platform's order, and what of their platform a pool must still know."""

    boards: tuple[str, ...]
    stand_ins: tuple[str, ...]
    idle_power_w: float

    @property
    def many(self) -> bool:
        """Whether there are more boards than are looked at one by one."""
        return len(self.boards) > len(self.stand_ins)

    def among(self, devices: Sequence[str]) -> tuple[int, ...]:
        """Where the boards that are looked at one by one stand among devices."""
        return tuple(i for i, d in enumerate(devices) if d in self.stand_ins)


@dataclass(frozen=True, slots=True)
class Share:
    """A limited resource: of one device, or of `count` equal ones together.

    `budgets` are indices into `Problem.budgets`, `limit` is that of one device. With a `curve`, what pieces take of their
    device is bent by it before it is added up.
    """

    name: str
    budgets: tuple[int, ...]
    limit: float
    count: int = 1
    curve: Curve | None = field(default=None, compare=False)

    def taken(self, resources: Floats) -> Floats:
        """The fraction of all there is that columns take; `resources` are columns x budgets."""
        if len(self.budgets) == 1 and self.curve is None:
            only: Floats = resources[:, self.budgets[0]] / self.limit
            return only if self.count == 1 else only / self.count
        parts = resources[:, self.budgets] / self.limit
        found: Floats = (parts if self.curve is None else self.curve(parts)).sum(axis=1) / self.count
        return found


def pool_of(platform: Platform) -> tuple[Platform, Pool] | None:
    """A platform of stand-ins, if it is a host with several equal FPGAs; where they are many, in a ring of equal links."""
    boards, host = platform.of_kind(Kind.FPGA), platform.host
    others = [d for d in platform.devices if d.kind is not Kind.FPGA]
    if len(boards) < 2 or [d.name for d in others] != [host] or len({nature(d) for d in boards}) > 1:
        return None
    names = tuple(d.name for d in boards)
    pool = Pool(names, names[:STAND_INS], sum(d.idle_power_w for d in platform.devices))
    if len(boards) <= STAND_INS:
        return platform, pool
    ring = {frozenset((a, b)) for a, b in zip(names, (*names[1:], names[0]), strict=True)}
    between = [x for x in platform.links if host not in x.ends]
    gates = [x for x in platform.links if host in x.ends]
    if {frozenset(x.ends) for x in between} != ring or len({_speed(x) for x in between}) > 1 or len(gates) != 1 \
            or names[0] not in gates[0].ends:
        return None
    # Four neighbours of a long ring stand in a row; on the shortest, the way around is no longer than the one along them.
    along = pool.stand_ins if len(boards) >= ROW else (*pool.stand_ins, pool.stand_ins[0])
    links = [replace(x, ends=(a, b)) for x, a, b in zip(between, along, along[1:], strict=False)]
    kept = tuple(d for d in platform.devices if d.name == host or d.name in pool.stand_ins)
    found = replace(platform, devices=kept, links=(gates[0], *links))
    for name in pool.stand_ins:  # any of them may be the one at the host's door
        found.known_routes[host, name] = found.known_routes[name, host] = (gates[0],)
    return found, pool


def _speed(link: Link) -> tuple[object, ...]:
    return link.bandwidth_bytes_per_s, link.latency_s, link.energy_j_per_byte, link.shared_memory, link.full_duplex


def nature(device: Device) -> tuple[object, ...]:
    """All that makes a device cost what it costs."""
    return (device.model, device.idle_power_w, device.busy_power_w, device.clock_hz, device.family, device.models, device.part,
            device.kernels, tuple(sorted(device.resources.items())), tuple(sorted(device.parameters.items())))


SAFE = 1e-8
"""Part of itself by which a piece is taken smaller before it is bent: limits have a slack, and curves have steps."""


def curves(sizes: Floats) -> list[tuple[str, Curve]]:
    """Curves that may tell parts of such sizes from parts that fit: dual feasible functions (Fekete and Schepers 2001; Carlier,
    Clautiaux and Moukrim 2007), with steps where the sizes are.
    """
    found: list[tuple[str, Curve]] = [(f"1/{t + 1}", _floors(t)) for t in range(1, 13)]
    small = np.unique(np.round(sizes[(sizes > 1e-3) & (sizes <= 0.5)], 6))
    found += [(f"below {s:.3f}", _large(float(s) * (1 - 2 * SAFE))) for s in small]
    for s in small:
        found += [(f"1/{t + 1} below {s:.3f}", _after(_floors(t), _large(float(s) * (1 - 2 * SAFE)))) for t in (1, 2, 3, 5)]
    every = np.unique(np.round(sizes[(sizes > 0.02) & (sizes < 1)], 6))
    steps = sorted({float(np.nextafter(j / s * (1 + 2 * SAFE), inf)) for s in np.r_[every, 1 - every] for j in (1, 2, 3)
                    if s > 0 and 2 <= j / s <= 40})
    return found + [(f"steps of {1 / c:.4f}", _stairs(c)) for c in steps]


def _floors(t: int) -> Curve:
    """Whole multiples of 1/(t + 1), of which t make one unless the part is an exact multiple; here, multiples count as below."""
    def curve(parts: Floats) -> Floats:
        found: Floats = np.floor((t + 1) * parts * (1 - SAFE)) / t
        return found
    return curve


def _large(least: float) -> Curve:
    """Parts that leave less than `least` count as one, parts below it as nothing."""
    def curve(parts: Floats) -> Floats:
        x = parts * (1 - SAFE)
        return np.where(x > 1 - least, np.maximum(x, 1.0), np.where(x >= least, x, 0.0))
    return curve


def _stairs(c: float) -> Curve:
    """Steps of 1/c that are the same from below and from above."""
    def curve(parts: Floats) -> Floats:
        x, whole = parts * (1 - SAFE), np.floor(c)
        return np.where(x > 0.5, 1 - np.floor(c * (1 - x)) / whole, np.where(x < 0.5, np.floor(c * x) / whole, 0.5))
    return curve


def _after(outer: Curve, inner: Curve) -> Curve:
    return lambda parts: outer(np.minimum(inner(parts), 1.0))
