"""Kernels are chosen once more where they will run, as long as any swap makes the whole network faster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dovetail.gpu import tuning
from dovetail.gpu.distrusted import MOST_SPILLED
from dovetail.gpu.executor import options_of
from dovetail.gpu.launcher import Launcher
from dovetail.gpu.tuning import (
    COLD_S,
    COMPILING_S,
    FURTHER,
    LEAST_COMPILING_S,
    Tuner,
    chosen,
    detours,
    divided,
    repeats_of,
    settled_in_place,
    worth_more,
)
from dovetail.ir import Conv, Window
from dovetail.kernels.estimator import CANDIDATES
from dovetail.kernels.lower import lower
from dovetail.platform.gpu_specification import specification
from tests.strategies import Net


class Stub:
    """A launcher that says what it would launch."""

    def described(self, call: Any, config: dict[str, int]) -> Any:
        return SimpleNamespace(alike=f"{call.key} {sorted(config.items())}")

    def bound(self, call: Any, config: dict[str, int]) -> tuple[Any, dict[str, int]]:
        return call, config


class Bytes(Stub):
    """The same of int8, whose kernels all compile."""

    kind = "int8"

    def loaded(self, call: Any, config: dict[str, int]) -> Any:
        return SimpleNamespace(asm={"ptx": ""}, n_spills=0)


def made_up(key: str, estimate_s: float = 1.0, tiles: int = CANDIDATES) -> Any:
    """A call that has nothing but tiles."""
    return SimpleNamespace(key=key, kernel=key, nodes=(key,), configs=tuple({"tile": i} for i in range(tiles)),
                           estimates_s=(estimate_s,) * tiles)


def test_detours_are_what_the_fastest_division_with_a_kernel_takes_longer() -> None:
    first, second, third, pair, whole, broken = (made_up(key) for key in ("first", "second", "third", "pair", "whole", "broken"))
    options = [[(0, 0, first), (1, 1, second), (2, 2, third), (0, 1, pair), (0, 2, whole), (1, 2, broken)], [(0, 0, first)]]
    tuner = Tuner(cast("Launcher", Bytes()), timing=True)
    for call, seconds in ((first, 2.0), (second, 4.0), (third, 2.0), (pair, 4.0), (whole, 7.0), (broken, float("inf"))):
        tuner.known[call.key] = tuple((seconds, tile) for tile in call.configs)
    # the fastest division is pair and third, 6; all alone take 8, whole takes 7; first has a place where nothing else is
    assert detours(options, tuner) == {"first": 0.0, "second": 0.5, "third": 0.0, "pair": 0.0, "whole": 1 / 7,
                                       "broken": float("inf")}
    tuner.known["broken"] = ((float("inf"), broken.configs[0]),)  # other tiles may run, and then in a second: 2 + 1
    assert detours(options, tuner) == {"first": 0.0, "second": 1.25, "third": 1.5, "pair": 0.75, "whole": 4 / 7,
                                       "broken": 0.0}


def test_tiles_are_timed_of_kernels_that_could_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tile of all, all candidates of those that could yet be chosen, further ones of those that matter; compiled once."""
    seconds = {"alone": 3.0, "behind": 3.0, "both": 4.0, "slow": 40.0, "tail": 0.01}
    calls = {key: made_up(key, tiles=2 * FURTHER) for key in seconds}
    options = [[(0, 0, calls["alone"]), (1, 1, calls["behind"]), (0, 1, calls["both"]), (0, 1, calls["slow"])],
               [(0, 0, calls["tail"])]]
    compiled: list[str] = []
    monkeypatch.setattr(tuning, "precompile", lambda *rounds, **_: compiled.extend(
        job.alike for jobs in rounds for job in jobs) or ())
    monkeypatch.setattr(tuning, "captured", lambda launches: launches[0])
    monkeypatch.setattr(tuning, "replay_seconds", lambda launch: seconds[launch[0].key] * (1 - 0.01 * launch[1]["tile"]))
    monkeypatch.setattr(tuning, "settled_in_place", lambda parts, *_: parts)
    tuner = Tuner(cast("Launcher", Bytes()), timing=True)
    parts = chosen(cast("Any", options), tuner)
    assert [(p.call.key, p.config["tile"]) for p in parts] == [("both", FURTHER - 1), ("tail", CANDIDATES - 1)]
    assert {key: len(tuner.known[key]) for key in seconds} == {"alone": 1, "behind": 1, "both": FURTHER, "slow": 1,
                                                               "tail": CANDIDATES}
    assert len(compiled) == len(set(compiled)) == sum(len(tuner.known[key]) for key in seconds)


