"""Which kernels a network gets: candidates compiled side by side, timed alone, then chosen once more where they will run.

A kernel alone among copies of itself is not the kernel in its place: there, its neighbours' programs share the chip with it, and
other code and other weights were in the caches. So the division found from times alone is only where a search begins that swaps
kernels and tiles inside the whole network.

Compiling takes longest, so of every kernel one tile is compiled and timed first, and others of those alone with which a division
could yet be the fastest: as many as there is time for, the most promising of all kernels before the next of any.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from math import inf
from statistics import median

import torch
import triton

from dovetail.gpu.distrusted import distrusted, spills_too_much
from dovetail.gpu.launcher import Launcher
from dovetail.gpu.precompile import CompileJob, precompile
from dovetail.gpu.remembered import Remembered, network_key
from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import CANDIDATES, Config

REPEATS = 20
"""Copies of a kernel that are timed together at most (chosen)."""
REPLAYS = 5
"""Replays of a CUDA graph that are timed together (chosen)."""
ROUNDS = 5
"""Times that this is done; the median counts (chosen)."""
TOGETHER_S = 1e-3
"""Seconds that copies of a kernel timed together need not exceed: of long kernels, fewer say as much (chosen)."""
IN_PLACE_TILES = CANDIDATES
"""Tiles of a kernel that are tried in its place, the best alone first."""
FURTHER = 2 * CANDIDATES
"""Tiles that are timed of kernels of bytes that matter: chosen, since costs were fitted to floats, and say less of bytes."""
MATTERS = 0.05
"""Share of a network's time from which on a kernel is worth more tiles (chosen)."""
DETOUR = 0.5
"""Share of a kernel's time with its first tile by which divisions with it may be slower than the fastest for other tiles to be
timed: measured on MobileNetV2 to leave out no kernel that was chosen (docs/method/gpu-tuning.md)."""
SHORT_DETOUR = 0.3
"""The same with all of these for further ones (chosen)."""
IN_PLACE_SLACK = 1.3
"""How much slower alone than what it replaces a kernel may be to be tried in its place (chosen)."""
IN_PLACE_GAIN = 0.001
"""Share of the network's time a swap must win, or noise would decide (chosen)."""
IN_PLACE_S = 12.0
"""Seconds this search may take, unless a tuner says otherwise (chosen: tuning from cold in less than a minute)."""
COMPILING_S = 35.0
"""Seconds of all tuning after which no more tiles are begun to be compiled (chosen: tuning in less than a minute)."""
LEAST_COMPILING_S = 10.0
"""Seconds that there are for compiling in any case (chosen)."""
COLD_S = 50.0
"""Seconds of all tuning after which the search in place stops (chosen: tuning in less than a minute)."""
LEAST_IN_PLACE = 1 / 3
"""Share of its time that the search in place has in any case (chosen)."""


@dataclass(frozen=True, slots=True)
class ChosenKernel:
    """Layers `first` to `last` of run `run` in one kernel."""

    run: int
    first: int
    last: int
    call: Call
    config: Config
    seconds: float


@dataclass(frozen=True, slots=True)
class Made:
    """What is known of a loaded kernel: whether it fits and its results can be trusted, and whether it spills too much."""

    runs: bool = False
    spills: bool = False


Options = Sequence[Sequence[tuple[int, int, Call]]]
"""Of every run of layers: (first, last, call) of every kernel that computes some of its layers."""


def launch_all(launches: Sequence[Callable[[], object]]) -> None:
    for launch in launches:
        launch()


def captured(launches: Sequence[Callable[[], object]]) -> Callable[[], None]:
    """All launches as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        launch_all(launches)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch_all(launches)
    replay: Callable[[], None] = graph.replay
    return replay


def replay_seconds(replay: Callable[[], None], replays: int = REPLAYS, rounds: int = ROUNDS) -> float:
    """Median time of a replay."""
    replay()
    found = []
    for _ in range(rounds):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(replays):
            replay()
        stop.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(stop) / replays * 1e-3)
    return float(median(found))


def repeats_of(call: Call) -> int:
    """Copies of a call that are timed together."""
    return max(2, min(REPEATS, int(TOGETHER_S / call.estimates_s[0])))


def candidates(launcher: Launcher, calls: Iterable[Call]) -> list[CompileJob]:
    """Every kernel that timing calls launches, also where equal ones begin at another address."""
    return [launcher.described(call, config) for call in calls for config in call.configs[:CANDIDATES]]


def without_pipelining(call: Call, config: Config) -> Config | None:
    """What is timed in the place of a convolution's tile that must not run, or does not fit, as it is; None where nothing is."""
    return {**config, "num_stages": 1} if call.kernel == "conv" and config["num_stages"] > 1 else None


