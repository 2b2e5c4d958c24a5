"""Certificates of accelerators: the space restated, bounds beside everything that searches find, and false claims refused."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from math import ceil, inf
from pathlib import Path

import numpy as np
import pytest

from dovetail.accelerator_prices import SURE, PricedBox, PriceTree, frame_prices
from dovetail.certificate.accelerators import ARRAYS, LONGEST, AcceleratorClaim, Accelerators, CutPrices, covers, first_unproven
from dovetail.certificate.arrays import arrays_on_offer, cuts_of
from dovetail.certificate.design import fault_of
from dovetail.certificate.engines import ONE, Dedicated, folds_of
from dovetail.certificate.file import Certificate, plan_digest, read
from dovetail.certificate.frames import Charge, Cheapest, Framed
from dovetail.certificate.held import shown
from dovetail.certify_accelerators import cut_prices
from dovetail.cli.program import main
from dovetail.cost import costs_of
from dovetail.cost.accelerator import arrays_of
from dovetail.cost.folded import folds_offered, shape_of, twins_allowed
from dovetail.ir import Conv, Gemm, Graph, Window
from dovetail.partition.accelerator.architecture import CHOICES, accelerator_of
from dovetail.partition.accelerator.blocks import Blocks, configurations, cut_points
from dovetail.partition.accelerator.dedicated import engines_within, fused_within
from dovetail.partition.accelerator.search import AcceleratorSearch
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from dovetail.platform.device import Device, Kind
from dovetail.platform.load import load_platform
from dovetail.progress import silent
from lib.proofs.false_certificates import falsified
from tests.partition.test_hybrid import bottlenecks, fpga, tiny
from tests.strategies import Net, quantized

pytestmark = pytest.mark.slow("bounds accelerators at many paces")

MODEL = str(Path(__file__).parents[2] / "examples" / "fashion" / "fashion.onnx")
BOARD = load_platform("zcu102")
PACES = (36, 60, 110, 320, 900, 4000, 20_000)


def separable() -> Graph:
    """Depthwise and pointwise layers in turn: each pointwise one ends an inverted residual and begins the next."""
    net = Net(9)
    x = net.add(Conv(8, Window((1, 1))), net.input((1, 4, 8, 8)), name="first")
    for k in range(2):
        x = net.add(Conv(8, Window((3, 3), pads=(1, 1, 1, 1)), groups=8), x, name=f"deep{k}")
        x = net.add(Conv(8, Window((1, 1))), x, name=f"point{k}")
    return quantized(net.graph(x))


def ultra(scale: float) -> Device:
    """A device whose multiplier blocks make two products."""
    (found,) = load_platform("zcu102").of_kind(Kind.FPGA)
    return replace(found, resources={r: v * scale for r, v in found.resources.items()})


def space_of(graph: Graph, device: Device) -> Accelerators:
    return Accelerators(graph, device, CHOICES, 0, len(graph.nodes))


@pytest.mark.parametrize("board", ["zc706", "zcu102", "tx2-c10gx", "ecp5-85"])
def test_the_space_is_that_of_the_searches(board: str) -> None:
    (device,) = load_platform(board).of_kind(Kind.FPGA)
    graph = bottlenecks()
    count, names = len(graph.nodes), tuple(sorted(device.resources))
    assert tuple(cuts_of(graph, 0, count)) == cut_points(graph)
    for monolithic in (False, True):
        assert set(arrays_on_offer(graph, device, 0, count, monolithic)) == set(configurations(graph, device, monolithic))
    own = Dedicated(graph, device, 0, count)
    for i, node in enumerate(graph.nodes):
        for pace in PACES:
            engines = engines_within(graph, node, device, names, pace)
            fits = own.layers[i].within(pace).shares if i in own.layers else own.plain(i, pace)
            for needs in engines.needs / np.array([own.limits[n] for n in names]):
                assert fits is not None
                assert (needs > 1).any() or (np.atleast_2d(fits) <= needs + 1e-9).all(axis=1).any(), (node.name, pace)
        if isinstance(node.op, Conv | Gemm):
            shape, twins = shape_of(graph, node), twins_allowed(device)
            every = set(map(tuple, folds_of(shape, twins).tolist()))
            for pace in PACES:
                assert set(map(tuple, folds_offered([shape], pace, twins, soft=True).folds.tolist())) <= every
    for pace in PACES:
        for fused in fused_within(graph, device, names, pace):
            (joined,) = [e for e in own.joined if e.members == fused.members]
            for needs in fused.needs / np.array([own.limits[n] for n in names]):
                assert (needs > 1).any() or (joined.within(pace).shares <= needs + 1e-9).all(axis=1).any()


def shortest(search: AcceleratorSearch, paces: tuple[int, ...]) -> float:
    """The shortest interval of all engines and arrays that fit together, each layer's at any pace."""
    best, graph = inf, search.graph
    for cut in search.cuts:
        blocks = list(search.blocks(cut, inf)) if cut < len(graph.nodes) else [None]
        for pace in paces:
            engines = [engines_within(graph, graph.nodes[i], search.device, search.names, pace) for i in range(cut)]
            for places in product(*(range(len(e.steps)) for e in engines)):
                own = sum((e.needs[p] for e, p in zip(engines, places, strict=True)), np.zeros(len(search.names)))
                slowest = max((e.steps[p] for e, p in zip(engines, places, strict=True)), default=0)
                for block in blocks:
                    if np.all(own + (0 if block is None else np.array(block.needs)) <= search.budget):
                        best = min(best, max(float(slowest), 0.0 if block is None else block.interval))
    return best


