"""Folded engines against the reference: every kind of layer, folds that do not divide, odd sizes, stalls, exact cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cost.firb import bottlenecks, firb_options
from dovetail.cost.folded import sum_of_parts
from dovetail.errors import UnsupportedError, UsageError
from dovetail.fpga.assemble import build_design, unsupported
from dovetail.fpga.design import Design
from dovetail.fpga.engines.folded import weight_words
from dovetail.fpga.engines.regroup import turns
from dovetail.fpga.export import export_project
from dovetail.fpga.toolchain.simulate import Simulation
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.hardware.folds import Channels, Fold, Loops
from dovetail.ir import AvgPool, GlobalAvgPool, Graph, MaxPool, Window
from dovetail.platform.load import load_platform
from tests.fpga.random_graphs import POINTWISE_SEEDS, Sketch, random_folds, random_graph, random_inputs, same_window
from tests.fpga.test_assemble import Job, check_run
from tests.scales import with_arbitrary_scales

FOLDED_SEEDS = (0, 3, 4, 9, 11, 18, 20, 21, 22, 27, 28, 29, POINTWISE_SEEDS)


def check_cycles(jobs: Sequence[Job]) -> list[Simulation]:
    """Equal to the reference, first frame and steady state in the cycles that closed forms say."""
    simulations = check_run(jobs)
    for (_, design, _), simulation in zip(jobs, simulations, strict=True):
        assert design.latency_cycles == simulation.frame_cycles[0], design.top
        assert design.interval_cycles == simulation.frame_cycles[2] - simulation.frame_cycles[1], design.top
    return simulations


def check_depths(jobs: Sequence[Job], simulations: Sequence[Simulation]) -> None:
    """No FIFO was ever fuller than it is deep."""
    for (_, design, _), simulation in zip(jobs, simulations, strict=True):
        for fifo in design.fifos:
            assert simulation.high_water[fifo.name] <= fifo.depth, (design.top, fifo)


def folded_job(graph: Graph, name: str, folds: dict[str, Fold], seed: int) -> Job:
    return graph, build_design(graph, name, folds=folds), random_inputs(graph, 3, seed)


def layer_job(name: str, shape: tuple[int, ...], filters: int, window: Window, fold: Fold, groups: int = 1, seed: int = 0,
              partial: bool = False) -> Job:
    s = Sketch(np.random.default_rng(seed))
    x = s.input(shape, signed=bool(seed % 2), exponent=-6)
    graph = s.graph((s.conv(x, filters, window, groups, partial),))
    return folded_job(graph, name, {graph.nodes[0].name: fold}, seed)


def flat_job(name: str, shape: tuple[int, ...], units: int, fold: Fold) -> Job:
    s = Sketch(np.random.default_rng(5))
    graph = s.graph((s.gemm(s.input(shape, exponent=-6), units),))
    return folded_job(graph, name, {graph.nodes[-1].name: fold}, 1)


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    square, uneven = same_window(3), Window((3, 2), (2, 2), (1, 1, 0, 1), (1, 2))
    made = [
        layer_job("padded", (1, 4, 6, 7), 5, square, Fold(1, 2, 2)),
        layer_job("one_slice", (1, 3, 6, 7), 5, square, Fold(1, 3, 2), seed=2),
        layer_job("one_pass", (1, 3, 17, 9), 5, square, Fold(1, 2, 5), seed=1),
        layer_job("unfolded", (1, 2, 5, 9), 3, square, Fold(1, 2, 3), seed=1),
        layer_job("pointwise", (1, 4, 5, 9), 5, same_window(1), Fold(1, 3, 2), seed=3),
        layer_job("pointwise_strided", (1, 5, 8, 9), 5, Window((1, 1), (2, 2)), Fold(1, 2, 2), seed=4),
        layer_job("pointwise_deep", (1, 16, 3, 4), 18, same_window(1), Fold(1, 2, 2), seed=3),
        layer_job("padded_deep", (1, 8, 4, 5), 18, square, Fold(1, 1, 2), seed=3),
        layer_job("depthwise", (1, 4, 5, 9), 4, square, Fold(3, 1, 1), 4, seed=3),
        layer_job("depthwise_strided", (1, 5, 9, 10), 5, Window((3, 3), (2, 2), (1, 1, 1, 1)), Fold(2, 1, 1), 5, seed=6),
        layer_job("depth_multiplier", (1, 4, 5, 9), 8, square, Fold(3, 1, 1), 4, seed=3),
        layer_job("grouped", (1, 6, 5, 9), 4, square, Fold(1, 2, 1), 2, seed=3),
        layer_job("grouped_wide", (1, 6, 5, 9), 6, square, Fold(2, 2, 2), 3, seed=3),
        layer_job("lone_pixel", (1, 4, 1, 1), 5, square, Fold(1, 2, 2)),
        layer_job("narrow", (1, 3, 3, 1), 5, square, Fold(1, 2, 2)),
        layer_job("uneven", (1, 5, 17, 9), 5, uneven, Fold(1, 2, 2), seed=4),
        layer_job("wide_padding", (1, 2, 3, 5), 3, Window((2, 2), pads=(2, 2, 2, 2)), Fold(1, 1, 2), seed=1),
        layer_job("partial", (1, 3, 3, 5), 3, square, Fold(1, 2, 1), seed=1, partial=True),
        flat_job("flat", (1, 11), 7, Fold(1, 4, 3)),
        flat_job("flattened_map", (1, 5, 2, 3), 7, Fold(1, 2, 4)),
    ]
    for seed in FOLDED_SEEDS:
        graph = random_graph(seed)
        assert all(unsupported(graph, node) is None for node in graph.nodes)
        made.append(folded_job(graph, f"r{seed}", random_folds(graph, seed), seed))
    return made


@pytest.mark.verilator
def test_folded_layers_equal_the_reference_and_take_the_cycles_their_closed_forms_say(jobs: list[Job]) -> None:
    check_depths(jobs, check_cycles(jobs))


@pytest.mark.verilator
@pytest.mark.parametrize("stall_seed", [1, 2])
def test_folded_layers_equal_the_reference_under_stalls_at_both_ends(jobs: list[Job], stall_seed: int) -> None:
    check_run(jobs, stall_seed)


@pytest.mark.verilator
def test_folded_layers_multiply_between_arbitrary_scales(jobs: list[Job]) -> None:
    scaled = [(with_arbitrary_scales(graph, seed), design.top, seed) for seed, (graph, design, _) in enumerate(jobs[:12])]
    check_run([folded_job(graph, name, random_folds(graph, seed), seed) for graph, name, seed in scaled], 3)


@given(st.tuples(*[st.integers(1, 7)] * 3), st.data())
def test_every_channel_is_read_and_every_filter_finished_exactly_once(sizes: tuple[int, int, int], data: st.DataObject) -> None:
    channels = Channels(*sizes)
    loops = Loops(channels, Fold(*(data.draw(st.integers(1, size)) for size in sizes)))
    reads = [loops.input_channel(w, g, p) for w in range(loops.words) for g in range(loops.fold.groups)
             for p in range(loops.fold.inputs)]
    writes = [loops.filter(r, g, p) for r in range(loops.results) for g in range(loops.fold.groups)
              for p in range(loops.fold.outputs)]
    assert sorted(c for c in reads if c is not None) == list(range(channels.groups * channels.inputs))
    assert sorted(c for c in writes if c is not None) == list(range(channels.groups * channels.outputs))
    assert loops.clocks * loops.lanes * loops.fold.inputs >= channels.groups * channels.inputs * channels.outputs


def test_the_weight_memory_holds_a_word_per_clock_with_zeros_beyond_the_channels() -> None:
    weights = np.arange(1, 7).reshape(2, 3, 1, 1)
    words = weight_words(Loops(Channels(1, 3, 2), Fold(1, 2, 2)), weights)
    assert [f"{word:04o}" for word in words] == ["5421", "0603"]


def test_weights_of_a_block_memory_wait_in_a_register_before_their_multipliers(jobs: list[Job]) -> None:
    for _, design, _ in jobs:
        text = "".join(design.files.values())
        assert ("weights_held <= weights_word" in text) == design.top.endswith("_deep"), design.top
        assert "reg [143:0] weights [0:71]" in text or design.top != "padded_deep"


def test_a_fold_beyond_the_layer_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        Loops(Channels(1, 3, 2), Fold(1, 4, 2))
    assert str(caught.value) == "fold 1x4x2: 4 inputs at once; the layer has 3, so 1 to 3"


def test_a_fold_of_a_layer_without_weights_is_refused() -> None:
    s = Sketch(np.random.default_rng(0))
    graph = s.graph((s.clip(s.input((1, 2, 3, 3))),))
    with pytest.raises(UnsupportedError) as caught:
        build_design(graph, "top", folds={graph.nodes[0].name: Fold(1, 1, 1)})
    assert str(caught.value) == "clip0: a fold for Clip; only Conv and Gemm have multipliers to share"


def twin(fold: Fold) -> Fold:
    return replace(fold, products=2)


def corners_job(signed: bool) -> Job:
    """Every pair of extreme weights against every activation, alone and in sums as long as a multiplier's fields bear."""
    extremes = np.array([-128, -127, -1, 0, 1, 126, 127])
    first, second = (v.reshape(-1) for v in np.meshgrid(extremes, extremes))
    weight = np.stack([first, second], axis=1).reshape(-1, 1, 1, 1) * np.ones((1, 5, 1, 1), dtype=np.int64)
    s = Sketch(np.random.default_rng(1))
    x = s.input((1, 5, 16, 16), signed=signed, exponent=-6)
    y = s.conv(x, len(weight), same_window(1), partial=True)
    graph = s.graph((y,))
    node = graph.nodes[0]
    stored = graph.constants[node.params[0]]
    graph = replace(graph, constants={**graph.constants, stored.name: replace(stored, array=weight.astype(stored.array.dtype))})
    codes = np.arange(256) - (128 if signed else 0)
    frames = np.stack([np.tile(codes, 5), np.where(np.arange(1280) % 2, codes.min(), codes.max()),
                       np.random.default_rng(2).permutation(np.tile(codes, 5))]).reshape(3, 5, 16, 16)
    design = build_design(graph, f"corners{signed:d}", folds={node.name: Fold(1, 5, 14, 2)})
    return graph, design, {graph.inputs[0]: frames.astype(np.int8 if signed else np.uint8)}