class Tuner:
    """Times calls; without `timing` the estimate decides."""

    def __init__(self, launcher: Launcher, timing: bool, remembered: Remembered | None = None,
                 in_place_s: float = IN_PLACE_S) -> None:
        self.launcher, self.timing, self.in_place_s, self.begun = launcher, timing, in_place_s, time.perf_counter()
        self.remembered, self.made = remembered or Remembered(), dict[str, Made]()
        self.known = self.remembered.tiles
        self.refused = dict[str, int]()
        """Of calls by their key, how many tiles, from the first on, do not run, where the estimate decides."""

    def look_at(self, calls: Sequence[Call], tiles: int = CANDIDATES, until: float = inf) -> None:
        """Compile so many tiles of calls side by side and time them; what is known is not timed again.

        Kernels are loaded while others are compiled. Tiles not begun `until` then are not timed, nor are those behind them.
        """
        if not self.timing:
            return
        begun = {c.key: len(self.known.get(c.key, ())) for c in calls}
        rounds, meant = list[list[CompileJob]](), dict[str, tuple[Call, Config]]()
        for place in range(tiles):
            asked = [(c, c.configs[place]) for c in calls if begun[c.key] <= place < len(c.configs)]
            rounds.append([self.launcher.described(*one) for one in asked])
            meant |= {job.alike: one for job, one in zip(rounds[-1], asked, strict=True)}
        left = precompile(*rounds, done=lambda job: self.loaded(*meant[job.alike]), until=until)
        for call in {c.key: c for c in calls}.values():
            self.time_tiles(call, tiles, left)

    def time_tiles(self, call: Call, tiles: int, left: Container[str] = ()) -> None:
        """Time so many tiles of a call, without those that were and from the first one on that is left."""
        before = self.known.get(call.key, ())
        there = takewhile(lambda tile: self.launcher.described(call, tile).alike not in left, call.configs[len(before):tiles])
        self.known[call.key] = tuple(sorted((*before, *(self.timed_at_best(call, tile) for tile in there)), key=lambda t: t[0]))

    def compiling_until(self, least_s: float = 0.0) -> float:
        """When compiling that begins now ends, after so long at least."""
        return max(time.perf_counter() + least_s, self.begun + COMPILING_S)

    def in_place_until(self) -> float:
        """When a search in place that begins now ends: sooner where compiling and timing took long."""
        now = time.perf_counter()
        return max(now + LEAST_IN_PLACE * self.in_place_s, min(now + self.in_place_s, self.begun + COLD_S))

    def ranked(self, call: Call) -> tuple[tuple[float, Config], ...]:
        """(seconds, tile), fastest first; where nothing was timed, the estimate's."""
        if not self.timing:
            refused = self.refused.get(call.key, 0)
            if refused >= min(FURTHER, len(call.configs)):
                return ((inf, call.configs[0]),)
            return ((call.estimates_s[refused], call.configs[refused]),)
        if not self.known.get(call.key):
            self.time_tiles(call, CANDIDATES)
        return self.known[call.key]

    def expected(self, call: Call) -> float:
        """Seconds of the best tile; where the few that were timed do not run, as estimated."""
        seconds = self.ranked(call)[0][0]
        few = self.timing and len(self.known[call.key]) < min(CANDIDATES, len(call.configs))
        return call.estimates_s[0] if few and seconds == inf else seconds

    def timed_at_best(self, call: Call, config: Config) -> tuple[float, Config]:
        """Seconds with a tile, and the tile: as it is, or, of a convolution that must not run so, without pipelining.

        One whose registers do not suffice is not compiled again: that would be one by one, and they hardly ever do then.
        """
        seconds, plain = self.timed(call, config), without_pipelining(call, config)
        if seconds < inf or plain is None or self.loaded(call, config).spills:
            return seconds, config
        return self.timed(call, plain), plain

    def timed(self, call: Call, config: Config) -> float:
        """Seconds of one launch among many in a CUDA graph; infinite where it does not fit, or its results cannot be trusted."""
        if not self.loaded(call, config).runs:
            return inf
        repeats = repeats_of(call)
        return replay_seconds(captured([self.launcher.bound(call, config)] * repeats)) / repeats

    def loaded(self, call: Call, config: Config) -> Made:
        """A kernel on the device, where it fits; the same for all calls that it is compiled for.

        Triton says once that it does not, when it is first asked for such a kernel; later it knows nothing of its registers.
        """
        alike = self.launcher.described(call, config).alike
        if alike not in self.made:
            try:
                kernel = self.launcher.loaded(call, config)
                spilled = getattr(kernel, "n_spills", None)
            except (triton.TritonError, RuntimeError):
                spilled = None
            self.made[alike] = Made() if spilled is None else Made(
                not distrusted(kernel.asm["ptx"], spilled), spills_too_much(kernel.asm["ptx"], spilled))
        return self.made[alike]


