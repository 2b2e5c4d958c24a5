"""Float32 has no matrix units: the share of a GPU's rate that its products reach, fitted to times of tiles and judged.

`python bench/gpu_estimator.py --part products [--fit] [--json OUT]` reads bench/records/gpu_tiles_float32.json, tiles that tuning
timed on an H200 (`--part tuned`), and judges estimates of products: without shares, with those that come with the package, and
with shares fitted without the network that is judged. `--fit` writes the shares of all networks to products.toml in
src/dovetail/kernels. `--networks` says how far whole networks' estimates are from the times of the record of bench/gpu_fcm.py.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dovetail.files import replace_text
from dovetail.kernels.estimator import FITTED_ON, Floats, KernelWork, products_s, seconds, tiles_of
from dovetail.kernels.lower import lower
from dovetail.kernels.products import LEAST, MOST, Shares, features, shares, shipped, sizes_of
from dovetail.kernels.table import work_of
from dovetail.platform.gpu_specification import specification
from lib.gpu.cases import FIRST, NETWORK, SECOND
from lib.gpu.estimate import CLOSE
from lib.gpu.record import RECORD as MEASURED
from lib.gpu.tiles import matched
from lib.zoo_graph import network

KIND = "float32"
RECORD = Path(__file__).parents[2] / "records" / f"gpu_tiles_{KIND}.json"
WRITTEN = Path(__file__).parents[3] / "src/dovetail/kernels/products.toml"
BY_TILE, LEVELS = "conv", ("deep", "fused", "walked")
"""The kernel whose share depends on its tile, and those that have one share."""
AS = {"banded": "fused"}
"""Kernels that were not timed, and whose share they have."""
LONG_S = 3e-6
"""Seconds of products at a GPU's full rate from which on a time says something of them."""
RIDGE, TELLING = 0.5, 3
"""What keeps weights of rare tiles small, and how many timed tiles make a choice."""
OFTEN = 5
"""Times of a size from which on its share is no extrapolation."""
HEAD = """# Shares of a GPU's rate that products reach without matrix units, as logarithms: see kernels/products.py.
# Written by `python bench/gpu_estimator.py --part products --fit` from {tiles} tiles of {kernels} kernels timed on {gpu}, {date}.
"""


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel of a network, times of its tiles, and what these ask of a GPU."""

    network: str
    kernel: str
    times: Floats
    work: KernelWork

    def estimated(self, own: Shares) -> Floats:
        return seconds(specification(FITTED_ON), self.kernel, KIND, self.work, shares=own)

    def full_rate_s(self) -> Floats:
        """Seconds of its products at a GPU's full rate, of the busiest multiprocessor where that is known."""
        return np.asarray(products_s(specification(FITTED_ON), self.kernel, KIND, self.work, {}) * np.ones(len(self.times)))


def timed(path: Path = RECORD) -> list[Timed]:
    """The kernels of a record that multiply matrices."""
    return [Timed(name, call.kernel, np.array([taken for taken, _ in times]),
                  work_of(specification(FITTED_ON), call.shape, tiles_of([tile for _, tile in times])))
            for call, times, (name, *_) in matched(path) if call.kernel in (BY_TILE, *LEVELS)]


def fitted(every: Sequence[Timed]) -> Shares:
    """Shares that explain times: logarithms by least squares over tiles, of kernels with one share the median of best tiles."""
    launch_s, known, wanted = specification(FITTED_ON).launch_s, dict[str, list[Floats]](), list[Floats]()
    for one in (t for t in every if t.kernel == BY_TILE):
        long = one.full_rate_s() > LONG_S
        for name, values in {"level": np.ones(len(one.times)), **features(one.work.tiles)}.items():
            known.setdefault(name, []).append(values[long])
        wanted.append(np.log(one.full_rate_s()[long] / (one.times[long] - launch_s)))
    columns = np.stack([np.concatenate(values) for values in known.values()], axis=1)
    weights = np.linalg.solve(columns.T @ columns + RIDGE * np.eye(len(known)), columns.T @ np.concatenate(wanted))
    found: dict[str, dict[str, float]] = {BY_TILE: dict(zip(known, np.round(weights, 4).tolist(), strict=True))}
    for kernel in LEVELS:
        best = [(t.full_rate_s()[t.times.argmin()], t.times.min() - launch_s) for t in every if t.kernel == kernel]
        if levels := [float(np.log(np.clip(full / taken, LEAST, MOST))) for full, taken in best if full > LONG_S]:
            found[kernel] = {"level": round(median(levels), 4)}
    return found | {kernel: found[other] for kernel, other in AS.items() if other in found}