@pytest.mark.parametrize("scale", [0.05, 0.01, 0.006])
def test_nothing_is_proven_beyond_the_best_of_all(scale: float) -> None:
    graph, device = tiny(), fpga(scale)
    best = shortest(AcceleratorSearch(graph, device, cut_points(graph), Blocks(graph, device)), (36, 43, 60, 110, 220, 500, 900))
    space = space_of(graph, device)
    if best < inf:
        assert cut_prices(space, best + 1, silent) is None
    proven = [clocks for clocks in (10.0, 30.0, 36.0, 100.0, 200.0, 1e4) if cut_prices(space, clocks, silent) is not None]
    assert proven, "something is proven"
    assert max(proven) <= best


@pytest.mark.parametrize(("graph", "scale"), [(bottlenecks(), 0.02), (bottlenecks(), 0.1), (separable(), 0.01)])
def test_bounds_are_proven_up_to_near_what_searches_find(graph: Graph, scale: float) -> None:
    device = ultra(scale)
    search = AcceleratorSearch(graph, device, cut_points(graph), Blocks(graph, device))
    found = search.fastest()
    space = replace_kinds(space_of(graph, device), (Architecture.FIBHA,))
    lower = [part * found.bound for part in (1.0, 0.95, 0.9, 0.85)]
    proven = [(clocks, cuts) for clocks in lower if (cuts := cut_prices(space, clocks, silent))]
    assert proven, "what no fractions of engines reach, prices prove; whole ones may take a little more"
    clocks, cuts = proven[0]
    assert first_unproven(space, cuts, clocks, shown(space, clocks, "throughput", BOARD)) is None
    assert cut_prices(space, found.interval + 1, silent) is None
    line = replace(cuts[-1], line=7)
    more = found.interval + 1
    assert first_unproven(space, (*cuts[:-1], line), more, shown(space, more, "throughput", BOARD)) is not None
    assert fault_of(space, accelerator_of(graph, found, Architecture.FIBHA)) is None


def replace_kinds(space: Accelerators, kinds: tuple[Architecture, ...]) -> Accelerators:
    return Accelerators(space.graph, space.device, kinds, space.start, space.stop)


@pytest.mark.parametrize("goal", ["latency", "energy"])
@pytest.mark.parametrize(("graph", "device"), [(bottlenecks(), fpga(0.05)), (tiny(), fpga(0.01)), (separable(), ultra(0.02))])
def test_no_frame_takes_less_than_is_proven(graph: Graph, device: Device, goal: str) -> None:
    """What a frame takes as plans count it, of accelerators at many paces, beside what prices prove."""
    charge = Charge.of(goal, BOARD, device)
    search = AcceleratorSearch(graph, device, cut_points(graph), Blocks(graph, device))
    found = list[float]()
    for cut, pace in product(search.cuts, (40, 64, 70, 100, 150, 250, 400, 900, 2000, 5000)):
        chosen, options = search.within(cut, pace)
        if chosen.fill <= 1:
            made = search.made(cut, pace, chosen, options)
            built = replace(device, accelerator=accelerator_of(graph, made, Architecture.FIBHA))
            costs = [c for node in graph.nodes if (c := costs_of(graph, node, None, *ONE, built)) is not None]
            clocks = sum(c.fused_s[0] if i else c.alone_s[0] for i, c in enumerate(costs)) * (device.clock_hz or 0.0)
            found.append(charge.per_clock * clocks + charge.per_joule * sum(c.energy_j[0] for c in costs))
    assert len(found) > 3, "accelerators at several paces fit"
    space = replace_kinds(space_of(graph, device), (Architecture.FIBHA,))
    proven, cuts = frame_prices(Framed(space, 10 * min(found), charge))
    assert 0.6 * min(found) <= proven <= min(found)
    assert first_unproven(space, cuts, proven, shown(space, proven, goal, BOARD)) is None
    assert first_unproven(space, cuts, 2 * proven, shown(space, 2 * proven, goal, BOARD)) is not None
    divided = next((own for own in cuts if own.box), None)
    assert divided is None or first_unproven(space, [own for own in cuts if own is not divided], proven,
                                             shown(space, proven, goal, BOARD)) is not None