def chosen(options: Options, tuner: Tuner) -> list[ChosenKernel]:
    """The kernels of a network: as chosen before, or by timing them, or by the estimate alone."""
    key = network_key([call.key for ways in options for *_, call in ways])
    before = tuner.remembered.networks.get(key)
    if before is not None and tuner.timing:
        calls = {(run, first, last, call.kernel): call for run, ways in enumerate(options) for first, last, call in ways}
        parts = [ChosenKernel(run, first, last, calls[run, first, last, kernel], config, seconds)
                 for run, first, last, kernel, config, seconds in before]
        precompile([tuner.launcher.described(p.call, p.config) for p in parts])
        return parts
    every = [call for ways in options for *_, call in ways]
    tuner.look_at(every, 1)
    tuner.look_at(within(every, detours(options, tuner), DETOUR), until=tuner.compiling_until(LEAST_COMPILING_S))
    parts = running(options, tuner)
    if not tuner.timing or any(p.seconds == inf for p in parts):  # what must not run is launched in no place either
        return parts
    if tuner.launcher.kind == "int8":
        tuner.look_at(worth_more(options, tuner, sum(p.seconds for p in parts)), FURTHER, tuner.compiling_until())
        parts = divided(options, tuner)
    parts = settled_in_place(parts, options, tuner)
    tuner.remembered.networks[key] = tuple((p.run, p.first, p.last, p.call.kernel, p.config, p.seconds) for p in parts)
    tuner.remembered.save()
    return parts


def estimated(options: Options, tuner: Tuner) -> list[ChosenKernel]:
    """The kernels of a network by the estimate alone; those that do not run here are passed over."""
    while True:
        parts = divided(options, tuner)
        if tuner.launcher.device == "cpu":
            return parts
        precompile([tuner.launcher.described(p.call, p.config) for p in parts])
        refused = {p.call.key for p in parts if p.seconds < inf and not tuner.loaded(p.call, p.config).runs}
        if not refused:
            return parts
        for key in refused:
            tuner.refused[key] = tuner.refused.get(key, 0) + 1


def running(options: Options, tuner: Tuner) -> list[ChosenKernel]:
    """The cheapest kernels; further tiles are timed of those that nothing can take the place of and that ran with none so far."""
    while True:
        parts = divided(options, tuner)
        stuck = [(len(tuner.ranked(p.call)), p.call) for p in parts if p.seconds == inf]
        open_ones = [(known, call) for known, call in stuck if known < len(call.configs)]
        if not open_ones or not tuner.timing:
            return parts
        tuner.look_at([call for _, call in open_ones], min(known for known, _ in open_ones) + CANDIDATES)


def detours(options: Options, tuner: Tuner) -> dict[str, float]:
    """Of every kernel by its key, how much longer the fastest division that has it takes than the fastest of all.

    As a share of the kernel's own time; of several places, the least.
    """
    found: dict[str, float] = {}
    for ways in options:
        taken, size = [(*way, tuner.expected(way[2])) for way in ways], 1 + max(last for _, last, _ in ways)
        ahead, behind = [0.0, *[inf] * size], [*[inf] * size, 0.0]
        for stop in range(1, size + 1):
            ahead[stop] = min((ahead[first] + s for first, last, _, s in taken if last == stop - 1), default=inf)
        for start in reversed(range(size)):
            behind[start] = min((s + behind[last + 1] for first, last, _, s in taken if first == start), default=inf)
        for first, last, call, s in taken:
            own = (ahead[first] + s + behind[last + 1] - ahead[size]) / s if s < inf else inf
            found[call.key] = min(own, found.get(call.key, inf))
    return found


