"""Configurations of reusable arrays as a search sees them: what is offered behind a cut, before and after it is priced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np

from dovetail.cost import Floats
from dovetail.partition.accelerator.choice import Room


@dataclass(frozen=True, slots=True)
class BlockOption:
    """A configuration of reusable arrays for the nodes behind a cut: clocks between frames and for one frame, and its area."""

    configuration: object
    interval: float
    latency: float
    needs: tuple[float, ...]
    offchip_bytes: float


class OfferPrice(Protocol):
    """What gives the whole price of a configuration."""

    def __call__(self, less_than: float = inf) -> BlockOption | None:
        """None where it cannot be built; those whose single frames take as many clocks may be left out."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A configuration before it is priced: clocks and resources at the least, the price where it is known, what gives it."""

    clocks: float
    needs: tuple[float, ...]
    known: BlockOption | None
    price: OfferPrice
    kin: object
    """The same for all whose prices follow from one."""
    number: int = 0
    """Among all configurations."""


class Offers(Protocol):
    """Configurations for the nodes behind a cut."""

    def least_clocks(self, cut: int, alone: bool = False) -> float:
        """Clocks that all of them take at the least, between frames or for one `alone`; inf where there are none."""

    def surely(self, clocks: float) -> float:
        """Clocks that the hardware takes at the least where the model says so many."""

    def columns(self, cut: int, most_clocks: float) -> tuple[Floats, Floats, Floats]:
        """Resources of all of them, clocks of one frame and of one once it is loaded, each at the least."""

    def effort(self, cut: int, most_clocks: float) -> int:
        """Layers of all configurations that may take at most so many clocks."""

    def promising(self, cut: int, room: Room | None = None, most_clocks: float = inf,
                  alone: bool = False) -> Iterator[Offer]:
        """Those with rising clocks at the least, between frames or for one `alone`; those without room may be left out."""

    def __call__(self, cut: int, most_clocks: float) -> Sequence[BlockOption]:
        """Those that take at most so many clocks between frames."""


class NoBlocks:
    """For accelerators of dedicated engines alone."""

    def least_clocks(self, cut: int, alone: bool = False) -> float:
        return inf

    def surely(self, clocks: float) -> float:
        return clocks

    def columns(self, cut: int, most_clocks: float) -> tuple[Floats, Floats, Floats]:
        return np.zeros((0, 0)), np.zeros(0), np.zeros(0)

    def effort(self, cut: int, most_clocks: float) -> int:
        return 0

    def promising(self, cut: int, room: Room | None = None, most_clocks: float = inf,
                  alone: bool = False) -> Iterator[Offer]:
        return iter(())

    def __call__(self, cut: int, most_clocks: float) -> Sequence[BlockOption]:
        return ()
