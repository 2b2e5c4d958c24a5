"""Kernels are compiled by processes that stay for the next ones, and survive what does not compile."""

from __future__ import annotations

import io
import pickle
import sys

import pytest
import torch

from dovetail.gpu.executor import compile_graph
from dovetail.gpu.precompile import ALIGNED, DONE, UNALIGNED, Anywhere, Job, Workers, serve
from dovetail.kernels.place import Place
from tests.kernels.networks import GRAPHS

ANSWERS = """
import pickle, sys
while sys.stdin.buffer.peek():
    pickle.load(sys.stdin.buffer)
    sys.stdout.write(".")
    sys.stdout.flush()
"""


def job(number: int) -> Job:
    """A kernel without operands, which nothing can compile."""
    return Job("add", (), {"number": number}, {"num_warps": 1}, pdl=False)


def test_operands_that_begin_inside_a_buffer_are_compiled_as_such() -> None:
    made = compile_graph(GRAPHS["unit"](), "float16", 1)
    made.launcher.buffers.clear()
    found = [(call.operands, made.launcher.described(call, config).operands) for call, config in made.calls]
    apart = [(o.offset, kind) for operands, kinds in found for o, kind in zip(operands, kinds, strict=True)
             if isinstance(o, Place)]
    assert {str(kind).endswith(UNALIGNED) for offset, kind in apart if offset == 0} == {False}
    assert {str(kind).endswith(UNALIGNED) for offset, kind in apart if offset * 2 % ALIGNED} == {True}
    assert Anywhere(torch.float16).data_ptr() % ALIGNED


def test_every_job_is_answered_until_there_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr(Job, "run", lambda self: ran.append(self.constants["number"]))
    answers = io.BytesIO()
    serve(io.BytesIO(b"".join(pickle.dumps(job(n)) for n in range(3))), answers)
    assert ran == [0, 1, 2]
    assert answers.getvalue() == DONE * 3


def test_processes_are_used_again_and_one_that_died_is_replaced() -> None:
    workers = Workers((sys.executable, "-c", ANSWERS))
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