@pytest.mark.parametrize("sketched_s", [inf, 0.0])
def test_bounds_without_time_are_lower_and_hold(sketched_s: float) -> None:
    graph, device = tiny(), fpga(0.01)
    space, charge = replace_kinds(space_of(graph, device), (Architecture.FIBHA,)), Charge.of("energy", BOARD, device)
    most, _ = frame_prices(Framed(space, 1.0, charge))
    late = PriceTree(Framed(space, 2 * most, charge), until_s=0.0, sketched_s=sketched_s)
    least = late.grow(2 * most) * (1 - SURE)
    assert 0 < least <= most
    assert not any(arrays.figures for arrays in (space.arrays(False), space.arrays(True))), "arrays as they are built take time"
    assert sketched_s or not any(a.sketches for a in (space.arrays(False), space.arrays(True))), "nor are they sketched"
    assert first_unproven(space, late.proof(least), least, shown(space, least, "energy", BOARD)) is None


def test_the_lowest_ending_is_built_early_and_none_is_divided_that_is_near_enough() -> None:
    graph, device = bottlenecks(), fpga(0.05)
    space = replace_kinds(space_of(graph, device), (Architecture.FIBHA,))
    early = list[int]()

    def build(box: PricedBox) -> float:
        early.append(len(tree.boxes))
        return 2 * box.value

    tree = PriceTree(Framed(space, 1e6, Charge.of("latency", BOARD, device)), close=4.0)
    least = tree.grow(1e6, build)
    assert early[0] == 0, "before any other ending is bounded"
    assert len(early) < len(tree.boxes) == len(space.endings)
    assert not any(box.box or box.exact for box in tree.boxes)
    assert least == min(box.value for box in tree.boxes)


def test_arrays_that_a_box_holds_alike_divide_nothing() -> None:
    graph, device = bottlenecks(), fpga(0.05)
    space = replace_kinds(space_of(graph, device), (Architecture.SEML,))
    tree, (ending,) = PriceTree(Framed(space, 1e6, Charge.of("latency", BOARD, device))), space.endings
    assert ending.arrays is not None
    clocks = ending.arrays.floors(ending.cut, alone=True)
    ranges = (0,) * tree.framed.count
    mixture = tuple(Cheapest(1.0, ranges, int(k)) for k in (clocks.argmin(), clocks.argmax()))
    low, high = tree.halves(PricedBox(1.0, 0, {}, np.zeros(len(space.names)), mixture))
    assert 0 < low[ARRAYS][1] == high[ARRAYS][0] < LONGEST
    late = {ARRAYS: (int(clocks.max()) + 1, LONGEST)}
    assert tree.halves(PricedBox(1.0, 0, late, np.zeros(len(space.names)), mixture)) == ()


def test_boxes_cover_all_accelerators_or_one_is_missing() -> None:
    low, high = {0: (0, 70)}, {0: (70, LONGEST)}
    assert covers([{}], {})
    assert covers([low, high], {})
    assert not covers([low], {})
    assert not covers([low, {0: (71, LONGEST)}], {})
    quarters = [{**half, ARRAYS: limits} for half, limits in product((low, high), ((0, 5), (5, LONGEST)))]
    assert covers(quarters, {})
    for missing in range(4):
        assert not covers([box for k, box in enumerate(quarters) if k != missing], {})
    assert covers([low, *quarters[2:]], {})
    assert not covers([{0: (5, 5)}], {})


