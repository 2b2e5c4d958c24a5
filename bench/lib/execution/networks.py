"""Networks in 8-bit integers, several at once: each in a process of its own, written to a folder."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from dovetail import zoo
from dovetail.errors import DovetailError
from dovetail.files import replace_bytes
from dovetail.ir.onnx.write import to_onnx
from dovetail.numbers import decide_numbers
from dovetail.numerics.equalize import Equalise


def write_integers(folder: Path, name: str) -> str:
    """Write a network of the zoo (`NAME` or `NAME@SIZE`) in integers, unless it is there; why it cannot be, or nothing."""
    path, (own, _, size) = folder / f"{name}.onnx", name.partition("@")
    if path.exists():
        return ""
    source = folder / f"{name}.float.onnx"
    source.write_bytes(zoo.build(own, size=int(size)) if size else zoo.build(own))
    try:
        replace_bytes(path, to_onnx(decide_numbers(source, equalise=Equalise.OFF).graph))
    except DovetailError as reason:
        return str(reason)
    finally:
        source.unlink()
    return ""


def write_all(folder: Path, names: Sequence[str], workers: int) -> dict[str, str]:
    """The same of several networks; what stopped each, by name."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # of processes begun below
        os.environ.setdefault(variable, "2")
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return dict(zip(names, pool.map(partial(write_integers, folder), names), strict=True))