class Faulty(Bytes):
    """The same, of which some kernels' first tiles cannot be loaded."""

    def __init__(self, faults: dict[str, int]) -> None:
        self.faults, self.asked = faults, set[tuple[str, int]]()

    def loaded(self, call: Any, config: dict[str, int]) -> Any:
        again = (call.key, config["tile"]) in self.asked
        self.asked.add((call.key, config["tile"]))
        if config["tile"] >= self.faults.get(call.key, 0):
            return super().loaded(call, config)
        if not again:
            raise RuntimeError("out of shared memory")
        return SimpleNamespace(asm={"ptx": ""})  # Triton says it once, then hands out a kernel that knows nothing of registers


def timed_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel takes what it is estimated to; what is swapped in place is not looked at."""
    monkeypatch.setattr(tuning, "precompile", lambda *rounds, **_: ())
    monkeypatch.setattr(tuning, "captured", lambda launches: launches[0])
    monkeypatch.setattr(tuning, "replay_seconds", lambda launch: launch[0].estimates_s[0])
    monkeypatch.setattr(tuning, "settled_in_place", lambda parts, *_: parts)


def test_tiles_are_timed_until_one_runs_where_a_layer_has_no_other_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    timed_without_a_gpu(monkeypatch)
    first, second, twin, pair = (made_up(key, tiles=40) for key in ("first", "second", "twin", "pair"))
    options = [[(0, 0, first), (1, 1, second), (1, 1, twin), (0, 1, pair)]]
    faulty = Faulty({"first": 2 * CANDIDATES + 1, "second": CANDIDATES, "pair": 40})
    tuner = Tuner(cast("Launcher", faulty), timing=True)
    parts = chosen(cast("Any", options), tuner)
    assert [(p.call.key, p.config["tile"]) for p in parts] == [("first", 2 * CANDIDATES + 1), ("twin", 0)]
    assert ("first", 3 * CANDIDATES) not in faulty.asked  # one of the ones before ran
    assert ("second", CANDIDATES) not in faulty.asked  # it has a twin that runs
    assert ("pair", CANDIDATES) not in faulty.asked  # its layers run apart
    assert len(tuner.remembered.networks) == 1


def test_a_search_in_place_is_shorter_where_all_before_it_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(perf_counter=lambda: clock.now, now=100.0)
    monkeypatch.setattr(tuning, "time", clock)
    tuner, ends = Tuner(cast("Launcher", Stub()), timing=True, in_place_s=12.0), []
    for clock.now in (110.0, 145.0, 160.0):
        ends.append(tuner.in_place_until() - clock.now)
    assert ends == pytest.approx([12.0, 100.0 + COLD_S - 145.0, 4.0])


def test_tiles_that_compiling_had_no_time_for_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most promising of all kernels are compiled first; what was compiled beyond one that was not is left as well."""
    timed_without_a_gpu(monkeypatch)
    asked = list[tuple[float, list[list[str]]]]()

    def compiled(*rounds: Any, done: Any, until: float) -> set[str]:
        asked.append((until, [[job.alike for job in jobs] for jobs in rounds]))
        if until == float("inf"):
            return set()
        for job in rounds[1]:
            done(job)
        return {tuner.launcher.described(first, first.configs[3]).alike}
    monkeypatch.setattr(tuning, "precompile", compiled)
    clock = SimpleNamespace(perf_counter=lambda: clock.now, now=100.0)
    monkeypatch.setattr(tuning, "time", clock)
    faulty = Faulty({})
    tuner, first, second = Tuner(cast("Launcher", faulty), timing=True), made_up("first"), made_up("second")
    chosen(cast("Any", [[(0, 0, first), (1, 1, second)]]), tuner)
    assert [len(tuner.known[c.key]) for c in (first, second)] == [3, CANDIDATES]
    assert [len(every[place]) for _, every in asked[:2] for place in range(len(every))] == [2, 0, *[2] * (CANDIDATES - 1)]
    assert [until for until, _ in asked] == [float("inf"), 100.0 + COMPILING_S, 100.0 + COMPILING_S]
    assert len(faulty.asked) == 3 + CANDIDATES
    clock.now = 100.0 + COMPILING_S
    assert tuner.compiling_until(LEAST_COMPILING_S) == clock.now + LEAST_COMPILING_S


def test_long_kernels_are_timed_in_fewer_copies() -> None:
    assert [repeats_of(made_up("any", seconds)) for seconds in (1e-6, 5e-5, 1e-4, 1.0)] == [20, 20, 10, 2]


def test_a_kernel_that_does_not_fit_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    timed_without_a_gpu(monkeypatch)
    tuner = Tuner(cast("Launcher", Faulty({"never": 1})), timing=True)
    assert [tuner.timed_at_best(made_up("never"), {"tile": 0})[0] for _ in range(3)] == [float("inf")] * 3


