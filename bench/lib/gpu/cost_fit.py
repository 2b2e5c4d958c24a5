"""Costs of a kernel fitted for choosing: the tile the estimate takes first should be among the fastest, not every time be right.

Of every kernel some tiles were timed. Wanted are costs, the overlap of what is waited for with what keeps multiprocessors busy,
and factors by tile sizes (`kernels/estimator.py`), such that a tile taken at random, the likelier the faster it is estimated,
loses little against the fastest (`LEANING` says how much likelier), and estimates of fast tiles stay close to their times.
Needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import Floats, Tiles, part_of, tiles_of
from dovetail.kernels.table import work_of
from dovetail.platform.gpu_specification import Gpu

TABLES: Mapping[str, tuple[str, ...]] = {
    "conv": ("BP BN", "BK", "num_warps BP*BN", "num_stages", "SUMS"),
    "deep": ("PARTS", "BP", "BN", "BK", "num_warps")}
"""Kernels with tiles enough to fit factors, and by which sizes. Of the many tiles of depthwise kernels too few are timed: factors
praise those that are not."""
STEPS, RATE, LEANING, WEIGHT, CLOSE_TO_ONE, WORST = 500, 0.03, 12.0, 1.0, 0.02, 0.7
"""Of the descent: steps, their rate; how much a faster estimate is preferred; weights of errors and of factors apart from one;
the logarithm of the worst choice that counts."""
Timed = tuple[Call, Sequence[tuple[float, Mapping[str, int]]]]
PARTS = ("waits", "busy", "memory")


@dataclass(frozen=True)
class Samples:
    """All timed tiles of one kind of kernel: times, whose they are, amounts by part, sizes."""

    kernels: int
    owner: Floats
    taken: Floats
    amounts: Mapping[str, Mapping[str, Floats]]
    tiles: Tiles

    def size(self, names: str) -> list[str]:
        """The sizes of every tile as a table has them."""
        each = [np.prod([self.tiles[n] for n in name.split("*")], axis=0) for name in names.split()]
        return [" ".join(str(int(v)) for v in row) for row in zip(*each, strict=True)]


def sampled(gpu: Gpu, found: Sequence[Timed]) -> Samples:
    owner, taken, configs = list[int](), list[float](), list[Mapping[str, int]]()
    columns: dict[str, list[Floats]] = {}
    for i, (call, times) in enumerate(found):
        work = work_of(gpu, call.shape, tiles_of([c for _, c in times]))
        owner += [i] * len(times)
        taken += [t for t, _ in times]
        configs += [c for _, c in times]
        for name, amount in work.amounts.items():
            columns.setdefault(name, []).append(np.broadcast_to(np.asarray(amount, dtype=np.float64), len(times)))
    amounts: dict[str, dict[str, Floats]] = {part: {} for part in PARTS}
    for name, parts in columns.items():
        if name != "launch" and any(part.any() for part in parts):
            amounts[part_of(name)][name] = np.concatenate(parts)
    return Samples(len(found), np.array(owner, dtype=np.float64), np.array(taken), amounts, tiles_of(configs))


def fitted(samples: Samples, kernel: str) -> dict[str, Any]:
    """Costs as costs.toml has them."""
    descent = Descent(samples, TABLES[kernel])
    descent.run()
    return descent.costs()


class Descent:
    """Logarithms of costs and factors, moved towards less loss (Adam)."""

    def __init__(self, samples: Samples, names: Sequence[str]) -> None:
        self.samples, self.names = samples, names
        self.scale = {part: np.array([max(float(a.max()), 1e-30) for a in own.values()]) for part, own in samples.amounts.items()}
        self.amounts = {part: torch.tensor(np.stack(list(own.values()), 1) / self.scale[part])
                        for part, own in samples.amounts.items()}
        self.levels = {n: sorted(set(samples.size(n))) for n in names}
        self.places = {n: torch.tensor([self.levels[n].index(v) for v in samples.size(n)]) for n in names}
        self.cost = {part: torch.full((a.shape[1],), float(np.log(2e-6 / a.shape[1])), dtype=torch.float64, requires_grad=True)
                     for part, a in self.amounts.items()}
        self.apart = {(part, n): torch.zeros(len(self.levels[n]), dtype=torch.float64, requires_grad=True)
                      for part in ("waits", "busy") for n in names}
        self.launch = torch.tensor(float(np.log(1e-6)), dtype=torch.float64, requires_grad=True)
        self.overlap = torch.tensor(float(np.log(2.0)), dtype=torch.float64, requires_grad=True)
        self.taken, self.owner = torch.log(torch.tensor(samples.taken)), torch.tensor(samples.owner, dtype=torch.int64)
        self.best = torch.full((samples.kernels,), 1e9, dtype=torch.float64).scatter_reduce(
            0, self.owner, self.taken, "amin")[self.owner]
        self.lost = self.taken - self.best
        self.weight = torch.exp(-1.5 * self.lost)

    def estimated(self) -> torch.Tensor:
        """Logarithms of estimates."""
        p, total = 1 + torch.exp(self.overlap), torch.zeros(1, dtype=torch.float64)
        for part, amounts in self.amounts.items():
            spent = amounts @ torch.exp(self.cost[part]) * 1e6
            if part != "memory":
                spent = spent * torch.exp(torch.stack([self.apart[part, n][self.places[n]] for n in self.names]).sum(0))
            total = total + spent ** p
        return torch.log(torch.exp(self.launch) + 1e-6 * total ** (1 / p))

    def loss(self) -> torch.Tensor:
        """What is lost by the tiles that are likely to be taken, with errors of estimates and factors apart from one."""
        estimated, count = self.estimated(), self.samples.kernels
        leaning = -LEANING * (estimated - self.best)
        most = torch.full((count,), -1e30, dtype=torch.float64).scatter_reduce(0, self.owner, leaning, "amax")
        likely = torch.exp(leaning - most[self.owner])
        likely = likely / torch.zeros(count, dtype=torch.float64).index_add(0, self.owner, likely)[self.owner]
        loss = (likely * torch.clamp(self.lost, max=WORST)).sum() / count
        loss = loss + WEIGHT * (self.weight * (estimated - self.taken) ** 2).sum() / self.weight.sum()
        return loss + CLOSE_TO_ONE * sum((a ** 2).sum() for a in self.apart.values()) / len(self.apart)

    @property
    def moved(self) -> dict[str, torch.Tensor]:
        """What is fitted, logarithms all."""
        return {**self.cost, **{f"{part}, {n}": own for (part, n), own in self.apart.items()}, "launch": self.launch,
                "overlap": self.overlap}

    def run(self) -> None:
        torch.set_num_threads(1)  # so little at a time that threads wait for each other
        adam = torch.optim.Adam(list(self.moved.values()), lr=RATE)
        for _ in range(STEPS):
            adam.zero_grad()
            self.loss().backward()
            adam.step()

    @torch.no_grad()
    def take(self, held: Mapping[str, Any]) -> None:
        """Stand where costs of costs.toml are."""
        self.launch.copy_(torch.tensor(float(np.log(held["launch"]))))
        self.overlap.copy_(torch.tensor(float(np.log(held["overlap"] - 1))))
        for part, own in self.samples.amounts.items():
            self.cost[part].copy_(torch.log(torch.tensor(np.array([held[name] for name in own]) * self.scale[part])))
        for (part, n), own_apart in self.apart.items():
            own_apart.copy_(torch.log(torch.tensor([held[part][n][level] for level in self.levels[n]], dtype=torch.float64)))

    def costs(self) -> dict[str, Any]:
        found: dict[str, Any] = {"launch": torch.exp(self.launch).item(), "overlap": 1 + torch.exp(self.overlap).item()}
        for part, own in self.samples.amounts.items():
            each = torch.exp(self.cost[part]).detach().numpy() / self.scale[part]
            found |= {name: float(cost) for name, cost in zip(own, each, strict=True)}
        for part in ("waits", "busy"):
            found[part] = {n: dict(zip(self.levels[n], torch.exp(self.apart[part, n]).tolist(), strict=True)) for n in self.names}
        return found


def written(kernel: str, held: Mapping[str, Any]) -> list[str]:
    """Costs of a kernel as lines of costs.toml."""
    tables = {part: held.get(part, {}) for part in ("waits", "busy")}
    lines = ["", f"[{kernel}]", *(f"{n} = {c:.4g}" if n == "overlap" else f"{n} = {c:.4e}" for n, c in held.items()
                                  if n not in tables)]
    for part, own in tables.items():
        for names, table in own.items():
            lines += [f'[{kernel}.{part}."{names}"]', *(f'"{sizes}" = {factor:.3f}' for sizes, factor in table.items())]
    return lines


