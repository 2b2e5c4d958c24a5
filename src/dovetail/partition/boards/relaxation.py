"""Equal FPGAs seen as one purse: a relaxation in which the budgets of all of them are one.

A board of a host and many equal FPGAs (`fic:24`) leaves a solver with as many copies of every choice, and with as many
budgets. In the pool, at most four FPGAs stand for all, and whatever runs on them is paid from the budgets of all together: an
FPGA whose tensors are no longer needed may be any other FPGA from then on. Of a long ring, the four are a window of neighbours
in a row, which moves on while what it holds stays as far apart, and all of them are at the host's door. Every plan that has no
more than four neighbours at work or holding tensors at once is then a plan of the pool that costs no more, so what bounds plans
of the pool bounds those of the board; and the pool of 24 FPGAs is no larger than that of four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dovetail.hardware.shares import Floats
from dovetail.platform.device import Device, Kind, Link, Platform

STAND_INS = 4
"""FPGAs that stand for all: chosen."""
ROW = 2 * STAND_INS - 2
"""Boards of a ring from which on four neighbours are as far from each other as in a row."""


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

    `budgets` are indices into `Problem.budgets`, `limit` is that of one device.
    """

    name: str
    budgets: tuple[int, ...]
    limit: float
    count: int = 1

    def taken(self, resources: Floats) -> Floats:
        """The fraction of all there is that columns take; `resources` are columns x budgets."""
        if len(self.budgets) == 1:
            only: Floats = resources[:, self.budgets[0]] / self.limit
            return only if self.count == 1 else only / self.count
        found: Floats = (resources[:, self.budgets] / self.limit).sum(axis=1) / self.count
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
    return (device.model, device.idle_power_w, device.busy_power_w, device.clock_hz, device.dispatch_s, device.family,
            device.models, device.part, device.kernels, tuple(sorted(device.resources.items())),
            tuple(sorted(device.parameters.items())))