@pytest.mark.verilator
def test_two_products_of_a_multiplier_equal_the_reference() -> None:
    square = same_window(3)
    jobs = [
        corners_job(True), corners_job(False),
        layer_job("twins", (1, 4, 6, 7), 5, square, twin(Fold(1, 2, 2))),
        layer_job("odd_twins", (1, 3, 6, 7), 7, square, twin(Fold(1, 3, 3)), seed=2),
        layer_job("wide_twins", (1, 12, 5, 9), 6, same_window(1), twin(Fold(1, 12, 6)), seed=3),
        layer_job("lone_twin", (1, 6, 5, 9), 3, same_window(1), twin(Fold(1, 2, 1)), seed=3),
        layer_job("grouped_twins", (1, 6, 5, 9), 6, square, twin(Fold(2, 2, 2)), 3, seed=3),
        layer_job("partial_twins", (1, 3, 3, 5), 3, square, twin(Fold(1, 2, 2)), seed=1, partial=True),
    ]
    check_cycles(jobs)
    scaled = [(with_arbitrary_scales(graph, seed), design) for seed, (graph, design, _) in enumerate(jobs[2:7])]
    check_run([folded_job(graph, design.top, {graph.nodes[0].name: Fold(*design.folds[graph.nodes[0].name])}, 4)
               for graph, design in scaled], 3)


