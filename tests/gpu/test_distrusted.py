"""Kernels that compilers got wrong are known by their code, and not launched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dovetail.gpu import tuning
from dovetail.gpu.distrusted import MOST_SPILLED, distrusted, reads_too_early
from dovetail.gpu.launcher import Launcher
from dovetail.gpu.tuning import Tuner
from dovetail.ir import Conv, Graph, Window
from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import CANDIDATES
from dovetail.kernels.lower import lower
from dovetail.platform.gpu_specification import specification
from tests.kernels.networks import wide_stem
from tests.strategies import Net

STORE, FENCE, BARRIER, PRODUCT = ("\tst.shared.v4.b32 [%r1], {%r2, %r3, %r4, %r5};\n", "\tfence.proxy.async.shared::cta;\n",
                                  "\tbar.sync \t0;\n", "\twgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%r9}, %rd1;\n")


LOOP = "$L__BB0_1:                              // =>This Inner Loop Header: Depth=1\n"


def test_a_fence_and_then_a_barrier_must_stand_between_a_store_and_a_product() -> None:
    assert not reads_too_early(STORE + FENCE + BARRIER + PRODUCT + PRODUCT)
    assert reads_too_early(STORE + BARRIER + FENCE + PRODUCT)
    assert reads_too_early(STORE + BARRIER + PRODUCT)
    assert reads_too_early(LOOP + STORE + FENCE + BARRIER + PRODUCT + BARRIER + STORE + BARRIER + FENCE + PRODUCT)
    assert reads_too_early(STORE + FENCE + STORE + BARRIER + PRODUCT)
    assert not reads_too_early(STORE + BARRIER + LOOP + BARRIER + FENCE + PRODUCT)  # there, copied asynchronously
    assert not reads_too_early(BARRIER + FENCE + PRODUCT + BARRIER + STORE)  # what follows is for other ends


def test_spilled_descriptors_and_16_bit_maxima_are_not_trusted() -> None:
    plain = STORE + FENCE + BARRIER
    assert not distrusted(plain, MOST_SPILLED)
    assert distrusted(plain, MOST_SPILLED + 1)
    assert not distrusted(plain + PRODUCT, 0)
    assert distrusted(plain + PRODUCT, 1)
    larger, asked = "\tmax.{} \t%rs1, %rs2, %rs3;\n", "\tsetp.lt.u16 \t%p1, %rs1, 224;\n"
    assert distrusted(larger.format("u16") + asked, 0)
    assert distrusted("\t@%p3 min.s16x2 \t%r7, %r8, %r9;\n\t@%p3 setp.ne.b32 \t%p1, %r5, %r7;\n", 0)
    assert not distrusted(larger.format("s16") + asked.replace("%rs1", "%rs11"), 0)  # which is kept in bounds alone
    assert not distrusted(larger.format("u32") + asked, 0)


def calls_of(graph: Graph, images: int) -> Iterator[Call]:
    lowered = lower(graph, "float16", specification("h200"), images)
    for run in lowered.runs:
        assert not isinstance(run, Call)
        yield from (call for *_, call in lowered.options(run))


def test_loops_over_gathered_values_are_not_pipelined() -> None:
    call, = calls_of(wide_stem(), 1)
    looped = [c for c in call.configs if c["BK"] < 7 * 7 * 3]
    assert looped
    assert all(c["num_stages"] == 1 for c in looped)


@dataclass
class Made:
    asm: dict[str, str]
    n_spills: int = 0


@dataclass
class Stub:
    """A launcher whose pipelined kernels fence too late, and whose largest tiles do so always."""

    kind: str = "float16"
    launched: list[dict[str, int]] = field(default_factory=list)

    def described(self, call: Call, config: dict[str, int]) -> Any:
        return SimpleNamespace(alike=str(sorted(config.items())))

    def loaded(self, call: Call, config: dict[str, int]) -> Any:
        late = config["num_stages"] > 1 or config["BP"] == 128
        return Made({"ptx": STORE + (BARRIER + FENCE if late else FENCE + BARRIER) + PRODUCT})

    def bound(self, call: Call, config: dict[str, int]) -> Any:
        self.launched.append(config)
        return lambda: None


class Spilling(Stub):
    """The same, whose registers do not suffice."""

    def loaded(self, call: Call, config: dict[str, int]) -> Any:
        assert config["num_stages"] > 1 or config in call.configs, "compiled once more"
        return Made({"ptx": FENCE + BARRIER + PRODUCT}, 1)


def test_kernels_that_spill_are_not_compiled_without_pipelining() -> None:
    net = Net(0)
    call = next(c for c in calls_of(net.graph(net.add(Conv(256, Window((3, 3))), net.input((1, 192, 28, 28)))), 8))
    ranked = Tuner(cast("Launcher", Spilling()), timing=True).ranked(call)
    assert [(seconds, tile) for seconds, tile in ranked] == [(float("inf"), tile) for tile in call.configs[:CANDIDATES]]


def test_kernels_that_read_too_early_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "captured", lambda launches: launches)
    monkeypatch.setattr(tuning, "replay_seconds", lambda replay: 1e-6)
    net = Net(0)
    x = net.add(Conv(192, Window((1, 1))), net.input((1, 16, 28, 28)))
    *_, call = (c for c in calls_of(net.graph(net.add(Conv(384, Window((3, 3), (2, 2), (1,) * 4)), x)), 8) if c.kernel == "conv")
    assert any(c["num_stages"] > 1 for c in call.configs[:CANDIDATES])
    stub = Stub()
    ranked = Tuner(cast("Launcher", stub), timing=True).ranked(call)
    assert len(ranked) == CANDIDATES
    for seconds, tile in ranked:
        assert (seconds < float("inf")) == (tile["BP"] != 128)
        assert tile["num_stages"] == 1
    assert ranked[0][0] < float("inf")
    assert all(tile["BP"] != 128 and tile["num_stages"] == 1 for tile in stub.launched)
