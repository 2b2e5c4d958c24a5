"""Kernels are compiled by processes that stay for the next ones, and survive what does not compile."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from math import inf
from select import select
from threading import get_ident

import pytest
import torch

from dovetail.gpu import precompile
from dovetail.gpu.executor import compile_graph
from dovetail.gpu.precompile import ALIGNED, DONE, UNALIGNED, Anywhere, CompileJob, Workers, serve
from dovetail.kernels.items import TensorLayout
from tests.kernels.networks import GRAPHS

ANSWERS = """
import pickle, sys

class Stated:
    def __setstate__(self, state):
        self.number = state[2]["number"]

class Plain(pickle.Unpickler):  # without what a job imports
    def find_class(self, module, name):
        return Stated

while sys.stdin.buffer.peek():
    if Plain(sys.stdin.buffer).load().number == DEADLY:
        sys.exit()
    sys.stdout.write(".")
    sys.stdout.flush()
"""


def job(number: int) -> CompileJob:
    """A kernel without operands, which nothing can compile."""
    return CompileJob("add", (), {"number": number}, {"num_warps": 1}, pdl=False)


def test_operands_that_begin_inside_a_buffer_are_compiled_as_such() -> None:
    made = compile_graph(GRAPHS["unit"](), "float16", 1)
    made.launcher.buffers.clear()
    found = [(call.operands, made.launcher.described(call, config).operands) for call, config in made.calls]
    apart = [(o.offset, kind) for operands, kinds in found for o, kind in zip(operands, kinds, strict=True)
             if isinstance(o, TensorLayout)]
    assert {str(kind).endswith(UNALIGNED) for offset, kind in apart if offset == 0} == {False}
    assert {str(kind).endswith(UNALIGNED) for offset, kind in apart if offset * 2 % ALIGNED} == {True}
    for call, config in made.calls:
        described, there = made.launcher.described(call, config).operands, made.launcher.operands(call)
        assert described == tuple(o if isinstance(o, int) else str(o.dtype).removeprefix("torch.")
                                  + UNALIGNED * (o.data_ptr() % ALIGNED > 0) for o in there)
    assert Anywhere(torch.float16).data_ptr() % ALIGNED


def test_processes_that_begin_with_other_kernels_find_each_others_work() -> None:
    ask = "from dovetail.gpu.triton.table import KERNELS; print(sorted((n, KERNELS[n].function.cache_key) for n in {order}))"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    forth, back = (subprocess.run([sys.executable, "-c", ask.format(order=order)], env=environment, capture_output=True,
                                  text=True, check=True).stdout for order in ("KERNELS", "reversed(KERNELS)"))
    assert "walked_bytes" in forth
    assert forth == back


def test_numbers_that_triton_treats_alike_make_one_job() -> None:
    def numbered(operand: int) -> str:
        return CompileJob("add", (operand,), {}, {"num_warps": 1}, pdl=False).alike
    assert numbered(32) == numbered(64)
    assert len({numbered(n) for n in (1, 16, 17, 1 << 31, (1 << 31) + 1)}) == 5
    assert numbered(3) == numbered(8)


def test_what_takes_longest_is_begun_first(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[str]()
    monkeypatch.setattr(precompile.WORKERS, "compile", lambda jobs, *_: begun.extend(job.kernel for job in jobs) or [])
    monkeypatch.setattr(precompile.os, "cpu_count", lambda: 2)
    precompile.precompile(CompileJob(kernel, (), {"number": n}, {"num_warps": 1}, pdl=False) for n in range(2)
                          for kernel in ("conv", "fused", "add", "walked", "bridged"))
    assert begun == ["bridged"] * 2 + ["walked"] * 2 + ["fused"] * 2 + ["conv", "add"] * 2


def test_depthwise_kernels_with_the_most_products_in_a_row_are_begun_first(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[tuple[str, int]]()
    monkeypatch.setattr(precompile.WORKERS, "compile", lambda jobs, *_: begun.extend(
        (job.kernel, job.constants.get("KH", 0) * job.config["R"]) for job in jobs) or [])
    monkeypatch.setattr(precompile.os, "cpu_count", lambda: 2)
    precompile.precompile([CompileJob("conv", (), {"n": n}, {"R": 1}, pdl=False) for n in range(4)] + [
        CompileJob("depthwise", (), {"KH": taps, "KW": taps}, {"R": rows, "SIDE": 1}, pdl=False)
        for taps, rows in ((3, 4), (7, 1), (5, 4), (7, 4))])
    assert begun == [("depthwise", 28), ("depthwise", 20), ("depthwise", 7), ("depthwise", 12), *[("conv", 0)] * 4]


def test_the_place_of_a_process_that_dies_is_taken_and_one_that_never_works_is_let_go() -> None:
    workers, done = Workers((sys.executable, "-c", ANSWERS.replace("DEADLY", "4"))), list[CompileJob]()
    workers.compile([job(n) for n in range(12)], 2, done.append)
    assert sorted(one.constants["number"] for one in done) == [0, 1, 2, 3, *range(5, 12)]
    assert len(workers.running) == 2
    workers.end()
    broken = Workers((sys.executable, "-c", "raise SystemExit"))
    assert broken.compile([job(n) for n in range(9)], 2, done.append, inf) == []
    assert len(done) == 11
    broken.end()


def test_after_some_time_no_job_is_begun_and_whoever_asked_hears_of_each_that_was() -> None:
    workers, done = Workers((sys.executable, "-c", ANSWERS.replace("DEADLY", "-1"))), list[tuple[CompileJob, int]]()
    began = [job(n) for n in range(12)]
    assert workers.compile(began, 2, lambda one: done.append((one, get_ident())), -inf) == began
    assert workers.compile(began, 2, lambda one: done.append((one, get_ident())), inf) == []
    assert sorted(one.constants["number"] for one, _ in done) == list(range(12))
    assert {thread for _, thread in done} == {get_ident()}
    workers.end()


def test_a_compiler_that_is_late_is_stopped_and_its_job_left(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = ANSWERS.replace("sys.exit()", "__import__('time').sleep(600)").replace("DEADLY", "2")
    workers, done, now, waits = Workers((sys.executable, "-c", hanging)), list[CompileJob](), [0.0], list[float]()

    def waited(read: list[object], write: list[object], other: list[object], seconds: float) -> tuple[list[object], ...]:
        waits.append(seconds)
        if len(waits) < 3:
            return select(read, write, other)
        now[0] += seconds
        return [], [], []
    monkeypatch.setattr(precompile, "select", waited)
    monkeypatch.setattr(precompile.time, "perf_counter", lambda: now[0])
    left = workers.compile([job(n) for n in (0, 1, 2)], 1, done.append, 1.0)
    monkeypatch.undo()
    assert waits == [1.0 + precompile.LATE_S] * 3
    assert [one.constants["number"] for one in done] == [0, 1]
    assert [one.constants["number"] for one in left] == [2]
    assert workers.running == []
    workers.end()


def test_jobs_of_one_round_are_begun_before_those_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[tuple[str, int]]()

    def compiled(jobs: Sequence[CompileJob], *_: object) -> list[CompileJob]:
        begun.extend((job.kernel, job.config["tile"]) for job in jobs)
        return [*jobs[-2:]]
    monkeypatch.setattr(precompile.WORKERS, "compile", compiled)
    rounds = [[CompileJob(kernel, (), {}, {"tile": tile}, pdl=False) for kernel in ("conv", "walked", "fused")]
              for tile in (0, 0, 1, 2)]
    left = precompile.precompile(*rounds)
    assert begun == [(kernel, tile) for tile in range(3) for kernel in ("walked", "fused", "conv")]
    assert left == {rounds[3][0].alike, rounds[3][2].alike}  # the last two, the slow one of their round being begun


def test_every_job_is_answered_until_there_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr(CompileJob, "run", lambda self: ran.append(self.constants["number"]))
    answers = io.BytesIO()
    serve(io.BytesIO(b"".join(pickle.dumps(job(n)) for n in range(3))), answers)
    assert ran == [0, 1, 2]
    assert answers.getvalue() == DONE * 3


def test_processes_are_used_again_and_one_that_died_is_replaced() -> None:
    workers = Workers((sys.executable, "-c", ANSWERS.replace("DEADLY", "-1")))
    workers.compile([job(n) for n in range(9)], 2)
    first = list(workers.running)
    assert len(first) == 2
    workers.compile([job(n) for n in range(9)], 2)
    assert workers.running == first
    first[0].kill()
    first[0].wait()
    workers.compile([job(n) for n in range(9)], 2)
    assert first[0] not in workers.running
    assert len(workers.running) == 2
    workers.end()
    assert workers.running == []