@pytest.mark.yosys
def test_one_dsp48e2_makes_two_products() -> None:
    _, design, _ = layer_job("layer", (1, 4, 6, 7), 4, same_window(1), twin(Fold(1, 4, 4)), seed=1)
    assert synthesize(design, "xcup").resources["dsp"] == 8


def in_logic(fold: Fold) -> Fold:
    return replace(fold, products=0)


def narrowed(job: Job, bits: int) -> Job:
    """The job with weights of so many bits."""
    graph, design, inputs = job
    stored = graph.constants[graph.nodes[0].params[0]]
    low = np.clip(stored.array, -(1 << bits - 1), (1 << bits - 1) - 1).astype(stored.array.dtype)
    assert low.min() == -(1 << bits - 1)
    graph = replace(graph, constants={**graph.constants, stored.name: replace(stored, array=low)})
    return graph, build_design(graph, f"{design.top}_{bits}", folds={n: Fold(*f) for n, f in design.folds.items()}), inputs


def soft_jobs() -> list[Job]:
    square = same_window(3)
    made = [
        layer_job("soft", (1, 4, 6, 7), 5, square, in_logic(Fold(1, 2, 2))),
        layer_job("soft_pointwise", (1, 12, 5, 9), 6, same_window(1), in_logic(Fold(1, 12, 5)), seed=3),
        layer_job("soft_depthwise", (1, 5, 9, 10), 5, Window((3, 3), (2, 2), (1, 1, 1, 1)), in_logic(Fold(2, 1, 1)), 5, seed=6),
        layer_job("soft_partial", (1, 3, 3, 5), 3, square, in_logic(Fold(1, 2, 2)), seed=1, partial=True),
        flat_job("soft_flat", (1, 11), 7, in_logic(Fold(1, 4, 3))),
    ]
    return made + [narrowed(made[n], bits) for n, bits in ((0, 4), (1, 4), (1, 2), (2, 2))]