def test_a_network_with_a_layer_that_no_tile_computes_is_neither_launched_nor_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    timed_without_a_gpu(monkeypatch)
    monkeypatch.setattr(tuning, "settled_in_place", None)
    never, after = made_up("never", tiles=15), made_up("after")
    faulty = Faulty({"never": 15})
    tuner = Tuner(cast("Launcher", faulty), timing=True)
    parts = chosen(cast("Any", [[(0, 0, never), (1, 1, after)]]), tuner)
    assert [(p.call.key, p.seconds) for p in parts] == [("never", float("inf")), ("after", 1.0 / repeats_of(after))]
    assert {tile for key, tile in faulty.asked if key == "never"} == set(range(15))
    assert not tuner.remembered.networks


def test_a_swap_that_helps_only_after_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(0)
    x = net.add(Conv(24, Window((3, 3))), net.input((1, 16, 14, 14)))
    options = [[way for way in ways if way[2].kernel == "conv"] for ways in options_of(lower(
        net.graph(net.add(Conv(32, Window((3, 3))), x)), "float16", specification("h200")))]
    tuner = Tuner(cast("Launcher", Stub()), timing=True, in_place_s=60.0)
    calls = [call for ways in options for *_, call in ways]
    for place, call in enumerate(calls):  # alone, the first of two tiles is faster, and the first layer takes longest
        tuner.known[call.key] = tuple(((2 - place) * (1.0 + 0.1 * i) * 1e-6, c) for i, c in enumerate(call.configs[:2]))

    def network_s(launches: list[Any], *_: int) -> float:
        second = [config == call.configs[1] for call, config in launches]
        return {(False, False): 10.0, (True, False): 10.5, (False, True): 9.0, (True, True): 8.0}[second[0], second[1]]

    monkeypatch.setattr(tuning, "captured", lambda launches: launches)
    monkeypatch.setattr(tuning, "replay_seconds", lambda launches, *_: network_s(launches) * 1e-6)
    alone = divided(options, tuner)
    assert [p.config for p in alone] == [call.configs[0] for call in calls]
    assert [p.config for p in settled_in_place(alone, options, tuner)] == [call.configs[1] for call in calls]


def test_kernels_that_need_more_stack_than_there_is_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "captured", lambda launches: launches)
    monkeypatch.setattr(tuning, "replay_seconds", lambda replay: 1e-6)
    net = Net(0)
    call, *_ = (way[2] for ways in options_of(lower(net.graph(net.add(Conv(24, Window((3, 3))), net.input((1, 16, 14, 14)))),
                                                    "float16", specification("h200"))) for way in ways)

    class Spilling(Stub):
        kind = "float16"

        def loaded(self, call: Any, config: dict[str, int]) -> Any:
            return SimpleNamespace(asm={"ptx": ""}, n_spills=MOST_SPILLED + (config["BN"] == 16))

        def bound(self, call: Any, config: dict[str, int]) -> Any:
            assert config["BN"] != 16, "launched before its stack was looked at"
            return lambda: None

    ranked = Tuner(cast("Launcher", Spilling()), timing=True).ranked(call)
    assert {seconds < float("inf") for seconds, _ in ranked} == {False, True}
    assert all((seconds < float("inf")) == (tile["BN"] != 16) for seconds, tile in ranked)


def test_more_tiles_are_timed_of_kernels_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(0)
    x = net.add(Conv(64, Window((3, 3))), net.input((1, 32, 28, 28)))
    options = [[way for way in ways if way[2].kernel == "conv"] for ways in options_of(lower(
        net.graph(net.add(Conv(96, Window((1, 1))), x)), "float16", specification("h200"), 8))]
    long, short = (call for ways in options for *_, call in ways)
    monkeypatch.setattr(tuning, "captured", lambda launches: launches[0])
    monkeypatch.setattr(tuning, "precompile", lambda *rounds, **_: ())

    def seconds(launch: Any) -> float:
        call, config = launch
        return 20e-6 / (1 + list(call.configs).index(config)) * (1 if call.key == long.key else 1e-3)  # later tiles are faster

    monkeypatch.setattr(tuning, "replay_seconds", seconds)
    tuner = Tuner(cast("Launcher", Bytes()), timing=True)
    tuner.look_at([long, short])
    before = divided(options, tuner)
    assert [p.config for p in before] == [c.configs[CANDIDATES - 1] for c in (long, short)]
    worth = worth_more(options, tuner, sum(p.seconds for p in before))
    assert worth == [long]
    tuner.look_at(worth, FURTHER)
    assert [p.config for p in divided(options, tuner)] == [long.configs[FURTHER - 1], short.configs[CANDIDATES - 1]]
    tuner.look_at(worth, FURTHER)  # what is known is not timed again
    assert len(tuner.ranked(long)) == FURTHER