def judged(judging: Iterable[tuple[Timed, Shares]]) -> dict[str, float]:
    """How far the estimate of the best tile is from its time, and how often the first choice of those timed is about the best."""
    errors, losses = list[float](), list[float]()
    for one, own in judging:
        estimates = one.estimated(own)
        errors.append(abs(float(estimates.min() / one.times.min()) - 1))
        if len(one.times) >= TELLING:
            losses.append(float(one.times[estimates.argmin()] / one.times.min()))
    return {"kernels": len(errors), "error_median": median(errors), "chosen": len(losses),
            "first_within_5_percent": float(np.mean(np.array(losses) <= CLOSE)), "lost_mean": float(np.mean(losses)) - 1}


def judged_apart(every: Sequence[Timed]) -> dict[str, dict[str, float]]:
    """Products alone, without shares, with the shipped ones and with those fitted without the network that is judged."""
    own = [t for t in every if t.kernel == BY_TILE]
    apart = {name: fitted([t for t in every if t.network != name]) for name in {t.network for t in own}}
    return {"without shares": judged((t, {}) for t in own), "shipped": judged((t, shares()) for t in own),
            "held out": judged((t, apart[t.network]) for t in own)}


def written(found: Shares, record: Mapping[str, Any], every: Sequence[Timed]) -> str:
    """products.toml: shares, and which sizes of tiles were timed often."""
    counts = Counter(size for t in every if t.kernel == BY_TILE for size in sizes_of(t.work.tiles))
    often = sorted(size for size, count in counts.items() if count >= OFTEN)
    head = HEAD.format(tiles=sum(len(t.times) for t in every), kernels=len(every), gpu=record["gpu"], date=record["date"])
    tables = ["".join([f"\n[shares.{kernel}]\n", *(f"{name} = {weight}\n" for name, weight in own.items())])
              for kernel, own in found.items()]
    return head + "".join(tables) + f"\n[timed]\n{BY_TILE} = {json.dumps(often)}\n"


def networks_told() -> Iterator[str]:
    """Of every network and batch that was measured, its kernels as estimated alone against its time."""
    from dovetail.gpu.executor import options_of
    from dovetail.gpu.launcher import Launcher
    from dovetail.gpu.tuning import Tuner, divided
    measured, tuner = json.loads(MEASURED.read_text("utf-8"))["networks"], Tuner(Launcher(KIND, "cpu", pdl=False), timing=False)
    for name in (NETWORK, *FIRST, *SECOND):
        for batch, row in measured[name.replace("-", "_")]["fp32"].items():
            options = options_of(lower(network(name), KIND, specification(FITTED_ON), int(batch.removeprefix("b"))))
            estimate = sum(part.seconds for part in divided(options, tuner)) * 1e6
            yield f"{name:20} {batch:3} {estimate:8.1f} of {row['ours_us']:8.1f} us, {estimate / row['ours_us']:.2f}"


def main(asked: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--fit", action="store_true", help="write the shares that come with the package")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write what was judged")
    parser.add_argument("--networks", action="store_true", help="hold estimates of whole networks against their times, and end")
    options = parser.parse_args(asked)
    if options.networks:
        for line in networks_told():
            print(line, flush=True)
        return
    every = timed(options.record)
    if options.fit:
        replace_text(WRITTEN, written(fitted(every), json.loads(options.record.read_text("utf-8")), every))
        shipped.cache_clear()
    found = judged_apart(every)
    for name, one in found.items():
        print(f"{name:15} {one['kernels']} products, best tile wrong by {one['error_median']:.0%} in the median; first of "
              f"{one['chosen']} within 5 % for {one['first_within_5_percent']:.0%}, {one['lost_mean']:.1%} lost in the mean")
    if options.json:
        replace_text(options.json, json.dumps(found, indent=1) + "\n")