@pytest.mark.verilator
def test_folded_layers_with_products_in_logic_equal_the_reference() -> None:
    jobs = soft_jobs()
    check_cycles(jobs)
    check_run(jobs, 4)
    built = []  # what is synthesized, not what a simulator usually sees of it
    for graph, design, inputs in jobs:
        files = {name: text.replace("`ifdef VERILATOR", "`ifdef NEVER") if "_product" in name else text
                 for name, text in design.files.items()}
        built.append((graph, replace(design, files=files), inputs))
    check_run(built)


@pytest.mark.yosys
def test_products_in_logic_take_no_multiplier_and_less_logic_where_weights_are_narrow() -> None:
    job = layer_job("layer", (1, 4, 6, 7), 4, same_window(1), in_logic(Fold(1, 4, 4)), seed=1)
    found = [synthesize(design, "xcup").resources for _, design, _ in (job, narrowed(job, 4), narrowed(job, 2))]
    assert [r["dsp"] for r in found] == [0, 0, 0]
    assert found[0]["lut"] > 1.3 * found[1]["lut"] > 1.6 * found[2]["lut"]


def narrow_design() -> Design:
    return layer_job("narrow", (1, 4, 6, 7), 5, same_window(3), Fold(1, 2, 2))[1]


def test_a_family_without_memories_of_constants_is_refused_with_a_proxy_named() -> None:
    with pytest.raises(UnsupportedError) as caught:
        synthesize(narrow_design(), "cyclone10gx")
    assert str(caught.value) == ("synthesis of narrow: Yosys cannot map memories with contents to cyclone10gx, and folded layers "
                                 "keep their weights in some; synthesize for cyclonev as a proxy")


def test_projects_for_vendors_bring_the_weights() -> None:
    design = narrow_design()
    vivado = export_project(design, "vivado", "xcup", 200e6)
    quartus = export_project(design, "quartus", "cyclone10gx", 100e6)
    assert design.files["narrow_conv0_weights.hex"] == vivado["rtl/narrow_conv0_weights.hex"]
    assert "add_files -norecurse rtl/narrow_conv0_weights.hex" in vivado["build.tcl"]
    assert "set_global_assignment -name SEARCH_PATH rtl" in quartus["build.tcl"]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12))
