"""Kernels run in Triton's interpreter, on the CPU: it must be chosen before Triton is imported."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="module", autouse=True)
def quick_interpreter() -> Iterator[None]:
    """Triton's interpreter with less work around every operation."""
    from tests.gpu.interpreter import quickened
    with quickened():
        yield


@pytest.fixture
def kept_inside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test whose kernels load or store anything beyond the memory of their operands."""
    import numpy as np
    from triton.runtime import interpreter
    builder, launch = interpreter.InterpreterBuilder, interpreter.GridExecutor._init_args_hst
    load, store = builder.create_masked_load, builder.create_masked_store
    memory, beyond = list[tuple[int, int]](), list[str]()

    def begun(self: Any, operands: Any, named: Any) -> Any:
        copies, others = launch(self, operands, named)
        held = [o.untyped_storage() for o in (*copies, *others.values()) if hasattr(o, "untyped_storage")]
        memory[:] = [(s.data_ptr(), s.data_ptr() + s.nbytes()) for s in held]
        return copies, others

    def look(what: str, pointers: Any, mask: Any, size: int) -> None:
        at = np.broadcast_arrays(pointers.data, mask.data)[0][np.broadcast_arrays(mask.data, pointers.data)[0].astype(bool)]
        inside = np.zeros(at.shape, bool)
        for first, end in memory:
            inside |= (at >= first) & (at + size <= end)
        if not inside.all():
            beyond.append(f"{what} of {int((~inside).sum())} values")
            raise IndexError(beyond[-1])

    def loaded(self: Any, pointers: Any, mask: Any, *others: Any) -> Any:
        look("load", pointers, mask, pointers.get_element_ty().primitive_bitwidth // 8)
        return load(self, pointers, mask, *others)

    def stored(self: Any, pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        look("store", pointers, mask, value.data.dtype.itemsize)
        return store(self, pointers, value, mask, *others)
    monkeypatch.setattr(interpreter.GridExecutor, "_init_args_hst", begun)
    monkeypatch.setattr(builder, "create_masked_load", loaded)
    monkeypatch.setattr(builder, "create_masked_store", stored)
    yield
    assert not beyond
