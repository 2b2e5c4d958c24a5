"""Accelerators of dedicated and reusable engines: cuts, choices and searches against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cost.accelerator import arrays_of, config_of, soft_products_of
from dovetail.cost.array import Config, block_cost
from dovetail.cost.budget import estimate, usable
from dovetail.errors import InfeasibleError, PlatformError, UnsupportedError
from dovetail.ir import Add, Concat, Conv, GlobalAvgPool, Graph, Node, Reshape, Select, Tensor, Window
from dovetail.partition.accelerator import blocks as hybrid_blocks
from dovetail.partition.accelerator.architecture import accelerated_device, accelerator_of, judge, reason_outside, region_of
from dovetail.partition.accelerator.blocks import Blocks, cut_points
from dovetail.partition.accelerator.choice import Joint, least_fill, least_sum, undominated
from dovetail.partition.accelerator.dedicated import engines_within
from dovetail.partition.accelerator.search import CLOSE, AcceleratorSearch, FoundAccelerator, SearchLimits
from dovetail.partition.accelerator.splitcnn import split_cnn
from dovetail.partition.accelerator.words import Row
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.plan import Goal, whole_on
from dovetail.partition.problem import Problem
from dovetail.planning import Options, decide
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from dovetail.platform.device import Device, Kind
from dovetail.platform.load import load_platform, platform_from_dict, platform_to_dict
from tests.numerics.lq_networks import network
from tests.strategies import Net, quantized


def bottlenecks(size: int = 12) -> Graph:
    """A stem, an inverted residual with its addition, a depthwise layer with stride, and a mean."""
    net = Net(3)
    x = net.add(Conv(8, Window((3, 3), (2, 2), (1, 1, 1, 1))), net.input((1, 3, size, size)), name="stem")
    wide = net.add(Conv(24, Window((1, 1))), x, name="expand")
    deep = net.add(Conv(24, Window((3, 3), pads=(1, 1, 1, 1)), groups=24), wide, name="depthwise")
    back = net.add(Conv(8, Window((1, 1))), deep, name="project")
    joined = net.add(Add(), x, back, name="join")
    last = net.add(Conv(10, Window((1, 1))), joined, name="last")
    return quantized(net.graph(net.add(GlobalAvgPool(), last, name="mean")))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return bottlenecks()


def fpga(scale: float = 1.0) -> Device:
    (found,) = load_platform("zc706").of_kind(Kind.FPGA)
    return replace(found, resources={r: v * scale for r, v in found.resources.items()})


def expanding(size: int = 20) -> Graph:
    """Layers of few channels that two of many read, joined again: words of neighbours seldom agree."""
    net = Net(5)
    x = net.add(Conv(64, Window((3, 3), (2, 2))), net.input((1, 3, size, size)), name="stem")
    for stage in range(2):
        few = net.add(Conv(16, Window((1, 1))), x, name=f"squeeze{stage}")
        parts = [net.add(Conv(64, Window((k, k), pads=(k // 2,) * 4)), few, name=f"expand{stage}_{k}") for k in (1, 3)]
        x = net.add(Concat(), *parts, name=f"joined{stage}")
    return quantized(net.graph(net.add(GlobalAvgPool(), x, name="mean")))


def test_engines_are_exchanged_until_words_between_them_keep_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, device = expanding(), fpga(0.5)
    count = len(graph.nodes)

    def intervals() -> dict[int, float]:
        search = AcceleratorSearch(graph, device, (count,), Blocks(graph, device))
        made = {pace: search.made(count, pace, chosen, ()) for pace in range(900, 5000, 100)
                if (chosen := search.within(count, pace)[0]).fill <= 1}
        assert all(found.needs[r] <= usable(device, accelerator=True)[r] for found in made.values() for r in found.needs)
        return {pace: found.interval for pace, found in made.items()}

    mended = intervals()
    monkeypatch.setattr(AcceleratorSearch, "_cut_in_time", lambda self, pace, places, row, used, free: (places, row, used))
    plain = intervals()
    late = [pace for pace, interval in plain.items() if interval > pace]
    assert len(late) > 5, "paces at which words are too slow are tried"
    assert sum(mended[pace] <= pace for pace in late) > 1
    assert all(mended[pace] <= max(pace, interval) for pace, interval in plain.items())


@pytest.mark.parametrize("pace", [900, 1200, 1600, 2200, 3000])
def test_excluded_words_exclude_no_engines_that_keep_the_pace(pace: int) -> None:
    graph = expanding()
    count, rng = len(graph.nodes), np.random.default_rng(pace)
    search = AcceleratorSearch(graph, fpga(0.5), (count,), Blocks(graph, fpga(0.5)))
    search.in_words(count, pace)
    folds = [search.engine(i, pace).folds for i in range(count)]
    clashes, kept = search.clashes.get(pace, []), 0
    for _ in range(3000):
        places = [int(rng.integers(len(own))) for own in folds]
        row = Row(tuple(own[k] for own, k in zip(folds, places, strict=True)), (), None)
        excluded = any(all(places[i] in options for i, options in clash.options) for clash in clashes)
        late = any(clocks > pace for clocks in search.words.clocks(row).values())
        kept += not late
        assert late or not excluded
    assert not clashes or kept < 3000


def test_trying_again_without_words_that_are_too_slow_finds_shorter_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, device = expanding(), fpga(0.5)

    def found() -> FoundAccelerator:
        return AcceleratorSearch(graph, device, (len(graph.nodes),), Blocks(graph, device)).fastest()

    several = found()
    assert several.bound <= several.interval
    monkeypatch.setattr(AcceleratorSearch, "_exclude", lambda self, cut, pace, chosen, options: False)
    once = found()
    assert several.interval <= once.interval
    assert several.bound >= once.bound


@pytest.mark.parametrize("board", ["tx2-c10gx", "ecp5-85", "zc706"])
def test_arrays_with_products_in_logic_are_offered_for_what_they_cost(graph: Graph, board: str) -> None:
    (device,) = load_platform(board).of_kind(Kind.FPGA)
    blocks, names = Blocks(graph, device), [n.name for n in graph.nodes[1:]]
    offered = [option for option in blocks(1, inf) if option.configuration.soft]
    assert offered, "some products are made in logic"
    for option in offered[:8]:
        cost = dict(block_cost(graph, names, option.configuration, device).resources)
        assert option.needs == pytest.approx([cost.get(name, 0.0) for name in blocks.names])
        assert min(option.needs) >= 0


def test_a_network_is_cut_where_one_tensor_is_alive(graph: Graph) -> None:
    names = [n.name for n in graph.nodes]
    cuts = cut_points(graph)
    assert cuts == (0, 1, 5, 6, 7)
    assert names[5] == "last"


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3))
def test_choices_lie_between_bound_and_what_trying_all_finds(seed: int, items: int, options: int, resources: int) -> None:
    rng = np.random.default_rng(seed)
    tables = [rng.integers(0, 20, (rng.integers(1, options + 1), resources)).astype(float) for _ in range(items)]
    budget = rng.integers(10, 60, resources).astype(float)
    best = min(max(sum(t[p] for t, p in zip(tables, places, strict=True)) / budget)
               for places in product(*(range(len(t)) for t in tables)))
    chosen = least_fill(tables, budget)
    assert chosen.bound <= best + 1e-9
    assert (chosen.fill <= 1) == (best <= 1)  # whether whole options fit is decided, not guessed
    if chosen.fill < inf:
        used = sum(t[p] for t, p in zip(tables, chosen.places, strict=True)) / budget
        assert chosen.fill == pytest.approx(max(used))
        assert best <= chosen.fill + 1e-9
    else:
        assert best > 1


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 3), st.integers(1, 3))
def test_choices_of_several_at_once_lie_between_bound_and_what_trying_all_finds(seed: int, items: int, options: int,
                                                                                resources: int) -> None:
    rng = np.random.default_rng(seed)
    tables = [rng.integers(0, 20, (rng.integers(1, options + 1), resources)).astype(float) for _ in range(items)]
    budget = rng.integers(10, 60, resources).astype(float)
    members = tuple(range(int(rng.integers(0, items - 1)), items))
    joint = Joint(members, rng.integers(0, 30, (2, resources)).astype(float))
    apart = [max(sum(t[p] for t, p in zip(tables, places, strict=True)) / budget)
             for places in product(*(range(len(t)) for t in tables))]
    others = [t for i, t in enumerate(tables) if i not in members]
    joined = [max(sum((t[p] for t, p in zip(others, places, strict=True)), row) / budget)
              for row in joint.options for places in product(*(range(len(t)) for t in others))]
    best, chosen = min([*apart, *joined]), least_fill(tables, budget, [joint])
    assert chosen.bound <= best + 1e-9
    assert (chosen.fill <= 1) == (best <= 1)
    if chosen.fill == inf:
        assert best > 1
        return
    (place,) = chosen.together
    kept = [t[p] for i, (t, p) in enumerate(zip(tables, chosen.places, strict=True)) if place is None or i not in members]
    used = sum([*kept, *([] if place is None else [joint.options[place]])], np.zeros(resources)) / budget
    assert chosen.fill == pytest.approx(max(used))
    assert best <= chosen.fill + 1e-9


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_joints_that_share_a_member_pay_for_it_once(seed: int, joints: int) -> None:
    """As inverted residuals do in MobileNetV1, where one's projection is the next one's expansion."""
    rng = np.random.default_rng(seed)
    alone = rng.integers(0, 20, (2 * joints + 1, 2)).astype(float)
    rows = [((2 * k, 2 * k + 1, 2 * k + 2), rng.integers(0, 40, 2).astype(float)) for k in range(joints)]
    sums = []
    for chosen in product((False, True), repeat=joints):
        if not any(a and b for a, b in pairwise(chosen)):
            own = [r for r, on in zip(rows, chosen, strict=True) if on]
            inside = {i for members, _ in own for i in members}
            sums.append(sum((row for _, row in own), np.zeros(2)) + np.delete(alone, sorted(inside), axis=0).sum(axis=0))
    assert least_sum(alone, rows) == pytest.approx(np.min(sums, axis=0))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_what_fits_is_found_however_tightly_it_fits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = [rng.integers(1, 100, (6, 3)).astype(float) for _ in range(10)]
    places = [int((t @ rng.dirichlet(np.full(3, 20.0))).argmin()) for t in tables]
    for i in rng.choice(len(tables), 2, replace=False):
        places[i] = int(rng.choice(np.argsort(tables[i].sum(axis=1))[:2]))
    budget = sum((t[p] for t, p in zip(tables, places, strict=True)), np.zeros(3)) * (1 + 1e-9)
    chosen = least_fill(tables, budget)
    assert chosen.fill <= 1
    assert np.all(sum((t[p] for t, p in zip(tables, chosen.places, strict=True)), np.zeros(3)) <= budget)


def test_nothing_to_choose_from_never_fits_and_nothing_to_choose_always_does() -> None:
    budget = np.array([1.0])
    assert least_fill([np.zeros((0, 1))], budget).bound == inf
    assert least_fill([], budget).fill == 0
    assert least_fill([np.array([[1.0]])], np.array([0.0])).fill == inf


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_what_is_kept_undercuts_all_that_is_dropped(rows: list[tuple[int, int]]) -> None:
    table = np.array(rows, dtype=np.float64)
    kept = undominated(table)
    assert all(any(np.all(table[k] <= row) for k in kept) for row in table)
    assert not any(np.all(table[a] <= table[b]) for a in kept for b in kept if a != b)


def brute_force_interval(search: AcceleratorSearch, paces: list[int]) -> float:
    """The shortest interval by trying every engine of every layer and every configuration at every pace."""
    best = inf
    for cut in search.cuts:
        blocks = list(search.blocks(cut, inf)) if cut < len(search.graph.nodes) else [None]
        for pace in paces:
            engines = [engines_within(search.graph, search.graph.nodes[i], search.device, search.names, pace) for i in range(cut)]
            for places in product(*(range(len(e.folds)) for e in engines)):
                own = sum((e.needs[p] for e, p in zip(engines, places, strict=True)), np.zeros(len(search.names)))
                slowest = max((e.steps[p] for e, p in zip(engines, places, strict=True)), default=0)
                for block in blocks:
                    used = own if block is None else own + np.array(block.needs)
                    if np.all(used <= search.budget):
                        best = min(best, max(float(slowest), 0.0 if block is None else block.interval))
    return best


def tiny() -> Graph:
    net = Net(5)
    x = net.add(Conv(3, Window((3, 3), pads=(1, 1, 1, 1))), net.input((1, 2, 6, 6)), name="first")
    return quantized(net.graph(net.add(Conv(4, Window((1, 1))), x, name="second")))


@pytest.mark.parametrize("scale", [0.05, 0.01, 0.006])
def test_a_search_finds_what_trying_everything_finds(scale: float) -> None:
    graph, device = tiny(), fpga(scale)
    search = AcceleratorSearch(graph, device, cut_points(graph), Blocks(graph, device))
    best = brute_force_interval(search, [36, 43, 50, 60, 80, 110, 150, 220, 320, 500, 900])
    if best == inf:
        with pytest.raises(InfeasibleError, match="no accelerator of this kind fits"):
            search.fastest()
        return
    found = search.fastest()
    assert found.interval <= best * CLOSE
    assert found.bound <= best * CLOSE
    assert found.bound <= found.interval
    assert all(found.needs[r] <= usable(device, accelerator=True)[r] for r in search.names)


@pytest.mark.parametrize(("scale", "choice"), [(0.02, False), (0.05, True), (0.3, True)])
def test_products_are_made_of_logic_only_where_multipliers_run_out(graph: Graph, scale: float, choice: bool,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """On the smallest device only one accelerator has the shortest interval."""
    (whole,) = load_platform("zcu102").of_kind(Kind.FPGA)
    device = replace(whole, resources={r: v * scale * (3 if r == "lut" else 1) for r, v in whole.resources.items()})
    cuts = (len(graph.nodes),)
    thrifty = AcceleratorSearch(graph, device, cuts, Blocks(graph, device)).fastest()
    monkeypatch.setattr(AcceleratorSearch, "_thrifty", lambda search, found: found)
    plain = AcceleratorSearch(graph, device, cuts, Blocks(graph, device)).fastest()
    assert (thrifty.interval, thrifty.bound) == (plain.interval, plain.bound)
    assert (thrifty.needs["lut"] < plain.needs["lut"]) == choice
    idle = usable(device, accelerator=True)["dsp"] - thrifty.needs["dsp"]
    made = accelerator_of(graph, thrifty, Architecture.SESL)
    smallest = min([fold.groups * fold.inputs * fold.outputs for fold in thrifty.folds.values() if not fold.products], default=0)
    assert bool(soft_products_of(graph, made)) == bool(smallest)
    assert not smallest or idle < smallest * 9


def test_maps_in_external_memory_are_chosen_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, device = bottlenecks(64), fpga(0.2)
    device = replace(device, resources={**device.resources, "bram36": 21.0})
    offered = {}
    for limits in ((0,), (0, 6000)):
        monkeypatch.setattr(hybrid_blocks, "MAP_BYTES", limits)
        search = AcceleratorSearch(graph, device, (0,), Blocks(graph, device))
        found, best = search.fastest(), brute_force_interval(search, [1])
        assert found.interval <= best * CLOSE
        assert found.bound <= best <= found.interval
        offered[limits] = found
    assert offered[0, 6000].interval < offered[0,].interval
    block = offered[0, 6000].block
    assert block is not None
    assert isinstance(block.configuration, Config)
    assert block.configuration.map_bytes
    with_maps = block_cost(graph, [n.name for n in graph.nodes], block.configuration, device)
    assert (block.interval, block.latency) == (with_maps.interval_clocks, with_maps.latency_clocks)
    assert block.offchip_bytes == with_maps.offchip_bytes


@pytest.mark.parametrize("scale", [0.06, 0.2])
def test_more_sizes_of_memories_never_give_a_slower_accelerator(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, device, before = bottlenecks(40), fpga(scale), inf
    for limits in ((0,), (0, 6000), (0, 3000, 6000)):
        monkeypatch.setattr(hybrid_blocks, "MAP_BYTES", limits)
        found = AcceleratorSearch(graph, device, cut_points(graph), Blocks(graph, device)).fastest()
        assert found.interval <= before * CLOSE
        assert found.bound <= found.interval
        before = found.interval


def test_a_bound_that_comes_later_is_the_same_as_one_found_with_the_accelerator(graph: Graph) -> None:
    device = fpga(0.2)
    blocks = Blocks(graph, device)
    whole = AcceleratorSearch(graph, device, cut_points(graph), blocks).quickest()
    search = AcceleratorSearch(graph, device, cut_points(graph), blocks)
    first = search.quickest(limits=SearchLimits(enough=0.0))
    assert first.latency == whole.latency
    assert first.bound <= search.frame_bound(first.latency) == whole.bound <= judge(
        graph, device, Architecture.AUTO, Goal.LATENCY).clocks


def test_an_interval_that_other_devices_need_is_as_good_as_any_shorter_one(graph: Graph) -> None:
    device = fpga(0.2)
    fastest = AcceleratorSearch(graph, device, cut_points(graph), Blocks(graph, device)).fastest()
    search = AcceleratorSearch(graph, device, cut_points(graph), Blocks(graph, device))
    found = search.fastest(limits=SearchLimits(floor=4 * fastest.interval))
    assert fastest.interval <= found.interval <= 4 * fastest.interval
    assert (found.bound, fastest.bound > 0) == (0.0, True), "no bound is sought"


def test_single_frames_are_never_slower_than_at_any_cut_alone(graph: Graph) -> None:
    device = fpga(0.2)
    blocks = Blocks(graph, device)
    whole = AcceleratorSearch(graph, device, cut_points(graph), blocks).quickest()
    assert whole.bound <= whole.latency
    for cut in cut_points(graph):
        try:
            alone = AcceleratorSearch(graph, device, (cut,), blocks).quickest()
        except InfeasibleError:
            continue
        assert whole.latency <= alone.latency
        assert whole.bound <= alone.latency


def test_no_arrays_are_offered_where_nothing_is_left_to_compute() -> None:
    net = Net(3)
    x = net.add(Conv(4, Window((3, 3))), net.input((1, 3, 6, 6)), name="conv")
    mean = net.add(GlobalAvgPool(), x, name="mean")
    flat = quantized(net.graph(net.add(Reshape((1, 4)), mean, name="flatten")))
    offered = Blocks(flat, fpga())
    assert [bool(list(offered.promising(cut))) for cut in cut_points(flat)] == [True, True, False, False]
    assert judge(flat, fpga(), Architecture.FIBHA, Goal.LATENCY).clocks > 0


def test_arrays_alone_take_no_longer_than_their_block(graph: Graph) -> None:
    device = fpga(0.3)
    found = AcceleratorSearch(graph, device, (0,), Blocks(graph, device)).quickest()
    assert found.block is not None
    assert (found.latency, found.folds) == (found.block.latency, {})
    assert found.interval == found.block.interval


def test_the_papers_heuristic_stops_when_single_frames_no_longer_get_faster(graph: Graph) -> None:
    device = fpga(0.2)
    search = AcceleratorSearch(graph, device, cut_points(graph), Blocks(graph, device))
    split = split_cnn(search)
    rising = [s.latency for s in split.steps if s.latency is not None]
    assert split.found.latency == min(rising)
    assert search.quickest().latency <= split.found.latency
    assert [s.cut for s in split.steps] == list(search.cuts[:len(split.steps)])


def test_an_inverted_residual_is_one_engine_where_that_needs_less(graph: Graph) -> None:
    device = fpga(0.06)
    search = AcceleratorSearch(graph, device, (len(graph.nodes),), Blocks(graph, device))
    for pace in (300, 500, 1000, 3000):
        chosen = search.choose(len(graph.nodes), pace, ())
        alone = least_fill([search.engine(i, pace).needs for i in range(len(graph.nodes))], search.budget)
        assert chosen.bound <= alone.fill
        found = search.made(len(graph.nodes), pace, chosen, ())
        assert found.interval <= pace
        used = max(found.needs[r] / limit for r, limit in zip(search.names, search.budget, strict=True))
        assert used == pytest.approx(chosen.fill)


def test_an_average_of_one_pixel_costs_a_plan_what_the_search_charged_it() -> None:
    net = Net(6)
    x = net.add(Conv(16, Window((3, 3))), net.input((1, 3, 3, 3)), name="stem")
    mean = net.add(GlobalAvgPool(), net.add(Conv(256, Window((1, 1))), x, name="wide"), name="mean")
    graph, device = quantized(net.graph(mean)), fpga(0.05)
    made = judge(graph, device, Architecture.SESL, Goal.THROUGHPUT)
    charged = estimate([graph], replace(device, accelerator=made.accelerator))
    assert charged["lut"] == pytest.approx(made.found.needs["lut"], rel=0.1)


@pytest.mark.parametrize("cut", [0, 1, 5])
def test_arrays_are_as_busy_as_clocks_between_frames_say(graph: Graph, cut: int) -> None:
    platform, names = load_platform("zcu102"), tuple(n.name for n in graph.nodes)
    config = Blocks(graph, accelerated_device(platform))(cut, inf)[0].configuration
    design = AcceleratorDesign(Architecture.FIBHA, dict.fromkeys(names[:cut]), names[cut:], arrays_of(config))
    device = accelerated_device(board := platform.with_accelerator("fpga", design))
    judged = evaluate(Problem(graph, board, DeviceCosts(), Goal.THROUGHPUT), {name: whole_on("fpga") for name in names})
    block = block_cost(graph, names[cut:], config, device)
    assert device.clock_hz is not None
    assert judged.busy_s["fpga engine shared by layers"] * device.clock_hz == pytest.approx(block.interval_clocks, rel=1e-12)
    alone_s = sum(n.compute_s for n in judged.nodes if n.node in names[cut:])
    assert alone_s * device.clock_hz == pytest.approx(block.latency_clocks)


@pytest.mark.parametrize("kind", [Architecture.FIBHA, Architecture.SESL, Architecture.SEML, Architecture.MONOLITHIC])
def test_every_architecture_makes_a_plan_that_survives_its_file(graph: Graph, kind: Architecture) -> None:
    board = load_platform("zcu102")
    plan, _, made = decide(graph, board, Options(Goal.THROUGHPUT, architecture=kind.value))
    (device,) = made.of_kind(Kind.FPGA)
    accelerator = device.accelerator
    assert accelerator is not None
    assert {n.name for n in graph.nodes} == {*accelerator.dedicated, *accelerator.reusable}
    assert all(split.devices == ("fpga",) for split in plan.assignment.values())
    assert platform_from_dict(platform_to_dict(made)) == made
    assert any(f"{kind} accelerator for 7 of 7 nodes" in note for note in plan.notes)
    assert all(used <= limit for used, limit in plan.resources["fpga"].values())


def test_auto_is_as_good_as_the_best_of_all(graph: Graph) -> None:
    device = fpga(0.5)
    best = judge(graph, device, Architecture.AUTO, Goal.THROUGHPUT)
    for kind in (Architecture.FIBHA, Architecture.SESL, Architecture.SEML, Architecture.MONOLITHIC):
        assert best.clocks <= judge(graph, device, kind, Goal.THROUGHPUT).clocks


def test_direct_mapping_alone_is_refused_where_it_does_not_fit(graph: Graph) -> None:
    with pytest.raises(InfeasibleError, match=r"the emptiest takes [\d.]+ times what may be used of lut"):
        judge(graph, fpga(0.01), Architecture.DHM, Goal.THROUGHPUT)
    direct = judge(graph, fpga(), Architecture.DHM, Goal.THROUGHPUT).accelerator
    assert set(direct.dedicated.values()) == {None}


def test_boards_without_exactly_one_fpga_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="2 FPGAs; an accelerator for a network is built on one"):
        accelerated_device(load_platform("fic:2"))


def test_the_fpga_takes_the_run_of_layers_it_can_compute(graph: Graph) -> None:
    region = region_of(graph, fpga())
    assert (region.start, region.stop) == (0, len(graph.nodes))


def test_board_files_cannot_bring_a_broken_accelerator() -> None:
    entries = platform_to_dict(load_platform("zcu102"))
    entries["device"][1]["accelerator"] = {"architecture": "fibha"}
    with pytest.raises(PlatformError, match=r"field accelerator\.dedicated is missing; leave it out of board files"):
        platform_from_dict(entries)


def test_codes_are_worked_on_by_arrays_that_count_bits_and_what_they_refuse_is_left_to_others() -> None:
    graph = network(1, 2, 2)
    made = judge(graph, fpga(), Architecture.SEML, Goal.THROUGHPUT)
    config = config_of(made.accelerator)
    assert config is not None
    assert config.counts
    assert len(made.accelerator.reusable) == len(graph.nodes)
    assert made.bound <= made.clocks == block_cost(graph, made.accelerator.reusable, config, fpga()).interval_clocks
    swap = Node("swap", Select(tuple(range(10))[::-1]), ("last_y",), (), "out")
    odd = Graph("odd", graph.inputs, ("out",), (*graph.nodes, swap),
                {**graph.tensors, "out": Tensor("out", (1, 10), graph.tensors["last_y"].scheme)}, graph.constants)
    region = region_of(odd, fpga(), Architecture.SEML)
    assert (region.start, region.stop) == (0, len(graph.nodes))
    assert reason_outside(odd, swap, fpga(), Architecture.SEML) == (
        "fpga: swap cannot run on reusable engines, reusable engines have no ChannelSlice")
    assert reason_outside(odd, swap, fpga(), Architecture.SESL) is None
    alone = region_of(graph, fpga(), Architecture.MONOLITHIC)
    assert [n.name for n in graph.nodes[alone.start:alone.stop]] == ["first", "second"]