def test_cutting_pixels_anew_moves_every_channel_to_its_place_once(units: int, taken: int, left: int) -> None:
    pixel, held, words, beat = list(range(units)), dict[int, int](), list[list[int]](), 0
    for turn in turns(units, taken, left):
        here = pixel[beat * taken:(beat + 1) * taken]
        if turn.emits:
            words.append([held[s] if s >= 0 else here[~s] for s in turn.word if s is not None])
        held |= {place: here[source] for place, source in turn.kept}
        beat += turn.takes
    assert beat == -(-units // taken)
    assert words == [pixel[at:at + left] for at in range(0, units, left)]
    assert len(turns(units, taken, left)) <= max(beat, len(words)) + 1


def words_job(seed: int) -> Job:
    """A residual block, a table, a pool, a gate and an average between layers whose words do not fit each other."""
    s = Sketch(np.random.default_rng(seed))
    channels, middle = s.integer(5, 9), s.integer(6, 13)
    x = s.conv(s.input((1, 3, 9, 8), signed=False, exponent=-6), channels, same_window(3))
    y = s.conv(s.conv(x, middle, same_window(1)), middle, same_window(3), middle)
    y = s.lookup(s.add(x, s.conv(y, channels, same_window(1))))
    square = Window((3, 3), (2, 2), (1, 1, 1, 1))
    y = s.pool(MaxPool(square) if seed % 2 else AvgPool(Window((2, 2), (2, 2))), y)
    y = s.conv(s.mul(s.conv(y, channels, same_window(1)), y), 2 * middle, same_window(1))
    graph = s.graph((s.gemm(s.pool(GlobalAvgPool(), y), 5),))
    return folded_job(graph, f"words{seed}", random_folds(graph, seed, 0.9), seed)


def concat_job(seed: int) -> Job:
    """Branches of folded layers that leave in words, joined twice, once with the input of a branch."""
    s = Sketch(np.random.default_rng(seed))
    x = s.conv(s.input((1, 3, 7, 6), signed=False, exponent=-6), 8, same_window(3))
    squeeze = s.conv(x, 4, same_window(1))
    wide = s.conv(squeeze, 8, same_window(1)), s.conv(squeeze, 8, same_window(3))
    y = s.concat(*wide, s.conv(squeeze, 6 + seed, same_window(1)))
    y = s.concat(x, s.conv(y, 8, same_window(1)))
    graph = s.graph((s.conv(y, 5, same_window(1)),))
    folds = {}
    for node in graph.nodes:
        if node.params:
            folds[node.name] = Fold(1, 1 + seed % 2, 1 if len(folds) % 2 else 2)
    return folded_job(graph, f"joined{seed}", folds, seed)


@pytest.mark.verilator
def test_concatenations_of_words_equal_the_reference_and_take_the_cycles_their_closed_forms_say() -> None:
    jobs = [concat_job(seed) for seed in range(4)]
    assert [sum(name.startswith("concat") for name in design.words) for _, design, _ in jobs] == [2, 2, 2, 2]
    check_depths(jobs, check_cycles(jobs))
    check_run(jobs, 6)


def bottleneck_job(name: str, stride: int, residual: bool, clocks: int) -> Job:
    """An inverted residual block whose layers share their words."""
    s, device = Sketch(np.random.default_rng(stride)), load_platform("zcu102").device("fpga")
    x = s.conv(s.input((1, 3, 9, 8), signed=False, exponent=-6), 6, same_window(3))
    y = s.conv(s.conv(x, 20, same_window(1)), 20, Window((3, 3), (stride, stride), (1, 1, 1, 1)), 20)
    y = s.conv(y, 6, same_window(1))
    graph = s.graph((s.add(x, y) if residual else y,))
    (block,) = bottlenecks(graph)
    options = firb_options(graph, block, device.model, True, clocks)
    best = min(options, key=lambda option: sum_of_parts(dict(option.resources), device.resources))
    return folded_job(graph, name, {n.name: fold for n, fold in zip(block.layers, best.folds, strict=True)}, stride)


@pytest.mark.verilator
def test_inverted_residual_blocks_in_one_pipeline_equal_the_reference() -> None:
    jobs = [bottleneck_job("block", 1, True, 700), bottleneck_job("strided_block", 2, False, 1200),
            bottleneck_job("slow_block", 1, True, 4000)]
    check_cycles(jobs)


@pytest.mark.verilator
def test_networks_of_words_equal_the_reference_and_take_the_cycles_their_closed_forms_say() -> None:
    jobs = [words_job(seed) for seed in range(6)]
    assert {name for _, design, _ in jobs for name in design.words} != set()
    assert sum("_words_" in name for _, design, _ in jobs for name in design.files) > 20
    check_depths(jobs, check_cycles(jobs))
    check_run(jobs, 5)