def within(calls: Iterable[Call], shares: Mapping[str, float], most: float) -> list[Call]:
    """Calls whose detour is at most a share of their time."""
    return [call for call in calls if shares[call.key] <= most]


def worth_more(options: Options, tuner: Tuner, total_s: float) -> list[Call]:
    """Calls on no long detour whose places together take a share of a network's time that matters."""
    near = within((call for ways in options for *_, call in ways), detours(options, tuner), SHORT_DETOUR)
    places = Counter(call.key for call in near)
    return [call for call in near if places[call.key] * tuner.ranked(call)[0][0] >= MATTERS * total_s]


def divided(options: Options, tuner: Tuner) -> list[ChosenKernel]:
    """The cheapest kernels that together compute all runs, by their times alone; the fewest layers in kernels that do not run."""
    parts: list[ChosenKernel] = []
    for run, ways in enumerate(options):
        best: list[tuple[tuple[int, float], list[ChosenKernel]]] = [((0, 0.0), [])]
        for stop in range(1, 2 + max(last for _, last, _ in ways)):
            found = []
            for first, last, call in ways:
                if last == stop - 1:
                    seconds, config = tuner.ranked(call)[0]
                    (broken, before), own = best[first]
                    cost = (broken, before + seconds) if seconds < inf else (broken + stop - first, before)
                    found.append((cost, [*own, ChosenKernel(run, first, last, call, config, seconds)]))
            best.append(min(found, key=lambda f: f[0]))
        parts += best[-1][1]
    return parts


def settled_in_place(parts: list[ChosenKernel], options: Options, tuner: Tuner) -> list[ChosenKernel]:
    """Parts after swaps that made the whole network faster; equal layers change together. Tried again while any of them helps."""
    def network_s(chosen: Sequence[ChosenKernel]) -> float:
        replay = captured([tuner.launcher.bound(p.call, p.config) for p in chosen])
        once = replay_seconds(replay, 3, 1)
        return replay_seconds(replay, max(3, int(2e-3 / once)), 5)

    singles = {(p.run, p.first): p for p in divided([[w for w in ways if w[0] == w[1]] for ways in options], tuner)}
    places = sorted(((call.key, run, first, last, call) for run, ways in enumerate(options) for first, last, call in ways),
                    key=lambda p: p[:4])
    groups = [list(group) for _, group in groupby(places, key=lambda p: p[0])]
    groups.sort(key=lambda g: -len(g) * tuner.ranked(g[0][4])[0][0])
    before, until = inf, tuner.in_place_until()
    now = network_s(parts)
    while now < before * (1 - IN_PLACE_GAIN) and time.perf_counter() < until:  # what one swap changes may make room for another
        before = now
        for group in groups:
            for seconds, config in tuner.ranked(group[0][4])[:IN_PLACE_TILES]:
                if time.perf_counter() > until or seconds == inf:
                    break
                trial = parts
                for _, run, first, last, call in group:
                    trial = _swapped(trial, ChosenKernel(run, first, last, call, config, seconds), singles)
                if trial != parts and (taken := network_s(trial)) < now * (1 - IN_PLACE_GAIN):
                    now, parts = taken, trial
    return parts


def _swapped(parts: list[ChosenKernel], new: ChosenKernel, singles: Mapping[tuple[int, int], ChosenKernel]) -> list[ChosenKernel]:
    """Parts with a new one in the place of those it covers; what they covered besides is left to single layers."""
    covered = [p for p in parts if p.run == new.run and p.last >= new.first and p.first <= new.last]
    before = [singles[new.run, i] for i in range(covered[0].first, new.first)]
    after = [singles[new.run, i] for i in range(new.last + 1, covered[-1].last + 1)]
    instead = [*before, new, *after]
    if sum(p.seconds for p in instead) > IN_PLACE_SLACK * sum(p.seconds for p in covered):
        return parts
    at = parts.index(covered[0])
    return [*parts[:at], *instead, *parts[at + len(covered):]]