def test_accelerators_of_another_space_are_named() -> None:
    graph, device = bottlenecks(), ultra(0.1)
    space = space_of(graph, device)
    names, count = [n.name for n in graph.nodes], len(graph.nodes)
    whole = AcceleratorDesign(Architecture.SESL, dict.fromkeys(names), (), {}, 1 << 20)
    assert fault_of(space, whole) is None
    arrays = next(e.arrays for e in space.endings if e.arrays is not None)
    sizes = arrays_of(arrays.configs[0])
    hybrid = AcceleratorDesign(Architecture.FIBHA, {names[0]: None}, tuple(names[1:]), sizes, 1 << 20)
    assert fault_of(space, hybrid) is None
    wide = {**sizes, "port_bytes": 64, "bandwidth_bytes": 64}
    for design, said in (
            (replace(whole, dedicated=dict.fromkeys(names[1:])), "other nodes"),
            (replace(whole, pace_clocks=3), "slowest engine"),
            (replace(whole, dedicated={**whole.dedicated, "stem": (1, 2, 5)}), "fold 1x2x5, which is not on offer"),
            (replace(whole, dedicated={**whole.dedicated, "join": (1, 1, 1)}), "join has a fold and no weights"),
            (replace(whole, fused=("depthwise",)), "cannot be one engine"), (replace(whole, fused=("stem",)), "that is none"),
            (replace(hybrid, arrays=wide), "not on offer there"), (replace(hybrid, arrays={}), "its arrays have no"),
            (replace(hybrid, dedicated=dict.fromkeys(names[:2]), reusable=tuple(names[2:])), "are not cut behind 2 nodes"),
            (replace(hybrid, dedicated={names[-1]: None}, reusable=tuple(names[:-1])), "take turns")):
        found = fault_of(space, design)
        assert found is not None, design
        assert said in found
    alone = Accelerators(graph, device, (Architecture.SEML,), 0, count)
    assert "not cut behind" in str(fault_of(alone, whole))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled example on a small part of an FPGA as an accelerator, with its certificate."""
    folder = tmp_path_factory.mktemp("accelerated")
    assert main(["plan", MODEL, "-p", "zcu102", "--objective", "throughput", "--architecture", "fibha", "--fill", "0.03",
                 "-o", str(folder / "plan.json"), "--certificate", str(folder / "plan.cert")]) == 0
    return folder


def test_a_plan_with_an_accelerator_is_accepted_with_all_of_its_space(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(made / "plan.json"), str(made / "plan.cert"), "--json", "-"]) == 0
    verdict, plan = json.loads(capsys.readouterr().out), json.loads((made / "plan.json").read_text())
    assert verdict["accepted"]
    assert verdict["covered"] == plan["space"]
    assert verdict["uncovered"] == []
    assert plan["lower_bound"] <= verdict["bound"] * (1 + 1e-7)
    assert verdict["gap"] <= 0.1


def test_false_claims_of_accelerators_are_refused_at_their_line(made: Path, tmp_path: Path,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    document, claims = json.loads((made / "plan.json").read_text()), read((made / "plan.cert").read_text())
    (claim,) = claims.accelerators
    bound = document["objective"] * 1.001

    def refused(said: str, changed: dict[str, object], own: AcceleratorClaim, bound: float = claims.bound) -> None:
        plan, proof = tmp_path / "plan.json", tmp_path / "plan.cert"
        plan.write_text(json.dumps(changed))
        proof.write_text(Certificate(claims.command, claims.graph, plan_digest(changed), claims.goal, bound, claims.forms,
                                     (own,)).text())
        assert main(["check", str(plan), str(proof)]) == 1
        assert said in capsys.readouterr().err

    refused("these prices do not prove that accelerators with ", {**document, "lower_bound": bound},
            replace(claim, least=ceil(bound * 200e6)), bound)
    refused("line 7: these prices do not prove that no plan around", document, replace(claim, least=1.0))
    refused("line 7: nothing is said of some accelerators at cut", document, replace(claim, cuts=claim.cuts[:-1]))
    refused("of 10", document, replace(claim, cuts=(replace(claim.cuts[0], last=99),)))
    refused("which nothing limits", document, replace(claim, cuts=(CutPrices(0, 0, 9, {"gold": 1.0}),)))
    refused("line 9: these prices", document, replace(claim, cuts=(CutPrices(0, 0, 9, {}),)))
    refused("its forms are all accelerators of kind sesl", document, replace(claim, kinds=(Architecture.SESL,)))
    refused("nodes up to 99", document, replace(claim, stop=99))
    board = json.loads(json.dumps(document["platform"]))
    (device,) = [d for d in board["device"] if "accelerator" in d]
    device["accelerator"]["pace_clocks"] = 1
    refused("the accelerator of fpga is none of the stated space", {**document, "platform": board}, claim)


@pytest.mark.slow("checks a certificate for every falsehood")
def test_nothing_false_of_accelerators_is_accepted(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`bench/false_certificates.py` does this some hundred times."""
    plan, proof, seen = tmp_path / "plan.json", tmp_path / "plan.cert", set[str]()
    for case in (0, 10, 14, 18, 20, 24, 56, 120, 130, 152, 170, 176, 206, 242, 250):
        what, *texts = falsified((made / "plan.json").read_text(), (made / "plan.cert").read_text(), case)
        plan.write_text(texts[0])
        proof.write_text(texts[1])
        assert main(["check", str(plan), str(proof)]) in (1, 2), (case, what)
        assert capsys.readouterr().err.splitlines()[-1].startswith("dovetail: "), (case, what)
        seen.add(what)
    assert {"accelerators", "accelerator"} <= seen
